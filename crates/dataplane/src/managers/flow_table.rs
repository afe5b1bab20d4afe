//! The flow table of nftables: which devices it covers, and which endpoints must not take that way because their packets
//! have to meet every rule.
//!
//! The kernel refuses a table with a device that is not there, so only devices that are up are named.

use super::{CountedSet, Interfaces, Plane};
use felix_config::Pattern;
use ipnet::IpNet;
use messages::{HostEndpoint, IpSetMember, IpSetType, Text, WorkloadEndpoint, WorkloadEndpointId};
use rules::names::sets;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The flow table of one IP version.
#[derive(Debug)]
pub struct FlowTables {
    version: IpVersion,
    tunnels: Vec<Text>,
    pattern: Option<Pattern>,
    set: CountedSet,
    excluded: BTreeMap<String, Vec<IpSetMember>>,
    devices: Option<BTreeSet<Text>>,
}

impl FlowTables {
    /// A flow table that covers these tunnel devices, interfaces that match, and those of workloads.
    pub fn new(tunnels: Vec<Text>, pattern: Option<Pattern>, plane: &mut Plane) -> Self {
        let set = CountedSet::new(sets::NO_FLOW_OFFLOAD, IpSetType::Ip, &[], &mut *plane.sets);
        Self { version: plane.version, tunnels, pattern, set, excluded: BTreeMap::new(), devices: None }
    }

    /// A workload endpoint is new, changed, or gone.
    pub fn update_workload(
        &mut self,
        id: &WorkloadEndpointId,
        endpoint: Option<&WorkloadEndpoint>,
        plane: &mut Plane,
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
            plane,
        );
    }

    /// A host endpoint is new, changed, or gone.
    pub fn update_host(&mut self, id: &Text, endpoint: Option<&HostEndpoint>, plane: &mut Plane) {
        let marked = endpoint.filter(|endpoint| !endpoint.qos_policies.is_empty());
        let addresses = marked.into_iter().flat_map(|endpoint| match self.version {
            IpVersion::V4 => &endpoint.expected_ipv4_addrs,
            IpVersion::V6 => &endpoint.expected_ipv6_addrs,
        });
        self.exclude(format!("host {id}"), addresses.copied().collect(), plane);
    }

    fn exclude(&mut self, whose: String, addresses: Vec<IpAddr>, plane: &mut Plane) {
        let members: Vec<IpSetMember> = addresses.into_iter().map(IpSetMember::Ip).collect();
        let old = match members.is_empty() {
            true => self.excluded.remove(&whose),
            false => self.excluded.insert(whose, members.clone()),
        };
        let old = old.unwrap_or_default();
        if old != members {
            self.set.exchange(&old, &members, &mut *plane.sets);
        }
    }

    /// Tells the driver which devices are covered, if they changed.
    pub fn complete(&mut self, workloads: &BTreeSet<Text>, interfaces: &Interfaces, plane: &mut Plane) {
        let covered = |name: &Text| {
            workloads.contains(name)
                || self.tunnels.contains(name)
                || self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(name))
        };
        let devices: BTreeSet<Text> = interfaces
            .all()
            .filter(|interface| interface.up && covered(&interface.name))
            .map(|interface| interface.name.clone())
            .collect();
        if self.devices.as_ref() != Some(&devices) {
            plane.rules.set_flow_devices(Some(devices.clone()));
            self.devices = Some(devices);
        }
    }
}

/// Whether packets of an endpoint have to meet every rule. Limits on bandwidth work beside the rules.
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
