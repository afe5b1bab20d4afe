//! Measures the matrix of a lab: expectations from its datastore, probes in its pods, and a retry of cells that differ,
//! because programs need a moment to apply a change.

use crate::interrupt;
use crate::lab::Lab;
use crate::matrix::{Cell, Columns, Matrix, Party};
use crate::probe::{self, Errand, Target};
use anyhow::Result;
use client::Client;
use explain::World;
use std::time::{Duration, Instant};

/// How long a probe waits for an answer. Packets that policy drops are never answered, so this is the duration of a
/// matrix.
const FIRST_LOOK: Duration = Duration::from_millis(400);
/// How long a retry waits: a lost first packet is sent again after a second.
const LATER_LOOK: Duration = Duration::from_millis(1500);

/// Measures the matrix. Cells that differ are retried until they agree or `patience` is over.
///
/// # Errors
/// When the datastore cannot be read or a namespace cannot be entered.
pub(crate) fn matrix(lab: &Lab, columns: &Columns, patience: Duration) -> Result<Matrix> {
    let parties: Vec<Party> = lab
        .state
        .pods
        .values()
        .map(|state| Party {
            name: state.pod.full_name(),
            node: state.pod.node.clone(),
            addresses: state.addresses.clone(),
            ports: state.pod.ports.clone(),
        })
        .collect();
    let mut cluster = lab.with_client(async |client: &Client| Ok(explain_source::read(client).await?))?;
    cluster.complete();
    let mut matrix = Matrix::expect(&parties, columns, &World::new(&cluster))?;
    look(lab, &mut matrix, FIRST_LOOK, |_| true)?;
    let deadline = Instant::now() + patience;
    matrix.ended = ended(lab)?;
    while !matrix.agrees() && Instant::now() < deadline && !interrupt::came() {
        // A pod whose responder ended stays silent: retrying would only take time.
        let silent = &matrix.ended;
        let hopeless =
            matrix.receivers.iter().map(|receiver| silent.contains(&receiver.pod)).collect::<Vec<_>>();
        let wrong =
            |row: &Vec<Cell>| row.iter().zip(&hopeless).any(|(cell, hopeless)| !cell.agrees() && !*hopeless);
        if !matrix.cells.iter().any(wrong) {
            break;
        }
        // A cell that should be refused and is not shows at once; a cell that should be reached may need the time.
        look(lab, &mut matrix, LATER_LOOK, |cell| !cell.agrees())?;
    }
    Ok(matrix)
}

/// The pods whose responder ended.
fn ended(lab: &Lab) -> Result<Vec<String>> {
    let programs = lab.programs()?;
    let ended = programs.iter().filter(|(_, program)| program.is_err());
    Ok(ended.filter_map(|(name, _)| name.strip_prefix("pod/").map(str::to_owned)).collect())
}

/// Probes the wanted cells.
fn look(lab: &Lab, matrix: &mut Matrix, patience: Duration, wanted: impl Fn(&Cell) -> bool) -> Result<()> {
    let mut errands = Vec::new();
    let mut places = Vec::new();
    for (row, sender) in matrix.senders.iter().enumerate() {
        let Some(state) = lab.state.pods.get(&sender.pod) else { continue };
        let mut targets = Vec::new();
        for (column, receiver) in matrix.receivers.iter().enumerate() {
            if receiver.pod == sender.pod || !wanted(&matrix.cells[row][column]) {
                continue;
            }
            targets.push(Target {
                address: receiver.address,
                port: receiver.port,
                protocol: receiver.protocol,
                name: receiver.pod.clone(),
            });
            places.push((row, column));
        }
        errands.push(Errand { netns: state.netns.clone(), targets });
    }
    let outcomes = probe::run(&errands, patience)?;
    for ((row, column), reached) in places.into_iter().zip(outcomes.into_iter().flatten()) {
        matrix.cells[row][column].reached = Some(reached);
    }
    Ok(())
}
