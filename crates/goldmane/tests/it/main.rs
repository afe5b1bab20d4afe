//! A real server on loopback with a clock controlled by the test, and clients that behave like nodes and pages.

mod emitting;
mod losses;
mod process;
mod pushing;
mod reading;
mod streaming;
mod world;
