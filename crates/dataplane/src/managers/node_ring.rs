//! Decides which node answers for an address that all of them could answer for.
//!
//! A ring of hashes: each node has a hundred positions on it, and an address belongs to the node at the next position.
//! The hash and the positions are Calico's, so that nodes of both implementations agree on every address.

use messages::NodeName;
use std::collections::BTreeSet;
use twox_hash::XxHash3_64;

/// The number of positions of each node.
const PLACES: u32 = 100;

/// The nodes, by position.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeRing {
    places: BTreeSet<(u64, NodeName)>,
}

/// The position of a name: the hash of the name, a zero byte, and a number.
fn place(name: &str, number: u32) -> u64 {
    let mut bytes = Vec::with_capacity(name.len() + 5);
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes.extend(number.to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}

impl NodeRing {
    /// Adds or removes a node; returns whether anything changed.
    pub(crate) fn set(&mut self, node: &NodeName, is_there: bool) -> bool {
        let mut changed = false;
        for number in 0..PLACES {
            let entry = (place(node, number), node.clone());
            changed |= if is_there { self.places.insert(entry) } else { self.places.remove(&entry) };
        }
        changed
    }

    /// The node that an address belongs to, by the address's text; `None` if there are no nodes.
    #[must_use]
    pub(crate) fn owner(&self, address: &str) -> Option<&NodeName> {
        let from = (place(address, 0), NodeName::from(""));
        let next = self.places.range(from..).next().or_else(|| self.places.first());
        next.map(|(_, node)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeRing, place};
    use messages::NodeName;

    /// Computed with Calico's hash, for names of all lengths that it treats differently.
    #[test]
    fn places_are_calicos() {
        for (name, expected) in [
            (String::new(), 0xb0eb_9e95_754e_b80a),
            ("n1".to_owned(), 0x9bdd_1c02_7443_ec0e),
            ("a".repeat(20), 0xe173_ed45_6abc_7b99),
            ("b".repeat(130), 0xf230_e758_b0b0_98c3),
            ("c".repeat(250), 0xc37b_6551_fccf_bf3e),
        ] {
            assert_eq!(place(&name, 7), expected, "{name}");
        }
    }

    #[test]
    fn owners_are_calicos() {
        let long = format!("{}x", "very-long-node-name.".repeat(12));
        let nodes = ["n1", "n2", "ip-10-0-3-7.eu-central-1.compute.internal", "worker-4", &long];
        let expected = [
            ("10.65.0.200", "wo"),
            ("10.65.0.201", "wo"),
            ("10.65.0.202", "n1"),
            ("10.65.0.203", "n1"),
            ("192.0.2.1", "n2"),
            ("192.0.2.2", "ve"),
            ("fd00:65::c8", "ve"),
            ("fd00:65::c9", "ip"),
            ("2001:DB8::1", "ip"),
            ("10.0.0.1", "ve"),
        ];
        let mut ring = NodeRing::default();
        assert_eq!(ring.owner("10.0.0.1"), None);
        for node in nodes.into_iter().rev() {
            assert!(ring.set(&NodeName::from(node), true));
            assert!(!ring.set(&NodeName::from(node), true));
        }
        for (address, owner) in expected {
            assert_eq!(ring.owner(address).map(|node| &node[..2]), Some(owner), "{address}");
        }
        // Only the node's own addresses move.
        assert!(ring.set(&"n1".into(), false));
        for (address, owner) in expected {
            let now = ring.owner(address).map(|node| &node[..2]);
            assert_eq!(now == Some(owner), owner != "n1", "{address}");
        }
    }
}
