//! Watches: converts changes of bytes to events, in order, until the first error, which ends the watch.
//!
//! Without a revision, the existing entries come first. There is no resuming and no gap: when the connection is lost,
//! the watch ends with an error, and the caller continues from the last revision it has seen. No bookmarks: etcd's
//! progress messages can overtake events in releases that are still in use, and a wrong bookmark loses changes.

use super::convert::{default_allow_key, invalid, remains};
use super::list::{self, Decoded, Selection};
use super::transport::{
    Change, Entry, RangeRequest, Span, Transport, TransportError, WatchAnswer, WatchRequest,
};
use crate::backend::{Watch, WatchEvent};
use crate::error::{Error, Result};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use std::collections::VecDeque;
use std::sync::Arc;

type Item = std::result::Result<WatchEvent, Error>;

/// Watches the selection after this revision; 0 to begin with the existing entries. The last values of deleted entries
/// are only requested if they are wanted, or decide whether the entries were selected: etcd sends the old value of
/// every change with it.
pub(super) async fn watch(
    transport: Arc<dyn Transport>,
    selection: Arc<Selection>,
    revision: i64,
    deleted_keys_only: bool,
) -> Result<Watch> {
    let mut first = VecDeque::new();
    let mut after = revision;
    if revision == 0 {
        let found = list::list(&*transport, &selection, 0).await?;
        after = super::convert::exact_revision(&found.revision)?;
        let ours = default_allow_key();
        first.extend(found.invalid.into_iter().map(|entry| Ok(WatchEvent::Invalid(entry))));
        let items = found.items.into_iter().filter(|item| item.key != ours);
        first.extend(items.map(|item| Ok(WatchEvent::Added(item))));
    }
    let request = WatchRequest {
        span: selection.watch_span.clone(),
        start_revision: after.saturating_add(1),
        needs_previous: !(deleted_keys_only && selection.is_told_by_path()),
    };
    let WatchAnswer { revision, changes } = transport.watch(request).await.map_err(watch_error)?;
    if revision > 0 && after > revision {
        // Either this member lags behind the one that was read from, or the store was restored from an older copy and
        // the watch would wait in silence until it has caught up. A read settles it: it waits for all members.
        let request = RangeRequest { span: Span::key(&b"/calico/"[..]), revision: 0, limit: 1 };
        let newest = transport.range(request).await.map_err(watch_error)?.revision;
        if after > newest {
            let reason = format!("the store is at revision {newest}, before {after}");
            return Err(Error::Expired { reason });
        }
    }
    let state = State { ready: first, changes: Some(changes), selection };
    Ok(stream::unfold(state, next).boxed())
}

/// A watch between two events. Without changes it has ended.
struct State {
    ready: VecDeque<Item>,
    changes: Option<BoxStream<'static, std::result::Result<Vec<Change>, TransportError>>>,
    selection: Arc<Selection>,
}

async fn next(mut state: State) -> Option<(Item, State)> {
    loop {
        if let Some(item) = state.ready.pop_front() {
            if item.is_err() {
                state.changes = None;
                state.ready.clear();
            }
            return Some((item, state));
        }
        match state.changes.as_mut()?.next().await {
            Some(Ok(batch)) => {
                state.ready.extend(batch.iter().filter_map(|change| event(&state.selection, change)));
            }
            Some(Err(error)) => state.ready.push_back(Err(watch_error(error))),
            None => {
                let reason = "the store ended it".to_owned();
                state.ready.push_back(Err(Error::WatchClosed { reason }));
            }
        }
    }
}

fn watch_error(error: TransportError) -> Error {
    match error {
        TransportError::Revision(reason) => Error::Expired { reason },
        TransportError::Unauthorized(reason) => Error::Unauthorized { reason },
        TransportError::Unavailable(reason)
        | TransportError::Failed(reason)
        | TransportError::TooLarge(reason) => Error::WatchClosed { reason },
    }
}

fn event(selection: &Selection, change: &Change) -> Option<Item> {
    match change {
        Change::Put(entry) => put_event(selection, entry),
        Change::Delete { key, revision, previous } => {
            delete_event(selection, key, *revision, previous.as_ref())
        }
    }
}

fn put_event(selection: &Selection, entry: &Entry) -> Option<Item> {
    let new = match selection.decode(entry) {
        Decoded::Selected(pair) => pair,
        Decoded::Invalid(entry) => return Some(Ok(WatchEvent::Invalid(entry))),
        Decoded::Other => return None,
    };
    if entry.version == 1 {
        return Some(Ok(WatchEvent::Added(new)));
    }
    Some(Ok(WatchEvent::Modified { new }))
}

fn delete_event(selection: &Selection, path: &[u8], revision: i64, previous: Option<&Entry>) -> Option<Item> {
    let key = selection.deleted_key(path)?;
    let held = match previous {
        Some(previous) => match selection.decode(previous) {
            Decoded::Selected(pair) => Some(pair),
            Decoded::Other => return None,
            Decoded::Invalid(_) => None,
        },
        None => None,
    };
    match held {
        Some(mut pair) => {
            pair.set_revision(&revision.to_string());
            Some(Ok(WatchEvent::Deleted(pair)))
        }
        // Its last value is unknown, but it is gone: it must not be kept.
        None => Some(match remains(&key, revision) {
            Some(pair) => Ok(WatchEvent::Deleted(pair)),
            None => {
                let entry = invalid(path, Some(key), "deleted; its value cannot be read".to_owned());
                Err(Error::Expired { reason: format!("{}: {}", entry.key, entry.reason) })
            }
        }),
    }
}
