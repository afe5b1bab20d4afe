//! What policy means for a packet, straight from the messages: no marks, no chains, no order of matches.

use crate::world::World;
use api::scalars::Protocol;
use ipnet::IpNet;
use messages::{IcmpMatch, IpSetMember, Rule, RuleEnd, WorkloadEndpoint};
use model::IpVersion;
use model::feed::RuleAction;
use rules::simulate::Packet;
use rules::{Direction, names};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Members of sets by the sets' ids.
pub(crate) type Sets = BTreeMap<&'static str, Vec<IpSetMember>>;

/// Whether the endpoint's policy allows the packet.
pub(crate) fn allows(
    world: &World,
    endpoint: &WorkloadEndpoint,
    direction: Direction,
    packet: &Packet,
    sets: &Sets,
) -> bool {
    if endpoint.state != "active" {
        return false;
    }
    // Workloads create no tunnels.
    if direction == Direction::Outbound
        && (packet.protocol == 4 || (packet.protocol == 17 && packet.ports.1 == 4789))
    {
        return false;
    }
    'tiers: for tier in &endpoint.tiers {
        let policies = match direction {
            Direction::Inbound => &tier.ingress_policies,
            Direction::Outbound => &tier.egress_policies,
        };
        let mut enforced = policies.iter().filter(|policy| !names::is_staged(policy.kind)).peekable();
        if enforced.peek().is_none() {
            continue;
        }
        for policy in enforced {
            let policy = &world.policies[policy];
            let rules = match direction {
                Direction::Inbound => &policy.inbound_rules,
                Direction::Outbound => &policy.outbound_rules,
            };
            match decision(rules, packet, sets) {
                Some(RuleAction::Allow) => return true,
                Some(RuleAction::Deny) => return false,
                Some(_) => continue 'tiers,
                None => {}
            }
        }
        if tier.default_action != RuleAction::Pass {
            return false;
        }
    }
    for profile in &endpoint.profile_ids {
        let profile = &world.profiles[profile];
        let rules = match direction {
            Direction::Inbound => &profile.inbound_rules,
            Direction::Outbound => &profile.outbound_rules,
        };
        match decision(rules, packet, sets) {
            Some(RuleAction::Allow) => return true,
            Some(RuleAction::Deny) => return false,
            _ => {}
        }
    }
    false
}

/// The action of the first rule that matches and decides.
fn decision(rules: &[Rule], packet: &Packet, sets: &Sets) -> Option<RuleAction> {
    let decides = |rule: &&Rule| rule.action != RuleAction::Log && matches(rule, packet, sets);
    rules.iter().find(decides).map(|rule| rule.action)
}

fn version_of(address: IpAddr) -> IpVersion {
    if address.is_ipv6() { IpVersion::V6 } else { IpVersion::V4 }
}

/// A condition that was never valid neither widens a rule that allows packets, nor narrows one that denies them.
fn matches(rule: &Rule, packet: &Packet, sets: &Sets) -> bool {
    let version = version_of(packet.source);
    let unreadable = rule.action == RuleAction::Deny;
    let own_icmp = if version == IpVersion::V6 { 58 } else { 1 };
    let protocol = match &rule.protocol {
        None => true,
        Some(Protocol::Icmp) => version == IpVersion::V4 && packet.protocol == 1,
        Some(Protocol::Icmpv6) => version == IpVersion::V6 && packet.protocol == 58,
        Some(other) => readable(other).map_or(unreadable, |number| packet.protocol == number),
    };
    let not_protocol = match &rule.not_protocol {
        None => true,
        Some(other) => readable(other).map_or(unreadable, |number| packet.protocol != number),
    };
    let is = |icmp: &IcmpMatch| {
        packet.icmp.0 == icmp.icmp_type && icmp.code.is_none_or(|code| packet.icmp.1 == code)
    };
    // An ICMP condition applies to ICMP packets.
    let about_icmp = |wanted: bool| packet.protocol == own_icmp && wanted;
    let icmp = rule.icmp.as_ref().is_none_or(|icmp| about_icmp(is(icmp)));
    let not_icmp = rule.not_icmp.as_ref().is_none_or(|icmp| about_icmp(!is(icmp)));
    let known_ports = rule.protocol.as_ref().is_some_and(Protocol::supports_ports);
    rule.ip_version.is_none_or(|only| only == version)
        && protocol
        && not_protocol
        && icmp
        && not_icmp
        && end_matches(&rule.source, packet.source, packet, packet.ports.0, known_ports, unreadable, sets)
        && end_matches(
            &rule.destination,
            packet.destination,
            packet,
            packet.ports.1,
            known_ports,
            unreadable,
            sets,
        )
}

fn readable(protocol: &Protocol) -> Option<u8> {
    protocol.number().filter(|number| *number != 0)
}

fn end_matches(
    end: &RuleEnd,
    address: IpAddr,
    packet: &Packet,
    port: u16,
    known_ports: bool,
    unreadable: bool,
    sets: &Sets,
) -> bool {
    let version = version_of(address);
    let own =
        |nets: &[IpNet]| nets.iter().filter(|net| IpVersion::of(net) == version).copied().collect::<Vec<_>>();
    // A list with only networks of the other version limits the rule to that version.
    let about_us = |nets: &[IpNet]| nets.is_empty() || !own(nets).is_empty();
    let within = |nets: &[IpNet]| own(nets).iter().any(|net| net.contains(&address));
    let in_set = |id: &str| {
        sets[id].iter().any(|member| match member {
            IpSetMember::Ip(member) => *member == address,
            IpSetMember::Net(net) => net.contains(&address),
            IpSetMember::IpAndPort { .. } => false,
        })
    };
    let has_ports = matches!(packet.protocol, 6 | 17 | 132);
    let in_port_set = |id: &str| {
        let wanted = IpSetMember::IpAndPort { address, protocol: packet.protocol, port };
        has_ports && sets[id].contains(&wanted)
    };
    let among =
        |ports: &[messages::PortRange]| ports.iter().any(|range| range.first <= port && port <= range.last);
    let ports = if !end.ports.is_empty() && !known_ports {
        unreadable
    } else {
        (end.ports.is_empty() && end.named_port_ip_set_ids.is_empty())
            || (has_ports && among(&end.ports))
            || end.named_port_ip_set_ids.iter().any(|id| in_port_set(id))
    };
    let not_ports = match end.not_ports.is_empty() {
        true => true,
        false if !known_ports => unreadable,
        false => has_ports && !among(&end.not_ports),
    };
    about_us(&end.nets)
        && about_us(&end.not_nets)
        && (end.nets.is_empty() || within(&end.nets))
        && !within(&end.not_nets)
        && ports
        && not_ports
        && end.ip_set_ids.iter().all(|id| in_set(id))
        && end.ip_port_set_ids.iter().all(|id| in_port_set(id))
        && !end.not_ip_set_ids.iter().any(|id| in_set(id))
        && !end.not_named_port_ip_set_ids.iter().any(|id| in_port_set(id))
}
