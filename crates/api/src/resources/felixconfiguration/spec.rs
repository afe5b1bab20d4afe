//! The parameters of Felix, one field each, in the order in which Calico writes them.
//!
//! No values are interpreted here: Felix decides which of several objects wins, and what an absent field means.

use super::choices::{
    AWSSrcDstCheck, BPFAttachType, BPFConnectTimeLoadBalancing, BPFJITHardening, BPFOverlayHostSourceIP,
    FlowLogsPolicyEvaluationMode, IptablesBackend, LocalSubnetL2Reachability, NATOutgoingExclusions,
    NFTablesFlowTableOffload, NFTablesMode, PrometheusMetricsClientAuth,
};
use super::choices::{
    AllowAction, BPFConntrackLogLevel, BPFConntrackMode, BPFConntrackScaling, BPFEnforceRPF,
    BPFExternalServiceMode, BPFLogLevel, ChainInsertMode, DenyAction, EnabledOrDisabled,
    EndpointToHostAction, LogSeverity, ProgramClusterRoutes, RouteSource, ServiceLoopPrevention,
    WorkloadSourceSpoofing,
};
use super::parts::{
    BPFConntrackTimeouts, HealthTimeoutOverride, ProtoPort, RouteTableIDRange, RouteTableRange,
};
use crate::meta::StringMap;
use crate::scalars::{Dscp, Duration, Ip, IpOrCidr, Port, SelectorText};
use crate::text::Written;
use api_derive::resource_struct;
use serde_json::{Map, Value};

