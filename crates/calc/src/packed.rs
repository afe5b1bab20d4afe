//! Rules as runs of bytes. All policies and profiles of the cluster are kept, but only few of them concern this host. A
//! rule is a large struct of mostly empty lists; packed, it is a few dozen bytes.
//!
//! A run begins with the sets that its rules name, so that they can be found without reading the rules; rules refer to
//! sets by place. A text that occurred before in the same run, or that the reader knows anyway (the policy's selector,
//! its namespace), is written as its number. Equal rules with equal known texts give equal bytes, so comparing bytes
//! shows whether anything changed. Only what reaches the dataplane is kept.

use crate::bytes::{Reader, put_bytes, put_net, put_number};
use crate::population::PortProtocol;
use crate::rules::{EndSets, SetList, SetSpec};
use api::{HTTPMatch, HTTPPath};
use ipnet::IpNet;
use messages::{IcmpMatch, IpSetId, OriginalEnd, PortRange, Rule, RuleEnd};
use model::IpVersion;
use model::feed::{self, Port, Protocol, RuleAction, TextMap};
use selector::Selector;

/// Enough for the rules of most policies.
const ROOM: usize = 256;

/// Packs some texts, and the rules of both directions. `known` are the texts that the reader will know.
pub(crate) fn pack(
    known: &[&str],
    texts: &[&str],
    inbound: &[feed::Rule],
    outbound: &[feed::Rule],
) -> Box<[u8]> {
    let mut list = SetList::default();
    let mut ends: Vec<[EndSets; 2]> = Vec::with_capacity(inbound.len() + outbound.len());
    for rule in inbound.iter().chain(outbound) {
        let protocol = rule.protocol.map_or(PortProtocol::Any, PortProtocol::of);
        ends.push([
            list.add_end(&rule.source, protocol, false),
            list.add_end(&rule.destination, protocol, true),
        ]);
    }
    let specs = list.into_specs();
    let mut writer =
        Writer { out: Vec::with_capacity(ROOM), texts: Vec::with_capacity(known.len() + specs.len()) };
    writer.texts.extend_from_slice(known);
    writer.list(&specs, Writer::set);
    writer.list(texts, |writer, text| writer.text(text));
    let (of_inbound, of_outbound) = ends.split_at(inbound.len());
    for (rules, ends) in [(inbound, of_inbound), (outbound, of_outbound)] {
        writer.number(rules.len() as u64);
        for (rule, ends) in rules.iter().zip(ends) {
            writer.rule(rule, ends);
        }
    }
    writer.out.into_boxed_slice()
}

/// Returns the sets that packed rules name. `known` must be the same as for [`pack`], so nothing is ever missing.
pub(crate) fn sets(known: &[&str], packed: &[u8]) -> Vec<SetSpec> {
    TextReader::new(known, packed).sets().unwrap_or_default()
}

/// Unpacked texts, and rules in the form for the dataplane, without ids.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Unpacked {
    pub(crate) texts: Vec<String>,
    pub(crate) inbound: Vec<Rule>,
    pub(crate) outbound: Vec<Rule>,
}

/// Unpacks what [`pack`] packed, with the same `known`. `names` are those of the sets, in the order of [`sets`].
pub(crate) fn unpack(known: &[&str], packed: &[u8], names: &[IpSetId]) -> Unpacked {
    TextReader::new(known, packed).all(names).unwrap_or_default()
}

mod rule_bits {
    pub(super) const IP_VERSION: u64 = 1 << 2;
    pub(super) const PROTOCOL: u64 = 1 << 3;
    pub(super) const NOT_PROTOCOL: u64 = 1 << 4;
    pub(super) const ICMP: u64 = 1 << 5;
    pub(super) const NOT_ICMP: u64 = 1 << 6;
    pub(super) const SOURCE: u64 = 1 << 7;
    pub(super) const DESTINATION: u64 = 1 << 8;
    pub(super) const HTTP: u64 = 1 << 9;
    pub(super) const ANNOTATIONS: u64 = 1 << 10;
    pub(super) const IPV6: u64 = 1 << 11;
}

mod end_bits {
    pub(super) const NETS: u64 = 1;
    pub(super) const NOT_NETS: u64 = 1 << 1;
    pub(super) const ADDRESSES: u64 = 1 << 2;
    pub(super) const NOT_ADDRESSES: u64 = 1 << 3;
    pub(super) const PORTS: u64 = 1 << 4;
    pub(super) const NOT_PORTS: u64 = 1 << 5;
    pub(super) const SERVICE: u64 = 1 << 6;
    pub(super) const ORIGINAL: u64 = 1 << 7;
    pub(super) const NAMED_PORTS: u64 = 1 << 8;
    pub(super) const NOT_NAMED_PORTS: u64 = 1 << 9;
    pub(super) const SERVICES: u64 = 1 << 10;
}

