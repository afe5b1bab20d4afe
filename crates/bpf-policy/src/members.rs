//! Members: addresses, networks, and addresses with ports, each with the atoms that contain it directly and, through
//! enclosing networks, in total.
//!
//! A change marks the affected members; a marked member is evaluated once, however many changes there were. A change of
//! an address affects only itself, a change of a network everything inside it.

use crate::layout::PairKey;
use ipnet::IpNet;
use messages::IpSetMember;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A member of a set in normal form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Member {
    Net(IpNet),
    Pair(PairKey),
}

impl From<&IpSetMember> for Member {
    fn from(member: &IpSetMember) -> Self {
        match *member {
            IpSetMember::Ip(address) => Self::Net(address.into()),
            IpSetMember::Net(net) => Self::Net(net.trunc()),
            IpSetMember::IpAndPort { address, protocol, port } => {
                Self::Pair(PairKey { address, protocol, port })
            }
        }
    }
}

/// All members of atoms.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The atoms that contain each network directly, sorted; never empty.
    nets: BTreeMap<IpNet, Vec<u32>>,
    pairs: BTreeMap<PairKey, Vec<u32>>,
    /// The number of networks by prefix length, for IPv4 and IPv6.
    lengths: [BTreeMap<u8, usize>; 2],
    touched: BTreeSet<Member>,
}

impl Members {
    /// Adds a member to an atom.
    pub(crate) fn add(&mut self, member: Member, atom: u32) {
        match member {
            Member::Net(net) => {
                let atoms = self.nets.entry(net).or_default();
                if atoms.is_empty() {
                    *self.lengths[family(&net)].entry(net.prefix_len()).or_default() += 1;
                }
                insert(atoms, atom);
            }
            Member::Pair(pair) => insert(self.pairs.entry(pair).or_default(), atom),
        }
        self.touched.insert(member);
    }

    /// Removes a member from an atom.
    pub(crate) fn remove(&mut self, member: Member, atom: u32) {
        match member {
            Member::Net(net) => {
                let Some(atoms) = self.nets.get_mut(&net) else { return };
                atoms.retain(|one| *one != atom);
                if atoms.is_empty() {
                    self.nets.remove(&net);
                    let lengths = &mut self.lengths[family(&net)];
                    if let Some(count) = lengths.get_mut(&net.prefix_len()) {
                        *count -= 1;
                        if *count == 0 {
                            lengths.remove(&net.prefix_len());
                        }
                    }
                }
            }
            Member::Pair(pair) => {
                let Some(atoms) = self.pairs.get_mut(&pair) else { return };
                atoms.retain(|one| *one != atom);
                if atoms.is_empty() {
                    self.pairs.remove(&pair);
                }
            }
        }
        self.touched.insert(member);
    }

    /// Returns the members whose atoms may have changed.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<Member> {
        let mut touched = std::mem::take(&mut self.touched);
        let nets: Vec<IpNet> = touched
            .iter()
            .filter_map(|member| match member {
                Member::Net(net) if net.prefix_len() < net.max_prefix_len() => Some(*net),
                _ => None,
            })
            .collect();
        let mut covered: Option<IpNet> = None;
        for net in nets {
            // Sorted, so that a network directly precedes those inside it.
            if covered.is_some_and(|outer| outer.contains(&net)) {
                continue;
            }
            covered = Some(net);
            let Ok(last) = IpNet::new(net.broadcast(), net.max_prefix_len()) else { continue };
            touched.extend(self.nets.range(net..=last).map(|(inner, _)| Member::Net(*inner)));
        }
        touched
    }

    /// All atoms that contain the member, sorted; empty if it has no entry of its own.
    pub(crate) fn atoms(&self, member: &Member) -> Vec<u32> {
        let net = match member {
            Member::Pair(pair) => return self.pairs.get(pair).cloned().unwrap_or_default(),
            Member::Net(net) => net,
        };
        let Some(own) = self.nets.get(net) else { return Vec::new() };
        let mut atoms = own.clone();
        let mut is_sorted = true;
        for length in self.lengths[family(net)].keys().take_while(|length| **length < net.prefix_len()) {
            let Ok(outer) = IpNet::new(net.addr(), *length) else { continue };
            if let Some(outer) = self.nets.get(&outer.trunc()) {
                atoms.extend(outer);
                is_sorted = false;
            }
        }
        if !is_sorted {
            atoms.sort_unstable();
            atoms.dedup();
        }
        atoms
    }
}

/// The address of a network that consists of a single one.
pub(crate) fn single(net: &IpNet) -> Option<IpAddr> {
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}

fn family(net: &IpNet) -> usize {
    usize::from(matches!(net, IpNet::V6(_)))
}

fn insert(atoms: &mut Vec<u32>, atom: u32) {
    if let Err(place) = atoms.binary_search(&atom) {
        atoms.insert(place, atom);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Member {
        Member::Net(text.parse().expect("a network"))
    }

    #[test]
    fn a_network_adds_to_everything_inside() {
        let mut members = Members::default();
        members.add(net("10.0.0.1/32"), 2);
        members.add(net("10.1.0.0/16"), 3);
        members.add(net("11.0.0.1/32"), 2);
        members.take_touched();
        members.add(net("10.0.0.0/8"), 1);
        let inside = ["10.0.0.0/8", "10.0.0.1/32", "10.1.0.0/16"].map(net);
        assert_eq!(members.take_touched(), inside.into());
        assert_eq!(inside.map(|member| members.atoms(&member)), [vec![1], vec![1, 2], vec![1, 3]]);
        members.remove(net("10.0.0.0/8"), 1);
        assert_eq!(members.take_touched(), inside.into());
        assert_eq!(inside.map(|member| members.atoms(&member)), [vec![], vec![2], vec![3]]);
    }

    #[test]
    fn an_address_touches_only_itself() {
        let mut members = Members::default();
        members.add(net("0.0.0.0/0"), 1);
        members.add(net("10.0.0.1/32"), 1);
        members.add(net("fd00::1/128"), 1);
        members.take_touched();
        members.add(net("10.0.0.2/32"), 2);
        assert_eq!(members.take_touched(), [net("10.0.0.2/32")].into());
        assert_eq!(members.atoms(&net("10.0.0.1/32")), [1], "once, though the network says it too");
        assert_eq!(members.atoms(&net("fd00::1/128")), [1], "not through the other version's network");
    }
}
