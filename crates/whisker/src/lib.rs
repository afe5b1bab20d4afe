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

pub mod access;
pub mod app;
pub mod cli;
mod compatible;
pub mod demo;
pub mod environment;
mod events;
mod own;
mod page;
mod params;
mod reasons;
mod respond;
pub mod reviews;
mod run;
pub mod serve;
pub mod source;
mod status;
pub mod stored;
mod views;
mod wire;
