//! The table of all parameters, and [`Config`], which has a field for each. One row defines everything: the
//! description, the field and its type, how texts are parsed, the name, the default, the field of a FelixConfiguration
//! that sets it and how that is written as text (`<-`), and whether it is `mandatory` (`none` is rejected), `fatal` (a
//! value that cannot be parsed is an error), `local` (only this machine decides) or `live` (a running Felix follows a
//! change; all others require a restart). A row also says whether the parameter has an effect: without a word it has;
//! `idle` is accepted without effect, and named in a warning when it is set; `bpf` has an effect in the eBPF dataplane
//! only, and is named in a warning when it is set while that is off; `elsewhere` is written by the node or the cluster,
//! and not read from here. `tests/it` compares that with the code that reads the parameters.

use crate::choices::{ConnectLogFilter, EtcdScheme, PolicyMode, RedirectToPeer};
use crate::kinds::lists::{CidrList, EndpointList, InterfaceFilters, KeyDurations, KeyValues, PortList};
use crate::kinds::patterns::{InterfacePatterns, RegularExpression};
use crate::kinds::ranges::{PortRangeKind, PortRangeList, TableRange, TableRanges};
use crate::kinds::scalars::{
    ANY_INT, Bool, DscpKind, Int, Ipv4, Ipv6, MILLISECONDS, MarkMask, OptionalBool, SECONDS, choice,
};
use crate::kinds::texts::{
    AUTHORITY, File, HOST_ADDRESS, HOST_NAME, INTERFACE, INTERFACE_LIST, LOG_RATE, Region, TEXT,
};
use crate::kinds::{Kind, Refusal};
use crate::parameter::{Effect, Parameter};
use crate::resource::Form;
use crate::values::{Interval, Pattern, PortRange, ProtoPort, RouteTableRange};
use api::{
    AWSSrcDstCheck, Allowed, BPFAttachType, BPFConnectTimeLoadBalancing, BPFConntrackGrowth,
    BPFConntrackLogLevel, BPFConntrackMode, BPFExternalService, BPFJITHardening, BPFLogging,
    BPFOverlayHostSourceIP, BPFReversePathFilter, ChainInsert, Denied, EnabledOrDisabled, EndpointToHost,
    FlowLogsPolicyEvaluationMode, IptablesBackend, LocalSubnetL2Reachability, NATOutgoingExclusions,
    NFTablesFlowTableOffload, NFTablesMode, ProgramClusterRoutes, RouteOrigin, ServiceLoopAction, Severity,
    SourceSpoofing,
};
use ipnet::IpNet;
use settings::{ClientAuth, DatastoreType};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

