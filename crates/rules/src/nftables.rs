//! Rules as nftables' text. Nothing is programmed through this text, because the driver uses netlink. But Calico
//! computes the hashes of rules from it, and `nft` shows it, so it is Calico's letter for letter.
//!
//! Where `nft` rejects Calico's text, ours differs: for an ICMP type with a code. (The negation is rendered as rules
//! that do not need it.) What nftables cannot do ([`Match::Ipvs`]) is never rendered for it. Should such a rule arrive
//! here anyway, it becomes one that matches nothing.

use crate::hash::{self, APPENDS_SUFFIX, COMMENT_PREFIX, RuleHash};
use crate::iptables::{address_and_port, escaped, write_ports};
use crate::tree::{
    Action, Conntrack, End, InterfacePattern, IpVersion, Match, NfLogSize, Protocol, RejectWith, Rule, Side,
    Table,
};
use std::fmt::Write as _;

/// The longest name of a chain, without the table's name before it. The kernel allows 255 bytes, and the longest
/// table's name takes seven of them, including its dash.
pub const MAX_CHAIN_NAME: usize = 248;

/// The name of our table, and of our flow table.
pub const TABLE_NAME: &str = "calico";

/// The name of our table in the ARP family.
pub const ARP_TABLE_NAME: &str = "calico-arp";

/// The longest comment.
const MAX_COMMENT: usize = 128;

/// The families in which we have a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4
    Ip,
    /// IPv6
    Ip6,
    /// ARP
    Arp,
}

impl Family {
    /// The name in `nft`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Arp => "arp",
        }
    }

    /// The name of our table in this family.
    #[must_use]
    pub const fn table(self) -> &'static str {
        match self {
            Self::Ip | Self::Ip6 => TABLE_NAME,
            Self::Arp => ARP_TABLE_NAME,
        }
    }
}

impl From<IpVersion> for Family {
    fn from(version: IpVersion) -> Self {
        match version {
            IpVersion::V4 => Self::Ip,
            IpVersion::V6 => Self::Ip6,
        }
    }
}

/// The name of a chain or map in the one table that all layers share.
#[must_use]
pub fn chain_name(layer: Table, name: &str) -> String {
    if name.starts_with(layer.as_str()) { name.to_owned() } else { format!("{layer}-{name}") }
}

/// The name of a set: nftables does not allow colons.
#[must_use]
pub fn set_name(name: &str) -> String {
    name.replace(':', "-")
}

/// The hashes of a chain's rules. `chain` is the short name or, for inserted rules, that of one of the kernel's chains.
#[must_use]
pub fn hashes(layer: Table, family: Family, chain: &str, rules: &[Rule]) -> Vec<RuleHash> {
    hash::chained(&chain_name(layer, chain), rules, |rule, text| write_rule(layer, family, rule, text))
}

/// The hashes of rules that are appended to one of the kernel's chains.
#[must_use]
pub fn appended_hashes(layer: Table, family: Family, kernel_chain: &str, rules: &[Rule]) -> Vec<RuleHash> {
    hashes(layer, family, &format!("{kernel_chain}{APPENDS_SUFFIX}"), rules)
}

/// A rule without its comment.
#[must_use]
pub fn rule_text(layer: Table, family: Family, rule: &Rule) -> String {
    let mut text = String::new();
    write_rule(layer, family, rule, &mut text);
    text
}

/// A rule's comment: the hash, then its notes.
#[must_use]
pub fn comment(rule: &Rule, hash: RuleHash) -> String {
    let mut text = format!("{COMMENT_PREFIX}{hash};");
    if !rule.comments.is_empty() {
        let room = MAX_COMMENT.saturating_sub(text.len()) / rule.comments.len();
        for comment in &rule.comments {
            text.push(' ');
            text.extend(escaped(comment).take(room));
        }
        // It is all ASCII, so it can be cut anywhere.
        text.truncate(MAX_COMMENT);
    }
    text
}

