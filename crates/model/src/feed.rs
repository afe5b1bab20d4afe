//! What a feed delivers: fully parsed entries, under the keys and in the shapes that components calculate with.
//! [`crate::convert`] makes them from stored resources; the calculation graph, Typha, BGP and the node's services read
//! them.
//!
//! Selectors are already joined with their namespace and service-account parts. Nothing here is stored.

mod endpoint;
mod entry;
mod labels;
mod object;
mod policy;

pub use endpoint::{EndpointPort, HostEndpoint, IpPool, Nat, NetworkSet, Wireguard, WorkloadEndpoint};
pub use entry::{FeedEntry, FeedKey, FeedKeyRef, NamespacedName, ReadyFlag};
pub use labels::Labels;
pub use object::{BgpAddress, BgpAddresses, BgpPeer, ListedAddress, LiveMigration, Node, NodeAddresses};
pub use policy::{
    IcmpMatch, OriginalMatches, Policy, PolicyType, Port, PortRange, ProfileRules, Protocol, Rule,
    RuleAction, RuleEnd, Tier,
};

use std::collections::BTreeMap;

/// Annotations, or any other map of texts.
pub type TextMap = BTreeMap<String, String>;

/// The progress of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Nothing has been read yet.
    WaitForDatastore,
    /// Some kinds are being listed.
    ResyncInProgress,
    /// Everything that was stored has been delivered; only changes follow.
    InSync,
}

impl Status {
    /// The name that logs and Typha's wire use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WaitForDatastore => "wait-for-ready",
            Self::ResyncInProgress => "resync",
            Self::InSync => "in-sync",
        }
    }
}
