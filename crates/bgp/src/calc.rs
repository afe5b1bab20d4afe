//! The parts of an intent, each a pure function of the facts.

mod announcements;
pub(crate) mod peers;
pub(crate) mod services;

pub(crate) use announcements::{blocks, communities, export_of_pools, kernel};
