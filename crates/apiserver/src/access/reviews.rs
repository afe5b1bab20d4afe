//! Questions to Kubernetes: whose token is this, and may this user do that?

use super::authorities::with_authenticated;
use super::identity::User;
use super::remembered::Remembered;
use crate::kinds::GROUP;
use crate::status::{Outcome, Refusal};
use crate::tiers::Question;
use kube_access::cluster::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many answers are remembered.
const MOST: usize = 16_384;

/// How long answers are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A token's user.
    pub token: Duration,
    /// A yes.
    pub allowed: Duration,
    /// A no.
    pub refused: Duration,
}

/// What a question is about: an object, or a path of this server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Objects.
    Object(Question),
    /// A path, and the method as a verb.
    Path(String, String),
}

/// Asks, and remembers.
#[derive(Debug)]
pub struct Reviews {
    tokens: Option<Cluster>,
    permissions: Option<Cluster>,
    times: Times,
    users: Remembered<String, Option<User>>,
    answers: Remembered<(User, Subject), (bool, String)>,
}

#[derive(Deserialize)]
struct Review<S> {
    status: S,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: TokenUser,
}

#[derive(Default, Deserialize)]
struct TokenUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    reason: String,
}

impl Reviews {
    /// Asks these APIs; without one for tokens no token is known, without one for permissions nothing is allowed but what
    /// [`User::is_master`] may do.
    #[must_use]
    pub fn new(tokens: Option<Cluster>, permissions: Option<Cluster>, times: Times) -> Self {
        Self { tokens, permissions, times, users: Remembered::new(MOST), answers: Remembered::new(MOST) }
    }

    /// Whose token this is; nothing if it is nobody's.
    ///
    /// # Errors
    /// When Kubernetes cannot be asked.
    pub async fn user(&self, token: &str) -> Outcome<Option<User>> {
        let Some(cluster) = &self.tokens else { return Ok(None) };
        if let Some(known) = self.users.get(&token.to_owned()) {
            return Ok(known);
        }
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let review: Review<TokenStatus> = cluster
            .create("review a token", path, &body)
            .await
            .map_err(|error| Refusal::internal(format!("cannot tell who asks: {error}")))?;
        let TokenUser { username, uid, groups, extra } = review.status.user;
        let user = review
            .status
            .authenticated
            .then(|| with_authenticated(User { name: username, uid, groups, extra }));
        self.users.put(token.to_owned(), user.clone(), self.times.token);
        Ok(user)
    }

    /// Whether a user may do something, and Kubernetes' words about it.
    ///
    /// # Errors
    /// When Kubernetes cannot be asked.
    pub async fn may(&self, user: &User, subject: &Subject) -> Outcome<(bool, String)> {
        if user.is_master() {
            return Ok((true, String::new()));
        }
        let Some(cluster) = &self.permissions else { return Ok((false, String::new())) };
        let question = (user.clone(), subject.clone());
        if let Some(known) = self.answers.get(&question) {
            return Ok(known);
        }
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let review: Review<AccessStatus> = cluster
            .create("review a permission", path, &access_review(user, subject))
            .await
            .map_err(|error| Refusal::internal(format!("cannot tell what {} may do: {error}", user.name)))?;
        let AccessStatus { allowed, reason } = review.status;
        let time = if allowed { self.times.allowed } else { self.times.refused };
        self.answers.put(question, (allowed, reason.clone()), time);
        Ok((allowed, reason))
    }
}

fn access_review(user: &User, subject: &Subject) -> Value {
    let mut spec = json!({"user": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        spec["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    match subject {
        Subject::Object(question) => {
            spec["resourceAttributes"] = json!({
                "verb": question.verb,
                "group": GROUP,
                "version": crate::kinds::VERSION,
                "namespace": question.namespace,
                "resource": question.resource,
                "subresource": question.subresource,
                "name": question.name,
            });
        }
        Subject::Path(path, verb) => spec["nonResourceAttributes"] = json!({"path": path, "verb": verb}),
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

/// The refusal of an ordinary permission, in the words of Kubernetes' servers.
#[must_use]
pub fn refused(user: &User, subject: &Subject, reason: &str) -> Box<Refusal> {
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    match subject {
        Subject::Path(path, verb) => {
            Refusal::forbidden("", "", &format!("User {:?} cannot {verb} path {path:?}{because}", user.name))
        }
        Subject::Object(question) => {
            let resource = match question.subresource {
                "" => question.resource.clone(),
                part => format!("{}/{part}", question.resource),
            };
            let place = match question.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let why = format!(
                "User {:?} cannot {} resource {resource:?} in API group {GROUP:?} {place}{because}",
                user.name, question.verb
            );
            Refusal::forbidden(&question.resource, &question.name, &why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_those_of_kubernetes() {
        let exchanges = include_str!("../../tests/data/exchanges.txt");
        let carol = User { name: "carol".into(), ..User::default() };
        for (verb, namespace, resource, name, wanted) in [
            ("list", "shop", "networkpolicies", "", "carol GET namespaces/shop/networkpolicies 403"),
            (
                "get",
                "shop",
                "networkpolicies",
                "red.np",
                "carol GET namespaces/shop/networkpolicies/red.np 403",
            ),
            ("list", "", "tiers", "", "carol GET tiers 403"),
        ] {
            let question = Question {
                verb,
                namespace: namespace.into(),
                resource: resource.into(),
                subresource: "",
                name: name.into(),
            };
            let line = exchanges.lines().find(|line| line.starts_with(wanted)).expect(wanted);
            let captured: Value = serde_json::from_str(&line[wanted.len()..]).expect("JSON");
            let refusal = refused(&carol, &Subject::Object(question), "");
            assert_eq!(refusal.to_value()["message"], captured["message"]);
            assert_eq!(refusal.to_value()["details"], captured["details"]);
        }
    }
}
