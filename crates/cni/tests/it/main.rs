//! The plugins as programs, with real components: network namespaces as pods, etcd, kube-apiserver, containerd, and the
//! reference plugins. Everything happens inside namespaces that a test creates and removes.

mod accounts;
mod agent;
mod apart;
mod attach;
mod away;
mod captured;
mod chain;
mod containers;
mod faults;
mod kubernetes;
mod machines;
mod many;
mod outside;
mod takeover;
mod world;
