//! The interfaces that have programs, their lists of policies, and settings of the driver. Pure.

use super::Owners;
use super::host_path::HostPath;
use crate::settings::sends_as_host;
use api::{
    BPFAttachType, BPFConnectTimeLoadBalancing, BPFExternalService, BPFLogging, BPFReversePathFilter,
    EnabledOrDisabled, NATOutgoingExclusions, SourceSpoofing,
};
use bpf::interface::{Options, ReversePath};
use bpf_conntrack::Timeouts;
use bpf_driver::routes::{Elements, Failsafe, failsafes as elements};
use bpf_driver::sockets;
use bpf_driver::sockets::Sockets;
use bpf_driver::{Filters, Holders, Interface, Kind, Logging, Settings, Way};
use bpf_policy::EndpointId;
use felix_config::choices::RedirectToPeer;
use felix_config::{Config, Pattern, PortProtocol, ProtoPort};
use messages::{HostEndpointName, InterfaceName, WorkloadEndpointId};
use rules::names::ANY_INTERFACE;
use rules::{IPIP_INTERFACE, SERVICES_DEVICE, SERVICES_DEVICE_END, VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
use std::collections::BTreeMap;
use std::path::PathBuf;

const LOOPBACK: &str = "lo";
const SECOND: u64 = 1_000_000_000;

/// The settings with which the driver is opened. Names of other attachments are queried from the kernel.
pub(super) fn driver_settings(
    config: &Config,
    pins: Option<PathBuf>,
    with_v6: bool,
    loopback: u32,
) -> Settings {
    let mut sizes = BTreeMap::new();
    for (maps, size) in [
        (["cali_v4_routes", "cali_v6_routes"], config.bpf_map_size_route),
        (["cali_v4_nat_fe3", "cali_v6_nat_fe3"], config.bpf_map_size_nat_frontend),
        (["cali_v4_nat_be", "cali_v6_nat_be"], config.bpf_map_size_nat_backend),
        (["cali_v4_nat_aff", "cali_v6_nat_aff"], config.bpf_map_size_nat_affinity),
    ] {
        if let Some(size) = u32::try_from(size).ok().filter(|size| *size > 0) {
            sizes.extend(maps.map(|map| (map.to_owned(), size)));
        }
    }
    let way = (config.bpf_attach_type == Some(BPFAttachType::TC)).then_some(Way::Filters);
    let (timeouts, problems) = Timeouts::read(&config.bpf_conntrack_timeouts, |name| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok()?;
        text.trim().parse().ok()
    });
    problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    let logging = Logging {
        // The placeholders for a rule's own text are not known here.
        prefix: config.log_prefix.split('%').next().unwrap_or_default().trim().to_owned(),
        with_drops: config.bpf_log_level == Some(BPFLogging::Debug),
        filters: Filters::read(&config.bpf_log_filters)
            .unwrap_or_default()
            .among(config.interface_prefixes().map(str::to_owned).collect(), others(config)),
    };
    Settings {
        pins,
        with_v6,
        way,
        generic_xdp: config.generic_xdp_enabled,
        sizes,
        scratch_device: loopback,
        options: options(config),
        timeouts,
        logging,
        ..Settings::default()
    }
}

/// Sets the size of maps, if one is configured.
pub(super) fn set_sizes(settings: &mut Settings, maps: &[&str], size: u32) {
    if size > 0 {
        settings.sizes.extend(maps.iter().map(|map| ((*map).to_owned(), size)));
    }
}

/// Interfaces that are not network cards of the host.
fn others(config: &Config) -> Vec<String> {
    let ours: [&str; 8] = [
        LOOPBACK,
        SERVICES_DEVICE,
        SERVICES_DEVICE_END,
        IPIP_INTERFACE,
        VXLAN_INTERFACE,
        VXLAN_INTERFACE_V6,
        &config.wireguard_interface_name,
        &config.wireguard_interface_name_v6,
    ];
    ours.map(str::to_owned).into()
}

