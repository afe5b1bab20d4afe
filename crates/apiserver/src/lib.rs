//! The API server: `projectcalico.org/v3` for `kubectl` and every other client of Kubernetes, as an aggregated API of a
//! cluster, on the Kubernetes datastore and on etcd.
//!
//! ```text
//! kube-apiserver ─ TLS ─► serve ─► handler ─┬─ app: who asks (certificate, token), may they (Kubernetes' reviews, tiers)
//!                                          ├─ reading: get, list, watch ◄─ store: one follow per kind, encoded once
//!                                          └─ writing: create, update, patch, delete ─► client: defaults, checks, storing
//! ```
//!
//! - Pure: [`kinds`], [`discovery`], [`openapi`], [`request`], [`selectors`], [`tables`], [`body`], [`patch`], [`managed`],
//!   [`tiers`], [`status`], [`cache`].
//! - Shell: [`app`], [`access`], [`store`], [`watching`], [`reading`], [`writing`], [`handler`], [`hooks`], [`serve`],
//!   [`run`](mod@run).
//!
//! Alongside, for clusters that serve the same kinds as custom resources: [`webhooks`] and [`admission`], and the move
//! between both forms, [`migration`].
//!
//! Does no defaulting or validation itself: `client` does both, for every way in.

mod access;
mod admission;
mod admitting;
mod app;
mod body;
mod cache;
pub mod cli;
mod deleting;
mod discovery;
mod entry;
mod flags;
mod following;
mod handler;
mod hooks;
mod kinds;
mod managed;
pub mod migration;
mod namespaces;
mod openapi;
mod patch;
mod reading;
mod request;
mod respond;
mod run;
mod selectors;
mod serve;
mod serving_certificate;
mod status;
mod store;
mod tables;
mod tiers;
mod watching;
pub mod webhooks;
mod writing;

/// Exports for this crate's tests and benchmarks only.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::admission::install as install_admission;
    pub use crate::app::{Access, App};
    pub use crate::handler::handle;
    pub use crate::kinds::SERVED;
    pub use crate::migration::moving::{Move, Outcome};
    pub use crate::namespaces::Namespaces;
    pub use crate::run::run;
}
