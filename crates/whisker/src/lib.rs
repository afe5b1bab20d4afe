//! Whisker: the page that shows who talked to whom and why it was allowed, and the HTTP API behind it.
//!
//! ```text
//! Goldmane (ours or Calico's) ─► source ─┬─► compatible: /flows, /flows-filter-hints, /config/config.json, as Calico's
//! a ring in this process      ─►         └─► own: /api/v1, what our page asks ─► page (one html, one js, one css)
//! a datastore, where there is one ─► stored ─► reasons: rules, explanations, previews, recommendations
//! ```
//!
//! - [`source`]: where flows come from. [`demo`]: made-up flows, to look at the page without a cluster.
//! - [`views`]: graph, board and lists of talkers, as functions of flows.
//! - [`app`]: the paths, as a service that needs no socket. [`serve`]: the sockets.
//! - [`access`]: who may ask, and what every answer says to browsers. [`reviews`]: what Kubernetes says about that.
//!
//! It refuses to change anything: GET and HEAD are answered, and one POST that asks what a policy would do. It refuses to serve in the clear to other machines, and
//! to let a page ask anyone but this server.

mod access;
mod app;
pub mod cli;
mod compatible;
mod demo;
mod environment;
mod events;
mod own;
mod page;
mod params;
mod reasons;
mod respond;
mod reviews;
mod run;
mod serve;
mod source;
mod status;
mod stored;
mod views;
mod wire;

pub use environment::VARIABLES;

/// What tests and benchmarks reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::access::Access;
    pub use crate::app::{ClusterConfig, Options, service};
    pub use crate::reviews::Reviews;
    pub use crate::serve::serve;
    pub use crate::source::{
        Goldmane, HintsQuery, ListQuery, Local, Loss, SharedRing, SortBy, Source, SourceError, StreamQuery,
    };
    pub use crate::stored::Policies;
}
