//! Errors in the form that Kubernetes' clients expect: a Status with a code, a reason, a message, and causes that name
//! the field.

use crate::kinds::{GROUP, Served};
use datastore::Error;
use serde_json::{Value, json};

/// One invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The reason, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong.
    pub message: String,
    /// The path of the field in the object.
    pub field: String,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub code: u16,
    /// Kubernetes' reason; empty where it has none.
    pub reason: &'static str,
    /// The message for the user.
    pub message: String,
    /// The resource (or, for an invalid object, the kind).
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// The invalid fields.
    pub causes: Vec<Cause>,
    /// When to retry, in seconds.
    pub retry_after: Option<u32>,
}

/// A result of this API.
pub(crate) type Outcome<T> = Result<T, Box<Refusal>>;

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            code,
            reason,
            message: message.into(),
            kind: String::new(),
            name: String::new(),
            causes: Vec::new(),
            retry_after: None,
        })
    }

    fn about(mut self: Box<Self>, kind: &str, name: &str) -> Box<Self> {
        kind.clone_into(&mut self.kind);
        name.clone_into(&mut self.name);
        self
    }

    /// 400: the request is malformed.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::new(400, "BadRequest", message)
    }

    /// 401: the client could not be authenticated.
    #[must_use]
    pub fn unauthorized() -> Box<Self> {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: the user may not do this.
    #[must_use]
    pub fn forbidden(plural: &str, name: &str, why: &str) -> Box<Self> {
        let message = match (plural, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{plural}.{GROUP} is forbidden: {why}"),
            _ => format!("{plural}.{GROUP} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(plural, name)
    }

    /// 404: the path does not exist.
    #[must_use]
    pub fn no_such_path() -> Box<Self> {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 404: the object does not exist.
    #[must_use]
    pub fn not_found(plural: &str, name: &str) -> Box<Self> {
        Self::new(404, "NotFound", format!("{plural}.{GROUP} \"{name}\" not found")).about(plural, name)
    }

    /// 404: the namespace does not exist.
    #[must_use]
    pub fn no_namespace(namespace: &str) -> Box<Self> {
        Self::new(404, "NotFound", format!("namespaces \"{namespace}\" not found"))
            .about("namespaces", namespace)
    }

    /// 405: the resource does not support this. `operation` is the name Kubernetes' servers use, such as `Create`.
    #[must_use]
    pub fn method_not_allowed(plural: &str, operation: &str) -> Box<Self> {
        let message = format!("{operation} is not supported on resources of kind \"{plural}.{GROUP}\"");
        Self::new(405, "MethodNotAllowed", message).about(plural, "")
    }

    /// 409: the object exists already.
    #[must_use]
    pub fn already_exists(plural: &str, name: &str) -> Box<Self> {
        Self::new(409, "AlreadyExists", format!("{plural}.{GROUP} \"{name}\" already exists"))
            .about(plural, name)
    }

    /// 409: another client was faster, or a precondition does not hold.
    #[must_use]
    pub fn conflict(plural: &str, name: &str, why: &str) -> Box<Self> {
        let message = format!("Operation cannot be fulfilled on {plural}.{GROUP} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(plural, name)
    }

    /// 409: fields that other managers have applied.
    #[must_use]
    pub fn apply_conflict(causes: Vec<Cause>) -> Box<Self> {
        let listed: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.message, cause.field)).collect();
        let (plural, sum) = if causes.len() == 1 { ("", 1) } else { ("s", causes.len()) };
        let message = format!("Apply failed with {sum} conflict{plural}: {}", listed.join(", "));
        Box::new(Self { causes, ..*Self::new(409, "Conflict", message) })
    }

    /// 410: the requested revision is gone.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Box<Self> {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is larger than anything that can be stored.
    #[must_use]
    pub fn too_large(limit: usize) -> Box<Self> {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 415: the body has an unsupported media type.
    #[must_use]
    pub fn media_type(accepted: &[&str]) -> Box<Self> {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 406: none of the requested forms is supported.
    #[must_use]
    pub fn not_acceptable() -> Box<Self> {
        let message =
            "only the following media types are accepted: application/json, application/json;stream=watch";
        Self::new(406, "NotAcceptable", message)
    }

    /// 422: an object (or its options) that is invalid. `kind` includes its group: `Tier.projectcalico.org`.
    #[must_use]
    pub fn invalid(kind: &str, group: &str, name: &str, causes: Vec<Cause>) -> Box<Self> {
        let listed: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let text = match listed.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let message = format!("{kind}.{group} \"{name}\" is invalid: {text}");
        Box::new(Self { causes, ..*Self::new(422, "Invalid", message).about(kind, name) })
    }

    /// 422: the patch can be read but not applied.
    #[must_use]
    pub fn unprocessable(message: impl Into<String>) -> Box<Self> {
        Self::new(422, "Invalid", message)
    }

    /// 500: an error on our side.
    #[must_use]
    pub fn internal(message: impl std::fmt::Display) -> Box<Self> {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// 503: the store or Kubernetes is unreachable.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Box<Self> {
        Box::new(Self { retry_after: Some(1), ..*Self::new(503, "ServiceUnavailable", message) })
    }

    /// 504: a revision that the store has not reached.
    #[must_use]
    pub fn too_new(wanted: u64, current: u64) -> Box<Self> {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".into(),
            field: String::new(),
        };
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        Box::new(Self { causes: vec![cause], retry_after: Some(1), ..*Self::new(504, "Timeout", message) })
    }

    /// The refusal for an error of the client or the store about an object.
    #[must_use]
    pub fn from_store(served: &Served, name: &str, error: Error) -> Box<Self> {
        let plural = served.plural();
        match error {
            // Either the object itself, or one that it needs.
            Error::DoesNotExist { key, reason } => {
                match key.strip_prefix("Tier(").and_then(|k| k.strip_suffix(')')) {
                    Some(tier) if served.kind.is_tiered_policy() => {
                        let cause = Cause {
                            reason: "FieldValueNotFound",
                            message: format!("Not found: {tier:?}"),
                            field: "spec.tier".into(),
                        };
                        Self::invalid(served.kind.as_str(), GROUP, name, vec![cause])
                    }
                    _ if name.is_empty() => Self::unavailable(format!("{key}: {reason}")),
                    _ => Self::not_found(plural, name),
                }
            }
            Error::AlreadyExists { .. } => Self::already_exists(plural, name),
            Error::UpdateConflict { .. } => Self::conflict(plural, name, MODIFIED),
            Error::Validation(errors) => {
                let cause = |error: &api::FieldError| Cause {
                    reason: "FieldValueInvalid",
                    message: format!("Invalid value: {:?}: {}", error.value, error.reason),
                    field: error.path.to_string(),
                };
                Self::invalid(
                    served.kind.as_str(),
                    GROUP,
                    name,
                    errors.as_slice().iter().map(cause).collect(),
                )
            }
            Error::InsufficientIdentifiers { .. } => Self::bad_request(error.to_string()),
            Error::NotSupported { reason, .. } => {
                let why = if reason.is_empty() { "the store cannot do this".to_owned() } else { reason };
                Self::forbidden(plural, name, &why)
            }
            Error::Expired { reason } => Self::expired(reason),
            Error::Datastore { transient: true, .. } | Error::WatchClosed { .. } => {
                Self::unavailable(error.to_string())
            }
            error => Self::internal(error),
        }
    }

    /// The Status document.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        let mut details = serde_json::Map::new();
        if !self.name.is_empty() {
            details.insert("name".into(), self.name.as_str().into());
        }
        if !self.kind.is_empty() {
            if self.kind != "namespaces" {
                details.insert("group".into(), GROUP.into());
            }
            details.insert("kind".into(), self.kind.as_str().into());
        }
        if !self.causes.is_empty() {
            let cause = |cause: &Cause| {
                let mut value = json!({"reason": cause.reason, "message": cause.message});
                if !cause.field.is_empty() {
                    value["field"] = cause.field.as_str().into();
                }
                value
            };
            details.insert("causes".into(), self.causes.iter().map(cause).collect());
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status
    }
}

/// The message of Kubernetes' servers for an object that has changed since it was read.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// The answer to a deletion.
#[must_use]
pub(crate) fn deleted(served: &Served, name: &str, uid: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "group": GROUP, "kind": served.plural(), "uid": uid},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a Status that the capture has.
    fn check(refusal: &Refusal, captured: &str) {
        let captured: Value = serde_json::from_str(captured).expect("JSON");
        let status = refusal.to_value();
        for part in ["status", "message", "reason", "code", "details"] {
            assert_eq!(status[part], captured[part], "{part}");
        }
    }

    #[test]
    fn refusals_are_calicos() {
        let exchanges = include_str!("../tests/data/exchanges.txt");
        let captured = |beginning: &str| {
            let line = exchanges.lines().find(|line| line.starts_with(beginning)).expect(beginning);
            line[beginning.len()..].trim().to_owned()
        };
        check(&Refusal::not_found("tiers", "nope"), &captured("admin GET tiers/nope 404"));
        check(
            &Refusal::method_not_allowed("clusterinformations", "Update"),
            &captured("admin PUT clusterinformations/default 405"),
        );
        check(&Refusal::conflict("ippools", "p", MODIFIED), &captured("admin PUT ippools/p 409"));
        check(
            &Refusal::forbidden(
                "stagednetworkpolicies",
                "",
                "operation on Calico tiered policy is forbidden",
            ),
            &captured("alice GET stagednetworkpolicies 403"),
        );
    }

    #[test]
    fn several_fields_are_reported_at_once() {
        let mut errors = api::FieldErrors::new();
        errors.add(api::FieldPath::new("spec.a"), "x", "is wrong");
        errors.add(api::FieldPath::new("spec.b"), "", "must be set");
        let tier = Served::from_plural("tiers").expect("served");
        let refusal = Refusal::from_store(tier, "t", Error::Validation(errors));
        assert_eq!(
            refusal.message,
            "Tier.projectcalico.org \"t\" is invalid: [spec.a: Invalid value: \"x\": is wrong, spec.b: Invalid value: \
             \"\": must be set]"
        );
        assert_eq!(refusal.to_value()["details"]["causes"][1]["field"], "spec.b");
    }
}
