//! Sorts errors of etcd and the network into the few classes that matter to callers.
//!
//! The one subtle question is whether a failed request can have been carried out. It cannot when the connection was
//! never established; then any other member may be tried. It can when the connection broke later; then only reads are
//! repeated.

use super::transport::TransportError;
use daemon::causes;
use std::error::Error as StdError;
use tonic::{Code, ConnectError, Status};

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It was never sent: there was no connection.
    NotSent(String),
    /// It was sent, and its outcome is unknown; or the member cannot serve now.
    Unknown(String),
    /// The store refused it.
    Refused(TransportError),
}

/// Whether the server reports that it has no users, so that logging in is neither possible nor needed.
pub(super) fn is_auth_not_enabled(status: &Status) -> bool {
    status.code() == Code::FailedPrecondition && status.message().contains("authentication is not enabled")
}

/// Whether the server refused a request because it does not recognise the user: without a token since users were
/// introduced later, with an expired one, or with one from before the users were changed.
pub(super) fn needs_login(status: &Status) -> bool {
    let text = status.message();
    match status.code() {
        Code::Unauthenticated => true,
        Code::InvalidArgument => {
            text.contains("user name is empty") || text.contains("revision of auth store is old")
        }
        Code::Unknown => text.contains("invalid auth token"),
        _ => false,
    }
}

/// Classifies a failure.
pub(super) fn failure(status: &Status) -> Failure {
    if let Some(connect) = connect_error(status) {
        return Failure::NotSent(connect);
    }
    let text = status.message();
    match status.code() {
        Code::OutOfRange if text.contains("revision") => refused(TransportError::Revision, text),
        Code::Unauthenticated | Code::PermissionDenied => refused(TransportError::Unauthorized, text),
        Code::InvalidArgument if is_about_users(text) => refused(TransportError::Unauthorized, text),
        Code::InvalidArgument if text.contains("request is too large") => {
            refused(TransportError::TooLarge, text)
        }
        Code::ResourceExhausted if text.contains("larger than max") => {
            refused(TransportError::TooLarge, text)
        }
        // etcd: "database space exceeded", "too many requests". The server has not carried it out, and may do so later.
        Code::ResourceExhausted => refused(TransportError::Unavailable, text),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Aborted => {
            Failure::Unknown(describe(status))
        }
        Code::Unknown | Code::Internal if status.source().is_some() => Failure::Unknown(describe(status)),
        _ => refused(TransportError::Failed, &format!("{} ({:?})", text, status.code())),
    }
}

fn refused(class: fn(String) -> TransportError, text: &str) -> Failure {
    Failure::Refused(class(text.to_owned()))
}

fn is_about_users(text: &str) -> bool {
    text.contains("authentication failed")
        || text.contains("user name is empty")
        || text.contains("invalid auth token")
}

/// The error for a cancelled watch.
pub(super) fn cancellation(compact_revision: i64, reason: &str) -> TransportError {
    if compact_revision > 0 {
        return TransportError::Revision(format!(
            "etcdserver: mvcc: required revision has been compacted (oldest is {compact_revision})"
        ));
    }
    if reason.contains("permission denied") || reason.contains("PermissionDenied") || is_about_users(reason) {
        return TransportError::Unauthorized(reason.to_owned());
    }
    if reason.contains("compacted") {
        return TransportError::Revision(reason.to_owned());
    }
    let reason = if reason.is_empty() { "the server cancelled the watch" } else { reason };
    TransportError::Unavailable(reason.to_owned())
}

fn connect_error(status: &Status) -> Option<String> {
    status.source().and_then(connect_cause)
}

/// Why a connection was not established, if that was the problem.
pub(super) fn connect_cause(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<ConnectError>() {
            return Some(causes(error).to_string());
        }
        next = error.source();
    }
    None
}

fn describe(status: &Status) -> String {
    match status.source() {
        Some(source) => {
            let below = causes(source).to_string();
            if below.contains(status.message()) { below } else { format!("{}: {below}", status.message()) }
        }
        None => status.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code, message, and the class it belongs to.
    #[test]
    fn errors_are_classified_by_code_and_text() {
        let cases = [
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "revision"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", "revision"),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "unauthorized"),
            (Code::PermissionDenied, "etcdserver: permission denied", "unauthorized"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "unauthorized",
            ),
            (Code::InvalidArgument, "etcdserver: user name is empty", "unauthorized"),
            (Code::InvalidArgument, "etcdserver: request is too large", "too large"),
            (Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)", "too large"),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "unavailable"),
            (Code::InvalidArgument, "etcdserver: key is not provided", "failed"),
            (Code::Unavailable, "etcdserver: leader changed", "unknown"),
            (Code::DeadlineExceeded, "context deadline exceeded", "unknown"),
        ];
        for (code, text, expected) in cases {
            let class = match failure(&Status::new(code, text)) {
                Failure::NotSent(_) => "not sent",
                Failure::Unknown(_) => "unknown",
                Failure::Refused(TransportError::Revision(_)) => "revision",
                Failure::Refused(TransportError::Unauthorized(_)) => "unauthorized",
                Failure::Refused(TransportError::TooLarge(_)) => "too large",
                Failure::Refused(TransportError::Unavailable(_)) => "unavailable",
                Failure::Refused(TransportError::Failed(_)) => "failed",
            };
            assert_eq!(class, expected, "{code:?} {text}");
        }
    }

    #[test]
    fn a_connection_never_opened_sent_nothing() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused))));
        assert!(matches!(failure(&status), Failure::NotSent(text) if text.contains("connection refused")));
    }

    #[test]
    fn a_cancelled_watch_distinguishes_compaction_from_permission() {
        assert!(matches!(cancellation(7, ""), TransportError::Revision(_)));
        assert!(matches!(cancellation(0, "etcdserver: permission denied"), TransportError::Unauthorized(_)));
        assert!(matches!(cancellation(0, ""), TransportError::Unavailable(_)));
    }
}
