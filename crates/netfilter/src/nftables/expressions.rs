//! Converts rules of the tree to the kernel's expressions, with the registers that `nft` would choose.
//!
//! The order of the conditions is not that of the text: the cheapest ones come first ([`order`]). For `nft`, and by its
//! comment, the rule remains the one that the text describes.
//!
//! Everything in the tree has expressions; a condition that no packet can match becomes expressions that match nothing.
//! One text means something else to `nft` than to its readers: it takes `ct status != dnat` for "no bit but this one",
//! which holds for almost every packet. Here only that bit is tested.

mod order;

use netlink::netfilter::nft::{
    AnonymousSet, CompareOperator, ConntrackKey, Data, Expression, FibResult, Key, KeyType, MetaKey, NatKind,
    PayloadBase, Register, RejectKind, Verdict, fib_flags, nat_flags,
};
use rules::nftables::{Family, TABLE_NAME, chain_name, set_name};
use rules::tree::{
    Action, Conntrack, End, InterfacePattern, IpVersion, Match, NfLogSize, PortRange, Protocol, RejectWith,
    Rule, Side, Table,
};
use std::net::IpAddr;
use std::sync::Arc;

/// The type of this host's own addresses, in routing tables.
const ADDRESS_LOCAL: u32 = 2;
/// The syslog level "info".
const LEVEL_INFO: u32 = 6;
/// The burst of a rate that does not specify one.
const DEFAULT_BURST: u32 = 5;
/// The longest prefix of a line in the kernel's log.
const MAX_LOG_PREFIX: usize = 127;
/// The longest interface name.
const MAX_INTERFACE: usize = 15;
const TCP: u8 = 6;
/// Up to this many port ranges are compared one by one; a lookup in a separate set costs a packet as much as these.
const MAX_RANGES_WITHOUT_SET: usize = 6;

/// The expressions of a rule.
#[must_use]
pub fn expressions(layer: Table, family: Family, rule: &Rule) -> Vec<Expression> {
    let mut builder = Builder { layer, family, out: Vec::with_capacity(2 * rule.matches.len() + 4) };
    if matches!(rule.action, Some(Action::LimitConnections { .. })) && !rule.matches.iter().any(is_tcp) {
        builder.protocol(TCP, CompareOperator::Equal);
    }
    for one in order::cheapest_first(family, &rule.matches) {
        builder.condition(one);
    }
    if let Some(action) = &rule.action {
        builder.out.push(Expression::Counter);
        builder.action(action);
    }
    if builder.out.is_empty() {
        builder.out.push(Expression::Verdict(Verdict::Continue));
    }
    builder.out
}

fn is_tcp(one: &Match) -> bool {
    matches!(one, Match::Protocol { protocol, negated: false } if protocol.number() == TCP)
}

/// The name of a set as expressions need it.
fn set(name: &str) -> Arc<str> {
    set_name(name).into()
}

/// Equal, or not equal.
fn equal(negated: bool) -> CompareOperator {
    if negated { CompareOperator::NotEqual } else { CompareOperator::Equal }
}

struct Builder {
    layer: Table,
    family: Family,
    out: Vec<Expression>,
}

impl Builder {
    fn is_v6(&self) -> bool {
        self.family == Family::Ip6
    }

    fn meta(&mut self, key: MetaKey) {
        self.out.push(Expression::Meta { key, register: Register::FIRST });
    }

    fn compare(&mut self, operator: CompareOperator, data: Data) {
        self.out.push(Expression::Compare { register: Register::FIRST, operator, data });
    }

    fn bitwise(&mut self, mask: Data, xor: Data) {
        self.out.push(Expression::Bitwise { register: Register::FIRST, mask, xor });
    }

    fn bits(&mut self, mask: u32, xor: u32) {
        self.bitwise(Data::host_u32(mask), Data::host_u32(xor));
    }

    fn payload(&mut self, base: PayloadBase, offset: u32, length: u32, register: Register) {
        self.out.push(Expression::Payload { base, offset, length, register });
    }

    fn load(&mut self, bytes: &[u8], register: Register) {
        self.out.push(Expression::Load { data: Data::new(bytes), register });
    }

    fn protocol(&mut self, number: u8, operator: CompareOperator) {
        self.meta(MetaKey::TransportProtocol);
        self.compare(operator, Data::new(&[number]));
    }

