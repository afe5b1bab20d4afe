//! What the calculation graph tells the dataplane, and what the dataplane reports back: the typed twin of Felix's
//! `ToDataplane` and `FromDataplane` messages.
//!
//! Messages are values; the order in which they must be applied is the event sequencer's business. Rules and policies are
//! shared (`Arc`), because one policy is in the messages of many endpoints.

mod endpoint;
mod ip_set;
mod names;
mod network;
mod rule;

pub use endpoint::{
    HostEndpoint, LiveMigrationRole, Nat, QosPolicy, TierInfo, WorkloadEndpoint, WorkloadEndpointId,
};
pub use ip_set::{IpSetMember, IpSetType};
pub use model::{NodeName, ProfileName, TierName, name_types};
pub use names::{HostEndpointName, InterfaceName, IpSetId};
pub use network::{
    Encapsulation, GlobalBgpConfig, HostMetadata, IpPoolType, IpamPool, Route, RouteTypes, Service,
    TunnelType, VxlanTunnelEndpoint, WireguardEndpoint, WireguardEndpointV6,
};
pub use rule::{IcmpMatch, OriginalEnd, Policy, PolicyId, PortRange, Profile, Rule, RuleEnd};

use api::{KubernetesEndpointSlice, KubernetesService};
use ipnet::IpNet;
use model::feed::NamespacedName;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A name or text that many messages share.
pub type Text = Arc<str>;

/// One message to the dataplane.
#[derive(Clone, Debug, PartialEq)]
pub enum ToDataplane {
    /// Everything that was stored when we started has been sent. Sent once.
    InSync,
    /// A set with all its members.
    IpSetUpdate {
        /// The set.
        id: IpSetId,
        /// What kind of members it has.
        set_type: IpSetType,
        /// The members, sorted.
        members: Vec<IpSetMember>,
    },
    /// Members that came and went; both sorted, never the same one in both.
    IpSetDelta {
        /// The set.
        id: IpSetId,
        /// Came.
        added: Vec<IpSetMember>,
        /// Went.
        removed: Vec<IpSetMember>,
    },
    /// Nothing uses the set any more.
    IpSetRemove(IpSetId),
    /// A policy that applies to a local endpoint.
    PolicyUpdate(PolicyId, Arc<Policy>),
    /// The policy applies to no local endpoint any more.
    PolicyRemove(PolicyId),
    /// A profile that a local endpoint has.
    ProfileUpdate(ProfileName, Arc<Profile>),
    /// No local endpoint has the profile any more.
    ProfileRemove(ProfileName),
    /// A local workload endpoint.
    WorkloadEndpointUpdate(WorkloadEndpointId, Box<WorkloadEndpoint>),
    /// It is gone.
    WorkloadEndpointRemove(WorkloadEndpointId),
    /// A host endpoint of this host.
    HostEndpointUpdate(HostEndpointName, Box<HostEndpoint>),
    /// It is gone.
    HostEndpointRemove(HostEndpointName),
    /// The labels of a service account: namespace, name, labels.
    ServiceAccountUpdate(Text, Text, BTreeMap<String, String>),
    /// It is gone.
    ServiceAccountRemove(Text, Text),
    /// The labels of a namespace.
    NamespaceUpdate(Text, BTreeMap<String, String>),
    /// It is gone.
    NamespaceRemove(Text),
    /// Where a range of addresses is.
    RouteUpdate(Route),
    /// It is nowhere.
    RouteRemove(IpNet),
    /// The VXLAN device of a node, by the node's name.
    VtepUpdate(NodeName, VxlanTunnelEndpoint),
    /// It is gone.
    VtepRemove(NodeName),
    /// The WireGuard peer of a node, IPv4.
    WireguardUpdate(NodeName, WireguardEndpoint),
    /// It is gone.
    WireguardRemove(NodeName),
    /// The WireGuard peer of a node, IPv6.
    WireguardV6Update(NodeName, WireguardEndpointV6),
    /// It is gone.
    WireguardV6Remove(NodeName),
    /// A host's addresses and labels.
    HostMetadataUpdate(NodeName, HostMetadata),
    /// It is gone.
    HostMetadataRemove(NodeName),
    /// An address pool; the range is its identity.
    IpamPoolUpdate(IpamPool),
    /// It is gone.
    IpamPoolRemove(IpNet),
    /// Which kinds of encapsulation the pools ask for.
    Encapsulation(Encapsulation),
    /// The settings of BGP that matter to the dataplane.
    GlobalBgpConfig(GlobalBgpConfig),
    /// A Kubernetes service.
    ServiceUpdate(Service),
    /// It is gone: namespace, name.
    ServiceRemove(Text, Text),
    /// A Kubernetes service with all its fields, or that it is gone: for a dataplane that serves services itself.
    ServiceObject(NamespacedName, Option<Box<KubernetesService>>),
    /// Part of the endpoints behind a service, or that it is gone: for such a dataplane too.
    EndpointSliceObject(NamespacedName, Option<Box<KubernetesEndpointSlice>>),
}

/// One report of the dataplane.
#[derive(Clone, Debug, PartialEq)]
pub enum FromDataplane {
    /// Everything of the first [`ToDataplane::InSync`] is programmed.
    InSync,
    /// Felix lives: when, and for how many seconds already.
    ProcessStatus {
        /// RFC 3339.
        iso_timestamp: String,
        /// Seconds since the start.
        uptime: f64,
    },
    /// The state of a workload endpoint.
    WorkloadEndpointStatus {
        /// The endpoint whose state changed.
        id: WorkloadEndpointId,
        /// `up`, `down` or `error`; none when it is gone.
        status: Option<&'static str>,
        /// What is programmed; none when it is gone.
        endpoint: Option<Arc<WorkloadEndpoint>>,
    },
    /// The state of a host endpoint: `up`, `down` or `error`; none when it is gone.
    HostEndpointStatus(HostEndpointName, Option<&'static str>),
    /// A virtual machine that was to move here is here, or its migration is over.
    MachineArrived {
        /// The endpoint that it has now.
        id: WorkloadEndpointId,
        /// The machine's name.
        machine: Text,
    },
    /// The key that the WireGuard device made for itself.
    WireguardStatus {
        /// The public key; empty when there is no device any more.
        public_key: String,
        /// Whether it is the IPv6 device.
        ipv6: bool,
    },
}
