//! Opens the drivers: determines the packet filter of the host, the IP versions, and possible leftovers of other packet
//! filters.

use super::drivers::Plane;
use super::leftovers::Remains;
use super::roster::has_vxlan;
use super::{Machine, StartError};
use crate::bpf_leftovers::BpfLeftovers;
use crate::kube_proxy_rules::KubeProxyRules;
use crate::managers::{Mtus, first_table, vxlan_device};
use crate::settings::{DataplaneSettings, rules_config};
use api::ChainInsert;
use felix_config::Config;
use messages::Text;
use netfilter::driver::{ApplyError, RuleDriver};
use netfilter::environment;
use netfilter::ipsets::{IpSetDriver, KernelSets, NftSets};
use netfilter::iptables::{self, Programs};
use netfilter::nftables;
use netfilter::{DriverFigure, PacketFilter};
use netlink::netfilter::{ipset, nft};
use netlink::wireguard::Devices;
use netlink::{Family, TABLE_MAIN};
use routing::routes::{LinkAddresses, Ownership, PROTOCOL_BOOT, RouteTable, TableSettings, TunnelNeighbours};
use routing::wireguard::{KernelSettings, Wireguard};
use rules::tree::{InterfacePattern, IpVersion};
use rules::{Backend, IPIP_INTERFACE, Marks, Renderer, SERVICES_DEVICE, VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// The device by which kube-proxy shows that it uses IPVS.
pub(super) const IPVS_INTERFACE: &str = "kube-ipvs0";

/// The drivers of rules and sets, and related findings.
pub(super) struct Opened {
    pub(super) renderer: Renderer,
    pub(super) planes: Vec<Plane>,
    pub(super) arp: Option<nftables::Driver<nft::Client>>,
    pub(super) leftovers: Vec<Leftover>,
    /// Leftovers to remove once programs serve services.
    pub(super) kube_proxy: Vec<Leftover>,
    /// The nftables tables in which foreign changes affect us, and the affected plane; `None` for ARP.
    pub(super) watched: Vec<(nft::Table, Option<usize>)>,
    /// The ports of the sockets by which we change nftables ourselves.
    pub(super) own_ports: Vec<u32>,
    pub(super) own_commits: Vec<Arc<AtomicU64>>,
}

/// Objects of ours that another packet filter may hold.
pub(super) enum Leftover {
    Iptables(iptables::Driver<Programs>),
    Sets(KernelSets<ipset::Client>),
    Nftables(Box<nftables::Driver<nft::Client>>),
    Bpf(Box<BpfLeftovers<netlink::Handle, netlink::tc::Client>>),
    KubeProxy(Box<KubeProxyRules>),
}

impl Remains for Leftover {
    fn remove(&mut self, now: Instant) -> Result<bool, ApplyError> {
        match self {
            Self::Iptables(driver) => driver.apply(now).map(|_| true),
            Self::Sets(driver) => {
                driver.apply_updates()?;
                driver.apply_deletions().map(|applied| applied.again_in.is_none())
            }
            Self::Nftables(driver) => {
                // Packets in the middle of the rules have to leave them before the rules are removed.
                if driver.detach_table()? {
                    return Ok(false);
                }
                driver.remove_table().map(|()| true)
            }
            Self::Bpf(leftovers) => leftovers.remove(),
            Self::KubeProxy(rules) => rules.remove(),
        }
    }
}

/// Whether the kernel supports IPv6.
pub(super) fn kernel_has_v6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

pub(super) fn open(
    settings: &DataplaneSettings,
    machine: &Machine,
    has_ipvs: bool,
    mtus: &Mtus,
    beside_bpf: bool,
) -> Result<Opened, StartError> {
    let config = &*settings.config;
    let nftables = environment::uses_nftables(
        config.nftables_mode,
        environment::find_kube_proxy_nftables,
        environment::find_iptables,
    )?;
    let mut found = environment::look(!nftables);
    for problem in environment::override_features(&mut found, &config.feature_detect_override) {
        tracing::warn!(problem, "FeatureDetectOverride");
    }
    let backend = if nftables { Backend::Nftables } else { Backend::Iptables };
    let mut rules = rules_config(config, &settings.encapsulation, backend)?;
    rules.features = found.features;
    if beside_bpf {
        let wireguard = config.wireguard_enabled || config.wireguard_enabled_v6;
        rules.marks = Marks::beside_bpf(config.tables(nftables).mark_mask, wireguard)?;
        // A connection in the flow table would bypass the chains that tell programs what Linux knows.
        rules.flow_offload = false;
        rules.bpf_serves = settings.has_services;
        rules.bpf_service_mark = u32::try_from(config.bpf_ext_to_service_connmark).unwrap_or_default();
        rules.bpf_bypasses_tracking = config.bpf_host_conntrack_bypass;
        let tracked = config.bpf_force_track_packets_from_ifaces.iter().filter(|name| !name.is_empty());
        rules.bpf_tracked_interfaces = tracked.map(|name| InterfacePattern::from_setting(name)).collect();
        if config.bpf_host_conntrack_bypass && !settings.has_services {
            tracing::warn!(
                "BPFHostConntrackBypass: Linux tracks all packets, because other programs translate service addresses"
            );
        }
    } else if has_ipvs && !nftables {
        tracing::info!("kube-proxy uses IPVS");
        rules.ipvs_support = true;
        let wireguard = config.wireguard_enabled || config.wireguard_enabled_v6;
        rules.marks = Marks::from_mask(config.tables(nftables).mark_mask, wireguard, true)?;
    }
    let mut versions = vec![IpVersion::V4];
    if config.ipv6_support {
        match kernel_has_v6() {
            true => versions.push(IpVersion::V6),
            false => tracing::info!("the kernel has no IPv6; nothing is programmed for it"),
        }
    }
    let lock = found.restore_supports_lock.then(|| config.iptables_lock_probe_interval.or_zero());
    let mut opened = Opened {
        renderer: Renderer::new(rules),
        planes: Vec::new(),
        arp: None,
        leftovers: Vec::new(),
        kube_proxy: Vec::new(),
        watched: Vec::new(),
        own_ports: Vec::new(),
        own_commits: Vec::new(),
    };
    if nftables {
        opened.open_nftables(config, &versions)?;
    } else {
        opened.open_iptables(config, &versions, lock)?;
    }
    opened.open_arp(config);
    for plane in &mut opened.planes {
        let family = routing::wireguard::family(plane.version);
        plane.tunnel = has_vxlan(settings, plane.version)
            .then(|| TunnelNeighbours::new(family, vxlan_device(plane.version).into()));
        plane.wireguard = wireguard(settings, &opened.renderer, plane, mtus);
    }
    if nftables {
        // Sets can be removed only when no rule refers to them any more, so rules come first.
        for version in &versions {
            for variant in [iptables::Backend::Legacy, iptables::Backend::Nft] {
                opened.clean_iptables(*version, variant, lock);
            }
        }
        for version in &versions {
            let client = ipset::Client::open()?;
            opened.leftovers.push(Leftover::Sets(KernelSets::new(client, *version, set_size(config))));
        }
    }
    if beside_bpf && settings.has_services && config.bpf_kube_proxy_iptables_cleanup_enabled {
        opened.kube_proxy.push(Leftover::KubeProxy(Box::new(KubeProxyRules::new(&versions, lock))));
    }
    if !beside_bpf {
        let (kernel, control) = (netlink::Handle::open()?, netlink::tc::Client::open()?);
        let bpf = BpfLeftovers::new(kernel, control, machine.bpf_pins.clone());
        opened.leftovers.push(Leftover::Bpf(Box::new(bpf)));
    }
    Ok(opened)
}

/// The maximum number of members of a set.
fn set_size(config: &Config) -> u32 {
    u32::try_from(config.max_ipset_size).unwrap_or(u32::MAX)
}

impl Opened {
    fn client(&mut self) -> Result<nft::Client, StartError> {
        let client = nft::Client::open()?;
        self.own_ports.push(client.port());
        self.own_commits.push(client.commits());
        Ok(client)
    }

    fn open_nftables(&mut self, config: &Config, versions: &[IpVersion]) -> Result<(), StartError> {
        let refresh = config.nftables_refresh_interval.positive();
        for version in versions {
            let family = match version {
                IpVersion::V4 => rules::nftables::Family::Ip,
                IpVersion::V6 => rules::nftables::Family::Ip6,
            };
            let mut driver = nftables::Driver::new(self.client()?, family, refresh);
            if self.renderer.has_short_way() {
                driver = driver.with_only_used_hooks();
            }
            self.watched.push((driver.table().clone(), Some(self.planes.len())));
            let sets = NftSets::new(self.client()?, *version);
            self.planes.push(plane(config, *version, Box::new(driver), Box::new(sets)));
        }
        Ok(())
    }

    fn open_iptables(
        &mut self,
        config: &Config,
        versions: &[IpVersion],
        lock: Option<Duration>,
    ) -> Result<(), StartError> {
        let (legacy, nft) = iptables::probe();
        let variant = iptables::choose(config.iptables_backend, legacy, nft);
        let settings = iptables::Settings {
            backend: variant,
            insert_mode: config.chain_insert_mode.unwrap_or(ChainInsert::Insert),
            refresh: config.iptables_refresh_interval.positive(),
            post_write_check: config.iptables_post_write_check_interval.or_zero(),
            portions: iptables::Portions::default(),
        };
        for version in versions {
            let programs = Programs::new(*version, variant, lock);
            self.own_commits.push(programs.commits());
            let driver = iptables::Driver::new(programs, *version, &settings);
            let place = self.planes.len();
            self.watched.extend(driver.watched().into_iter().map(|table| (table, Some(place))));
            let sets = KernelSets::new(ipset::Client::open()?, *version, set_size(config));
            self.planes.push(plane(config, *version, Box::new(driver), Box::new(sets)));
            self.clean_iptables(*version, variant.other(), lock);
            let family = match version {
                IpVersion::V4 => rules::nftables::Family::Ip,
                IpVersion::V6 => rules::nftables::Family::Ip6,
            };
            match self.client() {
                Ok(client) => {
                    let driver = nftables::Driver::new(client, family, None);
                    self.leftovers.push(Leftover::Nftables(Box::new(driver)));
                }
                Err(error) => tracing::debug!(%error, "no nftables, so there is nothing of ours to remove"),
            }
        }
        Ok(())
    }

    /// Adds the removal of our rules from an unused variant.
    fn clean_iptables(&mut self, version: IpVersion, variant: iptables::Backend, lock: Option<Duration>) {
        if let Some(mut cleaner) = iptables::cleaner(version, variant, lock) {
            self.own_commits.push(cleaner.commands().commits());
            self.leftovers.push(Leftover::Iptables(cleaner));
        }
    }

    /// ARP rules need nftables, whichever packet filter is used otherwise.
    fn open_arp(&mut self, config: &Config) {
        let refresh = config.tables(self.renderer.backend() == Backend::Nftables).refresh_interval.positive();
        match self.client() {
            Ok(client) => {
                let driver = nftables::Driver::new(client, rules::nftables::Family::Arp, refresh);
                self.watched.push((driver.table().clone(), None));
                self.arp = Some(driver);
            }
            Err(error) => {
                tracing::warn!(%error, "no nftables: the host may answer ARP for workloads' own addresses");
            }
        }
    }
}

fn plane(
    config: &Config,
    version: IpVersion,
    rules: Box<dyn RuleDriver + Send>,
    sets: Box<dyn IpSetDriver + Send>,
) -> Plane {
    let v6 = version == IpVersion::V6;
    let family = if v6 { Family::V6 } else { Family::V4 };
    let table = || {
        RouteTable::new(TableSettings {
            family,
            table: TABLE_MAIN,
            ownership: Ownership {
                whole_table: false,
                workload_prefixes: config.interface_prefixes().map(Text::from).collect(),
                all_workload_routes: config.remove_external_routes,
                device_protocol: u8::try_from(config.device_route_protocol).unwrap_or(PROTOCOL_BOOT),
                own_devices: vec![
                    if v6 { VXLAN_INTERFACE_V6 } else { VXLAN_INTERFACE }.into(),
                    SERVICES_DEVICE.into(),
                ],
                bird_device: (!v6 && config.programs_ipip_routes()).then(|| IPIP_INTERFACE.into()),
                bgp_interfaces: BTreeSet::new(),
            },
            source: match v6 {
                false => config.device_route_source_address.map(Into::into),
                true => config.device_route_source_address_ipv6.map(Into::into),
            },
            static_neighbours: !v6,
        })
    };
    let ours = !config.route_sync_disabled;
    Plane {
        version,
        filter: PacketFilter::new(rules, sets),
        routes: ours.then(table),
        link_addresses: ours.then(|| LinkAddresses::new(family)),
        tunnel: None,
        wireguard: None,
        answered: BTreeSet::new(),
    }
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
            tracing::error!("RouteTableRanges: no routing table is left for WireGuard; nothing is encrypted");
        }
        return None;
    };
    let kernel = KernelSettings {
        version: plane.version,
        interface: ours.interface.clone(),
        port: ours.port,
        encrypt_hosts: config.wireguard_host_encryption_enabled,
        enabled: ours.enabled,
        mark: rules.marks.wireguard,
        table,
        rule_priority: u32::try_from(config.wireguard_routing_rule_priority).unwrap_or_default(),
        mtu: Some(mtu).filter(|mtu| *mtu > 0),
        protocol: u8::try_from(config.device_route_protocol).unwrap_or(PROTOCOL_BOOT),
        makes_routes: plane.routes.is_some(),
        threaded: config.wireguard_threading_enabled,
    };
    let open = || Ok(Box::new(netlink::wireguard::Client::open()?) as Box<dyn Devices + Send>);
    Some(Wireguard::new(kernel, Box::new(open)))
}

/// A count as the value of a figure.
pub(super) fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

fn total(count: u64) -> f64 {
    number(usize::try_from(count).unwrap_or(usize::MAX))
}

/// The figures of a set driver.
pub(super) fn set_figures(plane: &Plane, backend: Backend) -> Vec<DriverFigure> {
    let metrics = plane.filter.sets.metrics();
    let family = if plane.is_v6() { "inet6" } else { "inet" };
    let labels = format!("ip_version=\"{family}\"");
    match backend {
        Backend::Iptables => vec![
            ("felix_ipsets_calico", labels, number(metrics.sets)),
            ("felix_ipset_calls", String::new(), total(metrics.calls)),
            ("felix_ipset_errors", String::new(), total(metrics.errors)),
            ("felix_ipset_lines_executed", String::new(), total(metrics.operations)),
        ],
        Backend::Nftables => vec![
            ("felix_nft_sets", labels, number(metrics.sets)),
            ("felix_nft_set_calls", String::new(), total(metrics.calls)),
            ("felix_nft_set_errors", String::new(), total(metrics.errors)),
        ],
    }
}
