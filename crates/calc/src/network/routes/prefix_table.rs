//! Everything known about ranges of addresses, by range: an ordered map, and a count of the prefix lengths in use.
//!
//! In the order of first address and then length, a range comes directly before everything inside it, so finding the
//! ranges inside is one scan. The ranges around a range are found by one lookup for each shorter length in use.
//! Clusters use a handful of lengths, and there are no inner nodes as in a tree of bits.

use super::node_table::{NodeId, NodeTable};
use super::numbered::{Number, Numbered};
use super::resolve::Resolved;
use ipnet::IpNet;
use messages::IpPoolType;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of thing that entry numbers stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OfEntry {}

/// The number of an entry.
pub(super) type EntryId = Number<OfEntry>;

/// How a pool's packets are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pool {
    /// How packets between nodes travel; none for pools that are only for load balancers' addresses.
    pub(super) pool_type: IpPoolType,
    /// Whether packets that leave the cluster get the node's address.
    pub(super) nat_outgoing: bool,
    /// Whether packets within a subnet are not encapsulated.
    pub(super) cross_subnet: bool,
}

/// The reasons why a node has a range. The order is that in which Felix prefers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClaimKind {
    /// A block of addresses, or one address taken from another node's block.
    Block,
    /// The node's own address.
    Host,
    /// A workload endpoint.
    Workload,
    /// A WireGuard device.
    Wireguard,
    /// An IP-in-IP device.
    Ipip,
    /// A VXLAN device.
    Vxlan,
}

impl ClaimKind {
    /// Endpoints and devices compete with each other, blocks and hosts only among themselves.
    fn group(self) -> u8 {
        match self {
            Self::Block => 0,
            Self::Host => 1,
            Self::Workload | Self::Wireguard | Self::Ipip | Self::Vxlan => 2,
        }
    }
}

/// A node's claim on a range, with the number of objects behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The kind of object.
    pub(super) kind: ClaimKind,
    /// The node.
    pub(super) node: NodeId,
    count: u32,
}

/// What is known about one range.
#[derive(Debug)]
pub(super) struct Entry {
    /// The range.
    pub(super) net: IpNet,
    /// The pool with exactly this range.
    pub(super) pool: Option<Pool>,
    /// Whether something changed since the last flush.
    pub(super) dirty: bool,
    /// Whether the address of the route's node changed since the last flush.
    pub(super) stale_address: bool,
    /// The route that was sent.
    pub(super) sent: Option<Resolved>,
    /// The next entry in the list of routes to the same node.
    pub(super) next: Option<EntryId>,
    /// The previous entry in that list.
    pub(super) previous: Option<EntryId>,
    claims: Claims,
}

/// The claims on one range: almost always exactly one, which needs no allocation.
#[derive(Debug, Default)]
enum Claims {
    #[default]
    None,
    One(Claim),
    #[expect(clippy::box_collection, reason = "a thin pointer: entries are many, and this variant is rare")]
    Many(Box<Vec<Claim>>),
}

impl Claims {
    fn as_slice(&self) -> &[Claim] {
        match self {
            Self::None => &[],
            Self::One(claim) => std::slice::from_ref(claim),
            Self::Many(claims) => claims,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Claim] {
        match self {
            Self::None => &mut [],
            Self::One(claim) => std::slice::from_mut(claim),
            Self::Many(claims) => claims,
        }
    }

    fn insert(&mut self, place: usize, claim: Claim) {
        match self {
            Self::None => *self = Self::One(claim),
            Self::One(known) => {
                let mut claims = vec![*known];
                claims.insert(place, claim);
                *self = Self::Many(Box::new(claims));
            }
            Self::Many(claims) => claims.insert(place, claim),
        }
    }

    fn remove(&mut self, place: usize) {
        match self {
            Self::None | Self::One(_) => *self = Self::None,
            Self::Many(claims) => {
                claims.remove(place);
                if let [last] = claims[..] {
                    *self = Self::One(last);
                }
            }
        }
    }
}

impl Entry {
    /// The claims of blocks, by the node's name.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &Claim> {
        self.group(ClaimKind::Block)
    }

    /// The claims of nodes on addresses of their own, by the node's name.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Claim> {
        self.group(ClaimKind::Host)
    }

    /// The claims of endpoints and devices, by the node's name, and for the same node in the order of kinds.
    pub(super) fn references(&self) -> impl Iterator<Item = &Claim> {
        self.group(ClaimKind::Workload)
    }

    /// Whether anything is known about the range.
    pub(super) fn is_valid(&self) -> bool {
        self.pool.is_some() || !self.claims.as_slice().is_empty()
    }

    fn group(&self, kind: ClaimKind) -> impl Iterator<Item = &Claim> {
        self.claims.as_slice().iter().filter(move |claim| claim.kind.group() == kind.group())
    }
}

/// All ranges about which something is known.
#[derive(Debug)]
pub(super) struct PrefixTable {
    by_net: BTreeMap<IpNet, EntryId>,
    entries: Numbered<OfEntry, Entry>,
    lengths_v4: [u32; 33],
    lengths_v6: [u32; 129],
}

impl Default for PrefixTable {
    fn default() -> Self {
        Self {
            by_net: BTreeMap::new(),
            entries: Numbered::default(),
            lengths_v4: [0; 33],
            lengths_v6: [0; 129],
        }
    }
}

