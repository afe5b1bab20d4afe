//! One client whose credentials are made again from their files when the server does not accept them any more.
//!
//! Certificates, keys, authorities and tokens in files are renewed by others while a program runs, and a client keeps what
//! it read when it was made. So a refusal (401) or a connection that cannot be made leads to a new client from the
//! files as they are then, at most every few seconds. Requests in flight keep the old one until they end.

use super::connecting;
use futures::future::BoxFuture;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Between two attempts after refusals, at least: credentials may also be wrong for good, and making them may mean to run a
/// program.
pub(super) const AFTER_REFUSAL: Duration = Duration::from_secs(3);
/// The same when no connection can be made, which has other reasons most of the time.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Reads the settings of the connection again.
pub type Renewal = Arc<dyn Fn() -> BoxFuture<'static, Result<kube::Config, String>> + Send + Sync>;

/// The client of the moment.
pub(super) struct Renewing {
    renewal: Renewal,
    current: RwLock<Made>,
    /// When it was last made again. Held while that goes on: requests that are refused together cause it once.
    turn: Mutex<Option<Instant>>,
}

/// A client and its number.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) client: kube::Client,
    number: u64,
}

impl Renewing {
    pub(super) fn new(config: kube::Config, renewal: Renewal) -> Result<Self, kube::Error> {
        let current = RwLock::new(Made { client: connecting::client(config)?, number: 0 });
        Ok(Self { renewal, current, turn: Mutex::new(None) })
    }

    pub(super) fn current(&self) -> Made {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there is another client now than this one, which was of no use. Nothing happens within this time of the last
    /// attempt.
    pub(super) async fn replace(&self, used: &Made, pause: Duration) -> bool {
        let mut last = self.turn.lock().await;
        if self.current().number != used.number {
            return true;
        }
        if last.is_some_and(|at| at.elapsed() < pause) {
            return false;
        }
        *last = Some(Instant::now());
        let made = match (self.renewal)().await {
            Ok(config) => connecting::client(config).map_err(|error| error.to_string()),
            Err(reason) => Err(reason),
        };
        match made {
            Ok(client) => {
                let next = Made { client, number: used.number + 1 };
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
                true
            }
            Err(reason) => {
                tracing::warn!(reason, "cannot read the credentials for the Kubernetes API again");
                false
            }
        }
    }
}
