//! The conditions of one rule, for one IP version, in the form that the backend can express.
//!
//! Calico renders some combinations into texts that `iptables-restore` or `nft` reject; then nothing of the table is
//! programmed. Here they are interpreted literally:
//!
//! - `protocol` with `notProtocol`: iptables accepts only one of them. The negation of another protocol adds nothing,
//!   and that of the same one matches nothing.
//! - `icmp` and `notICMP` are about ICMP packets of the rendered version, whether `protocol` says so or not; with any
//!   other protocol they match nothing.
//! - Sets of addresses with ports and a protocol without ports: no packet is in such a set. (`nft` accepts the rule,
//!   and then fails to list the table.)
//!
//! What validation never accepts (a protocol that does not exist, ports of a protocol without ports) cannot be
//! interpreted. A rule that denies does so without the condition, and any other rule matches nothing.

use crate::names::{self, Backend};
use crate::renderer::{icmp_number, protocol};
use crate::tree::{End, IpVersion, Match, PortRange, Protocol, SetName};
use api::scalars::Protocol as RuleProtocol;
use ipnet::IpNet;
use messages::{IcmpMatch, IpSetId, Rule, RuleEnd};
use model::feed::RuleAction;
use std::sync::Arc;

/// The conditions. For lists with `not` in their name, no entry may match; for `sets` and `port_sets`, all must; for
/// the others, any.
/// others any.
pub(super) struct Conditions {
    pub(super) protocol: Option<Protocol>,
    pub(super) source: EndConditions,
    pub(super) destination: EndConditions,
    pub(super) not_icmp: Option<IcmpMatch>,
    not_protocol: Option<Protocol>,
    icmp: Option<IcmpMatch>,
}

/// The conditions on one end. Sets have the kernel's names.
pub(super) struct EndConditions {
    pub(super) end: End,
    pub(super) nets: Vec<IpNet>,
    pub(super) not_nets: Vec<IpNet>,
    pub(super) ports: Vec<PortRange>,
    pub(super) not_ports: Vec<PortRange>,
    pub(super) named_ports: Vec<SetName>,
    pub(super) not_named_ports: Vec<SetName>,
    pub(super) sets: Vec<SetName>,
    port_sets: Vec<SetName>,
    not_sets: Vec<SetName>,
}

impl Conditions {
    /// Returns the rule's conditions; `None` if no packet of the version can match them.
    pub(super) fn of(rule: &Rule, version: IpVersion, backend: Backend) -> Option<Self> {
        if rule.ip_version.is_some_and(|only| only != version) {
            return None;
        }
        // For a condition that cannot be interpreted: `Some` to continue without it, `None` to drop the rule.
        let unreadable = || (rule.action == RuleAction::Deny).then_some(());
        let mut protocol = None;
        if let Some(wanted) = &rule.protocol {
            match readable(wanted) {
                Some(known) => protocol = Some(known),
                None => unreadable()?,
            }
        }
        let mut not_protocol = None;
        if let Some(unwanted) = &rule.not_protocol {
            match readable(unwanted) {
                Some(known) => not_protocol = Some(known),
                None => unreadable()?,
            }
        }
        let (icmp, not_icmp) = icmp_conditions(rule, version, backend, &mut protocol)?;
        if protocol.is_some() && protocol.map(Protocol::number) == not_protocol.map(Protocol::number) {
            return None;
        }
        if protocol.is_some() && backend == Backend::Iptables {
            not_protocol = None;
        }
        let mut source = EndConditions::of(&rule.source, End::Source, version)?;
        let mut destination = EndConditions::of(&rule.destination, End::Destination, version)?;
        if protocol.and_then(Protocol::transport).is_none() {
            for end in [&mut source, &mut destination] {
                if !end.ports.is_empty() || !end.not_ports.is_empty() {
                    unreadable()?;
                    if !end.ports.is_empty() {
                        end.named_ports.clear();
                    }
                    end.ports.clear();
                    end.not_ports.clear();
                }
                if backend == Backend::Nftables && protocol.is_some() {
                    if !end.port_sets.is_empty() || !end.named_ports.is_empty() {
                        return None;
                    }
                    end.not_named_ports.clear();
                }
            }
        }
        Some(Self { protocol, source, destination, not_protocol, icmp, not_icmp })
    }

    /// Whether there are conditions on the packet other than its protocol and its ends.
    pub(super) const fn has_more_than_protocol(&self) -> bool {
        self.not_protocol.is_some() || self.icmp.is_some() || self.not_icmp.is_some()
    }

    /// The matches of the rule itself, in Calico's order, without those that blocks replaced.
    pub(super) fn matches(self, version: IpVersion) -> Vec<Match> {
        let mut matches = Vec::new();
        matches.extend(self.protocol.map(protocol));
        self.source.add_positive(&mut matches);
        self.destination.add_positive(&mut matches);
        let icmp = |message: IcmpMatch, negated| Match::Icmp {
            version,
            icmp_type: message.icmp_type,
            code: message.code,
            negated,
        };
        matches.extend(self.icmp.map(|message| icmp(message, false)));
        matches.extend(self.not_protocol.map(|protocol| Match::Protocol { protocol, negated: true }));
        self.source.add_negative(&mut matches);
        self.destination.add_negative(&mut matches);
        matches.extend(self.not_icmp.map(|message| icmp(message, true)));
        matches
    }
}