fn bit(condition: bool, bit: u64) -> u64 {
    if condition { bit } else { 0 }
}

struct Writer<'a> {
    out: Vec<u8>,
    texts: Vec<&'a str>,
}

impl<'a> Writer<'a> {
    fn number(&mut self, number: u64) {
        put_number(&mut self.out, number);
    }

    fn text(&mut self, text: &'a str) {
        if let Some(place) = self.texts.iter().position(|have| *have == text) {
            self.number(place as u64 + 1);
        } else {
            self.number(0);
            put_bytes(&mut self.out, text.as_bytes());
            self.texts.push(text);
        }
    }

    fn list<'l, T>(&mut self, list: &'l [T], mut item: impl FnMut(&mut Self, &'l T)) {
        self.number(list.len() as u64);
        for entry in list {
            item(self, entry);
        }
    }

    fn texts(&mut self, texts: &'a [String]) {
        self.list(texts, |writer, text| writer.text(text));
    }

    fn map(&mut self, map: &'a TextMap) {
        self.number(map.len() as u64);
        for (name, value) in map {
            self.text(name);
            self.text(value);
        }
    }

    fn set(&mut self, set: &'a SetSpec) {
        match set {
            SetSpec::Selector(selector) => {
                self.number(0);
                self.text(selector.canonical());
            }
            SetSpec::NamedPort { selector, protocol, name } => {
                self.number(1 + PROTOCOLS.iter().position(|have| have == protocol).unwrap_or(0) as u64);
                self.text(selector.canonical());
                self.text(name);
            }
            SetSpec::Service { service, with_ports } => {
                self.number(if *with_ports { 5 } else { 6 });
                self.text(service);
            }
            // No rule names a fixed set.
            SetSpec::Fixed { id, .. } => {
                self.number(7);
                self.text(id);
            }
        }
    }

    fn rule(&mut self, rule: &'a feed::Rule, [source, destination]: &[EndSets; 2]) {
        use rule_bits as bits;
        let action = match rule.action {
            RuleAction::Allow => 0,
            RuleAction::Deny => 1,
            RuleAction::Log => 2,
            RuleAction::Pass => 3,
        };
        let ip_version = rule.ip_version.or(match rule.protocol {
            Some(Protocol::Icmp) => Some(IpVersion::V4),
            Some(Protocol::Icmpv6) => Some(IpVersion::V6),
            _ => None,
        });
        let nothing = feed::RuleEnd::default();
        let mask = action
            | bit(ip_version.is_some(), bits::IP_VERSION)
            | bit(ip_version == Some(IpVersion::V6), bits::IPV6)
            | bit(rule.protocol.is_some(), bits::PROTOCOL)
            | bit(rule.not_protocol.is_some(), bits::NOT_PROTOCOL)
            | bit(rule.icmp.is_some(), bits::ICMP)
            | bit(rule.not_icmp.is_some(), bits::NOT_ICMP)
            | bit(rule.source != nothing, bits::SOURCE)
            | bit(rule.destination != nothing, bits::DESTINATION)
            | bit(rule.http.is_some(), bits::HTTP)
            | bit(!rule.annotations.is_empty(), bits::ANNOTATIONS);
        self.number(mask);
        for protocol in rule.protocol.iter().chain(&rule.not_protocol) {
            self.protocol(protocol);
        }
        for icmp in rule.icmp.iter().chain(&rule.not_icmp) {
            self.number(icmp.icmp_type.into());
            self.number(icmp.code.map_or(0, |code| u64::from(code) + 1));
        }
        for (end, sets) in [(&rule.source, source), (&rule.destination, destination)] {
            if *end != nothing {
                self.end(end, sets);
            }
        }
        if let Some(http) = &rule.http {
            self.texts(&http.methods);
            self.list(&http.paths, |writer, path| {
                writer.text(&path.exact);
                writer.text(&path.prefix);
            });
        }
        if !rule.annotations.is_empty() {
            self.map(&rule.annotations);
        }
    }

    fn protocol(&mut self, protocol: &Protocol) {
        match protocol {
            Protocol::Number(number) => {
                self.number(0);
                self.number((*number).into());
            }
            named => {
                let place = Protocol::NAMED.iter().position(|have| have == named);
                self.number(place.map_or(0, |place| place as u64 + 1));
            }
        }
    }

