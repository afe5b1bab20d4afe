//! Typha: one follower of the datastore for many nodes.
//!
//! ```text
//! Backend ─► follow ─► entries as paths and bytes ─► Feed: cache, trail of steps, snapshots
//!                                                      │ shared bytes
//!                               clients ◄── connection ┘ (one task each)
//! ```
//!
//! - [`cache`], [`trail`], [`snapshot`]: what a feed holds, what each step changed, and both as bytes; pure.
//! - [`feed`]: one feed, shared by the follower of the store and all connections.
//! - [`connection`]: one client, from its hello to its end. [`server`]: all of them; [`handshakes`]: whose turn it is.
//! - [`source`]: from the datastore to the feeds. [`rebalance`]: how many clients are ours.
//! - [`config`], [`run`], [`cli`]: the process. [`figures`], [`settings`]: what is counted, and the limits.
//!
//! Promises: a client that comes at any time ends with exactly what the feed holds; a slow client holds up nobody; a
//! change is encoded once and compressed once, however many clients there are.
//!
//! It refuses to know what an entry means, and to speak without TLS where TLS was asked for.

mod cache;
pub mod cli;
pub mod config;
mod connection;
mod feed;
mod figures;
mod handshakes;
mod random;
mod rebalance;
mod run;
mod server;
mod settings;
mod snapshot;
mod source;
mod trail;

/// What tests, benchmarks and counts reach into, and nothing else may.
#[doc(hidden)]
pub mod for_tests {
    pub use crate::cache::{Cache, Input, Step};
    pub use crate::connection::Connection;
    pub use crate::feed::{Feed, FeedOptions};
    pub use crate::figures::ConnectionFigures;
    pub use crate::rebalance::{Limits, Rebalancing};
    pub use crate::server::{Server, ServerParts};
    pub use crate::settings::ServerSettings;
    pub use crate::snapshot::{Snapshot, compressed};
    pub use crate::source::{Source, SourceOptions, follow as follow_store, inputs, kinds};
    pub use crate::trail::Crumb;
}
