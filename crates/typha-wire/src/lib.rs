//! Typha's protocol, without sockets, clocks and tasks.
//!
//! ```text
//! client                                                server
//! ClientHello ─────────────────────────────────────────►
//!          ◄───────────────────────────────── ServerHello
//!          ◄─────────────── DecoderRestart (compression)     only if the client offered both
//! ACK ─────────────────────────────────────────────────►
//!          ◄──── snapshot as KVs, DecoderRestart (its end)   a new stream, compressed
//! ACK ─────────────────────────────────────────────────►
//!          ◄──────────────── KVs, SyncStatus, Ping, ...      a new stream again
//! Pong ────────────────────────────────────────────────►
//! ```
//!
//! - [`messages`]: the messages and their names.
//! - [`schema`]: the types of the messages, as each stream defines them.
//! - [`incoming`]: from bytes to messages. [`outgoing`]: and back, as Go writes them or as bytes shared by many
//!   clients.
//! - [`update`]: one key with its value in the form in which it is kept and sent.
//! - [`snappy`]: the compressed stream around the messages.
//! - [`entries`]: entries of a feed as Calico's keys and serialised values.
//!
//! Does not decide when something is sent, nor read what Go would refuse.

pub mod entries;
pub mod incoming;
pub mod messages;
pub mod outgoing;
pub mod schema;
pub mod snappy;
pub mod time;
pub mod update;

pub use incoming::{Incoming, WireError};
pub use messages::{ClientHello, Compression, Message, Position, ServerHello, SyncerType, WireUpdate};
pub use time::GoTime;
pub use update::{Change, EncodedUpdate};

/// The port that Typha listens on.
pub const DEFAULT_PORT: u16 = 5473;