fn write_rule(layer: Table, family: Family, rule: &Rule, text: &mut String) {
    let mut protocol = None;
    for one in &rule.matches {
        if !text.is_empty() {
            text.push(' ');
        }
        if let Match::Protocol { protocol: matched, negated: false } = one {
            protocol = Some(*matched);
        }
        write_match(layer, family, protocol, one, text);
    }
    if let Some(action) = &rule.action {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str("counter ");
        write_action(layer, family, action, text);
    }
    if text.is_empty() {
        text.push_str("continue");
    }
}

fn write_match(layer: Table, family: Family, protocol: Option<Protocol>, one: &Match, text: &mut String) {
    let not = |negated: &bool| if *negated { "!= " } else { "" };
    let equals = |negated: &bool| if *negated { "!=" } else { "==" };
    let ip = family.as_str();
    // `th` reads the same bytes of a packet for all protocols with ports.
    let transport = protocol.and_then(Protocol::transport).unwrap_or("th");
    let _ = match one {
        Match::Protocol { protocol, negated } => write!(text, "meta l4proto {}{protocol}", not(negated)),
        Match::Interface { side, pattern: InterfacePattern { name, is_prefix } } => {
            write!(text, "{} {name}{}", interface(*side), if *is_prefix { "*" } else { "" })
        }
        Match::InterfaceMap { side, map } => {
            let map = set_name(&chain_name(layer, map));
            write!(text, "{} vmap @{map}", interface(*side))
        }
        Match::Mark { value: 0, mask, negated } => {
            write!(text, "meta mark & {mask:#x} {} 0", equals(negated))
        }
        Match::Mark { value, mask, negated } => {
            write!(text, "meta mark & {mask:#x} {} {value:#x}", equals(negated))
        }
        Match::Conntrack { state, negated } => {
            let (what, state) = conntrack_field(*state);
            write!(text, "ct {what} {}{state}", not(negated))
        }
        Match::Net { end, net, negated } => write!(text, "{ip} {} {}{net}", address(*end), not(negated)),
        Match::Address { end, address: one } => write!(text, "{ip} {} {one}", address(*end)),
        Match::IpSet { end, name, negated } => {
            write!(text, "{ip} {} {}@{}", address(*end), not(negated), set_name(name))
        }
        Match::IpPortSet { end, name, negated } => write!(
            text,
            "{ip} {} . meta l4proto . th {} {}@{}",
            address(*end),
            port(*end),
            not(negated),
            set_name(name)
        ),
        Match::Ports { end, ports, negated } => {
            let _ = write!(text, "{transport} {} {}{{ ", port(*end), not(negated));
            write_ports(ports, ", ", '-', text);
            write!(text, " }}")
        }
        Match::DestinationPort(port) => write!(text, "{transport} dport {port}"),
        Match::Icmp { version, icmp_type, code, negated } => {
            write_icmp(*version, *icmp_type, *code, *negated, text)
        }
        Match::LocalAddress { end, limit_interface_out, negated } => {
            let limit = if *limit_interface_out { " . oif" } else { "" };
            write!(text, "fib {}{limit} type {}local", address(*end), not(negated))
        }
        Match::ReversePathFailed => write!(text, "fib saddr . mark . iif oif 0"),
        Match::Limit { rate, burst: 0 } => write!(text, "limit rate {rate}"),
        Match::Limit { rate, burst } => write!(text, "limit rate {rate} burst {burst} packets"),
        Match::ArpReply => write!(text, "arp operation reply"),
        Match::ArpSource(address) => write!(text, "arp saddr ip {address}"),
        // Matches nothing: a mark cannot be clear and set at the same time.
        Match::Ipvs { .. } => write!(text, "meta mark & 0x1 == 0 meta mark & 0x1 != 0"),
    };
}

fn write_icmp(
    version: IpVersion,
    icmp_type: u8,
    code: Option<u8>,
    negated: bool,
    text: &mut String,
) -> std::fmt::Result {
    let icmp = match version {
        IpVersion::V4 => "icmp",
        IpVersion::V6 => "icmpv6",
    };
    match (code, negated) {
        (None, false) => write!(text, "{icmp} type {icmp_type}"),
        (None, true) => write!(text, "{icmp} type != {icmp_type}"),
        (Some(code), false) => write!(text, "{icmp} type {icmp_type} {icmp} code {code}"),
        (Some(code), true) => write!(text, "{icmp} type . {icmp} code != {{ {icmp_type} . {code} }}"),
    }
}