    fn end(&mut self, end: &'a feed::RuleEnd, sets: &EndSets) {
        use end_bits as bits;
        let (ports, not_ports) = (ranges(&end.ports), ranges(&end.not_ports));
        let lists = set_lists(sets);
        let mask = bit(!end.nets.is_empty(), bits::NETS)
            | bit(!end.not_nets.is_empty(), bits::NOT_NETS)
            | bit(!ports.is_empty(), bits::PORTS)
            | bit(!not_ports.is_empty(), bits::NOT_PORTS)
            | bit(end.service.is_some(), bits::SERVICE)
            | bit(end.original.is_some(), bits::ORIGINAL)
            | lists.iter().map(|(list, mask)| bit(!list.is_empty(), *mask)).sum::<u64>();
        self.number(mask);
        for nets in [&end.nets, &end.not_nets] {
            if !nets.is_empty() {
                self.list(nets, |writer, net| put_net(&mut writer.out, net));
            }
        }
        for ports in [ports, not_ports] {
            if !ports.is_empty() {
                self.list(&ports, |writer, port| {
                    writer.number(port.first.into());
                    writer.number(port.last.into());
                });
            }
        }
        for (list, _) in lists {
            if !list.is_empty() {
                self.list(list, |writer, place| writer.number(*place as u64));
            }
        }
        if let Some((namespace, name)) = &end.service {
            self.text(namespace);
            self.text(name);
        }
        if let Some(original) = &end.original {
            self.text(&original.selector);
            self.text(&original.namespace_selector);
            self.text(&original.not_selector);
            self.texts(&original.service_account_names);
            self.text(&original.service_account_selector);
        }
    }
}

fn set_lists(sets: &EndSets) -> [(&Vec<usize>, u64); 5] {
    use end_bits as bits;
    [
        (&sets.addresses, bits::ADDRESSES),
        (&sets.not_addresses, bits::NOT_ADDRESSES),
        (&sets.named_ports, bits::NAMED_PORTS),
        (&sets.not_named_ports, bits::NOT_NAMED_PORTS),
        (&sets.services, bits::SERVICES),
    ]
}

fn ranges(ports: &[Port]) -> Vec<PortRange> {
    let range = |port: &Port| match port {
        Port::Range(range) => Some(*range),
        Port::Named(_) => None,
    };
    ports.iter().filter_map(range).collect()
}

const PROTOCOLS: [PortProtocol; 4] =
    [PortProtocol::Tcp, PortProtocol::Udp, PortProtocol::Sctp, PortProtocol::Any];

struct TextReader<'a> {
    bytes: Reader<'a>,
    texts: Vec<String>,
}

impl<'a> TextReader<'a> {
    fn new(known: &[&str], packed: &'a [u8]) -> Self {
        Self { bytes: Reader(packed), texts: known.iter().map(|text| (*text).to_owned()).collect() }
    }

    fn all(mut self, names: &[IpSetId]) -> Option<Unpacked> {
        // The sets are known already, but their texts are needed, because others refer to them.
        self.list(|reader| reader.set_texts().map(drop))?;
        Some(Unpacked {
            texts: self.texts()?,
            inbound: self.list(|reader| reader.rule(names))?,
            outbound: self.list(|reader| reader.rule(names))?,
        })
    }

    fn sets(mut self) -> Option<Vec<SetSpec>> {
        self.list(|reader| {
            let (tag, first, second) = reader.set_texts()?;
            Some(match tag {
                0 => SetSpec::Selector(Selector::from_canonical(&first)),
                5 | 6 => SetSpec::Service { service: first, with_ports: tag == 5 },
                tag => SetSpec::NamedPort {
                    selector: Selector::from_canonical(&first),
                    protocol: *PROTOCOLS.get(tag.checked_sub(1)?)?,
                    name: second,
                },
            })
        })
    }

    fn set_texts(&mut self) -> Option<(usize, String, String)> {
        let tag = usize::try_from(self.bytes.number()?).ok()?;
        let first = self.text()?;
        let second = if (1..=PROTOCOLS.len()).contains(&tag) { self.text()? } else { String::new() };
        Some((tag, first, second))
    }

    fn text(&mut self) -> Option<String> {
        let place = usize::try_from(self.bytes.number()?).ok()?;
        if let Some(place) = place.checked_sub(1) {
            return self.texts.get(place).cloned();
        }
        let text = String::from_utf8(self.bytes.bytes()?.to_vec()).ok()?;
        self.texts.push(text.clone());
        Some(text)
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.bytes.small()?;
        (0..count).map(|_| item(self)).collect()
    }

    fn texts(&mut self) -> Option<Vec<String>> {
        self.list(Self::text)
    }

