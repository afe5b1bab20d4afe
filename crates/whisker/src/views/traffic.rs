//! Traffic between peers, merged from both ends' reports: a connection that both ends report counts once.

use crate::source::Flow;
use flows::{Action, Counters, Peer, Reporter, Text};
use serde::Serialize;
use std::collections::BTreeMap;

/// Summed counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sum {
    /// Bytes, both ways.
    pub(crate) bytes: u64,
    /// Packets, both ways.
    pub(crate) packets: u64,
    /// Connections that began.
    pub(crate) connections: u64,
}

impl Sum {
    fn count(&mut self, counters: &Counters) {
        self.bytes = self.bytes.saturating_add(counters.bytes_in.saturating_add(counters.bytes_out));
        self.packets = self.packets.saturating_add(counters.packets_in.saturating_add(counters.packets_out));
        self.connections = self.connections.saturating_add(counters.started);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.packets = self.packets.saturating_add(other.packets);
        self.connections = self.connections.saturating_add(other.connections);
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Traffic by what happened to its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Fates {
    /// Packets that passed.
    pub(crate) allow: Sum,
    /// Packets that were dropped.
    #[serde(skip_serializing_if = "Sum::is_empty")]
    pub(crate) deny: Sum,
    /// Packets that passed, but that staged policies would drop.
    #[serde(skip_serializing_if = "Sum::is_empty")]
    pub(crate) would_deny: Sum,
    /// Packets that were dropped, but that staged policies would let pass.
    #[serde(skip_serializing_if = "Sum::is_empty")]
    pub(crate) would_allow: Sum,
}

impl Fates {
    fn count(&mut self, flow: &Flow) {
        match flow.key.action {
            Action::Deny => self.deny.count(&flow.counters),
            _ => self.allow.count(&flow.counters),
        }
        match (flow.key.action, flow.would()) {
            (Action::Allow, Some(Action::Deny)) => self.would_deny.count(&flow.counters),
            (Action::Deny, Some(Action::Allow)) => self.would_allow.count(&flow.counters),
            _ => {}
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.allow.add(&other.allow);
        self.deny.add(&other.deny);
        self.would_deny.add(&other.would_deny);
        self.would_allow.add(&other.would_allow);
    }
}

/// Traffic from one peer to a port of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The client.
    pub(crate) source: Peer,
    /// The server.
    pub(crate) dest: Peer,
    /// The protocol.
    pub(crate) protocol: Text,
    /// The server's port.
    pub(crate) port: i64,
    /// What happened to its packets.
    pub(crate) fates: Fates,
}

/// Merges flows.
#[must_use]
pub(crate) fn traffic(flows: &[Flow]) -> Vec<Traffic> {
    let mut ends: BTreeMap<(&Peer, &Peer, &Text, i64), [Option<Fates>; 2]> = BTreeMap::new();
    for flow in flows {
        let key = &flow.key;
        let reports = ends.entry((&key.source, &key.dest, &key.protocol, key.dest_port)).or_default();
        let end = usize::from(key.reporter == Reporter::Dst);
        reports[end].get_or_insert_default().count(flow);
    }
    let merged =
        |((source, dest, protocol, port), reports): ((&Peer, &Peer, &Text, i64), [Option<Fates>; 2])| {
            Traffic {
                source: source.clone(),
                dest: dest.clone(),
                protocol: protocol.clone(),
                port,
                fates: merge(reports),
            }
        };
    ends.into_iter().map(merged).collect()
}

/// The destination's end reports on everything that the source's end let pass, so its report counts for that. Packets
/// that the source's end dropped never arrived there.
fn merge(reports: [Option<Fates>; 2]) -> Fates {
    match reports {
        [Some(source), Some(dest)] => {
            let mut fates = Fates { allow: dest.allow, ..source };
            fates.deny.add(&dest.deny);
            fates.would_allow.add(&dest.would_allow);
            fates.would_deny = larger(source.would_deny, dest.would_deny);
            fates
        }
        [one, two] => one.or(two).unwrap_or_default(),
    }
}

fn larger(one: Sum, two: Sum) -> Sum {
    if (one.packets, one.bytes) >= (two.packets, two.bytes) { one } else { two }
}
