//! Checks of Felix's settings beyond the limits in their schema.

use super::choices::{ServiceLoopAction, SourceSpoofing};
use super::spec::FelixConfigurationSpec;
use super::{SELECTOR_FORBIDDEN, is_default_or_per_node};
use crate::errors::{FieldErrors, FieldPath};
use crate::meta::ObjectMeta;
use crate::resources::setting_checks::{
    PORTS_OR_OFF, ROUTE_PRIORITIES, check_duration, check_range, check_regex, check_text, respell,
    respell_without_fraction,
};
use crate::rules::{HasRules, Reason, Rule};
use crate::scalars::names::{
    check_metadata, is_dns_label, is_interface_filter, is_interface_name, is_plain_interface_name,
    is_prometheus_host,
};
use crate::scalars::{Duration, IpOrCidr};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum number of route tables in all ranges together.
const MAX_ROUTE_TABLES: u64 = 0xffff;

/// The highest number of a route table in Linux.
const MAX_ROUTE_TABLE: i64 = 0xffff_ffff;

/// A region becomes part of a Kubernetes namespace's name: what is left of 63 bytes after `openstack-region-`.
const MAX_REGION_LENGTH: usize = 63 - "openstack-region-".len();

fn is_ipv4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok()
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<Ipv6Addr>().is_ok_and(|ip| ip.to_ipv4_mapped().is_none())
}

impl HasRules for FelixConfigurationSpec {
    fn rules() -> &'static [Rule<Self>] {
        &[
            Rule {
                cel: "!(has(self.routeTableRange) && has(self.routeTableRanges))",
                message: "routeTableRange and routeTableRanges cannot both be set",
                reason: Reason::Forbidden,
                holds: |spec| spec.route_table_range.is_none() || spec.route_table_ranges.is_none(),
            },
            Rule {
                cel: "!has(self.natOutgoingAddress) || self.natOutgoingAddress == '' \
                      || (isIP(self.natOutgoingAddress) && ip(self.natOutgoingAddress).family() == 4)",
                message: "natOutgoingAddress must be a valid IPv4 address",
                reason: Reason::Invalid,
                holds: |spec| {
                    spec.nat_outgoing_address.is_empty() || is_ipv4(spec.nat_outgoing_address.as_str())
                },
            },
            Rule {
                cel: "!has(self.deviceRouteSourceAddress) || self.deviceRouteSourceAddress == '' \
                      || (isIP(self.deviceRouteSourceAddress) && ip(self.deviceRouteSourceAddress).family() == 4)",
                message: "deviceRouteSourceAddress must be a valid IPv4 address",
                reason: Reason::Invalid,
                holds: |spec| {
                    spec.device_route_source_address.is_empty()
                        || is_ipv4(spec.device_route_source_address.as_str())
                },
            },
            Rule {
                cel: "!has(self.deviceRouteSourceAddressIPv6) || self.deviceRouteSourceAddressIPv6 == '' \
                      || (isIP(self.deviceRouteSourceAddressIPv6) \
                      && ip(self.deviceRouteSourceAddressIPv6).family() == 6)",
                message: "deviceRouteSourceAddressIPv6 must be a valid IPv6 address",
                reason: Reason::Invalid,
                holds: |spec| {
                    spec.device_route_source_address_ipv6.is_empty()
                        || is_ipv6(spec.device_route_source_address_ipv6.as_str())
                },
            },
        ]
    }
}

/// Lists the fields that contain durations and how each is stored, for both reading and writing.
macro_rules! duration_fields {
    ($($respell:ident: $($name:literal => $field:ident),+;)+) => {
        impl FelixConfigurationSpec {
            fn check_durations(&self, spec: &FieldPath, errors: &mut FieldErrors) {
                $($(check_duration(self.$field.as_ref(), &spec.child($name), errors);)+)+
            }

            /// Spells all durations like Go, but without a fraction where the definition does not allow one.
            pub(super) fn respell_durations(&mut self) {
                $($($respell(&mut self.$field);)+)+
                for part in &mut self.health_timeout_overrides {
                    if let Ok(length) = part.timeout.parse() {
                        part.timeout = Duration::from_std(length);
                    }
                }
            }
        }
    };
}

