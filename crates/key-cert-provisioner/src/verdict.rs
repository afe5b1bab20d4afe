//! The outcome of a request. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube_access::followed::Revised;
use serde::Deserialize;

/// The fields of a CertificateSigningRequest that matter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Submitted {
    pub(crate) metadata: Metadata,
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub(crate) uid: String,
    #[serde(rename = "resourceVersion")]
    revision: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
    certificate: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

impl Revised for Submitted {
    fn revision(&self) -> &str {
        &self.metadata.revision
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Pending; names what is still missing.
    Waiting(&'static str),
    /// It will never be signed.
    Refused(String),
    /// It is signed: the certificate in PEM.
    Signed(Vec<u8>),
}

/// Judges a request. A denial counts at once.
pub(crate) fn judge(submitted: &Submitted) -> Verdict {
    let Status { conditions, certificate } = &submitted.status;
    let holds = |kind: &str| {
        conditions.iter().find(|condition| condition.kind == kind && condition.status != "False")
    };
    for (kind, word) in [("Denied", "denied"), ("Failed", "not signed")] {
        if let Some(Condition { reason, message, .. }) = holds(kind) {
            return Verdict::Refused(format!("the request was {word}: {reason}: {message}"));
        }
    }
    match (holds("Approved").is_some(), certificate.is_empty()) {
        (false, _) => Verdict::Waiting("approval"),
        (true, true) => Verdict::Waiting("its signature"),
        (true, false) => match BASE64_STANDARD.decode(certificate) {
            Ok(certificate) => Verdict::Signed(certificate),
            Err(error) => Verdict::Refused(format!("the certificate cannot be read: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_counts_and_a_certificate_needs_approval() {
        let condition = |kind: &str, status: &str| {
            format!(r#"{{"type":"{kind}","status":"{status}","reason":"R","message":"M"}}"#)
        };
        let (approved, denied, failed) =
            (condition("Approved", "True"), condition("Denied", "True"), condition("Failed", "True"));
        let refused = |text: &str| Verdict::Refused(text.to_owned());
        for (conditions, certificate, expected) in [
            (String::new(), "", Verdict::Waiting("approval")),
            (String::new(), "Y2VydA==", Verdict::Waiting("approval")),
            (condition("Approved", "False"), "Y2VydA==", Verdict::Waiting("approval")),
            (approved.clone(), "", Verdict::Waiting("its signature")),
            (approved.clone(), "Y2VydA==", Verdict::Signed(b"cert".to_vec())),
            (denied, "", refused("the request was denied: R: M")),
            (format!("{approved},{failed}"), "", refused("the request was not signed: R: M")),
        ] {
            let text = format!(
                r#"{{"metadata":{{"uid":"u"}},"status":{{"conditions":[{conditions}],"certificate":"{certificate}"}}}}"#
            );
            let submitted: Submitted = serde_json::from_str(&text).unwrap();
            assert_eq!(judge(&submitted), expected, "{text}");
        }
        let broken = r#"{"status":{"conditions":[{"type":"Approved","status":"True"}],"certificate":"?"}}"#;
        assert!(matches!(judge(&serde_json::from_str(broken).unwrap()), Verdict::Refused(_)));
        // The state right after its creation.
        assert_eq!(
            judge(&serde_json::from_str(r#"{"metadata":{},"status":{}}"#).unwrap()),
            Verdict::Waiting("approval")
        );
    }
}
