//! Workload endpoints of this host: their chains and the dispatch to them, their routes, neighbours and interfaces, and
//! their status.
//!
//! Updates are kept until they are written. Two endpoints may have the same interface while one replaces the other: the
//! first by identity gets it, and the other waits. An endpoint with an invalid interface name gets nothing, and is
//! reported as faulty.

use super::migration::Routing;
use super::{ChainSet, Interfaces, Judge, Manager, News, World};
use crate::desired::{Desired, Peering, WantedInterface};
use api::words::OPENSTACK;
use ipnet::IpNet;
use messages::{GlobalBgpConfig, InterfaceName, PolicyId, TierInfo, WorkloadEndpoint, WorkloadEndpointId};
use netlink::MacAddress;
use routing::limits::Limits;
use routing::routes::{RouteClass, RouteKey, Target, Way};
use rules::names::{self, EndpointChain};
use rules::tree::{IpVersion, Table};
use rules::{Backend, TierGroups, WorkloadChains};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The settings for workloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadSettings {
    /// Whether floating addresses are programmed.
    pub(crate) floating_addresses: bool,
    /// The metrics of routes, IPv4 and IPv6.
    pub(crate) normal_metric: [u32; 2],
    /// The metrics of routes that must win.
    pub(crate) elevated_metric: [u32; 2],
}

/// All workload endpoints.
#[derive(Debug)]
pub(crate) struct Workloads {
    settings: WorkloadSettings,
    pending: BTreeMap<WorkloadEndpointId, Option<Arc<WorkloadEndpoint>>>,
    active: BTreeMap<WorkloadEndpointId, Arc<WorkloadEndpoint>>,
    by_interface: BTreeMap<InterfaceName, WorkloadEndpointId>,
    shadowed: BTreeMap<WorkloadEndpointId, Arc<WorkloadEndpoint>>,
    status_changed: BTreeSet<WorkloadEndpointId>,
    /// Source addresses besides their own that workloads may use.
    allowed_sources: BTreeMap<InterfaceName, Vec<IpNet>>,
    allowed_sources_changed: bool,
    peering_addresses: [Option<IpAddr>; 2],
    dispatch: ChainSet,
    dispatch_changed: bool,
    /// Whether rules dispatch to the chains of workloads: not where eBPF programs do everything.
    has_ways: bool,
    maps_defined: bool,
}

