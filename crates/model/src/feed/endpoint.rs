//! Endpoints, network sets, pools and WireGuard keys in the form that is used for calculation.

use super::{Labels, Protocol, TextMap};
use crate::ProfileName;
use api::{IPIPMode, IPPoolAllowedUse, QoSControls, VXLANMode};
use ipnet::IpNet;
use std::net::IpAddr;

/// A workload endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadEndpoint {
    /// The state: `active` when in use.
    pub state: String,
    /// The host's end of the workload's interface.
    pub name: String,
    /// The container or machine that currently holds the endpoint.
    pub active_instance_id: String,
    /// The hardware address of the workload's end, as text; empty when unknown.
    pub mac: String,
    /// The profiles, in order of precedence.
    pub profile_ids: Vec<ProfileName>,
    /// The IPv4 addresses.
    pub ipv4_nets: Vec<IpNet>,
    /// The IPv6 addresses.
    pub ipv6_nets: Vec<IpNet>,
    /// Second IPv4 addresses (NAT).
    pub ipv4_nat: Vec<Nat>,
    /// Second IPv6 addresses (NAT).
    pub ipv6_nat: Vec<Nat>,
    /// The labels.
    pub labels: Labels,
    /// The named ports.
    pub ports: Vec<EndpointPort>,
    /// The prefix from which the workload's name was generated.
    pub generate_name: String,
    /// Source addresses that the workload may use besides its own.
    pub allow_spoofed_source_prefixes: Vec<IpNet>,
    /// The annotations.
    pub annotations: TextMap,
    /// Limits on its traffic.
    pub qos_controls: Option<Box<QoSControls>>,
}

/// A second address that is translated to one of the endpoint's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nat {
    /// The endpoint's own address.
    pub internal: IpAddr,
    /// The address that others use.
    pub external: IpAddr,
}

/// A port of an endpoint that rules may name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointPort {
    /// The name.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub port: u16,
}

/// A host endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostEndpoint {
    /// The interface, or `*` for all; if empty, the endpoint is found by its addresses.
    pub name: String,
    /// The IPv4 addresses by which it is found, and which it brings into sets.
    pub expected_ipv4_addrs: Vec<IpAddr>,
    /// The IPv6 addresses by which it is found, and which it brings into sets.
    pub expected_ipv6_addrs: Vec<IpAddr>,
    /// The labels.
    pub labels: Labels,
    /// The profiles, in order of precedence.
    pub profile_ids: Vec<ProfileName>,
    /// The named ports.
    pub ports: Vec<EndpointPort>,
    /// The DSCP mark for packets that leave the cluster, from the annotation that host endpoints may have.
    pub qos_controls: Option<Box<QoSControls>>,
}

/// A network set, global or in a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkSet {
    /// The networks.
    pub nets: Vec<IpNet>,
    /// The labels.
    pub labels: Labels,
    /// The profiles whose labels it inherits.
    pub profile_ids: Vec<ProfileName>,
}

/// An address pool.
#[derive(Clone, Debug, PartialEq)]
pub struct IpPool {
    /// The range.
    pub cidr: IpNet,
    /// `tunl0` when the pool uses IP in IP, otherwise empty.
    pub ipip_interface: String,
    /// When packets between nodes are encapsulated in IP in IP.
    pub ipip_mode: IPIPMode,
    /// When packets between nodes are encapsulated in VXLAN.
    pub vxlan_mode: VXLANMode,
    /// Whether packets that leave the cluster get the node's address.
    pub masquerade: bool,
    /// Whether Calico's own address management uses the pool.
    pub ipam: bool,
    /// Whether no new addresses are taken from it.
    pub disabled: bool,
    /// Whether routes to it are not exported.
    pub disable_bgp_export: bool,
    /// Whether addresses are also taken without an explicit request: the mode `Automatic`, not `Manual`.
    pub assigned_automatically: bool,
    /// What its addresses may be used for.
    pub allowed_uses: Vec<IPPoolAllowedUse>,
}

/// A node's WireGuard keys and addresses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wireguard {
    /// The IPv4 address of the interface.
    pub interface_ipv4: Option<IpAddr>,
    /// The IPv6 address of the interface.
    pub interface_ipv6: Option<IpAddr>,
    /// The public key of the IPv4 interface.
    pub public_key: String,
    /// The public key of the IPv6 interface.
    pub public_key_v6: String,
}
