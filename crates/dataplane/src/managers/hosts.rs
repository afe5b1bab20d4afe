//! Sets of hosts' addresses: those of all hosts, and those of this one.

use super::world::is_workload;
use super::{CountedSet, Manager, News, World};
use crate::desired::{Desired, VersionDesired};
use ipnet::IpNet;
use messages::{HostMetadata, IpSetMember, IpSetType, NodeName};
use rules::Renderer;
use rules::names::sets;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The address in a host's metadata, which may include the network's length.
#[must_use]
pub(crate) fn host_address(metadata: &HostMetadata, version: IpVersion) -> Option<IpAddr> {
    let text = match version {
        IpVersion::V4 => &metadata.ipv4_addr,
        IpVersion::V6 => &metadata.ipv6_addr,
    };
    text.split('/').next().and_then(|text| text.parse().ok())
}

/// The set of all hosts' addresses, in one IP version.
#[derive(Debug)]
pub(crate) struct AllHosts {
    version: IpVersion,
    set: CountedSet,
    by_host: BTreeMap<NodeName, IpAddr>,
}

impl AllHosts {
    /// A manager with only these addresses, which are never removed.
    pub(crate) fn new(external: &[IpNet], desired: &mut VersionDesired) -> Self {
        let set = CountedSet::new(sets::ALL_HOSTS, IpSetType::Net, external, desired);
        Self { version: desired.version, set, by_host: BTreeMap::new() }
    }

    fn update(&mut self, host: &NodeName, metadata: Option<&HostMetadata>, desired: &mut VersionDesired) {
        let new = metadata.and_then(|metadata| host_address(metadata, self.version));
        let old = match new {
            Some(new) => self.by_host.insert(host.clone(), new),
            None => self.by_host.remove(host),
        };
        let member = |address: Option<IpAddr>| -> Vec<IpSetMember> {
            address.into_iter().map(|address| IpSetMember::Net(IpNet::from(address))).collect()
        };
        if old != new {
            self.set.exchange(&member(old), &member(new), desired);
        }
    }
}

impl Manager for AllHosts {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        if let (News::Node(host, metadata), Some(desired)) = (*news, desired.of(self.version)) {
            self.update(host, metadata, desired);
        }
    }

    fn write(&mut self, _: &mut World, _: &mut Desired) {}
}

/// The set of this host's addresses. It is written as a whole, because addresses of hosts seldom change.
#[derive(Debug)]
pub(crate) struct ThisHost {
    renderer: Arc<Renderer>,
    programmed: Option<BTreeSet<IpAddr>>,
    changed: bool,
}

impl ThisHost {
    /// A manager that does not know the addresses yet.
    #[must_use]
    pub(crate) fn new(renderer: Arc<Renderer>) -> Self {
        Self { renderer, programmed: None, changed: true }
    }
}

impl Manager for ThisHost {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        self.changed |= match *news {
            News::Addresses => true,
            News::Interface(name) => !is_workload(&self.renderer, name),
            _ => false,
        };
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let addresses: BTreeSet<IpAddr> = world
            .interfaces
            .all()
            .filter(|interface| !world.is_workload(&interface.name))
            .flat_map(|interface| interface.addresses.iter().copied())
            .collect();
        if self.programmed.as_ref() == Some(&addresses) {
            return;
        }
        for one in &mut desired.versions {
            let v6 = one.version == IpVersion::V6;
            let own = addresses.iter().filter(|address| address.is_ipv6() == v6);
            one.sets.define(sets::THIS_HOST, IpSetType::Ip, own.map(|one| IpSetMember::Ip(*one)).collect());
        }
        self.programmed = Some(addresses);
    }
}
