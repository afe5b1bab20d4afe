//! Who may see flows, as Kubernetes says: whose a token is (TokenReview), and whether they may `get` the path `/flows`
//! (SubjectAccessReview), which an ordinary ClusterRole with `nonResourceURLs` grants.
//!
//! Answers are remembered for a few seconds, by the hash of the token, and never too many of them. While Kubernetes does not
//! answer nobody is let in. It refuses to keep tokens.

use kube_access::cluster::{Cluster, ClusterError};
use kube_access::remembered::Remembered;
use kube_access::reviews;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::time::Duration;

/// The path that readers of flows must be allowed to get, whatever they ask here.
pub(crate) const PATH: &str = "/flows";
/// How long an answer is good for.
const GOOD: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const MOST: usize = 4096;

type Hash = [u8; 32];

/// What Kubernetes says about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its owner may see flows.
    Permitted,
    /// Its owner may not.
    Forbidden,
    /// It is nobody's.
    Unknown,
}

/// Asks Kubernetes, and remembers.
#[derive(Debug)]
pub struct Reviews {
    cluster: Cluster,
    answers: Remembered<Hash, Verdict>,
}

impl Reviews {
    /// Asks this API.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, answers: Remembered::new(MOST) }
    }

    /// What may be done with a token.
    ///
    /// # Errors
    /// When Kubernetes cannot be asked.
    pub(crate) async fn judge(&self, token: &str) -> Result<Verdict, String> {
        let hash: Hash = Sha256::digest(token).into();
        if let Some(known) = self.answers.get(&hash) {
            return Ok(known);
        }
        let verdict = self.ask(token).await.map_err(|error| error.to_string());
        let verdict = verdict
            .inspect_err(|error| tracing::warn!(error, "Kubernetes cannot be asked who may see flows"))?;
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
