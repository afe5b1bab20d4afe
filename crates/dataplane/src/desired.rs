//! The desired state of the kernel, as a value that managers write and drivers take.
//!
//! It holds one value per key (chain, set, route, device ...), as far as it changed since the drivers took it: a change
//! of one workload is a small value, however many workloads there are. The whole state is the sum of all changes, which
//! the drivers keep beside the state of the kernel. It knows neither drivers nor the kernel.

use delta::Changes;
use messages::{InterfaceName, NodeName};
use netfilter::desired::{RuleChanges, SetChanges};
use routing::limits::Limits;
use routing::routes::device::TunnelDevice;
use routing::routes::{RouteChanges, TunnelPeer};
use routing::wireguard::WireguardChanges;
use rules::tree::{Chain, ChainName, IpVersion, Table};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// Pending changes of the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Desired {
    /// The state that is specific to each IP version.
    pub(crate) versions: Vec<VersionDesired>,
    /// Rules for ARP packets.
    pub(crate) arp: RuleChanges,
    /// Tunnel devices by name.
    pub(crate) devices: Changes<InterfaceName, TunnelDevice>,
    /// Bandwidth limits by workload interface.
    pub(crate) limits: Changes<InterfaceName, Limits>,
    /// The setup of workloads' interfaces.
    pub(crate) interfaces: Changes<InterfaceName, WantedInterface>,
}

/// Pending changes of one IP version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionDesired {
    /// The version.
    pub(crate) version: IpVersion,
    /// Rules.
    pub(crate) rules: RuleChanges,
    /// Sets.
    pub(crate) sets: SetChanges,
    /// Routes of the main table.
    pub(crate) routes: RouteChanges,
    /// The other ends of the VXLAN tunnel, by node.
    pub(crate) tunnel_peers: Changes<NodeName, TunnelPeer>,
    /// WireGuard.
    pub(crate) wireguard: WireguardChanges,
    /// The addresses for which we answer neighbour requests, if they changed.
    pub(crate) answered: Option<BTreeSet<IpAddr>>,
}

/// The setup of a workload's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedInterface {
    /// Whether it may send from any address, so that the kernel's own source check is off.
    pub(crate) any_source: bool,
    /// The addresses that the workload speaks BGP with, IPv4 and IPv6.
    pub(crate) peering: [Peering; 2],
}

/// The address on the host's side that a workload peers with by BGP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Peering {
    /// The workload does not speak BGP.
    #[default]
    None,
    /// The workload peers with this address.
    With(IpAddr),
    /// The workload should speak BGP, but no address is set for that.
    Missing,
}

impl Desired {
    /// A state without changes.
    #[must_use]
    pub(crate) fn new(versions: &[IpVersion]) -> Self {
        Self { versions: versions.iter().copied().map(VersionDesired::new).collect(), ..Self::default() }
    }

    /// The state of one IP version; `None` if that version is not programmed.
    pub(crate) fn of(&mut self, version: IpVersion) -> Option<&mut VersionDesired> {
        self.versions.iter_mut().find(|one| one.version == version)
    }

    /// Defines a chain in every IP version.
    pub(crate) fn define(&mut self, layer: Table, chain: &Chain) {
        self.versions.iter_mut().for_each(|one| one.rules.define(layer, chain.clone()));
    }

    /// Removes a chain's definition in every IP version.
    pub(crate) fn undefine(&mut self, layer: Table, name: &ChainName) {
        self.versions.iter_mut().for_each(|one| one.rules.undefine(layer, name.clone()));
    }
}

impl VersionDesired {
    fn new(version: IpVersion) -> Self {
        Self {
            version,
            rules: RuleChanges::default(),
            sets: SetChanges::default(),
            routes: RouteChanges::default(),
            tunnel_peers: Changes::default(),
            wireguard: WireguardChanges::default(),
            answered: None,
        }
    }
}

/// One line for each change, for logs and tests.
impl fmt::Display for Desired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in &self.versions {
            for part in [one.rules.to_string(), one.sets.to_string(), one.routes.to_string()] {
                part.lines().try_for_each(|line| writeln!(f, "IPv{} {line}", one.version))?;
            }
        }
        self.arp.to_string().lines().try_for_each(|line| writeln!(f, "ARP {line}"))?;
        for (name, device) in self.devices.iter() {
            writeln!(f, "{}device {name}", if device.is_some() { '+' } else { '-' })?;
        }
        for (name, limits) in self.limits.iter() {
            writeln!(f, "{}limits of {name}", if limits.is_some() { '+' } else { '-' })?;
        }
        for (name, wanted) in self.interfaces.iter() {
            writeln!(f, "{}interface {name}", if wanted.is_some() { '+' } else { '-' })?;
        }
        Ok(())
    }
}
