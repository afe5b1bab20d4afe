//! Which dropped packets are logged (`BPFLogFilters`): expressions in a subset of pcap's language, by interface. Pure.
//!
//! `tcp`, `udp`, `sctp`, `icmp`, `icmp6`, `ip`, `ip6` and `proto NUMBER`; `host ADDRESS`, `net CIDR`, `port NUMBER`,
//! `portrange A-B`, each optionally preceded by a protocol and `src`, `dst`, `src or dst` or `src and dst`; `less` and
//! `greater NUMBER`; `not`, `and`, `or` and brackets. As in pcap, `and` and `or` have equal precedence and are
//! left-associative, and a value alone has the kind of the previous one (`port 80 or 443`).
//!
//! Refuses anything else, naming the word: link-layer addresses, names, bytes of the packet.

use bpf::layout::event::Event;
use ipnet::IpNet;
use std::collections::BTreeMap;

/// An expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Filter {
    /// Everything: an expression without words.
    All,
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Test(Kind, Test),
}

/// What a value is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kind {
    protocol: Option<Protocol>,
    side: Side,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Version4,
    Version6,
    Number(u8),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Side {
    #[default]
    Either,
    Both,
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum What {
    #[default]
    Host,
    Net,
    Port,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    /// Only the protocol is tested.
    Protocol,
    Net(IpNet),
    Ports(u16, u16),
    AtMost(u32),
    AtLeast(u32),
}

/// Expressions by interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters {
    by_interface: BTreeMap<String, Filter>,
    workloads: Vec<String>,
    others: Vec<String>,
}

impl Filters {
    /// Parses expressions by the name of an interface, `weps`, `heps` or `all`.
    ///
    /// # Errors
    /// What is not understood.
    pub fn read(filters: &BTreeMap<String, String>) -> Result<Self, String> {
        let read = |(name, text): (&String, &String)| match Filter::read(text) {
            Ok(filter) => Ok((name.clone(), filter)),
            Err(error) => Err(format!("`{text}` of {name}: {error}")),
        };
        let by_interface = filters.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { by_interface, ..Self::default() })
    }

    /// Adds the name prefixes of workload interfaces, and the interfaces that are neither a workload's nor a network
    /// card of the host.
    #[must_use]
    pub fn among(self, workloads: Vec<String>, others: Vec<String>) -> Self {
        Self { workloads, others, ..self }
    }

    /// Whether a packet of an interface is logged. Without any expressions all are; otherwise only those of interfaces
    /// with a matching one.
    pub(crate) fn want(&self, interface: &str, event: &Event) -> bool {
        if self.by_interface.is_empty() {
            return true;
        }
        let group = match interface {
            _ if self.workloads.iter().any(|prefix| interface.starts_with(prefix)) => "weps",
            _ if self.others.iter().any(|other| other == interface) => "",
            _ => "heps",
        };
        let filter = [interface, group, "all"].into_iter().find_map(|name| self.by_interface.get(name));
        filter.is_some_and(|filter| filter.matches(event))
    }
}

