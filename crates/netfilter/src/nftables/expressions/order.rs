//! The order in which a rule's conditions are tested.
//!
//! A condition either passes the packet to the next one or ends the rule, and changes nothing. So a rule matches if all
//! of them hold, in whatever order, and a condition that cannot be tested (a port of a fragment) ends the rule wherever
//! it is. Most rules do not match a given packet, so the cheapest conditions come first. Nothing is moved past a
//! condition with an effect: a limit counts the packets that reach it, and a map gives a verdict.

use rules::nftables::Family;
use rules::tree::Match;
use std::net::IpAddr;

/// The conditions, cheapest first; those of equal cost stay in the order of the text.
pub(super) fn cheapest_first(family: Family, matches: &[Match]) -> Vec<&Match> {
    let mut ordered: Vec<&Match> = matches.iter().collect();
    // A host sends few ARP packets, and their rules keep the usual order.
    if family != Family::Arp {
        for part in ordered.split_mut(|one| is_more_than_a_question(one)) {
            part.sort_by_key(|one| Cost::of(one));
        }
    }
    ordered
}

fn is_more_than_a_question(one: &Match) -> bool {
    matches!(one, Match::Limit { .. } | Match::InterfaceMap { .. })
}

/// What a condition costs the kernel, from cheap to expensive. The figures were measured on one machine, including the
/// comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// A word of the header, compared in place: 5 ns.
    Word,
    /// The packet's mark: 17 ns.
    Mark,
    /// The protocol: 17 ns. Not much more than the mark, and right before the ports, which mean nothing without it.
    Protocol,
    /// A word after the header: 5 ns.
    Transport,
    /// Connection tracking's data of the packet: 20 ns.
    Conntrack,
    /// More than a word of the header, which is copied: 35 ns.
    Bytes,
    /// An interface name, which is copied: 40 ns.
    Name,
    /// Several ranges of ports, or a small set within the rule: up to 60 ns.
    Several,
    /// A set of addresses: 60 to 120 ns, growing with its size.
    Set,
    /// Routing tables: 140 ns and more.
    Routes,
}

impl Cost {
    fn of(one: &Match) -> Self {
        match one {
            Match::Net { net, .. } => Self::of_address(net.addr(), net.prefix_len()),
            Match::Address { address, .. } => {
                Self::of_address(*address, if address.is_ipv4() { 32 } else { 128 })
            }
            Match::ArpReply | Match::ArpSource(_) => Self::Word,
            // A condition that never matches tests the mark.
            Match::Mark { .. } | Match::Ipvs { .. } => Self::Mark,
            Match::Protocol { .. } => Self::Protocol,
            Match::DestinationPort(_) => Self::Transport,
            Match::Ports { ports, .. } if ports.len() <= 1 => Self::Transport,
            Match::Ports { .. } => Self::Several,
            Match::Icmp { code, negated, .. } => match code.is_some() && *negated {
                false => Self::Transport,
                true => Self::Several,
            },
            Match::Conntrack { .. } => Self::Conntrack,
            Match::Interface { .. } | Match::InterfaceMap { .. } => Self::Name,
            Match::IpSet { .. } | Match::IpPortSet { .. } | Match::Limit { .. } => Self::Set,
            Match::LocalAddress { .. } | Match::ReversePathFailed => Self::Routes,
        }
    }

    fn of_address(address: IpAddr, prefix: u8) -> Self {
        match (address, prefix) {
            (IpAddr::V4(_), _) | (IpAddr::V6(_), 8 | 16 | 32) => Self::Word,
            (IpAddr::V6(_), _) => Self::Bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cheapest_first;
    use rules::nftables::Family;
    use rules::tree::{Conntrack, End, InterfacePattern, Match, PortRange, Protocol, Rate, RateUnit, Side};

    fn protocol() -> Match {
        Match::Protocol { protocol: Protocol::TCP, negated: false }
    }

    fn ports(count: u16) -> Match {
        let ports = (0..count).map(|port| PortRange { first: port * 2, last: port * 2 }).collect();
        Match::Ports { end: End::Destination, ports, negated: false }
    }

    fn net(text: &str) -> Match {
        Match::Net { end: End::Source, net: text.parse().expect("a network"), negated: false }
    }

    fn set(name: &str, negated: bool) -> Match {
        Match::IpSet { end: End::Source, name: name.into(), negated }
    }

    fn limit() -> Match {
        Match::Limit { rate: Rate { count: 10, unit: RateUnit::Minute }, burst: 5 }
    }

    fn check(family: Family, given: &[Match], expected: &[Match]) {
        let ordered: Vec<Match> = cheapest_first(family, given).into_iter().cloned().collect();
        assert_eq!(ordered, expected);
    }

    #[test]
    fn cheap_conditions_come_first() {
        let mark = Match::Mark { value: 1, mask: 1, negated: true };
        let state = Match::Conntrack { state: Conntrack::New, negated: false };
        let from = Match::Interface { side: Side::In, pattern: InterfacePattern::prefix("cali") };
        let local = Match::LocalAddress { end: End::Source, limit_interface_out: false, negated: false };
        check(
            Family::Ip,
            &[
                local.clone(),
                protocol(),
                set("a", false),
                ports(2),
                from.clone(),
                state.clone(),
                ports(1),
                mark.clone(),
                net("10.0.0.0/24"),
            ],
            &[net("10.0.0.0/24"), mark, protocol(), ports(1), state, from, ports(2), set("a", false), local],
        );
        check(
            Family::Ip6,
            &[protocol(), net("fd00:1::/64"), net("fd00::/8"), ports(1)],
            &[net("fd00::/8"), protocol(), ports(1), net("fd00:1::/64")],
        );
    }

    #[test]
    fn conditions_of_equal_cost_stay_in_order() {
        let given = [set("b", false), set("a", true), set("c", false)];
        check(Family::Ip, &given, &given);
    }

    #[test]
    fn nothing_moves_past_a_limit_or_a_map() {
        let given = [limit(), set("a", false), protocol(), limit(), protocol(), net("10.0.0.0/8")];
        let expected = [limit(), protocol(), set("a", false), limit(), net("10.0.0.0/8"), protocol()];
        check(Family::Ip, &given, &expected);
        let map = Match::InterfaceMap { side: Side::In, map: "map".into() };
        let given = [set("a", false), map.clone(), protocol()];
        check(Family::Ip, &given, &given);
    }

    #[test]
    fn arp_keeps_the_order_of_the_text() {
        let out = Match::Interface { side: Side::Out, pattern: InterfacePattern::exact("cali1") };
        let given = [out, Match::ArpReply, Match::ArpSource([10, 0, 0, 1].into())];
        check(Family::Arp, &given, &given);
    }
}
