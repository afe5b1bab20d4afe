//! The controllers of calico/kube-controllers: Kubernetes and Calico kept in step.
//!
//! The frame:
//! - [`cli`], [`run`]: the process: configuration, start, restart, health, figures.
//! - [`config`]: what runs and how, as a function of the environment and the KubeControllersConfiguration.
//! - [`cluster`]: requests to the Kubernetes API.
//! - [`informer`]: one shared list and watch per kind of Kubernetes object, each object cut down to what is used.
//! - [`feed`]: Calico's own data, followed once for all controllers.
//! - [`queue`]: keys that wait for a worker, once each, with pauses after failures.
//! - `workers`: workers at a queue, beside a comparison of everything by period.
//! - [`controller`]: what a controller is given ([`Context`](controller::Context)) and what it must be.
//! - [`status`], [`compaction`], [`leader`]: the file that probes read, etcd's old revisions, who may work.
//!
//! The controllers: [`profiles`] (namespaces and service accounts), [`policies`], [`endpoints`], [`nodes`],
//! [`ipam_gc`] (addresses that nobody uses), [`load_balancer`], [`pools`] (pools and tiers), [`policy_names`], [`flannel`].
//!
//! Every controller decides in plain functions (what should be there against what is there) and has a thin shell that
//! reads, writes and waits. It refuses to keep whole Kubernetes objects, and to delete what it cannot prove to be gone.

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

/// What tests and benchmarks of this crate reach into, and nothing else may.
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