impl Filter {
    fn read(text: &str) -> Result<Self, String> {
        let spaced = ["(", ")", "!"]
            .iter()
            .fold(text.to_owned(), |text, sign| text.replace(sign, &format!(" {sign} ")));
        let spaced = spaced.replace("&&", " and ").replace("||", " or ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut reader = Reader { words: &words, kind: Kind::default() };
        if reader.words.is_empty() {
            return Ok(Self::All);
        }
        let filter = reader.expression()?;
        match reader.words.first() {
            None => Ok(filter),
            Some(word) => Err(format!("`{word}` was not expected")),
        }
    }

    fn matches(&self, event: &Event) -> bool {
        match self {
            Self::All => true,
            Self::Not(one) => !one.matches(event),
            Self::And(one, other) => one.matches(event) && other.matches(event),
            Self::Or(one, other) => one.matches(event) || other.matches(event),
            Self::Test(kind, test) => kind.matches(*test, event),
        }
    }
}

impl Kind {
    fn matches(self, test: Test, event: &Event) -> bool {
        let is_protocol = match self.protocol {
            None => true,
            Some(Protocol::Version4) => event.source.is_ipv4(),
            Some(Protocol::Version6) => event.source.is_ipv6(),
            Some(Protocol::Number(number)) => event.protocol == number,
        };
        let sides = |source: bool, destination: bool| match self.side {
            Side::Either => source || destination,
            Side::Both => source && destination,
            Side::Source => source,
            Side::Destination => destination,
        };
        is_protocol
            && match test {
                Test::Protocol => true,
                Test::Net(net) => sides(net.contains(&event.source), net.contains(&event.destination)),
                Test::Ports(first, last) => {
                    let range = first..=last;
                    matches!(event.protocol, 6 | 17 | 132)
                        && sides(range.contains(&event.source_port), range.contains(&event.destination_port))
                }
                Test::AtMost(length) => event.length <= length,
                Test::AtLeast(length) => event.length >= length,
            }
    }
}

struct Reader<'a> {
    words: &'a [&'a str],
    /// The kind of the last value.
    kind: Kind,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        let (word, rest) = self.words.split_first().ok_or("it ends too early")?;
        self.words = rest;
        Ok(word)
    }

    fn take(&mut self, words: &[&str]) -> bool {
        let is_there = self.words.starts_with(words);
        if is_there {
            self.words = &self.words[words.len()..];
        }
        is_there
    }

    fn expression(&mut self) -> Result<Filter, String> {
        let mut all = self.factor()?;
        loop {
            if self.take(&["and"]) {
                all = Filter::And(all.into(), self.factor()?.into());
            } else if self.take(&["or"]) {
                all = Filter::Or(all.into(), self.factor()?.into());
            } else {
                return Ok(all);
            }
        }
    }

    fn factor(&mut self) -> Result<Filter, String> {
        if self.take(&["not"]) || self.take(&["!"]) {
            return Ok(Filter::Not(self.factor()?.into()));
        }
        if self.take(&["("]) {
            let inner = self.expression()?;
            return if self.take(&[")"]) { Ok(inner) } else { Err("a bracket is not closed".to_owned()) };
        }
        self.primitive()
    }

    fn protocol(&mut self) -> Result<Option<Protocol>, String> {
        let protocol = match self.words.first().copied() {
            Some("ip") => Protocol::Version4,
            Some("ip6") => Protocol::Version6,
            Some("tcp") => Protocol::Number(6),
            Some("udp") => Protocol::Number(17),
            Some("sctp") => Protocol::Number(132),
            Some("icmp") => Protocol::Number(1),
            Some("icmp6") => Protocol::Number(58),
            Some("proto") => {
                self.next()?;
                let word = self.words.first().copied().unwrap_or_default();
                Protocol::Number(word.parse().map_err(|_| format!("`{word}` is not a protocol number"))?)
            }
            _ => return Ok(None),
        };
        self.next()?;
        Ok(Some(protocol))
    }

    fn primitive(&mut self) -> Result<Filter, String> {
        for (word, at_most) in [("less", true), ("greater", false)] {
            if self.take(&[word]) {
                let number = self.next()?;
                let length = number.parse().map_err(|_| format!("`{number}` is not a length"))?;
                let test = if at_most { Test::AtMost(length) } else { Test::AtLeast(length) };
                return Ok(Filter::Test(Kind::default(), test));
            }
        }
        let protocol = self.protocol()?;
        let side = if self.take(&["src", "or", "dst"]) || self.take(&["dst", "or", "src"]) {
            Some(Side::Either)
        } else if self.take(&["src", "and", "dst"]) || self.take(&["dst", "and", "src"]) {
            Some(Side::Both)
        } else if self.take(&["src"]) {
            Some(Side::Source)
        } else {
            self.take(&["dst"]).then_some(Side::Destination)
        };
        let what = if self.take(&["host"]) {
            Some(What::Host)
        } else if self.take(&["net"]) {
            Some(What::Net)
        } else {
            (self.take(&["port"]) || self.take(&["portrange"])).then_some(What::Port)
        };
        let is_said = side.is_some() || what.is_some();
        if protocol.is_some() && !is_said {
            return Ok(Filter::Test(Kind { protocol, ..Kind::default() }, Test::Protocol));
        }
        if is_said || protocol.is_some() {
            self.kind = Kind { protocol, side: side.unwrap_or_default(), what: what.unwrap_or_default() };
        }
        let word = self.next()?;
        let test = match self.kind.what {
            What::Host | What::Net => net(word),
            What::Port => ports(word),
        };
        Ok(Filter::Test(self.kind, test.ok_or_else(|| format!("`{word}` is not understood"))?))
    }
}

fn net(word: &str) -> Option<Test> {
    let address = || word.parse().ok().map(|address: std::net::IpAddr| address.into());
    word.parse().ok().or_else(address).map(Test::Net)
}

fn ports(word: &str) -> Option<Test> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some(Test::Ports(first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests;
