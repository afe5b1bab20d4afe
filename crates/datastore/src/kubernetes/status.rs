//! Refusals of the API server, and the corresponding error classes of Calico.

use crate::error::Error;
use http::StatusCode;
use serde::Deserialize;
use std::time::Duration;

/// The body of a refusal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) code: u16,
    pub(crate) details: Option<StatusDetails>,
}

/// The object and the fields concerned.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StatusDetails {
    pub(crate) name: String,
    pub(crate) causes: Option<Vec<StatusCause>>,
    #[serde(rename = "retryAfterSeconds")]
    pub(crate) retry_after_seconds: u64,
}

/// A single error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct StatusCause {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) field: String,
}

/// A request that the server refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} (HTTP {code})", .status.message)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) status: Status,
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    /// Reads the answer to a failed request.
    pub(crate) fn new(code: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let mut status: Status = serde_json::from_slice(body).unwrap_or_default();
        if status.message.is_empty() {
            // Not every refusal comes from the API server itself: a proxy answers in plain text.
            let text = String::from_utf8_lossy(&body[..body.len().min(1024)]).trim().to_owned();
            status.message = if text.is_empty() { code.to_string() } else { text };
        }
        Self { code: code.as_u16(), retry_after, status }.with_retry_from_body()
    }

    /// Converts an error event of a watch.
    pub(crate) fn from_status(status: Status) -> Self {
        Self { code: status.code, status, retry_after: None }.with_retry_from_body()
    }

    fn with_retry_from_body(mut self) -> Self {
        let seconds = self.status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        if self.retry_after.is_none() && seconds > 0 {
            self.retry_after = Some(Duration::from_secs(seconds));
        }
        self
    }

    /// Whether nothing was found: no object, or no such type of object.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status.reason == "NotFound" || (self.status.reason.is_empty() && self.code == 404)
    }

    /// Whether the server does not have this type of object at all: the definition is not installed. The server's
    /// refusal for a missing object names it; this one names nothing.
    pub(crate) fn is_unknown_type(&self) -> bool {
        self.is_not_found() && self.status.details.as_ref().is_none_or(|details| details.name.is_empty())
    }

    /// Whether the requested revision is gone.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self.status.reason.as_str(), "Expired" | "Gone") || self.code == 410
    }

    /// Whether the server has not reached the requested revision yet.
    pub(crate) fn is_too_large_revision(&self) -> bool {
        let causes = self.status.details.iter().flat_map(|details| details.causes.iter().flatten());
        causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
            || self.status.message.contains("Too large resource version")
    }

    /// Calico's error class for this refusal. `attempt` is a phrase such as `create NetworkPolicy(shop/web)`, `key` the
    /// object as Calico prints it.
    pub(crate) fn into_error(self, attempt: &str, key: &str) -> Error {
        let said = || self.status.message.clone();
        let conflict = || Error::UpdateConflict { key: key.to_owned(), existing: None };
        let missing = || Error::DoesNotExist { key: key.to_owned(), reason: said() };
        match self.status.reason.as_str() {
            "AlreadyExists" => return Error::AlreadyExists { key: key.to_owned(), existing: None },
            "NotFound" => return missing(),
            "Forbidden" | "Unauthorized" => {
                return Error::Unauthorized { reason: format!("{attempt}: {}", said()) };
            }
            // The object was deleted and another one created with the same name.
            "Conflict" if self.is_other_uid() => return missing(),
            "Conflict" => return conflict(),
            _ if self.is_expired() || self.is_too_large_revision() => {
                return Error::Expired { reason: said() };
            }
            _ => {}
        }
        match self.only_invalid_field() {
            Some("metadata.uid") => return missing(),
            Some("metadata.resourceVersion") => return conflict(),
            _ => {}
        }
        match self.code {
            401 | 403 => return Error::Unauthorized { reason: format!("{attempt}: {}", said()) },
            404 => return missing(),
            409 => return conflict(),
            _ => {}
        }
        if self.status.reason == "Invalid"
            && let Some(errors) = self.field_errors()
        {
            return Error::Validation(errors);
        }
        // The store behind the API server refuses large objects with a message only.
        let too_large = self.code == 413 || self.status.message.contains("request is too large");
        let transient = !too_large && matches!(self.code, 408 | 429 | 500 | 502 | 503 | 504);
        let context =
            if too_large { format!("{attempt}: larger than the store accepts") } else { attempt.to_owned() };
        let retry_after = self.retry_after;
        Error::Datastore { context, source: Box::new(self), transient, retry_after }
    }

    /// Whether a precondition named another uid; the storage and the registry word this differently.
    fn is_other_uid(&self) -> bool {
        ["UID in precondition", "UID in the precondition"]
            .iter()
            .any(|text| self.status.message.contains(text))
    }

    /// The only field that a patch got wrong, if the server reports no other.
    fn only_invalid_field(&self) -> Option<&str> {
        let mut fields = self
            .status
            .details
            .iter()
            .flat_map(|details| details.causes.iter().flatten())
            .map(|cause| if cause.reason == "FieldValueInvalid" { cause.field.as_str() } else { "" });
        let first = fields.next()?;
        // A wrong uid explains a wrong revision: it is a different object.
        fields.try_fold(first, |seen, field| match (seen, field) {
            (a, b) if a == b => Some(a),
            ("metadata.uid", "metadata.resourceVersion") | ("metadata.resourceVersion", "metadata.uid") => {
                Some("metadata.uid")
            }
            _ => None,
        })
    }

    fn field_errors(&self) -> Option<api::FieldErrors> {
        let causes = self.status.details.as_ref()?.causes.as_ref()?;
        let mut errors = api::FieldErrors::new();
        for (index, cause) in causes.iter().enumerate() {
            // Metadata is checked in several places, each of which reports the error.
            if causes[..index].contains(cause) {
                continue;
            }
            errors.add(api::FieldPath::new(cause.field.clone()), "", cause.message.clone());
        }
        (!errors.is_empty()).then_some(errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: u16, body: &str) -> &'static str {
        let code = StatusCode::from_u16(code).unwrap();
        match Refusal::new(code, None, body.as_bytes()).into_error("create X(a)", "X(a)") {
            Error::Datastore { transient: true, .. } => "transient",
            Error::Datastore { .. } => "datastore",
            Error::DoesNotExist { .. } => "missing",
            Error::AlreadyExists { .. } => "exists",
            Error::UpdateConflict { .. } => "conflict",
            Error::Unauthorized { .. } => "unauthorized",
            Error::Validation(_) => "validation",
            Error::Expired { .. } => "expired",
            _ => "other",
        }
    }

    #[test]
    fn refusals_have_calicos_classes() {
        let cause = |fields: &[(&str, &str)]| {
            let causes: Vec<_> = fields
                .iter()
                .map(|(reason, field)| serde_json::json!({"reason": reason, "field": field}))
                .collect();
            serde_json::json!({"reason": "Invalid", "code": 422, "message": "m", "details": {"causes": causes}}).to_string()
        };
        let invalid = "FieldValueInvalid";
        let table = [
            (409, r#"{"reason":"AlreadyExists","message":"m","code":409}"#.to_owned(), "exists"),
            (409, r#"{"reason":"Conflict","message":"the object has been modified","code":409}"#.to_owned(), "conflict"),
            (
                409,
                r#"{"reason":"Conflict","message":"Precondition failed: UID in precondition: 1, UID in object meta: 2"}"#
                    .to_owned(),
                "missing",
            ),
            (
                409,
                r#"{"reason":"Conflict","message":"the UID in the precondition (1) does not match the UID in record (2)"}"#
                    .to_owned(),
                "missing",
            ),
            (404, r#"{"reason":"NotFound","message":"m","code":404}"#.to_owned(), "missing"),
            (404, "404 page not found".to_owned(), "missing"),
            (403, r#"{"reason":"Forbidden","message":"m"}"#.to_owned(), "unauthorized"),
            (401, r#"{"reason":"Unauthorized","message":"m"}"#.to_owned(), "unauthorized"),
            (410, r#"{"reason":"Expired","message":"too old"}"#.to_owned(), "expired"),
            (410, r#"{"reason":"Gone","message":"too old"}"#.to_owned(), "expired"),
            (
                504,
                r#"{"reason":"Timeout","message":"Too large resource version: 9, current: 5","code":504}"#.to_owned(),
                "expired",
            ),
            (429, "slow down".to_owned(), "transient"),
            (503, String::new(), "transient"),
            (500, r#"{"message":"etcdserver: request is too large","code":500}"#.to_owned(), "datastore"),
            (413, "Request entity too large".to_owned(), "datastore"),
            (400, r#"{"reason":"BadRequest","message":"m"}"#.to_owned(), "datastore"),
            (422, cause(&[(invalid, "metadata.uid")]), "missing"),
            (422, cause(&[(invalid, "metadata.resourceVersion")]), "conflict"),
            (422, cause(&[(invalid, "metadata.resourceVersion"), (invalid, "metadata.uid")]), "missing"),
            (422, cause(&[(invalid, "metadata.uid"), (invalid, "spec.cidr")]), "validation"),
            (422, cause(&[("FieldValueRequired", "metadata.uid")]), "validation"),
        ];
        for (code, body, expected) in table {
            assert_eq!(class(code, &body), expected, "{code} {body}");
        }
    }

    #[test]
    fn the_servers_retry_after_is_kept() {
        let body = br#"{"reason":"TooManyRequests","message":"m","details":{"retryAfterSeconds":7}}"#;
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, None, body);
        let Error::Datastore { retry_after, transient, .. } = refusal.into_error("list X", "X") else {
            panic!()
        };
        assert_eq!((retry_after, transient), (Some(Duration::from_secs(7)), true));
    }

    #[test]
    fn a_missing_definition_is_distinguished_from_a_missing_object() {
        let object =
            br#"{"reason":"NotFound","details":{"name":"a","group":"crd.projectcalico.org"},"code":404}"#;
        assert!(!Refusal::new(StatusCode::NOT_FOUND, None, object).is_unknown_type());
        assert!(Refusal::new(StatusCode::NOT_FOUND, None, b"404 page not found\n").is_unknown_type());
    }
}
