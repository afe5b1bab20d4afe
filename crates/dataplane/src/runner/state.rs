//! All managers of the dataplane, and which of them hears what: messages of the calculation, and news about interfaces.

use crate::managers::{
    AllHosts, Bandwidth, ClusterRoutes, ClusterRoutesSettings, Dscp, FloatingAddresses, FlowTables, Groups,
    HostEndpoints, InterfaceNews, InterfaceState, Interfaces, Migrations, Mtus, Plane, Policies, Pools,
    ServiceLoop, SubnetNeighbours, ThisHost, VxlanManager, VxlanSettings, WireguardManager,
    WireguardSettings, WorkloadSettings, Workloads, host_address,
};
use crate::routes::device::{TunnelDevice, TunnelKind};
use crate::settings::DataplaneSettings;
use crate::wireguard::{KernelSettings, Wireguard, first_table};
use felix_config::Config;
use messages::{HostMetadata, IpPoolType, Text, ToDataplane, WorkloadEndpoint, WorkloadEndpointId};
use netlink::wireguard::Devices;
use rules::names;
use rules::tree::IpVersion;
use rules::{EndpointMarks, IPIP_INTERFACE, Renderer, VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The managers of one IP version.
pub(super) struct VersionManagers {
    pub(super) pools: Pools,
    pub(super) dscp: Dscp,
    pub(super) all_hosts: Option<AllHosts>,
    pub(super) vxlan: Option<VxlanManager>,
    pub(super) ipip: Option<ClusterRoutes>,
    pub(super) no_encap: Option<ClusterRoutes>,
    pub(super) flow_tables: Option<FlowTables>,
    /// None where the host answers only for itself.
    pub(super) neighbours: Option<SubnetNeighbours>,
    /// None where no routing table is left for it.
    pub(super) wireguard: Option<Wireguard>,
}

/// All managers.
pub(super) struct State {
    pub(super) host: Text,
    pub(super) renderer: Renderer,
    pub(super) prefixes: Vec<Text>,
    pub(super) policies: Policies,
    pub(super) groups: Groups,
    pub(super) marks: EndpointMarks,
    pub(super) workloads: Workloads,
    pub(super) hosts: HostEndpoints,
    pub(super) migrations: Migrations,
    pub(super) bandwidth: Bandwidth,
    pub(super) floating: FloatingAddresses,
    pub(super) service_loop: ServiceLoop,
    pub(super) this_host: ThisHost,
    pub(super) versions: Vec<VersionManagers>,
    pub(super) interfaces: Interfaces,
    /// What the IP in IP device should be.
    pub(super) ipip_device: Option<TunnelDevice>,
    /// Whether tunnel devices have to be looked at.
    pub(super) devices_changed: bool,
    pub(super) in_sync: bool,
}

impl State {
    pub(super) fn new(
        settings: &DataplaneSettings,
        renderer: Renderer,
        planes: &mut [Plane],
        interfaces: Interfaces,
        mtus: &Mtus,
    ) -> Self {
        let config = &*settings.config;
        let metric = |number: i64| u32::try_from(number).unwrap_or(1024);
        let workload_settings = WorkloadSettings {
            floating_addresses: config.floating_ips == felix_config::choices::Switch::Enabled,
            normal_metric: [config.ipv4_normal_route_priority, config.ipv6_normal_route_priority].map(metric),
            elevated_metric: [config.ipv4_elevated_route_priority, config.ipv6_elevated_route_priority]
                .map(metric),
        };
        let versions =
            planes.iter_mut().map(|plane| version_managers(settings, &renderer, plane, mtus)).collect();
        let ipip_device =
            settings.encapsulation.ipip.then_some(config.ipip_tunnel_addr).flatten().map(|address| {
                TunnelDevice {
                    name: IPIP_INTERFACE.to_owned(),
                    kind: TunnelKind::Ipip,
                    address: address.into(),
                    mtu: Some(mtus.ipip),
                }
            });
        if settings.encapsulation.ipip && ipip_device.is_none() {
            tracing::warn!("pools ask for IP in IP, and this host has no address for the tunnel yet");
        }
        Self {
            host: settings.host.as_str().into(),
            marks: EndpointMarks::new(&renderer.config().marks),
            prefixes: renderer.config().workload_interface_prefixes.clone(),
            renderer,
            policies: Policies::default(),
            groups: Groups::default(),
            floating: FloatingAddresses::new(workload_settings.floating_addresses),
            workloads: Workloads::new(workload_settings),
            hosts: HostEndpoints::default(),
            migrations: Migrations::new(config.live_migration_route_convergence_time.or_zero()),
            bandwidth: Bandwidth::default(),
            service_loop: ServiceLoop::default(),
            this_host: ThisHost::default(),
            versions,
            interfaces,
            ipip_device,
            devices_changed: true,
            in_sync: false,
        }
    }

    pub(super) fn is_workload(&self, interface: &str) -> bool {
        self.prefixes.iter().any(|prefix| interface.starts_with(&**prefix))
    }

    fn each_version(&mut self, planes: &mut [Plane], mut tell: impl FnMut(&mut VersionManagers, &mut Plane)) {
        self.versions.iter_mut().zip(planes).for_each(|(managers, plane)| tell(managers, plane));
    }

    /// Takes in one message.
    pub(super) fn take(&mut self, message: ToDataplane, planes: &mut [Plane], now: Instant) {
        use ToDataplane as Message;
        match message {
            Message::InSync => self.in_sync = true,
            Message::IpSetUpdate { id, set_type, members } => {
                planes.iter_mut().for_each(|plane| plane.sets.update_set(&id, set_type, &members));
            }
            Message::IpSetDelta { id, added, removed } => {
                planes.iter_mut().for_each(|plane| plane.sets.update_members(&id, &added, &removed));
            }
            Message::IpSetRemove(id) => planes.iter_mut().for_each(|plane| plane.sets.remove_set(&id)),
            Message::PolicyUpdate(id, policy) => self.policies.update(&id, &policy, &self.renderer, planes),
            Message::PolicyRemove(id) => self.policies.remove(&id, &self.renderer, planes),
            Message::ProfileUpdate(name, profile) => {
                self.policies.update_profile(&name, &profile, &self.renderer, planes);
            }
            Message::ProfileRemove(name) => self.policies.remove_profile(&name, &self.renderer, planes),
            Message::WorkloadEndpointUpdate(id, endpoint) => {
                let endpoint: Arc<WorkloadEndpoint> = Arc::from(endpoint);
                self.migrations.update(&id, &endpoint, now);
                self.floating.update(&id, Some(&endpoint));
                self.each_neighbours(|neighbours| neighbours.update_workload(&id, Some(&endpoint)));
                self.each_version(planes, |managers, plane| {
                    managers.dscp.update_workload(&id, Some(&endpoint), plane);
                    if let Some(flow) = &mut managers.flow_tables {
                        flow.update_workload(&id, Some(&endpoint), plane);
                    }
                });
                self.workloads.update(id, endpoint);
            }
            Message::WorkloadEndpointRemove(id) => {
                self.migrations.remove(&id);
                self.floating.update(&id, None);
                self.each_neighbours(|neighbours| neighbours.update_workload(&id, None));
                self.each_version(planes, |managers, plane| {
                    managers.dscp.update_workload(&id, None, plane);
                    if let Some(flow) = &mut managers.flow_tables {
                        flow.update_workload(&id, None, plane);
                    }
                });
                self.workloads.remove(id);
            }
            Message::HostEndpointUpdate(id, endpoint) => {
                self.each_version(planes, |managers, plane| {
                    managers.dscp.update_host(&id, Some(&endpoint), plane);
                    if let Some(flow) = &mut managers.flow_tables {
                        flow.update_host(&id, Some(&endpoint), plane);
                    }
                });
                self.hosts.update(id, *endpoint);
            }
            Message::HostEndpointRemove(id) => {
                self.each_version(planes, |managers, plane| {
                    managers.dscp.update_host(&id, None, plane);
                    if let Some(flow) = &mut managers.flow_tables {
                        flow.update_host(&id, None, plane);
                    }
                });
                self.hosts.remove(&id);
            }
            Message::RouteUpdate(route) => {
                self.each_wireguard(|wireguard| wireguard.set_route(&route));
                self.versions
                    .iter_mut()
                    .flat_map(VersionManagers::routes)
                    .for_each(|routes| routes.update(&route));
            }
            Message::RouteRemove(destination) => {
                self.each_wireguard(|wireguard| wireguard.remove_route(&destination));
                self.versions
                    .iter_mut()
                    .flat_map(VersionManagers::routes)
                    .for_each(|routes| routes.remove(&destination));
            }
            Message::VtepUpdate(node, endpoint) => {
                self.devices_changed |= node == self.host;
                self.each_version(planes, |managers, plane| {
                    if let Some(vxlan) = &mut managers.vxlan {
                        vxlan.update(&node, Some(&endpoint), plane);
                    }
                });
            }
            Message::VtepRemove(node) => self.each_version(planes, |managers, plane| {
                if let Some(vxlan) = &mut managers.vxlan {
                    vxlan.update(&node, None, plane);
                }
            }),
            Message::WireguardUpdate(node, endpoint) => {
                let address = endpoint.interface_ipv4.map(Into::into);
                self.wireguard_endpoint(IpVersion::V4, &node, Some(&endpoint.public_key), address);
            }
            Message::WireguardRemove(node) => self.wireguard_endpoint(IpVersion::V4, &node, None, None),
            Message::WireguardV6Update(node, endpoint) => {
                let address = endpoint.interface_ipv6.map(Into::into);
                self.wireguard_endpoint(IpVersion::V6, &node, Some(&endpoint.public_key), address);
            }
            Message::WireguardV6Remove(node) => self.wireguard_endpoint(IpVersion::V6, &node, None, None),
            Message::HostMetadataUpdate(host, metadata) => self.host_metadata(&host, Some(&metadata), planes),
            Message::HostMetadataRemove(host) => self.host_metadata(&host, None, planes),
            Message::IpamPoolUpdate(pool) => {
                self.each_neighbours(|neighbours| neighbours.update_pool(pool.cidr, Some(&pool)));
                self.each_version(planes, |managers, plane| {
                    managers.pools.update(pool.cidr, Some(&pool), plane);
                });
            }
            Message::IpamPoolRemove(cidr) => {
                self.each_neighbours(|neighbours| neighbours.update_pool(cidr, None));
                self.each_version(planes, |managers, plane| managers.pools.update(cidr, None, plane));
            }
            Message::GlobalBgpConfig(config) => {
                self.service_loop.update(&config);
                self.workloads.set_bgp(&config);
            }
            Message::ServiceUpdate(service) => {
                self.each_neighbours(|neighbours| neighbours.update_service(&service));
            }
            Message::ServiceRemove(namespace, name) => {
                self.each_neighbours(|neighbours| neighbours.remove_service(&namespace, &name));
            }
            // The daemon follows these, or nothing here depends on them.
            Message::Encapsulation(_)
            | Message::ServiceAccountUpdate(..)
            | Message::ServiceAccountRemove(..)
            | Message::NamespaceUpdate(..)
            | Message::NamespaceRemove(_) => {}
        }
    }

    fn each_neighbours(&mut self, tell: impl FnMut(&mut SubnetNeighbours)) {
        self.versions.iter_mut().filter_map(|managers| managers.neighbours.as_mut()).for_each(tell);
    }

    /// WireGuard of each IP version.
    pub(super) fn wireguards(&mut self) -> impl Iterator<Item = &mut Wireguard> {
        self.versions.iter_mut().filter_map(|managers| managers.wireguard.as_mut())
    }

    /// The WireGuard devices that are to be there.
    pub(super) fn encrypting(&self) -> Vec<String> {
        let all = self.versions.iter().filter_map(|managers| managers.wireguard.as_ref());
        all.filter(|one| one.is_enabled()).map(|one| one.interface().to_string()).collect()
    }

    fn each_wireguard(&mut self, tell: impl FnMut(&mut WireguardManager)) {
        self.versions
            .iter_mut()
            .filter_map(|managers| managers.wireguard.as_mut().and_then(Wireguard::manager))
            .for_each(tell);
    }

    fn wireguard_endpoint(
        &mut self,
        version: IpVersion,
        node: &Text,
        key: Option<&str>,
        address: Option<IpAddr>,
    ) {
        self.each_wireguard(|wireguard| {
            if wireguard.settings().version == version {
                wireguard.set_endpoint(node, key, address);
            }
        });
    }

    fn host_metadata(&mut self, host: &Text, metadata: Option<&HostMetadata>, planes: &mut [Plane]) {
        let own = *host == self.host;
        self.each_neighbours(|neighbours| neighbours.update_node(host, metadata));
        self.each_version(planes, |managers, plane| {
            if let Some(all) = &mut managers.all_hosts {
                all.update(host, metadata, plane);
            }
            let address = metadata.and_then(|metadata| host_address(metadata, plane.version));
            if let Some(wireguard) = managers.wireguard.as_mut().and_then(Wireguard::manager) {
                wireguard.set_host(host, address);
            }
            if let Some(ipip) = &mut managers.ipip {
                ipip.set_gateway(host, address);
            }
            for routes in managers.ipip.iter_mut().chain(&mut managers.no_encap).filter(|_| own) {
                routes.set_parent_address(address);
            }
        });
    }

    /// A machine that moves here announced itself; true when it was awaited.
    pub(super) fn announced(&mut self, id: &WorkloadEndpointId) -> bool {
        let awaited = self.migrations.announced(id);
        if awaited {
            self.workloads.touch(id);
        }
        awaited
    }

    /// Takes in news about interfaces; true when anything depends on them.
    pub(super) fn take_news(&mut self, news: &[InterfaceNews], planes: &mut [Plane], now: Instant) -> bool {
        let mut matters = false;
        for one in news {
            match one {
                InterfaceNews::State(name, state) => {
                    self.interface(name, *state, planes, now);
                    matters = true;
                }
                InterfaceNews::Addresses(name) if self.is_workload(name) => {}
                InterfaceNews::Addresses(_) => {
                    self.each_neighbours(SubnetNeighbours::interfaces_changed);
                    self.hosts.addresses_changed();
                    self.devices_changed = true;
                    matters = true;
                }
            }
        }
        matters
    }

    fn interface(&mut self, name: &Text, state: InterfaceState, planes: &mut [Plane], now: Instant) {
        tracing::debug!(interface = %name, ?state, "an interface changed");
        let (index, up) = match state {
            InterfaceState::Present { index, up } => (Some(index), up),
            InterfaceState::Absent => (None, false),
        };
        for plane in planes.iter_mut() {
            if let Some(routes) = &mut plane.routes {
                match index {
                    Some(index) => routes.device_is(name, index, up, now),
                    None => routes.device_gone(name),
                }
            }
            if let Some(addresses) = &mut plane.link_addresses {
                addresses.device_is(name, index);
            }
        }
        for vxlan in self.versions.iter_mut().filter_map(|managers| managers.vxlan.as_mut()) {
            vxlan.neighbours.device_is(name, index.filter(|_| up));
        }
        for wireguard in self.versions.iter_mut().filter_map(|managers| managers.wireguard.as_mut()) {
            wireguard.interface_is(name, index, up, now);
        }
        if !self.is_workload(name) {
            self.each_neighbours(SubnetNeighbours::interfaces_changed);
        }
        self.workloads.interface_changed(name, up);
        self.hosts.interface_changed(name);
        self.bandwidth.interface_changed(name);
        self.devices_changed |= [VXLAN_INTERFACE, VXLAN_INTERFACE_V6, IPIP_INTERFACE].contains(&&**name);
    }

    /// Reads whether an interface name can be used in a path.
    pub(super) fn is_safe_name(name: &str) -> bool {
        names::is_interface(name) && name != "." && name != ".."
    }
}

impl VersionManagers {
    /// Everybody who makes routes to other nodes.
    fn routes(&mut self) -> impl Iterator<Item = &mut ClusterRoutes> {
        let vxlan = self.vxlan.as_mut().map(|vxlan| &mut vxlan.routes);
        vxlan.into_iter().chain(&mut self.ipip).chain(&mut self.no_encap)
    }
}

fn version_managers(
    settings: &DataplaneSettings,
    renderer: &Renderer,
    plane: &mut Plane,
    mtus: &Mtus,
) -> VersionManagers {
    let (config, need) = (&*settings.config, &settings.encapsulation);
    let v6 = plane.is_v6();
    let protocol = cluster_protocol(config);
    let vxlan_wanted = if v6 { need.vxlan_v6 } else { need.vxlan };
    let routes = |pool_type, tunnel: Option<&str>, mtu: Option<u32>| {
        ClusterRoutes::new(ClusterRoutesSettings {
            version: if v6 { IpVersion::V6 } else { IpVersion::V4 },
            pool_type,
            tunnel_device: tunnel.map(Into::into),
            tunnel_mtu: mtu,
            protocol,
        })
    };
    let hosts_wanted = (need.ipip && !v6) || renderer.config().nat_outgoing_exclude_hosts;
    // Only IPv4 hosts use IP in IP, which is what the list is for.
    let external: &[_] = if v6 { &[] } else { &config.external_nodes_cidr_list };
    let offload = renderer.config().flow_offload;
    let mut tunnels: Vec<Text> = Vec::new();
    if vxlan_wanted {
        tunnels.push(if v6 { VXLAN_INTERFACE_V6 } else { VXLAN_INTERFACE }.into());
    }
    if need.ipip && !v6 {
        tunnels.push(IPIP_INTERFACE.into());
    }
    let wireguard = wireguard(settings, renderer, plane, mtus);
    tunnels.extend(wireguard.iter().filter(|one| one.is_enabled()).map(|one| one.interface().clone()));
    VersionManagers {
        pools: Pools::new(plane),
        dscp: Dscp::new(plane),
        all_hosts: hosts_wanted.then(|| AllHosts::new(external, plane)),
        vxlan: vxlan_wanted.then(|| {
            let vxlan = VxlanSettings {
                host: settings.host.as_str().into(),
                vni: u32::try_from(config.vxlan_vni).unwrap_or_default(),
                port: renderer.config().vxlan_port,
                mtu: if v6 { mtus.vxlan_v6 } else { mtus.vxlan },
                protocol,
                external: config.external_nodes_cidr_list.clone(),
            };
            VxlanManager::new(vxlan, plane)
        }),
        ipip: (need.ipip && !v6 && config.programs_ipip_routes())
            .then(|| routes(IpPoolType::Ipip, Some(IPIP_INTERFACE), Some(mtus.ipip))),
        no_encap: (need.no_encap && config.programs_no_encap_routes())
            .then(|| routes(IpPoolType::NoEncap, None, None)),
        flow_tables: offload
            .then(|| FlowTables::new(tunnels, config.nftables_flow_table_data_iface_pattern.clone(), plane)),
        neighbours: answers_neighbours(config)
            .then(|| SubnetNeighbours::new(settings.host.as_str().into(), plane.version)),
        wireguard,
    }
}

/// Whether the host answers its neighbours for others.
pub(super) fn answers_neighbours(config: &Config) -> bool {
    config.local_subnet_l2_reachability == felix_config::choices::L2Reachability::PodsAndLoadBalancers
}

fn wireguard(
    settings: &DataplaneSettings,
    renderer: &Renderer,
    plane: &Plane,
    mtus: &Mtus,
) -> Option<Wireguard> {
    let config = &*settings.config;
    let rules = renderer.config();
    let (ours, mtu) = match plane.version {
        IpVersion::V4 => (&rules.wireguard, mtus.wireguard),
        IpVersion::V6 => (&rules.wireguard_v6, mtus.wireguard_v6),
    };
    let Some(table) = first_table(&config.route_tables()) else {
        if ours.enabled {
            tracing::error!(
                "RouteTableRanges: no routing table is left for WireGuard, and nothing is encrypted"
            );
        }
        return None;
    };
    let kernel = KernelSettings {
        enabled: ours.enabled,
        mark: rules.marks.wireguard,
        table,
        rule_priority: u32::try_from(config.wireguard_routing_rule_priority).unwrap_or_default(),
        mtu: Some(mtu).filter(|mtu| *mtu > 0),
        protocol: u8::try_from(config.device_route_protocol).unwrap_or(crate::routes::PROTOCOL_BOOT),
        makes_routes: plane.routes.is_some(),
        threaded: config.wireguard_threading_enabled,
    };
    let peers = WireguardSettings {
        host: settings.host.as_str().into(),
        version: plane.version,
        interface: ours.interface.clone(),
        port: ours.port,
        encrypt_hosts: config.wireguard_host_encryption_enabled,
        keepalive: u16::try_from(config.wireguard_keep_alive.or_zero().as_secs()).unwrap_or(u16::MAX),
    };
    let open = || Ok(Box::new(netlink::wireguard::Client::open()?) as Box<dyn Devices + Send>);
    Some(Wireguard::new(kernel, peers, Box::new(open)))
}

/// The protocol number of routes that only we make.
fn cluster_protocol(config: &Config) -> u8 {
    use crate::routes::{PROTOCOL_BOOT, PROTOCOL_CALICO};
    match u8::try_from(config.device_route_protocol) {
        Ok(PROTOCOL_BOOT) | Err(_) => PROTOCOL_CALICO,
        Ok(protocol) => protocol,
    }
}
