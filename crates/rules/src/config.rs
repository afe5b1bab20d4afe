//! The settings that determine what is rendered. The daemon fills them in from Felix's configuration and from the
//! detected features of the kernel and its tools.

use crate::marks::Marks;
use crate::names::Backend;
use crate::tree::{InterfaceName, InterfacePattern, PortRange, Protocol, Rate, Text};
use api::{Allowed, Denied, EndpointToHost, ServiceLoopAction};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A port that host endpoints never block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailsafePort {
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// Only for these addresses of the other end.
    pub net: Option<IpNet>,
}

/// The features of the kernel and its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Masquerading with random ports.
    pub masquerade_random_fully: bool,
    /// Source NAT with random ports.
    pub snat_random_fully: bool,
    /// `--nflog-size`
    pub nflog_size: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self { masquerade_random_fully: true, snat_random_fully: true, nflog_size: true }
    }
}

/// WireGuard for one IP version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wireguard {
    /// Whether it is used.
    pub enabled: bool,
    /// The device.
    pub interface: InterfaceName,
    /// The port that it listens on.
    pub port: u16,
}

/// The settings for OpenStack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenStack {
    /// The address of the metadata service.
    pub metadata: Option<(IpAddr, u16)>,
}

/// The settings for rendering.
#[derive(Clone, Debug, PartialEq)]
pub struct RulesConfig {
    /// The packet filter to render for.
    pub backend: Backend,
    /// Its features.
    pub features: Features,
    /// The assignment of the mark's bits.
    pub marks: Marks,
    /// The prefixes of the names of workloads' interfaces.
    pub workload_interface_prefixes: Vec<Text>,

    /// Whether kube-proxy uses IPVS; only with iptables.
    pub ipvs_support: bool,
    /// The ports of NodePort services.
    pub node_port_ranges: Vec<PortRange>,
    /// The settings for OpenStack, if it is used.
    pub openstack: Option<OpenStack>,

    /// Whether VXLAN carries IPv4.
    pub vxlan_enabled: bool,
    /// Whether VXLAN carries IPv6.
    pub vxlan_enabled_v6: bool,
    /// The port of VXLAN.
    pub vxlan_port: u16,
    /// The address of the VXLAN device.
    pub vxlan_tunnel_address: Option<Ipv4Addr>,
    /// The address of the VXLAN device for IPv6.
    pub vxlan_tunnel_address_v6: Option<Ipv6Addr>,
    /// Whether IP in IP is used.
    pub ipip_enabled: bool,
    /// The address of the IP-in-IP device.
    pub ipip_tunnel_address: Option<Ipv4Addr>,
    /// Whether workloads may send VXLAN packets of their own.
    pub allow_vxlan_from_workloads: bool,
    /// Whether workloads may send IP in IP packets of their own.
    pub allow_ipip_from_workloads: bool,
    /// WireGuard for IPv4.
    pub wireguard: Wireguard,
    /// WireGuard for IPv6.
    pub wireguard_v6: Wireguard,
    /// Whether WireGuard also carries the hosts' own packets.
    pub wireguard_encrypt_host_traffic: bool,

    /// The prefix of log rules' lines; `%t`, `%k`, `%n` and `%p` stand for tier, kind, name, and name with namespace.
    pub log_prefix: String,
    /// The rate limit of log rules, with its burst.
    pub log_rate_limit: Option<(Rate, u16)>,
    /// The action for packets from workloads to the host.
    pub endpoint_to_host_action: EndpointToHost,
    /// The action for allowed packets in the filter table.
    pub filter_allow_action: Allowed,
    /// The action for allowed packets in the mangle table.
    pub mangle_allow_action: Allowed,
    /// The action for denied packets.
    pub filter_deny_action: Denied,
    /// Ports on which host endpoints can always be reached.
    pub failsafe_inbound: Vec<FailsafePort>,
    /// Ports that can always be reached through host endpoints, from this host.
    pub failsafe_outbound: Vec<FailsafePort>,
    /// Whether packets that belong to no connection are still evaluated by policy.
    pub disable_conntrack_invalid_check: bool,