    /// Matches nothing: a bit of the mark that is masked out cannot be set.
    fn never(&mut self) {
        self.meta(MetaKey::Mark);
        self.bits(0, 0);
        self.compare(CompareOperator::NotEqual, Data::host_u32(0));
    }

    /// The offset and length of an address in the network header.
    fn address_place(&self, end: End) -> (u32, u32) {
        match (self.is_v6(), end) {
            (false, End::Source) => (12, 4),
            (false, End::Destination) => (16, 4),
            (true, End::Source) => (8, 16),
            (true, End::Destination) => (24, 16),
        }
    }

    fn address(&mut self, end: End, address: IpAddr, prefix: u8, negated: bool) {
        if address.is_ipv6() != self.is_v6() {
            // No packet of this family has an address of the other one.
            if !negated {
                self.never();
            }
            return;
        }
        let (offset, length) = self.address_place(end);
        let bytes = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let whole = u32::from(prefix) / 8;
        // Loading three bytes is slow in the kernel; a whole word and a mask are several times cheaper.
        let is_word = whole == 3 && length == 4;
        if prefix > 0 && prefix.is_multiple_of(8) && !is_word {
            self.payload(PayloadBase::Network, offset, whole, Register::FIRST);
            let kept = usize::try_from(whole).unwrap_or(bytes.len()).min(bytes.len());
            self.compare(equal(negated), Data::new(&bytes[..kept]));
            return;
        }
        let mask: Vec<u8> = (0_u32..)
            .zip(&bytes)
            .map(|(index, _)| {
                let bits = u32::from(prefix).saturating_sub(8 * index).min(8);
                u8::try_from(0xff00_u32 >> bits & 0xff).unwrap_or(0)
            })
            .collect();
        let masked: Vec<u8> = bytes.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
        self.payload(PayloadBase::Network, offset, length, Register::FIRST);
        self.bitwise(Data::new(&mask), Data::new(&vec![0; mask.len()]));
        self.compare(equal(negated), Data::new(&masked));
    }

    fn interface(&mut self, side: Side, pattern: &InterfacePattern) {
        let InterfacePattern { name, is_prefix } = pattern;
        if *is_prefix && name.is_empty() {
            return;
        }
        if name.is_empty() || name.len() > MAX_INTERFACE {
            return self.never();
        }
        self.meta(interface_key(side));
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        let compared = if *is_prefix { &bytes[..name.len()] } else { &bytes };
        self.compare(CompareOperator::Equal, Data::new(compared));
    }

    fn ports(&mut self, end: End, ports: &[PortRange], negated: bool) {
        let ranges = disjoint(ports);
        let offset = port_offset(end);
        match ranges.as_slice() {
            [] if negated => {}
            [] => self.never(),
            few if few.len() <= MAX_RANGES_WITHOUT_SET => {
                self.payload(PayloadBase::Transport, offset, 2, Register::FIRST);
                self.few_ranges(few, negated);
            }
            several => {
                self.payload(PayloadBase::Transport, offset, 2, Register::FIRST);
                let ranges =
                    several.iter().map(|(first, last)| (Key::port(*first), Key::port(*last))).collect();
                let set = AnonymousSet { key: KeyType::Port, ranges };
                self.out.push(Expression::LookupAnonymous { set, register: Register::FIRST, negated });
            }
        }
    }

    /// Matches if the loaded port is in this range. A single port is compared in place, which costs almost nothing.
    fn one_range(&mut self, (first, last): (u16, u16), negated: bool) {
        let (from, to) = (Data::new(&first.to_be_bytes()), Data::new(&last.to_be_bytes()));
        if first == last {
            self.compare(equal(negated), from);
        } else {
            self.out.push(Expression::Range { register: Register::FIRST, negated, from, to });
        }
    }

    /// Matches if the loaded port is in one of these sorted, disjoint ranges: it is between the first and the last of
    /// them and in none of the gaps. A set would need fewer expressions, but to find a set the kernel goes through all
    /// sets of a table, several times for each set that a rule brings along.
    fn few_ranges(&mut self, ranges: &[(u16, u16)], negated: bool) {
        if negated {
            return ranges.iter().for_each(|range| self.one_range(*range, true));
        }
        let (Some((first, _)), Some((_, last))) = (ranges.first(), ranges.last()) else { return };
        self.one_range((*first, *last), false);
        for pair in ranges.windows(2) {
            let gap = (pair[0].1.saturating_add(1), pair[1].0.saturating_sub(1));
            // Adjacent ranges have no gap.
            if gap.0 <= gap.1 {
                self.one_range(gap, true);
            }
        }
    }

