//! `calico-node -bpf …`, `tortie node bpf …`: what is in the maps of the eBPF dataplane, in Calico's words, and a few ways to
//! change it by hand; and [`bootstrap()`], which `node init` does before there is an agent.
//!
//! Commands see maps through [`Maps`], so they are tested on contents given as data. What Calico prints in the order in which
//! the kernel's hash gives it is sorted here; a list without entries is `[]` in JSON, and never `null`.
//!
//! It refuses to guess: a map that is not there, or of another size, is an error that names it.

mod arp;
mod bootstrap;
mod cli;
mod conntrack;
mod counters;
mod interfaces;
mod maps;
mod nat;
mod pins;
mod policy;
mod profiling;
mod routes;
mod sets;
mod text;
mod watch;

pub use bootstrap::bootstrap;
pub use cli::{Arguments, run};
pub use maps::{Entries, Failure, Maps, Pinned};
