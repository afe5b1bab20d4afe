//! Addresses for a container: from Calico's own IPAM in this process, or from another IPAM plugin.

pub(crate) mod assign;
pub(crate) mod azure;
pub(crate) mod delegate;
pub(crate) mod host_local;
pub(crate) mod lock;
pub(crate) mod machine;
pub(crate) mod release;
