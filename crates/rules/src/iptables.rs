//! Rules as lines of `iptables-restore`, letter for letter as Calico writes them, because rules' hashes are computed
//! from this text.
//!
//! What iptables cannot do ([`Match::InterfaceMap`], the ARP matches, [`Action::FlowOffload`]) is never rendered for
//! it. Should such a rule arrive here anyway, it becomes one that matches nothing rather than one that matches too
//! much.

use crate::hash::{self, APPENDS_SUFFIX, COMMENT_PREFIX, RuleHash};
use crate::tree::{
    Action, Conntrack, End, InterfacePattern, IpVersion, Match, NfLogSize, PortRange, RejectWith, Rule, Side,
};
use std::fmt::Write as _;
use std::net::IpAddr;

/// The longest name of a chain.
pub const MAX_CHAIN_NAME: usize = 28;

/// The longest single comment.
const MAX_COMMENT: usize = 256;

/// The hashes of a chain's rules. For rules that are inserted into one of the kernel's chains, `chain` is that chain.
#[must_use]
pub fn hashes(chain: &str, rules: &[Rule]) -> Vec<RuleHash> {
    hash::chained(chain, rules, |rule, text| {
        text.push_str("-A ");
        text.push_str(chain);
        text.push_str(" HASH");
        write_rule(rule, text);
    })
}

/// The hashes of rules that are appended to one of the kernel's chains.
#[must_use]
pub fn appended_hashes(kernel_chain: &str, rules: &[Rule]) -> Vec<RuleHash> {
    hashes(&format!("{kernel_chain}{APPENDS_SUFFIX}"), rules)
}

/// `-A chain …`: appends the rule to the chain.
#[must_use]
pub fn render_append(chain: &str, rule: &Rule, hash: RuleHash) -> String {
    line(format!("-A {chain}"), rule, hash)
}

/// `-I chain …`: inserts the rule at the beginning of the chain.
#[must_use]
pub fn render_insert(chain: &str, rule: &Rule, hash: RuleHash) -> String {
    line(format!("-I {chain}"), rule, hash)
}

/// `-R chain N …`: replaces the Nth rule, counted from one.
#[must_use]
pub fn render_replace(chain: &str, position: usize, rule: &Rule, hash: RuleHash) -> String {
    line(format!("-R {chain} {position}"), rule, hash)
}

fn line(mut text: String, rule: &Rule, hash: RuleHash) -> String {
    let _ = write!(text, " -m comment --comment \"{COMMENT_PREFIX}{hash}\"");
    write_rule(rule, &mut text);
    text
}

/// Everything after the hash: comments, matches and action, each preceded by a space.
fn write_rule(rule: &Rule, text: &mut String) {
    for comment in &rule.comments {
        text.push_str(" -m comment --comment \"");
        text.extend(escaped(comment).take(MAX_COMMENT));
        text.push('"');
    }
    for one in &rule.matches {
        text.push(' ');
        write_match(one, text);
    }
    if let Some(action) = &rule.action {
        text.push(' ');
        write_action(action, text);
    }
}

/// A comment without characters that have a meaning in `iptables-restore`.
pub(crate) fn escaped(comment: &str) -> impl Iterator<Item = char> {
    comment.chars().map(|one| {
        let safe = one.is_ascii_alphanumeric() || "_ @%+=:,./-".contains(one);
        if safe { one } else { '_' }
    })
}

