//! What the shell is asked to do, and what people should know.

use crate::session::{Direction, Reason, StateName};
use rib::PeerId;

/// What the shell is asked to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect to a peer, see [`Engine::endpoint`].
    Connect(PeerId),
    /// Close a connection after these last bytes, which need not arrive.
    Close(PeerId, Direction, Vec<u8>),
    /// Where to listen, keys or limits of listening sockets may have changed.
    Listen,
    /// Which peers BFD is to watch may have changed, see [`Engine::watched`].
    Watch,
    /// A restart is over: kernel routes of before that are not wanted any more can go.
    SweepKernel,
    /// A person should know.
    Log(LogLine),
}

/// What a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine {
    /// The state of a session has changed.
    State {
        /// The session's name.
        session: String,
        /// The remote end.
        remote: String,
        /// What it was.
        from: StateName,
        /// What it is.
        to: StateName,
        /// What brought the change about, where a fault or a message did.
        reason: Option<Reason>,
    },
    /// Something is odd about a session.
    Warning {
        /// The session's name.
        session: String,
        /// The line for the log.
        text: String,
    },
    /// A restart of this speaker is over.
    Restarted {
        /// Whether all peers had sent what they have.
        complete: bool,
    },
}
