//! Forgetting old revisions, in turn with everybody else who does it on the same store.
//!
//! Every program that compacts an etcd in Kubernetes' way keeps to one key, `compact_rev_key`: who can write it as it was
//! seen last time is the one who compacts this time, and compacts to the revision that was current a period ago. So however
//! many programs there are, the history of one period always stays.

use super::transport::{Condition, Entry, Step, Transaction, Transport, TransportError};
use crate::backend::Compaction;
use bytes::Bytes;

/// The key that all of them write.
const MARKER: &str = "compact_rev_key";

/// One round, given what the last one saw.
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
        // Somebody else had this turn.
        let marker = answer.found.iter().flatten().next().map_or(0, |entry: &Entry| entry.mod_revision);
        return Ok(Compaction { marker, revision: answer.revision, compacted: None });
    }
    let mut next = Compaction { marker: answer.revision, revision: answer.revision, compacted: None };
    // In the first round nothing is known to be old enough.
    if seen.revision > 0 {
        match transport.compact(seen.revision).await {
            Ok(()) => next.compacted = Some(seen.revision),
            // Compacted further already.
            Err(TransportError::Revision(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(next)
}
