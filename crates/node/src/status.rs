//! CalicoNodeStatus: answers requests for this node's status.
//!
//! - [`readings`]: the state that the BGP daemons report, read once per answer.
//! - [`answer`]: converts the readings to the resource; pure.
//! - [`schedule`]: when each request is due.
//! - [`reporter`]: the loop that watches requests and writes answers.
//! - [`show`]: the same readings as tables for people (`node status show`).

pub(crate) mod answer;
pub(crate) mod readings;
mod reporter;
pub(crate) mod schedule;
mod show;

pub use reporter::run;
pub use show::show;
