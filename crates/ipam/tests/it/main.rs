//! Address management on all kinds of stores: an in-memory store that stops between any two operations, the embedded
//! store, a real etcd and a real kube-apiserver.

mod ahead;
mod captured;
mod fixtures;
mod interleavings;
mod scenarios;
mod servers;
mod sim;
mod warm;
