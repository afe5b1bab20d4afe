//! Ranks the largest flows.

use crate::flow::{self, Flow};
use crate::text::{bytes, clean, table};
use clap::ValueEnum;
use flows::Reporter;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The figure to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Bytes, both ways.
    Bytes,
    /// Packets, both ways.
    Packets,
    /// Connections that began.
    Connections,
}

/// How flows are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// Source and destination.
    Pair,
    /// The end that opens connections.
    Source,
    /// The end that accepts connections.
    Destination,
    /// Namespaces, from and to.
    Namespace,
    /// The policy that decided.
    Policy,
}

/// The figures of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Talker {
    /// The name of the group.
    pub name: String,
    /// Bytes, both ways.
    pub bytes: u64,
    /// Packets, both ways.
    pub packets: u64,
    /// Connections that began.
    pub connections: u64,
    /// Packets of flows that were denied.
    pub denied_packets: u64,
}

/// The groups with the largest figures.
#[must_use]
pub fn top(flows: &[Flow], by: By, group: Group, count: usize) -> Vec<Talker> {
    let mut talkers: BTreeMap<String, Talker> = BTreeMap::new();
    let twice = reported_twice(flows);
    for flow in flows {
        // Both ends may report the same connection; it counts once. Policies are counted at each end.
        if group != Group::Policy && flow.key.reporter == Reporter::Dst && twice.contains(&connection(flow)) {
            continue;
        }
        let name = clean(&name(flow, group));
        let talker = talkers.entry(name.clone()).or_insert_with(|| Talker { name, ..Talker::default() });
        let packets = flow::packets(&flow.counters);
        talker.bytes = talker.bytes.saturating_add(flow::bytes(&flow.counters));
        talker.packets = talker.packets.saturating_add(packets);
        talker.connections = talker.connections.saturating_add(flow.counters.started);
        if flow.key.action == flows::Action::Deny {
            talker.denied_packets = talker.denied_packets.saturating_add(packets);
        }
    }
    let mut talkers: Vec<Talker> = talkers.into_values().collect();
    talkers.sort_by_key(|talker| {
        let figure = match by {
            By::Bytes => talker.bytes,
            By::Packets => talker.packets,
            By::Connections => talker.connections,
        };
        (Reverse(figure), talker.name.clone())
    });
    talkers.truncate(count);
    talkers
}

/// The part of a connection that both ends report identically. What the source's node drops, the destination's node
/// never sees.
type Connection<'a> = (&'a flows::Peer, &'a flows::Peer, i64, &'a str);

fn connection(flow: &Flow) -> Connection<'_> {
    (&flow.key.source, &flow.key.dest, flow.key.dest_port, &flow.key.protocol)
}

/// Connections that the source's node reports as allowed, and that the destination's node may report again.
fn reported_twice(flows: &[Flow]) -> BTreeSet<Connection<'_>> {
    let of = |reporter: Reporter| {
        flows
            .iter()
            .filter(move |flow| flow.key.reporter == reporter)
            .map(connection)
            .collect::<BTreeSet<_>>()
    };
    of(Reporter::Src).intersection(&of(Reporter::Dst)).copied().collect()
}

fn name(flow: &Flow, group: Group) -> String {
    let key = &flow.key;
    let namespace = |peer| flow::namespace(peer).map_or_else(|| flow::peer_text(peer), ToOwned::to_owned);
    match group {
        Group::Pair => flow::connection_text(flow),
        Group::Source => flow::peer_text(&key.source),
        Group::Destination => flow::peer_text(&key.dest),
        Group::Namespace => format!("{} -> {}", namespace(&key.source), namespace(&key.dest)),
        Group::Policy => key
            .trace
            .enforced
            .last()
            .and_then(|hit| hit.policy())
            .map_or_else(|| "no policy".to_owned(), flow::policy_text),
    }
}

/// The groups as a table.
#[must_use]
pub fn to_text(talkers: &[Talker], group: Group) -> String {
    let word = match group {
        Group::Pair => "FLOW",
        Group::Source => "SOURCE",
        Group::Destination => "DESTINATION",
        Group::Namespace => "NAMESPACES",
        Group::Policy => "POLICY",
    };
    let rows: Vec<Vec<String>> = talkers
        .iter()
        .map(|talker| {
            vec![
                talker.name.clone(),
                bytes(talker.bytes),
                talker.packets.to_string(),
                talker.connections.to_string(),
                talker.denied_packets.to_string(),
            ]
        })
        .collect();
    table(&[word, "BYTES", "PACKETS", "CONNECTIONS", "DENIED PACKETS"], &rows)
}
