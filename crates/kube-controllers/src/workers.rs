//! The main loop of copying controllers: workers process a queue, and everything is compared at the start and then
//! periodically.
//!
//! Knows nothing of what is compared or processed.

use crate::config::SyncConfig;
use daemon::Backoff;
use datastore::Error;
use std::time::Duration;

/// How many concurrent requests one worker stands for.
const REQUESTS_PER_WORKER: usize = 8;
/// Runs `work` as often as the configuration requests, and `compare` periodically. It does not end.
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

/// Calls `compare` periodically; it returns how many objects were checked, and how many need work.
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
