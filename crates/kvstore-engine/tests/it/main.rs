//! Integration tests of the engine: against a naive model, with its file under attack, and of its watches and leases.

mod file;
mod leases;
mod model;
mod support;
mod watches;
