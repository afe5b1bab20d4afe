//! A real server on loopback, with a clock of the test's own, and clients as nodes and pages are.

mod emitting;
mod losses;
mod process;
mod pushing;
mod reading;
mod streaming;
mod world;
