//! Following a Typha instead of the datastore.
//!
//! ```text
//! discovery ─► connect, TLS ─► session (messages) ─► machine (what is new) ─► Consumer
//!     ▲                            │
//!     └──────── reconnect ◄────────┘ lost
//! ```
//!
//! - [`machine`]: what the consumer knows, and what a new connection changes about it; pure.
//! - [`session`]: one connection, from the hello to its end.
//! - [`discovery`]: where Typhas are, and which one to try first.
//! - [`tls`], [`certificate`]: both sides' TLS, with the names that certificates must have.
//! - [`feed`]: events of a feed, in place of a follower of the datastore.
//! - [`environment`]: the variables of components beside Felix; [`state_file`]: what they say for the node's health.
//! - [`backoff`]: how long to wait between attempts; pure.
//! - [`reconnect`]: all of it, for as long as the component runs.
//!
//! Promises: while no Typha can be reached, the consumer keeps what it has and nothing is deleted; after a reconnect it is
//! told exactly the difference; what health shows says since when that has been so.
//!
//! It refuses to follow the datastore itself when Typha is away: a cluster has Typha because it cannot bear that.

pub mod backoff;
pub mod certificate;
pub mod discovery;
pub mod environment;
pub mod feed;
pub mod machine;
pub mod reconnect;
pub mod session;
pub mod settings;
pub mod state_file;
pub mod tls;

pub use discovery::Discovery;
pub use feed::{follow_feed, follow_unread};
pub use machine::{Decoder, Machine};
pub use reconnect::{Follower, follow};
pub use session::Consumer;
pub use settings::ClientSettings;
