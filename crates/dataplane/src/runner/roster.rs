//! All managers that the settings call for, and the order in which they write.

use super::bpf::HostPath;
use crate::desired::Desired;
use crate::managers::{
    AllHosts, AttachedWorkloads, ClusterRoutes, ClusterRoutesSettings, CompiledPolicies, Dscp, FixedChains,
    FloatingAddresses, FlowTables, HostEndpoints, IpSets, IpipDevice, Manager, MarkDispatch, Migrations,
    Mtus, News, Policies, Pools, ServiceLoop, ServiceRoutes, SubnetNeighbours, ThisHost, VxlanManager,
    VxlanSettings, WireguardManager, WireguardSettings, WorkloadSettings, Workloads, World, vxlan_device,
};
use crate::settings::{DataplaneSettings, sends_as_host};
use felix_config::Config;
use messages::{InterfaceName, IpPoolType};
use routing::routes::device::{TunnelDevice, TunnelKind};
use routing::routes::{PROTOCOL_BOOT, PROTOCOL_CALICO};
use rules::tree::IpVersion;
use rules::{IPIP_INTERFACE, Renderer};
use std::sync::Arc;
use std::time::Instant;

/// All managers. Those that the loop queries have names; the others only receive news and write.
pub(super) struct Roster {
    pub(super) migrations: Migrations,
    pub(super) workloads: Workloads,
    pub(super) hosts: HostEndpoints,
    /// Managers that write before endpoints, because endpoints depend on their results.
    first: Vec<Box<dyn Manager + Send>>,
    /// Managers that write after endpoints.
    last: Vec<Box<dyn Manager + Send>>,
}

impl Roster {
    pub(super) fn new(
        settings: &DataplaneSettings,
        renderer: &Arc<Renderer>,
        mtus: &Mtus,
        encrypting: &[(IpVersion, InterfaceName)],
        beside_bpf: bool,
        services: Option<HostPath>,
        desired: &mut Desired,
    ) -> Self {
        let config = &*settings.config;
        let metric = |number: i64| u32::try_from(number).unwrap_or(1024);
        let workload_settings = WorkloadSettings {
            floating_addresses: config.floating_ips == Some(api::EnabledOrDisabled::Enabled),
            normal_metric: [config.ipv4_normal_route_priority, config.ipv6_normal_route_priority].map(metric),
            elevated_metric: [config.ipv4_elevated_route_priority, config.ipv6_elevated_route_priority]
                .map(metric),
        };
        let mut last: Vec<Box<dyn Manager + Send>> = vec![
            Box::new(MarkDispatch::default()),
            Box::new(FloatingAddresses::new(workload_settings.floating_addresses)),
            Box::new(ServiceLoop::default()),
            Box::new(ThisHost::new(Arc::clone(renderer))),
        ];
        if beside_bpf {
            last.push(Box::new(AttachedWorkloads::default()));
        }
        if let Some(udp_only) = services.and_then(|path| path.devices) {
            let (host, excluded) = (settings.host.clone(), config.bpf_exclude_cidrs_from_nat.clone());
            last.push(Box::new(ServiceRoutes::new(host, udp_only, excluded, cluster_protocol(config))));
        }
        if renderer.compiles_policies() {
            last.push(Box::new(CompiledPolicies::new(Arc::clone(renderer))));
        } else if renderer.config().compile_policies {
            tracing::warn!(
                "flow logs need the rule that decided: policies are programmed as chains instead of being compiled"
            );
        }
        last.extend(ipip_device(settings, mtus).map(|one| Box::new(one) as Box<dyn Manager + Send>));
        let versions: Vec<IpVersion> = desired.versions.iter().map(|one| one.version).collect();
        for version in versions {
            let encrypting = encrypting.iter().find(|(one, _)| *one == version).map(|(_, name)| name);
            last.extend(of_version(settings, renderer, version, mtus, encrypting, desired));
        }
        Self {
            migrations: Migrations::new(config.live_migration_route_convergence_time.or_zero()),
            workloads: Workloads::new(workload_settings),
            hosts: HostEndpoints::default(),
            first: vec![
                Box::new(FixedChains::default()),
                Box::new(IpSets),
                Box::new(Policies::new(Arc::clone(renderer))),
            ],
            last,
        }
    }

    /// All managers, in the order in which they write.
    fn all(&mut self) -> impl Iterator<Item = &mut (dyn Manager + Send)> {
        let endpoints: [&mut (dyn Manager + Send); 3] =
            [&mut self.migrations, &mut self.workloads, &mut self.hosts];
        let first = self.first.iter_mut().map(|one| &mut **one as &mut (dyn Manager + Send));
        let last = self.last.iter_mut().map(|one| &mut **one as &mut (dyn Manager + Send));
        first.chain(endpoints).chain(last)
    }

    /// Passes news to all managers.
    pub(super) fn hear(&mut self, news: &News<'_>, now: Instant, desired: &mut Desired) {
        self.all().for_each(|manager| manager.hear(news, now, desired));
    }

