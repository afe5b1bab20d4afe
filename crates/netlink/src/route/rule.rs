//! Policy routing rules, which select the routing table for packets.

use super::{CREATE, DEL_RULE, EXCLUSIVE, GET_RULE, NEW_RULE};
use crate::Family;
use crate::datagram::Request;
use crate::wire::{Writer, attributes, header_u32, split_header};
use ipnet::IpNet;
use std::fmt;

const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const IN: u16 = 3;
const GOTO: u16 = 4;
const PRIORITY: u16 = 6;
const MARK: u16 = 10;
const TABLE: u16 = 15;
const MASK: u16 = 16;
const OUT: u16 = 17;
const PROTOCOL: u16 = 21;
const INVERT: u32 = 2;

/// The action of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleAction {
    /// Looks at a table.
    #[default]
    Table,
    /// Continues at another rule.
    Goto(u32),
    /// Drops silently.
    Blackhole,
    /// Refuses as unreachable.
    Unreachable,
    /// Refuses as prohibited.
    Prohibit,
    /// Another of the kernel's numbers.
    Other(u8),
}

/// A policy routing rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The family.
    pub family: Family,
    /// Its place in the order: lower is earlier. If `None`, the kernel puts it before the first rule.
    pub priority: Option<u32>,
    /// Its action.
    pub action: RuleAction,
    /// The table it looks at.
    pub table: u32,
    /// Only packets with this mark, under this mask.
    pub mark: Option<(u32, u32)>,
    /// Only packets from this network.
    pub source: Option<IpNet>,
    /// Only packets to this network.
    pub destination: Option<IpNet>,
    /// Only packets that arrived on this device.
    pub input: Option<String>,
    /// Only packets from this host bound to this device.
    pub output: Option<String>,
    /// Whether it applies to the packets that do not match.
    pub invert: bool,
    /// The protocol number, which identifies who created it.
    pub protocol: u8,
}

impl Rule {
    /// A rule that makes all packets of a family look at a table.
    #[must_use]
    pub fn to_table(family: Family, priority: u32, table: u32) -> Self {
        Self {
            family,
            priority: Some(priority),
            action: RuleAction::Table,
            table,
            mark: None,
            source: None,
            destination: None,
            input: None,
            output: None,
            invert: false,
            protocol: 0,
        }
    }

    fn payload(&self) -> Vec<u8> {
        let mut header = [0; 12];
        header[0] = self.family.number();
        header[1] = self.destination.map_or(0, |net| net.prefix_len());
        header[2] = self.source.map_or(0, |net| net.prefix_len());
        header[4] = u8::try_from(self.table).unwrap_or(0);
        header[7] = self.action.number();
        let flags = if self.invert { INVERT } else { 0 };
        header[8..12].copy_from_slice(&u32::to_ne_bytes(flags));
        let mut writer = Writer::new(&header);
        if let Some(net) = self.destination {
            writer.address(DESTINATION, net.network());
        }
        if let Some(net) = self.source {
            writer.address(SOURCE, net.network());
        }
        if let Some(name) = &self.input {
            writer.text(IN, name);
        }
        if let Some(name) = &self.output {
            writer.text(OUT, name);
        }
        if let Some(priority) = self.priority {
            writer.u32(PRIORITY, priority);
        }
        if let Some((mark, mask)) = self.mark {
            writer.u32(MARK, mark).u32(MASK, mask);
        }
        if self.table > u32::from(u8::MAX) {
            writer.u32(TABLE, self.table);
        }
        if let RuleAction::Goto(target) = self.action {
            writer.u32(GOTO, target);
        }
        if self.protocol != 0 {
            writer.u8(PROTOCOL, self.protocol);
        }
        writer.finish()
    }

    pub(crate) fn add_request(&self) -> Request {
        Request { message_type: NEW_RULE, flags: CREATE | EXCLUSIVE, payload: self.payload() }
    }

    pub(crate) fn delete_request(&self) -> Request {
        Request { message_type: DEL_RULE, flags: 0, payload: self.payload() }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rule", self.family)?;
        if let Some(priority) = self.priority {
            write!(f, " {priority}")?;
        }
        if let Some((mark, mask)) = self.mark {
            write!(f, " for mark {mark:#x}/{mask:#x}")?;
        }
        match self.action {
            RuleAction::Table => write!(f, " to table {}", self.table),
            action => write!(f, " {action:?}"),
        }
    }
}

impl RuleAction {
    const fn number(self) -> u8 {
        match self {
            Self::Table => 1,
            Self::Goto(_) => 2,
            Self::Blackhole => 6,
            Self::Unreachable => 7,
            Self::Prohibit => 8,
            Self::Other(number) => number,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Table,
            2 => Self::Goto(0),
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            number => Self::Other(number),
        }
    }
}

/// The request for the rules of one family.
pub(crate) fn dump_request(family: Family) -> Request {
    let mut header = [0; 12];
    header[0] = family.number();
    Request { message_type: GET_RULE, flags: 0, payload: Writer::new(&header).finish() }
}

/// Reads a rule; `None` for any other message.
#[must_use]
pub fn read(payload: &[u8]) -> Option<Rule> {
    let (header, rest) = split_header::<12>(payload)?;
    let [family, destination, source, _, table, _, _, action, ..] = *header;
    // A rule without the attribute has the very first priority.
    let mut rule = Rule {
        action: RuleAction::from_number(action),
        invert: header_u32(header, 8) & INVERT != 0,
        ..Rule::to_table(Family::from_number(family)?, 0, u32::from(table))
    };
    let (mut mark, mut mask) = (None, None);
    for attribute in attributes(rest) {
        match attribute.number {
            DESTINATION => rule.destination = IpNet::new(attribute.address()?, destination).ok(),
            SOURCE => rule.source = IpNet::new(attribute.address()?, source).ok(),
            IN => rule.input = attribute.text(),
            OUT => rule.output = attribute.text(),
            GOTO => rule.action = RuleAction::Goto(attribute.u32().unwrap_or_default()),
            PRIORITY => rule.priority = attribute.u32(),
            MARK => mark = attribute.u32(),
            MASK => mask = attribute.u32(),
            TABLE => rule.table = attribute.u32().unwrap_or(rule.table),
            PROTOCOL => rule.protocol = attribute.u8().unwrap_or_default(),
            _ => {}
        }
    }
    rule.mark = match (mark, mask) {
        (None, None) | (Some(0) | None, Some(0)) => None,
        (mark, mask) => Some((mark.unwrap_or_default(), mask.unwrap_or(u32::MAX))),
    };
    Some(rule)
}
