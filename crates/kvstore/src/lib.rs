//! The embedded store as a server: etcd's gRPC API, its JSON gateway and its health and metrics pages in front of `kvstore-engine`.
//!
//! [`cli`] is the command line of `tortie datastore`. It is a store for one machine: no replication, no authentication. Where that
//! is needed, use etcd.

pub mod cli;
pub mod server;
