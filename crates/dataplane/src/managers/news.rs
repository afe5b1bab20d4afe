//! The input of managers: messages of the calculation, with updates and removals as one kind, and events on the host.

use ipnet::IpNet;
use messages::{
    GlobalBgpConfig, HostEndpoint, HostEndpointName, HostMetadata, InterfaceName, IpSetId, IpSetMember,
    IpSetType, IpamPool, NodeName, Policy, PolicyId, Profile, ProfileName, Route, Service, ToDataplane,
    VxlanTunnelEndpoint, WorkloadEndpoint, WorkloadEndpointId,
};
use netlink::wireguard::PublicKey;
use rules::tree::IpVersion;
use std::net::IpAddr;
use std::sync::Arc;

/// One input of managers. `None` stands for a removed object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News<'a> {
    /// A set with all its members.
    Set(&'a IpSetId, Option<(IpSetType, &'a [IpSetMember])>),
    /// Members added to a set, and members removed.
    Members(&'a IpSetId, &'a [IpSetMember], &'a [IpSetMember]),
    /// A policy.
    Policy(&'a PolicyId, Option<&'a Arc<Policy>>),
    /// A profile.
    Profile(&'a ProfileName, Option<&'a Profile>),
    /// A workload endpoint of this host.
    Workload(&'a WorkloadEndpointId, Option<&'a Arc<WorkloadEndpoint>>),
    /// A host endpoint of this host.
    Host(&'a HostEndpointName, Option<&'a Arc<HostEndpoint>>),
    /// The kind and node of a range of addresses.
    Route(&'a IpNet, Option<&'a Route>),
    /// The VXLAN tunnel end of a node.
    Vtep(&'a NodeName, Option<&'a VxlanTunnelEndpoint>),
    /// The WireGuard key and device address of a node.
    Wireguard(IpVersion, &'a NodeName, Option<(&'a str, Option<IpAddr>)>),
    /// The metadata of a node.
    Node(&'a NodeName, Option<&'a HostMetadata>),
    /// An address pool.
    Pool(&'a IpNet, Option<&'a IpamPool>),
    /// The settings of BGP.
    Bgp(&'a GlobalBgpConfig),
    /// A service, by namespace and name.
    Service(&'a str, &'a str, Option<&'a Service>),
    /// An interface was added, removed, or changed its state.
    Interface(&'a InterfaceName),
    /// The addresses of an interface that is not a workload's changed.
    Addresses,
    /// A workload's interface has been set up.
    SetUp(&'a InterfaceName),
    /// A workload's interface got its eBPF programs, or lost them.
    Attached(&'a InterfaceName, bool),
    /// A machine that was expected to move here announced itself.
    Announced(&'a WorkloadEndpointId),
    /// The kernel's key of our own WireGuard device.
    OwnKey(IpVersion, Option<PublicKey>),
}

/// Passes on the content of a message, unless it concerns nothing in the kernel.
pub(crate) fn tell(message: ToDataplane, mut hear: impl FnMut(&News<'_>)) {
    use ToDataplane as Message;
    match message {
        Message::IpSetUpdate { id, set_type, members } => {
            hear(&News::Set(&id, Some((set_type, &members))));
        }
        Message::IpSetDelta { id, added, removed } => hear(&News::Members(&id, &added, &removed)),
        Message::IpSetRemove(id) => hear(&News::Set(&id, None)),
        Message::PolicyUpdate(id, policy) => hear(&News::Policy(&id, Some(&policy))),
        Message::PolicyRemove(id) => hear(&News::Policy(&id, None)),
        Message::ProfileUpdate(name, profile) => hear(&News::Profile(&name, Some(&profile))),
        Message::ProfileRemove(name) => hear(&News::Profile(&name, None)),
        Message::WorkloadEndpointUpdate(id, endpoint) => {
            hear(&News::Workload(&id, Some(&Arc::from(endpoint))));
        }
        Message::WorkloadEndpointRemove(id) => hear(&News::Workload(&id, None)),
        Message::HostEndpointUpdate(id, endpoint) => hear(&News::Host(&id, Some(&Arc::from(endpoint)))),
        Message::HostEndpointRemove(id) => hear(&News::Host(&id, None)),
        Message::RouteUpdate(route) => hear(&News::Route(&route.dst, Some(&route))),
        Message::RouteRemove(destination) => hear(&News::Route(&destination, None)),
        Message::VtepUpdate(node, endpoint) => hear(&News::Vtep(&node, Some(&endpoint))),
        Message::VtepRemove(node) => hear(&News::Vtep(&node, None)),
        Message::WireguardUpdate(node, endpoint) => {
            let address = endpoint.interface_ipv4.map(Into::into);
            hear(&News::Wireguard(IpVersion::V4, &node, Some((&endpoint.public_key, address))));
        }
        Message::WireguardRemove(node) => hear(&News::Wireguard(IpVersion::V4, &node, None)),
        Message::WireguardV6Update(node, endpoint) => {
            let address = endpoint.interface_ipv6.map(Into::into);
            hear(&News::Wireguard(IpVersion::V6, &node, Some((&endpoint.public_key, address))));
        }
        Message::WireguardV6Remove(node) => hear(&News::Wireguard(IpVersion::V6, &node, None)),
        Message::HostMetadataUpdate(host, metadata) => hear(&News::Node(&host, Some(&metadata))),
        Message::HostMetadataRemove(host) => hear(&News::Node(&host, None)),
        Message::IpamPoolUpdate(pool) => hear(&News::Pool(&pool.cidr, Some(&pool))),
        Message::IpamPoolRemove(cidr) => hear(&News::Pool(&cidr, None)),
        Message::GlobalBgpConfig(config) => hear(&News::Bgp(&config)),
        Message::ServiceUpdate(service) => {
            hear(&News::Service(&service.namespace, &service.name, Some(&service)));
        }
        Message::ServiceRemove(namespace, name) => hear(&News::Service(&namespace, &name, None)),
        // The loop itself or the daemon handles these, or nothing here depends on them.
        Message::InSync
        | Message::Encapsulation(_)
        | Message::ServiceAccountUpdate(..)
        | Message::ServiceAccountRemove(..)
        | Message::NamespaceUpdate(..)
        | Message::NamespaceRemove(_)
        | Message::ServiceObject(..)
        | Message::EndpointSliceObject(..) => {}
    }
}
