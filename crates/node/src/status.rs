//! CalicoNodeStatus: other people's questions about this node, answered.
//!
//! - [`readings`]: what the BGP daemons say, asked once per answer.
//! - [`answer`]: the readings as the resource has them, without asking anybody.
//! - [`schedule`]: which question is due when.
//! - [`reporter`]: the loop that watches questions and writes answers.
//! - [`show`]: the same readings as tables for people (`node status show`).

pub mod answer;
pub mod readings;
mod reporter;
pub mod schedule;
mod show;

pub use reporter::{StatusError, run};
pub use show::show;
