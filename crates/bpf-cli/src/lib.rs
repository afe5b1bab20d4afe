//! `calico-node -bpf …`, `tortie node bpf …`: shows the maps of the eBPF dataplane in Calico's format, and changes them
//! by hand; and [`bootstrap()`], which `node init` calls before there is an agent.
//!
//! Commands access maps through [`Maps`], so they are tested with given contents. Output that Calico prints in the
//! order of the kernel's hash is sorted here; a list without entries is `[]` in JSON, never `null`.
//!
//! Does not guess: a map that does not exist, or has another size, is an error that names it.

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
