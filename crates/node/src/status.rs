//! CalicoNodeStatus: other people's questions about this node, answered.
//!
//! - [`readings`]: what the BGP daemons say, asked once per answer.
//! - [`answer`]: the readings as the resource has them, without asking anybody.
//! - [`schedule`]: which question is due when.
//! - [`reporter`]: the loop that watches questions and writes answers.
//! - [`show`]: the same readings as tables for people (`node status show`).

pub(crate) mod answer;
pub(crate) mod readings;
mod reporter;
pub(crate) mod schedule;
mod show;

pub use reporter::run;
pub use show::show;
