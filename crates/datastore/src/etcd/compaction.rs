//! Compacts old revisions, in turn with all other programs that do so on the same store.
//!
//! All programs that compact an etcd in Kubernetes' way use one key, `compact_rev_key`: the program that can overwrite
//! the version it saw last time compacts this time, to the revision that was current one period ago. So the history of
//! one period is always kept, however many programs there are.

use super::transport::{Condition, Entry, Step, Transaction, Transport, TransportError};
use crate::backend::Compaction;
use bytes::Bytes;

/// The key that all of them write.
const MARKER: &str = "compact_rev_key";

/// Runs one round, given the state of the last one.
pub(super) async fn round(transport: &dyn Transport, seen: Compaction) -> Result<Compaction, TransportError> {
    let key = Bytes::from_static(MARKER.as_bytes());
    let condition = match seen.marker {
        0 => Condition::Absent(key.clone()),
        revision => Condition::WrittenAt(key.clone(), revision),
    };
    let value = Bytes::from(seen.revision.to_string());
    let transaction = Transaction {
        conditions: vec![condition],
        then: vec![Step::Put { key: key.clone(), value, lease: 0 }],
        otherwise: vec![Step::Get { key, revision: 0 }],
    };
    let answer = transport.transact(transaction).await?;
    if !answer.succeeded {
        // Another program had this turn.
        let marker = answer.found.iter().flatten().next().map_or(0, |entry: &Entry| entry.mod_revision);
        return Ok(Compaction { marker, revision: answer.revision, compacted: None });
    }
    let mut next = Compaction { marker: answer.revision, revision: answer.revision, compacted: None };
    // In the first round no revision is known to be old enough.
    if seen.revision > 0 {
        match transport.compact(seen.revision).await {
            Ok(()) => next.compacted = Some(seen.revision),
            // Already compacted further.
            Err(TransportError::Revision(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(next)
}
