//! A client whose credentials are reread from their files when the server no longer accepts them.
//!
//! Certificates, keys, authorities and tokens in files are renewed while a program runs, and a client keeps what it
//! read when it was created. So a refusal (401) or a failure to connect leads to a new client with the current files,
//! at most every few seconds. Requests in flight keep the old client until they end.

use super::connecting;
use futures::future::BoxFuture;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// The minimum pause between attempts after refusals: credentials may also be permanently wrong, and obtaining them may
/// involve running a program.
pub(super) const AFTER_REFUSAL: Duration = Duration::from_secs(3);
/// The minimum pause between attempts when no connection can be opened, which mostly has other reasons.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Rereads the settings of the connection.
pub type Renewal = Arc<dyn Fn() -> BoxFuture<'static, Result<kube::Config, String>> + Send + Sync>;

/// The current client.
pub(super) struct Renewing {
    renewal: Renewal,
    current: RwLock<Made>,
    /// When it was last rebuilt. Held meanwhile, so that requests that are refused together cause it only once.
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

    /// Returns whether there is now a client other than this one, which did not work. Does nothing within `pause` of
    /// the last attempt.
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
                tracing::warn!(reason, "cannot reread the credentials for the Kubernetes API");
                false
            }
        }
    }
}