fn write_match(one: &Match, text: &mut String) {
    let not = |negated: &bool| if *negated { "! " } else { "" };
    let _ = match one {
        Match::Protocol { protocol, negated } => write!(text, "{}-p {protocol}", not(negated)),
        Match::Interface { side, pattern: InterfacePattern { name, is_prefix } } => {
            write!(text, "{} {name}{}", interface_option(*side), if *is_prefix { "+" } else { "" })
        }
        Match::Mark { value: 0, mask, negated } => {
            write!(text, "-m mark {}--mark 0/{mask:#x}", not(negated))
        }
        Match::Mark { value, mask, negated } => {
            write!(text, "-m mark {}--mark {value:#x}/{mask:#x}", not(negated))
        }
        Match::Conntrack { state, negated } => {
            write!(text, "-m conntrack {}--ctstate {}", not(negated), conntrack_state(*state))
        }
        Match::Net { end, net, negated } => {
            write!(text, "{}{} {net}", not(negated), address_option(*end))
        }
        Match::Address { end, address } => write!(text, "{} {address}", address_option(*end)),
        Match::IpSet { end, name, negated } => {
            let end = short(*end);
            write!(text, "-m set {}--match-set {name} {end}", not(negated))
        }
        Match::IpPortSet { end, name, negated } => {
            let end = short(*end);
            write!(text, "-m set {}--match-set {name} {end},{end}", not(negated))
        }
        Match::Ports { end, ports, negated } => {
            let option = match end {
                End::Source => "--source-ports",
                End::Destination => "--destination-ports",
            };
            let _ = write!(text, "-m multiport {}{option} ", not(negated));
            write_ports(ports, ",", ':', text);
            Ok(())
        }
        Match::DestinationPort(port) => write!(text, "--dport {port}"),
        Match::Icmp { version, icmp_type, code, negated } => {
            let (module, option) = icmp_option(*version);
            let _ = write!(text, "-m {module} {}{option} {icmp_type}", not(negated));
            code.map_or(Ok(()), |code| write!(text, "/{code}"))
        }
        Match::LocalAddress { end, limit_interface_out, negated } => {
            let option = match end {
                End::Source => "--src-type",
                End::Destination => "--dst-type",
            };
            let limit = if *limit_interface_out { " --limit-iface-out" } else { "" };
            write!(text, "-m addrtype {}{option} LOCAL{limit}", not(negated))
        }
        Match::ReversePathFailed => write!(text, "-m rpfilter --invert --validmark"),
        Match::Ipvs { negated } => write!(text, "-m ipvs {}--ipvs", not(negated)),
        Match::Limit { rate, burst: 0 } => write!(text, "-m limit --limit {rate}"),
        Match::Limit { rate, burst } => write!(text, "-m limit --limit {rate} --limit-burst {burst}"),
        // Matches nothing: a mark cannot be clear and set at the same time.
        Match::InterfaceMap { .. } | Match::ArpReply | Match::ArpSource(_) => {
            write!(text, "-m mark --mark 0/0x1 -m mark ! --mark 0/0x1")
        }
    };
}

/// Writes ports and ranges of ports; `comma` separates entries, `to` the ends of a range.
pub(crate) fn write_ports(ports: &[PortRange], comma: &str, to: char, text: &mut String) {
    for (index, PortRange { first, last }) in ports.iter().enumerate() {
        let comma = if index == 0 { "" } else { comma };
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}{to}{last}"),
        };
    }
}

fn conntrack_state(state: Conntrack) -> &'static str {
    match state {
        Conntrack::RelatedOrEstablished => "RELATED,ESTABLISHED",
        Conntrack::Invalid => "INVALID",
        Conntrack::New => "NEW",
        Conntrack::Dnat => "DNAT",
    }
}

/// The match module of this IP version's ICMP, and its option for types.
fn icmp_option(version: IpVersion) -> (&'static str, &'static str) {
    match version {
        IpVersion::V4 => ("icmp", "--icmp-type"),
        IpVersion::V6 => ("icmp6", "--icmpv6-type"),
    }
}

fn interface_option(side: Side) -> &'static str {
    match side {
        Side::In => "--in-interface",
        Side::Out => "--out-interface",
    }
}

fn address_option(end: End) -> &'static str {
    match end {
        End::Source => "--source",
        End::Destination => "--destination",
    }
}

fn short(end: End) -> &'static str {
    match end {
        End::Source => "src",
        End::Destination => "dst",
    }
}

