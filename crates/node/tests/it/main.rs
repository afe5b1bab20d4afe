//! The node on real stores: etcd, the embedded store, a kube-apiserver; and on real network namespaces.
//!
//! Machines are simulated ([`support::TestHost`]) except where the kernel itself is tested. Each test creates its own
//! servers, folders and namespaces.

mod addresses;
mod faults;
mod folders;
mod health;
mod kubernetes;
mod roles;
mod startup;
mod status;
mod support;
mod tunnels;
mod typha;
