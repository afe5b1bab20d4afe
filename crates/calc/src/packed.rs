//! Rules as runs of bytes. All policies and profiles of the cluster are kept, but only few of them concern this host, and a
//! rule is a large struct of mostly empty lists: packed, it is a few dozen bytes.
//!
//! A text that occurred before in the same run, or that the reader has anyway (the policy's selector, its namespace), is
//! written as its number. Equal rules with equal known texts give equal bytes, so comparing bytes tells whether anything
//! changed. Only what reaches the dataplane is kept.

use crate::bytes::{Reader, put_bytes, put_net, put_number};
use api::scalars::{IntOrString, Port, Protocol};
use api::{HTTPMatch, HTTPPath, ICMPFields};
use ipnet::IpNet;
use model::IpVersion;
use model::feed::{OriginalMatches, Rule, RuleAction, RuleEnd, TextMap};

/// Packs some texts, and the rules of both directions. `known` are texts that the reader will have.
pub(crate) fn pack(known: &[&str], texts: &[&str], inbound: &[Rule], outbound: &[Rule]) -> Box<[u8]> {
    let mut writer = Writer { out: Vec::new(), texts: known.iter().map(|text| (*text).to_owned()).collect() };
    writer.list(texts, |writer, text| writer.text(text));
    writer.list(inbound, Writer::rule);
    writer.list(outbound, Writer::rule);
    writer.out.into_boxed_slice()
}

/// What [`pack`] packed, with the same `known`.
pub(crate) fn unpack(known: &[&str], packed: &[u8]) -> Option<(Vec<String>, Vec<Rule>, Vec<Rule>)> {
    let texts = known.iter().map(|text| (*text).to_owned()).collect();
    let mut reader = TextReader { bytes: Reader(packed), texts };
    Some((reader.texts()?, reader.list(TextReader::rule)?, reader.list(TextReader::rule)?))
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
    pub(super) const SELECTOR: u64 = 1 << 2;
    pub(super) const NOT_SELECTOR: u64 = 1 << 3;
    pub(super) const PORTS: u64 = 1 << 4;
    pub(super) const NOT_PORTS: u64 = 1 << 5;
    pub(super) const SERVICE: u64 = 1 << 6;
    pub(super) const ORIGINAL: u64 = 1 << 7;
}

fn bit(condition: bool, bit: u64) -> u64 {
    if condition { bit } else { 0 }
}

struct Writer {
    out: Vec<u8>,
    texts: Vec<String>,
}

impl Writer {
    fn number(&mut self, number: u64) {
        put_number(&mut self.out, number);
    }

    fn text(&mut self, text: &str) {
        if let Some(place) = self.texts.iter().position(|have| have == text) {
            self.number(place as u64 + 1);
        } else {
            self.number(0);
            put_bytes(&mut self.out, text.as_bytes());
            self.texts.push(text.to_owned());
        }
    }

    fn list<T>(&mut self, list: &[T], mut item: impl FnMut(&mut Self, &T)) {
        self.number(list.len() as u64);
        for entry in list {
            item(self, entry);
        }
    }

    fn texts(&mut self, texts: &[String]) {
        self.list(texts, |writer, text| writer.text(text));
    }

    fn map(&mut self, map: &TextMap) {
        self.number(map.len() as u64);
        for (name, value) in map {
            self.text(name);
            self.text(value);
        }
    }

