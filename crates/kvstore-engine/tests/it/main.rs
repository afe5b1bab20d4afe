//! Integration tests of the engine: against a naive model, with its file under attack, and as watches and leases see it.

mod file;
mod leases;
mod model;
mod support;
mod watches;