/// Makes the driver serve services. Returns how the host reaches them, and why sockets cannot if they should.
pub(super) fn serve(settings: &mut Settings, config: &Config, host: &str) -> (HostPath, Option<String>) {
    let is_asked = config.bpf_connect_time_load_balancing != Some(BPFConnectTimeLoadBalancing::Disabled);
    let group = match is_asked {
        true => sockets::group(&config.cgroup_v2_path, &config.debug_bpf_cgroup_v2),
        false => Ok(None),
    };
    let (group, refused) = match group {
        Ok(group) => (group, None),
        Err(error) => (None, Some(format!("sockets do not get backends of services: {error}"))),
    };
    let path = HostPath::new(config, group.is_some());
    let maglev_services = usize::try_from(config.bpf_maglev_max_services).unwrap_or_default();
    let maglev_endpoints = u32::try_from(config.bpf_maglev_max_endpoints_per_service).unwrap_or(1);
    let places = bpf_services::maglev::table_size(maglev_endpoints);
    settings.options.maglev_places = places;
    let room = places.saturating_mul(u32::try_from(maglev_services).unwrap_or(u32::MAX)).max(1);
    settings.sizes.extend(["cali_v4_mglv2", "cali_v6_mglv2"].map(|map| (map.to_owned(), room)));
    let udp_seconds = u32::try_from(settings.timeouts.udp / SECOND).unwrap_or(u32::MAX);
    settings.sockets =
        path.sockets.zip(group).map(|(excludes_udp, group)| Sockets { group, excludes_udp, udp_seconds });
    settings.services = Some(bpf_services::Settings {
        node: host.to_owned(),
        excluded: config.bpf_exclude_cidrs_from_nat.clone(),
        maglev_services,
        maglev_endpoints,
        udp_affinity: if path.sockets == Some(false) { udp_seconds } else { 0 },
    });
    settings.options.is_udp_only = path.devices == Some(true);
    let v4 = config.ipv4_vxlan_tunnel_addr.or(config.ipip_tunnel_addr);
    let by_version = [v4.map(Into::into), config.ipv6_vxlan_tunnel_addr.map(Into::into)];
    settings.tunnel_addresses = if sends_as_host(config) { [None; 2] } else { by_version };
    (path, refused)
}

/// The options of programs from the configuration.
fn options(config: &Config) -> Options {
    let port = |port: i64| u16::try_from(port).unwrap_or_default();
    let defaults = Options::default();
    Options {
        reverse_path: match config.bpf_enforce_rpf {
            Some(BPFReversePathFilter::Disabled) | None => ReversePath::Any,
            Some(BPFReversePathFilter::Loose) => ReversePath::Loose,
            Some(BPFReversePathFilter::Strict) => ReversePath::Strict,
        },
        redirects_to_peer: config.bpf_redirect_to_peer != Some(RedirectToPeer::Disabled),
        tells_drops: config.bpf_log_level == Some(BPFLogging::Debug),
        tells_flows: config.logs_flows() && config.is_leader(),
        looks_up_sources: config.workload_source_spoofing == Some(SourceSpoofing::Any),
        keeps_host_sources: config.nat_outgoing_exclusions == Some(NATOutgoingExclusions::IPPoolsAndHostIPs),
        allows_ipip: config.allow_ipip_packets_from_workloads,
        allows_vxlan: config.allow_vxlan_packets_from_workloads,
        vxlan_port: port(config.vxlan_port),
        vxlan_network: u32::try_from(config.vxlan_vni).unwrap_or_default(),
        wireguard_port: if config.wireguard_enabled { port(config.wireguard_listening_port) } else { 0 },
        spare_ports: config.bpf_psnat_ports.map_or(defaults.spare_ports, |range| {
            (range.min, range.max.saturating_sub(range.min).saturating_add(1))
        }),
        service_mark: u32::try_from(config.bpf_ext_to_service_connmark).unwrap_or_default(),
        bypasses_tracking: config.bpf_host_conntrack_bypass,
        profiles: config.bpf_profiling == Some(EnabledOrDisabled::Enabled),
        answers_directly: config.bpf_external_service_mode == Some(BPFExternalService::DSR),
        keeps_fragments: config.bpf_ip_fragment_reassembly_enabled,
        fragment_seconds: fragment_seconds(config).unwrap_or(defaults.fragment_seconds),
        ..defaults
    }
}

/// How long to wait for the rest of a packet: as configured, or like the kernel.
fn fragment_seconds(config: &Config) -> Option<u32> {
    let configured = config.bpf_ip_frag_timeout.positive().map(|time| time.as_secs().max(1));
    let kernel = || std::fs::read_to_string("/proc/sys/net/ipv4/ipfrag_time").ok()?.trim().parse().ok();
    u32::try_from(configured.or_else(kernel)?).ok()
}

/// The failsafe ports.
pub(super) fn failsafes(config: &Config) -> Elements {
    let one = |port: &ProtoPort, is_out: bool| Failsafe {
        protocol: match port.protocol {
            PortProtocol::Tcp => 6,
            PortProtocol::Udp => 17,
        },
        port: port.port,
        net: port.net,
        is_out,
    };
    let inbound = config.failsafe_inbound_host_ports.iter().map(|port| one(port, false));
    let outbound = config.failsafe_outbound_host_ports.iter().map(|port| one(port, true));
    elements(&inbound.chain(outbound).collect::<Vec<_>>())
}