    /// Has all managers write what changed.
    pub(super) fn write(&mut self, world: &mut World, now: Instant, desired: &mut Desired) {
        world.begin(now);
        self.all().for_each(|manager| manager.write(world, desired));
    }
}

/// The managers of one IP version. `encrypting` is the WireGuard device, if there should be one.
fn of_version(
    settings: &DataplaneSettings,
    renderer: &Arc<Renderer>,
    version: IpVersion,
    mtus: &Mtus,
    encrypting: Option<&InterfaceName>,
    desired: &mut Desired,
) -> Vec<Box<dyn Manager + Send>> {
    let (config, need, rules) = (&*settings.config, &settings.encapsulation, renderer.config());
    let Some(desired) = desired.of(version) else { return Vec::new() };
    let v6 = version == IpVersion::V6;
    let host = || settings.host.clone();
    let routes = |pool_type, tunnel: Option<&str>, mtu: Option<u32>| {
        ClusterRoutes::new(ClusterRoutesSettings {
            host: host(),
            version,
            pool_type,
            tunnel_device: tunnel.map(Into::into),
            tunnel_mtu: mtu,
            protocol: cluster_protocol(config),
            sends_as_host: sends_as_host(config),
        })
    };
    let mut all: Vec<Box<dyn Manager + Send>> =
        vec![Box::new(Pools::new(desired)), Box::new(Dscp::new(desired))];
    if (need.ipip && !v6) || rules.nat_outgoing_exclude_hosts {
        // The list is for IP in IP, which only IPv4 hosts use.
        let external: &[_] = if v6 { &[] } else { &config.external_nodes_cidr_list };
        all.push(Box::new(AllHosts::new(external, desired)));
    }
    let mut tunnels: Vec<InterfaceName> = Vec::new();
    if has_vxlan(settings, version) {
        tunnels.push(vxlan_device(version).into());
        let vxlan = VxlanSettings {
            host: host(),
            vni: u32::try_from(config.vxlan_vni).unwrap_or_default(),
            port: rules.vxlan_port,
            mtu: if v6 { mtus.vxlan_v6 } else { mtus.vxlan },
            protocol: cluster_protocol(config),
            sends_as_host: sends_as_host(config),
            external: config.external_nodes_cidr_list.clone(),
        };
        all.push(Box::new(VxlanManager::new(vxlan, desired)));
    }
    if need.ipip && !v6 {
        tunnels.push(IPIP_INTERFACE.into());
        if config.programs_ipip_routes() {
            all.push(Box::new(routes(IpPoolType::Ipip, Some(IPIP_INTERFACE), Some(mtus.ipip))));
        }
    }
    if need.no_encap && config.programs_no_encap_routes() {
        all.push(Box::new(routes(IpPoolType::NoEncap, None, None)));
    }
    if let Some(interface) = encrypting {
        tunnels.push(interface.clone());
        all.push(Box::new(WireguardManager::new(WireguardSettings {
            host: host(),
            version,
            interface: interface.clone(),
            port: if v6 { rules.wireguard_v6.port } else { rules.wireguard.port },
            encrypt_hosts: config.wireguard_host_encryption_enabled,
            keepalive: u16::try_from(config.wireguard_keep_alive.or_zero().as_secs()).unwrap_or(u16::MAX),
        })));
    }
    if rules.flow_offload {
        let pattern = config.nftables_flow_table_data_iface_pattern.clone();
        all.push(Box::new(FlowTables::new(tunnels, pattern, desired)));
    }
    if answers_neighbours(config) {
        all.push(Box::new(SubnetNeighbours::new(host(), version)));
    }
    all
}

fn ipip_device(settings: &DataplaneSettings, mtus: &Mtus) -> Option<IpipDevice> {
    if !settings.encapsulation.ipip {
        return None;
    }
    let address = match (sends_as_host(&settings.config), settings.config.ipip_tunnel_addr) {
        (true, _) => None,
        (false, Some(address)) => Some(address.into()),
        (false, None) => {
            tracing::warn!("pools use IP in IP, but this host has no address for the tunnel yet");
            return None;
        }
    };
    Some(IpipDevice::new(TunnelDevice {
        name: IPIP_INTERFACE.to_owned(),
        kind: TunnelKind::Ipip,
        address,
        mtu: Some(mtus.ipip),
    }))
}

/// Whether there should be a VXLAN device.
pub(super) fn has_vxlan(settings: &DataplaneSettings, version: IpVersion) -> bool {
    match version {
        IpVersion::V4 => settings.encapsulation.vxlan,
        IpVersion::V6 => settings.encapsulation.vxlan_v6,
    }
}

/// Whether the host answers its neighbours for other addresses.
pub(super) fn answers_neighbours(config: &Config) -> bool {
    config.local_subnet_l2_reachability == Some(api::LocalSubnetL2Reachability::PodsAndLoadBalancers)
}

/// The protocol number of routes that only we create.
fn cluster_protocol(config: &Config) -> u8 {
    match u8::try_from(config.device_route_protocol) {
        Ok(PROTOCOL_BOOT) | Err(_) => PROTOCOL_CALICO,
        Ok(protocol) => protocol,
    }
}
