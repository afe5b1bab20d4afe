//! All pairs of senders and receivers: which cells are denied, and by what.

mod ports;

use crate::clauses::Packet;
use crate::counted::counted;
use crate::page::{Page, PageCell, PageColumn, PageRow, Sign};
use crate::party::{Protocol, QueryError};
use crate::report::Verdict;
use crate::route::{Flow, Who};
use crate::world::{Item, ItemKind, World};
use crate::{Cluster, Query};
use ports::PortsByReceiver;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

/// The scope of a matrix.
#[derive(Clone, Debug, Default)]
pub struct MatrixOptions {
    /// Only workloads of this namespace; all if `None`.
    pub namespace: Option<String>,
    /// Further senders, as in [`Query::from`].
    pub more_senders: Vec<String>,
    /// The protocol; TCP if `None`.
    pub protocol: Option<Protocol>,
    /// The port; if `None`, each receiver's declared ports and those that policies name for it, else 80. If policies
    /// name many, some are left out: [`Matrix::not_asked`].
    pub port: Option<u16>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// The verdict.
    pub verdict: Verdict,
    /// What decided, if packets are denied.
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
    /// Ports that policies name for a receiver but that were not tested, because there are too many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_asked: Vec<u16>,
}

/// The port for receivers that declare none and that no policy names a port for.
const USUAL_PORT: u16 = 80;

/// Computes the matrix.
///
/// # Errors
/// When a further sender is not in the cluster.
pub fn matrix(cluster: &Cluster, options: &MatrixOptions) -> Result<Matrix, QueryError> {
    let world = World::new(cluster);
    build(&world, options, &ports::of(&world, options))
}

/// Computes the matrices of two clusters. Both cover the ports that either cluster declares or names, so that a policy
/// about a new port shows what it changes.
///
/// # Errors
/// When a further sender is in neither cluster.
pub fn matrices(
    before: &Cluster,
    after: &Cluster,
    options: &MatrixOptions,
) -> Result<(Matrix, Matrix), QueryError> {
    let (before, after) = (World::new(before), World::new(after));
    let ports = ports::together(ports::of(&before, options), ports::of(&after, options));
    Ok((build(&before, options, &ports)?, build(&after, options, &ports)?))
}

fn receivers<'w>(world: &'w World<'_>, options: &MatrixOptions) -> Vec<&'w Item> {
    let is_meant = |item: &&Item| {
        item.kind == ItemKind::Workload
            && options.namespace.as_ref().is_none_or(|namespace| item.identity.1 == *namespace)
    };
    let mut receivers: Vec<&Item> = world.items.iter().filter(is_meant).collect();
    receivers.sort_by_key(|item| (&item.identity.1, &item.short_name));
    receivers
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, 6 | 17 | 132)
}

fn build(world: &World<'_>, options: &MatrixOptions, ports: &PortsByReceiver) -> Result<Matrix, QueryError> {
    let receivers = receivers(world, options);
    let protocol = options.protocol.unwrap_or(Protocol::TCP).0;
    let mut senders: Vec<(String, Who<'_>, Vec<IpAddr>)> = receivers
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
    let columns: Vec<(&Item, u16)> = receivers
        .iter()
        .flat_map(|item| {
            let asked = ports.get(&short(item)).map(|ports| ports.asked.clone());
            let asked = asked.filter(|asked| !asked.is_empty());
            asked.unwrap_or_else(|| BTreeSet::from([USUAL_PORT])).into_iter().map(move |port| (*item, port))
        })
        .collect();
    let cells = senders
        .iter()
        .map(|(_, from, addresses)| {
            columns.iter().map(|(item, port)| cell(world, *from, addresses, item, protocol, *port)).collect()
        })
        .collect();
    let column = |(item, port): &(&Item, u16)| {
        if has_ports(protocol) { format!("{}:{port}", short(item)) } else { short(item) }
    };
    Ok(Matrix {
        senders: senders.into_iter().map(|(name, ..)| name).collect(),
        receivers: columns.iter().map(column).collect(),
        cells,
        not_asked: ports::left_out(ports),
    })
}

fn cell<'w>(
    world: &'w World<'_>,
    from: Who<'w>,
    addresses: &[IpAddr],
    to: &'w Item,
    protocol: u8,
    port: u16,
) -> Cell {
    let receiver: Vec<IpAddr> = to.nets.iter().map(ipnet::IpNet::addr).collect();
    let pair = [false, true].into_iter().find_map(|v6| {
        let of = |list: &[IpAddr]| list.iter().copied().find(|address| address.is_ipv6() == v6);
        Some((of(addresses)?, of(&receiver)?))
    });
    let Some((source, destination)) = pair else {
        let decided_by = "no addresses of the same IP version".to_owned();
        return Cell { verdict: Verdict::Deny, decided_by };
    };
    let packet = Packet {
        source,
        destination,
        protocol: if protocol == 1 && destination.is_ipv6() { 58 } else { protocol },
        source_port: 40_000,
        destination_port: port,
        icmp: if destination.is_ipv6() { (128, 0) } else { (8, 0) },
    };
    let report = world.report(&Flow { from, to: Who::Workload(to), packet }, false);
    let denied = report.verdict == Verdict::Deny;
    Cell { verdict: report.verdict, decided_by: if denied { report.decided_by } else { String::new() } }
}

