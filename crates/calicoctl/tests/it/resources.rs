//! The commands on resources.

mod bad_input;
mod basics;
mod captured;
mod conversion;
mod golden;
