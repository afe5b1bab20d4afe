//! Ports of Kubernetes policies: collected per protocol, merged to as few ranges as possible.

use api::scalars::{Port, Protocol};
use std::collections::BTreeMap;

/// The ports that one rule of a policy matches, per protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProtocolPorts(BTreeMap<String, Ports>);

/// The ports of one protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ports {
    All,
    Only(Vec<Port>),
}

impl ProtocolPorts {
    /// Creates an empty collection.
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Any protocol and any port.
    pub(super) fn everything() -> Self {
        Self(BTreeMap::from([(String::new(), Ports::All)]))
    }

    /// Adds all ports of a protocol.
    pub(super) fn add_all(&mut self, protocol: &str) {
        self.0.insert(protocol.to_owned(), Ports::All);
    }

    /// Adds one port of a protocol. The empty protocol means any, as for named ports of cluster policies.
    pub(super) fn add(&mut self, protocol: &str, port: Port) {
        match self.0.entry(protocol.to_owned()).or_insert_with(|| Ports::Only(Vec::new())) {
            // Once all ports are included, single ports change nothing.
            Ports::All => {}
            Ports::Only(ports) => ports.push(port),
        }
    }

    /// Returns each protocol by name, with its ports; no ports means all.
    pub(super) fn into_rules(self) -> impl Iterator<Item = (Option<Protocol>, Vec<Port>)> {
        self.0.into_iter().map(|(protocol, ports)| {
            let protocol = (!protocol.is_empty()).then(|| Protocol::from_name(&protocol));
            match ports {
                Ports::All => (protocol, Vec::new()),
                Ports::Only(ports) => (protocol, simplify(ports)),
            }
        })
    }
}

/// Merges ports into the fewest ranges: named ports first, in their order, then ranges in ascending order.
fn simplify(ports: Vec<Port>) -> Vec<Port> {
    let mut ranges: Vec<(u16, u16)> = ports.iter().filter_map(Port::bounds).collect();
    let numbers: usize = ranges.iter().map(|(min, max)| usize::from(max - min) + 1).sum();
    if ports.len() <= 1 || numbers <= 1 {
        // With at most one number there is nothing to merge, and the order stays the same.
        return ports;
    }
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for (min, max) in ranges {
        match merged.last_mut() {
            Some((_, last)) if u32::from(min) <= u32::from(*last) + 1 => *last = max.max(*last),
            _ => merged.push((min, max)),
        }
    }
    let named = ports.into_iter().filter(|port| port.bounds().is_none());
    named.chain(merged.into_iter().map(|(min, max)| Port::range(min, max))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_merged_to_the_fewest_ranges() {
        let table: &[(&[&str], &[&str])] = &[
            (&["80"], &["80"]),
            (&["80", "81", "82", "9090", "foo"], &["foo", "80:82", "9090"]),
            (&["foo", "80"], &["foo", "80"]),
            (&["80", "foo"], &["80", "foo"]),
            (&["443", "80"], &["80", "443"]),
            (&["80", "80", "80"], &["80"]),
            (&["100:200", "150:300", "301"], &["100:301"]),
            (&["1:65535", "80"], &["1:65535"]),
            (&["0:65535", "65535"], &["0:65535"]),
            (&["b", "a"], &["b", "a"]),
        ];
        for (input, expected) in table {
            let input: Vec<Port> = input.iter().map(|text| Port::from_text(text)).collect();
            let expected: Vec<Port> = expected.iter().map(|text| Port::from_text(text)).collect();
            assert_eq!(simplify(input), expected);
        }
    }

    #[test]
    fn all_ports_of_a_protocol_swallow_single_ones() {
        let mut ports = ProtocolPorts::new();
        ports.add("TCP", Port::single(80));
        ports.add_all("TCP");
        ports.add("TCP", Port::single(81));
        ports.add("SCTP", Port::single(7));
        let rules: Vec<_> = ports.into_rules().collect();
        assert_eq!(rules, [(Some(Protocol::Sctp), vec![Port::single(7)]), (Some(Protocol::Tcp), Vec::new())]);
    }
}
