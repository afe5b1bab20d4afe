//! Tokens of service accounts: requested from the API, or read from the pod's own file if the API does not support such
//! requests; and when to fetch the next one.

use crate::access::{ApiError, JSON, KubeAccess, segment};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The requested lifetime of a token.
pub const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest pause between two requests.
const SHORTEST_PAUSE: Duration = Duration::from_secs(5);

/// A new token is fetched after the remaining life of the old one divided by this.
const FRACTION: u32 = 4;

/// A token and its expiry.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token itself. Not for messages or logs.
    pub text: String,
    /// When it expires.
    pub expires: Timestamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The API does not issue one.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The API's answer has no usable expiry.
    #[error("the API's token has no usable expiration: {0}")]
    Expiration(String),
    /// The pod's own file cannot be read.
    #[error("cannot read the service account's token {path}: {source}")]
    File {
        /// The path of the file.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The pod's own file has no token that can be parsed.
    #[error("the service account's token in {path} cannot be used: {reason}")]
    Claims {
        /// The path of the file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Fetches a token for a service account.
///
/// # Errors
/// When the API issues none. If the API does not support token requests, the pod's own token in `own_token` is
/// returned.
pub async fn fetch(
    access: &KubeAccess,
    namespace: &str,
    service_account: &str,
    own_token: &Path,
) -> Result<Token, TokenError> {
    match create(access, namespace, service_account).await {
        Err(TokenError::Api(error)) if error.is_not_found() && !supports_requests(access).await => {
            tracing::debug!(%error, "the API has no token requests: using this pod's own token");
            from_file(own_token)
        }
        outcome => outcome,
    }
}

async fn create(access: &KubeAccess, namespace: &str, service_account: &str) -> Result<Token, TokenError> {
    #[derive(Deserialize)]
    struct TokenRequest {
        status: Status,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        token: String,
        expiration_timestamp: String,
    }
    let what = format!("requesting a token for service account {namespace}/{service_account}");
    let path = format!(
        "/api/v1/namespaces/{}/serviceaccounts/{}/token",
        segment(namespace),
        segment(service_account)
    );
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": LIFETIME.as_secs()},
    });
    let body = Some(body.to_string().into_bytes());
    let answer: TokenRequest = access.request(what, Method::POST, &path, body, JSON).await?;
    let expires = answer
        .status
        .expiration_timestamp
        .parse()
        .map_err(|error: jiff::Error| TokenError::Expiration(error.to_string()))?;
    Ok(Token { text: answer.status.token, expires })
}

/// Whether the API supports token requests. If it does not answer, it is assumed to: only a clear no counts.
async fn supports_requests(access: &KubeAccess) -> bool {
    #[derive(Deserialize)]
    struct Resources {
        resources: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let what = "checking which requests the API offers".to_owned();
    match access.request::<Resources>(what, Method::GET, "/api/v1", None, JSON).await {
        Ok(found) => found.resources.iter().any(|resource| resource.name == "serviceaccounts/token"),
        Err(error) => {
            tracing::debug!(%error, "cannot tell whether the API has token requests");
            true
        }
    }
}

/// Reads the pod's own token.
///
/// # Errors
/// When the file cannot be read or has no token.
pub fn from_file(path: &Path) -> Result<Token, TokenError> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| TokenError::File { path: name(), source })?;
    parse(text.trim()).map_err(|reason| TokenError::Claims { path: name(), reason })
}