duration_fields! {
    respell:
        "dataplaneWatchdogTimeout" => dataplane_watchdog_timeout,
        "nftablesRefreshInterval" => nftables_refresh_interval,
        "liveMigrationRouteConvergenceTime" => live_migration_route_convergence_time,
        "localSubnetL2ReachabilityRefreshInterval" => local_subnet_l2_reachability_refresh_interval;
    respell_without_fraction:
        "routeRefreshInterval" => route_refresh_interval,
        "interfaceRefreshInterval" => interface_refresh_interval,
        "iptablesRefreshInterval" => iptables_refresh_interval,
        "iptablesPostWriteCheckInterval" => iptables_post_write_check_interval,
        "iptablesLockProbeInterval" => iptables_lock_probe_interval,
        "ipsetsRefreshInterval" => ipsets_refresh_interval,
        "xdpRefreshInterval" => xdp_refresh_interval,
        "netlinkTimeout" => netlink_timeout,
        "reportingInterval" => reporting_interval,
        "reportingTTL" => reporting_ttl,
        "endpointReportingDelay" => endpoint_reporting_delay,
        "usageReportingInitialDelay" => usage_reporting_initial_delay,
        "usageReportingInterval" => usage_reporting_interval,
        "debugSimulateCalcGraphHangAfter" => debug_simulate_calc_graph_hang_after,
        "debugSimulateDataplaneHangAfter" => debug_simulate_dataplane_hang_after,
        "debugSimulateDataplaneApplyDelay" => debug_simulate_dataplane_apply_delay,
        "bpfIPFragTimeout" => bpf_ip_frag_timeout,
        "bpfKubeProxyMinSyncPeriod" => bpf_kube_proxy_min_sync_period,
        "flowLogsFlushInterval" => flow_logs_flush_interval,
        "wireguardKeepAlive" => wireguard_keep_alive;
}

impl FelixConfigurationSpec {
    /// Adds all errors that the schema cannot express.
    pub(super) fn check(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        if let Some(selector) = &self.node_selector {
            let path = spec.child("nodeSelector");
            if is_default_or_per_node(&metadata.name) {
                errors.add(path, selector, SELECTOR_FORBIDDEN);
            } else {
                selector.validate(&path, errors);
            }
        }
        self.check_rules(&spec, errors);
        self.check_durations(&spec, errors);
        self.check_numbers(&spec, errors);
        self.check_texts(&spec, errors);
        self.check_lists(&spec, errors);
        self.check_ports(&spec, errors);
        self.check_route_tables(&spec, errors);
    }

    fn check_numbers(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        for (name, value, allowed) in [
            ("debugPort", self.debug_port, PORTS_OR_OFF),
            ("bpfKubeProxyHealthzPort", self.bpf_kube_proxy_healthz_port, PORTS_OR_OFF),
            ("bpfExtToServiceConnmark", self.bpf_ext_to_service_connmark, 0..=0xffff_ffff),
            ("ipv4NormalRoutePriority", self.ipv4_normal_route_priority, ROUTE_PRIORITIES),
            ("ipv4ElevatedRoutePriority", self.ipv4_elevated_route_priority, ROUTE_PRIORITIES),
            ("ipv6NormalRoutePriority", self.ipv6_normal_route_priority, ROUTE_PRIORITIES),
            ("ipv6ElevatedRoutePriority", self.ipv6_elevated_route_priority, ROUTE_PRIORITIES),
            ("wireguardListeningPort", self.wireguard_listening_port, 1..=65_535),
            ("wireguardListeningPortV6", self.wireguard_listening_port_v6, 1..=65_535),
            ("wireguardRoutingRulePriority", self.wireguard_routing_rule_priority, 1..=32_765),
            ("goGCThreshold", self.go_gc_threshold, -1..=i64::MAX),
            ("goMemoryLimitMB", self.go_memory_limit_mb, -1..=i64::MAX),
            ("goMaxProcs", self.go_max_procs, -1..=i64::MAX),
            ("bpfMaglevMaxEndpointsPerService", self.bpf_maglev_max_endpoints_per_service, 1..=3_000),
            ("bpfMaglevMaxServices", self.bpf_maglev_max_services, 1..=3_000),
        ] {
            check_range(value, &allowed, &spec.child(name), errors);
        }
        if let Some(mark) = &self.istio_dscp_mark
            && let Err(reason) = mark.value()
        {
            errors.add(spec.child("istioDSCPMark"), mark, reason);
        }
    }