    fn map(&mut self) -> Option<TextMap> {
        Some(self.list(|reader| Some((reader.text()?, reader.text()?)))?.into_iter().collect())
    }

    fn rule(&mut self, names: &[IpSetId]) -> Option<Rule> {
        use rule_bits as bits;
        let mask = self.bytes.number()?;
        let has = |bit| mask & bit != 0;
        let mut rule = Rule {
            action: match mask & 3 {
                0 => RuleAction::Allow,
                1 => RuleAction::Deny,
                2 => RuleAction::Log,
                _ => RuleAction::Pass,
            },
            ip_version: has(bits::IP_VERSION)
                .then(|| if has(bits::IPV6) { IpVersion::V6 } else { IpVersion::V4 }),
            ..Rule::default()
        };
        if has(bits::PROTOCOL) {
            rule.protocol = Some(self.protocol()?.into());
        }
        if has(bits::NOT_PROTOCOL) {
            rule.not_protocol = Some(self.protocol()?.into());
        }
        if has(bits::ICMP) {
            rule.icmp = Some(self.icmp()?);
        }
        if has(bits::NOT_ICMP) {
            rule.not_icmp = Some(self.icmp()?);
        }
        if has(bits::SOURCE) {
            rule.source = self.end(names)?;
        }
        if has(bits::DESTINATION) {
            rule.destination = self.end(names)?;
        }
        if has(bits::HTTP) {
            let methods = self.texts()?;
            let paths = self.list(|reader| {
                Some(HTTPPath { exact: reader.text()?, prefix: reader.text()?, ..HTTPPath::default() })
            })?;
            rule.http = Some(Box::new(HTTPMatch { methods, paths, ..HTTPMatch::default() }));
        }
        if has(bits::ANNOTATIONS) {
            rule.annotations = self.map()?;
        }
        Some(rule)
    }

    fn icmp(&mut self) -> Option<IcmpMatch> {
        let icmp_type = u8::try_from(self.bytes.number()?).ok()?;
        let code = self.bytes.number()?.checked_sub(1).map(u8::try_from).transpose().ok()?;
        Some(IcmpMatch { icmp_type, code })
    }

    fn protocol(&mut self) -> Option<Protocol> {
        Some(match self.bytes.number()? {
            0 => Protocol::Number(u8::try_from(self.bytes.number()?).ok()?),
            named => *Protocol::NAMED.get(usize::try_from(named).ok()?.checked_sub(1)?)?,
        })
    }

    fn end(&mut self, names: &[IpSetId]) -> Option<RuleEnd> {
        use end_bits as bits;
        let mask = self.bytes.number()?;
        let has = |bit| mask & bit != 0;
        let mut end = RuleEnd::default();
        for (bit, nets) in [(bits::NETS, &mut end.nets), (bits::NOT_NETS, &mut end.not_nets)] {
            if has(bit) {
                *nets = self.nets()?;
            }
        }
        for (bit, ports) in [(bits::PORTS, &mut end.ports), (bits::NOT_PORTS, &mut end.not_ports)] {
            if has(bit) {
                *ports = self.list(Self::port)?;
            }
        }
        for (bit, ids) in [
            (bits::ADDRESSES, &mut end.ip_set_ids),
            (bits::NOT_ADDRESSES, &mut end.not_ip_set_ids),
            (bits::NAMED_PORTS, &mut end.named_port_ip_set_ids),
            (bits::NOT_NAMED_PORTS, &mut end.not_named_port_ip_set_ids),
            (bits::SERVICES, &mut end.ip_port_set_ids),
        ] {
            if has(bit) {
                *ids =
                    self.list(|reader| names.get(usize::try_from(reader.bytes.number()?).ok()?).cloned())?;
            }
        }
        if has(bits::SERVICE) || has(bits::ORIGINAL) {
            let mut original = OriginalEnd::default();
            if has(bits::SERVICE) {
                original.service_namespace = self.text()?.into();
                original.service = self.text()?.into();
            }
            if has(bits::ORIGINAL) {
                original.selector = self.text()?;
                original.namespace_selector = self.text()?;
                original.not_selector = self.text()?;
                original.service_account_names = self.texts()?;
                original.service_account_selector = self.text()?;
            }
            end.original = Some(Box::new(original));
        }
        Some(end)
    }

    fn nets(&mut self) -> Option<Vec<IpNet>> {
        self.list(|reader| reader.bytes.net())
    }

    fn port(&mut self) -> Option<PortRange> {
        let mut number = || u16::try_from(self.bytes.number()?).ok();
        Some(PortRange { first: number()?, last: number()? })
    }
}

#[cfg(test)]
mod tests;
