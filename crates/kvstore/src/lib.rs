//! The embedded store as a server: etcd's gRPC API, its JSON gateway and its health and metrics pages in front of
//! `kvstore-engine`.
//!
//! [`cli`] is the command line of `tortie datastore`. The store serves one machine: no replication, no authentication.
//! Use etcd where those are needed.

pub mod cli;
pub mod server;
