//! Evaluates tables for a packet: the algorithm of `docs/ebpf.md`, step by step as in the kernel's program.
//!
//! It is the reference for that program, so it stays as simple as the page. Missing entries deny.

use crate::conditions::has_ports;
use crate::layout::{
    Action, ClassId, DIMENSIONS, Dimension, ListId, MAX_STEPS, PairKey, PortKey, ROW_WORDS, Row, RowKey,
    RuleKey, SEGMENT_RULES, SegmentKey,
};
use crate::tables::Tables;
use ipnet::IpNet;
use std::net::IpAddr;

/// The maximum number of recorded rule hits.
pub const MAX_HITS: usize = 32;

/// A packet as policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol's number.
    pub protocol: u8,
    /// Source and destination port; ignored for protocols without ports.
    pub ports: (u16, u16),
    /// ICMP type and code; ignored for other protocols.
    pub icmp: (u8, u8),
}

/// A list's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is allowed.
    Allow,
    /// The packet is denied.
    Deny,
    /// The list has no opinion.
    None,
}

/// The outcome of a list for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The decision.
    pub verdict: Verdict,
    /// The ids of the rules that passed the packet on, and of the deciding one, in order.
    pub hits: Vec<u64>,
    /// Whether a rule logs the packet.
    pub log: bool,
}

impl Packet {
    fn port(&self, dimension: Dimension) -> u16 {
        let (source, destination) = self.ports;
        match (dimension, self.protocol) {
            (Dimension::Service, 1 | 58) => u16::from_be_bytes([self.icmp.0, self.icmp.1]),
            (Dimension::Service | Dimension::DestinationPair, protocol) if has_ports(protocol) => destination,
            (Dimension::SourcePort | Dimension::SourcePair, protocol) if has_ports(protocol) => source,
            _ => 0,
        }
    }
}

/// Evaluates a list for a packet.
#[must_use]
pub fn evaluate(tables: &Tables, list: ListId, packet: &Packet) -> Outcome {
    let mut outcome = Outcome { verdict: Verdict::Deny, hits: Vec::new(), log: false };
    let (mut number, mut start) = (0_usize, 0_usize);
    let mut values = None;
    for _ in 0..MAX_STEPS {
        let Some(segment) = tables.segments.get(&SegmentKey { list, segment: small(number) }) else { break };
        let values = values.get_or_insert_with(|| {
            let wanted = |dimension: &Dimension| segment.list_dimensions & dimension.bit() != 0;
            let mut values = [0_u64; DIMENSIONS];
            for dimension in Dimension::ALL.into_iter().filter(wanted) {
                values[dimension.index()] = value(tables, list, packet, dimension);
            }
            values
        });
        let mut met = Row::from_start(start, usize::from(segment.rules));
        for dimension in Dimension::ALL {
            if segment.dimensions & dimension.bit() == 0 {
                continue;
            }
            let value = values[dimension.index()];
            let own = match value {
                0 => None,
                value => {
                    let segment = u16::try_from(number).unwrap_or(u16::MAX);
                    tables.rows.get(&RowKey { list, value, segment, dimension: dimension as u8 })
                }
            };
            let row = own.unwrap_or(&segment.defaults[dimension.index()]);
            met.0.iter_mut().zip(&row.0).for_each(|(to, from)| *to &= from);
        }
        let mut decisive = met;
        decisive.0.iter_mut().zip(&segment.log.0).for_each(|(to, log)| *to &= !log);
        let found = first_bit(&decisive);
        let before = Row::first(found.unwrap_or(SEGMENT_RULES));
        outcome.log |= (0..ROW_WORDS).any(|word| met.0[word] & segment.log.0[word] & before.0[word] != 0);
        let Some(found) = found else {
            if segment.last {
                break;
            }
            (number, start) = (number + 1, 0);
            continue;
        };
        let rule = small(number * SEGMENT_RULES + found);
        let Some(entry) = tables.rules.get(&RuleKey { list, rule }) else { break };
        if entry.id != 0 && outcome.hits.len() < MAX_HITS {
            outcome.hits.push(entry.id);
        }
        outcome.verdict = match entry.action {
            Action::Allow => Verdict::Allow,
            Action::None => Verdict::None,
            Action::Deny | Action::Log => Verdict::Deny,
            Action::Pass => {
                let next = entry.next as usize;
                (number, start) = (next / SEGMENT_RULES, next % SEGMENT_RULES);
                continue;
            }
        };
        return outcome;
    }
    outcome
}

/// Cannot overflow: the numbers of rules and segments of a list are limited.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn first_bit(row: &Row) -> Option<usize> {
    let (number, word) = row.0.iter().enumerate().find(|(_, word)| **word != 0)?;
    Some(number * 64 + word.trailing_zeros() as usize)
}

fn value(tables: &Tables, list: ListId, packet: &Packet, dimension: Dimension) -> u64 {
    match dimension {
        Dimension::Source => class(tables, packet.source).0,
        Dimension::Destination => class(tables, packet.destination).0,
        Dimension::Service | Dimension::SourcePort => port(tables, list, packet, dimension),
        Dimension::DestinationPair => pair(tables, packet.destination, packet, dimension),
        Dimension::SourcePair => pair(tables, packet.source, packet, dimension),
    }
}

/// The class of an address.
pub(crate) fn class(tables: &Tables, address: IpAddr) -> ClassId {
    match tables.addresses.get(&address) {
        Some(class) => *class,
        None => class_around(tables, IpNet::from(address)),
    }
}

/// The class of the longest network that contains this one.
pub(crate) fn class_around(tables: &Tables, net: IpNet) -> ClassId {
    let longest = net.prefix_len().min(net.max_prefix_len() - 1);
    let around = (0..=longest).rev().filter_map(|length| IpNet::new(net.addr(), length).ok());
    around.filter_map(|net| tables.nets.get(&net.trunc()).copied()).next().unwrap_or_default()
}

fn port(tables: &Tables, list: ListId, packet: &Packet, dimension: Dimension) -> u64 {
    let port = packet.port(dimension);
    let value = (0..=16_u8).rev().find_map(|bits| {
        let kept = u16::MAX.checked_shl(16 - u32::from(bits)).unwrap_or(0);
        let protocol = packet.protocol;
        let key = PortKey { list, dimension: dimension as u8, protocol, port: port & kept, bits };
        tables.ports.get(&key)
    });
    u64::from(value.copied().unwrap_or_default())
}

fn pair(tables: &Tables, address: IpAddr, packet: &Packet, dimension: Dimension) -> u64 {
    if !has_ports(packet.protocol) {
        return 0;
    }
    let key = PairKey { address, protocol: packet.protocol, port: packet.port(dimension) };
    tables.pairs.get(&key).copied().unwrap_or_default().0
}
