//! Integration tests of the server, against real etcd, real etcdctl and a real kube-apiserver.

mod conformance;
mod crash;
mod etcdctl;
mod files;
mod gateway;
mod kubernetes;
mod support;
mod wire;