fn short(item: &Item) -> String {
    format!("{}/{}", item.identity.1, item.short_name)
}

impl Matrix {
    /// The ports of the columns, deduplicated and in order.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        let port = |name: &String| name.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let ports: BTreeSet<u16> = self.receivers.iter().filter_map(port).collect();
        ports.into_iter().collect()
    }

    /// How many ports were not tested, and which.
    fn not_asked(&self) -> Option<String> {
        let were = if self.not_asked.len() == 1 { "was" } else { "were" };
        let count = counted(self.not_asked.len(), "more port");
        let line = || format!("{count} {were} not tested: {}", ports::text(&self.not_asked));
        (!self.not_asked.is_empty()).then(line)
    }

    /// What decides the denied cells, deduplicated, in order of first appearance.
    fn reasons(&self) -> Vec<&str> {
        let mut order: Vec<&str> = Vec::new();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for cell in self.cells.iter().flatten().filter(|cell| cell.verdict == Verdict::Deny) {
            if known.insert(&cell.decided_by) {
                order.push(&cell.decided_by);
            }
        }
        order
    }

    /// The cell between a sender and a receiver, by their names.
    fn between(&self, sender: &str, receiver: &str) -> Option<&Cell> {
        let place = |names: &[String], name: &str| names.iter().position(|other| other == name);
        self.cells.get(place(&self.senders, sender)?)?.get(place(&self.receivers, receiver)?)
    }

    /// Descriptions of the cells that are in both matrices and differ.
    #[must_use]
    pub fn changes_from(&self, before: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (sender, row) in self.senders.iter().zip(&self.cells) {
            for (receiver, cell) in self.receivers.iter().zip(row) {
                if let Some(old) = before.between(sender, receiver)
                    && old.verdict != cell.verdict
                {
                    let (old, new) = (old.verdict.as_str(), cell.verdict.as_str());
                    changes.push(format!("{sender} -> {receiver}: {old} becomes {new}"));
                }
            }
        }
        changes
    }

    /// The matrix as a page; differences from an earlier matrix are marked and listed.
    #[must_use]
    pub fn to_page(&self, before: Option<&Self>) -> Page {
        let reasons = self.reasons();
        let columns = self.receivers.iter().map(|receiver| match receiver.rsplit_once(':') {
            Some((name, port)) => PageColumn { name: name.to_owned(), port: format!(":{port}") },
            None => PageColumn { name: receiver.clone(), port: String::new() },
        });
        let rows = self.senders.iter().zip(&self.cells).map(|(sender, row)| {
            let cells = self.receivers.iter().zip(row).map(|(receiver, cell)| {
                let old = before.and_then(|before| before.between(sender, receiver));
                let changed = old.filter(|old| old.verdict != cell.verdict);
                let was =
                    changed.map(|old| format!("; before: {}", old.verdict.as_str())).unwrap_or_default();
                let number = reasons.iter().position(|reason| *reason == cell.decided_by);
                let (sign, detail) = match cell.verdict {
                    Verdict::Deny => (
                        Sign::Refused(number.unwrap_or_default() + 1),
                        format!("{sender} → {receiver}: refused at {}{was}", cell.decided_by),
                    ),
                    Verdict::Allow | Verdict::Partly => {
                        (Sign::Allowed, format!("{sender} → {receiver}: allowed{was}"))
                    }
                };
                PageCell { sign, was_allowed: changed.map(|old| old.verdict != Verdict::Deny), detail }
            });
            PageRow { name: sender.clone(), note: String::new(), cells: cells.collect() }
        });
        Page {
            title: "Who may talk to whom".to_owned(),
            facts: Vec::new(),
            about: "Computed from policies; no packet was sent.".to_owned(),
            columns: columns.collect(),
            rows: rows.collect(),
            reasons: reasons.iter().map(ToString::to_string).collect(),
            lists: vec![
                (
                    "What would change".to_owned(),
                    before.map(|before| self.changes_from(before)).unwrap_or_default(),
                ),
                ("Not tested".to_owned(), self.not_asked().into_iter().collect()),
            ],
        }
    }

    /// A grid for a terminal: `+` for allowed, a number for denied, followed by the meaning of each number.
    #[must_use]
    pub fn to_text(&self) -> String {
        if self.receivers.is_empty() {
            return "no workloads\n".to_owned();
        }
        let order = self.reasons();
        let reasons: BTreeMap<&str, usize> =
            order.iter().enumerate().map(|(index, reason)| (*reason, index + 1)).collect();
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
        if let Some(line) = self.not_asked() {
            let _ = writeln!(out, "{line}");
        }
        out
    }
}

/// A, B, ... Z, AA, AB, ...
fn letter(index: usize) -> String {
    let last = char::from(b'A' + u8::try_from(index % 26).unwrap_or_default());
    if index < 26 { last.to_string() } else { format!("{}{last}", letter(index / 26 - 1)) }
}
