//! The endpoints behind services: the addresses and ports of endpoint slices, for the services that rules name.
//!
//! As in Calico, it does not matter whether an endpoint is ready: policy is about identity, not health.

use crate::id_list::IdList;
use crate::members::Member;
use crate::sequencer::SetIndex;
use crate::set_matcher::Output;
use api::KubernetesEndpointSlice;
use hashbrown::HashMap;
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The label that names a slice's service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

#[derive(Debug, PartialEq)]
struct Slice {
    /// Namespace and name of the service, separated by a slash.
    service: Box<str>,
    addresses: Box<[IpAddr]>,
    /// Addresses as networks, for sets without ports.
    nets: Box<[IpNet]>,
    /// Protocol and port.
    ports: Box<[(u8, u16)]>,
}

impl Slice {
    fn new(namespace: &str, slice: &KubernetesEndpointSlice) -> Self {
        let service = slice.metadata.labels.get(SERVICE_LABEL).map_or("", String::as_str);
        let content = &slice.spec.0;
        let texts = content.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
        let (mut addresses, mut nets) = (Vec::new(), Vec::new());
        for text in texts {
            // An address may be a domain name, which cannot be in a set.
            if let Ok(address) = text.parse() {
                addresses.push(address);
            } else if let Ok(net) = text.parse::<IpNet>() {
                nets.push(net.trunc());
            }
        }
        let ports = content.ports.iter().filter_map(|port| {
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => 17,
                Some("SCTP") => 132,
                _ => 6,
            };
            // A port without a number means all ports. A set cannot express that, so no port is added.
            Some((protocol, u16::try_from(port.port?).ok()?))
        });
        Self {
            service: format!("{namespace}/{service}").into(),
            addresses: addresses.into(),
            nets: nets.into(),
            ports: ports.collect(),
        }
    }

    fn for_each_member(&self, with_ports: bool, mut visit: impl FnMut(Member)) {
        for &address in &self.addresses {
            if with_ports {
                for &(protocol, port) in &self.ports {
                    visit(Member::Port(address, protocol, port));
                }
            } else {
                visit(Member::Net(IpNet::from(address)));
            }
        }
        if !with_ports {
            for &net in &self.nets {
                visit(Member::Net(net));
            }
        }
    }
}

#[derive(Debug, Default)]
struct Service {
    slices: BTreeSet<Box<str>>,
    /// The sets of this service that are in use: with and without ports.
    sets: IdList<SetIndex>,
}

/// All endpoint slices, and the services in use.
#[derive(Debug, Default)]
pub(crate) struct ServiceIndex {
    /// By namespace and name, separated by a slash.
    slices: HashMap<Box<str>, Slice>,
    services: HashMap<Box<str>, Service>,
    sets: HashMap<SetIndex, (Box<str>, bool)>,
}

impl ServiceIndex {
    /// Adds, changes or removes an endpoint slice.
    pub(crate) fn set_slice(
        &mut self,
        namespace: &str,
        name: &str,
        slice: Option<&KubernetesEndpointSlice>,
        output: &mut Output<'_>,
    ) {
        let key: Box<str> = format!("{namespace}/{name}").into();
        let new = slice.map(|slice| Slice::new(namespace, slice));
        if self.slices.get(&key) == new.as_ref() {
            return;
        }
        // Additions before removals: a member that stays is never reported as removed.
        if let Some(new) = &new {
            self.for_each_member(new, |set, member| output.members.add(set, member, output.told));
            self.services.entry(new.service.clone()).or_default().slices.insert(key.clone());
        }
        let service = new.as_ref().map(|new| new.service.clone());
        let old = match new {
            Some(new) => self.slices.insert(key.clone(), new),
            None => self.slices.remove(&key),
        };
        if let Some(old) = old {
            self.for_each_member(&old, |set, member| output.members.remove(set, member, output.told));
            if service.as_ref() != Some(&old.service) {
                if let Some(row) = self.services.get_mut(&old.service) {
                    row.slices.remove(&key);
                }
                self.drop_if_unused(&old.service);
            }
        }
    }

