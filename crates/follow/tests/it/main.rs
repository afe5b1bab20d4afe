//! Feeds on real stores that break: etcd, the embedded engine, a Kubernetes API server.

mod embedded;
mod etcd;
mod kubernetes;
mod recorder;
mod scenario;
