//! Builds the request to a webhook and interprets its answer.

use super::configuration::Operation;
use crate::access::User;
use crate::kinds::{GROUP, VERSION};
use crate::request::Target;
use crate::status::Refusal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

const API: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// A write that webhooks are called for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What the write does.
    pub operation: Operation,
    /// The user who requests it.
    pub user: &'a User,
    /// The object or collection it targets.
    pub target: &'a Target,
    /// The object's name; empty if it is generated later.
    pub name: &'a str,
    /// Whether nothing will be stored.
    pub is_dry_run: bool,
    /// The field manager of the write.
    pub manager: &'a str,
    /// The object before the write.
    pub old: Option<&'a Value>,
}

impl Asked<'_> {
    /// The review with this uid for the object as it would become.
    #[must_use]
    pub fn review(&self, uid: &str, object: Option<&Value>) -> Value {
        let served = self.target.served;
        let kind = json!({"group": GROUP, "version": VERSION, "kind": served.kind.as_str()});
        let resource = json!({"group": GROUP, "version": VERSION, "resource": served.plural()});
        let mut request = json!({
            "uid": uid, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": self.name, "operation": self.operation.as_str(), "dryRun": self.is_dry_run,
            "userInfo": self.user_info(), "object": object, "oldObject": self.old, "options": self.options(),
        });
        if !self.target.namespace.is_empty() {
            request["namespace"] = self.target.namespace.as_str().into();
        }
        if self.target.is_status {
            request["subResource"] = "status".into();
            request["requestSubResource"] = "status".into();
        }
        json!({"kind": KIND, "apiVersion": API, "request": request})
    }

    fn user_info(&self) -> Value {
        let User { name, uid, groups, extra } = self.user;
        let mut info = json!({"username": name, "groups": groups});
        if !uid.is_empty() {
            info["uid"] = uid.as_str().into();
        }
        if !extra.is_empty() {
            info["extra"] = json!(extra);
        }
        info
    }

    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.is_dry_run {
            options["dryRun"] = json!(["All"]);
        }
        if self.operation != Operation::Delete {
            options["fieldManager"] = self.manager.into();
        }
        options
    }
}

/// A webhook's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Said {
    /// Whether it allows the write.
    pub is_allowed: bool,
    /// Its changes to the object.
    pub patch: Option<Vec<u8>>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The reason for a denial, in the webhook's words.
    pub status: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    status: Value,
    patch: Option<String>,
    patch_type: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

/// Parses the answer to the review with this uid.
///
/// # Errors
/// When it is not a valid answer.
pub(crate) fn read(uid: &str, answer: &[u8]) -> Result<Said, String> {
    let review: Review =
        serde_json::from_slice(answer).map_err(|error| format!("the answer cannot be read: {error}"))?;
    if (review.kind.as_str(), review.api_version.as_str()) != (KIND, API) {
        return Err(format!(
            "expected webhook response of {API}, Kind={KIND}, got {}, Kind={}",
            review.api_version, review.kind
        ));
    }
    let response = review.response.ok_or("the answer has no response")?;
    if response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    let patch = match (response.patch.filter(|patch| !patch.is_empty()), response.patch_type.as_deref()) {
        (None, None) => None,
        (Some(patch), Some("JSONPatch")) => {
            Some(STANDARD.decode(patch).map_err(|error| format!("response.patch: {error}"))?)
        }
        (patch, kind) => {
            let has = if patch.is_some() { "a patch" } else { "no patch" };
            return Err(format!("invalid response.patchType {kind:?} with {has}"));
        }
    };
    Ok(Said { is_allowed: response.allowed, patch, warnings: response.warnings, status: response.status })
}

/// Kubernetes' reasons for failures.
const REASONS: [&str; 18] = [
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "ServiceUnavailable",
];

/// The refusal for a denial by a webhook, in the words of Kubernetes' servers.
#[must_use]
pub(crate) fn denied(name: &str, status: &Value) -> Box<Refusal> {
    let text = |field: &str| status[field].as_str().filter(|text| !text.is_empty());
    let who = format!("admission webhook {name:?} denied the request");
    let message = match text("message").or(text("reason")) {
        Some(why) => format!("{who}: {why}"),
        None => format!("{who} without explanation"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let reason = text("reason").and_then(|reason| REASONS.into_iter().find(|known| *known == reason));
    Box::new(Refusal {
        code: code.filter(|code| (400..600).contains(code)).unwrap_or(400),
        reason: reason.unwrap_or_default(),
        ..*Refusal::bad_request(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Route;

    fn answer(response: &Value) -> Result<Said, String> {
        let review = json!({"kind": KIND, "apiVersion": API, "response": response});
        read("u", review.to_string().as_bytes())
    }

    #[test]
    fn answers_are_read_strictly() {
        assert!(answer(&json!({"uid": "u", "allowed": true})).is_ok_and(|said| said.is_allowed));
        assert!(answer(&json!({"uid": "u"})).is_ok_and(|said| !said.is_allowed));
        assert!(answer(&json!({"uid": "other", "allowed": true})).is_err());
        assert!(answer(&Value::Null).is_err());
        let patched = json!({"uid": "u", "allowed": true, "patchType": "JSONPatch", "patch": "W10="});
        assert_eq!(answer(&patched).expect("a patch").patch.as_deref(), Some(&b"[]"[..]));
        assert!(answer(&json!({"uid": "u", "allowed": true, "patch": "W10="})).is_err());
        assert!(answer(&json!({"uid": "u", "allowed": true, "patchType": "JSONPatch"})).is_err());
        let old = json!({"kind": KIND, "apiVersion": "admission.k8s.io/v1beta1", "response": {"uid": "u"}});
        assert!(read("u", old.to_string().as_bytes()).is_err() && read("u", b"rubbish").is_err());
    }

    #[test]
    fn refusals_use_kubernetes_words() {
        let refusal = denied("a.b", &json!({"code": 403, "message": "no", "reason": "Forbidden"}));
        assert_eq!((refusal.code, refusal.reason), (403, "Forbidden"));
        assert_eq!(refusal.message, "admission webhook \"a.b\" denied the request: no");
        let refusal = denied("a.b", &Value::Null);
        assert_eq!((refusal.code, refusal.reason), (400, ""));
        assert_eq!(refusal.message, "admission webhook \"a.b\" denied the request without explanation");
        assert_eq!(denied("a", &json!({"code": 200, "reason": "Odd"})).code, 400);
    }

    #[test]
    fn a_review_has_what_kubernetes_sends() {
        let Route::Objects(target) = Route::of("/apis/projectcalico.org/v3/namespaces/n/networkpolicies/x")
        else {
            panic!("an object");
        };
        let user = User { name: "alice".into(), groups: vec!["g".into()], ..User::default() };
        let old = json!({"a": 1});
        let asked = Asked {
            operation: Operation::Update,
            user: &user,
            target: &target,
            name: "x",
            is_dry_run: false,
            manager: "m",
            old: Some(&old),
        };
        let kind = json!({"group": "projectcalico.org", "version": "v3", "kind": "NetworkPolicy"});
        let resource = json!({"group": "projectcalico.org", "version": "v3", "resource": "networkpolicies"});
        assert_eq!(
            asked.review("u", Some(&json!({"a": 2}))),
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
                "uid": "u", "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
                "name": "x", "namespace": "n", "operation": "UPDATE", "dryRun": false,
                "userInfo": {"username": "alice", "groups": ["g"]}, "object": {"a": 2}, "oldObject": {"a": 1},
                "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "m"},
            }})
        );
    }
}