fn write_action(action: &Action, text: &mut String) {
    let random = |random_fully: &bool| if *random_fully { " --random-fully" } else { "" };
    let all_if_zero = |mask: &u32| if *mask == 0 { u32::MAX } else { *mask };
    let _ = match action {
        Action::Accept => write!(text, "--jump ACCEPT"),
        Action::Drop => write!(text, "--jump DROP"),
        Action::Reject(RejectWith::PortUnreachable) => write!(text, "--jump REJECT"),
        Action::Reject(RejectWith::TcpReset) => write!(text, "--jump REJECT --reject-with tcp-reset"),
        Action::Return => write!(text, "--jump RETURN"),
        Action::Jump(chain) => write!(text, "--jump {chain}"),
        Action::Goto(chain) => write!(text, "--goto {chain}"),
        Action::Log { prefix } => write!(text, "--jump LOG --log-prefix \"{prefix}: \" --log-level 5"),
        Action::NfLog { group, prefix, size } => {
            let (option, size) = match size {
                NfLogSize::Size(size) => ("--nflog-size", size),
                NfLogSize::Range(size) => ("--nflog-range", size),
            };
            write!(text, "--jump NFLOG --nflog-group {group} --nflog-prefix {prefix} {option} {size}")
        }
        Action::SetMark(mark) => write!(text, "--jump MARK --set-mark {mark:#x}/{mark:#x}"),
        Action::ClearMark(mark) => write!(text, "--jump MARK --set-mark 0/{mark:#x}"),
        Action::SetMaskedMark { value, mask } => {
            write!(text, "--jump MARK --set-mark {value:#x}/{mask:#x}")
        }
        Action::SetConnectionMark { value, mask } => {
            write!(text, "--jump CONNMARK --set-mark {value:#x}/{:#x}", all_if_zero(mask))
        }
        Action::SaveConnectionMark { mask } => {
            write!(text, "--jump CONNMARK --save-mark --mask {:#x}", all_if_zero(mask))
        }
        Action::RestoreConnectionMark { mask } => {
            write!(text, "--jump CONNMARK --restore-mark --mask {:#x}", all_if_zero(mask))
        }
        Action::Masquerade { ports: Some((first, last)), random_fully } => {
            write!(text, "--jump MASQUERADE --to-ports {first}-{last}{}", random(random_fully))
        }
        Action::Masquerade { ports: None, random_fully } => {
            write!(text, "--jump MASQUERADE{}", random(random_fully))
        }
        Action::Snat { address, ports, random_fully } => {
            let ports = ports.map(|(first, last)| format!("{first}-{last}"));
            let to = address_and_port(*address, ports.as_deref());
            write!(text, "--jump SNAT --to-source {to}{}", random(random_fully))
        }
        Action::Dnat { address, port } => {
            let to = address_and_port(*address, port.map(|port| port.to_string()).as_deref());
            write!(text, "--jump DNAT --to-destination {to}")
        }
        Action::NoTrack => write!(text, "--jump NOTRACK"),
        Action::LimitPacketRate { rate, burst, mark } => write!(
            text,
            "-m limit --limit {rate}/sec --limit-burst {burst} --jump MARK --set-mark {mark:#x}/{mark:#x}"
        ),
        Action::LimitConnections { count } => write!(
            text,
            "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m connlimit --connlimit-above {count} \
             --connlimit-mask 0 -j REJECT --reject-with tcp-reset"
        ),
        Action::SetDscp(value) => write!(text, "--jump DSCP --set-dscp {value}"),
        // Without the fast path, packets take the ordinary one.
        Action::FlowOffload => Ok(()),
    };
}

/// An address, with ports if there are any; then IPv6 is in brackets.
pub(crate) fn address_and_port(address: IpAddr, ports: Option<&str>) -> String {
    match (address, ports) {
        (address, None) => address.to_string(),
        (IpAddr::V4(address), Some(ports)) => format!("{address}:{ports}"),
        (IpAddr::V6(address), Some(ports)) => format!("[{address}]:{ports}"),
    }
}