/// The field of a connection and its required value.
fn conntrack_field(state: Conntrack) -> (&'static str, &'static str) {
    match state {
        Conntrack::RelatedOrEstablished => ("state", "related,established"),
        Conntrack::Invalid => ("state", "invalid"),
        Conntrack::New => ("state", "new"),
        Conntrack::Dnat => ("status", "dnat"),
    }
}

fn interface(side: Side) -> &'static str {
    match side {
        Side::In => "iifname",
        Side::Out => "oifname",
    }
}

fn address(end: End) -> &'static str {
    match end {
        End::Source => "saddr",
        End::Destination => "daddr",
    }
}

fn port(end: End) -> &'static str {
    match end {
        End::Source => "sport",
        End::Destination => "dport",
    }
}

fn write_action(layer: Table, family: Family, action: &Action, text: &mut String) {
    let random = |random_fully: &bool| if *random_fully { " fully-random" } else { "" };
    let _ = match action {
        Action::Accept => write!(text, "accept"),
        Action::Drop => write!(text, "drop"),
        Action::Reject(RejectWith::PortUnreachable) => write!(text, "reject"),
        Action::Reject(RejectWith::TcpReset) => write!(text, "reject with tcp reset"),
        Action::Return => write!(text, "return"),
        Action::Jump(chain) => write!(text, "jump {}", chain_name(layer, chain)),
        Action::Goto(chain) => write!(text, "goto {}", chain_name(layer, chain)),
        Action::Log { prefix } => write!(text, "log prefix \"{prefix}: \" level info"),
        Action::NfLog { group, prefix, size: NfLogSize::Size(size) | NfLogSize::Range(size) } => {
            write!(text, "log prefix \"{prefix}\" snaplen {size} group {group}")
        }
        Action::SetMark(mark) => write!(text, "meta mark set mark or {mark:#x}"),
        Action::ClearMark(mark) => write!(text, "meta mark set mark & {:#x}", !mark),
        Action::SetMaskedMark { value, mask } => {
            write!(text, "meta mark set mark & {:#x} ^ {value:#x}", !mask)
        }
        Action::SetConnectionMark { value, mask: 0 } => write!(text, "ct mark set {value:#x}"),
        Action::SetConnectionMark { value, mask } => {
            write!(text, "ct mark set ct mark & {:#x} ^ {value:#x}", !mask)
        }
        Action::SaveConnectionMark { mask: 0 } => write!(text, "ct mark set mark"),
        Action::SaveConnectionMark { mask } => write!(text, "ct mark set mark & {mask:#x}"),
        Action::RestoreConnectionMark { mask: 0 } => write!(text, "meta mark set ct mark"),
        Action::RestoreConnectionMark { mask } => write!(text, "meta mark set ct mark & {mask:#x}"),
        Action::Masquerade { ports: Some((first, last)), random_fully } => {
            write!(text, "masquerade to :{first}-{last}{}", random(random_fully))
        }
        Action::Masquerade { ports: None, random_fully } => {
            write!(text, "masquerade{}", random(random_fully))
        }
        Action::Snat { address, ports, random_fully } => {
            let ports = ports.map(|(first, last)| format!("{first}-{last}"));
            let to = address_and_port(*address, ports.as_deref());
            write!(text, "snat to {to}{}", random(random_fully))
        }
        Action::Dnat { address, port } => {
            let to = address_and_port(*address, port.map(|port| port.to_string()).as_deref());
            write!(text, "dnat to {to}")
        }
        Action::NoTrack => write!(text, "notrack"),
        Action::LimitPacketRate { rate, burst, .. } => {
            write!(text, "limit rate over {rate}/second burst {burst} packets drop")
        }
        Action::LimitConnections { count } => write!(text, "ct count over {count} reject with tcp reset"),
        Action::SetDscp(value) => write!(text, "{} dscp set {value}", family.as_str()),
        Action::FlowOffload => write!(text, "flow offload @{TABLE_NAME}"),
    };
}
