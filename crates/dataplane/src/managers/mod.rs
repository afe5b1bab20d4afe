//! Managers turn messages into desired state: chains and hooks for the rule drivers, members for the set drivers, routes,
//! devices, kernel settings, and reports about endpoints.
//!
//! Each keeps what it was told and remembers what changed; `complete` writes the consequences of the changes, and only
//! those, to the drivers of a [`Plane`]. Nothing here does IO: drivers only take note, and the runner carries out.

mod chain_set;
mod cluster_routes;
mod counted_set;
mod dscp;
mod floating;
mod flow_table;
mod groups;
mod host_endpoints;
mod hosts;
mod interface_settings;
mod interfaces;
mod migration;
mod mtu;
mod node_ring;
mod policies;
mod pools;
pub mod qos;
mod service_loop;
mod subnet_neighbours;
mod vxlan;
mod wireguard;
mod workloads;

#[cfg(test)]
mod tests;

pub use chain_set::ChainSet;
pub use cluster_routes::{ClusterRoutes, ClusterRoutesSettings};
pub use counted_set::CountedSet;
pub use dscp::Dscp;
pub use floating::FloatingAddresses;
pub use flow_table::FlowTables;
pub use groups::Groups;
pub use host_endpoints::HostEndpoints;
pub(crate) use host_endpoints::all_tiers;
pub use hosts::{AllHosts, ThisHost, host_address};
pub use interface_settings::{Setting, workload_settings};
pub use interfaces::{Interface, InterfaceNews, InterfaceState, Interfaces};
pub use migration::{Migrations, Routing};
pub use mtu::{ASSUMED_MTU, Mtus, host_mtu};
pub use node_ring::NodeRing;
pub use policies::Policies;
pub use pools::Pools;
pub use qos::Bandwidth;
pub use service_loop::ServiceLoop;
pub use subnet_neighbours::SubnetNeighbours;
pub use vxlan::{VxlanManager, VxlanSettings};
pub use wireguard::{WantedPeer, WireguardManager, WireguardSettings};
pub(crate) use workloads::Surroundings;
pub use workloads::{Reported, WorkloadSettings, Workloads};

use crate::driver::{Applied, ApplyError, RuleDriver};
use crate::ipsets::IpSetDriver;
use crate::refused::{Retry, SetFaults};
use crate::routes::{LinkAddresses, RouteTable};
use messages::Text;
use rules::tree::{Chain, IpVersion, Table};
use std::collections::BTreeSet;
use std::time::Instant;

/// A figure of a driver: its name, its labels as they stand in braces, its value.
pub type DriverFigure = (&'static str, String, f64);

/// A rule driver with what only some have.
pub trait Firewall: RuleDriver {
    /// The devices that the flow table covers; `None` for no flow table. Only nftables has one.
    fn set_flow_devices(&mut self, _devices: Option<BTreeSet<Text>>) {}

    /// What the driver did so far.
    fn figures(&self) -> Vec<DriverFigure>;
}

/// The drivers of one IP version.
pub struct Plane {
    /// The version.
    pub version: IpVersion,
    /// Rules.
    pub rules: Box<dyn Firewall + Send>,
    /// Sets.
    pub sets: Box<dyn IpSetDriver + Send>,
    /// Routes of the main table; none where routes are not ours to make.
    pub routes: Option<RouteTable>,
    /// Addresses of workloads' interfaces; none where routes are not ours to make.
    pub link_addresses: Option<LinkAddresses>,
    /// When sets and members that were refused are tried again.
    pub(crate) set_retry: Retry,
    /// Whether the last attempt to write rules failed: then those in the kernel are older than what sets should hold.
    pub(crate) rules_behind: bool,
}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plane").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Plane {
    /// Defines chains in a layer.
    pub fn update_chains(&mut self, layer: Table, chains: impl IntoIterator<Item = Chain>) {
        chains.into_iter().for_each(|chain| self.rules.update_chain(layer, chain));
    }

    /// Makes and fills sets, before rules are written that name them. Rules that would let packets through because of a set
    /// that is not as it should be are closed with the next `apply`. `accept` is the mark's bit by which policies let pass.
    ///
    /// # Errors
    /// When sets could not be written; then rules are not to be written, either.
    pub fn fill_sets(&mut self, accept: u32, has_refused: bool, now: Instant) -> Result<Applied, ApplyError> {
        if self.set_retry.is_due(now) {
            self.sets.retry_refused();
        }
        self.sets.hold(self.rules_behind);
        let mut applied = self.sets.apply_updates()?;
        if applied.wrote && has_refused {
            self.rules.retry_refused();
        }
        let sets = self.sets.faults();
        self.set_retry.note(!sets.is_empty(), now);
        self.rules.set_faults(&SetFaults { sets, accept });
        let retry = self.set_retry.due().map(|due| due.saturating_duration_since(now));
        applied.again_in = applied.again_in.into_iter().chain(retry).min();
        Ok(applied)
    }

    /// Writes rules, after sets. Sets that were held back because rules could not be written follow.
    ///
    /// # Errors
    /// When rules, or then sets, could not be written.
    pub fn write_rules(
        &mut self,
        accept: u32,
        has_refused: bool,
        now: Instant,
    ) -> Result<Applied, ApplyError> {
        let outcome = self.rules.apply(now);
        let was_behind = std::mem::replace(&mut self.rules_behind, outcome.is_err());
        let applied = outcome?;
        if !was_behind {
            return Ok(applied);
        }
        let sets = self.fill_sets(accept, has_refused, now).inspect_err(|_| self.sets.invalidate())?;
        // Rules may have to be closed because of what sets hold now.
        let rules = self.rules.apply(now).inspect_err(|_| self.rules_behind = true)?;
        let again_in = sets.again_in.into_iter().chain(rules.again_in).min();
        Ok(Applied { wrote: applied.wrote || sets.wrote || rules.wrote, again_in })
    }

    /// Whether this is the IPv6 plane.
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.version == IpVersion::V6
    }
}
