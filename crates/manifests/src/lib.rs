//! The objects that install this program on a Kubernetes cluster, as values: `tortie manifests` prints them, `tortie
//! install` applies them, and `deploy/` contains them. Pure.
//!
//! ```text
//! Like (which of Calico's manifests) ─┐
//! settings (--set KEY=VALUE)          ├─► Options ─► objects ─► YAML documents
//! registry and tag                    ┘              chart ─► the Helm chart, from the same objects
//!                                                    monitoring ─► rules, dashboards, monitors
//! ```
//!
//! - [`options`]: the options, with every key in one table.
//! - [`parts`]: variables, mounts, containers and roles as types.
//! - [`node`], [`controllers`], [`typha`], [`apiserver`], [`webhooks`], [`flows`], [`roles`], [`config`]: the objects, a component
//!   each.
//! - [`objects`]: all of them, in the order in which they are applied.
//! - [`chart`]: the same objects as templates of a Helm chart.
//! - [`monitoring`]: alerts and dashboards over the figures that components offer.
//!
//! Names, accounts, volumes and probes are Calico's, so that a cluster can be switched by changing images. The state of
//! a cluster is not known here: the caller who applies the objects handles what already exists.

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