    fn check_texts(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        for (name, text) in [
            ("logDebugFilenameRegex", &self.log_debug_filename_regex),
            ("nftablesFlowTableDataIfacePattern", &self.nftables_flow_table_data_iface_pattern),
            ("bpfDataIfacePattern", &self.bpf_data_iface_pattern),
            ("bpfL3IfacePattern", &self.bpf_l3_iface_pattern),
            ("bpfDisableGROForIfaces", &self.bpf_disable_gro_for_ifaces),
            ("mtuIfacePattern", &self.mtu_iface_pattern),
        ] {
            check_regex(text, &spec.child(name), errors);
        }
        for (name, text) in
            [("featureDetectOverride", &self.feature_detect_override), ("featureGates", &self.feature_gates)]
        {
            check_text(
                text,
                is_key_value_list,
                "must be a list of key=value, separated by commas",
                &spec.child(name),
                errors,
            );
        }
        for (name, text) in [
            ("wireguardInterfaceName", &self.wireguard_interface_name),
            ("wireguardInterfaceNameV6", &self.wireguard_interface_name_v6),
        ] {
            check_text(text, is_interface_name, "is not the name of an interface", &spec.child(name), errors);
        }
        check_text(
            &self.iptables_nat_outgoing_interface_filter,
            is_interface_filter,
            "is not an interface filter",
            &spec.child("iptablesNATOutgoingInterfaceFilter"),
            errors,
        );
        check_text(
            &self.prometheus_metrics_host,
            is_prometheus_host,
            "is not a host to listen on",
            &spec.child("prometheusMetricsHost"),
            errors,
        );
        // The definition accepts these two in any case, Calico's own check only in their exact spelling.
        let loop_action = self.service_loop_prevention.as_str();
        if !loop_action.is_empty()
            && !ServiceLoopAction::ALL.iter().any(|known| known.as_str() == loop_action)
        {
            errors.add(
                spec.child("serviceLoopPrevention"),
                loop_action,
                "must be one of: Drop, Reject, Disabled",
            );
        }
        let spoofing = self.workload_source_spoofing.as_str();
        if !spoofing.is_empty() && !SourceSpoofing::ALL.iter().any(|known| known.as_str() == spoofing) {
            errors.add(spec.child("workloadSourceSpoofing"), spoofing, "must be one of: Disabled, Any");
        }
        let region = &self.openstack_region;
        if region.len() > MAX_REGION_LENGTH {
            errors.add(spec.child("openstackRegion"), region, "is too long");
        } else if !region.is_empty() && !is_dns_label(region) {
            errors.add(spec.child("openstackRegion"), region, "must be a valid DNS label");
        }
    }

