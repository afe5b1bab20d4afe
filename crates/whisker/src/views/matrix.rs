//! The matrix of all workloads: what policies decide, beside what was seen. Bounded: with more workloads than a page
//! holds, only the namespaces are listed, and the user has to choose one.

use super::traffic::traffic;
use crate::source::Flow;
use api::Resource;
use explain::{Cluster, MatrixOptions, QueryError, Verdict};
use flows::Peer;
use serde::Serialize;
use std::collections::BTreeMap;

/// The matrix, for the page.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Matrix {
    /// The number of workloads in each namespace.
    namespaces: BTreeMap<String, usize>,
    /// Whether there are too many workloads for all of them.
    too_many: bool,
    senders: Vec<String>,
    receivers: Vec<String>,
    /// Cells by row.
    cells: Vec<Vec<Cell>>,
    /// The decisions behind refused cells.
    reasons: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Cell {
    #[serde(rename = "v")]
    verdict: &'static str,
    /// The index of the reason.
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    reason: Option<usize>,
    /// Seen packets that passed.
    #[serde(rename = "a", skip_serializing_if = "is_zero")]
    allowed: u64,
    /// Seen packets that were dropped.
    #[serde(rename = "d", skip_serializing_if = "is_zero")]
    denied: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The name of a workload in columns and rows.
pub(crate) fn cell_names(resource: &Resource) -> Option<String> {
    let Resource::WorkloadEndpoint(endpoint) = resource else { return None };
    Some(format!("{}/{}", resource.namespace(), endpoint.spec.pod))
}

/// Builds the matrix.
///
/// # Errors
/// When the query names something that does not exist.
pub(crate) fn matrix(
    cluster: &Cluster,
    options: &MatrixOptions,
    flows: &[Flow],
    most: usize,
) -> Result<Matrix, QueryError> {
    let mut namespaces: BTreeMap<String, usize> = BTreeMap::new();
    for name in cluster.resources().filter_map(cell_names) {
        let namespace = name.split_once('/').map_or("", |(namespace, _)| namespace);
        *namespaces.entry(namespace.to_owned()).or_default() += 1;
    }
    let count = match &options.namespace {
        Some(namespace) => namespaces.get(namespace).copied().unwrap_or_default(),
        None => namespaces.values().sum(),
    };
    let mut made = Matrix {
        namespaces,
        too_many: count > most,
        senders: Vec::new(),
        receivers: Vec::new(),
        cells: Vec::new(),
        reasons: Vec::new(),
    };
    if made.too_many {
        return Ok(made);
    }
    let found = explain::matrix(cluster, options)?;
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for row in found.cells {
        let mut cells = Vec::with_capacity(row.len());
        for cell in row {
            let reason = (cell.verdict != Verdict::Allow).then(|| {
                let next = places.len();
                *places.entry(without_place(&cell.decided_by)).or_insert(next)
            });
            cells.push(Cell { verdict: cell.verdict.as_str(), reason, ..Cell::default() });
        }
        made.cells.push(cells);
    }
    made.reasons = vec![String::new(); places.len()];
    for (reason, place) in places {
        made.reasons[place] = reason;
    }
    (made.senders, made.receivers) = (found.senders, found.receivers);
    add_seen(&mut made, flows);
    Ok(made)
}

/// The reason without the receiver's name, which is the column's heading already.
fn without_place(reason: &str) -> String {
    for direction in ["ingress", "egress"] {
        let rest = reason.strip_prefix(direction).and_then(|rest| rest.strip_prefix(" of "));
        if let Some((_, rest)) = rest.and_then(|rest| rest.split_once(": ")) {
            return format!("{direction}: {rest}");
        }
    }
    reason.to_owned()
}

fn add_seen(matrix: &mut Matrix, flows: &[Flow]) {
    for one in traffic(flows) {
        let port = format!(":{}", one.port);
        let columns: Vec<usize> = matrix
            .receivers
            .iter()
            .enumerate()
            .filter(|(_, name)| name.strip_suffix(&port).is_some_and(|name| stands_for(&one.dest, name)))
            .map(|(column, _)| column)
            .collect();
        for (row, sender) in matrix.senders.iter().enumerate() {
            if !stands_for(&one.source, sender) {
                continue;
            }
            for column in &columns {
                if let Some(cell) = matrix.cells.get_mut(row).and_then(|cells| cells.get_mut(*column)) {
                    cell.allowed = cell.allowed.saturating_add(one.fates.allow.packets);
                    cell.denied = cell.denied.saturating_add(one.fates.deny.packets);
                }
            }
        }
    }
}

/// Whether a flow's end, which may stand for several pods, includes this workload.
fn stands_for(peer: &Peer, workload: &str) -> bool {
    let Some((namespace, name)) = workload.split_once('/') else { return false };
    *peer.namespace == *namespace
        && match peer.name.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *peer.name == *name,
        }
}
