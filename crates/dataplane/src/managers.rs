//! Managers turn messages into desired state: chains and hooks for the rule drivers, members for the set drivers, routes,
//! devices, kernel settings, and reports about endpoints.
//!
//! All have the same interface, [`Manager`]: they receive [`News`], and write the consequences into a [`Desired`], with
//! access to one [`World`]. Each keeps what it received and remembers what changed; the cost of writing is proportional
//! to the change. Nothing here does IO, and no manager knows a driver.

mod attached;
mod chain_set;
mod cluster_routes;
mod compiled;
mod counted_set;
mod dscp;
mod fixed;
mod floating;
mod flow_table;
mod groups;
mod host_endpoints;
mod hosts;
mod interfaces;
mod ip_sets;
mod ipip;
mod mark_dispatch;
mod migration;
mod mtu;
mod news;
mod node_ring;
mod policies;
mod pools;
mod route_tables;
mod service_loop;
mod service_routes;
mod subnet_neighbours;
mod unions;
mod vxlan;
mod wireguard;
mod workloads;
mod world;

#[cfg(test)]
mod tests;

pub(crate) use attached::AttachedWorkloads;
pub(crate) use chain_set::ChainSet;
pub(crate) use cluster_routes::{ClusterRoutes, ClusterRoutesSettings};
pub(crate) use compiled::CompiledPolicies;
pub(crate) use counted_set::CountedSet;
pub(crate) use dscp::Dscp;
pub(crate) use fixed::FixedChains;
pub(crate) use floating::FloatingAddresses;
pub(crate) use flow_table::FlowTables;
pub(crate) use groups::Groups;
pub(crate) use host_endpoints::HostEndpoints;
pub(crate) use host_endpoints::all_tiers;
pub(crate) use hosts::{AllHosts, ThisHost, host_address};
pub(crate) use interfaces::{InterfaceNews, InterfaceState, Interfaces};
pub(crate) use ip_sets::IpSets;
pub(crate) use ipip::IpipDevice;
pub(crate) use mark_dispatch::MarkDispatch;
pub(crate) use migration::{Migrations, Routing};
pub(crate) use mtu::{ASSUMED_MTU, Mtus, host_mtu};
pub(crate) use news::News;
pub(crate) use news::tell;
pub(crate) use node_ring::NodeRing;
pub(crate) use policies::Policies;
pub(crate) use pools::Pools;
pub(crate) use route_tables::first_table;
pub(crate) use service_loop::ServiceLoop;
pub(crate) use service_routes::{GATEWAYS as SERVICE_GATEWAYS, ServiceRoutes};
pub(crate) use subnet_neighbours::SubnetNeighbours;
pub(crate) use vxlan::{VxlanManager, VxlanSettings, vxlan_device};
pub(crate) use wireguard::{WireguardManager, WireguardSettings};
pub(crate) use workloads::{WorkloadSettings, Workloads};
pub(crate) use world::{Judge, World};

use crate::desired::Desired;
use std::time::Instant;

/// A manager: it receives news, and writes the state that the kernel should have because of them.
pub(crate) trait Manager {
    /// Records relevant news and ignores others. Consequences that depend on nothing else may be written at once.
    fn hear(&mut self, news: &News<'_>, now: Instant, desired: &mut Desired);

    /// Writes the consequences of all news since the last call, and nothing else.
    fn write(&mut self, world: &mut World, desired: &mut Desired);
}
