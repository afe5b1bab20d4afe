//! The machine of one session (RFC 4271): events and the time in, messages and wishes out.
//!
//! It knows no sockets and no clock: [`Session::handle`] takes what happened and adds what to do, [`Session::deadline`] says
//! when to call it with [`Event::Tick`] at the latest. Each state carries its own timers, so that a timer of another state
//! cannot fire. A peer may have two connections until both have said who they are; the rules of RFC 4271, 6.8 and RFC 6286
//! choose one. Refuses: routes (they pass through), waiting, and randomness of its own.

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
