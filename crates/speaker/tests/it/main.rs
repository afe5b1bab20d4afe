//! The speaker with real peers in network namespaces.

mod bfd;
mod bird;
mod cluster;
mod equal_paths;
mod garbage;
mod harness;
mod others;
mod scenarios;
mod traffic;
