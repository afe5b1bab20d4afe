//! Typha: one follower of the datastore for many nodes.
//!
//! ```text
//! Backend ─► follow ─► entries as paths and bytes ─► Feed: cache, trail of steps, snapshots
//!                                                      │ shared bytes
//!                               clients ◄── connection ┘ (one task each)
//! ```
//!
//! - [`cache`], [`trail`], [`snapshot`]: the contents of a feed, the changes of each step, and both as bytes; pure.
//! - [`feed`]: one feed, shared by the follower of the store and all connections.
//! - [`connection`]: one client, from its hello to its end. [`server`]: all of them; [`handshakes`]: which may begin.
//! - [`source`]: from the datastore to the feeds. [`rebalance`]: this Typha's share of the clients.
//! - [`config`], [`run`], [`cli`]: the process. [`figures`], [`settings`]: metrics and limits.
//!
//! Promises: a client that connects at any time ends with exactly the contents of the feed; a slow client delays no
//! other; a change is encoded once and compressed once, however many clients there are.
//!
//! Does not interpret entries, and never speaks without TLS where TLS is configured.

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

/// Internals for tests, benchmarks and counts only.
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
