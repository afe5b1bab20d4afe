//! The objects that put this program on a Kubernetes cluster, as values: what `tortie manifests` prints, `tortie install`
//! applies, and `deploy/` holds. Pure.
//!
//! ```text
//! Like (which of Calico's manifests) ─┐
//! settings (--set KEY=VALUE)          ├─► Options ─► objects ─► YAML documents
//! registry and tag                    ┘              chart ─► the Helm chart, from the same objects
//!                                                    monitoring ─► rules, dashboards, monitors
//! ```
//!
//! - [`options`]: what can be chosen, with every key in one table.
//! - [`parts`]: variables, mounts, containers and roles as types.
//! - [`node`], [`controllers`], [`typha`], [`apiserver`], [`webhooks`], [`flows`], [`roles`], [`config`]: the objects, a component
//!   each.
//! - [`objects`]: all of them, in the order in which they are applied.
//! - [`chart`]: the same objects as templates of a Helm chart.
//! - [`monitoring`]: alerts and dashboards over the figures that components offer.
//!
//! Names, accounts, volumes and probes are Calico's, so that a cluster goes from one to the other by a change of images.
//! It refuses to know a cluster: what is there already is the business of who applies.

pub mod apiserver;
pub mod chart;
pub mod config;
pub mod controllers;
pub mod flows;
pub mod monitoring;
pub mod node;
pub mod objects;
pub mod options;
pub mod parts;
pub mod roles;
pub mod typha;
pub mod webhooks;

pub use objects::{Object, all, to_yaml};
pub use options::{Like, Options, OptionsError};

/// The namespace of everything that has one, as in Calico's manifests.
pub const NAMESPACE: &str = "kube-system";
