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
pub mod compaction;
pub mod config;
pub mod controller;
pub mod copy;
pub mod endpoints;
pub mod feed;
pub mod informer;
pub mod ipam_gc;
pub mod leader;
pub mod load_balancer;
pub mod nodes;
pub mod policies;
pub mod policy_names;
pub mod pools;
pub mod profiles;
pub mod queue;
pub mod run;
pub mod status;
mod workers;
