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

pub mod cache;
pub mod cli;
pub mod config;
pub mod connection;
pub mod feed;
pub mod figures;
pub mod handshakes;
mod random;
pub mod rebalance;
pub mod run;
pub mod server;
pub mod settings;
pub mod snapshot;
pub mod source;
pub mod trail;

pub use cache::Input;
pub use feed::{Feed, FeedOptions};
pub use figures::ConnectionFigures;
pub use server::{Server, ServerParts};
pub use settings::ServerSettings;
