//! The command line as a user sees it: arguments in, text and an exit code out. Everything runs in this process, on the
//! embedded store, and a representative part on a real etcd and a real kube-apiserver.

mod bgp;
mod capture;
mod cluster;
mod datastore;
mod explain;
mod flows;
mod harness;
mod ipam;
mod node;
mod places;
mod resources;
mod version;
