//! One entry of a feed: a key, and the value that belongs to a key of that kind. The types ensure that they match.

use super::{
    BgpPeer, HostEndpoint, IpPool, LiveMigration, NetworkSet, Node, Policy, ProfileRules, Tier, Wireguard,
    WorkloadEndpoint,
};
use crate::key::v1::{HostConfigKey, HostEndpointKey, PolicyKey, WorkloadEndpointKey};
use crate::key::{BlockAffinityKey, Key, ResourceKey, V1Key};
use crate::value::{AllocationBlock, BlockAffinity};
use crate::{NodeName, ProfileName, TierName};
use api::{Kind, Resource};
use ipnet::IpNet;
use std::fmt;

/// The key of the single flag that permits or forbids the use of the datastore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadyFlag;

/// The name of an object in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

macro_rules! entries {
    ($($(#[$doc:meta])* $variant:ident($key:ty => $value:ty),)*) => {
        /// An entry that was added or changed, with its value, or an entry that is gone, without one.
        #[derive(Clone, Debug, PartialEq)]
        pub enum FeedEntry {
            $($(#[$doc])* $variant($key, Option<$value>),)*
        }

        /// The identity of an entry.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FeedKey {
            $($(#[$doc])* $variant($key),)*
        }

        /// The identity of an entry, as a reference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum FeedKeyRef<'a> {
            $($(#[$doc])* $variant(&'a $key),)*
        }

        impl FeedEntry {
            /// The entry's identity.
            #[must_use]
            pub fn key(&self) -> FeedKeyRef<'_> {
                match self {
                    $(Self::$variant(key, _) => FeedKeyRef::$variant(key),)*
                }
            }

            /// Whether the entry is gone.
            #[must_use]
            pub fn is_gone(&self) -> bool {
                match self {
                    $(Self::$variant(_, value) => value.is_none(),)*
                }
            }
        }

        impl FeedKey {
            /// Returns the entry for a deletion of this key.
            #[must_use]
            pub fn gone(self) -> FeedEntry {
                match self {
                    $(Self::$variant(key) => FeedEntry::$variant(key, None),)*
                }
            }

            /// Returns the key as a reference.
            #[must_use]
            pub fn borrow(&self) -> FeedKeyRef<'_> {
                match self {
                    $(Self::$variant(key) => FeedKeyRef::$variant(key),)*
                }
            }
        }

        impl FeedKeyRef<'_> {
            /// Returns the key as an owned value.
            #[must_use]
            pub fn to_owned(self) -> FeedKey {
                match self {
                    $(Self::$variant(key) => FeedKey::$variant(key.clone()),)*
                }
            }
        }
    };
}

entries! {
    /// Whether the datastore may be used.
    Ready(ReadyFlag => bool),
    /// One of Felix's settings for all hosts, by name.
    GlobalConfig(String => String),
    /// One of Felix's settings for one host.
    HostConfig(HostConfigKey => String),
    /// A policy of any kind.
    Policy(PolicyKey => Box<Policy>),
    /// A tier, by name.
    Tier(TierName => Tier),
    /// A profile, by name, which gives labels to its endpoints. Its rules are a separate entry.
    Profile(ProfileName => Box<api::Profile>),
    /// The rules of a profile, by the profile's name.
    ProfileRules(ProfileName => Box<ProfileRules>),
    /// A workload endpoint.
    WorkloadEndpoint(WorkloadEndpointKey => Box<WorkloadEndpoint>),
    /// A host endpoint.
    HostEndpoint(HostEndpointKey => Box<HostEndpoint>),
    /// A network set: `name`, or `namespace/name`.
    NetworkSet(String => Box<NetworkSet>),
    /// An address pool, by its range.
    IpPool(IpNet => Box<IpPool>),
    /// A node's WireGuard keys and addresses, by the node's name.
    Wireguard(NodeName => Box<Wireguard>),
    /// A block of addresses, by its range.
    Block(IpNet => Box<AllocationBlock>),
    /// A claim on a block.
    BlockAffinity(BlockAffinityKey => BlockAffinity),
    /// A node, by name.
    Node(NodeName => Box<Node>),
    /// BGP settings: `default`, or `node.` and a name.
    BgpConfiguration(String => Box<api::BGPConfiguration>),
    /// A BGP peer, by name.
    BgpPeer(String => Box<BgpPeer>),
    /// A filter for BGP routes, by its name.
    BgpFilter(String => Box<api::BGPFilter>),
    /// A Kubernetes service.
    Service(NamespacedName => Box<api::KubernetesService>),
    /// A part of the endpoints of a Kubernetes service.
    EndpointSlice(NamespacedName => Box<api::KubernetesEndpointSlice>),
    /// A virtual machine that moves from one node to another.
    LiveMigration(NamespacedName => Box<LiveMigration>),
    /// A FelixConfiguration for the nodes that match its selector, by name.
    FelixConfiguration(String => Box<api::FelixConfiguration>),
    /// A request for reports about a node's BGP sessions and routes, by name.
    NodeStatus(String => Box<api::CalicoNodeStatus>),
    /// A resource as it is stored, for components that work with whole resources.
    Resource(ResourceKey => Box<Resource>),
}

/// The entry's key in the datastore or, if it is not stored in that form, in Calico's first data model: the names that
/// Typha and Felix use between them.
impl From<FeedKeyRef<'_>> for Key {
    fn from(key: FeedKeyRef<'_>) -> Self {
        use FeedKeyRef as Feed;
        let global = |kind: Kind, name: &str| Self::resource(kind, "", name);
        let namespaced = |kind: Kind, key: &NamespacedName| Self::resource(kind, &key.namespace, &key.name);
        Self::V1(match key {
            Feed::Ready(_) => V1Key::ReadyFlag,
            Feed::GlobalConfig(name) => V1Key::GlobalConfig { name: name.clone() },
            Feed::HostConfig(key) => V1Key::HostConfig(key.clone()),
            Feed::Policy(key) => V1Key::Policy(key.clone()),
            Feed::Tier(name) => V1Key::Tier { name: name.clone() },
            Feed::ProfileRules(name) => V1Key::ProfileRules { name: name.clone() },
            Feed::WorkloadEndpoint(key) => V1Key::WorkloadEndpoint(key.clone()),
            Feed::HostEndpoint(key) => V1Key::HostEndpoint(key.clone()),
            Feed::NetworkSet(name) => V1Key::NetworkSet { name: name.clone() },
            Feed::IpPool(cidr) => V1Key::IpPool { cidr: *cidr },
            Feed::Wireguard(node) => V1Key::Wireguard { node: node.clone() },
            Feed::Block(cidr) => return Self::Block { cidr: *cidr },
            Feed::BlockAffinity(key) => return Self::BlockAffinity(key.clone()),
            Feed::Profile(name) => return global(Kind::Profile, name),
            Feed::Node(name) => return global(Kind::Node, name),
            Feed::BgpConfiguration(name) => return global(Kind::BGPConfiguration, name),
            Feed::BgpPeer(name) => return global(Kind::BGPPeer, name),
            Feed::BgpFilter(name) => return global(Kind::BGPFilter, name),
            Feed::FelixConfiguration(name) => return global(Kind::FelixConfiguration, name),
            Feed::NodeStatus(name) => return global(Kind::CalicoNodeStatus, name),
            Feed::Service(key) => return namespaced(Kind::KubernetesService, key),
            Feed::EndpointSlice(key) => return namespaced(Kind::KubernetesEndpointSlice, key),
            Feed::LiveMigration(key) => return namespaced(Kind::LiveMigration, key),
            Feed::Resource(key) => return Self::Resource(key.clone()),
        })
    }
}

/// The form in which Calico prints keys in logs and errors.
impl fmt::Display for FeedKeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Key::from(*self).fmt(f)
    }
}

/// The form in which Calico prints keys in logs and errors.
impl fmt::Display for FeedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.borrow().fmt(f)
    }
}