    /// Matches type and code, the message's first two bytes.
    fn icmp(&mut self, version: IpVersion, icmp_type: u8, code: Option<u8>, negated: bool) {
        match code {
            None => {
                self.payload(PayloadBase::Transport, 0, 1, Register::FIRST);
                self.compare(equal(negated), Data::new(&[icmp_type]));
            }
            Some(code) if !negated => {
                self.payload(PayloadBase::Transport, 0, 2, Register::FIRST);
                self.compare(CompareOperator::Equal, Data::new(&[icmp_type, code]));
            }
            // "Not both" as one lookup in a set of pairs: `nft` would show a comparison of two bytes as two conditions.
            Some(code) => {
                self.payload(PayloadBase::Transport, 0, 1, Register::FIRST);
                self.payload(PayloadBase::Transport, 1, 1, Register(9));
                let key = match version {
                    IpVersion::V4 => KeyType::IcmpTypeCode,
                    IpVersion::V6 => KeyType::Icmpv6TypeCode,
                };
                let pair = Key::icmp(icmp_type, code);
                let set = AnonymousSet { key, ranges: vec![(pair, pair)] };
                self.out.push(Expression::LookupAnonymous { set, register: Register::FIRST, negated });
            }
        }
    }

    fn conntrack(&mut self, state: Conntrack, negated: bool) {
        let (key, bits) = match state {
            Conntrack::RelatedOrEstablished => {
                (ConntrackKey::State, ConntrackKey::STATE_RELATED | ConntrackKey::STATE_ESTABLISHED)
            }
            Conntrack::Invalid => (ConntrackKey::State, ConntrackKey::STATE_INVALID),
            Conntrack::New => (ConntrackKey::State, ConntrackKey::STATE_NEW),
            Conntrack::Dnat => (ConntrackKey::Status, ConntrackKey::STATUS_DNAT),
        };
        self.out.push(Expression::Conntrack { key, register: Register::FIRST });
        self.bits(bits, 0);
        self.compare(equal(!negated), Data::host_u32(0));
    }

    fn fib(&mut self, flags: u32, result: FibResult) {
        self.out.push(Expression::Fib { flags, result, register: Register::FIRST });
    }

    fn condition(&mut self, one: &Match) {
        match one {
            Match::Protocol { protocol, negated } => {
                self.protocol(Protocol::number(*protocol), equal(*negated));
            }
            Match::Interface { side, pattern } => self.interface(*side, pattern),
            Match::InterfaceMap { side, map } => {
                self.meta(interface_key(*side));
                let map = set(&chain_name(self.layer, map));
                self.out.push(Expression::LookupVerdict { map, register: Register::FIRST });
            }
            Match::Mark { value, mask, negated } => {
                self.meta(MetaKey::Mark);
                self.bits(*mask, 0);
                self.compare(equal(*negated), Data::host_u32(*value));
            }
            Match::Conntrack { state, negated } => self.conntrack(*state, *negated),
            Match::Net { end, net, negated } => self.address(*end, net.network(), net.prefix_len(), *negated),
            Match::Address { end, address } => {
                let prefix = if address.is_ipv4() { 32 } else { 128 };
                self.address(*end, *address, prefix, false);
            }
            Match::IpSet { end, name, negated } => {
                let (offset, length) = self.address_place(*end);
                self.payload(PayloadBase::Network, offset, length, Register::FIRST);
                let lookup =
                    Expression::Lookup { set: set(name), register: Register::FIRST, negated: *negated };
                self.out.push(lookup);
            }
            Match::IpPortSet { end, name, negated } => {
                let (offset, length) = self.address_place(*end);
                // The parts of the key are consecutive, each in whole words of the register file.
                let (protocol, port) =
                    if self.is_v6() { (Register(2), Register(13)) } else { (Register(9), Register(10)) };
                self.payload(PayloadBase::Network, offset, length, Register::FIRST);
                self.out.push(Expression::Meta { key: MetaKey::TransportProtocol, register: protocol });
                self.payload(PayloadBase::Transport, port_offset(*end), 2, port);
                let lookup =
                    Expression::Lookup { set: set(name), register: Register::FIRST, negated: *negated };
                self.out.push(lookup);
            }
            Match::Ports { end, ports, negated } => self.ports(*end, ports, *negated),
            Match::DestinationPort(port) => {
                let only = PortRange { first: *port, last: *port };
                self.ports(End::Destination, &[only], false);
            }
            Match::Icmp { version, icmp_type, code, negated } => {
                self.icmp(*version, *icmp_type, *code, *negated);
            }
            Match::LocalAddress { end, limit_interface_out, negated } => {
                let mut flags = match end {
                    End::Source => fib_flags::SOURCE,
                    End::Destination => fib_flags::DESTINATION,
                };
                if *limit_interface_out {
                    flags |= fib_flags::INTERFACE_OUT;
                }
                self.fib(flags, FibResult::AddressType);
                self.compare(equal(*negated), Data::host_u32(ADDRESS_LOCAL));
            }
            Match::ReversePathFailed => {
                self.fib(fib_flags::SOURCE | fib_flags::MARK | fib_flags::INTERFACE_IN, FibResult::Interface);
                self.compare(CompareOperator::Equal, Data::host_u32(0));
            }
            Match::Ipvs { .. } => self.never(),
            Match::Limit { rate, burst } => {
                let burst = if *burst == 0 { DEFAULT_BURST } else { u32::from(*burst) };
                let (rate, seconds) = (u64::from(rate.count), rate.unit.seconds());
                self.out.push(Expression::Limit { rate, seconds, burst, over: false });
            }
            Match::ArpReply => {
                self.payload(PayloadBase::Network, 6, 2, Register::FIRST);
                self.compare(CompareOperator::Equal, Data::new(&[0, 2]));
            }
            Match::ArpSource(address) => {
                self.payload(PayloadBase::Network, 14, 4, Register::FIRST);
                self.compare(CompareOperator::Equal, Data::new(&address.octets()));
            }
        }
    }

