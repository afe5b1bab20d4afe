//! Requests to the shell, and messages for the log.

use crate::session::{Direction, Reason, StateName};
use rib::PeerId;

/// A request to the shell.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect to a peer, see [`Engine::endpoint`].
    Connect(PeerId),
    /// Close a connection after these last bytes, which need not arrive.
    Close(PeerId, Direction, Vec<u8>),
    /// Listening addresses, keys or TTL limits may have changed.
    Listen,
    /// The peers for BFD to watch may have changed, see [`Engine::watched`].
    Watch,
    /// A restart is over: kernel routes from before it that are no longer wanted can be removed.
    SweepKernel,
    /// A message for the log.
    Log(LogLine),
}

/// A message for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine {
    /// The state of a session has changed.
    State {
        /// The session's name.
        session: String,
        /// The remote end.
        remote: String,
        /// The previous state.
        from: StateName,
        /// The new state.
        to: StateName,
        /// The error or message that caused the change, if any.
        reason: Option<Reason>,
    },
    /// A session has a problem.
    Warning {
        /// The session's name.
        session: String,
        /// The text.
        text: String,
    },
    /// A restart of this speaker is over.
    Restarted {
        /// Whether all peers had sent their routes.
        complete: bool,
    },
}
