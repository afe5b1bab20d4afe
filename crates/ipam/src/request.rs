//! Requests and answers of address management, without any logic.

use ipnet::IpNet;
use model::{HandleId, IpVersion};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

pub use ipam_core::owner::{Change, Expected};
pub use ipam_core::{
    HostReserved as WindowsReservation, IntendedUse, NamespaceLabels, Owner, OwnerCheck, OwnerUpdate,
    PodOwner, Release,
};

/// A request for any addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutoAssign {
    /// The node's name; `load-balancer` for [`IntendedUse::LoadBalancer`].
    pub host: String,
    /// The handle that holds the addresses.
    pub handle: Option<HandleId>,
    /// Attributes of the owner, stored with the addresses.
    pub attributes: BTreeMap<String, String>,
    /// How many IPv4 addresses.
    pub num4: usize,
    /// How many IPv6 addresses.
    pub num6: usize,
    /// Only from these IPv4 pools, whatever they select; empty for all that select the node and the namespace.
    pub ipv4_pools: Vec<IpNet>,
    /// Only from these IPv6 pools; empty for all that select the node and the namespace.
    pub ipv6_pools: Vec<IpNet>,
    /// The use of the addresses.
    pub intended_use: IntendedUse,
    /// The pod's namespace, for pools with a namespace selector.
    pub namespace: Option<NamespaceLabels>,
    /// How many blocks of each IP version the host may own; 0 for the value of the settings.
    pub max_blocks_per_host: u32,
    /// The addresses to keep free of workloads in new IPv4 blocks.
    pub host_reserved: Option<WindowsReservation>,
    /// The addresses to keep free of workloads in new IPv6 blocks.
    pub host_reserved6: Option<WindowsReservation>,
    /// How many addresses of each IP version the handle may have; 0 for any number. If it has them already, they are
    /// the answer (KubeVirt: one address per machine, whichever pod asks).
    pub max_per_handle: usize,
}

impl AutoAssign {
    /// An empty request, allowing all pools.
    #[must_use]
    pub fn new(host: impl Into<String>, intended_use: IntendedUse) -> Self {
        Self {
            host: host.into(),
            handle: None,
            attributes: BTreeMap::new(),
            num4: 0,
            num6: 0,
            ipv4_pools: Vec::new(),
            ipv6_pools: Vec::new(),
            intended_use,
            namespace: None,
            max_blocks_per_host: 0,
            host_reserved: None,
            host_reserved6: None,
            max_per_handle: 0,
        }
    }
}

/// A request for one specific address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignIp {
    /// The address.
    pub address: IpAddr,
    /// The node's name.
    pub host: String,
    /// The handle that holds the address.
    pub handle: Option<HandleId>,
    /// Attributes of the owner.
    pub attributes: BTreeMap<String, String>,
    /// The use of the address; if `None`, the pool's allowed uses are not checked.
    pub intended_use: Option<IntendedUse>,
    /// The addresses to keep free of workloads, if a new block is needed.
    pub host_reserved: Option<WindowsReservation>,
    /// Like [`AutoAssign::max_per_handle`].
    pub max_per_handle: usize,
}

impl AssignIp {
    /// A request for this address.
    #[must_use]
    pub fn new(address: IpAddr, host: impl Into<String>) -> Self {
        Self {
            address,
            host: host.into(),
            handle: None,
            attributes: BTreeMap::new(),
            intended_use: None,
            host_reserved: None,
            max_per_handle: 0,
        }
    }
}

/// The addresses that a request got, maybe fewer than requested. Each has the prefix length of its block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// IPv4 addresses.
    pub ipv4: Vec<IpNet>,
    /// IPv6 addresses.
    pub ipv6: Vec<IpNet>,
    /// How many addresses are missing and why; at most one entry of each IP version.
    pub shortfalls: Vec<Shortfall>,
}

impl Assigned {
    /// The shortfall of an IP version; displayed as Calico's error text.
    #[must_use]
    pub fn shortfall(&self, version: IpVersion) -> Option<&Shortfall> {
        self.shortfalls.iter().find(|shortfall| shortfall.version == version)
    }

    /// All addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.ipv4.iter().chain(&self.ipv6).map(IpNet::addr)
    }
}

/// Fewer addresses than requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// The IP version.
    pub version: IpVersion,
    /// How many addresses were requested.
    pub requested: usize,
    /// How many addresses were assigned.
    pub assigned: usize,
    /// The reasons, in Calico's words, without duplicates.
    pub messages: Vec<String>,
    /// The handle of the addresses that are kept free in blocks, if there are any.
    pub host_reserved: Option<HandleId>,
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, requested, assigned, messages, host_reserved } = self;
        write!(f, "Assigned {assigned} out of {requested} requested IPv{version} addresses")?;
        for message in messages {
            write!(f, "; {message}")?;
        }
        match host_reserved {
            Some(handle) => write!(f, "; HostReservedAttr: {handle}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Shortfall {}

/// The outcome of a release.
#[derive(Debug, Default)]
pub struct Released {
    /// Addresses that were not allocated to begin with.
    pub unallocated: Vec<IpAddr>,
    /// Requests that need no further attention: released, or not allocated.
    pub released: Vec<Release>,
    /// The first refusal or failure. It concerns the requests of one block; requests for other blocks were carried out.
    pub failure: Option<crate::Error>,
}

/// A request for blocks for a host, without taking an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsureBlock {
    /// The node's name.
    pub host: String,
    /// Only from these IPv4 pools.
    pub ipv4_pools: Vec<IpNet>,
    /// Only from these IPv6 pools.
    pub ipv6_pools: Vec<IpNet>,
    /// The addresses to keep free in the IPv4 block; without it no IPv4 block is created.
    pub host_reserved: Option<WindowsReservation>,
    /// The addresses to keep free in the IPv6 block; without it no IPv6 block is created.
    pub host_reserved6: Option<WindowsReservation>,
}
