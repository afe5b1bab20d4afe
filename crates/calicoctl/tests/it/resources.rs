//! The commands on resources.

mod bad_input;
mod basics;
mod captured;
mod conversion;
mod golden;
mod kubectl_ways;
mod watching;
