//! Sets of hosts' addresses: those of all hosts, and those of this one.

use super::{CountedSet, Interfaces, Plane};
use ipnet::IpNet;
use messages::{HostMetadata, IpSetMember, IpSetType, Text};
use rules::names::sets;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The address in a host's metadata, which may stand there with its network.
#[must_use]
pub fn host_address(metadata: &HostMetadata, version: IpVersion) -> Option<IpAddr> {
    let text = match version {
        IpVersion::V4 => &metadata.ipv4_addr,
        IpVersion::V6 => &metadata.ipv6_addr,
    };
    text.split('/').next().and_then(|text| text.parse().ok())
}

/// The set of all hosts' addresses, in one IP version.
#[derive(Debug)]
pub struct AllHosts {
    version: IpVersion,
    set: CountedSet,
    by_host: BTreeMap<Text, IpAddr>,
}

impl AllHosts {
    /// Only these addresses, which nobody takes away.
    pub fn new(external: &[IpNet], plane: &mut Plane) -> Self {
        let set = CountedSet::new(sets::ALL_HOSTS, IpSetType::Net, external, &mut *plane.sets);
        Self { version: plane.version, set, by_host: BTreeMap::new() }
    }

    /// A host is new, changed, or gone.
    pub fn update(&mut self, host: &Text, metadata: Option<&HostMetadata>, plane: &mut Plane) {
        let new = metadata.and_then(|metadata| host_address(metadata, self.version));
        let old = match new {
            Some(new) => self.by_host.insert(host.clone(), new),
            None => self.by_host.remove(host),
        };
        let member = |address: Option<IpAddr>| -> Vec<IpSetMember> {
            address.into_iter().map(|address| IpSetMember::Net(IpNet::from(address))).collect()
        };
        if old != new {
            self.set.exchange(&member(old), &member(new), &mut *plane.sets);
        }
    }
}

/// The set of this host's addresses. It is written as a whole: addresses of hosts seldom change.
#[derive(Debug, Default)]
pub struct ThisHost {
    programmed: Option<BTreeSet<IpAddr>>,
}

impl ThisHost {
    /// Writes the addresses, if they changed. `is_workload` tells the interfaces of workloads.
    pub fn complete(
        &mut self,
        interfaces: &Interfaces,
        planes: &mut [Plane],
        is_workload: impl Fn(&str) -> bool,
    ) {
        let addresses: BTreeSet<IpAddr> = interfaces
            .all()
            .filter(|interface| !is_workload(&interface.name))
            .flat_map(|interface| interface.addresses.iter().copied())
            .collect();
        if self.programmed.as_ref() == Some(&addresses) {
            return;
        }
        let members: Vec<IpSetMember> = addresses.iter().map(|address| IpSetMember::Ip(*address)).collect();
        for plane in planes {
            plane.sets.update_set(sets::THIS_HOST, IpSetType::Ip, &members);
        }
        self.programmed = Some(addresses);
    }
}
