//! The cost of the product, measured without a cluster.
//!
//! ```text
//! Cluster (a plan: nodes, pods, policies, churn) ─► Hub: Typha's cache and bytes ─► Member: a node's reader and graph
//! ```
//!
//! - [`cluster`]: a cluster of any size as entries, and its changes in each second; always the same.
//! - [`hub`]: Typha's processing of entries: its real cache, steps, snapshot and messages, without sockets.
//! - [`member`]: a node's processing of those bytes: the real reader and the real graph, without a kernel.
//!
//! `benches/scale` measures all of it at sizes that no machine of ours could run (`make bench scale`, `docs/scale.md`);
//! `tests/it` counts allocations, bytes and kernel messages on a small one, and fails when they grow.
//!
//! It never waits: time is a number here, and nothing is sent anywhere.

pub mod cluster;
pub mod hub;
pub mod member;

pub use cluster::Cluster;
pub use hub::Hub;
pub use member::Member;
