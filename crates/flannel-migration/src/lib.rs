//! Moves the network of a running cluster from flannel (or Canal) to Calico, node by node.
//!
//! - [`config`]: the environment, and flannel's `subnet.env`.
//! - [`plan`](mod@plan): the order of nodes, and the steps of one node; resumed from the node's labels.
//! - [`facts`]: what is read from Kubernetes' objects: nodes, flannel's annotations, DaemonSets, pods.
//! - [`calico`]: pools, Felix's settings, blocks and tunnel addresses.
//! - [`kubernetes`]: labels, DaemonSets, draining, pods that run one script on a node.
//! - [`run`]: the whole migration, in order.
//!
//! Every step can be repeated: the controller can be stopped anywhere and resumes according to the labels. A node that
//! fails stops the migration before the next node is touched. The migration does not begin while an add-on manager
//! would undo it.

pub mod calico;
pub mod config;
pub mod facts;
pub mod kubernetes;
pub mod plan;
pub mod run;

pub use config::{FlannelConfig, FlannelConfigError};
pub use run::FlannelMigration;