    fn rule(&mut self, rule: &Rule) {
        use rule_bits as bits;
        let action = match rule.action {
            RuleAction::Allow => 0,
            RuleAction::Deny => 1,
            RuleAction::Log => 2,
            RuleAction::Pass => 3,
        };
        let nothing = RuleEnd::default();
        let mask = action
            | bit(rule.ip_version.is_some(), bits::IP_VERSION)
            | bit(rule.ip_version == Some(IpVersion::V6), bits::IPV6)
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
            self.signed(icmp.icmp_type);
            self.signed(icmp.code);
        }
        for end in [&rule.source, &rule.destination] {
            if *end != nothing {
                self.end(end);
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

    fn signed(&mut self, number: Option<i64>) {
        // Zero is none; the sign is the lowest bit, as usual.
        self.number(
            number.map_or(0, |number| (((number << 1) ^ (number >> 63)).cast_unsigned()).wrapping_add(1)),
        );
    }

    fn protocol(&mut self, protocol: &Protocol) {
        match protocol {
            Protocol::Number(number) => {
                self.number(0);
                self.number((*number).into());
            }
            Protocol::Other(value) => {
                self.number(1);
                self.int_or_string(value);
            }
            named => {
                self.number(NAMED.iter().position(|have| have == named).map_or(0, |place| place as u64 + 2));
            }
        }
    }

    fn int_or_string(&mut self, value: &IntOrString) {
        match value {
            IntOrString::Int(number) => self.signed(Some(*number)),
            IntOrString::String(text) => {
                self.number(0);
                self.text(text);
            }
        }
    }

    fn end(&mut self, end: &RuleEnd) {
        use end_bits as bits;
        let mask = bit(!end.nets.is_empty(), bits::NETS)
            | bit(!end.not_nets.is_empty(), bits::NOT_NETS)
            | bit(!end.selector.is_empty(), bits::SELECTOR)
            | bit(!end.not_selector.is_empty(), bits::NOT_SELECTOR)
            | bit(!end.ports.is_empty(), bits::PORTS)
            | bit(!end.not_ports.is_empty(), bits::NOT_PORTS)
            | bit(end.service.is_some(), bits::SERVICE)
            | bit(end.original.is_some(), bits::ORIGINAL);
        self.number(mask);
        for nets in [&end.nets, &end.not_nets] {
            if !nets.is_empty() {
                self.list(nets, |writer, net| put_net(&mut writer.out, net));
            }
        }
        for selector in [&end.selector, &end.not_selector] {
            if !selector.is_empty() {
                self.text(selector);
            }
        }
        for ports in [&end.ports, &end.not_ports] {
            if !ports.is_empty() {
                self.list(ports, Self::port);
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

    fn port(&mut self, port: &Port) {
        match port {
            Port::Range { min, max } => {
                self.number(u64::from(*min) + 2);
                self.number((*max).into());
            }
            Port::Named(name) => {
                self.number(0);
                self.text(name);
            }
            Port::Other(value) => {
                self.number(1);
                self.int_or_string(value);
            }
        }
    }
}

const NAMED: [Protocol; 6] =
    [Protocol::Tcp, Protocol::Udp, Protocol::Icmp, Protocol::Icmpv6, Protocol::Sctp, Protocol::UdpLite];

struct TextReader<'a> {
    bytes: Reader<'a>,
    texts: Vec<String>,
}

impl TextReader<'_> {
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

    fn rule(&mut self) -> Option<Rule> {
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
            rule.protocol = Some(self.protocol()?);
        }
        if has(bits::NOT_PROTOCOL) {
            rule.not_protocol = Some(self.protocol()?);
        }
        if has(bits::ICMP) {
            rule.icmp = Some(self.icmp()?);
        }
        if has(bits::NOT_ICMP) {
            rule.not_icmp = Some(self.icmp()?);
        }
        if has(bits::SOURCE) {
            rule.source = self.end()?;
        }
        if has(bits::DESTINATION) {
            rule.destination = self.end()?;
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

    fn signed(&mut self) -> Option<Option<i64>> {
        let number = self.bytes.number()?;
        Some(number.checked_sub(1).map(|number| (number >> 1).cast_signed() ^ -((number & 1).cast_signed())))
    }

    fn icmp(&mut self) -> Option<ICMPFields> {
        Some(ICMPFields { icmp_type: self.signed()?, code: self.signed()?, ..ICMPFields::default() })
    }

    fn protocol(&mut self) -> Option<Protocol> {
        Some(match self.bytes.number()? {
            0 => Protocol::Number(u8::try_from(self.bytes.number()?).ok()?),
            1 => Protocol::Other(self.int_or_string()?),
            named => NAMED.get(usize::try_from(named).ok()?.checked_sub(2)?)?.clone(),
        })
    }

    fn int_or_string(&mut self) -> Option<IntOrString> {
        Some(match self.signed()? {
            Some(number) => IntOrString::Int(number),
            None => IntOrString::String(self.text()?),
        })
    }

    fn end(&mut self) -> Option<RuleEnd> {
        use end_bits as bits;
        let mask = self.bytes.number()?;
        let has = |bit| mask & bit != 0;
        let mut end = RuleEnd::default();
        if has(bits::NETS) {
            end.nets = self.nets()?;
        }
        if has(bits::NOT_NETS) {
            end.not_nets = self.nets()?;
        }
        if has(bits::SELECTOR) {
            end.selector = self.text()?;
        }
        if has(bits::NOT_SELECTOR) {
            end.not_selector = self.text()?;
        }
        if has(bits::PORTS) {
            end.ports = self.list(Self::port)?;
        }
        if has(bits::NOT_PORTS) {
            end.not_ports = self.list(Self::port)?;
        }
        if has(bits::SERVICE) {
            end.service = Some((self.text()?, self.text()?));
        }
        if has(bits::ORIGINAL) {
            end.original = Some(Box::new(OriginalMatches {
                selector: self.text()?,
                namespace_selector: self.text()?,
                not_selector: self.text()?,
                service_account_names: self.texts()?,
                service_account_selector: self.text()?,
            }));
        }
        Some(end)
    }

    fn nets(&mut self) -> Option<Vec<IpNet>> {
        self.list(|reader| reader.bytes.net())
    }

    fn port(&mut self) -> Option<Port> {
        Some(match self.bytes.number()? {
            0 => Port::Named(self.text()?),
            1 => Port::Other(self.int_or_string()?),
            min => Port::Range {
                min: u16::try_from(min - 2).ok()?,
                max: u16::try_from(self.bytes.number()?).ok()?,
            },
        })
    }
}

#[cfg(test)]
mod tests;
