//! Chooses the ports that each receiver of a matrix is tested on: all that it declares, and those that policies name
//! for it, of ranges the first port. A policy may list hundreds: ports that are left out are kept, so that the answer
//! can list them.

use super::{MatrixOptions, has_ports, receivers, short};
use crate::party::Protocol;
use crate::report::Direction;
use crate::world::{Item, PolicyRule, World, known_protocol};
use api::scalars::Port;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// The number of ports tested per receiver, unless it declares more itself.
const ENOUGH: usize = 16;

/// The ports of one receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) asked: BTreeSet<u16>,
    /// Further ports that policies name.
    left_out: BTreeSet<u16>,
}

/// The ports of each receiver, by its name.
pub(super) type PortsByReceiver = BTreeMap<String, Ports>;

/// The ports to test each receiver on.
pub(super) fn of(world: &World<'_>, options: &MatrixOptions) -> PortsByReceiver {
    let protocol = options.protocol.unwrap_or(Protocol::TCP).0;
    let of = |item: &Item| match options.port {
        _ if !has_ports(protocol) => Ports::only(0),
        Some(port) => Ports::only(port),
        None => Ports::new(declared(world, item, protocol), &named(world, item, protocol)),
    };
    receivers(world, options).into_iter().map(|item| (short(item), of(item))).collect()
}

/// Merges the ports of both clusters.
pub(super) fn together(mut one: PortsByReceiver, other: PortsByReceiver) -> PortsByReceiver {
    for (name, more) in other {
        let ports = one.entry(name).or_default();
        ports.asked.extend(more.asked);
        ports.left_out.extend(more.left_out);
    }
    one
}

/// The ports that policies name for some receiver but that it is not tested on.
pub(super) fn left_out(ports: &PortsByReceiver) -> Vec<u16> {
    let left_out = ports.values().flat_map(|ports| ports.left_out.difference(&ports.asked));
    left_out.copied().collect::<BTreeSet<u16>>().into_iter().collect()
}

/// Ports in order, consecutive ports as ranges.
pub(super) fn text(ports: &[u16]) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for port in ports {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*port) => *last = *port,
            _ => runs.push((*port, *port)),
        }
    }
    let runs = runs.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    });
    runs.collect::<Vec<_>>().join(", ")
}

impl Ports {
    fn only(port: u16) -> Self {
        Self { asked: BTreeSet::from([port]), left_out: BTreeSet::new() }
    }

    fn new(declared: BTreeSet<u16>, named: &BTreeSet<u16>) -> Self {
        let room = ENOUGH.saturating_sub(declared.len());
        let named: Vec<u16> = named.difference(&declared).copied().collect();
        let (more, left_out) = named.split_at(room.min(named.len()));
        let mut asked = declared;
        asked.extend(more);
        Self { asked, left_out: left_out.iter().copied().collect() }
    }
}

/// The ports that a receiver declares.
fn declared(world: &World<'_>, item: &Item, protocol: u8) -> BTreeSet<u16> {
    let named = item.ports.iter().filter(|port| port.protocol.number() == Some(protocol));
    let pod = (item.identity.1.clone(), item.short_name.clone());
    let of_pod = world.cluster.declared_ports.get(&pod).into_iter().flatten();
    let of_pod = of_pod.filter(|(number, _)| *number == protocol).map(|(_, port)| *port);
    named.map(|port| port.port).chain(of_pod).collect()
}

/// The ports that policies name for a receiver: policies that select it, and those of senders that allow egress to it.
fn named(world: &World<'_>, item: &Item, protocol: u8) -> BTreeSet<u16> {
    let policies = || world.policies.iter().filter(|policy| policy.selection.faults.is_empty());
    let inbound = policies()
        .filter(|policy| policy.selection.selects(&item.labels))
        .flat_map(|policy| policy.rules(Direction::Ingress).unwrap_or_default());
    let outbound = policies()
        .flat_map(|policy| policy.rules(Direction::Egress).unwrap_or_default())
        .filter(|rule| may_be_about(rule, item));
    inbound
        .chain(outbound)
        .filter(|rule| {
            let wanted = rule.rule.protocol.as_ref().map(known_protocol);
            wanted.is_none_or(|wanted| wanted.number() == Some(protocol))
        })
        .flat_map(|rule| &rule.rule.destination.ports)
        .filter_map(|port| match port {
            Port::Range { min, .. } => Some((*min).max(1)),
            // Named ports are declared ports.
            Port::Named(_) | Port::Other(_) => None,
        })
        .collect()
}

/// Whether a rule's destination may include this receiver.
fn may_be_about(rule: &PolicyRule, item: &Item) -> bool {
    let nets = rule.rule.destination.nets.iter().filter_map(|net| net.parse().ok());
    let nets: Vec<IpNet> = nets.map(|network| network.masked()).collect();
    let selection = &rule.destination.positive;
    selection.faults.is_empty()
        && selection.selects(&item.labels)
        && (nets.is_empty() || item.nets.iter().any(|own| nets.iter().any(|net| net.contains(&own.addr()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_ports_are_tested_and_policy_ports_up_to_a_limit() {
        let (low, high): (BTreeSet<u16>, BTreeSet<u16>) = ((1000..1020).collect(), (2000..2020).collect());
        let ports = Ports::new(high.clone(), &low);
        assert_eq!((ports.asked, ports.left_out), (high, low.clone()));
        let ports = Ports::new(BTreeSet::from([8080, 1001]), &low);
        assert_eq!(ports.asked, (1000..1015).chain([8080]).collect());
        assert_eq!(ports.left_out, (1015..1020).collect());
    }

    #[test]
    fn consecutive_ports_become_ranges() {
        assert_eq!(text(&[1, 3, 4, 8, 9, 10, 65_534, 65_535]), "1, 3, 4, 8-10, 65534, 65535");
    }
}
