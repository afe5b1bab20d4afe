//! Sends complete flows, five minutes at a time, to a server that accepts lines of JSON.
//!
//! Windows are sent in order, each once, and retried while the server is unavailable. Progress is recorded, so that the
//! next process resumes there. A window that failed fifteen times is dropped, counted and logged.

mod json;
mod post;
mod progress;

pub use post::PostTarget;
pub(crate) use post::post;
pub use progress::Progress;

use crate::aggregator::Aggregator;
use daemon::{Backoff, Shutdown};
use flows::query::{Filter, ListRequest, Page, Sort, TimeRange, list};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often a window is tried.
const TRIES: u32 = 15;
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// The emitter's settings.
#[derive(Clone, Debug)]
pub struct EmitterOptions {
    /// The server that receives the flows.
    pub target: PostTarget,
    /// The length of a window in seconds.
    pub window: i64,
    /// How long after its end a window is complete, in seconds.
    pub settling: i64,
    /// The file that switches sending on; without a file, flows are always sent.
    pub switch: Option<PathBuf>,
}

/// Sends windows until shutdown is requested.
pub async fn emit(
    aggregator: Arc<Aggregator>,
    options: EmitterOptions,
    progress: Progress,
    shutdown: Shutdown,
) {
    let mut turns = aggregator.turns();
    let mut last = progress.load().await.unwrap_or(0);
    loop {
        while let Some(window) = next_window(&aggregator, &options, last) {
            if !is_on(&options) {
                break;
            }
            let is_sent = tokio::select! {
                is_sent = send(&aggregator, &options, window) => is_sent,
                () = shutdown.requested() => return,
            };
            last = window.lt;
            if is_sent {
                progress.save(last).await;
            } else {
                aggregator.figures().window_dropped();
                tracing::error!(
                    from = window.gte,
                    until = window.lt,
                    "flows were dropped after too many failed attempts"
                );
            }
        }
        tokio::select! {
            turned = turns.changed() => if turned.is_err() {
                return;
            },
            () = shutdown.requested() => return,
        }
    }
}

/// The oldest complete window that was not sent. Windows start at multiples of their length.
fn next_window(aggregator: &Aggregator, options: &EmitterOptions, last: i64) -> Option<TimeRange> {
    window_after(aggregator.snapshot().begin(), aggregator.now(), options.window, options.settling, last)
}

fn window_after(begin: i64, now: i64, length: i64, settling: i64, last: i64) -> Option<TimeRange> {
    let length = length.max(1);
    // A window that starts before the history may be incomplete.
    let oldest = -(-begin).div_euclid(length) * length;
    let gte = oldest.max(last.div_euclid(length) * length);
    let lt = gte + length;
    (lt + settling <= now).then_some(TimeRange { gte, lt })
}

/// Whether flows are to be sent: if the file is missing or unreadable, they are not.
fn is_on(options: &EmitterOptions) -> bool {
    let Some(path) = &options.switch else { return true };
    match std::fs::read(path) {
        Ok(bytes) => match serde_json::from_slice::<serde_json::Value>(&bytes) {
            Ok(content) => content["emitFlows"] == true,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "flows are not sent: the file cannot be read");
                false
            }
        },
        Err(_) => false,
    }
}

/// Sends a window; false when it failed too often.
async fn send(aggregator: &Arc<Aggregator>, options: &EmitterOptions, range: TimeRange) -> bool {
    let snapshot = aggregator.snapshot();
    let lines = tokio::task::spawn_blocking(move || {
        let request =
            ListRequest { range, filter: Filter::default(), sort: Sort::Time, page: Page::default() };
        list(&snapshot, &request).items.iter().map(json::line).collect::<Vec<_>>().join("\n")
    });
    let Ok(lines) = lines.await else { return false };
    if lines.is_empty() {
        return true;
    }
    let (lines, mut pauses) = (bytes::Bytes::from(lines), PAUSES);
    for _ in 0..TRIES {
        match post(&options.target, lines.clone()).await {
            Ok(()) => return true,
            Err(error) => {
                tracing::warn!(error = %format_args!("{error:#}"), "flows cannot be sent; trying again");
                tokio::time::sleep(pauses.pause()).await;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_consecutive() {
        let window =
            |begin, now, last| window_after(begin, now, 300, 30, last).map(|range| (range.gte, range.lt));
        assert_eq!(window(0, 329, 0), None, "not complete");
        assert_eq!(window(0, 330, 0), Some((0, 300)));
        assert_eq!(window(0, 700, 300), Some((300, 600)));
        assert_eq!(window(450, 2000, 0), Some((600, 900)), "the first whole window of the history");
        assert_eq!(window(450, 2000, 1500), Some((1500, 1800)), "where the last process ended");
        assert_eq!(window(450, 2000, 1800), None);
    }
}
