//! The state machine of one session (RFC 4271): events and the time in, messages and actions out.
//!
//! It does not know sockets or the clock: [`Session::handle`] takes an event and adds actions, and
//! [`Session::deadline`] is the time at which to call it with [`Event::Tick`] at the latest. Each state carries its own
//! timers, so that a timer of another state cannot fire. A peer may have two connections until both ends have
//! identified themselves; RFC 4271, 6.8 and RFC 6286 determine which one is kept. Does not handle routes (they pass
//! through), does not wait, and has no source of randomness.

mod established;
mod event;
mod handshake;
mod machine;
mod settings;

#[cfg(test)]
mod tests;

pub(crate) use event::{Action, Agreed, Event, Moment, Reason};
pub use event::{Direction, StateName};
pub(crate) use machine::{Admission, Session};
pub(crate) use settings::{Random, Settings};
