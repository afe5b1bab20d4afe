//! Access control, and the headers that every answer carries.
//!
//! - Only GET and HEAD are served, and one POST that asks what a policy would do: nothing here changes anything.
//! - Everything that shows data requires a bearer token, if one is configured or Kubernetes reviews tokens. The page
//!   itself is public: it contains no data, and asks for the token.
//! - A server on loopback without other protection only answers requests for a name of this machine: a stranger's page
//!   whose name resolves to 127.0.0.1 must not read flows.
//! - Client certificates are checked earlier, in the handshake.

use crate::app::App;
use crate::respond::error;
use crate::reviews::{PATH, Reviews, Verdict};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{AUTHORIZATION, HOST, HeaderName, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// The rules for access.
#[derive(Clone, Default)]
pub struct Access {
    /// The hash of the token, if one is required.
    token: Option<[u8; 32]>,
    /// Reviews other tokens: who owns them, and what their owners may see.
    reviews: Option<Arc<Reviews>>,
    /// Whether only requests for a name of this machine are answered.
    only_local_names: bool,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("has_token", &self.token.is_some())
            .field("asks_kubernetes", &self.reviews.is_some())
            .field("only_local_names", &self.only_local_names)
            .finish()
    }
}

impl Access {
    /// Access with this token, if there is one.
    #[must_use]
    pub fn new(token: Option<&str>, only_local_names: bool) -> Self {
        let token = token.map(|token| Sha256::digest(token).into());
        Self { token, reviews: None, only_local_names }
    }

    /// Also accepts tokens whose owners Kubernetes permits.
    #[must_use]
    pub fn with_reviews(mut self, reviews: Option<Reviews>) -> Self {
        self.reviews = reviews.map(Arc::new);
        self
    }

    /// The refusal of data to this token; `None` if data may be shown.
    async fn data_refusal(&self, token: Option<&str>) -> Option<Response> {
        if self.token.is_none() && self.reviews.is_none() {
            return None;
        }
        let Some(token) = token else { return Some(unauthorized("a bearer token is required")) };
        // Hashes are compared, so that timing reveals nothing about the token.
        if self.token.is_some_and(|known| <[u8; 32]>::from(Sha256::digest(token)) == known) {
            return None;
        }
        let Some(reviews) = &self.reviews else { return Some(unauthorized("the token is wrong")) };
        match reviews.judge(token).await {
            Ok(Verdict::Permitted) => None,
            Ok(Verdict::Unknown) => Some(unauthorized("Kubernetes does not know this token")),
            Ok(Verdict::Forbidden) => {
                let problem =
                    format!("the owner of this token may not get {PATH}: bind a ClusterRole that grants it");
                Some(error(StatusCode::FORBIDDEN, &problem))
            }
            Err(_) => Some(error(
                StatusCode::SERVICE_UNAVAILABLE,
                "cannot ask Kubernetes who may see flows; see the server's log",
            )),
        }
    }

    fn knows_name(&self, request: &Request) -> bool {
        if !self.only_local_names {
            return true;
        }
        let header = request.headers().get(HOST).and_then(|value| value.to_str().ok());
        let name = request.uri().host().or(header).unwrap_or_default();
        is_local_name(name)
    }
}

fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost") || name.to_ascii_lowercase().ends_with(".localhost")
}

/// Whether a path shows data.
fn is_data(path: &str) -> bool {
    ["/flows", "/whisker-backend/", "/api/", "/config/"].iter().any(|data| path.starts_with(data))
        && path != "/flow-logs"
}

/// The headers of every answer.
const HEADERS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// Checks every request before its path is served.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut refused = refusal(&app.access, &request);
    if refused.is_none() && is_data(request.uri().path()) {
        let token = bearer(request.headers()).map(str::to_owned);
        refused = app.access.data_refusal(token.as_deref()).await;
    }
    let mut response = match refused {
        Some(response) => response,
        None => next.run(request).await,
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn refusal(access: &Access, request: &Request) -> Option<Response> {
    let asks = request.method() == Method::POST && request.uri().path() == "/api/v1/impact";
    if request.method() != Method::GET && request.method() != Method::HEAD && !asks {
        return Some(error(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET is supported: nothing can be changed here",
        ));
    }
    if !access.knows_name(request) {
        return Some(error(StatusCode::MISDIRECTED_REQUEST, "use a name of this machine, such as localhost"));
    }
    None
}

/// The bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let shown = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (kind, token) = shown.split_once(' ')?;
    let token = token.trim();
    (kind.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized(problem: &str) -> Response {
    let mut response = error(StatusCode::UNAUTHORIZED, problem);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for (host, expected) in [
            ("localhost:8081", true),
            ("127.0.0.1", true),
            ("127.9.0.1:80", true),
            ("[::1]:8081", true),
            ("ui.localhost:1", true),
            ("example.org:8081", false),
            ("127.0.0.1.example.org", false),
            ("localhost.example.org", false),
            ("10.0.0.1:80", false),
            ("", false),
        ] {
            assert_eq!(is_local_name(host), expected, "{host}");
        }
    }

    #[test]
    fn paths_with_data() {
        for (path, expected) in [
            ("/flows", true),
            ("/flows-filter-hints", true),
            ("/whisker-backend/flows", true),
            ("/api/v1/live", true),
            ("/config/config.json", true),
            ("/", false),
            ("/flow-logs", false),
            ("/whisker.js", false),
            ("/readiness", false),
        ] {
            assert_eq!(is_data(path), expected, "{path}");
        }
    }
}
