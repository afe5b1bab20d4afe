//! Who may see flows, as Kubernetes says: whose a token is (TokenReview), and whether they may `get` the path `/flows`
//! (SubjectAccessReview), which an ordinary ClusterRole with `nonResourceURLs` grants.
//!
//! Answers are remembered for a few seconds, by the hash of the token, and never too many of them. While Kubernetes does not
//! answer nobody is let in. It refuses to keep tokens.

use kube_access::cluster::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    answers: Mutex<HashMap<Hash, (Instant, Verdict)>>,
}

#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    /// Passed on as it is.
    #[serde(default)]
    user: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
}

impl Reviews {
    /// Asks this API.
    #[must_use]
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, answers: Mutex::default() }
    }

    /// What may be done with a token.
    ///
    /// # Errors
    /// When Kubernetes cannot be asked.
    pub(crate) async fn judge(&self, token: &str) -> Result<Verdict, String> {
        let hash: Hash = Sha256::digest(token).into();
        if let Some(known) = self.remembered(&hash) {
            return Ok(known);
        }
        let asked = self.ask(token).await;
        let verdict = asked
            .inspect_err(|error| tracing::warn!(error, "Kubernetes cannot be asked who may see flows"))?;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MOST {
            answers.retain(|_, (since, _)| since.elapsed() < GOOD);
            // Whoever sends so many in so short a time makes everybody wait a little longer, and no more.
            if answers.len() >= MOST {
                answers.clear();
            }
        }
        answers.insert(hash, (Instant::now(), verdict));
        Ok(verdict)
    }

    fn remembered(&self, hash: &Hash) -> Option<Verdict> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(hash).filter(|(since, _)| since.elapsed() < GOOD).map(|(_, verdict)| *verdict)
    }

    async fn ask(&self, token: &str) -> Result<Verdict, String> {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let review: Review<TokenStatus> =
            self.cluster.create("review a token", path, &body).await.map_err(|error| error.to_string())?;
        if !review.status.authenticated {
            return Ok(Verdict::Unknown);
        }
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review: Review<AccessStatus> = self
            .cluster
            .create("review a permission", path, &access_review(&review.status.user))
            .await
            .map_err(|error| error.to_string())?;
        Ok(if review.status.allowed { Verdict::Permitted } else { Verdict::Forbidden })
    }
}

/// Whether a user of a TokenReview may get the path.
fn access_review(user: &serde_json::Map<String, Value>) -> Value {
    let mut spec = json!({"nonResourceAttributes": {"path": PATH, "verb": "get"}});
    for (of, name) in [("username", "user"), ("uid", "uid"), ("groups", "groups"), ("extra", "extra")] {
        if let Some(value) = user.get(of).filter(|value| !value.is_null()) {
            spec[name] = value.clone();
        }
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_asked_about_with_all_that_is_known_of_them() {
        let user = json!({"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"a": ["b"]}});
        let spec = json!({
            "user": "ann", "uid": "7", "groups": ["dev"], "extra": {"a": ["b"]},
            "nonResourceAttributes": {"path": "/flows", "verb": "get"},
        });
        assert_eq!(access_review(user.as_object().unwrap())["spec"], spec);
    }
}
