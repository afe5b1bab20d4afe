//! The reference CNI plugins that conflists chain after Calico's own or delegate to, as names of this program: an image
//! without helper programs can install them, and a node needs nothing else.
//!
//! | name | what it does |
//! | --- | --- |
//! | `loopback` | brings a container's `lo` up |
//! | `host-local` | assigns addresses from ranges, kept in files of this host |
//! | `portmap` | forwards ports of the host to a container |
//! | `tuning` | sets sysctls, hardware address, MTU and flags of a container's interface |
//! | `bandwidth` | limits what a container sends and receives |
//!
//! Configuration, files, device names, tables and chains are those of the reference plugins, so that either
//! implementation can remove an attachment of the other. Messages that users search for are theirs, too. Each plugin
//! consists of a pure part (configuration, what to write) and a thin shell around the kernel or the disk.
//!
//! Independent of Calico, datastores and Kubernetes.

mod bandwidth;
mod frame;
mod host_local;
mod loopback;
mod names;
mod portmap;
mod tuning;

pub use frame::{run, run_in_process};

/// One of the plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferencePlugin {
    /// `bandwidth`
    Bandwidth,
    /// `host-local`
    HostLocal,
    /// `loopback`
    Loopback,
    /// `portmap`
    Portmap,
    /// `tuning`
    Tuning,
}

impl ReferencePlugin {
    /// All of them, by name.
    pub const ALL: [Self; 5] =
        [Self::Bandwidth, Self::HostLocal, Self::Loopback, Self::Portmap, Self::Tuning];

    /// The plugin's name, which is its program's name and its `type` in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::HostLocal => "host-local",
            Self::Loopback => "loopback",
            Self::Portmap => "portmap",
            Self::Tuning => "tuning",
        }
    }

    /// The plugin of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }
}
