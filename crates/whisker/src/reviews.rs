//! Asks Kubernetes who may see flows: who owns a token (TokenReview), and whether the owner may `get` the path `/flows`
//! (SubjectAccessReview), which an ordinary ClusterRole with `nonResourceURLs` grants.
//!
//! A bounded number of verdicts is cached for a few seconds, by the hash of the token. While Kubernetes does not
//! answer, no new token is accepted. Does not store tokens.

use kube_access::cluster::{Cluster, ClusterError};
use kube_access::remembered::Remembered;
use kube_access::reviews;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// The path that users must be allowed to get, whichever path they request here.
pub(crate) const PATH: &str = "/flows";
/// How long a verdict is cached.
const GOOD: Duration = Duration::from_secs(10);
/// The maximum number of cached verdicts.
const MOST: usize = 4096;

type Hash = [u8; 32];

/// Kubernetes' verdict on a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its owner may see flows.
    Permitted,
    /// Its owner may not see flows.
    Forbidden,
    /// It has no owner.
    Unknown,
}

/// Asks Kubernetes, and caches the verdicts.
#[derive(Debug)]
pub struct Reviews {
    cluster: Cluster,
    answers: Remembered<Hash, Verdict>,
}

impl Reviews {
    /// Creates a reviewer that asks this cluster.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, answers: Remembered::new(MOST) }
    }

    /// Returns what the owner of a token may do.
    ///
    /// # Errors
    /// When Kubernetes does not answer.
    pub(crate) async fn judge(&self, token: &str) -> Result<Verdict, String> {
        let hash: Hash = Sha256::digest(token).into();
        if let Some(known) = self.answers.get(&hash) {
            return Ok(known);
        }
        let verdict = self.ask(token).await.map_err(|error| error.to_string());
        let verdict =
            verdict.inspect_err(|error| tracing::warn!(error, "cannot ask Kubernetes who may see flows"))?;
        self.answers.put(hash, verdict, GOOD);
        Ok(verdict)
    }

    async fn ask(&self, token: &str) -> Result<Verdict, ClusterError> {
        let Some(user) = reviews::owner_of(&self.cluster, token).await? else { return Ok(Verdict::Unknown) };
        let path = json!({"nonResourceAttributes": {"path": PATH, "verb": "get"}});
        let permission = reviews::permission(&self.cluster, &user, path).await?;
        Ok(if permission.is_allowed { Verdict::Permitted } else { Verdict::Forbidden })
    }
}
