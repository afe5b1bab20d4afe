//! Watches: existing objects (if requested), changes, bookmarks, and a proper end.

use crate::cache::{Cache, Since, Told, line};
use crate::entry::{Entry, Filter, bookmark, encoded, number};
use crate::kinds::Served;
use crate::request::Options;
use crate::status::{Outcome, Refusal};
use crate::store::Store;
use crate::tables::{Form, columns, metadata_of, row, table};
use api::Resource;
use bytes::{BufMut as _, Bytes, BytesMut};
use client::{ListQuery, ResourceEvent, ResourceWatch};
use daemon::Shutdown;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How many changes are written at once.
const AT_ONCE: usize = 256;
/// How often bookmarks report progress.
const BOOKMARK: Duration = Duration::from_secs(60);
/// The minimum duration of a watch in seconds; each ends after a random time between this and twice this.
const SHORTEST: u64 = 1800;
/// How many clients may follow the store themselves, because they resume from before the start of our cache.
const MOST_DIRECT: usize = 128;

static DIRECT: AtomicUsize = AtomicUsize::new(0);

/// The lines of a watch.
pub(crate) type Lines = BoxStream<'static, Bytes>;

/// What a watcher sees, and how it is written.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    /// The resource.
    pub served: &'static Served,
    /// Which objects the watcher sees.
    pub filter: Filter,
    /// The form of the objects.
    pub form: Form,
}

impl Style {
    fn is_undecided(&self, entry: &Entry) -> bool {
        self.filter.visible.as_ref().is_some_and(|visible| visible.is_undecided(entry))
    }

    /// An event line in this form. Only the first table includes its columns.
    fn line(&self, told: &Told, is_first: bool) -> Bytes {
        let (word, entry) = told.parts();
        match self.form {
            Form::Whole => told.line(),
            Form::Metadata => line(word, metadata_of(&entry.json).to_string().as_bytes()),
            Form::Table(included) => {
                let columns = if is_first { columns(self.served) } else { json!([]) };
                let row = row(self.served, &entry.json, included, jiff::Timestamp::now());
                let metadata = json!({"resourceVersion": entry.revision});
                line(word, table(&metadata, &columns, &[row]).to_string().as_bytes())
            }
        }
    }

    fn bookmark(&self, revision: &str, ends_initial: bool) -> Bytes {
        let object = bookmark(self.served.kind, revision, ends_initial);
        match self.form {
            Form::Whole => line("BOOKMARK", object.to_string().as_bytes()),
            Form::Metadata => {
                let whole = Bytes::from(object.to_string());
                line("BOOKMARK", metadata_of(&whole).to_string().as_bytes())
            }
            Form::Table(_) => {
                let rows = [json!({"cells": [], "object": object})];
                let text = table(&json!({"resourceVersion": revision}), &json!([]), &rows).to_string();
                line("BOOKMARK", text.as_bytes())
            }
        }
    }
}

/// Begins a watch.
///
/// # Errors
/// When the watch cannot begin: the revision is gone or not reached yet, or the store is unreachable.
pub(crate) async fn begin(
    store: &Store,
    style: Style,
    options: &Options,
    shutdown: Shutdown,
) -> Outcome<Lines> {
    let served = style.served;
    // Zero also means no timeout, as in Kubernetes' servers.
    let seconds = options
        .timeout
        .filter(|seconds| *seconds > 0)
        .unwrap_or_else(|| SHORTEST + u64::from(std::process::id()) % SHORTEST);
    let deadline = Instant::now() + Duration::from_secs(seconds.min(7 * 24 * 3600));
    let from_now = matches!(options.resource_version.as_str(), "" | "0");
    let cache = store.cache(served);
    // Otherwise the first watches of a kind would each follow the store.
    store.warm(served).await;
    let (first, at) = if options.initial_events || from_now {
        // `0` accepts any available state; otherwise it must be as new as the store, or as the revision.
        let moment = match options.resource_version.as_str() {
            "0" => crate::request::Moment::Any,
            "" => crate::request::Moment::Newest,
            text => number(text).map_or(crate::request::Moment::Newest, crate::request::Moment::NotOlderThan),
        };
        let listed = store.list(served, &moment).await?;
        let mut lines = BytesMut::new();
        let mut is_first = true;
        for entry in listed.entries.iter().filter(|entry| style.filter.passes(entry)) {
            lines.put(style.line(&Told::Added(Arc::clone(entry)), is_first));
            is_first = false;
        }
        if options.initial_events && options.bookmarks {
            lines.put(style.bookmark(&listed.revision, true));
        }
        (lines.freeze(), listed.revision)
    } else {
        (Bytes::new(), options.resource_version.clone())
    };
    let position = match number(&at) {
        Some(at) => {
            check_not_in_the_future(store, &cache, at).await?;
            cache.state().position(at)
        }
        None => None,
    };
    let head = stream::iter(Some(first).filter(|first| !first.is_empty()));
    let rest = match position {
        Some(next) => {
            let watcher = Watcher {
                changed: cache.subscribe(),
                cache,
                next,
                from: number(&at).unwrap_or_default(),
                told: number(&at).unwrap_or_default(),
                is_first: true,
                style,
                bookmarks: options.bookmarks.then(|| Instant::now() + BOOKMARK),
                deadline,
                shutdown,
            };
            stream::unfold(Some(watcher), step).boxed()
        }
        None => direct(store, style, &at, deadline, shutdown).await?,
    };
    Ok(head.chain(rest).boxed())
}

