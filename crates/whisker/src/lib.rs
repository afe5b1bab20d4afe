//! Whisker: the page that shows which workloads communicated and why that was allowed, and the HTTP API behind it.
//!
//! ```text
//! Goldmane (ours or Calico's) ─► source ─┬─► compatible: /flows, /flows-filter-hints, /config/config.json, as Calico's
//! a ring in this process      ─►         └─► own: /api/v1, what our page asks ─► page (one html, one js, one css)
//! a datastore, where there is one ─► stored ─► reasons: rules, explanations, previews, recommendations
//! ```
//!
//! - [`source`]: the sources of flows. [`demo`]: made-up flows, to try the page without a cluster.
//! - [`views`]: graph, board and lists of talkers, as functions of flows.
//! - [`app`]: the paths, as a service independent of sockets. [`serve`]: the sockets.
//! - [`access`]: access control, and the headers of every answer. [`reviews`]: token reviews by Kubernetes.
//!
//! Does not change anything: it answers GET and HEAD, and one POST that asks what a policy would do. Does not serve
//! other machines unencrypted, and does not let a page contact any other server.

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

/// Items for tests and benchmarks only.
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