    fn set_mark(&mut self, mask: u32, value: u32) {
        self.meta(MetaKey::Mark);
        self.bits(!mask, value);
        self.out.push(Expression::SetMark(Register::FIRST));
    }

    fn verdict(&mut self, verdict: Verdict) {
        self.out.push(Expression::Verdict(verdict));
    }

    fn connection_mark(&mut self) {
        self.out.push(Expression::Conntrack { key: ConntrackKey::Mark, register: Register::FIRST });
    }

    fn nat(&mut self, kind: NatKind, address: IpAddr, ports: Option<(u16, u16)>, random_fully: bool) {
        match address {
            IpAddr::V4(address) => self.load(&address.octets(), Register::FIRST),
            IpAddr::V6(address) => self.load(&address.octets(), Register::FIRST),
        }
        let mut flags = if random_fully { nat_flags::RANDOM_FULLY } else { 0 };
        let (mut port, mut port_last) = (None, None);
        if let Some((first, last)) = ports {
            flags |= nat_flags::PORTS;
            self.load(&first.to_be_bytes(), Register::SECOND);
            port = Some(Register::SECOND);
            if first != last {
                self.load(&last.to_be_bytes(), Register(3));
                port_last = Some(Register(3));
            }
        }
        let family = if address.is_ipv4() { 2 } else { 10 };
        self.out.push(Expression::Nat { kind, family, address: Register::FIRST, port, port_last, flags });
    }

