//! Where a node's flows can be watched on the node itself.

/// The socket on which somebody listens who wants the node's flows at once; agents look for it (`FlowLogsLocalReporter`).
pub const SOCKET: &str = "/var/run/calico/flows/flows.sock";
