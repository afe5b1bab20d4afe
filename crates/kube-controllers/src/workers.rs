//! What controllers of copies do all day: workers that empty a queue, beside a comparison of everything at the start and
//! then by period.
//!
//! It refuses to know what is compared or worked on.

use crate::config::SyncConfig;
use daemon::Backoff;
use datastore::Error;
use std::time::Duration;

/// How many requests one worker has under way.
const REQUESTS_PER_WORKER: usize = 8;
/// Runs as many of `work` as the configuration asks for, and `compare` by its period. It does not end.
pub(crate) async fn run<W, C>(
    name: &'static str,
    config: &SyncConfig,
    work: impl Fn() -> W,
    compare: impl Fn() -> C,
) where
    W: Future<Output = ()>,
    C: Future<Output = Result<(usize, usize), Error>>,
{
    let workers = (0..config.workers.max(1) * REQUESTS_PER_WORKER).map(|_| work());
    futures::future::join(
        compare_periodically(name, config.reconciler_period, compare),
        futures::future::join_all(workers),
    )
    .await;
}

/// `compare` says how many were checked, and how many are to be worked on.
async fn compare_periodically<C>(name: &'static str, period: Duration, compare: impl Fn() -> C)
where
    C: Future<Output = Result<(usize, usize), Error>>,
{
    let mut backoff = Backoff::SERVER;
    loop {
        match compare().await {
            Ok((checked, wrong)) => {
                tracing::info!(controller = name, checked, wrong, "compared everything");
                backoff.reset();
                if period.is_zero() {
                    return;
                }
                tokio::time::sleep(period).await;
            }
            Err(error) => {
                tracing::warn!(controller = name, %error, "cannot compare everything");
                tokio::time::sleep(backoff.pause()).await;
            }
        }
    }
}
