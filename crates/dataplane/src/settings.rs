//! The settings that the dataplane starts with, and the rule settings derived from Felix's configuration.
//!
//! Pure functions: properties of the machine are arguments.

use felix_config::choices::PolicyMode;
use felix_config::{Config, PortProtocol};
use messages::{Encapsulation, NodeName};
use rules::tree::{InterfacePattern, PortRange, Protocol, Rate, RateUnit};
use rules::{
    Backend, EndpointToHost, FailsafePort, MarkError, Marks, OpenStack, RulesConfig, ServiceLoopAction,
    Wireguard,
};
use std::sync::Arc;
use telemetry::{Metrics, Pulse};

/// The settings that the dataplane starts with.
#[derive(Clone)]
pub struct DataplaneSettings {
    /// Felix's name for this host.
    pub host: NodeName,
    /// The configuration.
    pub config: Arc<Config>,
    /// The encapsulations of the pools, as known at the start.
    pub encapsulation: Encapsulation,
    /// Whether messages contain complete Kubernetes services, so that eBPF programs can serve them.
    pub has_services: bool,
    /// How the loop shows that it is alive and ready.
    pub pulse: Pulse,
    /// The registry of figures.
    pub metrics: Metrics,
}

impl std::fmt::Debug for DataplaneSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataplaneSettings").field("host", &self.host).finish_non_exhaustive()
    }
}

/// `BPFOverlayHostSourceIP: HostAddress`: tunnel devices have no address, and the host sends from the address that
/// other nodes know it by. As in Calico, this does not apply to WireGuard.
pub(crate) fn sends_as_host(config: &Config) -> bool {
    config.bpf_enabled && config.bpf_overlay_host_source_ip == Some(api::BPFOverlayHostSourceIP::HostAddress)
}

/// The settings of rules. Whether kube-proxy uses IPVS and which features the kernel has is found out later; until then
/// the answers are "no" and "all".
///
/// # Errors
/// When the mask of marks has too few bits.
pub fn rules_config(
    config: &Config,
    encapsulation: &Encapsulation,
    backend: Backend,
) -> Result<RulesConfig, MarkError> {
    let tables = config.tables(backend == Backend::Nftables);
    let wireguard = config.wireguard_enabled || config.wireguard_enabled_v6;
    Ok(RulesConfig {
        backend,
        marks: Marks::from_mask(tables.mark_mask, wireguard, false)?,
        workload_interface_prefixes: config.interface_prefixes().map(Into::into).collect(),
        node_port_ranges: config
            .kube_node_port_ranges
            .iter()
            .map(|range| PortRange { first: range.min, last: range.max })
            .collect(),
        openstack: config.is_openstack().then(|| OpenStack { metadata: metadata(config) }),
        vxlan_enabled: encapsulation.vxlan,
        vxlan_enabled_v6: encapsulation.vxlan_v6,
        vxlan_port: port(config.vxlan_port),
        vxlan_tunnel_address: config.ipv4_vxlan_tunnel_addr.filter(|_| !sends_as_host(config)),
        vxlan_tunnel_address_v6: config.ipv6_vxlan_tunnel_addr.filter(|_| !sends_as_host(config)),
        ipip_enabled: encapsulation.ipip,
        ipip_tunnel_address: config.ipip_tunnel_addr.filter(|_| !sends_as_host(config)),
        allow_vxlan_from_workloads: config.allow_vxlan_packets_from_workloads,
        allow_ipip_from_workloads: config.allow_ipip_packets_from_workloads,
        wireguard: Wireguard {
            enabled: config.wireguard_enabled,
            interface: config.wireguard_interface_name.as_str().into(),
            port: port(config.wireguard_listening_port),
        },
        wireguard_v6: Wireguard {
            enabled: config.wireguard_enabled_v6,
            interface: config.wireguard_interface_name_v6.as_str().into(),
            port: port(config.wireguard_listening_port_v6),
        },
        wireguard_encrypt_host_traffic: config.wireguard_host_encryption_enabled,
        log_prefix: config.log_prefix.clone(),
        log_rate_limit: rate(&config.log_action_rate_limit)
            .map(|rate| (rate, u16::try_from(config.log_action_rate_limit_burst).unwrap_or(u16::MAX))),
        endpoint_to_host_action: config.default_endpoint_to_host_action.unwrap_or(EndpointToHost::Drop),
        filter_allow_action: tables.filter_allow,
        mangle_allow_action: tables.mangle_allow,
        filter_deny_action: tables.filter_deny,
        failsafe_inbound: failsafe(&config.failsafe_inbound_host_ports),
        failsafe_outbound: failsafe(&config.failsafe_outbound_host_ports),
        disable_conntrack_invalid_check: config.disable_conntrack_invalid_check,
        nat_port_range: config.nat_port_range.map(|range| (range.min, range.max)),
        nat_outgoing_interface: Some(config.iptables_nat_outgoing_interface_filter.as_str())
            .filter(|filter| !filter.is_empty())
            .map(InterfacePattern::from_setting),
        nat_outgoing_address: config.nat_outgoing_address.map(Into::into),
        nat_outgoing_exclude_hosts: config.nat_outgoing_exclusions
            == Some(api::NATOutgoingExclusions::IPPoolsAndHostIPs),
        service_loop_prevention: config.service_loop_prevention.unwrap_or(ServiceLoopAction::Disabled),
        flow_offload: backend == Backend::Nftables
            && config.nftables_flow_table_offload == Some(api::NFTablesFlowTableOffload::All),
        flow_logs: config.logs_flows(),
        compile_policies: tables.policy_mode == Some(PolicyMode::Compiled),
        istio_ambient_dscp: (config.istio_ambient_mode == Some(api::EnabledOrDisabled::Enabled))
            .then_some(config.istio_dscp_mark),
        ..RulesConfig::default()
    })
}