    /// Ports for source NAT.
    pub nat_port_range: Option<(u16, u16)>,
    /// Only packets that leave through these interfaces get source NAT.
    pub nat_outgoing_interface: Option<InterfacePattern>,
    /// The source address; `None` for that of the interface. Only used for its own IP version.
    pub nat_outgoing_address: Option<IpAddr>,
    /// Whether packets to hosts of the cluster also keep their source.
    pub nat_outgoing_exclude_hosts: bool,
    /// The action for packets to addresses in the ranges of services that no service has.
    pub service_loop_prevention: ServiceLoopAction,

    /// Whether known connections use the flow table; only with nftables.
    pub flow_offload: bool,
    /// Whether eBPF programs, where they enforce policy, also serve services: then nothing else translates
    /// destinations.
    pub bpf_serves: bool,
    /// `BPFExtToServiceConnmark`: the connection mark for clients outside that connect to a service of a workload; 0
    /// for none.
    pub bpf_service_mark: u32,
    /// `BPFHostConntrackBypass`: Linux does not track packets that only pass through this host, unless it has to know
    /// of them.
    pub bpf_bypasses_tracking: bool,
    /// `BPFForceTrackPacketsFromIfaces`: packets that come in through these interfaces are always tracked.
    pub bpf_tracked_interfaces: Vec<InterfacePattern>,
    /// Whether verdicts are reported for flow logs.
    pub flow_logs: bool,
    /// Whether the policies of workload endpoints are compiled into few lookups instead of a chain each. Not while
    /// verdicts are reported, which requires single rules.
    pub compile_policies: bool,
    /// The DSCP value of packets within Istio's ambient mesh, if it is used.
    pub istio_ambient_dscp: Option<u8>,
}

impl Default for RulesConfig {
    /// The defaults of Felix's parameters.
    fn default() -> Self {
        let tcp = |port| FailsafePort { protocol: Protocol::TCP, port, net: None };
        let udp = |port| FailsafePort { protocol: Protocol::UDP, port, net: None };
        let both = || [179, 2379, 2380, 5473, 6443, 6666, 6667].map(tcp);
        Self {
            backend: Backend::Iptables,
            features: Features::default(),
            marks: Marks::default(),
            workload_interface_prefixes: vec!["cali".into()],
            ipvs_support: false,
            node_port_ranges: vec![PortRange { first: 30000, last: 32767 }],
            openstack: None,
            vxlan_enabled: false,
            vxlan_enabled_v6: false,
            vxlan_port: 4789,
            vxlan_tunnel_address: None,
            vxlan_tunnel_address_v6: None,
            ipip_enabled: false,
            ipip_tunnel_address: None,
            allow_vxlan_from_workloads: false,
            allow_ipip_from_workloads: false,
            wireguard: Wireguard { enabled: false, interface: "wireguard.cali".into(), port: 51820 },
            wireguard_v6: Wireguard { enabled: false, interface: "wg-v6.cali".into(), port: 51821 },
            wireguard_encrypt_host_traffic: false,
            log_prefix: "calico-packet".to_owned(),
            log_rate_limit: None,
            endpoint_to_host_action: EndpointToHost::Drop,
            filter_allow_action: Allowed::Accept,
            mangle_allow_action: Allowed::Accept,
            filter_deny_action: Denied::Drop,
            failsafe_inbound: [tcp(22), udp(68)].into_iter().chain(both()).collect(),
            failsafe_outbound: [udp(53), udp(67)].into_iter().chain(both()).collect(),
            disable_conntrack_invalid_check: false,
            nat_port_range: None,
            nat_outgoing_interface: None,
            nat_outgoing_address: None,
            nat_outgoing_exclude_hosts: false,
            service_loop_prevention: ServiceLoopAction::Drop,
            flow_offload: false,
            bpf_serves: false,
            bpf_service_mark: 0,
            bpf_bypasses_tracking: false,
            bpf_tracked_interfaces: Vec::new(),
            flow_logs: false,
            compile_policies: false,
            istio_ambient_dscp: None,
        }
    }
}