macro_rules! parameters {
    ($($group:literal { $(
        $(#[doc = $doc:literal])+
        $field:ident: $type:ty = $kind:expr, $name:literal, $default:literal
            $(<- $json:literal $($form:ident)?)? $(, $($flag:ident)+)?;
    )+ })+) => {
        /// The value of every parameter. `Default` has nothing set at all; [`Config::with_defaults`] has Felix's
        /// defaults.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Config {
            $($($(#[doc = $doc])+ pub $field: $type,)+)+
        }

        /// Every parameter.
        pub static PARAMETERS: &[Parameter] = &[$($(Parameter {
            name: $name,
            group: $group,
            description: concat!($($doc),+),
            default: $default,
            is_local: has_flag("local", &[$($(stringify!($flag)),+)?]),
            is_fatal: has_flag("fatal", &[$($(stringify!($flag)),+)?]),
            is_mandatory: has_flag("mandatory", &[$($(stringify!($flag)),+)?]),
            is_live: has_flag("live", &[$($(stringify!($flag)),+)?]),
            effect: if has_flag("idle", &[$($(stringify!($flag)),+)?]) {
                Effect::Idle
            } else if has_flag("elsewhere", &[$($(stringify!($flag)),+)?]) {
                Effect::Elsewhere
            } else if has_flag("bpf", &[$($(stringify!($flag)),+)?]) {
                Effect::Bpf
            } else {
                Effect::Works
            },
            field: stringify!($field),
            resource: resource_field(&[$($json, $(stringify!($form))?)?]),
            accepts: || $kind.accepts(),
            check: |text, around| $kind.parse(text, around).map(|_| ()),
            set: |config, text, around| {
                config.$field = $kind.parse(text, around)?;
                Ok(())
            },
            set_default: |config| {
                config.$field = default_of(&$kind, $default)?;
                Ok(())
            },
            set_zero: |config| config.$field = Default::default(),
            is_equal: |one, other| one.$field == other.$field,
        },)+)+];
    };
}

/// Parses a default of the table; an empty text stands for no value.
fn default_of<K: Kind<Value: Default>>(kind: &K, text: &str) -> Result<K::Value, Refusal> {
    if text.is_empty() { Ok(K::Value::default()) } else { kind.parse_default(text) }
}

/// Parses the part after `<-`: the field and, optionally, its form.
const fn resource_field(row: &[&'static str]) -> Option<(&'static str, Form)> {
    match row {
        [] => None,
        [field] => Some((field, Form::Plain)),
        [field, form, ..] => Some((field, Form::named(form))),
    }
}

/// Whether a row has a flag.
const fn has_flag(flag: &str, flags: &[&str]) -> bool {
    let mut index = 0;
    while index < flags.len() {
        if is_same(flags[index].as_bytes(), flag.as_bytes()) {
            return true;
        }
        index += 1;
    }
    false
}

/// Whether two texts are equal, for const code, where `==` is not available.
pub(crate) const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}

parameters! {
"Datastore and Typha" {
    /// The type of datastore.
    datastore_type: Option<DatastoreType> = choice::<DatastoreType>(), "DatastoreType", "etcdv3", mandatory fatal local;
    /// The name of this node in the datastore; if unset, the machine's own name.
    felix_hostname: String = HOST_NAME, "FelixHostname", "", local mandatory;
    /// The address and port of etcd; `EtcdEndpoints` takes precedence.
    etcd_addr: String = AUTHORITY, "EtcdAddr", "127.0.0.1:2379", local;
    /// The protocol to etcd at `EtcdAddr`.
    etcd_scheme: Option<EtcdScheme> = choice::<EtcdScheme>(), "EtcdScheme", "http", local;
    /// The private key for etcd.
    etcd_key_file: String = File::EXISTING, "EtcdKeyFile", "", local;
    /// The certificate for etcd.
    etcd_cert_file: String = File::EXISTING, "EtcdCertFile", "", local;
    /// The certificate authority of etcd.
    etcd_ca_file: String = File::EXISTING, "EtcdCaFile", "", local;
    /// The URLs of all members of etcd.
    etcd_endpoints: Vec<String> = EndpointList, "EtcdEndpoints", "", local;
    /// The address and port of Typha; takes precedence over `TyphaK8sServiceName`.
    typha_addr: String = AUTHORITY, "TyphaAddr", "", local;
    /// The Kubernetes service of Typha.
    typha_k8s_service_name: String = TEXT, "TyphaK8sServiceName", "", local;
    /// The namespace of that service.
    typha_k8s_namespace: String = TEXT, "TyphaK8sNamespace", "kube-system", mandatory local;
    /// How long Typha may be silent before Felix gives the connection up.
    typha_read_timeout: Interval = SECONDS, "TyphaReadTimeout", "30", local;
    /// How long a write to Typha may take.
    typha_write_timeout: Interval = SECONDS, "TyphaWriteTimeout", "10", local;
    /// The private key for Typha. If one TLS parameter of Typha is set, all are required.
    typha_key_file: String = File::EXISTING, "TyphaKeyFile", "", local;
    /// The certificate for Typha.
    typha_cert_file: String = File::EXISTING, "TyphaCertFile", "", local;
    /// The certificate authority of Typha.
    typha_ca_file: String = File::EXISTING, "TyphaCAFile", "", local;
    /// The common name that Typha's certificate must have; this or `TyphaURISAN` is needed with TLS.
    typha_cn: String = TEXT, "TyphaCN", "", local;
    /// The URI that Typha's certificate must have; this or `TyphaCN` is needed with TLS.
    typha_uri_san: String = TEXT, "TyphaURISAN", "", local;
}
"Interfaces and Istio" {
    /// Whether Felix works together with Istio's ambient mode.
    istio_ambient_mode: Option<EnabledOrDisabled> = choice::<EnabledOrDisabled>(), "IstioAmbientMode", "Disabled" <- "istioAmbientMode";
    /// The DSCP value that directs traffic to Istio's tunnel.
    istio_dscp_mark: u8 = DscpKind, "IstioDSCPMark", "23" <- "istioDSCPMark";
    /// How often the list of local interfaces is read again; 0 turns that off.
    interface_refresh_interval: Interval = SECONDS, "InterfaceRefreshInterval", "90" <- "interfaceRefreshInterval" Seconds;
    /// How long a netlink request may take.
    netlink_timeout: Interval = SECONDS, "NetlinkTimeoutSecs", "10" <- "netlinkTimeout" Seconds, idle;
    /// The prefix of the names of workload interfaces; several prefixes are separated by commas.
    interface_prefix: String = INTERFACE_LIST, "InterfacePrefix", "cali" <- "interfacePrefix", mandatory fatal;
    /// Interfaces that are never host endpoints: names, or regular expressions between slashes, separated
    /// by commas.
    interface_exclude: Vec<Pattern> = InterfacePatterns, "InterfaceExclude", "kube-ipvs0" <- "interfaceExclude";
    /// Whether pods may request foreign source addresses.
    workload_source_spoofing: Option<SourceSpoofing> = choice::<SourceSpoofing>(), "WorkloadSourceSpoofing", "Disabled" <- "workloadSourceSpoofing";
    /// The interfaces, as a regular expression, from which the host's MTU is derived.
    mtu_iface_pattern: Option<Pattern> = RegularExpression, "MTUIfacePattern", "^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)" <- "mtuIfacePattern";
    /// Whether Felix waits for the MTU file before it starts.
    require_mtu_file: bool = Bool, "RequireMTUFile", "false" <- "requireMTUFile";
}
"iptables and nftables" {
    /// Whether nftables is used instead of iptables; `Auto` follows kube-proxy.
    nftables_mode: Option<NFTablesMode> = choice::<NFTablesMode>(), "NFTablesMode", "Auto" <- "nftablesMode";
    /// How policies of workloads are programmed with nftables: as `Chains` like in Calico, one chain for each policy,
    /// or `Compiled` into a few lookups, whose cost does not depend on the number of policies. Not a field of a
    /// FelixConfiguration: set it there with the annotation `config.projectcalico.org/NFTablesPolicyMode`, or on the
    /// node. With flow logs it is `Chains`.
    nftables_policy_mode: Option<PolicyMode> = choice::<PolicyMode>(), "NFTablesPolicyMode", "Chains";
    /// How policies of workloads are programmed with iptables: see `NFTablesPolicyMode`.
    iptables_policy_mode: Option<PolicyMode> = choice::<PolicyMode>(), "IptablesPolicyMode", "Chains";
    /// Which established traffic uses the kernel's flow table.
    nftables_flow_table_offload: Option<NFTablesFlowTableOffload> = choice::<NFTablesFlowTableOffload>(), "NFTablesFlowTableOffload", "Disabled" <- "nftablesFlowTableOffload";
    /// The host interfaces, as a regular expression, that take part in the flow table.
    nftables_flow_table_data_iface_pattern: Option<Pattern> = RegularExpression, "NFTablesFlowTableDataIfacePattern", "" <- "nftablesFlowTableDataIfacePattern";
    /// Which of the two iptables flavours is used. Rules in the other flavour are not moved.
    iptables_backend: Option<IptablesBackend> = choice::<IptablesBackend>(), "IptablesBackend", "auto" <- "iptablesBackend";
    /// How often the iptables rules are read back and repaired; 0 turns that off.
    iptables_refresh_interval: Interval = SECONDS, "IptablesRefreshInterval", "180" <- "iptablesRefreshInterval" Seconds;
    /// How long after a write Felix reads the rules back once more, in case another program overwrote them.
    iptables_post_write_check_interval: Interval = SECONDS, "IptablesPostWriteCheckIntervalSecs", "5" <- "iptablesPostWriteCheckInterval" Seconds;
    /// The pause between two attempts to take the xtables lock.
    iptables_lock_probe_interval: Interval = MILLISECONDS, "IptablesLockProbeIntervalMillis", "50" <- "iptablesLockProbeInterval" Milliseconds;
    /// Platform features to force on or off, as `Feature=true,Other=false`; an empty value leaves the
    /// choice to detection.
    feature_detect_override: BTreeMap<String, String> = KeyValues, "FeatureDetectOverride", "" <- "featureDetectOverride";
    /// Preview features to turn on or off, as `Name=value,Other=value`.
    feature_gates: BTreeMap<String, String> = KeyValues, "FeatureGates", "" <- "featureGates", idle;
    /// How often IP sets are read back and repaired; 0 turns that off.
    ipsets_refresh_interval: Interval = SECONDS, "IpsetsRefreshInterval", "90" <- "ipsetsRefreshInterval" Seconds;
    /// The most members an IP set may have (not used with nftables).
    max_ipset_size: i64 = ANY_INT, "MaxIpsetSize", "1048576" <- "maxIpsetSize", mandatory;
    /// Whether our rules come first (`Insert`) or last (`Append`) in the kernel's own chains.
    chain_insert_mode: Option<ChainInsert> = choice::<ChainInsert>(), "ChainInsertMode", "insert" <- "chainInsertMode", mandatory fatal;
    /// What allowed packets do in the filter table: leave at once, or continue with the host's next rules.
    iptables_filter_allow_action: Option<Allowed> = choice::<Allowed>(), "IptablesFilterAllowAction", "ACCEPT" <- "iptablesFilterAllowAction", mandatory fatal;
    /// What allowed packets do in the mangle table, where policy before DNAT is applied.
    iptables_mangle_allow_action: Option<Allowed> = choice::<Allowed>(), "IptablesMangleAllowAction", "ACCEPT" <- "iptablesMangleAllowAction", mandatory fatal;
    /// What happens to denied packets: they are dropped silently or rejected with an answer.
    iptables_filter_deny_action: Option<Denied> = choice::<Denied>(), "IptablesFilterDenyAction", "DROP" <- "iptablesFilterDenyAction", mandatory fatal;
    /// The packet mark bits that are ours in iptables mode; at least 8.
    iptables_mark_mask: u32 = MarkMask, "IptablesMarkMask", "0xffff0000" <- "iptablesMarkMask", mandatory fatal;
    /// Accepts packets that connection tracking considers invalid.
    disable_conntrack_invalid_check: bool = Bool, "DisableConntrackInvalidCheck", "false" <- "disableConntrackInvalidCheck";
    /// Limits outgoing NAT to these interfaces; `+` at the end stands for any rest.
    iptables_nat_outgoing_interface_filter: String = INTERFACE, "IptablesNATOutgoingInterfaceFilter", "" <- "iptablesNATOutgoingInterfaceFilter";
    /// How often the nftables rules are read back and repaired.
    nftables_refresh_interval: Interval = SECONDS, "NftablesRefreshInterval", "180" <- "nftablesRefreshInterval" Seconds;
    /// What allowed packets do in the filter chains: leave at once, or continue.
    nftables_filter_allow_action: Option<Allowed> = choice::<Allowed>(), "NftablesFilterAllowAction", "ACCEPT" <- "nftablesFilterAllowAction", mandatory fatal;
    /// What allowed packets do in the mangle chains.
    nftables_mangle_allow_action: Option<Allowed> = choice::<Allowed>(), "NftablesMangleAllowAction", "ACCEPT" <- "nftablesMangleAllowAction", mandatory fatal;
    /// What happens to denied packets: they are dropped silently or rejected with an answer.
    nftables_filter_deny_action: Option<Denied> = choice::<Denied>(), "NftablesFilterDenyAction", "DROP" <- "nftablesFilterDenyAction", mandatory fatal;
    /// The packet mark bits that are ours in nftables mode; at least 8.
    nftables_mark_mask: u32 = MarkMask, "NftablesMarkMask", "0xffff0000" <- "nftablesMarkMask", mandatory fatal;
}
"Routes" {
    /// How often all routes are read back and repaired; 0 turns that off.
    route_refresh_interval: Interval = SECONDS, "RouteRefreshInterval", "90" <- "routeRefreshInterval" Seconds;
    /// The source hint on IPv4 routes to workloads.
    device_route_source_address: Option<Ipv4Addr> = Ipv4, "DeviceRouteSourceAddress", "" <- "deviceRouteSourceAddress";
    /// The source hint on IPv6 routes to workloads.
    device_route_source_address_ipv6: Option<Ipv6Addr> = Ipv6, "DeviceRouteSourceAddressIPv6", "" <- "deviceRouteSourceAddressIPv6";
    /// The route protocol number by which our routes are recognised.
    device_route_protocol: i64 = ANY_INT, "DeviceRouteProtocol", "3" <- "deviceRouteProtocol";
    /// Whether routes to workloads that other programs added are removed.
    remove_external_routes: bool = Bool, "RemoveExternalRoutes", "true" <- "removeExternalRoutes";
    /// For which pools without VXLAN Felix, rather than BGP, programs the routes to other nodes.
    program_cluster_routes: Option<ProgramClusterRoutes> = choice::<ProgramClusterRoutes>(), "ProgramClusterRoutes", "EnabledIPIPOnly" <- "programClusterRoutes";
    /// Whether Felix turns on IP forwarding.
    ip_forwarding: Option<EnabledOrDisabled> = choice::<EnabledOrDisabled>(), "IPForwarding", "Enabled" <- "ipForwarding";
    /// Whether floating IPs outside OpenStack are programmed.
    floating_ips: Option<EnabledOrDisabled> = choice::<EnabledOrDisabled>(), "FloatingIPs", "Disabled" <- "floatingIPs";
    /// Whether the host answers ARP and NDP for pods and load balancers in its own subnet.
    local_subnet_l2_reachability: Option<LocalSubnetL2Reachability> = choice::<LocalSubnetL2Reachability>(), "LocalSubnetL2Reachability", "Disabled" <- "localSubnetL2Reachability";
    /// How often such addresses are announced again; 0 turns that off.
    local_subnet_l2_reachability_refresh_interval: Interval = SECONDS, "LocalSubnetL2ReachabilityRefreshInterval", "120" <- "localSubnetL2ReachabilityRefreshInterval" Seconds;
    /// What to do with the source/destination check of the EC2 instance.
    aws_src_dst_check: Option<AWSSrcDstCheck> = choice::<AWSSrcDstCheck>(), "AWSSrcDstCheck", "DoNothing" <- "awsSrcDstCheck", mandatory idle;
    /// Hosts outside the cluster whose tunnel traffic is accepted.
    external_nodes_cidr_list: Vec<IpNet> = CidrList, "ExternalNodesCIDRList", "" <- "externalNodesList", fatal;
    /// Whether routes to workloads come from IPAM blocks or from endpoints.
    route_source: Option<RouteOrigin> = choice::<RouteOrigin>(), "RouteSource", "CalicoIPAM" <- "routeSource";
    /// Deprecated: see `RouteTableRanges`.
    route_table_range: Option<RouteTableRange> = TableRange, "RouteTableRange", "" <- "routeTableRange" Range, fatal;
    /// The route tables that are ours.
    route_table_ranges: Vec<RouteTableRange> = TableRanges, "RouteTableRanges", "" <- "routeTableRanges" Ranges, fatal;
    /// Leaves all routes alone, for policy-only clusters.
    route_sync_disabled: bool = Bool, "RouteSyncDisabled", "false" <- "routeSyncDisabled";
    /// The metric of our IPv4 routes.
    ipv4_normal_route_priority: i64 = Int(&[(1, 2147483646)]), "IPv4NormalRoutePriority", "1024" <- "ipv4NormalRoutePriority";
    /// The metric of an IPv4 route to a VM that is moving; should be less than the normal one.
    ipv4_elevated_route_priority: i64 = Int(&[(1, 2147483646)]), "IPv4ElevatedRoutePriority", "512" <- "ipv4ElevatedRoutePriority";
    /// The metric of our IPv6 routes.
    ipv6_normal_route_priority: i64 = Int(&[(1, 2147483646)]), "IPv6NormalRoutePriority", "1024" <- "ipv6NormalRoutePriority";
    /// The metric of an IPv6 route to a VM that is moving; should be less than the normal one.
    ipv6_elevated_route_priority: i64 = Int(&[(1, 2147483646)]), "IPv6ElevatedRoutePriority", "512" <- "ipv6ElevatedRoutePriority";
    /// How long the elevated metric is kept after a VM has moved.
    live_migration_route_convergence_time: Interval = SECONDS, "LiveMigrationRouteConvergenceTime", "30" <- "liveMigrationRouteConvergenceTime" Seconds;
}
"VXLAN and IPIP" {
    /// Forces the IPv4 VXLAN device on or off; without it, the IP pools decide.
    vxlan_enabled: Option<bool> = OptionalBool, "VXLANEnabled", "" <- "vxlanEnabled";
    /// The UDP port of VXLAN traffic.
    vxlan_port: i64 = ANY_INT, "VXLANPort", "4789" <- "vxlanPort";
    /// The VXLAN network identifier.
    vxlan_vni: i64 = ANY_INT, "VXLANVNI", "4096" <- "vxlanVNI";
    /// The MTU of the IPv4 VXLAN device; 0 derives it from the host's interfaces.
    vxlan_mtu: i64 = ANY_INT, "VXLANMTU", "0" <- "vxlanMTU";
    /// The MTU of the IPv6 VXLAN device; 0 derives it from the host's interfaces.
    vxlan_mtu_v6: i64 = ANY_INT, "VXLANMTUV6", "0" <- "vxlanMTUV6";
    /// The address of this node's IPv4 VXLAN device; written by the node itself.
    ipv4_vxlan_tunnel_addr: Option<Ipv4Addr> = Ipv4, "IPv4VXLANTunnelAddr", "";
    /// The address of this node's IPv6 VXLAN device; written by the node itself.
    ipv6_vxlan_tunnel_addr: Option<Ipv6Addr> = Ipv6, "IPv6VXLANTunnelAddr", "";
    /// The hardware address of this node's IPv4 VXLAN device; if unset, derived from the node's name.
    vxlan_tunnel_mac_addr: String = TEXT, "VXLANTunnelMACAddr", "", elsewhere;
    /// The hardware address of this node's IPv6 VXLAN device; if unset, derived from the node's name.
    vxlan_tunnel_mac_addr_v6: String = TEXT, "VXLANTunnelMACAddrV6", "", elsewhere;
    /// Forces the IPIP device on or off; without it, the IP pools decide.
    ipip_enabled: Option<bool> = OptionalBool, "IpInIpEnabled", "" <- "ipipEnabled";
    /// The MTU of the IPIP device; 0 derives it from the host's interfaces.
    ipip_mtu: i64 = ANY_INT, "IpInIpMtu", "0" <- "ipipMTU";
    /// The address of this node's IPIP device; written by the node itself.
    ipip_tunnel_addr: Option<Ipv4Addr> = Ipv4, "IpInIpTunnelAddr", "";
    /// Whether workloads may send their own VXLAN packets.
    allow_vxlan_packets_from_workloads: bool = Bool, "AllowVXLANPacketsFromWorkloads", "false" <- "allowVXLANPacketsFromWorkloads";
    /// Whether workloads may send their own IPIP packets.
    allow_ipip_packets_from_workloads: bool = Bool, "AllowIPIPPacketsFromWorkloads", "false" <- "allowIPIPPacketsFromWorkloads";
}
"WireGuard" {
    /// Whether IPv4 traffic between nodes is encrypted.
    wireguard_enabled: bool = Bool, "WireguardEnabled", "false" <- "wireguardEnabled";
    /// Whether IPv6 traffic between nodes is encrypted.
    wireguard_enabled_v6: bool = Bool, "WireguardEnabledV6", "false" <- "wireguardEnabledV6";
    /// The UDP port of IPv4 WireGuard.
    wireguard_listening_port: i64 = ANY_INT, "WireguardListeningPort", "51820" <- "wireguardListeningPort";
    /// The UDP port of IPv6 WireGuard.
    wireguard_listening_port_v6: i64 = ANY_INT, "WireguardListeningPortV6", "51821" <- "wireguardListeningPortV6";
    /// The priority of the routing rule for WireGuard.
    wireguard_routing_rule_priority: i64 = ANY_INT, "WireguardRoutingRulePriority", "99" <- "wireguardRoutingRulePriority";
    /// The name of the IPv4 WireGuard device.
    wireguard_interface_name: String = INTERFACE, "WireguardInterfaceName", "wireguard.cali" <- "wireguardInterfaceName", mandatory;
    /// The name of the IPv6 WireGuard device.
    wireguard_interface_name_v6: String = INTERFACE, "WireguardInterfaceNameV6", "wg-v6.cali" <- "wireguardInterfaceNameV6", mandatory;
    /// The MTU of the IPv4 WireGuard device.
    wireguard_mtu: i64 = ANY_INT, "WireguardMTU", "0" <- "wireguardMTU";
    /// The MTU of the IPv6 WireGuard device.
    wireguard_mtu_v6: i64 = ANY_INT, "WireguardMTUV6", "0" <- "wireguardMTUV6";
    /// Whether traffic between the hosts themselves is encrypted too.
    wireguard_host_encryption_enabled: bool = Bool, "WireguardHostEncryptionEnabled", "false" <- "wireguardHostEncryptionEnabled";
    /// The keep-alive interval of WireGuard; 0 turns it off.
    wireguard_keep_alive: Interval = SECONDS, "WireguardPersistentKeepAlive", "0" <- "wireguardKeepAlive" Seconds;
    /// Whether WireGuard devices use threaded NAPI.
    wireguard_threading_enabled: bool = Bool, "WireguardThreadingEnabled", "false" <- "wireguardThreadingEnabled";
}
"NAT and services" {
    /// What happens to packets for service addresses that are not in use.
    service_loop_prevention: Option<ServiceLoopAction> = choice::<ServiceLoopAction>(), "ServiceLoopPrevention", "Drop" <- "serviceLoopPrevention";
    /// The ports of node port services, as configured in kube-proxy.
    kube_node_port_ranges: Vec<PortRange> = PortRangeList, "KubeNodePortRanges", "30000:32767" <- "kubeNodePortRanges";
    /// The source ports used for outgoing NAT; if unset, the kernel chooses.
    nat_port_range: Option<PortRange> = PortRangeKind, "NATPortRange", "" <- "natPortRange";
    /// The source address used for outgoing NAT; if unset, the address of the outgoing interface.
    nat_outgoing_address: Option<Ipv4Addr> = Ipv4, "NATOutgoingAddress", "" <- "natOutgoingAddress";
    /// Which destinations keep the pod's own source address.
    nat_outgoing_exclusions: Option<NATOutgoingExclusions> = choice::<NATOutgoingExclusions>(), "NATOutgoingExclusions", "IPPoolsOnly" <- "natOutgoingExclusions";
}
"Failsafe ports" {
    /// Ports of the host that stay reachable whatever the policy. An empty list protects none.
    failsafe_inbound_host_ports: Vec<ProtoPort> = PortList, "FailsafeInboundHostPorts", "tcp:22,udp:68,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667" <- "failsafeInboundHostPorts" ProtocolPorts, fatal;
    /// Ports that the host can always reach whatever the policy. An empty list protects none.
    failsafe_outbound_host_ports: Vec<ProtoPort> = PortList, "FailsafeOutboundHostPorts", "udp:53,udp:67,tcp:179,tcp:2379,tcp:2380,tcp:5473,tcp:6443,tcp:6666,tcp:6667" <- "failsafeOutboundHostPorts" ProtocolPorts, fatal;
}
"BPF" {
    /// Whether the BPF dataplane is used.
    bpf_enabled: bool = Bool, "BPFEnabled", "false" <- "bpfEnabled";
    /// Which address the host itself uses as source over a tunnel in BPF mode.
    bpf_overlay_host_source_ip: Option<BPFOverlayHostSourceIP> = choice::<BPFOverlayHostSourceIP>(), "BPFOverlayHostSourceIP", "TunnelAddress" <- "bpfOverlayHostSourceIP", mandatory bpf;
    /// Whether BPF is disabled for unprivileged users.
    bpf_disable_unprivileged: bool = Bool, "BPFDisableUnprivileged", "true" <- "bpfDisableUnprivileged", bpf;
    /// Whether the kernel's strict JIT hardening is relaxed.
    bpf_jit_hardening: Option<BPFJITHardening> = choice::<BPFJITHardening>(), "BPFJITHardening", "Auto" <- "bpfJITHardening", mandatory bpf;
    /// How much the BPF programs log to the trace pipe.
    bpf_log_level: Option<BPFLogging> = choice::<BPFLogging>(), "BPFLogLevel", "off" <- "bpfLogLevel", mandatory bpf;
    /// How much the cleanup of BPF connection tracking logs.
    bpf_conntrack_log_level: Option<BPFConntrackLogLevel> = choice::<BPFConntrackLogLevel>(), "BPFConntrackLogLevel", "off" <- "bpfConntrackLogLevel", mandatory idle;
    /// Where expired entries of BPF connection tracking are removed.
    bpf_conntrack_mode: Option<BPFConntrackMode> = choice::<BPFConntrackMode>(), "BPFConntrackCleanupMode", "Auto" <- "bpfConntrackMode", idle;
    /// How long BPF connection tracking keeps entries.
    bpf_conntrack_timeouts: BTreeMap<String, String> = KeyValues, "BPFConntrackTimeouts", "CreationGracePeriod=10s,TCPSynSent=20s,TCPEstablished=1h,TCPFinsSeen=Auto,TCPResetSeen=40s,UDPTimeout=60s,GenericTimeout=10m,ICMPTimeout=5s" <- "bpfConntrackTimeouts" ConntrackTimeouts, bpf;
    /// How long the BPF dataplane waits for the fragments of a packet; if 0, the kernel's own value applies.
    bpf_ip_frag_timeout: Interval = SECONDS, "BPFIPFragTimeout", "0" <- "bpfIPFragTimeout" Seconds, bpf;
    /// Per interface (or `all`, `weps`, `heps`), a pcap expression that selects the packets to log.
    bpf_log_filters: BTreeMap<String, String> = KeyValues, "BPFLogFilters", "" <- "bpfLogFilters", bpf;
    /// Whether the connect-time load balancer logs when filters are set; `all` enables it.
    bpf_ctlb_log_filter: Option<ConnectLogFilter> = choice::<ConnectLogFilter>(), "BPFCTLBLogFilter", "" <- "bpfCTLBLogFilter", idle;
    /// The interfaces to the network, as a regular expression, that get BPF programs.
    bpf_data_iface_pattern: Option<Pattern> = RegularExpression, "BPFDataIfacePattern", "^((en|wl|ww|sl|ib)[Popsx].*|(eth|wlan|wwan|bond).*)" <- "bpfDataIfacePattern", bpf;
    /// Tunnel interfaces of other programs, as a regular expression, that get BPF programs.
    bpf_l3_iface_pattern: Option<Pattern> = RegularExpression, "BPFL3IfacePattern", "" <- "bpfL3IfacePattern", bpf;
    /// Deprecated: see `BPFConnectTimeLoadBalancing`.
    bpf_connect_time_load_balancing_enabled: bool = Bool, "BPFConnectTimeLoadBalancingEnabled", "" <- "bpfConnectTimeLoadBalancingEnabled", idle;
    /// For which services addresses are translated when a socket connects.
    bpf_connect_time_load_balancing: Option<BPFConnectTimeLoadBalancing> = choice::<BPFConnectTimeLoadBalancing>(), "BPFConnectTimeLoadBalancing", "TCP" <- "bpfConnectTimeLoadBalancing", mandatory bpf;
    /// Whether the host's own traffic to services is translated per packet.
    bpf_host_networked_nat_without_ctlb: Option<EnabledOrDisabled> = choice::<EnabledOrDisabled>(), "BPFHostNetworkedNATWithoutCTLB", "Enabled" <- "bpfHostNetworkedNATWithoutCTLB", mandatory bpf;
    /// How replies to clients outside the cluster are sent: back through the node where the request arrived, or
    /// directly.
    bpf_external_service_mode: Option<BPFExternalService> = choice::<BPFExternalService>(), "BPFExternalServiceMode", "tunnel" <- "bpfExternalServiceMode", mandatory bpf;
    /// Clients that are served as if the mode were Tunnel.
    bpf_dsr_optout_cidrs: Vec<IpNet> = CidrList, "BPFDSROptoutCIDRs", "" <- "bpfDSROptoutCIDRs", bpf;
    /// Whether rules left over by kube-proxy are removed.
    bpf_kube_proxy_iptables_cleanup_enabled: bool = Bool, "BPFKubeProxyIptablesCleanupEnabled", "true" <- "bpfKubeProxyIptablesCleanupEnabled", bpf;
    /// The least time between two updates of service tables.
    bpf_kube_proxy_min_sync_period: Interval = SECONDS, "BPFKubeProxyMinSyncPeriod", "1" <- "bpfKubeProxyMinSyncPeriod" Seconds, bpf;
    /// The port on which the built-in service proxy reports its health; 0 turns that off.
    bpf_kube_proxy_healthz_port: i64 = ANY_INT, "BPFKubeProxyHealthzPort", "10256" <- "bpfKubeProxyHealthzPort", bpf;
    /// A mark set on connections from outside to a local service.
    bpf_ext_to_service_connmark: i64 = ANY_INT, "BPFExtToServiceConnmark", "0" <- "bpfExtToServiceConnmark", bpf;
    /// The source ports used when two clients collide.
    bpf_psnat_ports: Option<PortRange> = PortRangeKind, "BPFPSNATPorts", "20000:29999" <- "bpfPSNATPorts", bpf;
    /// Whether workload and service traffic bypasses the kernel's connection tracking.
    bpf_host_conntrack_bypass: bool = Bool, "BPFHostConntrackBypass", "false" <- "bpfHostConntrackBypass", bpf;
    /// Whether fragments from outside that arrive before the first one of their packet wait for it.
    bpf_ip_fragment_reassembly_enabled: bool = Bool, "BPFIPFragmentReassemblyEnabled", "true" <- "bpfIPFragmentReassemblyEnabled", bpf;
    /// How strictly source addresses are checked on host interfaces.
    bpf_enforce_rpf: Option<BPFReversePathFilter> = choice::<BPFReversePathFilter>(), "BPFEnforceRPF", "Loose" <- "bpfEnforceRPF", mandatory bpf;
    /// Whether details of policy programs are kept for inspection.
    bpf_policy_debug_enabled: bool = Bool, "BPFPolicyDebugEnabled", "true" <- "bpfPolicyDebugEnabled", idle;
    /// Interfaces whose traffic the kernel tracks in any case.
    bpf_force_track_packets_from_ifaces: Vec<String> = InterfaceFilters, "BPFForceTrackPacketsFromIfaces", "docker+" <- "bpfForceTrackPacketsFromIfaces", bpf;
    /// Interfaces, as a regular expression, on which receive offload is turned off.
    bpf_disable_gro_for_ifaces: Option<Pattern> = RegularExpression, "BPFDisableGROForIfaces", "" <- "bpfDisableGROForIfaces", bpf;
    /// Destinations that are never translated, such as a local DNS cache.
    bpf_exclude_cidrs_from_nat: Vec<IpNet> = CidrList, "BPFExcludeCIDRsFromNAT", "" <- "bpfExcludeCIDRsFromNAT", bpf;
    /// Whether packets go straight to the workload's side of its device.
    bpf_redirect_to_peer: Option<RedirectToPeer> = choice::<RedirectToPeer>(), "BPFRedirectToPeer", "Enabled" <- "bpfRedirectToPeer", mandatory bpf;
    /// How BPF programs are attached to interfaces.
    bpf_attach_type: Option<BPFAttachType> = choice::<BPFAttachType>(), "BPFAttachType", "Netkit" <- "bpfAttachType", mandatory bpf;
    /// The size of the buffer for BPF events, in MB.
    bpf_export_buffer_size_mb: i64 = ANY_INT, "BPFExportBufferSizeMB", "1" <- "bpfExportBufferSizeMB", mandatory idle;
    /// Whether BPF programs are profiled.
    bpf_profiling: Option<EnabledOrDisabled> = choice::<EnabledOrDisabled>(), "BPFProfiling", "Disabled" <- "bpfProfiling", mandatory bpf;
    /// Where the cgroup hierarchy is mounted, if not in the default place.
    cgroup_v2_path: String = TEXT, "CgroupV2Path", "" <- "cgroupV2Path", bpf;
    /// The cgroup that the connect-time load balancer is attached to; for development.
    debug_bpf_cgroup_v2: String = TEXT, "DebugBPFCgroupV2", "", local bpf;
    /// The most endpoints that a Maglev service may have.
    bpf_maglev_max_endpoints_per_service: i64 = Int(&[(1, 3000)]), "BPFMaglevMaxEndpointsPerService", "100" <- "bpfMaglevMaxEndpointsPerService", bpf;
    /// The most Maglev services.
    bpf_maglev_max_services: i64 = Int(&[(1, 3000)]), "BPFMaglevMaxServices", "100" <- "bpfMaglevMaxServices", bpf;
}
"BPF maps" {
    /// How many service addresses and ports the BPF maps can hold.
    bpf_map_size_nat_frontend: i64 = ANY_INT, "BPFMapSizeNATFrontend", "65536" <- "bpfMapSizeNATFrontend", mandatory bpf;
    /// How many service endpoints the BPF maps can hold.
    bpf_map_size_nat_backend: i64 = ANY_INT, "BPFMapSizeNATBackend", "262144" <- "bpfMapSizeNATBackend", mandatory bpf;
    /// How many client affinities the BPF maps can hold.
    bpf_map_size_nat_affinity: i64 = ANY_INT, "BPFMapSizeNATAffinity", "65536" <- "bpfMapSizeNATAffinity", mandatory bpf;
    /// How many routes the BPF maps can hold.
    bpf_map_size_route: i64 = ANY_INT, "BPFMapSizeRoute", "262144" <- "bpfMapSizeRoute", mandatory bpf;
    /// How many connections the BPF maps can hold.
    bpf_map_size_conntrack: i64 = ANY_INT, "BPFMapSizeConntrack", "512000" <- "bpfMapSizeConntrack", mandatory bpf;
    /// How many connections the BPF maps can hold per processor; overrides the total unless it is 0.
    bpf_map_size_per_cpu_conntrack: i64 = ANY_INT, "BPFMapSizePerCPUConntrack", "0" <- "bpfMapSizePerCpuConntrack", bpf;
    /// Whether the connection map grows when it is full.
    bpf_map_size_conntrack_scaling: Option<BPFConntrackGrowth> = choice::<BPFConntrackGrowth>(), "BPFMapSizeConntrackScaling", "DoubleIfFull" <- "bpfMapSizeConntrackScaling", mandatory bpf;
    /// How many translated connections can wait for removal.
    bpf_map_size_conntrack_cleanup_queue: i64 = ANY_INT, "BPFMapSizeConntrackCleanupQueue", "100000" <- "bpfMapSizeConntrackCleanupQueue", mandatory idle;
    /// How many members all IP sets together can have in BPF mode.
    bpf_map_size_ip_sets: i64 = ANY_INT, "BPFMapSizeIPSets", "1048576" <- "bpfMapSizeIPSets", mandatory idle;
    /// How many interfaces the BPF maps can hold.
    bpf_map_size_if_state: i64 = ANY_INT, "BPFMapSizeIfState", "1000" <- "bpfMapSizeIfState", mandatory idle;
}
"Flow logs" {
    /// How often flow logs are sent.
    flow_logs_flush_interval: Interval = SECONDS, "FlowLogsFlushInterval", "300" <- "flowLogsFlushInterval" Seconds;
    /// Whether the flow collector logs every detail.
    flow_logs_collector_debug_trace: bool = Bool, "FlowLogsCollectorDebugTrace", "false" <- "flowLogsCollectorDebugTrace";
    /// The server that flow logs are sent to.
    flow_logs_goldmane_server: String = TEXT, "FlowLogsGoldmaneServer", "" <- "flowLogsGoldmaneServer";
    /// Whether flows are also reported on a local socket.
    flow_logs_local_reporter: Option<EnabledOrDisabled> = choice::<EnabledOrDisabled>(), "FlowLogsLocalReporter", "Disabled" <- "flowLogsLocalReporter";
    /// Whether active flows are evaluated again when policy changes.
    flow_logs_policy_evaluation_mode: Option<FlowLogsPolicyEvaluationMode> = choice::<FlowLogsPolicyEvaluationMode>(), "FlowLogsPolicyEvaluationMode", "Continuous" <- "flowLogsPolicyEvaluationMode";
}
"Log" {
    /// The prefix of lines written by Log rules. `%t` is the tier, `%k` the kind, `%n` the name, `%p` namespace and
    /// name.
    log_prefix: String = TEXT, "LogPrefix", "calico-packet" <- "logPrefix";
    /// The highest rate of lines from Log rules, such as `10/second`.
    log_action_rate_limit: String = LOG_RATE, "LogActionRateLimit", "" <- "logActionRateLimit";
    /// How many lines may exceed that rate at once.
    log_action_rate_limit_burst: i64 = Int(&[(0, i64::MAX), (9999, i64::MAX)]), "LogActionRateLimitBurst", "5" <- "logActionRateLimitBurst";
    /// The log file, or `none`.
    log_file_path: String = File::ANY, "LogFilePath", "/var/log/calico/felix.log" <- "logFilePath", fatal;
    /// The least severe level that is written to the log file.
    log_severity_file: Option<Severity> = choice::<Severity>(), "LogSeverityFile", "INFO" <- "logSeverityFile";
    /// The least severe level that is written to standard output.
    log_severity_screen: Option<Severity> = choice::<Severity>(), "LogSeverityScreen", "INFO" <- "logSeverityScreen";
    /// The least severe level that is sent to syslog.
    log_severity_sys: Option<Severity> = choice::<Severity>(), "LogSeveritySys", "INFO" <- "logSeveritySys";
    /// Limits debug messages to source files with a matching name.
    log_debug_filename_regex: Option<Pattern> = RegularExpression, "LogDebugFilenameRegex", "" <- "logDebugFilenameRegex", idle;
}
"Metrics" {
    /// Whether metrics are served.
    prometheus_metrics_enabled: bool = Bool, "PrometheusMetricsEnabled", "false" <- "prometheusMetricsEnabled";
    /// The address that the metrics server listens on; empty means all.
    prometheus_metrics_host: String = HOST_ADDRESS, "PrometheusMetricsHost", "" <- "prometheusMetricsHost";
    /// The port that the metrics server listens on.
    prometheus_metrics_port: i64 = Int(&[(0, 65535)]), "PrometheusMetricsPort", "9091" <- "prometheusMetricsPort";
    /// Whether metrics of the language runtime are served too.
    prometheus_go_metrics_enabled: bool = Bool, "PrometheusGoMetricsEnabled", "true" <- "prometheusGoMetricsEnabled", idle;
    /// Whether metrics of the process are served too.
    prometheus_process_metrics_enabled: bool = Bool, "PrometheusProcessMetricsEnabled", "true" <- "prometheusProcessMetricsEnabled";
    /// Whether WireGuard metrics are served too.
    prometheus_wire_guard_metrics_enabled: bool = Bool, "PrometheusWireGuardMetricsEnabled", "true" <- "prometheusWireGuardMetricsEnabled";
    /// The file with the certificate authority for clients of the metrics server.
    prometheus_metrics_ca_file: String = TEXT, "PrometheusMetricsCAFile", "" <- "prometheusMetricsCAFile";
    /// The file with the certificate of the metrics server.
    prometheus_metrics_cert_file: String = TEXT, "PrometheusMetricsCertFile", "" <- "prometheusMetricsCertFile";
    /// The file with the private key of the metrics server.
    prometheus_metrics_key_file: String = TEXT, "PrometheusMetricsKeyFile", "" <- "prometheusMetricsKeyFile";
    /// What the metrics server requires of a client's certificate.
    prometheus_metrics_client_auth: Option<ClientAuth> = choice::<ClientAuth>(), "PrometheusMetricsClientAuth", "NoClientCert" <- "prometheusMetricsClientAuth";
}
"Health and reports" {
    /// How long the internal driver may be silent before Felix is unhealthy. Deprecated: see `HealthTimeoutOverrides`.
    dataplane_watchdog_timeout: Interval = SECONDS, "DataplaneWatchdogTimeout", "90" <- "dataplaneWatchdogTimeout" Seconds;
    /// How often Felix reports that it is alive; 0 turns that off.
    reporting_interval: Interval = SECONDS, "ReportingIntervalSecs", "30" <- "reportingInterval" Seconds;
    /// How long such a report stays valid.
    reporting_ttl: Interval = SECONDS, "ReportingTTLSecs", "90" <- "reportingTTL" Seconds;
    /// Whether the state of each endpoint is written to the datastore (OpenStack).
    endpoint_reporting_enabled: bool = Bool, "EndpointReportingEnabled", "false" <- "endpointReportingEnabled";
    /// How long endpoint reports are collected before they are written.
    endpoint_reporting_delay: Interval = SECONDS, "EndpointReportingDelaySecs", "1" <- "endpointReportingDelay" Seconds;
    /// The directory under which endpoint status files are written; empty writes none.
    endpoint_status_path_prefix: String = File::ANY, "EndpointStatusPathPrefix", "/var/run/calico" <- "endpointStatusPathPrefix";
    /// Whether liveness and readiness are served over HTTP.
    health_enabled: bool = Bool, "HealthEnabled", "false" <- "healthEnabled";
    /// The port that the health server listens on.
    health_port: i64 = Int(&[(0, 65535)]), "HealthPort", "9099" <- "healthPort";
    /// The address that the health server listens on.
    health_host: String = HOST_ADDRESS, "HealthHost", "localhost" <- "healthHost";
    /// How long named parts of Felix may be silent before Felix is unhealthy.
    health_timeout_overrides: BTreeMap<String, Interval> = KeyDurations, "HealthTimeoutOverrides", "" <- "healthTimeoutOverrides" HealthTimeouts, live;
    /// Whether version and cluster size are reported to the project.
    usage_reporting_enabled: bool = Bool, "UsageReportingEnabled", "true" <- "usageReportingEnabled", idle;
    /// The wait before the first such report.
    usage_reporting_initial_delay: Interval = SECONDS, "UsageReportingInitialDelaySecs", "300" <- "usageReportingInitialDelay" Seconds, idle;
    /// The time between such reports.
    usage_reporting_interval: Interval = SECONDS, "UsageReportingIntervalSecs", "86400" <- "usageReportingInterval" Seconds, idle;
    /// The cluster's identity in usage reports.
    cluster_guid: String = TEXT, "ClusterGUID", "baddecaf", elsewhere live;
    /// The type of the cluster, as comma-separated words.
    cluster_type: String = TEXT, "ClusterType", "", live;
    /// The version that the cluster was installed with.
    calico_version: String = TEXT, "CalicoVersion", "", elsewhere live;
}
"Other" {
    /// Whether Felix programs the kernel itself (true) or starts an external driver for that (false).
    use_internal_dataplane_driver: bool = Bool, "UseInternalDataplaneDriver", "true" <- "useInternalDataplaneDriver";
    /// The program to start as the external driver.
    dataplane_driver: String = File::PROGRAM, "DataplaneDriver", "calico-iptables-plugin" <- "dataplaneDriver", mandatory fatal idle;
    /// Whether Felix handles IPv6 at all.
    ipv6_support: bool = Bool, "Ipv6Support", "true" <- "ipv6Support";
    /// How often XDP programs and maps are read back and repaired; 0 turns that off.
    xdp_refresh_interval: Interval = SECONDS, "XDPRefreshInterval", "90" <- "xdpRefreshInterval" Seconds, idle;
    /// The directory of the sockets over which policy is passed to other programs; empty disables them.
    policy_sync_path_prefix: String = File::ANY, "PolicySyncPathPrefix", "" <- "policySyncPathPrefix";
    /// Where VMs find the cloud metadata service: an address or name, or `none`.
    metadata_addr: String = HOST_NAME, "MetadataAddr", "127.0.0.1" <- "metadataAddr", fatal;
    /// The port of the cloud metadata service.
    metadata_port: i64 = Int(&[(0, 65535)]), "MetadataPort", "8775" <- "metadataPort", fatal;
    /// The OpenStack region this node belongs to.
    openstack_region: String = Region, "OpenstackRegion", "" <- "openstackRegion", fatal;
    /// What happens to traffic from a workload to its own host, after policy.
    default_endpoint_to_host_action: Option<EndpointToHost> = choice::<EndpointToHost>(), "DefaultEndpointToHostAction", "DROP" <- "defaultEndpointToHostAction", mandatory fatal;
    /// Whether Felix opens its metrics ports in the Windows firewall.
    windows_manage_firewall_rules: Option<EnabledOrDisabled> = choice::<EnabledOrDisabled>(), "WindowsManageFirewallRules", "Disabled" <- "windowsManageFirewallRules", idle;
    /// Turns on experimental acceleration of sidecars.
    sidecar_acceleration_enabled: bool = Bool, "SidecarAccelerationEnabled", "false" <- "sidecarAccelerationEnabled", idle;
    /// Whether untracked policy for incoming packets is enforced by XDP where a network card's driver supports it: in
    /// the BPF dataplane.
    xdp_enabled: bool = Bool, "XDPEnabled", "true" <- "xdpEnabled", bpf;
    /// Whether that is done behind the driver for cards without driver support, too.
    generic_xdp_enabled: bool = Bool, "GenericXDPEnabled", "false" <- "genericXDPEnabled", bpf;
    /// Which product is running; anything but `Calico` makes Felix leave policy to that product.
    variant: String = TEXT, "Variant", "Calico";
}
"Debugging" {
    /// Where a memory profile is written on a signal.
    debug_memory_profile_path: String = File::ANY, "DebugMemoryProfilePath", "" <- "debugMemoryProfilePath";
    /// Where a processor profile is written on a signal.
    debug_cpu_profile_path: String = File::ANY, "DebugCPUProfilePath", "/tmp/felix-cpu-<timestamp>.pprof";
    /// Keeps every log message, even if that slows Felix down.
    debug_disable_log_dropping: bool = Bool, "DebugDisableLogDropping", "false" <- "debugDisableLogDropping", idle;
    /// For tests of the watchdog: the calculation stops after this time.
    debug_simulate_calc_graph_hang_after: Interval = SECONDS, "DebugSimulateCalcGraphHangAfter", "0" <- "debugSimulateCalcGraphHangAfter" Seconds, idle;
    /// For tests of the watchdog: the dataplane stops after this time.
    debug_simulate_dataplane_hang_after: Interval = SECONDS, "DebugSimulateDataplaneHangAfter", "0" <- "debugSimulateDataplaneHangAfter" Seconds;
    /// For tests: slows down each change of the dataplane.
    debug_simulate_dataplane_apply_delay: Interval = SECONDS, "DebugSimulateDataplaneApplyDelay", "0" <- "debugSimulateDataplaneApplyDelay" Seconds;
    /// For tests: Felix crashes after this time.
    debug_panic_after: Interval = SECONDS, "DebugPanicAfter", "0", idle;
    /// For tests of the Go implementation: provokes a data race.
    debug_simulate_data_race: bool = Bool, "DebugSimulateDataRace", "false", idle;
    /// The address of the debug server.
    debug_host: String = HOST_ADDRESS, "DebugHost", "localhost" <- "debugHost", idle;
    /// The port of the unprotected debug server; if unset, the server does not run.
    debug_port: i64 = Int(&[(0, 65535)]), "DebugPort", "" <- "debugPort", idle;
    /// The garbage collection threshold of the Go implementation; accepted, but not used here.
    go_gc_threshold: i64 = Int(&[(-1, i64::MAX)]), "GoGCThreshold", "40" <- "goGCThreshold", idle;
    /// The memory limit of the Go implementation in MB; -1 means no limit.
    go_memory_limit_mb: i64 = Int(&[(-1, i64::MAX)]), "GoMemoryLimitMB", "-1" <- "goMemoryLimitMB", idle;
    /// The most processors used at once; -1 means all.
    go_max_procs: i64 = Int(&[(-1, i64::MAX)]), "GoMaxProcs", "-1" <- "goMaxProcs", idle;
}}
