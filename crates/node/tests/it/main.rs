//! The node on real stores: etcd, the embedded store, a kube-apiserver; and on real network namespaces.
//!
//! Machines are made up ([`support::TestHost`]) except where the kernel itself is asked. Every server, folder and
//! namespace is made by the test that uses it.

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
