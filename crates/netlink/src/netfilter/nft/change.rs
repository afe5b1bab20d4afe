//! Changes to one table as values, and the messages that carry them out.

use super::Table;
use super::expression::{AnonymousSet, Expression};
use super::set::{
    ELEMENTS_PER_MESSAGE, Element, FLAG_ANONYMOUS, FLAG_CONSTANT, FLAG_INTERVAL, FLAG_MAP, Set, SetNumbers,
    VERDICT_TYPE, anonymous_name, user_data, write_elements,
};
use crate::datagram::Request;
use crate::netfilter::{NFTABLES, header};
use crate::wire::Writer;
use std::sync::Arc;

/// Message types of the subsystem.
pub(super) const NEW_TABLE: u16 = 0;
pub(super) const GET_TABLE: u16 = 1;
pub(super) const DELETE_TABLE: u16 = 2;
pub(super) const NEW_CHAIN: u16 = 3;
pub(super) const GET_CHAIN: u16 = 4;
pub(super) const DELETE_CHAIN: u16 = 5;
pub(super) const NEW_RULE: u16 = 6;
pub(super) const GET_RULE: u16 = 7;
pub(super) const DELETE_RULE: u16 = 8;
pub(super) const NEW_SET: u16 = 9;
pub(super) const GET_SET: u16 = 10;
pub(super) const DELETE_SET: u16 = 11;
pub(super) const NEW_ELEMENTS: u16 = 12;
pub(super) const GET_ELEMENTS: u16 = 13;
pub(super) const DELETE_ELEMENTS: u16 = 14;
pub(super) const NEW_FLOW_TABLE: u16 = 22;
pub(super) const GET_GENERATION: u16 = 16;
pub(super) const GET_FLOW_TABLE: u16 = 23;
pub(super) const DELETE_FLOW_TABLE: u16 = 24;

const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;
/// The type of the user data that is a rule's comment.
pub(super) const COMMENT: u8 = 0;

/// The hooks to which base chains are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// All incoming packets, before routing.
    Prerouting,
    /// Packets to this host.
    Input,
    /// Packets forwarded by this host.
    Forward,
    /// Packets from this host.
    Output,
    /// All outgoing packets, after routing.
    Postrouting,
    /// Outgoing ARP packets.
    ArpOutput,
}

impl Hook {
    /// The kernel's number within the family.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input | Self::ArpOutput => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

/// The type of a base chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainKind {
    /// Filtering.
    Filter,
    /// Translation: sees only the first packet of a connection.
    Nat,
    /// Filtering, with a new routing decision when it changed the packet.
    Route,
}

impl ChainKind {
    /// The kernel's name of the type.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Route => "route",
        }
    }
}

/// How a chain is attached to a hook. Packets that reach its end are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseChain {
    /// Its type.
    pub kind: ChainKind,
    /// Its hook.
    pub hook: Hook,
    /// Its priority: lower numbers see a packet first.
    pub priority: i32,
}

/// A rule to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The chain.
    pub chain: Arc<str>,
    /// The expressions, in order.
    pub expressions: Vec<Expression>,
    /// The comment that `nft` shows; up to 128 bytes.
    pub comment: Arc<str>,
}

/// One change to a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates the table unless it exists.
    AddTable,
    /// Deletes the table, with everything in it.
    DeleteTable,
    /// Creates the chain unless it exists.
    AddChain {
        /// Its name.
        name: Arc<str>,
        /// How it is attached; `None` for a chain that is only jumped to.
        base: Option<BaseChain>,
    },
    /// Removes all rules of the chain.
    FlushChain(Arc<str>),
    /// Deletes the chain, which must be empty and unreferenced.
    DeleteChain(Arc<str>),
    /// Appends the rule to its chain.
    AppendRule(Rule),
    /// Deletes the rule of this handle.
    DeleteRule {
        /// Its chain.
        chain: Arc<str>,
        /// Its handle.
        handle: u64,
    },
    /// Creates the set or map unless it exists.
    AddSet(Set),
    /// Deletes the set or map, which must be unreferenced.
    DeleteSet(Arc<str>),
    /// Removes all members of the set or map.
    FlushSet(Arc<str>),
    /// Adds members.
    AddElements {
        /// The set or map.
        set: Arc<str>,
        /// The members.
        elements: Vec<Element>,
    },
    /// Removes members.
    DeleteElements {
        /// The set or map.
        set: Arc<str>,
        /// The members.
        elements: Vec<Element>,
    },
    /// Creates the flow table unless it exists, and adds these devices to it; they must exist.
    AddFlowTable {
        /// Its name.
        name: Arc<str>,
        /// Its priority at the ingress hook.
        priority: i32,
        /// The devices.
        devices: Vec<Arc<str>>,
    },
    /// Removes these devices from the flow table.
    DeleteFlowDevices {
        /// Its name.
        name: Arc<str>,
        /// Its priority at the ingress hook.
        priority: i32,
        /// The devices.
        devices: Vec<Arc<str>>,
    },
    /// Deletes the flow table.
    DeleteFlowTable(Arc<str>),
}

