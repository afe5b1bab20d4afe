//! Following a datastore: kinds are listed once and then watched, with one policy for failures and for unreadable
//! entries.
//!
//! ```text
//! Backend ── list, watch ──► driver: one task per kind ──► aggregate ──► FeedEvent { Entries, Status, Away }
//!                                  │       ▲                             or a Snapshot: a current map
//!                            Event ▼       │ Action
//!                               cache ◄── processor (stored entry → feed entries)
//! ```
//!
//! - [`cache`]: the life of one kind as a state machine without IO and clock.
//! - [`source`], [`Driver`]: what can be followed (Calico's data in a [`Backend`](datastore::Backend), or objects of
//!   the Kubernetes API decoded by their user), and what carries out the machine's actions.
//! - [`ahead`]: the first list of a kind, converted by the threads that decode it.
//! - [`processor`]: from stored entries to entries of a feed; pure.
//! - [`aggregate`]: many kinds, one status, one order of delivery; pure.
//! - [`KeyTable`]: the keys that have been reported, in little memory.
//! - [`feeds`]: the kinds that each component follows.
//! - [`follow()`], [`Follower`]: tasks and channels around them; [`Events`]: their receiving end.
//! - [`Snapshot`]: the entries of one list, for code that needs them occasionally.
//! - [`refusals`]: the kinds that the store does not let us follow, for health and status.
//! - [`unreadable`]: what cannot be read, for health and metrics.
//!
//! Promises: a receiver gets every change once, in the store's order for each key; never an entry before the status has
//! left [`Status::WaitForDatastore`]; never a deletion because of an error; and an object that cannot be read never
//! disappears from a feed: its last readable version stays, or a substitute that denies.
//!
//! Does not retry writes, nor interpret policies.

pub mod aggregate;
pub mod ahead;
pub mod cache;
mod driver;
mod events;
pub mod feeds;
mod key_table;
mod keys;
pub mod processor;
pub mod refusals;
mod shell;
mod snapshot;
pub mod source;
pub mod unreadable;

pub use driver::{Driver, Told};
pub use events::{Events, Make};
pub use feeds::{BgpOptions, FelixOptions, FollowedKind};
pub use key_table::{KeyHash, KeyTable, Known, Place};
pub use refusals::{Refusal, Refusals};
pub use shell::{Follower, follow, follow_as};
pub use snapshot::{Held, Snapshot};
pub use source::Source;
pub use unreadable::Unreadable;

use model::feed::{FeedEntry, Status};

/// A delivery of a feed: entries unchanged, or in the form its reader wants ([`follow_as`]).
#[derive(Clone, Debug, PartialEq)]
pub enum FeedEvent<E = FeedEntry> {
    /// Entries were added, changed or removed.
    Entries(Vec<E>),
    /// The feed's status changed.
    Status(Status),
    /// The store has been unreachable for too long; repeated for every further failed attempt.
    Away(String),
}
