//! Questions that Kubernetes answers: who owns this token (TokenReview), and may this user do that
//! (SubjectAccessReview)?
//!
//! Does not remember answers: the caller knows how long they are valid.

use crate::cluster::{Cluster, ClusterError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

/// A user of the API.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(default)]
pub struct User {
    /// The name.
    #[serde(rename = "username")]
    pub name: String,
    /// The uid; empty if unknown.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Everything else that is known of the user.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The anonymous user.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..Self::default()
        }
    }

    /// A user who may do everything.
    #[must_use]
    pub fn master(name: &str) -> Self {
        Self { name: name.to_owned(), groups: vec![MASTERS.to_owned()], ..Self::default() }
    }

    /// Whether the user may do everything.
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

/// The answer to whether something is allowed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Permission {
    /// Whether it is allowed.
    #[serde(rename = "allowed")]
    pub is_allowed: bool,
    /// Kubernetes' reason.
    pub reason: String,
}

impl Permission {
    /// A permission without a reason.
    #[must_use]
    pub fn granted() -> Self {
        Self { is_allowed: true, ..Self::default() }
    }
}

#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenStatus {
    authenticated: bool,
    user: User,
}

/// Returns the owner of a token; `None` if the token is invalid.
///
/// # Errors
/// When Kubernetes cannot be reached.
pub async fn owner_of(cluster: &Cluster, token: &str) -> Result<Option<User>, ClusterError> {
    let spec = json!({"token": token});
    let status: TokenStatus = ask(cluster, "authentication.k8s.io/v1", "TokenReview", &spec).await?;
    Ok(status.authenticated.then_some(status.user))
}

/// Asks whether a user may do something: `subject` has the `resourceAttributes` or `nonResourceAttributes` of the
/// review.
///
/// # Errors
/// When Kubernetes cannot be reached.
pub async fn permission(cluster: &Cluster, user: &User, subject: Value) -> Result<Permission, ClusterError> {
    ask(cluster, "authorization.k8s.io/v1", "SubjectAccessReview", &with_user(user, subject)).await
}

async fn ask<S: DeserializeOwned>(
    cluster: &Cluster,
    version: &str,
    kind: &str,
    spec: &Value,
) -> Result<S, ClusterError> {
    let body = json!({"apiVersion": version, "kind": kind, "spec": spec});
    let path = format!("/apis/{version}/{}s", kind.to_ascii_lowercase());
    let review: Review<S> = cluster.create(&format!("create a {kind}"), &path, &body).await?;
    Ok(review.status)
}

/// Adds everything that is known of the user to the review.
fn with_user(user: &User, mut spec: Value) -> Value {
    spec["user"] = user.name.as_str().into();
    spec["groups"] = json!(user.groups);
    if !user.uid.is_empty() {
        spec["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_has_everything_known_of_the_user() {
        let user = json!({"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"a": ["b"]}});
        let user: User = serde_json::from_value(user).unwrap();
        let path = json!({"nonResourceAttributes": {"path": "/flows", "verb": "get"}});
        let spec = json!({
            "user": "ann", "uid": "7", "groups": ["dev"], "extra": {"a": ["b"]},
            "nonResourceAttributes": {"path": "/flows", "verb": "get"},
        });
        assert_eq!(with_user(&user, path), spec);
    }
}