/// Writes the messages of one change. `numbers` are assigned to the sets that a transaction creates.
pub(super) fn encode(table: &Table, change: &Change, numbers: &mut SetNumbers, requests: &mut Vec<Request>) {
    let start = || {
        let mut writer = Writer::new(&header(table.family.number(), 0));
        writer.text(1, &table.name);
        writer
    };
    let mut push = |kind: u16, flags: u16, writer: Writer| {
        requests.push(Request { message_type: (NFTABLES << 8) | kind, flags, payload: writer.finish() });
    };
    let named = |number: u16, name: &str| {
        let mut writer = start();
        writer.text(number, name);
        writer
    };
    match change {
        Change::AddTable => {
            let mut writer = start();
            writer.u32_be(2, 0);
            push(NEW_TABLE, CREATE, writer);
        }
        Change::DeleteTable => push(DELETE_TABLE, 0, start()),
        Change::AddChain { name, base } => {
            let mut writer = named(3, name);
            if let Some(base) = base {
                writer.nested(4, |hook| {
                    hook.u32_be(1, base.hook.number()).bytes(2, &base.priority.to_be_bytes());
                });
                // NF_ACCEPT
                writer.u32_be(5, 1).text(7, base.kind.as_str());
            }
            push(NEW_CHAIN, CREATE, writer);
        }
        Change::FlushChain(name) => push(DELETE_RULE, 0, named(2, name)),
        Change::DeleteChain(name) => push(DELETE_CHAIN, 0, named(3, name)),
        Change::AppendRule(rule) => {
            let sets = rule.expressions.iter().filter_map(anonymous);
            let numbered: Vec<(u32, &AnonymousSet)> = sets.map(|set| (numbers.take(), set)).collect();
            for (number, set) in &numbered {
                write_anonymous(&start, set, *number, &mut push);
            }
            let mut writer = named(2, &rule.chain);
            let mut numbered = numbered.into_iter();
            writer.nested(4, |list| {
                for expression in &rule.expressions {
                    let own = anonymous(expression).and_then(|_| numbered.next());
                    expression.write(list, own.map_or(0, |(number, _)| number));
                }
            });
            if !rule.comment.is_empty() {
                writer.bytes(7, &comment(&rule.comment));
            }
            push(NEW_RULE, CREATE | APPEND, writer);
        }
        Change::DeleteRule { chain, handle } => {
            let mut writer = named(2, chain);
            writer.u64_be(3, *handle);
            push(DELETE_RULE, 0, writer);
        }
        Change::AddSet(set) => {
            let mut writer = named(2, &set.name);
            let mut flags = if set.interval { FLAG_INTERVAL } else { 0 };
            flags |= if set.verdicts { FLAG_MAP } else { 0 };
            let length = u32::try_from(set.key.length()).unwrap_or(0);
            writer.u32_be(3, flags).u32_be(4, set.key.number()).u32_be(5, length);
            if set.verdicts {
                writer.u32_be(6, VERDICT_TYPE).u32_be(7, 0);
            }
            writer.u32_be(10, numbers.take()).bytes(13, &user_data(set.key, set.verdicts));
            push(NEW_SET, CREATE, writer);
        }
        Change::DeleteSet(name) => push(DELETE_SET, 0, named(2, name)),
        Change::FlushSet(name) => push(DELETE_ELEMENTS, 0, named(2, name)),
        Change::AddElements { set, elements } => {
            for elements in elements.chunks(ELEMENTS_PER_MESSAGE) {
                let mut writer = named(2, set);
                write_elements(&mut writer, elements);
                push(NEW_ELEMENTS, CREATE, writer);
            }
        }
        Change::DeleteElements { set, elements } => {
            for elements in elements.chunks(ELEMENTS_PER_MESSAGE) {
                let mut writer = named(2, set);
                write_elements(&mut writer, elements);
                push(DELETE_ELEMENTS, 0, writer);
            }
        }
        Change::AddFlowTable { name, priority, devices } => {
            let mut writer = named(2, name);
            write_flow_hook(&mut writer, *priority, devices);
            push(NEW_FLOW_TABLE, CREATE, writer);
        }
        Change::DeleteFlowDevices { name, priority, devices } => {
            let mut writer = named(2, name);
            write_flow_hook(&mut writer, *priority, devices);
            push(DELETE_FLOW_TABLE, 0, writer);
        }
        Change::DeleteFlowTable(name) => push(DELETE_FLOW_TABLE, 0, named(2, name)),
    }
}

