//! The controllers of calico/kube-controllers: Kubernetes and Calico kept in step.
//!
//! The frame:
//! - [`cli`], [`run`]: the process: configuration, start, restart, health, figures.
//! - [`config`]: the configuration, computed from the environment and the KubeControllersConfiguration.
//! - [`cluster`]: requests to the Kubernetes API.
//! - [`informer`]: one shared list and watch per kind of Kubernetes object, each object reduced to what is used.
//! - [`feed`]: Calico's own data, followed once for all controllers.
//! - [`queue`]: keys that wait for a worker, once each, with pauses after failures.
//! - `workers`: workers for a queue, along with a periodic comparison of everything.
//! - [`controller`]: the interface of a controller, and the [`Context`](controller::Context) that it gets.
//! - [`status`], [`compaction`], [`leader`]: the file for probes, compaction of etcd, leader election.
//!
//! The controllers: [`profiles`] (namespaces and service accounts), [`policies`], [`endpoints`], [`nodes`], [`ipam_gc`]
//! (unused addresses), [`load_balancer`], [`pools`] (pools and tiers), [`policy_names`], [`flannel`].
//!
//! Every controller decides in plain functions (by comparing the desired with the actual state) and has a thin shell
//! that reads, writes and waits. Whole Kubernetes objects are never kept, and nothing is deleted that is not proven to
//! be gone.

pub mod cli;
mod compaction;
mod config;
mod controller;
mod copy;
mod endpoints;
mod feed;
mod informer;
mod ipam_gc;
mod leader;
mod load_balancer;
mod nodes;
mod policies;
mod policy_names;
mod pools;
mod profiles;
mod queue;
mod run;
mod status;
mod workers;

pub use config::environment::VARIABLES;

/// Exports for this crate's tests and benchmarks only.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::compaction::run as compact;
    pub use crate::controller::{Context, Controller};
    pub use crate::feed::DataFeed;
    pub use crate::informer::kinds::{Namespace, ServiceAccount};
    pub use crate::informer::{Informers, ObjectKey};
    pub use crate::ipam_gc::IpamGc;
    pub use crate::leader::{Candidate, LeaderSettings};
    pub use crate::load_balancer::LoadBalancer;
    pub use crate::policy_names::PolicyNames;
    pub use crate::pools::{PoolController, TierController};
    pub use crate::run::{Options, Surroundings, run};
    pub use crate::status::{Readiness, check};
}
