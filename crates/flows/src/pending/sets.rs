//! Sets of addresses, networks, and addresses with ports, indexed for lookups.

use super::slots::Slots;
use hashbrown::{HashMap, HashSet};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use messages::{IpSetId, IpSetMember};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// All sets.
pub(super) type Sets = Slots<IpSetId, MemberSet>;

/// The members of a set.
#[derive(Debug, Default)]
pub(super) struct MemberSet {
    addresses: HashSet<IpAddr>,
    networks: Networks,
    /// (address, protocol, port).
    ports: HashSet<(IpAddr, u8, u16)>,
}

impl MemberSet {
    pub(super) fn new(members: &[IpSetMember]) -> Self {
        let mut set = Self::default();
        set.change(members, &[]);
        set
    }

    pub(super) fn change(&mut self, added: &[IpSetMember], removed: &[IpSetMember]) {
        for member in removed {
            match *member {
                IpSetMember::Ip(address) => drop(self.addresses.remove(&address)),
                IpSetMember::Net(net) => self.networks.remove(net),
                IpSetMember::IpAndPort { address, protocol, port } => {
                    self.ports.remove(&(address, protocol, port));
                }
            }
        }
        for member in added {
            match *member {
                IpSetMember::Ip(address) => drop(self.addresses.insert(address)),
                IpSetMember::Net(net) => self.networks.insert(net),
                IpSetMember::IpAndPort { address, protocol, port } => {
                    self.ports.insert((address, protocol, port));
                }
            }
        }
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address) || self.networks.has(address)
    }

    pub(super) fn has_port(&self, address: IpAddr, protocol: u8, port: u16) -> bool {
        self.ports.contains(&(address, protocol, port))
    }
}

/// Networks by prefix length: a lookup takes one step per length.
#[derive(Debug, Default)]
struct Networks {
    by_length: BTreeMap<(bool, u8), HashMap<IpNet, u32>>,
}

impl Networks {
    fn insert(&mut self, net: IpNet) {
        let length = (net.addr().is_ipv6(), net.prefix_len());
        *self.by_length.entry(length).or_default().entry(net.trunc()).or_default() += 1;
    }

    fn remove(&mut self, net: IpNet) {
        let length = (net.addr().is_ipv6(), net.prefix_len());
        let Some(nets) = self.by_length.get_mut(&length) else { return };
        if let Some(count) = nets.get_mut(&net.trunc()) {
            *count -= 1;
            if *count == 0 {
                nets.remove(&net.trunc());
            }
        }
        if nets.is_empty() {
            self.by_length.remove(&length);
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        let lengths = (address.is_ipv6(), 0)..=(address.is_ipv6(), u8::MAX);
        self.by_length.range(lengths).any(|((_, length), nets)| {
            let net = match address {
                IpAddr::V4(address) => Ipv4Net::new(address, *length).map(IpNet::from),
                IpAddr::V6(address) => Ipv6Net::new(address, *length).map(IpNet::from),
            };
            net.is_ok_and(|net| nets.contains_key(&net.trunc()))
        })
    }
}