/// The port in a setting that takes any number; 0 for one that is not a valid port.
fn port(number: i64) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

fn metadata(config: &Config) -> Option<(std::net::IpAddr, u16)> {
    Some((config.metadata_addr.parse().ok()?, port(config.metadata_port)))
}

fn failsafe(ports: &[felix_config::ProtoPort]) -> Vec<FailsafePort> {
    let one = |port: &felix_config::ProtoPort| FailsafePort {
        protocol: match port.protocol {
            PortProtocol::Tcp => Protocol::TCP,
            PortProtocol::Udp => Protocol::UDP,
        },
        port: port.port,
        net: port.net,
    };
    ports.iter().map(one).collect()
}

/// `10/second`
fn rate(text: &str) -> Option<Rate> {
    let (count, unit) = text.split_once('/')?;
    let units = [RateUnit::Second, RateUnit::Minute, RateUnit::Hour, RateUnit::Day];
    let unit = units.into_iter().find(|one| one.as_str() == unit)?;
    Some(Rate { count: count.parse().ok()?, unit })
}

#[cfg(test)]
mod tests {
    use super::{rate, rules_config};
    use felix_config::Config;
    use felix_config::kinds::NoSurroundings;
    use messages::Encapsulation;
    use rules::tree::{InterfacePattern, Rate, RateUnit};
    use rules::{Allowed, Backend, RulesConfig};

    #[test]
    fn our_defaults_match_the_renderers() {
        let config = Config::with_defaults(&NoSurroundings);
        let made = rules_config(&config, &Encapsulation::default(), Backend::Iptables).expect("marks");
        assert_eq!(made, RulesConfig::default());
    }

    #[test]
    fn each_backend_has_its_own_actions_and_marks() {
        let config = Config {
            nftables_filter_allow_action: Some(Allowed::Return),
            nftables_mark_mask: 0x1f00,
            iptables_nat_outgoing_interface_filter: "eth+".into(),
            vxlan_port: 70000,
            log_action_rate_limit: "10/minute".into(),
            ..Config::with_defaults(&NoSurroundings)
        };
        let need = Encapsulation { vxlan_v6: true, ..Encapsulation::default() };
        let made = rules_config(&config, &need, Backend::Nftables).expect("marks");
        assert_eq!((made.filter_allow_action, made.mangle_allow_action), (Allowed::Return, Allowed::Accept));
        assert_eq!((made.marks.accept, made.vxlan_port), (0x100, 0));
        assert!(made.vxlan_enabled_v6 && !made.vxlan_enabled);
        assert_eq!(made.nat_outgoing_interface, Some(InterfacePattern::prefix("eth")));
        assert_eq!(made.log_rate_limit.map(|(rate, burst)| (rate.count, burst)), Some((10, 5)));
        let iptables = rules_config(&config, &need, Backend::Iptables).expect("marks");
        assert_eq!((iptables.filter_allow_action, iptables.marks.accept), (Allowed::Accept, 0x1_0000));
        let narrow = Config { iptables_mark_mask: 0xf, ..config };
        assert!(rules_config(&narrow, &need, Backend::Iptables).is_err());
    }

    #[test]
    fn rates() {
        assert_eq!(rate("5/day"), Some(Rate { count: 5, unit: RateUnit::Day }));
        for text in ["", "5", "5/year", "x/day"] {
            assert_eq!(rate(text), None, "{text}");
        }
    }
}
