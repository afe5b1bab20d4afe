//! The age of the data, and what was lost: shown in every view.

use crate::source::{Loss, SilentNode, Source};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// The state of the source, for the page.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    source: String,
    /// Why the source is not available.
    problem: Option<String>,
    /// The age of the newest data in seconds.
    age: Option<i64>,
    received: Option<u64>,
    keys: Option<u64>,
    losses: Vec<Loss>,
    /// The number of nodes that report losses; `None` if the source keeps no record.
    nodes: Option<u64>,
    silent: Vec<SilentNode>,
}

/// Queries the state of the source.
pub(crate) async fn status(source: &dyn Source) -> Status {
    let state = source.state().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    Status {
        source: state.name,
        problem: state.problem,
        age: state.newest.map(|newest| (now - newest).max(0)),
        received: state.received,
        keys: state.keys,
        nodes: state.nodes,
        silent: state.silent,
        losses: state.losses.into_iter().filter(|loss| loss.count > 0).collect(),
    }
}
