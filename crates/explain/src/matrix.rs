//! Everybody to everybody: which cells are refused, and by what.

use crate::clauses::Packet;
use crate::party::{Protocol, QueryError};
use crate::report::Verdict;
use crate::route::{Flow, Who};
use crate::world::{Item, ItemKind, World};
use crate::{Cluster, Query};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a matrix is about.
#[derive(Clone, Debug, Default)]
pub struct MatrixOptions {
    /// Only workloads of this namespace; of all if none.
    pub namespace: Option<String>,
    /// Further senders, as in [`Query::from`].
    pub more_senders: Vec<String>,
    /// The protocol; TCP if none.
    pub protocol: Option<Protocol>,
    /// The port; each receiver's own first named port if none, else 80.
    pub port: Option<u16>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// What becomes of packets.
    pub verdict: Verdict,
    /// What decided, if they are refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub decided_by: String,
}

/// The matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// The senders, one per row.
    pub senders: Vec<String>,
    /// The receivers with their ports, one per column.
    pub receivers: Vec<String>,
    /// The cells, row by row.
    pub cells: Vec<Vec<Cell>>,
}

/// The port of receivers that name none.
const USUAL_PORT: u16 = 80;

/// Computes the matrix.
///
/// # Errors
/// When a further sender is not in the cluster.
pub fn matrix(cluster: &Cluster, options: &MatrixOptions) -> Result<Matrix, QueryError> {
    let world = World::new(cluster);
    let is_meant = |item: &&Item| {
        item.kind == ItemKind::Workload
            && options.namespace.as_ref().is_none_or(|namespace| item.identity.1 == *namespace)
    };
    let mut receivers: Vec<&Item> = world.items.iter().filter(is_meant).collect();
    receivers.sort_by_key(|item| (&item.identity.1, &item.short_name));
    let protocol = options.protocol.unwrap_or(Protocol::TCP).0;
    let mut senders: Vec<(String, Who<'_>, Vec<std::net::IpAddr>)> = receivers
        .iter()
        .map(|item| (short(item), Who::Workload(item), item.nets.iter().map(ipnet::IpNet::addr).collect()))
        .collect();
    for text in &options.more_senders {
        let Some(to) = receivers.first() else { break };
        let query = Query {
            from: text.clone(),
            to: format!("pod:{}/{}", to.identity.1, to.short_name),
            port: Some(USUAL_PORT),
            ..Query::default()
        };
        let flow = world.flows(&query)?.into_iter().next();
        senders.extend(flow.map(|flow| (text.clone(), flow.from, vec![flow.packet.source])));
    }
    let own_port = |item: &Item| {
        let named = item.ports.iter().find(|port| port.protocol.number() == Some(protocol));
        options.port.or(named.map(|port| port.port)).unwrap_or(USUAL_PORT)
    };
    let has_ports = matches!(protocol, 6 | 17 | 132);
    let mut cells = Vec::with_capacity(senders.len());
    for (_, from, addresses) in &senders {
        let mut row = Vec::with_capacity(receivers.len());
        for item in &receivers {
            let receiver: Vec<_> = item.nets.iter().map(ipnet::IpNet::addr).collect();
            let pair = [false, true].into_iter().find_map(|v6| {
                let of =
                    |list: &[std::net::IpAddr]| list.iter().copied().find(|address| address.is_ipv6() == v6);
                Some((of(addresses)?, of(&receiver)?))
            });
            let Some((source, destination)) = pair else {
                let decided_by = "no addresses of the same IP version".to_owned();
                row.push(Cell { verdict: Verdict::Deny, decided_by });
                continue;
            };
            let packet = Packet {
                source,
                destination,
                protocol: if protocol == 1 && destination.is_ipv6() { 58 } else { protocol },
                source_port: 40_000,
                destination_port: if has_ports { own_port(item) } else { 0 },
                icmp: if destination.is_ipv6() { (128, 0) } else { (8, 0) },
            };
            let flow = Flow { from: *from, to: Who::Workload(item), packet };
            let report = world.report(&flow, false);
            let denied = report.verdict == Verdict::Deny;
            row.push(Cell {
                verdict: report.verdict,
                decided_by: if denied { report.decided_by } else { String::new() },
            });
        }
        cells.push(row);
    }
    let column =
        |item: &&Item| if has_ports { format!("{}:{}", short(item), own_port(item)) } else { short(item) };
    Ok(Matrix {
        senders: senders.into_iter().map(|(name, ..)| name).collect(),
        receivers: receivers.iter().map(column).collect(),
        cells,
    })
}

fn short(item: &Item) -> String {
    format!("{}/{}", item.identity.1, item.short_name)
}

impl Matrix {
    /// A grid for a terminal: `+` for allowed, a number for refused, and below it what each number stands for.
    #[must_use]
    pub fn to_text(&self) -> String {
        if self.receivers.is_empty() {
            return "no workloads\n".to_owned();
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let mut order = Vec::new();
        for cell in self.cells.iter().flatten().filter(|cell| cell.verdict == Verdict::Deny) {
            if !reasons.contains_key(cell.decided_by.as_str()) {
                order.push(cell.decided_by.as_str());
                reasons.insert(&cell.decided_by, order.len());
            }
        }
        let mut out = String::new();
        for (index, name) in self.receivers.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "to {} = {name}", letter(index));
        }
        let width = self.senders.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(4);
        let cell_width =
            reasons.len().to_string().len().max(letter(self.receivers.len().saturating_sub(1)).len());
        let _ = write!(out, "\n{:width$}", "from");
        for index in 0..self.receivers.len() {
            let _ = write!(out, "  {:>cell_width$}", letter(index));
        }
        out.push('\n');
        for (name, row) in self.senders.iter().zip(&self.cells) {
            let _ = write!(out, "{name:width$}");
            for cell in row {
                let sign = match cell.verdict {
                    Verdict::Deny => {
                        reasons.get(cell.decided_by.as_str()).map_or_else(String::new, ToString::to_string)
                    }
                    Verdict::Allow | Verdict::Partly => "+".to_owned(),
                };
                let _ = write!(out, "  {sign:>cell_width$}");
            }
            out.push('\n');
        }
        out.push_str("\n+ allowed\n");
        for (index, reason) in order.iter().enumerate() {
            let _ = writeln!(out, "{} refused: {reason}", index + 1);
        }
        out
    }
}

/// A, B, ... Z, AA, AB, ...
fn letter(index: usize) -> String {
    let last = char::from(b'A' + u8::try_from(index % 26).unwrap_or_default());
    if index < 26 { last.to_string() } else { format!("{}{last}", letter(index / 26 - 1)) }
}
