//! Policies, endpoints, NAT and dispatch rendered into a backend-neutral rule tree, and the identity of rules.
//!
//! Pure: no IO, no clock, no async. What is rendered is decided by [`RulesConfig`] and by messages alone, so the same
//! input gives the same bytes. Names of chains, texts of rules and their hashes are Calico's, so that a Felix of either
//! make takes over the other's rules. It refuses to know the kernel: drivers turn the tree into batches.

pub mod hash;
pub mod iptables;
pub mod nftables;
pub mod tree;
