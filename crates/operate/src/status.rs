//! `tortie status`: what is running, in which version, how packets are filtered and why, and what is wrong. A report is
//! a function of [`Facts`]; the shell reads them.

mod gather;
mod report;

pub use gather::gather;
pub(crate) use gather::{proxy_mode, text};
pub(crate) use report::parameter;
pub use report::report;

use serde_json::Value;

/// The facts about a cluster. Lists are empty if a kind does not exist.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The address of the API.
    pub server: String,
    /// The daemon sets and deployments of Calico's components.
    pub workloads: Vec<Value>,
    /// Their pods.
    pub pods: Vec<Value>,
    /// The nodes.
    pub nodes: Vec<Value>,
    /// ClusterInformation `default`.
    pub cluster_information: Option<Value>,
    /// FelixConfigurations.
    pub felix: Vec<Value>,
    /// IPPools.
    pub pools: Vec<Value>,
    /// BGPConfigurations.
    pub bgp: Vec<Value>,
    /// BGPPeers.
    pub peers: Vec<Value>,
    /// CalicoNodeStatuses.
    pub node_statuses: Vec<Value>,
    /// The config map that nodes take variables from.
    pub config: Option<Value>,
    /// kube-proxy's configuration, as text.
    pub kube_proxy: Option<String>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
}