/// The patterns for interfaces with programs.
#[derive(Debug)]
pub(super) struct Patterns {
    data: Option<Pattern>,
    layer_3: Option<Pattern>,
    tunnels: Vec<(InterfaceName, Kind)>,
    /// Whether the host's packets to services pass through devices.
    has_services: bool,
    /// Whether untracked policy may be applied at network drivers.
    has_xdp: bool,
}

impl Patterns {
    pub(super) fn new(config: &Config, has_services: bool) -> Self {
        let mut tunnels = vec![
            (InterfaceName::from(VXLAN_INTERFACE), Kind::Tunnel),
            (InterfaceName::from(VXLAN_INTERFACE_V6), Kind::Tunnel),
            (InterfaceName::from(IPIP_INTERFACE), Kind::Layer3),
        ];
        let encrypted = [&config.wireguard_interface_name, &config.wireguard_interface_name_v6];
        tunnels.extend(encrypted.map(|name| (InterfaceName::from(name.as_str()), Kind::Layer3)));
        Self {
            data: config.bpf_data_iface_pattern.clone(),
            layer_3: config.bpf_l3_iface_pattern.clone(),
            tunnels,
            has_services,
            has_xdp: config.xdp_enabled,
        }
    }

    /// The interfaces that have programs: workloads', those of the pattern, and tunnels. Beyond Calico also those with
    /// a host endpoint, because nothing else enforces its policy, and with an endpoint for all interfaces every one
    /// that has an address. Untracked policy, of the endpoints in `untracked`, is for interfaces with an endpoint of
    /// their own.
    pub(super) fn interfaces(
        &self,
        owners: &Owners<'_>,
        untracked: &BTreeMap<HostEndpointName, bool>,
        is_limited: impl Fn(&WorkloadEndpointId) -> bool,
    ) -> BTreeMap<InterfaceName, Interface> {
        let matches = |pattern: &Option<Pattern>, name: &str| {
            pattern.as_ref().is_some_and(|pattern| pattern.is_match(name))
        };
        let has_any = owners.hosts.contains_key(ANY_INTERFACE);
        let mut wanted = BTreeMap::new();
        for interface in owners.interfaces.all() {
            let name = &interface.name;
            let kind = if [LOOPBACK, SERVICES_DEVICE, SERVICES_DEVICE_END].contains(&&**name) {
                match &**name {
                    LOOPBACK => Some(Kind::Loopback),
                    SERVICES_DEVICE_END => Some(Kind::Services),
                    _ => None,
                }
                .filter(|_| self.has_services)
            } else if (owners.is_workload)(name) {
                let is_limited = owners.workloads.get(name).is_some_and(&is_limited);
                Some(if is_limited { Kind::Limited } else { Kind::Workload })
            } else if let Some((_, kind)) = self.tunnels.iter().find(|(tunnel, _)| tunnel == name) {
                Some(*kind)
            } else if matches(&self.layer_3, name) {
                Some(Kind::Layer3)
            } else {
                let is_host = matches(&self.data, name)
                    || owners.hosts.contains_key(name)
                    || (has_any && !interface.addresses.is_empty());
                let kind = match owners.hosts.get(name).and_then(|id| untracked.get(id)) {
                    Some(true) if self.has_xdp => Kind::Guarded,
                    Some(_) => Kind::Untracked,
                    None => Kind::Host,
                };
                is_host.then_some(kind)
            };
            if let (Some(kind), Some(index)) = (kind, owners.interfaces.index(name)) {
                wanted.insert(name.clone(), Interface { index, kind });
            }
        }
        wanted
    }
}

/// The endpoints whose lists interfaces have.
pub(super) fn holders(wanted: &BTreeMap<InterfaceName, Interface>, owners: &Owners<'_>) -> Holders {
    let holder = |(name, interface): (&InterfaceName, &Interface)| {
        let id = match interface.kind {
            Kind::Workload | Kind::Limited => owners.workloads.get(name).cloned().map(EndpointId::Workload),
            Kind::Host | Kind::Untracked | Kind::Guarded | Kind::Tunnel | Kind::Layer3 => {
                let id = owners.hosts.get(name).or_else(|| owners.hosts.get(ANY_INTERFACE));
                id.cloned().map(EndpointId::Host)
            }
            // The host's packets meet policy on the interface by which they really leave.
            Kind::Loopback | Kind::Services => None,
        };
        Some((interface.index, id?))
    };
    wanted.iter().filter_map(holder).collect()
}
