//! Integration tests of the store: the engine against a naive model, the file under attack, and the server against real etcd, real
//! etcdctl and a real kube-apiserver.

mod conformance;
mod crash;
mod etcdctl;
mod file;
mod gateway;
mod kubernetes;
mod leases;
mod model;
mod support;
mod watches;
mod wire;