    fn action(&mut self, action: &Action) {
        match action {
            Action::Accept => self.verdict(Verdict::Accept),
            Action::Drop => self.verdict(Verdict::Drop),
            Action::Return => self.verdict(Verdict::Return),
            Action::Jump(chain) => self.verdict(Verdict::Jump(chain_name(self.layer, chain).into())),
            Action::Goto(chain) => self.verdict(Verdict::Goto(chain_name(self.layer, chain).into())),
            Action::Reject(RejectWith::PortUnreachable) => {
                let code = if self.is_v6() { 4 } else { 3 };
                self.out.push(Expression::Reject(RejectKind::Unreachable(code)));
            }
            Action::Reject(RejectWith::TcpReset) => self.out.push(Expression::Reject(RejectKind::TcpReset)),
            Action::Log { prefix } => {
                let prefix = cut(&format!("{prefix}: "));
                self.out.push(Expression::Log { prefix, level: LEVEL_INFO });
            }
            Action::NfLog { group, prefix, size: NfLogSize::Size(length) | NfLogSize::Range(length) } => {
                self.out.push(Expression::NfLog { group: *group, prefix: cut(prefix), length: *length });
            }
            Action::SetMark(mark) => self.set_mark(*mark, *mark),
            Action::ClearMark(mark) => self.set_mark(*mark, 0),
            Action::SetMaskedMark { value, mask } => self.set_mark(*mask, *value),
            Action::SetConnectionMark { value, mask: 0 } => {
                self.load(&value.to_ne_bytes(), Register::FIRST);
                self.out.push(Expression::SetConnectionMark(Register::FIRST));
            }
            Action::SetConnectionMark { value, mask } => {
                self.connection_mark();
                self.bits(!mask, *value);
                self.out.push(Expression::SetConnectionMark(Register::FIRST));
            }
            Action::SaveConnectionMark { mask } => {
                self.meta(MetaKey::Mark);
                if *mask != 0 {
                    self.bits(*mask, 0);
                }
                self.out.push(Expression::SetConnectionMark(Register::FIRST));
            }
            Action::RestoreConnectionMark { mask } => {
                self.connection_mark();
                if *mask != 0 {
                    self.bits(*mask, 0);
                }
                self.out.push(Expression::SetMark(Register::FIRST));
            }
            Action::Masquerade { ports, random_fully } => {
                let mut flags = if *random_fully { nat_flags::RANDOM_FULLY } else { 0 };
                let mut registers = None;
                if let Some((first, last)) = ports {
                    flags |= nat_flags::PORTS;
                    self.load(&first.to_be_bytes(), Register::FIRST);
                    self.load(&last.to_be_bytes(), Register::SECOND);
                    registers = Some((Register::FIRST, Register::SECOND));
                }
                self.out.push(Expression::Masquerade { ports: registers, flags });
            }
            Action::Snat { address, ports, random_fully } => {
                self.nat(NatKind::Source, *address, *ports, *random_fully);
            }
            Action::Dnat { address, port } => {
                self.nat(NatKind::Destination, *address, port.map(|port| (port, port)), false);
            }
            Action::NoTrack => self.out.push(Expression::NoTrack),
            Action::LimitPacketRate { rate, burst, mark: _ } => {
                let (rate, burst) = (u64::from(*rate), *burst);
                self.out.push(Expression::Limit { rate, seconds: 1, burst, over: true });
                self.verdict(Verdict::Drop);
            }
            Action::LimitConnections { count } => {
                self.out.push(Expression::ConnectionsOver(*count));
                self.out.push(Expression::Reject(RejectKind::TcpReset));
            }
            Action::SetDscp(value) => self.set_dscp(*value),
            Action::FlowOffload => self.out.push(Expression::FlowOffload(TABLE_NAME.into())),
        }
    }

    /// The field spans the first two bytes of either header; their other bits are kept.
    fn set_dscp(&mut self, value: u8) {
        let value = u16::from(value & 0x3f);
        let (bits, shift) = if self.is_v6() { (0x0fc0_u16, 6) } else { (0x00fc, 2) };
        self.payload(PayloadBase::Network, 0, 2, Register::FIRST);
        self.bitwise(Data::new(&(!bits).to_be_bytes()), Data::new(&(value << shift).to_be_bytes()));
        let checksum = (!self.is_v6()).then_some(10);
        self.out.push(Expression::WriteNetwork { offset: 0, length: 2, register: Register::FIRST, checksum });
    }
}

fn interface_key(side: Side) -> MetaKey {
    match side {
        Side::In => MetaKey::InterfaceInName,
        Side::Out => MetaKey::InterfaceOutName,
    }
}

fn port_offset(end: End) -> u32 {
    match end {
        End::Source => 0,
        End::Destination => 2,
    }
}

/// The ranges in order, with overlapping or adjacent ones merged: a set holds no overlapping ranges.
fn disjoint(ports: &[PortRange]) -> Vec<(u16, u16)> {
    let mut sorted: Vec<(u16, u16)> = ports
        .iter()
        .filter(|range| range.first <= range.last)
        .map(|range| (range.first, range.last))
        .collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::with_capacity(sorted.len());
    for (first, last) in sorted {
        match merged.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

fn cut(text: &str) -> Arc<str> {
    let end = (0..=text.len().min(MAX_LOG_PREFIX)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text[..end].into()
}

#[cfg(test)]
mod tests;
