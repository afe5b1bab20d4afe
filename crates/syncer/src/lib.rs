//! Feeds: what a component calculates with, listed once and then followed, in the shapes it calculates with.
//!
//! ```text
//! Backend ── list, watch ──► shell: one task per kind ──► aggregate ──► Sink
//!                                  │       ▲
//!                            Event ▼       │ Action
//!                               cache ◄── processor (stored entry → feed entries)
//! ```
//!
//! - [`cache`]: the life of one kind as a state machine without IO and clock.
//! - [`processor`]: from stored entries to entries of a feed; pure.
//! - [`aggregate`]: many kinds, one status, one order of delivery; pure.
//! - [`feeds`]: which kinds each component follows.
//! - [`refusals`]: which kinds the store does not let us follow, for health and status.
//! - [`unreadable`]: what cannot be read, for health and metrics.
//! - [`shell`]: tasks, channels and timers around all that.
//!
//! Promises: a [`Sink`] hears every change once, in the store's order for each key; never an entry before the status has
//! left [`Status::WaitForDatastore`](model::feed::Status); never a deletion because of an error; and an object that
//! cannot be read never disappears: its last readable version stays, or a substitute that denies.
//!
//! It refuses to store values, to retry writes, and to know what a policy means.

pub mod aggregate;
pub mod cache;
pub mod feeds;
mod index;
pub mod processor;
pub mod refusals;
pub mod shell;
pub mod unreadable;

pub use feeds::{BgpOptions, FelixOptions, FollowedKind};
pub use refusals::{Refusal, Refusals};
pub use shell::{Sink, Syncer, start};
pub use unreadable::Unreadable;
