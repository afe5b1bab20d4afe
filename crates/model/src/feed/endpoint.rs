//! Endpoints, network sets, pools and WireGuard keys as they are calculated with.

use super::{Labels, Protocol, TextMap};
use crate::ProfileName;
use api::{IPIPMode, IPPoolAllowedUse, QoSControls, VXLANMode};
use ipnet::IpNet;
use std::net::IpAddr;

/// A workload endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadEndpoint {
    /// Whether it is in use: `active`.
    pub state: String,
    /// The host's interface.
    pub name: String,
    /// The container or machine that holds the endpoint now.
    pub active_instance_id: String,
    /// The hardware address of the workload's side, as text; empty when it is not known.
    pub mac: String,
    /// The profiles, the first first.
    pub profile_ids: Vec<ProfileName>,
    /// The IPv4 addresses.
    pub ipv4_nets: Vec<IpNet>,
    /// The IPv6 addresses.
    pub ipv6_nets: Vec<IpNet>,
    /// Second addresses, IPv4.
    pub ipv4_nat: Vec<Nat>,
    /// Second addresses, IPv6.
    pub ipv6_nat: Vec<Nat>,
    /// The labels.
    pub labels: Labels,
    /// The named ports.
    pub ports: Vec<EndpointPort>,
    /// The prefix that the workload's name was generated from.
    pub generate_name: String,
    /// Source addresses that the workload may use besides its own.
    pub allow_spoofed_source_prefixes: Vec<IpNet>,
    /// The annotations.
    pub annotations: TextMap,
    /// Limits on its traffic.
    pub qos_controls: Option<Box<QoSControls>>,
}

/// A second address for one of an endpoint's own.
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
    /// The interface, `*` for all, or empty: then it is found by its addresses.
    pub name: String,
    /// The addresses it is found by and stands for, IPv4.
    pub expected_ipv4_addrs: Vec<IpAddr>,
    /// The addresses it is found by and stands for, IPv6.
    pub expected_ipv6_addrs: Vec<IpAddr>,
    /// The labels.
    pub labels: Labels,
    /// The profiles, the first first.
    pub profile_ids: Vec<ProfileName>,
    /// The named ports.
    pub ports: Vec<EndpointPort>,
    /// The mark for packets that leave the cluster, from the annotation that endpoints of hosts take.
    pub qos_controls: Option<Box<QoSControls>>,
}

/// A network set, global or of a namespace.
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
    /// When packets between nodes are put into IP in IP.
    pub ipip_mode: IPIPMode,
    /// When packets between nodes are put into VXLAN.
    pub vxlan_mode: VXLANMode,
    /// Whether packets to the outside get the node's address.
    pub masquerade: bool,
    /// Whether Calico's own address management uses the pool.
    pub ipam: bool,
    /// Whether no address is taken from it.
    pub disabled: bool,
    /// Whether routes to it stay inside.
    pub disable_bgp_export: bool,
    /// Whether addresses are only taken on request: `Manual`; `Automatic` otherwise.
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
