//! DSCP marks of packets that leave the cluster: the set of endpoints that have one, and the chain that sets them.

use super::{CountedSet, Plane};
use ipnet::IpNet;
use messages::{HostEndpoint, IpSetMember, IpSetType, QosPolicy, Text, WorkloadEndpoint, WorkloadEndpointId};
use rules::names::sets;
use rules::tree::{IpVersion, Table};
use rules::{DscpRule, Renderer};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Whose mark it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Endpoint {
    Workload(WorkloadEndpointId),
    Host(Text),
}

/// The marks of one IP version.
#[derive(Debug)]
pub struct Dscp {
    version: IpVersion,
    marks: BTreeMap<Endpoint, Vec<DscpRule>>,
    set: CountedSet,
    changed: bool,
}

impl Dscp {
    /// No marks; the set is defined.
    pub fn new(plane: &mut Plane) -> Self {
        let set = CountedSet::new(sets::DSCP_SOURCES, IpSetType::Net, &[], &mut *plane.sets);
        Self { version: plane.version, marks: BTreeMap::new(), set, changed: true }
    }

    /// A workload endpoint is new, changed, or gone.
    pub fn update_workload(
        &mut self,
        id: &WorkloadEndpointId,
        endpoint: Option<&WorkloadEndpoint>,
        plane: &mut Plane,
    ) {
        let addresses = endpoint.into_iter().flat_map(|endpoint| match self.version {
            IpVersion::V4 => &endpoint.ipv4_nets,
            IpVersion::V6 => &endpoint.ipv6_nets,
        });
        let marks =
            marks(addresses.map(IpNet::addr), endpoint.map_or(&[][..], |endpoint| &endpoint.qos_policies));
        self.set(Endpoint::Workload(id.clone()), &marks, plane);
    }

    /// A host endpoint is new, changed, or gone.
    pub fn update_host(&mut self, id: &Text, endpoint: Option<&HostEndpoint>, plane: &mut Plane) {
        let addresses = endpoint.into_iter().flat_map(|endpoint| match self.version {
            IpVersion::V4 => &endpoint.expected_ipv4_addrs,
            IpVersion::V6 => &endpoint.expected_ipv6_addrs,
        });
        let marks = marks(addresses.copied(), endpoint.map_or(&[][..], |endpoint| &endpoint.qos_policies));
        self.set(Endpoint::Host(id.clone()), &marks, plane);
    }

    fn set(&mut self, endpoint: Endpoint, marks: &[DscpRule], plane: &mut Plane) {
        let members = |marks: &[DscpRule]| -> Vec<IpSetMember> {
            marks.iter().map(|mark| IpSetMember::Net(IpNet::from(mark.source))).collect()
        };
        let old = match marks.is_empty() {
            true => self.marks.remove(&endpoint),
            false => self.marks.insert(endpoint, marks.to_vec()),
        };
        let old = old.unwrap_or_default();
        if old != marks {
            self.set.exchange(&members(&old), &members(marks), &mut *plane.sets);
            self.changed = true;
        }
    }

    /// Writes what changed to the drivers.
    pub fn complete(&mut self, renderer: &Renderer, plane: &mut Plane) {
        if std::mem::take(&mut self.changed) {
            let marks: Vec<DscpRule> = self.marks.values().flatten().copied().collect();
            plane.rules.update_chain(Table::Mangle, renderer.egress_dscp_chain(&marks, self.version));
        }
    }
}

/// An endpoint has one mark: the first.
fn marks(addresses: impl Iterator<Item = IpAddr>, policies: &[QosPolicy]) -> Vec<DscpRule> {
    match policies.first() {
        Some(policy) if policy.dscp < 64 => {
            addresses.map(|source| DscpRule { source, value: policy.dscp }).collect()
        }
        _ => Vec::new(),
    }
}
