//! Automatic compaction, as etcd's `--auto-compaction-*` flags describe it: keep the history of a period, or a number
//! of revisions. Choosing the revision to compact is a pure function; the loop around it only waits.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use kvstore_engine::{Error, Store};

/// The history to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AutoCompaction {
    /// All of it.
    #[default]
    Off,
    /// The history of this period.
    Periodic(Duration),
    /// This many revisions.
    Revision(i64),
}

/// Samples of the current revision per period.
const SAMPLES: u32 = 10;

/// Compacts for as long as it is polled.
pub(super) async fn run(store: Arc<Store>, mode: AutoCompaction) {
    match mode {
        AutoCompaction::Off => std::future::pending().await,
        AutoCompaction::Periodic(retention) => {
            let step = (retention.min(Duration::from_secs(3600)) / SAMPLES).max(Duration::from_millis(10));
            let mut window = Window::default();
            loop {
                let now = Instant::now();
                if let Some(revision) = window.advance(now, retention, store.revision()) {
                    compact(&store, revision).await;
                }
                sleep(step).await;
            }
        }
        AutoCompaction::Revision(keep) => loop {
            let revision = store.revision() - keep;
            if revision > 0 {
                compact(&store, revision).await;
            }
            sleep(Duration::from_secs(300)).await;
        },
    }
}

async fn compact(store: &Store, revision: i64) {
    match store.compact(revision, false).await {
        // Another client or an idle period has compacted already.
        Ok(_) | Err(Error::Compacted { .. }) => {}
        Err(error) => tracing::warn!("automatic compaction of revision {revision} failed: {error}"),
    }
}

/// The revisions that were current at past moments.
#[derive(Debug, Default)]
struct Window {
    seen: VecDeque<(Instant, i64)>,
}

impl Window {
    /// Records the current revision; returns the one that was current `retention` ago, if known.
    fn advance(&mut self, now: Instant, retention: Duration, revision: i64) -> Option<i64> {
        self.seen.push_back((now, revision));
        let mut due = None;
        while let Some(&(at, revision)) = self.seen.front()
            && now.duration_since(at) >= retention
        {
            due = Some(revision);
            self.seen.pop_front();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacts_the_revision_of_one_period_ago() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let hour = Duration::from_secs(3600);
        let mut window = Window::default();
        assert_eq!(window.advance(at(0), hour, 5), None);
        assert_eq!(window.advance(at(1800), hour, 9), None);
        assert_eq!(window.advance(at(3600), hour, 12), Some(5));
        assert_eq!(window.advance(at(3700), hour, 13), None);
        assert_eq!(window.advance(at(9000), hour, 14), Some(13));
    }
}