    fn check_lists(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        for (index, part) in self.health_timeout_overrides.iter().enumerate() {
            let path = spec.child("healthTimeoutOverrides").index(index);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b' ' | b'-');
            if part.name.is_empty() || !part.name.bytes().all(allowed) {
                errors.add(path.child("name"), &part.name, "name should match regex ^[a-zA-Z0-9_ -]+$");
            }
            if !part.timeout.is_empty() {
                check_duration(Some(&part.timeout), &path.child("timeout"), errors);
            }
        }
        for (name, networks, only_v4) in [
            ("externalNodesList", &self.external_nodes_list, true),
            ("bpfDSROptoutCIDRs", &self.bpf_dsr_optout_cidrs, false),
            ("bpfExcludeCIDRsFromNAT", &self.bpf_exclude_cidrs_from_nat, false),
        ] {
            for (index, network) in networks.iter().flatten().enumerate() {
                check_network(network, only_v4, &spec.child(name).index(index), errors);
            }
        }
        for (index, name) in self.bpf_force_track_packets_from_ifaces.iter().flatten().enumerate() {
            if !is_interface_filter(name) {
                let path = spec.child("bpfForceTrackPacketsFromIfaces").index(index);
                errors.add(path, name, "is not an interface filter");
            }
        }
        for name in self.bpf_log_filters.iter().flat_map(|filters| filters.keys()) {
            if !is_plain_interface_name(name) {
                errors.add(spec.child("bpfLogFilters").key(name), name, "is not the name of an interface");
            }
        }
    }

    fn check_ports(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        for (name, ports) in [
            ("failsafeInboundHostPorts", &self.failsafe_inbound_host_ports),
            ("failsafeOutboundHostPorts", &self.failsafe_outbound_host_ports),
        ] {
            for (index, port) in ports.iter().flatten().enumerate() {
                let path = spec.child(name).index(index);
                // In any case: Felix ignores case, and Calico stores the text unchanged.
                if !["TCP", "UDP", "SCTP"].iter().any(|known| known.eq_ignore_ascii_case(&port.protocol)) {
                    errors.add(path.child("protocol"), &port.protocol, "must be TCP, UDP or SCTP");
                }
                if !port.net.is_empty() {
                    check_network(&port.net, false, &path.child("net"), errors);
                }
            }
        }
        for (name, port) in [("natPortRange", &self.nat_port_range), ("bpfPSNATPorts", &self.bpf_psnat_ports)]
        {
            if let Some(port) = port {
                port.validate(&spec.child(name), errors);
            }
        }
        for (index, port) in self.kube_node_port_ranges.iter().flatten().enumerate() {
            let path = spec.child("kubeNodePortRanges").index(index);
            if port.is_named() {
                errors.add(path, port, "node port ranges should not contain named ports");
            } else {
                port.validate(&path, errors);
            }
        }
    }

    fn check_route_tables(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        if let Some(range) = &self.route_table_range {
            range.check_rules(&spec.child("routeTableRange"), errors);
        }
        let Some(ranges) = &self.route_table_ranges else { return };
        let path = spec.child("routeTableRanges");
        for (index, range) in ranges.iter().enumerate() {
            range.check_rules(&path.index(index), errors);
            if range.max > MAX_ROUTE_TABLE {
                errors.add(path.index(index).child("max"), range.max, "max index too high");
            }
        }
        let total = ranges.iter().fold(0_u64, |total, range| total.saturating_add(range.count()));
        errors.require(total <= MAX_ROUTE_TABLES, path, format!("{total} tables"), "targets too many tables");
    }
}

fn check_network(network: &IpOrCidr, only_v4: bool, path: &FieldPath, errors: &mut FieldErrors) {
    match network.parse() {
        Err(reason) => errors.add(path.clone(), network, reason),
        Ok(parsed) if only_v4 && parsed.ip_version() != 4 => {
            errors.add(path.clone(), network, "has invalid IPv6 CIDR");
        }
        Ok(_) => {}
    }
}

/// Items `word=anything` separated by commas; empty items are ignored.
fn is_key_value_list(text: &str) -> bool {
    let is_word =
        |key: &str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    text.trim().is_empty()
        || text
            .split(',')
            .filter(|item| !item.is_empty())
            .all(|item| item.split_once('=').is_some_and(|(key, _)| is_word(key.trim_start())))
}
