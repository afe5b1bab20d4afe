//! The settings that decide what is rendered. The daemon fills them from Felix's configuration and from what it detects
//! about the kernel and its tools.

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
    /// Only for these addresses of the other side.
    pub net: Option<IpNet>,
}

/// What the kernel and its tools can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Masquerading with ports at random.
    pub masquerade_random_fully: bool,
    /// Source NAT with ports at random.
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

/// OpenStack's special cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenStack {
    /// Where the metadata service is.
    pub metadata: Option<(IpAddr, u16)>,
}

/// The settings.
#[derive(Clone, Debug, PartialEq)]
pub struct RulesConfig {
    /// Which firewall rules are for.
    pub backend: Backend,
    /// What it can do.
    pub features: Features,
    /// The bits of marks.
    pub marks: Marks,
    /// What the names of workloads' interfaces begin with.
    pub workload_interface_prefixes: Vec<Text>,

    /// Whether kube-proxy uses IPVS; only with iptables.
    pub ipvs_support: bool,
    /// The ports of services on nodes.
    pub node_port_ranges: Vec<PortRange>,
    /// OpenStack's special cases, where they are wanted.
    pub openstack: Option<OpenStack>,

    /// Whether VXLAN carries IPv4.
    pub vxlan_enabled: bool,
    /// Whether VXLAN carries IPv6.
    pub vxlan_enabled_v6: bool,
    /// The port of VXLAN.
    pub vxlan_port: u16,
    /// The address of the VXLAN device.
    pub vxlan_tunnel_address: Option<Ipv4Addr>,
    /// The address of the IPv6 VXLAN device.
    pub vxlan_tunnel_address_v6: Option<Ipv6Addr>,
    /// Whether IP in IP is used.
    pub ipip_enabled: bool,
    /// The address of its device.
    pub ipip_tunnel_address: Option<Ipv4Addr>,
    /// Whether workloads may send VXLAN packets of their own.
    pub allow_vxlan_from_workloads: bool,
    /// Whether workloads may send IP in IP packets of their own.
    pub allow_ipip_from_workloads: bool,
    /// WireGuard for IPv4.
    pub wireguard: Wireguard,
    /// WireGuard for IPv6.
    pub wireguard_v6: Wireguard,
    /// Whether WireGuard carries the hosts' own packets too.
    pub wireguard_encrypt_host_traffic: bool,

    /// What lines of log rules begin with; `%t`, `%k`, `%n` and `%p` stand for tier, kind, name and name with namespace.
    pub log_prefix: String,
    /// How often log rules write, with how many at once.
    pub log_rate_limit: Option<(Rate, u16)>,
    /// What is done with packets from workloads to the host.
    pub endpoint_to_host_action: EndpointToHost,
    /// What is done with packets that may pass, in the filter table.
    pub filter_allow_action: Allowed,
    /// What is done with packets that may pass, in the mangle table.
    pub mangle_allow_action: Allowed,
    /// What is done with packets that may not pass.
    pub filter_deny_action: Denied,
    /// Ports on which host endpoints can always be reached.
    pub failsafe_inbound: Vec<FailsafePort>,
    /// Ports that can always be reached through host endpoints.
    pub failsafe_outbound: Vec<FailsafePort>,
    /// Whether packets that fit no connection go on to policy.
    pub disable_conntrack_invalid_check: bool,

    /// Ports for source NAT.
    pub nat_port_range: Option<(u16, u16)>,
    /// Only packets that leave by these interfaces get source NAT.
    pub nat_outgoing_interface: Option<InterfacePattern>,
    /// The source address; none for that of the interface. It is used for its own IP version only.
    pub nat_outgoing_address: Option<IpAddr>,
    /// Whether packets to hosts of the cluster keep their source too.
    pub nat_outgoing_exclude_hosts: bool,
    /// What is done with packets to addresses of services that no service has.
    pub service_loop_prevention: ServiceLoopAction,

    /// Whether known connections take the flow table; only with nftables.
    pub flow_offload: bool,
    /// Whether eBPF programs serve services, where they judge packets: nobody else translates destinations then.
    pub bpf_serves: bool,
    /// `BPFExtToServiceConnmark`: connections from clients outside to a service of a workload get it; 0 for none.
    pub bpf_service_mark: u32,
    /// `BPFHostConntrackBypass`: Linux does not track what only passes through this host, as far as it needs not know of it.
    pub bpf_bypasses_tracking: bool,
    /// `BPFForceTrackPacketsFromIfaces`: what comes in by these is tracked all the same.
    pub bpf_tracked_interfaces: Vec<InterfacePattern>,
    /// Whether verdicts are reported for flow logs.
    pub flow_logs: bool,
    /// Whether the policies of workload endpoints become few lookups in the place of a chain each. Not while verdicts are
    /// reported, which only rules of their own can do.
    pub compile_policies: bool,
    /// The DSCP value of packets within Istio's ambient mesh, where it is used.
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
