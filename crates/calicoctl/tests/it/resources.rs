//! The commands on resources.

mod bad_input;
mod basics;
mod conversion;
mod golden;
