//! Network sets by their addresses.

use super::endpoints::labels;
use flows::collector::{End, EndKind};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model::feed::NetworkSet;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

#[derive(Debug)]
struct Known {
    end: End,
    nets: Vec<IpNet>,
}

/// The sets.
#[derive(Debug, Default)]
pub(super) struct NetworkSets {
    /// By `name`, or `namespace/name`.
    sets: BTreeMap<String, Known>,
    /// By family and length, so that a lookup takes as many steps as there are lengths.
    by_length: BTreeMap<(bool, u8), HashMap<IpNet, BTreeSet<String>>>,
}

fn length(net: &IpNet) -> (bool, u8) {
    (net.addr().is_ipv6(), net.prefix_len())
}

/// The preference of sets: those of the requested namespace, global ones, others.
fn rank(name: &str, namespace: &str) -> u8 {
    match name.split_once('/') {
        Some((own, _)) if own == namespace => 0,
        None => 1,
        Some(_) => 2,
    }
}

impl NetworkSets {
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    pub(super) fn set(&mut self, name: &str, set: Option<&NetworkSet>) {
        if let Some(known) = self.sets.remove(name) {
            for net in &known.nets {
                if let Some(nets) = self.by_length.get_mut(&length(net)) {
                    if let Some(names) = nets.get_mut(net) {
                        names.remove(name);
                        if names.is_empty() {
                            nets.remove(net);
                        }
                    }
                    if nets.is_empty() {
                        self.by_length.remove(&length(net));
                    }
                }
            }
        }
        let Some(set) = set else { return };
        let nets: Vec<IpNet> = set.nets.iter().map(IpNet::trunc).collect();
        for net in &nets {
            let names = self.by_length.entry(length(net)).or_default().entry(*net).or_default();
            names.insert(name.to_owned());
        }
        let (namespace, short) = name.split_once('/').unwrap_or(("", name));
        let kind = EndKind::NetworkSet { namespace: namespace.into(), name: short.into() };
        let end = End { kind, is_local: false, labels: labels(&set.labels) };
        self.sets.insert(name.to_owned(), Known { end, nets });
    }

    /// The set of an address: of the namespace first, then a global one, then any; among those the one with the longest
    /// prefix, and among equals the first by name.
    pub(super) fn find(&self, address: IpAddr, namespace: &str) -> Option<&End> {
        let lengths = (address.is_ipv6(), 0)..=(address.is_ipv6(), u8::MAX);
        let mut best: Option<(u8, &str)> = None;
        // Longest first, so that only a better rank replaces an earlier match.
        for ((_, length), nets) in self.by_length.range(lengths).rev() {
            let net = match address {
                IpAddr::V4(address) => Ipv4Net::new(address, *length).map(IpNet::from),
                IpAddr::V6(address) => Ipv6Net::new(address, *length).map(IpNet::from),
            };
            let Some(names) = net.ok().and_then(|net| nets.get(&net.trunc())) else { continue };
            for name in names {
                let rank = rank(name, namespace);
                if best.is_none_or(|(known, _)| rank < known) {
                    best = Some((rank, name));
                }
            }
        }
        self.sets.get(best?.1).map(|known| &known.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_come_before_lengths() {
        let mut sets = NetworkSets::default();
        let set = |nets: &[&str]| NetworkSet {
            nets: nets.iter().map(|net| net.parse().unwrap()).collect(),
            ..NetworkSet::default()
        };
        sets.set("wide", Some(&set(&["8.0.0.0/8"])));
        sets.set("narrow", Some(&set(&["8.8.8.0/24", "2001:db8::/32"])));
        sets.set("same", Some(&set(&["8.8.8.0/24"])));
        sets.set("shop/mine", Some(&set(&["8.8.0.0/16"])));
        sets.set("other/theirs", Some(&set(&["8.8.8.8/32", "9.9.9.9/32"])));
        let found = |sets: &NetworkSets, address: &str, namespace: &str| {
            let end = sets.find(address.parse().unwrap(), namespace)?;
            let EndKind::NetworkSet { namespace, name } = &end.kind else { panic!("{end:?}") };
            Some(format!("{namespace}/{name}"))
        };
        for (address, namespace, expected) in [
            ("8.8.8.8", "shop", Some("shop/mine")),
            ("8.8.8.8", "other", Some("other/theirs")),
            ("8.8.8.8", "", Some("/narrow")),
            ("8.1.1.1", "shop", Some("/wide")),
            ("9.9.9.9", "shop", Some("other/theirs")),
            ("2001:db8::7", "shop", Some("/narrow")),
            ("1.1.1.1", "shop", None),
        ] {
            assert_eq!(found(&sets, address, namespace).as_deref(), expected, "{address} {namespace}");
        }
        sets.set("narrow", None);
        assert_eq!(found(&sets, "8.8.8.8", "").as_deref(), Some("/same"));
        assert_eq!(found(&sets, "2001:db8::7", ""), None);
        for name in ["wide", "same", "shop/mine", "other/theirs"] {
            sets.set(name, None);
        }
        assert!(sets.by_length.is_empty() && sets.len() == 0);
    }
}