/// Parses a token whose expiry is in its own claims. The API checks the signature, not we.
fn parse(text: &str) -> Result<Token, String> {
    #[derive(Deserialize)]
    struct Claims {
        exp: Option<f64>,
    }
    let parts: Vec<&str> = text.split('.').collect();
    let [_, claims, _] = parts.as_slice() else {
        return Err(format!("it has {} parts instead of three", parts.len()));
    };
    let claims = URL_SAFE_NO_PAD
        .decode(claims.trim_end_matches('='))
        .map_err(|error| format!("its claims are not base64: {error}"))?;
    let claims: Claims =
        serde_json::from_slice(&claims).map_err(|error| format!("its claims are not readable: {error}"))?;
    let seconds = claims.exp.ok_or("its claims have no 'exp'")?;
    let expires = Duration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|since| Timestamp::new(i64::try_from(since.as_secs()).ok()?, 0).ok())
        .ok_or_else(|| format!("its 'exp' is not a moment: {seconds}"))?;
    Ok(Token { text: text.to_owned(), expires })
}

/// How long to wait before fetching the next token. `expires` is `None` after a failure; `interval` is the user's
/// setting; `chance`, from 0 to 1, spreads many nodes over time.
#[must_use]
pub fn pause(
    expires: Option<Timestamp>,
    now: Timestamp,
    interval: Option<Duration>,
    chance: f64,
) -> Duration {
    let remaining =
        expires.and_then(|expires| Duration::try_from(expires.duration_since(now)).ok()).unwrap_or_default();
    let wanted = if remaining < SHORTEST_PAUSE * FRACTION {
        SHORTEST_PAUSE
    } else {
        // An interval longer than the token's life would leave the plugin without a token.
        interval.map_or(remaining / FRACTION, |interval| interval.clamp(SHORTEST_PAUSE, remaining / 2))
    };
    wanted.max(SHORTEST_PAUSE) + wanted.mul_f64(chance.clamp(0.0, 1.0)).min(remaining / FRACTION)
}

/// [`pause`] from now on, with a random spread.
#[must_use]
pub fn pause_now(expires: Option<Timestamp>, interval: Option<Duration>) -> Duration {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    let chance = f64::from(u16::from_be_bytes([bytes[0], bytes[1]])) / f64::from(u16::MAX);
    pause(expires, Timestamp::now(), interval, chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(seconds, 0).expect("a moment")
    }

    #[test]
    fn the_expiry_of_a_token_is_in_its_claims() {
        let token = |claims: &str| format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(parse(&token(r#"{"exp":1700000000}"#)).map(|token| token.expires), Ok(at(1_700_000_000)));
        assert_eq!(parse(&(token(r#"{"exp":1.7e9}"#))).map(|token| token.expires), Ok(at(1_700_000_000)));
        for (text, expected) in [
            ("only-one-part".to_owned(), "1 parts"),
            ("a.!!.c".to_owned(), "not base64"),
            (token("[]"), "not readable"),
            (token("{}"), "no 'exp'"),
            (token(r#"{"exp":-1}"#), "not a moment"),
        ] {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_token_is_renewed_long_before_it_expires() {
        let day = 86_400;
        let secs = Duration::from_secs;
        for (expires, interval, chance, expected) in [
            // A quarter of the life, plus up to as much again.
            (Some(day), None, 0.0, secs(21_600)),
            (Some(day), None, 1.0, secs(43_200)),
            // Nearly expired, expired, or none: the shortest pause.
            (Some(19), None, 0.0, secs(5)),
            (Some(-10), None, 0.0, secs(5)),
            (None, None, 0.0, secs(5)),
            (None, Some(secs(3600)), 0.0, secs(5)),
            // The user's interval applies, within the token's life.
            (Some(day), Some(secs(600)), 0.0, secs(600)),
            (Some(day), Some(secs(600)), 1.0, secs(1200)),
            (Some(day), Some(secs(1)), 0.0, secs(5)),
            (Some(day), Some(secs(10 * 86_400)), 1.0, secs(64_800)),
        ] {
            assert_eq!(
                pause(expires.map(at), at(0), interval, chance),
                expected,
                "{expires:?} {interval:?} {chance}"
            );
        }
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = Token { text: "hush".into(), expires: at(0) };
        assert!(!format!("{token:?}").contains("hush"));
    }
}
