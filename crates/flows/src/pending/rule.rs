//! One rule, with the names of its sets resolved.

use super::sets::Sets;
use super::slots::Slot;
use crate::collector::Tuple;
use api::scalars::Protocol;
use ipnet::IpNet;
use messages::{IcmpMatch, IpSetId, PortRange, Rule, RuleEnd};
use model::IpVersion;
use model::feed::RuleAction;
use std::net::IpAddr;

const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// A rule. Every condition that is given must match.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) action: RuleAction,
    ip_version: Option<IpVersion>,
    /// An unknown protocol matches nothing, and its negation everything.
    protocol: Option<Option<u8>>,
    not_protocol: Option<u8>,
    icmp: Option<IcmpMatch>,
    not_icmp: Option<IcmpMatch>,
    source: CompiledEnd,
    dest: CompiledEnd,
}

/// The conditions that rules most often differ in, stored together: most rules are skipped without looking at the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// The only protocol; `None` for any.
    protocol: Option<u8>,
    /// The first and last destination port that can match.
    ports: (u16, u16),
}

impl Head {
    pub(super) fn of(rule: &CompiledRule) -> Self {
        let end = &rule.dest;
        let is_numbered = !end.ports.is_empty() && end.named_ports.is_empty();
        let first = end.ports.iter().map(|range| range.first).min().filter(|_| is_numbered);
        let last = end.ports.iter().map(|range| range.last).max().filter(|_| is_numbered);
        Self { protocol: rule.protocol.flatten(), ports: (first.unwrap_or(0), last.unwrap_or(u16::MAX)) }
    }

    /// Whether the rule has to be checked in full.
    pub(super) fn may_match(self, tuple: &Tuple) -> bool {
        self.protocol.is_none_or(|protocol| protocol == tuple.protocol)
            && (self.ports.0..=self.ports.1).contains(&tuple.dest_port)
    }
}

#[derive(Debug, Default)]
struct CompiledEnd {
    nets: Vec<IpNet>,
    ports: Vec<PortRange>,
    named_ports: Vec<Slot>,
    sets: Vec<Slot>,
    port_sets: Vec<Slot>,
    not_nets: Vec<IpNet>,
    not_ports: Vec<PortRange>,
    not_named_ports: Vec<Slot>,
    not_sets: Vec<Slot>,
    /// Whether there is any condition.
    is_restricted: bool,
}

impl CompiledRule {
    pub(super) fn new(rule: &Rule, sets: &mut Sets) -> Self {
        Self {
            action: rule.action,
            ip_version: rule.ip_version,
            protocol: rule.protocol.as_ref().map(Protocol::number),
            not_protocol: rule.not_protocol.as_ref().and_then(Protocol::number),
            icmp: rule.icmp,
            not_icmp: rule.not_icmp,
            source: CompiledEnd::new(&rule.source, sets),
            dest: CompiledEnd::new(&rule.destination, sets),
        }
    }

    pub(super) fn sees_source_port(&self) -> bool {
        let end = &self.source;
        !(end.ports.is_empty()
            && end.not_ports.is_empty()
            && end.named_ports.is_empty()
            && end.not_named_ports.is_empty()
            && end.port_sets.is_empty())
    }

    pub(super) fn matches(&self, tuple: &Tuple, sets: &Sets) -> bool {
        if self.protocol.is_some_and(|protocol| protocol != Some(tuple.protocol))
            || self.not_protocol == Some(tuple.protocol)
        {
            return false;
        }
        let is_v6 = tuple.source.is_ipv6();
        if self.ip_version.is_some_and(|version| (version == IpVersion::V6) != is_v6) {
            return false;
        }
        // A rule that matches ICMP, or excludes some ICMP messages, means ICMP of the packet's own family.
        let means_icmp = self.icmp.is_some() || self.not_icmp.is_some();
        if means_icmp && tuple.protocol != if is_v6 { ICMP_V6 } else { ICMP } {
            return false;
        }
        if self.icmp.is_some_and(|icmp| !is_icmp(icmp, tuple))
            || self.not_icmp.is_some_and(|icmp| is_icmp(icmp, tuple))
        {
            return false;
        }
        self.source.matches(tuple.source, tuple.protocol, tuple.source_port, sets)
            && self.dest.matches(tuple.dest, tuple.protocol, tuple.dest_port, sets)
    }
}

/// For ICMP, the destination port holds type and code.
fn is_icmp(icmp: IcmpMatch, tuple: &Tuple) -> bool {
    let [kind, code] = tuple.dest_port.to_be_bytes();
    kind == icmp.icmp_type && icmp.code.is_none_or(|wanted| wanted == code)
}

impl CompiledEnd {
    fn new(end: &RuleEnd, sets: &mut Sets) -> Self {
        let mut slots = |ids: &[IpSetId]| ids.iter().map(|id| sets.slot(id)).collect::<Vec<_>>();
        let mut compiled = Self {
            nets: end.nets.clone(),
            ports: end.ports.clone(),
            named_ports: slots(&end.named_port_ip_set_ids),
            sets: slots(&end.ip_set_ids),
            port_sets: slots(&end.ip_port_set_ids),
            not_nets: end.not_nets.clone(),
            not_ports: end.not_ports.clone(),
            not_named_ports: slots(&end.not_named_port_ip_set_ids),
            not_sets: slots(&end.not_ip_set_ids),
            is_restricted: false,
        };
        compiled.is_restricted = [
            compiled.nets.is_empty() && compiled.not_nets.is_empty(),
            compiled.ports.is_empty() && compiled.not_ports.is_empty(),
            compiled.named_ports.is_empty() && compiled.not_named_ports.is_empty(),
            compiled.sets.is_empty() && compiled.not_sets.is_empty(),
            compiled.port_sets.is_empty(),
        ]
        .contains(&false);
        compiled
    }

    fn matches(&self, address: IpAddr, protocol: u8, port: u16, sets: &Sets) -> bool {
        if !self.is_restricted {
            return true;
        }
        let is_v6 = address.is_ipv6();
        let is_in = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        let has_port =
            |ports: &[PortRange]| ports.iter().any(|range| (range.first..=range.last).contains(&port));
        let set_has = |slot: &Slot| sets.get(*slot).is_some_and(|set| set.has(address));
        let set_has_port =
            |slot: &Slot| sets.get(*slot).is_some_and(|set| set.has_port(address, protocol, port));
        (self.nets.is_empty() || is_in(&self.nets))
            && !is_in(&self.not_nets)
            // A rule that only excludes networks of the other family does not apply to this one.
            && (self.not_nets.is_empty() || self.not_nets.iter().any(|net| net.addr().is_ipv6() == is_v6))
            && ((self.ports.is_empty() && self.named_ports.is_empty())
                || has_port(&self.ports)
                || self.named_ports.iter().any(set_has_port))
            && !has_port(&self.not_ports)
            && !self.not_named_ports.iter().any(set_has_port)
            && self.sets.iter().all(set_has)
            && !self.not_sets.iter().any(set_has)
            && self.port_sets.iter().all(set_has_port)
    }
}
