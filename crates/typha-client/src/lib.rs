//! Following a Typha instead of the datastore.
//!
//! ```text
//! discovery ─► connect, TLS ─► session (messages) ─► machine (what is new) ─► Consumer
//!     ▲                            │
//!     └──────── reconnect ◄────────┘ lost
//! ```
//!
//! - [`machine`]: the entries that the consumer knows, and the changes that a new connection brings; pure.
//! - [`session`]: one connection, from the hello to its end.
//! - [`discovery`]: where Typhas are, and in which order to try them.
//! - [`tls`], [`certificate`]: both sides' TLS, with the names that certificates must have.
//! - [`feed`]: events of a feed, in place of a follower of the datastore.
//! - [`environment`]: the variables of components other than Felix; [`state_file`]: their state for the node's health.
//! - [`backoff`]: how long to wait between attempts; pure.
//! - [`reconnect`]: all of it, for as long as the component runs.
//!
//! Promises: while no Typha can be reached, the consumer keeps its entries and nothing is deleted; after a reconnect it
//! receives exactly the difference; health reports since when there has been no connection.
//!
//! Never follows the datastore itself when Typha is down: a cluster has Typha because the datastore could not bear
//! that.

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