impl PrefixTable {
    /// Returns the entry of exactly this range, which is added if it is missing. Host bits are cut off.
    pub(super) fn entry(&mut self, net: IpNet) -> EntryId {
        let net = net.trunc();
        if let Some(&id) = self.by_net.get(&net) {
            return id;
        }
        let entry = Entry {
            net,
            pool: None,
            dirty: false,
            stale_address: false,
            sent: None,
            next: None,
            previous: None,
            claims: Claims::None,
        };
        let id = self.entries.insert(entry);
        self.by_net.insert(net, id);
        *self.length_count(&net) += 1;
        id
    }

    /// Returns the entry of exactly this range.
    pub(super) fn find(&self, net: &IpNet) -> Option<EntryId> {
        self.by_net.get(&net.trunc()).copied()
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, id: EntryId) {
        let Some(entry) = self.entries.remove(id) else { return };
        self.by_net.remove(&entry.net);
        *self.length_count(&entry.net) -= 1;
    }

    /// Returns the entry with this number.
    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Returns the entry with this number.
    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    /// Returns the entries around and at this range, the widest first.
    pub(super) fn path(&self, net: &IpNet) -> SmallVec<[&Entry; 6]> {
        let mut path = SmallVec::new();
        let lengths: &[u32] = match net {
            IpNet::V4(_) => &self.lengths_v4,
            IpNet::V6(_) => &self.lengths_v6,
        };
        for (length, &count) in (0..=net.prefix_len()).zip(lengths) {
            if count == 0 {
                continue;
            }
            let around = shortened(net, length);
            if let Some(entry) = self.by_net.get(&around).and_then(|&id| self.get(id)) {
                path.push(entry);
            }
        }
        path
    }

    /// Returns the entries at and inside this range.
    pub(super) fn within(&self, net: &IpNet) -> impl Iterator<Item = EntryId> + use<'_> {
        let last = IpNet::from(net.broadcast());
        self.by_net.range(net.trunc()..=last).map(|(_, &id)| id)
    }

    /// Counts one more object that gives a range to a node. Returns whether that changes the set of claims.
    pub(super) fn add_claim(
        &mut self,
        id: EntryId,
        kind: ClaimKind,
        node: NodeId,
        nodes: &NodeTable,
    ) -> bool {
        let Some(entry) = self.get_mut(id) else { return false };
        let mut known = entry.claims.as_mut_slice().iter_mut();
        if let Some(claim) = known.find(|claim| claim.kind == kind && claim.node == node) {
            claim.count += 1;
            return false;
        }
        let rank = |claim: &Claim| (claim.kind.group(), nodes.name(claim.node), claim.kind);
        let new = Claim { kind, node, count: 1 };
        let place = entry.claims.as_slice().partition_point(|claim| rank(claim) < rank(&new));
        entry.claims.insert(place, new);
        true
    }

    /// Counts one object less that gives a range to a node. Returns whether that changes the set of claims.
    pub(super) fn remove_claim(&mut self, id: EntryId, kind: ClaimKind, node: NodeId) -> bool {
        let Some(entry) = self.get_mut(id) else { return false };
        let claims = entry.claims.as_mut_slice();
        let Some(place) = claims.iter().position(|claim| claim.kind == kind && claim.node == node) else {
            debug_assert!(false, "a claim was taken back that was never made");
            return false;
        };
        claims[place].count -= 1;
        if claims[place].count > 0 {
            return false;
        }
        entry.claims.remove(place);
        true
    }

    /// The number of known ranges.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_net.len()
    }

    fn length_count(&mut self, net: &IpNet) -> &mut u32 {
        let length = usize::from(net.prefix_len());
        match net {
            IpNet::V4(_) => &mut self.lengths_v4[length],
            IpNet::V6(_) => &mut self.lengths_v6[length],
        }
    }
}

/// The range of this shorter length around a range.
fn shortened(net: &IpNet, length: u8) -> IpNet {
    let shortened = match net.addr() {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpNet::new(Ipv4Addr::from_bits(address.to_bits() & mask).into(), length)
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpNet::new(Ipv6Addr::from_bits(address.to_bits() & mask).into(), length)
        }
    };
    shortened.unwrap_or(*net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_small() {
        assert!(size_of::<Option<Entry>>() <= 72, "{} bytes", size_of::<Option<Entry>>());
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    #[test]
    fn ranges_around_and_inside() {
        let mut table = PrefixTable::default();
        for text in
            ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/26", "10.1.2.3/32", "10.1.2.64/26", "::/0"]
        {
            table.entry(net(text));
        }
        let path = |text: &str| {
            table.path(&net(text)).iter().map(|entry| entry.net.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(path("10.1.2.3/32"), "0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/26 10.1.2.3/32");
        assert_eq!(path("10.1.2.70/32"), "0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.64/26");
        assert_eq!(path("fe80::/64"), "::/0");
        let within = |text: &str| {
            let nets =
                table.within(&net(text)).filter_map(|id| table.get(id)).map(|entry| entry.net.to_string());
            nets.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(within("10.1.0.0/16"), "10.1.0.0/16 10.1.2.0/26 10.1.2.3/32 10.1.2.64/26");
        assert_eq!(within("10.1.2.0/25"), "10.1.2.0/26 10.1.2.3/32 10.1.2.64/26");
        assert_eq!(within("10.1.2.3/32"), "10.1.2.3/32");
        assert_eq!(within("::/0"), "::/0");
    }

    #[test]
    fn an_unused_length_is_not_looked_up() {
        let mut table = PrefixTable::default();
        let id = table.entry(net("10.0.0.0/8"));
        table.remove(id);
        assert_eq!((table.len(), table.lengths_v4.iter().sum::<u32>()), (0, 0));
        assert_eq!(table.entry(net("10.0.0.1/8")), id, "numbers are used again");
    }
}