    fn for_each_member(&self, slice: &Slice, mut visit: impl FnMut(SetIndex, Member)) {
        let Some(service) = self.services.get(&slice.service) else { return };
        for &set in service.sets.as_slice() {
            if let Some((_, with_ports)) = self.sets.get(&set) {
                slice.for_each_member(*with_ports, |member| visit(set, member));
            }
        }
    }

    /// Starts to maintain a set that comes into use; its members are open and empty.
    pub(crate) fn open(&mut self, set: SetIndex, service: &str, with_ports: bool, output: &mut Output<'_>) {
        self.sets.insert(set, (service.into(), with_ports));
        let row = self.services.entry(service.into()).or_default();
        row.sets.insert(set);
        for slice in row.slices.iter().filter_map(|slice| self.slices.get(slice)) {
            slice.for_each_member(with_ports, |member| output.members.add(set, member, output.told));
        }
    }

    /// Stops maintaining a set that is no longer used. Its members are dropped elsewhere.
    pub(crate) fn close(&mut self, set: SetIndex) {
        let Some((service, _)) = self.sets.remove(&set) else { return };
        if let Some(row) = self.services.get_mut(&service) {
            row.sets.remove(set);
        }
        self.drop_if_unused(&service);
    }

    fn drop_if_unused(&mut self, service: &str) {
        if self.services.get(service).is_some_and(|row| row.slices.is_empty() && row.sets.is_empty()) {
            self.services.remove(service);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ServiceIndex;
    use crate::members::Members;
    use crate::sequencer::{IpSets, MemberSource as _, SetIndex};
    use crate::set_matcher::Output;
    use api::KubernetesEndpointSlice;
    use api::kubernetes::service::{Endpoint, EndpointPort};
    use messages::IpSetType;

    const PORTS: SetIndex = SetIndex(0);
    const PLAIN: SetIndex = SetIndex(1);

    fn slice(service: &str, addresses: &[&str], ports: &[Option<i32>]) -> KubernetesEndpointSlice {
        let mut slice = KubernetesEndpointSlice::default();
        slice.metadata.labels.insert("kubernetes.io/service-name".into(), service.into());
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        slice.spec.0.endpoints = vec![Endpoint { addresses, ..Endpoint::default() }];
        slice.spec.0.ports =
            ports.iter().map(|port| EndpointPort { port: *port, ..EndpointPort::default() }).collect();
        slice
    }

    #[test]
    fn members_follow_slices() {
        let (mut index, mut members, mut told) =
            (ServiceIndex::default(), Members::default(), IpSets::default());
        members.open(PORTS, IpSetType::IpAndPort, false);
        members.open(PLAIN, IpSetType::Net, false);
        let mut output = Output { members: &mut members, told: &mut told };
        index.set_slice(
            "n",
            "1",
            Some(&slice("web", &["10.0.0.1", "host.example"], &[Some(80), None])),
            &mut output,
        );
        index.open(PORTS, "n/web", true, &mut output);
        index.open(PLAIN, "n/web", false, &mut output);
        index.set_slice("n", "2", Some(&slice("web", &["10.0.0.1", "10.1.0.0/16"], &[])), &mut output);
        index.set_slice("m", "1", Some(&slice("web", &["10.9.0.1"], &[Some(80)])), &mut output);
        let texts = |members: &Members, set| {
            members.members(set).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(texts(output.members, PORTS), "10.0.0.1,tcp:80");
        assert_eq!(texts(output.members, PLAIN), "10.0.0.1/32 10.1.0.0/16");
        index.set_slice("n", "1", None, &mut output);
        assert_eq!(texts(output.members, PLAIN), "10.0.0.1/32 10.1.0.0/16", "the other slice has it too");
        assert_eq!(texts(output.members, PORTS), "");
        index.set_slice("n", "2", Some(&slice("other", &["10.0.0.1"], &[])), &mut output);
        assert_eq!(texts(output.members, PLAIN), "");
        index.close(PORTS);
        index.close(PLAIN);
        index.set_slice("n", "2", None, &mut output);
        index.set_slice("m", "1", None, &mut output);
        assert!(index.services.is_empty() && index.slices.is_empty() && index.sets.is_empty());
    }
}
