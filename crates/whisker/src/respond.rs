//! Answers: JSON, compressed if worthwhile, and errors in Calico's form.

use crate::params::BadParameter;
use crate::source::SourceError;
use crate::wire::ErrorText;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use std::io::Write as _;

/// Smaller bodies, in bytes, gain nothing from compression.
const WORTH_COMPRESSING: usize = 1400;

/// Whether a client accepts gzip. A quality of zero means no.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip") || name == "*");
        is_gzip
            && !parts.any(|part| {
                part.starts_with("q=0") && part.trim_start_matches(['q', '=', '0', '.']).is_empty()
            })
    })
}

/// Compresses bytes.
pub(crate) fn gzipped(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    // Writing to a Vec cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// An answer with this body.
pub(crate) fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(axum::body::Body::from(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A JSON answer, compressed if worthwhile and accepted.
pub(crate) fn json(headers: &HeaderMap, value: &impl Serialize) -> Response {
    // Cannot fail: our own types contain only strings and numbers.
    let mut body = serde_json::to_vec(value).unwrap_or_default();
    body.push(b'\n');
    let is_compressed = body.len() >= WORTH_COMPRESSING && takes_gzip(headers);
    if is_compressed {
        body = gzipped(&body, Compression::fast());
    }
    let mut response = answer(StatusCode::OK, "application/json", body);
    let found = response.headers_mut();
    found.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    found.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        found.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// An error in Calico's form.
pub(crate) fn error(status: StatusCode, text: &str) -> Response {
    let body = serde_json::to_vec(&ErrorText { error: text }).unwrap_or_default();
    answer(status, "application/json", body)
}

impl From<BadParameter> for Response {
    fn from(bad: BadParameter) -> Self {
        error(StatusCode::BAD_REQUEST, &bad.0)
    }
}

/// The answer of Calico's backend when Goldmane fails; the reason is logged.
pub(crate) fn source_failed(failure: &SourceError) -> Response {
    tracing::warn!(error = %failure, "the source of flows is not available");
    error(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
}

/// The answer to our own page when the source fails, with the reason.
pub(crate) fn own_failed(failure: &SourceError) -> Response {
    match failure {
        SourceError::Refused(reason) => error(StatusCode::BAD_REQUEST, reason),
        SourceError::Away(reason) => error(StatusCode::BAD_GATEWAY, reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_accept_gzip() {
        for (text, expected) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.8", true),
            ("*", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("br", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(text))]);
            assert_eq!(takes_gzip(&headers), expected, "{text}");
        }
    }
}
