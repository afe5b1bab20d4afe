//! Address management on stores of every kind: an in-memory one that stops between any two operations, the embedded
//! store, a real etcd and a real kube-apiserver.

mod ahead;
mod captured;
mod fixtures;
mod interleavings;
mod scenarios;
mod servers;
mod sim;
mod warm;
