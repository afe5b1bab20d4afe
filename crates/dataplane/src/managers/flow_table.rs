//! The flow table of nftables: the devices that it covers, and the endpoints that must not use it because their packets
//! have to meet every rule.
//!
//! The kernel refuses a table with a missing device, so only devices that are up are listed.

use super::{CountedSet, Manager, News, World};
use crate::desired::{Desired, VersionDesired};
use felix_config::Pattern;
use ipnet::IpNet;
use messages::{
    HostEndpoint, HostEndpointName, InterfaceName, IpSetMember, IpSetType, WorkloadEndpoint,
    WorkloadEndpointId,
};
use rules::names::sets;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

/// The flow table of one IP version.
#[derive(Debug)]
pub(crate) struct FlowTables {
    version: IpVersion,
    tunnels: Vec<InterfaceName>,
    pattern: Option<Pattern>,
    set: CountedSet,
    excluded: BTreeMap<String, Vec<IpSetMember>>,
    devices: BTreeSet<InterfaceName>,
    /// Interfaces that may have been added or removed.
    unsettled: BTreeSet<InterfaceName>,
    is_started: bool,
}

impl FlowTables {
    /// A flow table that covers these tunnel devices, interfaces that match, and those of workloads.
    pub(crate) fn new(
        tunnels: Vec<InterfaceName>,
        pattern: Option<Pattern>,
        desired: &mut VersionDesired,
    ) -> Self {
        let set = CountedSet::new(sets::NO_FLOW_OFFLOAD, IpSetType::Ip, &[], desired);
        Self {
            version: desired.version,
            tunnels,
            pattern,
            set,
            excluded: BTreeMap::new(),
            devices: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            is_started: false,
        }
    }

    fn update_workload(
        &mut self,
        id: &WorkloadEndpointId,
        endpoint: Option<&WorkloadEndpoint>,
        desired: &mut VersionDesired,
    ) {
        let nets = endpoint.filter(|endpoint| needs_rules(endpoint)).into_iter().flat_map(|endpoint| {
            match self.version {
                IpVersion::V4 => &endpoint.ipv4_nets,
                IpVersion::V6 => &endpoint.ipv6_nets,
            }
        });
        let addresses = nets.map(IpNet::addr).collect();
        self.exclude(
            format!("workload {} {} {}", id.orchestrator, id.workload, id.endpoint),
            addresses,
            desired,
        );
    }

    fn update_host(
        &mut self,
        id: &HostEndpointName,
        endpoint: Option<&HostEndpoint>,
        desired: &mut VersionDesired,
    ) {
        let marked = endpoint.filter(|endpoint| !endpoint.qos_policies.is_empty());
        let addresses = marked.into_iter().flat_map(|endpoint| match self.version {
            IpVersion::V4 => &endpoint.expected_ipv4_addrs,
            IpVersion::V6 => &endpoint.expected_ipv6_addrs,
        });
        self.exclude(format!("host {id}"), addresses.copied().collect(), desired);
    }

    fn exclude(&mut self, whose: String, addresses: Vec<IpAddr>, desired: &mut VersionDesired) {
        let members: Vec<IpSetMember> = addresses.into_iter().map(IpSetMember::Ip).collect();
        let old = match members.is_empty() {
            true => self.excluded.remove(&whose),
            false => self.excluded.insert(whose, members.clone()),
        };
        let old = old.unwrap_or_default();
        if old != members {
            self.set.exchange(&old, &members, desired);
        }
    }
}

impl Manager for FlowTables {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        let Some(desired) = desired.of(self.version) else { return };
        match *news {
            News::Workload(id, endpoint) => self.update_workload(id, endpoint.map(|one| &**one), desired),
            News::Host(id, endpoint) => self.update_host(id, endpoint.map(|one| &**one), desired),
            News::Interface(name) => _ = self.unsettled.insert(name.clone()),
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        let mut changed = !std::mem::replace(&mut self.is_started, true);
        if changed {
            self.unsettled.extend(world.interfaces.all().map(|interface| interface.name.clone()));
        }
        self.unsettled.extend(world.changed.workloads.iter().cloned());
        for name in std::mem::take(&mut self.unsettled) {
            let is_covered = world.workloads.contains(&name)
                || self.tunnels.contains(&name)
                || self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(&name));
            changed |= match is_covered && world.interfaces.is_up(&name) {
                true => self.devices.insert(name),
                false => self.devices.remove(&name),
            };
        }
        if let Some(desired) = desired.of(self.version).filter(|_| changed) {
            desired.rules.flow_devices = Some(self.devices.clone());
        }
    }
}

/// Whether packets of an endpoint have to meet every rule. Bandwidth limits do not depend on rules.
fn needs_rules(endpoint: &WorkloadEndpoint) -> bool {
    !endpoint.qos_policies.is_empty()
        || endpoint.qos_controls.as_deref().is_some_and(|limits| {
            [
                limits.ingress_max_connections,
                limits.egress_max_connections,
                limits.ingress_packet_rate,
                limits.egress_packet_rate,
            ]
            .iter()
            .any(|limit| *limit != 0)
        })
}
