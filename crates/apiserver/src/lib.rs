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
//! - Shell: [`app`], [`access`], [`store`], [`watching`], [`reading`], [`writing`], [`handler`], [`hooks`], [`serve`], [`run`](mod@run).
//!
//! Beside it, for clusters that serve the same kinds as custom resources: [`webhooks`] and [`admission`], and the way there and
//! back, [`migration`].
//!
//! It refuses to default or validate anything itself: that is `client`'s, for every way in.

pub mod access;
pub mod admission;
mod admitting;
pub mod app;
pub mod body;
pub mod cache;
pub mod cli;
mod deleting;
pub mod discovery;
pub mod entry;
pub mod flags;
mod following;
pub mod handler;
pub mod hooks;
pub mod kinds;
pub mod managed;
pub mod migration;
pub mod namespaces;
pub mod openapi;
pub mod patch;
pub mod reading;
pub mod request;
pub mod respond;
pub mod run;
pub mod selectors;
pub mod serve;
pub mod serving_certificate;
pub mod status;
pub mod store;
pub mod tables;
pub mod tiers;
pub mod watching;
pub mod webhooks;
pub mod writing;