/// The settings of Felix. A field that is absent has the default named in its description.
#[resource_struct(rules)]
pub struct FelixConfigurationSpec {
    /// Limits this object to the nodes that match. Only for objects that are neither `default` nor `node.<name>`;
    /// when several match a node, the oldest object counts.
    #[field(max_len = 1024)]
    pub node_selector: Option<SelectorText>,
    /// Whether Felix programs the kernel itself (true) or starts an external driver and talks to it (false).
    pub use_internal_dataplane_driver: Option<bool>,
    /// The program to start as external driver.
    pub dataplane_driver: String,
    /// How long the internal driver may be silent before health turns bad. Deprecated: see `healthTimeoutOverrides`.
    pub dataplane_watchdog_timeout: Option<Duration>,
    /// Whether Felix handles IPv6 at all.
    pub ipv6_support: Option<bool>,
    /// How often all routes are read back and repaired; 0 turns that off. Default 90s.
    #[field(schema = interval)]
    pub route_refresh_interval: Option<Duration>,
    /// How often the list of local interfaces is read again; 0 turns that off.
    #[field(schema = interval)]
    pub interface_refresh_interval: Option<Duration>,
    /// How often the iptables rules are read back and repaired; 0 turns that off.
    #[field(schema = interval)]
    pub iptables_refresh_interval: Option<Duration>,
    /// How long after a write Felix reads the rules back once more, in case another program overwrote them. Default
    /// 1s.
    #[field(schema = interval)]
    pub iptables_post_write_check_interval: Option<Duration>,
    /// The pause between two attempts to take the xtables lock. Default 50ms.
    #[field(schema = interval)]
    pub iptables_lock_probe_interval: Option<Duration>,
    /// Platform features to force on or off, as `Feature=true,Other=false`; an empty value leaves the choice to
    /// detection.
    #[field(pattern = r"^([a-zA-Z0-9-_]+=(true|false|),)*([a-zA-Z0-9-_]+=(true|false|))?$")]
    pub feature_detect_override: String,
    /// Features in preview to turn on or off, as `Name=value,Other=value`.
    #[field(pattern = r"^([a-zA-Z0-9-_]+=([^=]+),)*([a-zA-Z0-9-_]+=([^=]+))?$")]
    pub feature_gates: String,
    /// How often IP sets are read back and repaired; 0 turns that off. Default 90s.
    #[field(schema = interval)]
    pub ipsets_refresh_interval: Option<Duration>,
    /// The most members an IP set may have (not used with nftables).
    pub max_ipset_size: Option<i64>,
    /// Which of the two iptables flavours is used. Rules that the other flavour holds are not moved.
    #[field(pattern = r"^(?i)(Auto|Legacy|NFT)?$")]
    pub iptables_backend: Option<Written<IptablesBackend>>,
    /// How often XDP programs and maps are read back and repaired; 0 turns that off. Default 90s.
    #[field(schema = interval)]
    pub xdp_refresh_interval: Option<Duration>,
    /// How long a netlink request may take. Default 10s.
    #[field(schema = interval)]
    pub netlink_timeout: Option<Duration>,
    /// Where VMs find the cloud metadata service: an address or name, or `none`. Default 127.0.0.1.
    pub metadata_addr: String,
    /// The port of the cloud metadata service. Default 8775.
    pub metadata_port: Option<i64>,
    /// The OpenStack region this node belongs to.
    pub openstack_region: String,
    /// How the names of workload interfaces begin; several prefixes are separated by commas. Default cali.
    pub interface_prefix: String,
    /// Interfaces that are never host endpoints: names, or regular expressions between slashes, separated by commas.
    /// Default kube-ipvs0.
    pub interface_exclude: String,
    /// Whether our rules come first (`Insert`) or last (`Append`) in the kernel's own chains. Default Insert.
    pub chain_insert_mode: ChainInsertMode,
    /// What happens to traffic from a workload to its own host, after policy. Default Drop.
    pub default_endpoint_to_host_action: EndpointToHostAction,
    /// What allowed packets do in the filter table: leave at once, or go on to the next rules of the host. Default
    /// Accept.
    pub iptables_filter_allow_action: AllowAction,
    /// What allowed packets do in the mangle table, where policy before DNAT is applied. Default Accept.
    pub iptables_mangle_allow_action: AllowAction,
    /// What denied packets meet: silence or an answer. Default Drop.
    pub iptables_filter_deny_action: DenyAction,
    /// What lines written by Log rules begin with. `%t` is the tier, `%k` the kind, `%n` the name, `%p` namespace and
    /// name.
    #[field(pattern = r"^([a-zA-Z0-9%: /_-])*$")]
    pub log_prefix: String,
    /// How often Log rules write at most, such as `10/second`.
    #[field(pattern = r"^[1-9]\d{0,3}/(?:second|minute|hour|day)$")]
    pub log_action_rate_limit: Option<String>,
    /// How many lines may exceed that rate at once.
    #[field(max = 9999, min = 0)]
    pub log_action_rate_limit_burst: Option<i64>,
    /// The log file, or `none`. Default /var/log/calico/felix.log.
    pub log_file_path: String,
    /// The least severe message that goes to the log file. Default Info.
    pub log_severity_file: LogSeverity,
    /// The least severe message that goes to standard output. Default Info.
    pub log_severity_screen: LogSeverity,
    /// The least severe message that goes to syslog. Default Info.
    pub log_severity_sys: LogSeverity,
    /// Limits debug messages to source files whose name matches.
    pub log_debug_filename_regex: String,
    /// Forces the IPIP device on or off; without it, the IP pools decide.
    pub ipip_enabled: Option<bool>,
    /// The MTU of the IPIP device; 0 derives it from the host's interfaces.
    #[field(name = "ipipMTU")]
    pub ipip_mtu: Option<i64>,
    /// Forces the IPv4 VXLAN device on or off; without it, the IP pools decide.
    pub vxlan_enabled: Option<bool>,
    /// The MTU of the IPv4 VXLAN device; 0 derives it from the host's interfaces.
    #[field(name = "vxlanMTU")]
    pub vxlan_mtu: Option<i64>,
    /// The MTU of the IPv6 VXLAN device; 0 derives it from the host's interfaces.
    #[field(name = "vxlanMTUV6")]
    pub vxlan_mtu_v6: Option<i64>,
    /// The UDP port of VXLAN traffic. Default 4789.
    pub vxlan_port: Option<i64>,
    /// The VXLAN network identifier. Default 4096.
    #[field(name = "vxlanVNI")]
    pub vxlan_vni: Option<i64>,
    /// Whether workloads may send VXLAN packets of their own. Default false.
    #[field(name = "allowVXLANPacketsFromWorkloads")]
    pub allow_vxlan_packets_from_workloads: Option<bool>,
    /// Whether workloads may send IPIP packets of their own. Default false.
    #[field(name = "allowIPIPPacketsFromWorkloads")]
    pub allow_ipip_packets_from_workloads: Option<bool>,
    /// How often Felix reports that it is alive; 0 turns that off. Default 30s.
    #[field(schema = interval)]
    pub reporting_interval: Option<Duration>,
    /// How long such a report stays valid. Default 90s.
    #[field(name = "reportingTTL", schema = interval)]
    pub reporting_ttl: Option<Duration>,
    /// Whether the state of each endpoint is written to the datastore (OpenStack). Default false.
    pub endpoint_reporting_enabled: Option<bool>,
    /// How long endpoint reports are collected before they are written. Default 1s.
    #[field(schema = interval)]
    pub endpoint_reporting_delay: Option<Duration>,
    /// The directory under which endpoint status files are written; empty writes none. Default /var/run/calico.
    pub endpoint_status_path_prefix: String,
    /// The packet mark bits that are ours in iptables mode; at least 8. Default 0xffff0000.
    #[field(schema = int64, max = 4_294_967_295_i64, min = 0)]
    pub iptables_mark_mask: Option<i64>,
    /// Lets packets pass that connection tracking calls invalid.
    pub disable_conntrack_invalid_check: Option<bool>,
    /// Whether liveness and readiness are served over HTTP. Default false.
    pub health_enabled: Option<bool>,
    /// The address that the health server listens on. Default localhost.
    pub health_host: Option<String>,
    /// The port that the health server listens on. Default 9099.
    pub health_port: Option<i64>,
    /// How long named parts of Felix may be silent before health turns bad.
    #[field(list = "atomic")]
    pub health_timeout_overrides: Vec<HealthTimeoutOverride>,
    /// Whether metrics are served. Default false.
    pub prometheus_metrics_enabled: Option<bool>,
    /// The address that the metrics server listens on; empty means all.
    pub prometheus_metrics_host: String,
    /// The port that the metrics server listens on. Default 9091.
    pub prometheus_metrics_port: Option<i64>,
    /// Whether metrics of the language runtime are served too. Default true.
    pub prometheus_go_metrics_enabled: Option<bool>,
    /// Whether metrics of the process are served too. Default true.
    pub prometheus_process_metrics_enabled: Option<bool>,
    /// Whether WireGuard metrics are served too. Default true.
    pub prometheus_wire_guard_metrics_enabled: Option<bool>,
    /// The file with the certificate authority for clients of the metrics server.
    #[field(name = "prometheusMetricsCAFile")]
    pub prometheus_metrics_ca_file: Option<String>,
    /// The file with the certificate of the metrics server.
    pub prometheus_metrics_cert_file: Option<String>,
    /// The file with the private key of the metrics server.
    pub prometheus_metrics_key_file: Option<String>,
    /// What the metrics server asks of a client's certificate. Default NoClientCert.
    pub prometheus_metrics_client_auth: Option<Written<PrometheusMetricsClientAuth>>,
    /// Ports of the host that stay reachable whatever policy says. An empty list protects none.
    pub failsafe_inbound_host_ports: Option<Vec<ProtoPort>>,
    /// Ports that the host can always reach whatever policy says. An empty list protects none.
    pub failsafe_outbound_host_ports: Option<Vec<ProtoPort>>,
    /// The ports of node port services, as kube-proxy has them. Default 30000:32767.
    #[field(max_items = 7)]
    pub kube_node_port_ranges: Option<Vec<Port>>,
    /// The directory of the sockets over which policy is handed to other programs; empty serves none.
    pub policy_sync_path_prefix: String,
    /// Whether version and cluster size are reported to the project. Default true.
    pub usage_reporting_enabled: Option<bool>,
    /// The wait before the first such report. Default 300s.
    #[field(schema = interval)]
    pub usage_reporting_initial_delay: Option<Duration>,
    /// The time between such reports. Default 86400s.
    #[field(schema = interval)]
    pub usage_reporting_interval: Option<Duration>,
    /// The source ports used for outgoing NAT; the kernel chooses when there is none.
    pub nat_port_range: Option<Port>,
    /// The source address used for outgoing NAT; the address of the outgoing interface when there is none.
    #[field(max_len = 45)]
    pub nat_outgoing_address: Ip,
    /// Which destinations keep the pod's own source address. Default IPPoolsOnly.
    pub nat_outgoing_exclusions: Option<Written<NATOutgoingExclusions>>,
    /// The source hint on IPv4 routes to workloads.
    #[field(max_len = 45)]
    pub device_route_source_address: Ip,
    /// The source hint on IPv6 routes to workloads.
    #[field(name = "deviceRouteSourceAddressIPv6", max_len = 45)]
    pub device_route_source_address_ipv6: Ip,
    /// The route protocol number by which our routes are recognised.
    pub device_route_protocol: Option<i64>,
    /// Whether routes to workloads that someone else made are removed.
    pub remove_external_routes: Option<bool>,
    /// For which pools without VXLAN Felix, not BGP, makes the routes to other nodes. Default EnabledIPIPOnly.
    pub program_cluster_routes: Option<Written<ProgramClusterRoutes>>,
    /// Whether Felix turns on IP forwarding. Default Enabled.
    pub ip_forwarding: Written<EnabledOrDisabled>,
    /// Hosts outside the cluster whose tunnel traffic is let in.
    pub external_nodes_list: Option<Vec<IpOrCidr>>,
    /// Where a memory profile is written on a signal.
    pub debug_memory_profile_path: String,
    /// Keeps every log message, even if that slows Felix down. Default false.
    pub debug_disable_log_dropping: Option<bool>,
    /// For tests of the watchdog: the calculation stops after this time.
    #[field(schema = interval)]
    pub debug_simulate_calc_graph_hang_after: Option<Duration>,
    /// For tests of the watchdog: the dataplane stops after this time.
    #[field(schema = interval)]
    pub debug_simulate_dataplane_hang_after: Option<Duration>,
    /// For tests: slows down each change of the dataplane.
    #[field(schema = interval)]
    pub debug_simulate_dataplane_apply_delay: Option<Duration>,
    /// The address of the debug server. Default localhost.
    pub debug_host: Option<String>,
    /// The port of the debug server, which is not protected; without it there is none.
    pub debug_port: Option<i64>,
    /// Limits outgoing NAT to these interfaces; `+` at the end stands for any rest.
    #[field(name = "iptablesNATOutgoingInterfaceFilter")]
    pub iptables_nat_outgoing_interface_filter: String,
    /// Turns on experimental acceleration of sidecars. Default false.
    pub sidecar_acceleration_enabled: Option<bool>,
    /// Whether untracked deny rules use XDP where they can. Default true.
    pub xdp_enabled: Option<bool>,
    /// Whether XDP is used on cards without driver support too. Default false.
    #[field(name = "genericXDPEnabled")]
    pub generic_xdp_enabled: Option<bool>,
    /// Whether nftables is used in place of iptables; `Auto` follows kube-proxy.
    #[field(default = "\"Auto\"")]
    pub nftables_mode: Option<Written<NFTablesMode>>,
    /// Which established traffic takes the kernel's flow table.
    #[field(default = "\"Disabled\"")]
    pub nftables_flow_table_offload: Option<Written<NFTablesFlowTableOffload>>,
    /// The host interfaces, as a regular expression, that take part in the flow table.
    pub nftables_flow_table_data_iface_pattern: String,
    /// How often the nftables rules are read back and repaired. Default 90s.
    pub nftables_refresh_interval: Option<Duration>,
    /// What allowed packets do in the filter chains: leave at once, or go on. Default Accept.
    pub nftables_filter_allow_action: AllowAction,
    /// What allowed packets do in the mangle chains. Default Accept.
    pub nftables_mangle_allow_action: AllowAction,
    /// What denied packets meet: silence or an answer. Default Drop.
    pub nftables_filter_deny_action: DenyAction,
    /// The packet mark bits that are ours in nftables mode; at least 8. Default 0xffff0000.
    #[field(schema = int64, max = 4_294_967_295_i64, min = 0)]
    pub nftables_mark_mask: Option<i64>,
    /// Whether the BPF dataplane is used. Default false.
    pub bpf_enabled: Option<bool>,
    /// Which address the host itself uses as source over a tunnel in BPF mode. Default TunnelAddress.
    #[field(name = "bpfOverlayHostSourceIP")]
    pub bpf_overlay_host_source_ip: Option<Written<BPFOverlayHostSourceIP>>,
    /// Whether BPF is forbidden to unprivileged users. Default true.
    pub bpf_disable_unprivileged: Option<bool>,
    /// Whether the kernel's strict JIT hardening is relaxed. Default Auto.
    #[field(name = "bpfJITHardening")]
    pub bpf_jit_hardening: Option<Written<BPFJITHardening>>,
    /// How much the BPF programs log to the trace pipe. Default Off.
    #[field(always)]
    pub bpf_log_level: BPFLogLevel,
    /// How much the cleanup of BPF connection tracking logs. Default Off.
    pub bpf_conntrack_log_level: Written<BPFConntrackLogLevel>,
    /// Where expired entries of BPF connection tracking are removed. Default Userspace.
    pub bpf_conntrack_mode: Option<Written<BPFConntrackMode>>,
    /// How long BPF connection tracking keeps entries.
    pub bpf_conntrack_timeouts: Option<BPFConntrackTimeouts>,
    /// How long the BPF dataplane waits for the fragments of a packet; the kernel's own value when there is none.
    #[field(name = "bpfIPFragTimeout", schema = interval)]
    pub bpf_ip_frag_timeout: Option<Duration>,
    /// Per interface (or `all`, `weps`, `heps`), a pcap expression that says which packets are logged.
    pub bpf_log_filters: Option<StringMap>,
    /// Whether the connect-time load balancer logs when filters are set; `all` makes it.
    #[field(name = "bpfCTLBLogFilter")]
    pub bpf_ctlb_log_filter: String,
    /// The interfaces towards the network, as a regular expression, that get BPF programs.
    pub bpf_data_iface_pattern: String,
    /// Tunnel interfaces made by others, as a regular expression, that get BPF programs.
    pub bpf_l3_iface_pattern: String,
    /// Deprecated: see `bpfConnectTimeLoadBalancing`.
    pub bpf_connect_time_load_balancing_enabled: Option<bool>,
    /// For which services addresses are translated when a socket connects. Default TCP.
    pub bpf_connect_time_load_balancing: Option<Written<BPFConnectTimeLoadBalancing>>,
    /// Whether the host's own traffic to services is translated per packet. Default Enabled.
    #[field(name = "bpfHostNetworkedNATWithoutCTLB")]
    pub bpf_host_networked_nat_without_ctlb: Option<Written<EnabledOrDisabled>>,
    /// How replies to clients outside the cluster travel: back through the node they came in by, or directly. Default
    /// Tunnel.
    pub bpf_external_service_mode: BPFExternalServiceMode,
    /// Clients that are served as if the mode were Tunnel.
    #[field(name = "bpfDSROptoutCIDRs")]
    pub bpf_dsr_optout_cidrs: Option<Vec<IpOrCidr>>,
    /// A mark set on connections from outside to a local service. Default 0.
    pub bpf_ext_to_service_connmark: Option<i64>,
    /// Whether rules left over by kube-proxy are removed. Default true.
    pub bpf_kube_proxy_iptables_cleanup_enabled: Option<bool>,
    /// The least time between two updates of service tables. Default 1s.
    #[field(schema = interval)]
    pub bpf_kube_proxy_min_sync_period: Option<Duration>,
    /// The port on which the built-in service proxy reports its health; 0 turns that off. Default 10256.
    pub bpf_kube_proxy_healthz_port: Option<i64>,
    /// The source ports used when two clients collide. Default 20000:29999.
    #[field(name = "bpfPSNATPorts")]
    pub bpf_psnat_ports: Option<Port>,
    /// How many service addresses and ports the BPF maps can hold.
    #[field(name = "bpfMapSizeNATFrontend")]
    pub bpf_map_size_nat_frontend: Option<i64>,
    /// How many service endpoints the BPF maps can hold.
    #[field(name = "bpfMapSizeNATBackend")]
    pub bpf_map_size_nat_backend: Option<i64>,
    /// How many client affinities the BPF maps can hold.
    #[field(name = "bpfMapSizeNATAffinity")]
    pub bpf_map_size_nat_affinity: Option<i64>,
    /// How many routes the BPF maps can hold.
    pub bpf_map_size_route: Option<i64>,
    /// How many connections the BPF maps can hold.
    pub bpf_map_size_conntrack: Option<i64>,
    /// How many connections the BPF maps can hold per processor; overrides the total when not 0.
    pub bpf_map_size_per_cpu_conntrack: Option<i64>,
    /// Whether the connection map grows when it is full. Default DoubleIfFull.
    pub bpf_map_size_conntrack_scaling: BPFConntrackScaling,
    /// How many translated connections can wait for removal.
    #[field(min = 1)]
    pub bpf_map_size_conntrack_cleanup_queue: Option<i64>,
    /// How many members all IP sets together can have in BPF mode.
    #[field(name = "bpfMapSizeIPSets")]
    pub bpf_map_size_ip_sets: Option<i64>,
    /// How many interfaces the BPF maps can hold.
    pub bpf_map_size_if_state: Option<i64>,
    /// Whether workload and service traffic skips the kernel's connection tracking. Default true.
    pub bpf_host_conntrack_bypass: Option<bool>,
    /// Whether fragments from outside that arrive out of order are put together. Default true.
    #[field(name = "bpfIPFragmentReassemblyEnabled")]
    pub bpf_ip_fragment_reassembly_enabled: Option<bool>,
    /// How strictly source addresses are checked on host interfaces. Default Loose.
    #[field(name = "bpfEnforceRPF")]
    pub bpf_enforce_rpf: BPFEnforceRPF,
    /// Whether details of policy programs are kept for inspection.
    pub bpf_policy_debug_enabled: Option<bool>,
    /// Interfaces whose traffic the kernel tracks all the same. Default docker+.
    pub bpf_force_track_packets_from_ifaces: Option<Vec<String>>,
    /// Interfaces, as a regular expression, on which receive offload is turned off.
    #[field(name = "bpfDisableGROForIfaces")]
    pub bpf_disable_gro_for_ifaces: String,
    /// Destinations that are never translated, such as a local DNS cache.
    #[field(name = "bpfExcludeCIDRsFromNAT")]
    pub bpf_exclude_cidrs_from_nat: Option<Vec<IpOrCidr>>,
    /// The size of the buffer for BPF events, in MB. Default 1.
    #[field(name = "bpfExportBufferSizeMB")]
    pub bpf_export_buffer_size_mb: Option<i64>,
    /// Whether Felix works together with Istio's ambient mode. Default Disabled.
    pub istio_ambient_mode: Option<Written<EnabledOrDisabled>>,
    /// The DSCP value that directs traffic to Istio's tunnel. Default 23.
    #[field(name = "istioDSCPMark")]
    pub istio_dscp_mark: Option<Dscp>,
    /// Where the cgroup hierarchy is mounted, if not in the usual place.
    pub cgroup_v2_path: String,
    /// Whether active flows are evaluated again when policy changes. Default Continuous.
    pub flow_logs_policy_evaluation_mode: Option<Written<FlowLogsPolicyEvaluationMode>>,
    /// Whether packets go straight to the workload's side of its device. Default Enabled.
    pub bpf_redirect_to_peer: Written<EnabledOrDisabled>,
    /// How BPF programs are attached to interfaces. Default Netkit.
    pub bpf_attach_type: Option<Written<BPFAttachType>>,
    /// How often flow logs are sent.
    #[field(schema = interval)]
    pub flow_logs_flush_interval: Option<Duration>,
    /// Whether the flow collector logs in full.
    pub flow_logs_collector_debug_trace: Option<bool>,
    /// The server that flow logs are sent to.
    pub flow_logs_goldmane_server: Option<String>,
    /// Whether flows are also reported on a local socket. Default Disabled.
    pub flow_logs_local_reporter: Option<Written<EnabledOrDisabled>>,
    /// Whether BPF programs are profiled. Default Disabled.
    pub bpf_profiling: Written<EnabledOrDisabled>,
    /// Whether routes to workloads come from IPAM blocks or from endpoints. Default CalicoIPAM.
    pub route_source: RouteSource,
    /// The route tables that are ours.
    pub route_table_ranges: Option<Vec<RouteTableIDRange>>,
    /// Deprecated: see `routeTableRanges`.
    pub route_table_range: Option<RouteTableRange>,
    /// Leaves all routes alone, for policy without networking.
    pub route_sync_disabled: Option<bool>,
    /// The metric of our IPv4 routes. Default 1024.
    pub ipv4_normal_route_priority: Option<i64>,
    /// The metric of an IPv4 route to a VM that is moving; should be less than the normal one. Default 512.
    pub ipv4_elevated_route_priority: Option<i64>,
    /// The metric of our IPv6 routes. Default 1024.
    pub ipv6_normal_route_priority: Option<i64>,
    /// The metric of an IPv6 route to a VM that is moving; should be less than the normal one. Default 512.
    pub ipv6_elevated_route_priority: Option<i64>,
    /// How long the elevated metric stays after a VM has moved. Default 30s.
    #[field(schema = interval_with_fraction)]
    pub live_migration_route_convergence_time: Option<Duration>,
    /// Whether IPv4 traffic between nodes is encrypted. Default false.
    pub wireguard_enabled: Option<bool>,
    /// Whether IPv6 traffic between nodes is encrypted. Default false.
    pub wireguard_enabled_v6: Option<bool>,
    /// Whether WireGuard devices use threaded NAPI. Default false.
    pub wireguard_threading_enabled: Option<bool>,
    /// The UDP port of IPv4 WireGuard. Default 51820.
    pub wireguard_listening_port: Option<i64>,
    /// The UDP port of IPv6 WireGuard. Default 51821.
    pub wireguard_listening_port_v6: Option<i64>,
    /// The priority of the routing rule for WireGuard. Default 99.
    pub wireguard_routing_rule_priority: Option<i64>,
    /// The name of the IPv4 WireGuard device. Default wireguard.cali.
    pub wireguard_interface_name: String,
    /// The name of the IPv6 WireGuard device. Default wg-v6.cali.
    pub wireguard_interface_name_v6: String,
    /// The MTU of the IPv4 WireGuard device. Default 1440.
    #[field(name = "wireguardMTU")]
    pub wireguard_mtu: Option<i64>,
    /// The MTU of the IPv6 WireGuard device. Default 1420.
    #[field(name = "wireguardMTUV6")]
    pub wireguard_mtu_v6: Option<i64>,
    /// Whether traffic between the hosts themselves is encrypted too. Default false.
    pub wireguard_host_encryption_enabled: Option<bool>,
    /// The keep-alive interval of WireGuard; 0 turns it off. Default 0.
    #[field(schema = interval)]
    pub wireguard_keep_alive: Option<Duration>,
    /// What to do with the source/destination check of the EC2 instance. Default DoNothing.
    pub aws_src_dst_check: Option<Written<AWSSrcDstCheck>>,
    /// What happens to packets for service addresses that nobody uses. Default Drop.
    pub service_loop_prevention: ServiceLoopPrevention,
    /// Whether pods may ask for foreign source addresses. Default Disabled.
    pub workload_source_spoofing: WorkloadSourceSpoofing,
    /// The interfaces, as a regular expression, from which the host's MTU is derived.
    pub mtu_iface_pattern: String,
    /// Whether floating IPs outside OpenStack are programmed.
    #[field(name = "floatingIPs")]
    pub floating_ips: Option<Written<EnabledOrDisabled>>,
    /// Whether the host answers ARP and NDP for pods and load balancers in its own subnet. Default Disabled.
    pub local_subnet_l2_reachability: Option<Written<LocalSubnetL2Reachability>>,
    /// How often such addresses are announced again; 0 turns that off. Default 120s.
    pub local_subnet_l2_reachability_refresh_interval: Option<Duration>,
    /// Whether Felix opens its metrics ports in the Windows firewall. Default Disabled.
    pub windows_manage_firewall_rules: Option<Written<EnabledOrDisabled>>,
    /// The garbage collection threshold of the Go implementation; kept for it, not used here.
    #[field(name = "goGCThreshold")]
    pub go_gc_threshold: Option<i64>,
    /// The memory limit of the Go implementation in MB; -1 is none.
    #[field(name = "goMemoryLimitMB")]
    pub go_memory_limit_mb: Option<i64>,
    /// The most processors that run at once; -1 means all.
    pub go_max_procs: Option<i64>,
    /// Whether Felix waits for the MTU file before it starts. Default false.
    #[field(name = "requireMTUFile")]
    pub require_mtu_file: Option<bool>,
    /// The most endpoints that a Maglev service may have. Default 100.
    pub bpf_maglev_max_endpoints_per_service: Option<i64>,
    /// The most Maglev services. Default 100.
    pub bpf_maglev_max_services: Option<i64>,
}

/// The text of an interval as in Calico's definition. The doubled backslash is Calico's: as the kube-apiserver reads
/// it, no fraction ever matches, so `1.5s` is stored as `1500ms`.
fn interval(schema: &mut Map<String, Value>) {
    schema.insert("pattern".into(), r"^([0-9]+(\\.[0-9]+)?(ms|s|m|h))*$".into());
}

/// The text of an interval that may have a fraction.
fn interval_with_fraction(schema: &mut Map<String, Value>) {
    schema.insert("pattern".into(), r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*$".into());
}

fn int64(schema: &mut Map<String, Value>) {
    schema.insert("format".into(), "int64".into());
}
