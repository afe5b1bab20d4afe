//! What a feed delivers: one entry that is there, or one that is gone, under the keys and in the shapes that components
//! calculate with. The syncer makes these from stored resources; the calculation graph, confd and the node's services
//! read them.
//!
//! Selectors are texts in these values, already joined with their namespace and service-account parts. Nothing here
//! parses them, and nothing here is stored.

mod endpoint;
mod policy;

pub use endpoint::{EndpointPort, HostEndpoint, IpPool, Nat, NetworkSet, Wireguard, WorkloadEndpoint};
pub use policy::{OriginalMatches, Policy, PolicyType, ProfileRules, Rule, RuleAction, RuleEnd, Tier};

use crate::key::Key;
use crate::value::{AllocationBlock, BlockAffinity};
use api::Resource;
use std::collections::BTreeMap;

/// Labels, or anything else that is a map of texts.
pub type TextMap = BTreeMap<String, String>;

/// How far a feed has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Nothing has been read yet.
    WaitForDatastore,
    /// Some kinds are being listed.
    ResyncInProgress,
    /// Everything that is stored has been delivered; what follows are changes.
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

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It was not there before.
    New,
    /// It was there, perhaps with another value.
    Updated,
    /// It is gone.
    Deleted,
}

/// One entry of a feed.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The key. Deletes and values of one thing have the same key.
    pub key: Key,
    /// The value; none when the entry is gone.
    pub value: Option<FeedValue>,
    /// The store's version of the value; empty when it is not known.
    pub revision: String,
    /// What happened.
    pub change: Change,
}

/// The value of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedValue {
    /// [`crate::V1Key::ReadyFlag`].
    Ready(bool),
    /// A setting of Felix or BGP, as text.
    Text(String),
    /// A policy.
    Policy(Box<Policy>),
    /// The rules of a profile.
    ProfileRules(Box<ProfileRules>),
    /// The labels that a profile gives to its endpoints.
    ProfileLabels(TextMap),
    /// A tier.
    Tier(Tier),
    /// A workload endpoint.
    WorkloadEndpoint(Box<WorkloadEndpoint>),
    /// A host endpoint.
    HostEndpoint(Box<HostEndpoint>),
    /// A network set.
    NetworkSet(Box<NetworkSet>),
    /// An address pool.
    IpPool(Box<IpPool>),
    /// A node's WireGuard keys and addresses.
    Wireguard(Box<Wireguard>),
    /// A block of addresses.
    Block(Box<AllocationBlock>),
    /// A claim on a block.
    BlockAffinity(BlockAffinity),
    /// A resource that passes through as it is stored: Node, Profile, BGPConfiguration, BGPPeer, BGPFilter, Kubernetes
    /// Services and EndpointSlices, LiveMigration, FelixConfigurations with a node selector, CalicoNodeStatus.
    Resource(Box<Resource>),
}