async fn check_not_in_the_future(store: &Store, cache: &Cache, at: u64) -> Outcome<()> {
    if cache.state().revision() >= at {
        return Ok(());
    }
    match store.client().backend().newest_revision().await {
        Ok(Some(newest)) => match number(&newest) {
            Some(newest) if newest < at => Err(Refusal::too_new(at, newest)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The state of a watch between two batches of lines.
struct Watcher {
    cache: Arc<Cache>,
    changed: watch::Receiver<()>,
    next: u64,
    /// The revision that the watch began with.
    from: u64,
    /// The newest revision sent to this watcher.
    told: u64,
    is_first: bool,
    style: Style,
    bookmarks: Option<Instant>,
    deadline: Instant,
    shutdown: Shutdown,
}

async fn step(watcher: Option<Watcher>) -> Option<(Bytes, Option<Watcher>)> {
    let mut watcher = watcher?;
    loop {
        // Changes marked as seen here are read below: none is missed in between.
        watcher.changed.borrow_and_update();
        let since = watcher.cache.state().since(watcher.next, AT_ONCE);
        let Since::Changes(changes, next) = since else {
            let gone = Refusal::expired("too old resource version: this watch did not keep up");
            return Some((error_line(&gone), None));
        };
        watcher.next = next;
        if !changes.is_empty() {
            let mut lines = BytesMut::new();
            for change in changes {
                // The initial state was read from the store, and may be newer than the cache was then.
                if change.revision <= watcher.from {
                    continue;
                }
                if change.sides().any(|entry| watcher.style.is_undecided(entry)) {
                    lines.put(error_line(&undecided()));
                    return Some((lines.freeze(), None));
                }
                watcher.told = watcher.told.max(change.revision);
                let Some(told) = change.told(&watcher.style.filter) else { continue };
                let line = match watcher.style.form {
                    Form::Whole => change.line(&told),
                    _ => watcher.style.line(&told, watcher.is_first),
                };
                lines.put(line);
                watcher.is_first = false;
            }
            if !lines.is_empty() {
                return Some((lines.freeze(), Some(watcher)));
            }
            continue;
        }
        let bookmark = watcher.bookmarks.unwrap_or(watcher.deadline);
        tokio::select! {
            changed = watcher.changed.changed() => {
                changed.ok()?;
            }
            () = tokio::time::sleep_until(watcher.deadline) => return None,
            () = watcher.shutdown.requested() => return None,
            () = tokio::time::sleep_until(bookmark), if watcher.bookmarks.is_some() => {
                watcher.bookmarks = Some(Instant::now() + BOOKMARK);
                // While the state is locked, nothing can come between the last change and this revision.
                let revision = {
                    let state = watcher.cache.state();
                    let is_at_the_end = matches!(state.since(watcher.next, 1), Since::Changes(found, _) if found.is_empty());
                    is_at_the_end.then(|| state.revision().max(watcher.told))
                };
                if let Some(revision) = revision {
                    let line = watcher.style.bookmark(&revision.to_string(), false);
                    return Some((line, Some(watcher)));
                }
            }
        }
    }
}

/// Ends a watch that reached a policy of a tier for which no permission was decided: its client lists again.
fn undecided() -> Box<Refusal> {
    Refusal::expired("too old resource version: there are policies of other tiers now")
}

/// An error as the last line of a watch.
#[must_use]
pub(crate) fn error_line(refusal: &Refusal) -> Bytes {
    line("ERROR", refusal.to_value().to_string().as_bytes())
}

/// One of the places for watches that follow the store themselves.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let taken = DIRECT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < MOST_DIRECT).then_some(taken + 1)
        });
        taken.is_ok().then_some(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        DIRECT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A watch from before the start of our cache: the store's own, if its history reaches that far. With selectors it
/// would have to report objects leaving the view without knowing what was in view; such a client lists again.
async fn direct(
    store: &Store,
    style: Style,
    at: &str,
    deadline: Instant,
    shutdown: Shutdown,
) -> Outcome<Lines> {
    let gone = || Refusal::expired(format!("too old resource version: {at}"));
    if !style.filter.is_by_namespace() {
        return Err(gone());
    }
    let place = Place::take().ok_or_else(gone)?;
    let query = ListQuery::all().at(at);
    let watch = store.client().watch_any(style.served.kind, &query).await;
    let watch = watch.map_err(|error| Refusal::from_store(style.served, "", error))?;
    let state = Direct { watch, style, deadline, shutdown, _place: place };
    Ok(stream::unfold(Some(state), direct_step).boxed())
}

struct Direct {
    watch: ResourceWatch<Resource>,
    style: Style,
    deadline: Instant,
    shutdown: Shutdown,
    _place: Place,
}

async fn direct_step(state: Option<Direct>) -> Option<(Bytes, Option<Direct>)> {
    let mut state = state?;
    loop {
        let event = tokio::select! {
            event = state.watch.next() => event?,
            () = tokio::time::sleep_until(state.deadline) => return None,
            () = state.shutdown.requested() => return None,
        };
        let told = match event {
            Ok(ResourceEvent::Added(resource)) => encoded(resource).map(Told::Added),
            Ok(ResourceEvent::Modified { new }) => encoded(new).map(Told::Modified),
            Ok(ResourceEvent::Deleted(resource)) => encoded(resource).map(Told::Deleted),
            Ok(ResourceEvent::Bookmark(_) | ResourceEvent::Invalid(_)) => None,
            Err(client::Error::WatchClosed { .. }) => return None,
            Err(error) => {
                let refusal = Refusal::from_store(state.style.served, "", error);
                return Some((error_line(&refusal), None));
            }
        };
        if told.as_ref().is_some_and(|told| state.style.is_undecided(told.parts().1)) {
            return Some((error_line(&undecided()), None));
        }
        if let Some(told) = told.filter(|told| state.style.filter.passes(told.parts().1)) {
            let line = state.style.line(&told, true);
            return Some((line, Some(state)));
        }
    }
}