fn anonymous(expression: &Expression) -> Option<&AnonymousSet> {
    match expression {
        Expression::LookupAnonymous { set, .. } => Some(set),
        _ => None,
    }
}

fn write_anonymous(
    start: &impl Fn() -> Writer,
    set: &AnonymousSet,
    id: u32,
    push: &mut impl FnMut(u16, u16, Writer),
) {
    let interval = set.ranges.iter().any(|(first, last)| first != last);
    let elements: Vec<Element> = set
        .ranges
        .iter()
        .map(|(first, last)| if interval { Element::Range(*first, *last) } else { Element::Single(*first) })
        .collect();
    let mut writer = start();
    let flags = FLAG_ANONYMOUS | FLAG_CONSTANT | if interval { FLAG_INTERVAL } else { 0 };
    let length = u32::try_from(set.key.length()).unwrap_or(0);
    writer
        .text(2, &anonymous_name(id))
        .u32_be(3, flags)
        .u32_be(4, set.key.number())
        .u32_be(5, length)
        .u32_be(10, id);
    writer.nested(9, |description| {
        let count = elements.len() * if interval { 2 } else { 1 };
        description.u32_be(1, u32::try_from(count).unwrap_or(u32::MAX));
    });
    writer.bytes(13, &user_data(set.key, false));
    push(NEW_SET, CREATE, writer);
    for elements in elements.chunks(ELEMENTS_PER_MESSAGE) {
        let mut writer = start();
        writer.text(2, &anonymous_name(id)).u32_be(4, id);
        write_elements(&mut writer, elements);
        push(NEW_ELEMENTS, CREATE, writer);
    }
}

fn write_flow_hook(writer: &mut Writer, priority: i32, devices: &[Arc<str>]) {
    writer.nested(3, |hook| {
        // NF_NETDEV_INGRESS
        hook.u32_be(1, 0).bytes(2, &priority.to_be_bytes());
        hook.nested(3, |list| {
            for device in devices {
                list.text(1, device);
            }
        });
    });
}

/// A comment as `nft` stores it in user data: type, length, text and the terminating zero.
fn comment(text: &str) -> Vec<u8> {
    // The length is one byte, and `nft` itself accepts no comment of more than 128 bytes.
    let mut end = text.len().min(128);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut notes = vec![COMMENT, u8::try_from(end + 1).unwrap_or(u8::MAX)];
    notes.extend_from_slice(&text.as_bytes()[..end]);
    notes.push(0);
    notes
}

/// The comment in a rule's user data.
pub(super) fn comment_of(mut notes: &[u8]) -> Option<&str> {
    while let [kind, length, rest @ ..] = notes {
        let value = rest.get(..usize::from(*length))?;
        if *kind == COMMENT {
            let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
            return std::str::from_utf8(&value[..end]).ok();
        }
        notes = &rest[usize::from(*length)..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{comment, comment_of};

    #[test]
    fn comments_survive_as_user_data() {
        assert_eq!(comment("cali:xx;"), b"\x00\x09cali:xx;\x00");
        assert_eq!(comment_of(&comment("cali:xx;")), Some("cali:xx;"));
        // Preceded by another item, and followed by a truncated one.
        let mut notes = vec![5, 2, 1, 1];
        notes.extend(comment("a"));
        assert_eq!(comment_of(&notes), Some("a"));
        assert_eq!(comment_of(&notes[..notes.len() - 1]), None);
        assert_eq!(comment_of(&[]), None);
        let long = "ü".repeat(100);
        let cut = comment(&long);
        assert_eq!(comment_of(&cut).map(str::len), Some(128));
    }
}
