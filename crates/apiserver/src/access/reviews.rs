//! Asks Kubernetes who owns a token and what a user may do, and remembers the answers.

use super::User;
use super::authorities::with_authenticated;
use crate::kinds::GROUP;
use crate::status::{Outcome, Refusal};
use crate::tiers::Question;
use kube_access::cluster::Cluster;
use kube_access::remembered::Remembered;
use kube_access::reviews::{self, Permission};
use serde_json::{Value, json};
use std::time::Duration;

/// How many answers are remembered.
const MOST: usize = 16_384;

/// How long answers are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The user of a token.
    pub token: Duration,
    /// A granted permission.
    pub allowed: Duration,
    /// A denied permission.
    pub refused: Duration,
}

/// The subject of a question: objects, or a path of this server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Objects.
    Object(Question),
    /// A path, and the method as a verb.
    Path(String, String),
}

/// Asks Kubernetes and remembers the answers.
#[derive(Debug)]
pub struct Reviews {
    tokens: Option<Cluster>,
    permissions: Option<Cluster>,
    times: Times,
    users: Remembered<String, Option<User>>,
    answers: Remembered<(User, Subject), Permission>,
}

impl Reviews {
    /// Uses these APIs. Without one for tokens no token is valid; without one for permissions nothing is allowed,
    /// except to users for whom [`User::is_master`] is true.
    #[must_use]
    pub fn new(tokens: Option<Cluster>, permissions: Option<Cluster>, times: Times) -> Self {
        Self { tokens, permissions, times, users: Remembered::new(MOST), answers: Remembered::new(MOST) }
    }

    /// The owner of a token; `None` if the token is invalid.
    ///
    /// # Errors
    /// When Kubernetes cannot be reached.
    pub async fn user(&self, token: &str) -> Outcome<Option<User>> {
        let Some(cluster) = &self.tokens else { return Ok(None) };
        if let Some(known) = self.users.get(&token.to_owned()) {
            return Ok(known);
        }
        let owner = reviews::owner_of(cluster, token).await;
        let owner = owner.map_err(|error| Refusal::internal(format!("cannot identify the user: {error}")))?;
        let user = owner.map(with_authenticated);
        self.users.put(token.to_owned(), user.clone(), self.times.token);
        Ok(user)
    }

    /// Whether a user may do something.
    ///
    /// # Errors
    /// When Kubernetes cannot be reached.
    pub async fn may(&self, user: &User, subject: &Subject) -> Outcome<Permission> {
        if user.is_master() {
            return Ok(Permission::granted());
        }
        let Some(cluster) = &self.permissions else { return Ok(Permission::default()) };
        let question = (user.clone(), subject.clone());
        if let Some(known) = self.answers.get(&question) {
            return Ok(known);
        }
        let permission = reviews::permission(cluster, user, attributes(subject)).await;
        let permission = permission.map_err(|error| {
            Refusal::internal(format!("cannot check the permissions of {}: {error}", user.name))
        })?;
        let time = if permission.is_allowed { self.times.allowed } else { self.times.refused };
        self.answers.put(question, permission.clone(), time);
        Ok(permission)
    }
}

fn attributes(subject: &Subject) -> Value {
    match subject {
        Subject::Object(question) => json!({"resourceAttributes": {
            "verb": question.verb,
            "group": GROUP,
            "version": crate::kinds::VERSION,
            "namespace": question.namespace,
            "resource": question.resource,
            "subresource": question.subresource,
            "name": question.name,
        }}),
        Subject::Path(path, verb) => json!({"nonResourceAttributes": {"path": path, "verb": verb}}),
    }
}

/// The refusal for a missing permission, in the words of Kubernetes' servers.
#[must_use]
pub(crate) fn refused(user: &User, subject: &Subject, reason: &str) -> Box<Refusal> {
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
    fn refusals_have_kubernetes_messages() {
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
