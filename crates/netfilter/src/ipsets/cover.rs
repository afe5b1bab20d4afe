//! Networks, without those inside another one: a set of ranges holds no overlapping ranges.
//!
//! A network inside another one adds nothing to what the set matches; it is held back until the other is removed.

use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Networks of one IP version.
#[derive(Clone, Debug, Default)]
pub(super) struct Cover {
    /// By first address, then by length: the networks inside a network follow it.
    nets: BTreeSet<(IpAddr, u8)>,
    /// The number of networks of each length.
    lengths: Vec<usize>,
}

/// How the outermost networks change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) added: Vec<IpNet>,
    pub(super) removed: Vec<IpNet>,
}

impl Cover {
    /// Adds a network.
    pub(super) fn add(&mut self, net: IpNet) -> Change {
        let net = net.trunc();
        if !self.nets.insert(key(net)) {
            return Change::default();
        }
        let length = usize::from(net.prefix_len());
        if self.lengths.len() <= length {
            self.lengths.resize(length + 1, 0);
        }
        self.lengths[length] += 1;
        if self.is_inside_another(net) {
            return Change::default();
        }
        Change { added: vec![net], removed: self.outermost_inside(net) }
    }

    /// Removes a network.
    pub(super) fn remove(&mut self, net: IpNet) -> Change {
        let net = net.trunc();
        if !self.nets.remove(&key(net)) {
            return Change::default();
        }
        if let Some(count) = self.lengths.get_mut(usize::from(net.prefix_len())) {
            *count -= 1;
        }
        if self.is_inside_another(net) {
            return Change::default();
        }
        Change { added: self.outermost_inside(net), removed: vec![net] }
    }

    fn is_inside_another(&self, net: IpNet) -> bool {
        (0..net.prefix_len())
            .filter(|length| self.lengths.get(usize::from(*length)).is_some_and(|count| *count > 0))
            .any(|length| {
                IpNet::new(net.network(), length).is_ok_and(|outer| self.nets.contains(&key(outer.trunc())))
            })
    }

    /// The networks inside this one that are in no other network inside it.
    fn outermost_inside(&self, net: IpNet) -> Vec<IpNet> {
        let mut found: Vec<IpNet> = Vec::new();
        let from = (net.network(), net.prefix_len() + 1);
        for (address, length) in self.nets.range(from..) {
            if !net.contains(address) {
                break;
            }
            let Ok(inner) = IpNet::new(*address, *length) else { continue };
            if !found.last().is_some_and(|last| last.contains(&inner)) {
                found.push(inner);
            }
        }
        found
    }
}

fn key(net: IpNet) -> (IpAddr, u8) {
    (net.network(), net.prefix_len())
}

#[cfg(test)]
mod tests {
    use super::Cover;
    use ipnet::IpNet;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// In whatever order networks are added and removed, the reported changes add up to the outermost ones.
        #[test]
        fn changes_match_a_full_computation(steps in prop::collection::vec((any::<bool>(), 0..16_u8, 0..5_u8), 0..40)) {
            let mut cover = Cover::default();
            let (mut all, mut outermost) = (BTreeSet::new(), BTreeSet::new());
            for (add, bits, length) in steps {
                // Sixteen addresses below 10.0.0.0/28, with all lengths from 28 to 32.
                let net = IpNet::new([10, 0, 0, bits].into(), 28 + length.min(4)).expect("net").trunc();
                let change = if add { all.insert(net); cover.add(net) } else { all.remove(&net); cover.remove(net) };
                for net in change.removed { prop_assert!(outermost.remove(&net)); }
                for net in change.added { prop_assert!(outermost.insert(net)); }
                let expected: BTreeSet<IpNet> = all
                    .iter()
                    .filter(|net| !all.iter().any(|outer| outer != *net && outer.contains(*net)))
                    .copied()
                    .collect();
                prop_assert_eq!(&outermost, &expected);
            }
        }
    }

    #[test]
    fn the_default_networks_of_both_versions() {
        for text in ["0.0.0.0/0", "::/0"] {
            let mut cover = Cover::default();
            let whole: IpNet = text.parse().expect("net");
            let host: IpNet =
                if whole.addr().is_ipv4() { "10.0.0.1/32" } else { "fd00::1/128" }.parse().expect("net");
            assert_eq!(cover.add(host).added, [host]);
            let change = cover.add(whole);
            assert_eq!((change.added, change.removed), (vec![whole], vec![host]));
            assert_eq!(cover.remove(whole).added, [host]);
        }
    }
}
