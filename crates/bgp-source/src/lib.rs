//! Keeps the intent of this node up to date, for both BGP backends.
//!
//! ```text
//! store, or Typha ── feed ───────────┐
//! Kubernetes ── services, slices ────┤
//!            └─ secrets by name ─────┼─► one task with the BgpState ─► watch channel of intents
//! Felix's status files ──────────────┘
//! ```
//!
//! No intent is published before every source has delivered its objects: a temporary lack of routes at a start would
//! break connections. Later, the last known objects of a source that becomes unavailable are kept.
//!
//! Does not apply an intent, and makes no decisions about it.

mod feed;
mod local_peers;
mod options;
mod secrets;
mod state;

pub use options::{BgpLog, Options, OptionsError, VARIABLES};
pub use state::{Latest, Source, SourceError, start};