/// The reported state of an endpoint: `up`, `down` or `error`, and the programmed endpoint.
pub(crate) type Reported = (&'static str, Arc<WorkloadEndpoint>);

impl Workloads {
    /// A manager without endpoints.
    #[must_use]
    pub(crate) fn new(settings: WorkloadSettings) -> Self {
        Self {
            settings,
            pending: BTreeMap::new(),
            active: BTreeMap::new(),
            by_interface: BTreeMap::new(),
            shadowed: BTreeMap::new(),
            status_changed: BTreeSet::new(),
            allowed_sources: BTreeMap::new(),
            allowed_sources_changed: true,
            peering_addresses: [None; 2],
            dispatch: ChainSet::default(),
            dispatch_changed: true,
            has_ways: true,
            maps_defined: false,
        }
    }

    /// Marks an endpoint whose dependencies changed.
    fn touch(&mut self, id: &WorkloadEndpointId) {
        if let Some(endpoint) = self.active.get(id) {
            self.pending.entry(id.clone()).or_insert_with(|| Some(Arc::clone(endpoint)));
        }
    }

    /// Records policies whose grouping changed.
    fn regroup(&mut self, policies: &BTreeSet<PolicyId>) {
        if policies.is_empty() {
            return;
        }
        let uses = |endpoint: &WorkloadEndpoint| tiers_use(&endpoint.tiers, policies);
        let ids: Vec<_> =
            self.active.iter().filter(|(_, endpoint)| uses(endpoint)).map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.touch(id));
    }

    /// Applies changed BGP settings.
    fn set_bgp(&mut self, config: &GlobalBgpConfig, desired: &mut Desired) {
        let new = [&config.local_workload_peering_ip_v4, &config.local_workload_peering_ip_v6]
            .map(|text| text.parse::<IpAddr>().ok());
        if new == self.peering_addresses {
            return;
        }
        self.peering_addresses = new;
        for (interface, id) in &self.by_interface {
            if let Some(endpoint) = self.active.get(id).filter(|one| !one.local_bgp_peer.is_empty()) {
                desired.interfaces.set(interface.clone(), Some(self.wanted_interface(interface, endpoint)));
            }
        }
    }

    fn take_in(
        &mut self,
        id: WorkloadEndpointId,
        endpoint: Arc<WorkloadEndpoint>,
        world: &mut World,
        desired: &mut Desired,
    ) {
        let interface = endpoint.name.clone();
        self.shadowed.remove(&id);
        if !names::is_interface(&interface) {
            tracing::error!(?id, %interface, "an endpoint's interface has an invalid name");
            self.withdraw(&id, world, desired);
            self.active.insert(id, endpoint);
            return;
        }
        if let Some(other) = self.by_interface.get(&interface).filter(|other| **other != id).cloned() {
            if other < id {
                tracing::info!(?id, ?other, %interface, "another endpoint has the interface; this one waits");
                self.withdraw(&id, world, desired);
                self.shadowed.insert(id, endpoint);
                return;
            }
            tracing::info!(?id, ?other, %interface, "the endpoint takes the interface from another one");
            if let Some(shadowed) = self.withdraw(&other, world, desired) {
                self.shadowed.insert(other.clone(), shadowed);
            }
            self.status_changed.insert(other);
        }
        if self.active.get(&id).is_some_and(|old| *old.name != *interface) {
            self.withdraw(&id, world, desired);
        }
        self.write_chains(&interface, &endpoint, world, desired);
        self.write_routes(&id, &interface, &endpoint, world, desired);
        let limits = Limits::of(endpoint.qos_controls.as_deref());
        desired.limits.set(interface.clone(), (limits != Limits::default()).then_some(limits));
        let allowed = (!endpoint.allow_spoofed_source_prefixes.is_empty())
            .then(|| endpoint.allow_spoofed_source_prefixes.clone());
        let old = match allowed.clone() {
            Some(allowed) => self.allowed_sources.insert(interface.clone(), allowed),
            None => self.allowed_sources.remove(&interface),
        };
        self.allowed_sources_changed |= old != allowed;
        if self.by_interface.insert(interface.clone(), id.clone()).is_none() {
            world.workloads.insert(interface.clone());
            world.changed.workloads.insert(interface.clone());
            self.enter_maps(&interface, true, world, desired);
        }
        let wanted = self.wanted_interface(&interface, &endpoint);
        desired.interfaces.set(interface, Some(wanted));
        self.active.insert(id, endpoint);
    }

    fn give_up(&mut self, id: &WorkloadEndpointId, world: &mut World, desired: &mut Desired) {
        self.shadowed.remove(id);
        let Some(old) = self.withdraw(id, world, desired) else { return };
        // An endpoint that waited for the interface gets it now.
        let next =
            self.shadowed.iter().find(|(_, waiting)| waiting.name == old.name).map(|(id, _)| id.clone());
        if let Some((id, waiting)) = next.and_then(|id| self.shadowed.remove_entry(&id)) {
            self.pending.entry(id).or_insert(Some(waiting));
        }
    }

    /// Withdraws everything of an active endpoint.
    fn withdraw(
        &mut self,
        id: &WorkloadEndpointId,
        world: &mut World,
        desired: &mut Desired,
    ) -> Option<Arc<WorkloadEndpoint>> {
        let old = self.active.remove(id)?;
        let interface = old.name.clone();
        if self.by_interface.get(&interface) != Some(id) {
            return Some(old);
        }
        self.by_interface.remove(&interface);
        world.workloads.remove(&interface);
        world.changed.workloads.insert(interface.clone());
        let backend = world.renderer.backend();
        for one in &mut desired.versions {
            for chain in [EndpointChain::ToWorkload, EndpointChain::FromWorkload, EndpointChain::SetMark] {
                one.rules.undefine(Table::Filter, backend.endpoint_chain(chain, &interface));
            }
            one.routes.set_all(RouteClass::LocalWorkload, Some(interface.clone()), []);
            one.routes.bgp_interfaces.set(interface.clone(), None);
        }
        if self.maps_defined {
            desired.arp.set_map_entry(Table::Filter, names::ARP_DISPATCH, &interface, None);
        }
        let arp = Backend::Nftables.endpoint_chain(EndpointChain::Arp, &interface);
        desired.arp.undefine(Table::Filter, arp);
        world.groups.set(&interface, [], &world.renderer, desired);
        world.marks.release(&interface);
        desired.limits.set(interface.clone(), None);
        desired.interfaces.set(interface.clone(), None);
        self.enter_maps(&interface, false, world, desired);
        self.allowed_sources_changed |= self.allowed_sources.remove(&interface).is_some();
        Some(old)
    }

    fn write_chains(
        &mut self,
        interface: &InterfaceName,
        endpoint: &WorkloadEndpoint,
        world: &mut World,
        desired: &mut Desired,
    ) {
        let tiers = TierGroups::of(&endpoint.tiers, |id| world.selector(id));
        let renderer = &world.renderer;
        match renderer.compiles_policies() {
            true => world.groups.set_compiled(interface, &tiers, desired),
            false => world.groups.set(interface, &tiers, renderer, desired),
        }
        let chains = renderer.workload_endpoint_chains(&WorkloadChains {
            interface,
            admin_up: is_admin_up(endpoint),
            tiers: &tiers,
            profiles: &endpoint.profile_ids,
            qos: endpoint.qos_controls.as_deref(),
        });
        chains.iter().for_each(|chain| desired.define(Table::Filter, chain));
        if renderer.config().ipvs_support {
            let chain = renderer.set_endpoint_mark_chain(interface, world.marks.get(interface));
            desired.define(Table::Filter, &chain);
        }
        desired.arp.define(Table::Filter, renderer.workload_arp_chain(interface, &endpoint.ipv4_nets));
        if self.maps_defined {
            let chain = Backend::Nftables.endpoint_chain(EndpointChain::Arp, interface);
            let chain = (!endpoint.ipv4_nets.is_empty()).then_some(chain);
            desired.arp.set_map_entry(Table::Filter, names::ARP_DISPATCH, interface, chain);
        }
    }

    fn write_routes(
        &mut self,
        id: &WorkloadEndpointId,
        interface: &InterfaceName,
        endpoint: &WorkloadEndpoint,
        world: &World,
        desired: &mut Desired,
    ) {
        let routing = world.routing.get(id).copied().unwrap_or(Routing::Normal);
        let mac = match endpoint.mac.as_str() {
            "" => None,
            text => text
                .parse::<MacAddress>()
                .inspect_err(
                    |error| tracing::error!(?id, %error, "cannot add a neighbour entry for the endpoint"),
                )
                .ok(),
        };
        for one in &mut desired.versions {
            let v6 = one.version == IpVersion::V6;
            let speaks_bgp = !endpoint.local_bgp_peer.is_empty();
            one.routes.bgp_interfaces.set(interface.clone(), speaks_bgp.then_some(()));
            let (nets, nat) = match v6 {
                false => (&endpoint.ipv4_nets, &endpoint.ipv4_nat),
                true => (&endpoint.ipv6_nets, &endpoint.ipv6_nat),
            };
            let floating = self.settings.floating_addresses || &*id.orchestrator == OPENSTACK;
            let external = nat.iter().filter(|_| floating).map(|nat| IpNet::from(nat.external));
            let metric = match routing {
                Routing::Elevated => self.settings.elevated_metric,
                Routing::Normal | Routing::Suppressed => self.settings.normal_metric,
            }[usize::from(v6)];
            let wanted = is_admin_up(endpoint) && routing != Routing::Suppressed;
            let targets = nets.iter().copied().chain(external).filter(|_| wanted).map(|destination| {
                (RouteKey { destination, metric }, Target { mac, ..Target::new(Way::Direct) })
            });
            one.routes.set_all(RouteClass::LocalWorkload, Some(interface.clone()), targets);
        }
    }

    /// With nftables an endpoint is reached by one entry of a map.
    fn enter_maps(&mut self, interface: &InterfaceName, present: bool, world: &World, desired: &mut Desired) {
        if world.renderer.backend() == Backend::Iptables || !self.maps_defined {
            self.dispatch_changed = true;
            return;
        }
        for (map, target) in [
            (names::FROM_WORKLOAD_DISPATCH, EndpointChain::FromWorkload),
            (names::TO_WORKLOAD_DISPATCH, EndpointChain::ToWorkload),
        ] {
            let chain = Backend::Nftables.endpoint_chain(target, interface);
            for one in &mut desired.versions {
                let chain = (present && self.has_ways).then(|| chain.clone());
                one.rules.set_map_entry(Table::Filter, map, interface, chain);
            }
        }
    }

    fn write_dispatch(&mut self, world: &World, desired: &mut Desired) {
        let nobody = BTreeSet::new();
        let workloads = if self.has_ways { &world.workloads } else { &nobody };
        let dispatch = world.renderer.workload_dispatch(workloads);
        for one in &mut desired.versions {
            dispatch.maps.iter().for_each(|map| one.rules.set_map(Table::Filter, map.clone()));
        }
        let chains = dispatch.chains.into_iter().map(|chain| (Table::Filter, chain)).collect();
        self.dispatch.publish(desired, chains);
        if !self.maps_defined {
            let has_v4 = |name: &&InterfaceName| {
                let endpoint = self.by_interface.get(*name).and_then(|id| self.active.get(id));
                endpoint.is_some_and(|endpoint| !endpoint.ipv4_nets.is_empty())
            };
            let with_v4 = world.workloads.iter().filter(has_v4).cloned().collect();
            let (chain, map) = world.renderer.arp_dispatch(&with_v4);
            desired.arp.set_map(Table::Filter, map);
            desired.arp.define(Table::Filter, chain);
        }
        self.maps_defined = true;
    }

    /// The setup of an interface.
    fn wanted_interface(&self, interface: &str, endpoint: &WorkloadEndpoint) -> WantedInterface {
        let speaks_bgp = !endpoint.local_bgp_peer.is_empty();
        let peering = |address: Option<IpAddr>, nets: &[IpNet]| match (speaks_bgp, address) {
            (true, Some(address)) => Peering::With(address),
            (true, None) if !nets.is_empty() => Peering::Missing,
            (true | false, _) => Peering::None,
        };
        WantedInterface {
            any_source: self.allowed_sources.contains_key(interface),
            peering: [
                peering(self.peering_addresses[0], &endpoint.ipv4_nets),
                peering(self.peering_addresses[1], &endpoint.ipv6_nets),
            ],
        }
    }

    /// The endpoint of each interface.
    pub(crate) fn by_interface(&self) -> &BTreeMap<InterfaceName, WorkloadEndpointId> {
        &self.by_interface
    }

    /// Marks the endpoints that match this test, so that their status is reported again.
    pub(crate) fn mark_status(&mut self, changed: impl Fn(&WorkloadEndpoint) -> bool) {
        let ids = self.active.iter().filter(|(_, endpoint)| changed(endpoint)).map(|(id, _)| id.clone());
        self.status_changed.extend(ids.collect::<Vec<_>>());
    }

    /// The endpoints whose status may have changed since the last call; `None` for removed ones.
    pub(crate) fn take_statuses(
        &mut self,
        interfaces: &Interfaces,
        is_set_up: impl Fn(&str) -> bool,
        is_refused: impl Fn(&WorkloadEndpoint) -> bool,
    ) -> Vec<(WorkloadEndpointId, Option<Reported>)> {
        let changed = std::mem::take(&mut self.status_changed);
        changed
            .into_iter()
            .map(|id| {
                let status = self.active.get(&id).map(|endpoint| {
                    let interface = endpoint.name.as_str();
                    let status = if self.by_interface.get(interface) != Some(&id) || is_refused(endpoint) {
                        "error"
                    } else if is_admin_up(endpoint) && interfaces.is_up(interface) && is_set_up(interface) {
                        "up"
                    } else {
                        "down"
                    };
                    (status, Arc::clone(endpoint))
                });
                (id, status)
            })
            .collect()
    }
}