/// Returns `icmp` and `notICMP`; the outer `None` if no packet of the version can match them. If one of them is given,
/// the protocol is ICMP afterwards.
fn icmp_conditions(
    rule: &Rule,
    version: IpVersion,
    backend: Backend,
    protocol: &mut Option<Protocol>,
) -> Option<(Option<IcmpMatch>, Option<IcmpMatch>)> {
    let number = icmp_number(version);
    // Each name stands for one version; a number is taken as it is.
    if let Some(Protocol::Named("icmp" | "icmpv6", named)) = protocol
        && *named != number
    {
        return None;
    }
    let (mut icmp, mut not_icmp) = (rule.icmp, rule.not_icmp);
    if icmp.is_none() && not_icmp.is_none() {
        return Some((None, None));
    }
    match protocol {
        None => {
            *protocol = Some(match version {
                IpVersion::V4 => Protocol::Named("icmp", number),
                IpVersion::V6 => Protocol::Named("icmpv6", number),
            });
        }
        Some(other) if other.number() != number => return None,
        Some(_) => {}
    }
    if backend == Backend::Iptables && version == IpVersion::V4 {
        // iptables takes type 255 for all types. No packet has it, and validation rejects it.
        if icmp.take_if(|message| message.icmp_type == u8::MAX).is_some() {
            return None;
        }
        not_icmp.take_if(|message| message.icmp_type == u8::MAX);
    }
    Some((icmp, not_icmp))
}

/// The protocol of a rule, if it is one. Number 0 is not: iptables takes it for all protocols.
fn readable(protocol: &RuleProtocol) -> Option<Protocol> {
    Some(match protocol {
        RuleProtocol::Number(0) | RuleProtocol::Other(_) => return None,
        RuleProtocol::Number(number) => Protocol::Number(*number),
        RuleProtocol::Tcp => Protocol::TCP,
        RuleProtocol::Udp => Protocol::UDP,
        RuleProtocol::Icmp => Protocol::Named("icmp", 1),
        RuleProtocol::Icmpv6 => Protocol::Named("icmpv6", 58),
        RuleProtocol::Sctp => Protocol::Named("sctp", 132),
        RuleProtocol::UdpLite => Protocol::Named("udplite", 136),
    })
}

impl EndConditions {
    fn of(rule: &RuleEnd, end: End, version: IpVersion) -> Option<Self> {
        let named = |ids: &[IpSetId]| ids.iter().map(|id| names::ip_set(version, id)).collect::<Vec<_>>();
        let ordered = |ports: &[PortRange]| {
            ports.iter().filter(|range| range.first <= range.last).copied().collect::<Vec<_>>()
        };
        let ports = ordered(&rule.ports);
        if ports.is_empty() && !rule.ports.is_empty() && rule.named_port_ip_set_ids.is_empty() {
            return None;
        }
        let not_nets = nets_of(&rule.not_nets, version)?;
        if not_nets.iter().any(|net| net.prefix_len() == 0) {
            return None;
        }
        Some(Self {
            end,
            nets: nets_of(&rule.nets, version)?,
            not_nets,
            ports,
            not_ports: ordered(&rule.not_ports),
            named_ports: named(&rule.named_port_ip_set_ids),
            not_named_ports: named(&rule.not_named_port_ip_set_ids),
            sets: named(&rule.ip_set_ids),
            port_sets: named(&rule.ip_port_set_ids),
            not_sets: named(&rule.not_ip_set_ids),
        })
    }

    /// Whether there are conditions other than networks, sets of addresses and ports by number.
    pub(super) fn has_negation_or_port_sets(&self) -> bool {
        let lists = [&self.named_ports, &self.not_named_ports, &self.port_sets, &self.not_sets];
        !self.not_nets.is_empty() || !self.not_ports.is_empty() || lists.iter().any(|list| !list.is_empty())
    }

    fn add_positive(&self, matches: &mut Vec<Match>) {
        let end = self.end;
        matches.extend(self.nets.iter().map(|net| Match::Net { end, net: *net, negated: false }));
        matches.extend(self.sets.iter().map(|name| Match::IpSet { end, name: name.clone(), negated: false }));
        let port_set = |name: &SetName| Match::IpPortSet { end, name: name.clone(), negated: false };
        matches.extend(self.port_sets.iter().map(port_set));
        if !self.ports.is_empty() {
            matches.push(Match::Ports { end, ports: Arc::from(&self.ports[..]), negated: false });
        }
        matches.extend(self.named_ports.iter().map(port_set));
    }

    fn add_negative(&self, matches: &mut Vec<Match>) {
        let end = self.end;
        matches.extend(self.not_nets.iter().map(|net| Match::Net { end, net: *net, negated: true }));
        matches.extend(self.not_sets.iter().map(|name| Match::IpSet {
            end,
            name: name.clone(),
            negated: true,
        }));
        let splits = super::split_ports(&self.not_ports).into_iter();
        matches.extend(splits.map(|ports| Match::Ports { end, ports, negated: true }));
        let port_set = |name: &SetName| Match::IpPortSet { end, name: name.clone(), negated: true };
        matches.extend(self.not_named_ports.iter().map(port_set));
    }
}

/// The networks of the version; `None` if the list has only networks of the other version: then the rule does not apply
/// to packets of this one.
fn nets_of(nets: &[IpNet], version: IpVersion) -> Option<Vec<IpNet>> {
    let own: Vec<_> = nets.iter().filter(|net| IpVersion::of(net) == version).map(IpNet::trunc).collect();
    (nets.is_empty() || !own.is_empty()).then_some(own)
}
