//! The move of a cluster's network from flannel (or Canal) to Calico, node by node, while it runs.
//!
//! - [`config`]: the environment, and flannel's `subnet.env`.
//! - [`plan`](mod@plan): which nodes come in which order, and the steps of one node; resumed from the node's labels.
//! - [`facts`]: what Kubernetes' objects say: nodes, flannel's annotations, DaemonSets, pods.
//! - [`calico`]: pools, Felix's settings, blocks and tunnel addresses.
//! - [`kubernetes`]: labels, DaemonSets, draining, pods that do one thing on a node.
//! - [`run`]: all of it, in order.
//!
//! Every step may be done twice: the controller can be stopped anywhere and goes on where the labels say. A node that
//! fails stops the work before the next node is touched. It refuses to begin while an add-on manager would undo its work.

pub mod calico;
pub mod config;
pub mod facts;
pub mod kubernetes;
pub mod plan;
pub mod run;

pub use config::{FlannelConfig, FlannelConfigError};
pub use run::FlannelMigration;