impl Manager for Workloads {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        match *news {
            News::Workload(id, endpoint) => _ = self.pending.insert(id.clone(), endpoint.cloned()),
            News::Bgp(config) => self.set_bgp(config, desired),
            News::Interface(name) | News::SetUp(name) | News::Attached(name, _) => {
                if let Some(id) = self.by_interface.get(name) {
                    self.status_changed.insert(id.clone());
                }
            }
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        let has_ways = world.judge != Judge::Programs || !world.renderer.config().bpf_serves;
        self.dispatch_changed |= std::mem::replace(&mut self.has_ways, has_ways) != has_ways;
        self.regroup(&world.changed.selectors);
        world.changed.routing.iter().for_each(|id| self.touch(id));
        while let Some((id, endpoint)) = self.pending.pop_first() {
            self.status_changed.insert(id.clone());
            match endpoint {
                Some(endpoint) => self.take_in(id, endpoint, world, desired),
                None => self.give_up(&id, world, desired),
            }
        }
        if std::mem::take(&mut self.allowed_sources_changed) {
            for one in &mut desired.versions {
                let chain = world.renderer.rpf_skip_chain(&self.allowed_sources, one.version);
                one.rules.define(Table::Raw, chain);
            }
        }
        if std::mem::take(&mut self.dispatch_changed) {
            self.write_dispatch(world, desired);
        }
    }
}

fn is_admin_up(endpoint: &WorkloadEndpoint) -> bool {
    endpoint.state == "active"
}

/// Whether tiers contain one of these policies.
pub(crate) fn tiers_use(tiers: &[TierInfo], policies: &BTreeSet<PolicyId>) -> bool {
    let all = tiers.iter().flat_map(|tier| tier.ingress_policies.iter().chain(&tier.egress_policies));
    all.into_iter().any(|policy| policies.contains(policy))
}
