//! Where a node's flows can be watched on the node itself.

/// The socket of a process that watches the node's flows live; agents look for it (`FlowLogsLocalReporter`).
pub const SOCKET: &str = "/var/run/calico/flows/flows.sock";
