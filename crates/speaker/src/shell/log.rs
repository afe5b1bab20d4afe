//! The speaker's log lines.

use crate::engine::LogLine;
use crate::session::StateName;
use std::io;

/// The text of a socket error, without its number.
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// Logs a message of the engine.
pub(super) fn log(line: &LogLine) {
    match line {
        LogLine::State { session, remote, from, to, reason } => match (reason, *to) {
            (_, StateName::Established) => {
                tracing::info!(%session, "BGP session with {remote} is established");
            }
            (Some(reason), _) if *from == StateName::Established => {
                tracing::warn!(%session, "BGP session with {remote} has ended: {reason}");
            }
            (Some(reason), _) => {
                tracing::info!(%session, "BGP session with {remote}: {from} to {to}: {reason}");
            }
            (None, _) => tracing::debug!(%session, "BGP session with {remote}: {from} to {to}"),
        },
        LogLine::Warning { session, text } => tracing::warn!(%session, "{text}"),
        LogLine::Restarted { complete: true } => {
            tracing::info!("all peers have sent their routes after the restart");
        }
        LogLine::Restarted { complete: false } => {
            tracing::warn!("the restart is over, although not all peers have sent their routes");
        }
    }
}
