//! The intent of this node, kept up to date. Both BGP backends start from here.
//!
//! ```text
//! store, or Typha ── feed ───────────┐
//! Kubernetes ── services, slices ────┤
//!            └─ secrets by name ─────┼─► one task with the BgpState ─► watch channel of intents
//! Felix's status files ──────────────┘
//! ```
//!
//! No intent is published before every source has delivered what there is: routes that are missing for a moment at a
//! start are connections that break. Later, a source that goes away leaves what it said last.
//!
//! What it refuses: to carry an intent out, and to decide anything about it.

mod feed;
mod local_peers;
mod options;
mod secrets;
mod state;

pub use options::{BgpLog, Options, OptionsError, VARIABLES};
pub use state::{Latest, Source, SourceError, start};
