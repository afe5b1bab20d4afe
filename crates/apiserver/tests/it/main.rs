//! The server on a real etcd, and behind a real kube-apiserver with `kubectl`.

mod aggregated;
mod bad_input;
mod conformance;
mod exchanges;
mod hooks;
mod interruptions;
mod migration;
mod restarts;
mod roles;
mod upstream;
mod watches;
mod webhooks;
mod world;
