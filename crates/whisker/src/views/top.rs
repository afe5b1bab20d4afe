//! Top talkers.

use super::traffic::{Fates, Sum, Traffic, traffic};
use crate::source::Flow;
use crate::wire;
use flows::Peer;
use serde::Serialize;
use std::collections::BTreeMap;

/// What to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Of {
    /// Pairs of client and server.
    #[default]
    Pair,
    /// Clients.
    Source,
    /// Servers.
    Dest,
    /// Ports.
    Port,
}

/// The quantity to compare by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum By {
    /// Bytes that passed.
    #[default]
    Bytes,
    /// Packets that passed.
    Packets,
    /// Connections that began and were allowed.
    Connections,
    /// Packets that were dropped.
    Denied,
}

/// A list in descending order.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Top {
    items: Vec<Item>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Item {
    #[serde(flatten)]
    names: Names,
    #[serde(flatten)]
    fates: Fates,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Names {
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
}

/// Builds the list.
#[must_use]
pub(crate) fn top(flows: &[Flow], of: Of, by: By, most: usize) -> Top {
    let mut sums: BTreeMap<Names, Fates> = BTreeMap::new();
    for one in &traffic(flows) {
        sums.entry(names(of, one)).or_default().add(&one.fates);
    }
    let value = |fates: &Fates| {
        let of = |sum: &Sum, by: By| match by {
            By::Bytes => sum.bytes,
            By::Packets | By::Denied => sum.packets,
            By::Connections => sum.connections,
        };
        if by == By::Denied { of(&fates.deny, by) } else { of(&fates.allow, by) }
    };
    let mut items: Vec<Item> = sums.into_iter().map(|(names, fates)| Item { names, fates }).collect();
    items.retain(|item| value(&item.fates) > 0);
    items.sort_by_key(|item| std::cmp::Reverse(value(&item.fates)));
    items.truncate(most);
    Top { items }
}

fn names(of: Of, traffic: &Traffic) -> Names {
    let peer = |peer: &Peer| Some(format!("{}/{}", wire::namespace(&peer.namespace), wire::name(&peer.name)));
    match of {
        Of::Pair => Names { source: peer(&traffic.source), dest: peer(&traffic.dest), ..Names::default() },
        Of::Source => Names { source: peer(&traffic.source), ..Names::default() },
        Of::Dest => Names { dest: peer(&traffic.dest), ..Names::default() },
        Of::Port => {
            Names { port: Some(format!("{}/{}", traffic.protocol, traffic.port)), ..Names::default() }
        }
    }
}
