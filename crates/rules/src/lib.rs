//! Policies, endpoints, NAT and dispatch rendered into a backend-neutral rule tree, and the identity of rules.
//!
//! - [`tree`]: chains, rules, matches, actions, verdict maps.
//! - [`Renderer`]: from [`RulesConfig`] and messages to chains.
//! - [`iptables`], [`nftables`]: the texts of rules, and their hashes ([`hash`]).
//! - [`names`]: names of chains, maps and sets; [`nflog`]: the texts that accompany reported packets.
//! - `simulate` (feature `testing`): what rendered chains do with a packet, for tests.
//!
//! This is pure: no IO, no clock, no async. The same input gives the same bytes. Names of chains, texts of rules and
//! their hashes are Calico's, so that either make of Felix can take over the other's rules. The kernel is unknown here:
//! drivers turn the tree into batches, and leave out chains that no rule leads to.

mod arp;
mod bpf_marks;
mod config;
mod dispatch;
mod endpoint;
mod endpoint_marks;
mod fixed;
mod group;
pub mod hash;
pub mod iptables;
mod marks;
pub mod names;
pub mod nflog;
pub mod nftables;
mod policy;
mod renderer;
#[cfg(any(test, feature = "testing"))]
pub mod simulate;
mod translation;
pub mod tree;

pub use api::{Allowed, Denied, EndpointToHost, ServiceLoopAction};
pub use config::{FailsafePort, Features, OpenStack, RulesConfig, Wireguard};
pub use dispatch::{Dispatch, HostInterfaces};
pub use endpoint::WorkloadChains;
pub use endpoint_marks::EndpointMarks;
pub use fixed::beside_bpf::{SERVICES_DEVICE, SERVICES_DEVICE_END};
pub use fixed::nat::{IPIP_INTERFACE, VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
pub use group::{PolicyGroup, TierGroups};
pub use hash::RuleHash;
pub use marks::{MarkError, Marks};
pub use names::{Backend, Direction};
pub use policy::{CompiledPolicies, PlacedChain, PolicySequence, UnionSet};
pub use renderer::Renderer;
pub use translation::DscpRule;
pub use tree::{Chain, Rule, Table};
