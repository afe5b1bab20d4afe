//! Time, and how long to wait before a retry.

use futures::future::BoxFuture;
use ipam_core::retry::longest_wait;
use jiff::Timestamp;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// A source of time. Tests have their own.
pub trait Clock: Send + Sync {
    /// The present time.
    fn now(&self) -> Timestamp;

    /// Waits for this duration.
    fn wait(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The machine's clock, and tokio's timer.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn wait(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A random part of [`longest_wait`], so that many writers do not collide again.
pub(crate) fn wait_before(attempt: u32) -> Option<Duration> {
    let most = longest_wait(attempt)?;
    let random = RandomState::new().build_hasher().finish();
    let micros = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
    Some(Duration::from_micros(random % micros))
}
