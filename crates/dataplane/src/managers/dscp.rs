//! DSCP marks of packets that leave the cluster: the set of endpoints with marks, and the chain that sets the marks.

use super::{CountedSet, Manager, News, World};
use crate::desired::{Desired, VersionDesired};
use ipnet::IpNet;
use messages::{
    HostEndpoint, HostEndpointName, IpSetMember, IpSetType, QosPolicy, WorkloadEndpoint, WorkloadEndpointId,
};
use rules::DscpRule;
use rules::names::sets;
use rules::tree::{IpVersion, Table};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

/// The owner of a mark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Endpoint {
    Workload(WorkloadEndpointId),
    Host(HostEndpointName),
}

/// The marks of one IP version.
#[derive(Debug)]
pub(crate) struct Dscp {
    version: IpVersion,
    marks: BTreeMap<Endpoint, Vec<DscpRule>>,
    set: CountedSet,
    changed: bool,
}

impl Dscp {
    /// A manager without marks; defines the set.
    pub(crate) fn new(desired: &mut VersionDesired) -> Self {
        let set = CountedSet::new(sets::DSCP_SOURCES, IpSetType::Net, &[], desired);
        Self { version: desired.version, marks: BTreeMap::new(), set, changed: true }
    }

    fn update_workload(
        &mut self,
        id: &WorkloadEndpointId,
        endpoint: Option<&WorkloadEndpoint>,
        desired: &mut VersionDesired,
    ) {
        let addresses = endpoint.into_iter().flat_map(|endpoint| match self.version {
            IpVersion::V4 => &endpoint.ipv4_nets,
            IpVersion::V6 => &endpoint.ipv6_nets,
        });
        let marks =
            marks(addresses.map(IpNet::addr), endpoint.map_or(&[][..], |endpoint| &endpoint.qos_policies));
        self.set(Endpoint::Workload(id.clone()), &marks, desired);
    }

    fn update_host(
        &mut self,
        id: &HostEndpointName,
        endpoint: Option<&HostEndpoint>,
        desired: &mut VersionDesired,
    ) {
        let addresses = endpoint.into_iter().flat_map(|endpoint| match self.version {
            IpVersion::V4 => &endpoint.expected_ipv4_addrs,
            IpVersion::V6 => &endpoint.expected_ipv6_addrs,
        });
        let marks = marks(addresses.copied(), endpoint.map_or(&[][..], |endpoint| &endpoint.qos_policies));
        self.set(Endpoint::Host(id.clone()), &marks, desired);
    }

    fn set(&mut self, endpoint: Endpoint, marks: &[DscpRule], desired: &mut VersionDesired) {
        let members = |marks: &[DscpRule]| -> Vec<IpSetMember> {
            marks.iter().map(|mark| IpSetMember::Net(IpNet::from(mark.source))).collect()
        };
        let old = match marks.is_empty() {
            true => self.marks.remove(&endpoint),
            false => self.marks.insert(endpoint, marks.to_vec()),
        };
        let old = old.unwrap_or_default();
        if old != marks {
            self.set.exchange(&members(&old), &members(marks), desired);
            self.changed = true;
        }
    }
}

impl Manager for Dscp {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        let Some(desired) = desired.of(self.version) else { return };
        match *news {
            News::Workload(id, endpoint) => self.update_workload(id, endpoint.map(|one| &**one), desired),
            News::Host(id, endpoint) => self.update_host(id, endpoint.map(|one| &**one), desired),
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if let Some(desired) = desired.of(self.version).filter(|_| std::mem::take(&mut self.changed)) {
            let marks: Vec<DscpRule> = self.marks.values().flatten().copied().collect();
            desired.rules.define(Table::Mangle, world.renderer.egress_dscp_chain(&marks, self.version));
        }
    }
}

/// An endpoint has at most one mark: the first.
fn marks(addresses: impl Iterator<Item = IpAddr>, policies: &[QosPolicy]) -> Vec<DscpRule> {
    match policies.first() {
        Some(policy) if policy.dscp < 64 => {
            addresses.map(|source| DscpRule { source, value: policy.dscp }).collect()
        }
        _ => Vec::new(),
    }
}
