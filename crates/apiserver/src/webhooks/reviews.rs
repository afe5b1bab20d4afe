//! What an admission review asks, and the verdicts.

use crate::access::User;
use crate::kinds::Served;
use crate::request::Verb;
use crate::tiers::Act;
use api::Kind;
use api::words::DEFAULT_TIER;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The service accounts in the webhooks' namespace that may write ClusterInformation.
const WRITERS: [&str; 3] = ["calico-node", "calico-kube-controllers", "calico-typha"];

/// The answer to a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The object may be written.
    Allowed,
    /// The object may not be written.
    Refused {
        /// Kubernetes' reason.
        reason: &'static str,
        /// The message for the user.
        message: String,
    },
}

impl Verdict {
    /// A refusal.
    #[must_use]
    pub fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused { reason, message: message.into() }
    }

    /// The review to send back to Kubernetes.
    #[must_use]
    pub fn to_review(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": *self == Self::Allowed});
        if let Self::Refused { reason, message } = self {
            response["status"] =
                json!({"metadata": {}, "status": "Failure", "message": message, "reason": reason});
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }
}

/// Decides whether ClusterInformation may be written: only by Calico's own components.
#[must_use]
pub fn cluster_information(request: &Value, namespace: &str) -> Verdict {
    let user = request.pointer("/userInfo/username").and_then(Value::as_str).unwrap_or_default();
    let parts: Vec<&str> = user.split(':').collect();
    match parts.as_slice() {
        ["system", "serviceaccount", place, name] if *place == namespace && WRITERS.contains(name) => {
            Verdict::Allowed
        }
        _ => Verdict::refused(
            "MethodNotAllowed",
            format!("ClusterInformation is a read-only resource (user: {user})"),
        ),
    }
}

/// A write of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierReview {
    /// The user who writes.
    pub user: User,
    served: &'static Served,
    verb: Verb,
    namespace: String,
    /// The policy's name.
    pub name: String,
    /// The tier of the new policy; `None` for a deletion.
    pub new_tier: Option<String>,
    old_tier: Option<String>,
}

impl TierReview {
    /// Parses the request of a review.
    ///
    /// # Errors
    /// The verdict where the request cannot be judged.
    pub fn read(request: &Value) -> Result<Self, Verdict> {
        let kind = request.pointer("/kind/kind").and_then(Value::as_str).unwrap_or_default();
        let served = Kind::from_name(kind)
            .filter(|kind| kind.is_tiered_policy() || *kind == Kind::StagedKubernetesNetworkPolicy)
            .and_then(|kind| Served::from_plural(kind.plural()))
            .ok_or_else(|| {
                Verdict::refused("Invalid", format!("Failed to parse policy: unsupported kind: {kind}"))
            })?;
        let part = |name: &str| request.get(name).filter(|object| object.is_object());
        let (new, old) = (part("object"), part("oldObject"));
        let Some(object) = new.or(old) else {
            return Err(Verdict::refused("BadRequest", "No object in admission request"));
        };
        let text = |value: &Value, pointer: &str| {
            value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let tier = |object: &Value| {
            Some(text(object, "/spec/tier"))
                .filter(|tier| !tier.is_empty())
                .unwrap_or_else(|| DEFAULT_TIER.to_owned())
        };
        let verb = match request["operation"].as_str().unwrap_or_default() {
            "CREATE" => Verb::Create,
            "UPDATE" => Verb::Update,
            "DELETE" => Verb::Delete,
            other => return Err(Verdict::refused("BadRequest", format!("unexpected operation {other:?}"))),
        };
        let list = |pointer: &str| -> Vec<String> {
            let items = request.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let extra: BTreeMap<String, Vec<String>> = request
            .pointer("/userInfo/extra")
            .cloned()
            .and_then(|extra| serde_json::from_value(extra).ok())
            .unwrap_or_default();
        Ok(Self {
            user: User {
                name: text(request, "/userInfo/username"),
                uid: text(request, "/userInfo/uid"),
                groups: list("/userInfo/groups"),
                extra,
            },
            served,
            verb,
            namespace: text(object, "/metadata/namespace"),
            name: text(object, "/metadata/name"),
            new_tier: new.map(tier),
            old_tier: old.map(tier),
        })
    }

    /// The operation that needs permission.
    #[must_use]
    pub fn act(&self) -> Act<'_> {
        Act { served: self.served, verb: self.verb, namespace: &self.namespace, name: &self.name }
    }

    /// The tier that the write is primarily about.
    #[must_use]
    pub fn first_tier(&self) -> &str {
        self.new_tier.as_deref().or(self.old_tier.as_deref()).unwrap_or(DEFAULT_TIER)
    }

    /// The tier that a policy leaves: removal from it needs permission, too.
    #[must_use]
    pub fn left_tier(&self) -> Option<&str> {
        let (new, old) = (self.new_tier.as_deref()?, self.old_tier.as_deref()?);
        (new != old).then_some(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_components_write_cluster_information() {
        for (user, allowed) in [
            ("system:serviceaccount:calico-system:calico-node", true),
            ("system:serviceaccount:calico-system:calico-typha", true),
            ("system:serviceaccount:calico-system:calico-kube-controllers", true),
            ("system:serviceaccount:calico-system:other", false),
            ("system:serviceaccount:other:calico-node", false),
            ("calico-node", false),
            ("system:admin", false),
        ] {
            let verdict = cluster_information(&json!({"userInfo": {"username": user}}), "calico-system");
            assert_eq!(verdict == Verdict::Allowed, allowed, "{user}");
        }
        let verdict = cluster_information(&json!({"userInfo": {"username": "bob"}}), "n").to_review("u1");
        assert_eq!(
            verdict["response"]["status"]["message"],
            "ClusterInformation is a read-only resource (user: bob)"
        );
        assert_eq!(
            (&verdict["response"]["uid"], &verdict["response"]["allowed"]),
            (&json!("u1"), &json!(false))
        );
    }

    fn request(kind: &str, operation: &str, new: Option<&str>, old: Option<&str>) -> Value {
        let object =
            |tier: &str| json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"tier": tier}});
        json!({
            "kind": {"kind": kind}, "operation": operation, "userInfo": {"username": "alice", "groups": ["g"]},
            "object": new.map(object), "oldObject": old.map(object),
        })
    }

    #[test]
    fn tiers_of_writes() {
        for (operation, new, old, first, left) in [
            ("CREATE", Some("red"), None, "red", None),
            ("CREATE", Some(""), None, "default", None),
            ("UPDATE", Some("red"), Some("red"), "red", None),
            ("UPDATE", Some("blue"), Some("red"), "blue", Some("red")),
            ("DELETE", None, Some("red"), "red", None),
        ] {
            let review = TierReview::read(&request("NetworkPolicy", operation, new, old)).unwrap();
            assert_eq!((review.first_tier(), review.left_tier()), (first, left), "{operation}");
            assert_eq!(review.act().questions(first).policy.verb, operation.to_lowercase());
        }
        let staged =
            TierReview::read(&request("StagedKubernetesNetworkPolicy", "CREATE", Some(""), None)).unwrap();
        assert_eq!(staged.first_tier(), "default");
        for (kind, operation, new) in [
            ("Tier", "CREATE", Some("x")),
            ("NetworkPolicy", "CONNECT", Some("x")),
            ("NetworkPolicy", "CREATE", None),
        ] {
            assert!(TierReview::read(&request(kind, operation, new, None)).is_err(), "{kind} {operation}");
        }
    }
}
