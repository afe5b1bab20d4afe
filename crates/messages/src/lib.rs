//! The messages from the calculation graph to the dataplane, and the dataplane's reports: the typed twins of Felix's
//! `ToDataplane` and `FromDataplane`.
//!
//! Messages are values; the event sequencer puts them into an order that is safe to apply. Rules and policies are
//! shared (`Arc`), because one policy appears in the messages of many endpoints.

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
        /// The kind of its members.
        set_type: IpSetType,
        /// The members, sorted.
        members: Vec<IpSetMember>,
    },
    /// Members that were added and removed: both lists are sorted, and no member is in both.
    IpSetDelta {
        /// The set.
        id: IpSetId,
        /// The new members.
        added: Vec<IpSetMember>,
        /// The members that are gone.
        removed: Vec<IpSetMember>,
    },
    /// The set is no longer used.
    IpSetRemove(IpSetId),
    /// A policy that applies to a local endpoint.
    PolicyUpdate(PolicyId, Arc<Policy>),
    /// The policy no longer applies to any local endpoint.
    PolicyRemove(PolicyId),
    /// A profile of a local endpoint.
    ProfileUpdate(ProfileName, Arc<Profile>),
    /// No local endpoint has the profile any more.
    ProfileRemove(ProfileName),
    /// A local workload endpoint.
    WorkloadEndpointUpdate(WorkloadEndpointId, Box<WorkloadEndpoint>),
    /// The workload endpoint is gone.
    WorkloadEndpointRemove(WorkloadEndpointId),
    /// A host endpoint of this host.
    HostEndpointUpdate(HostEndpointName, Box<HostEndpoint>),
    /// The host endpoint is gone.
    HostEndpointRemove(HostEndpointName),
    /// The labels of a service account: namespace, name, labels.
    ServiceAccountUpdate(Text, Text, BTreeMap<String, String>),
    /// The service account is gone.
    ServiceAccountRemove(Text, Text),
    /// The labels of a namespace.
    NamespaceUpdate(Text, BTreeMap<String, String>),
    /// The namespace is gone.
    NamespaceRemove(Text),
    /// The owner of a range of addresses, and how packets get there.
    RouteUpdate(Route),
    /// There is no route to the range any more.
    RouteRemove(IpNet),
    /// The VXLAN device of a node, by the node's name.
    VtepUpdate(NodeName, VxlanTunnelEndpoint),
    /// The node has no VXLAN device any more.
    VtepRemove(NodeName),
    /// The WireGuard peer of a node, IPv4.
    WireguardUpdate(NodeName, WireguardEndpoint),
    /// The IPv4 WireGuard peer is gone.
    WireguardRemove(NodeName),
    /// The WireGuard peer of a node, IPv6.
    WireguardV6Update(NodeName, WireguardEndpointV6),
    /// The IPv6 WireGuard peer is gone.
    WireguardV6Remove(NodeName),
    /// A host's addresses and labels.
    HostMetadataUpdate(NodeName, HostMetadata),
    /// The host is gone.
    HostMetadataRemove(NodeName),
    /// An address pool; the range is its identity.
    IpamPoolUpdate(IpamPool),
    /// The pool is gone.
    IpamPoolRemove(IpNet),
    /// The kinds of encapsulation that the pools require.
    Encapsulation(Encapsulation),
    /// The BGP settings that matter to the dataplane.
    GlobalBgpConfig(GlobalBgpConfig),
    /// A Kubernetes service.
    ServiceUpdate(Service),
    /// The service is gone: namespace, name.
    ServiceRemove(Text, Text),
    /// A Kubernetes service with all its fields, `None` when it is gone: for a dataplane that serves services itself.
    ServiceObject(NamespacedName, Option<Box<KubernetesService>>),
    /// A part of a service's endpoints, `None` when it is gone: also only for a dataplane that serves services itself.
    EndpointSliceObject(NamespacedName, Option<Box<KubernetesEndpointSlice>>),
}

/// One report of the dataplane.
#[derive(Clone, Debug, PartialEq)]
pub enum FromDataplane {
    /// Everything up to the first [`ToDataplane::InSync`] is programmed.
    InSync,
    /// Felix is alive.
    ProcessStatus {
        /// The current time, in the form of RFC 3339.
        iso_timestamp: String,
        /// Seconds since the start.
        uptime: f64,
    },
    /// The state of a workload endpoint.
    WorkloadEndpointStatus {
        /// The endpoint whose state changed.
        id: WorkloadEndpointId,
        /// `up`, `down` or `error`; `None` when the endpoint is gone.
        status: Option<&'static str>,
        /// What is programmed; `None` when the endpoint is gone.
        endpoint: Option<Arc<WorkloadEndpoint>>,
    },
    /// The state of a host endpoint: `up`, `down` or `error`; `None` when it is gone.
    HostEndpointStatus(HostEndpointName, Option<&'static str>),
    /// A virtual machine that was moving to this host has arrived, or its migration is over.
    MachineArrived {
        /// The machine's endpoint on this host.
        id: WorkloadEndpointId,
        /// The machine's name.
        machine: Text,
    },
    /// The key that the WireGuard device generated.
    WireguardStatus {
        /// The public key; empty when the device is gone.
        public_key: String,
        /// Whether it is the IPv6 device.
        ipv6: bool,
    },
}
