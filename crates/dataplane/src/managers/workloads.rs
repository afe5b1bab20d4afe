//! Workload endpoints of this host: their chains and the way to them, their routes, neighbours and interfaces, and how they
//! are.
//!
//! Updates are kept until [`Workloads::complete`]. Two endpoints with the same interface happen while one takes the other's
//! place: the first by identity has it, the other waits in the shadow. An endpoint whose interface has a name that no
//! interface can have gets nothing, and is reported as faulty.

use super::migration::Routing;
use super::qos::{Bandwidth, Limits};
use super::{ChainSet, Groups, Interfaces, Migrations, Plane, Policies};
use crate::driver::RuleDriver;
use crate::routes::{RouteClass, RouteKey, Target, Way};
use ipnet::IpNet;
use messages::{GlobalBgpConfig, PolicyId, Text, TierInfo, WorkloadEndpoint, WorkloadEndpointId};
use netlink::MacAddress;
use rules::names::{self, EndpointChain};
use rules::tree::{IpVersion, Table};
use rules::{Backend, EndpointMarks, Renderer, TierGroups, WorkloadChains};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The orchestrator whose floating addresses are always programmed.
const OPENSTACK: &str = "openstack";

/// What concerns workloads of the settings.
#[derive(Clone, Debug, Default)]
pub struct WorkloadSettings {
    /// Whether floating addresses are programmed.
    pub floating_addresses: bool,
    /// The metrics of routes, IPv4 and IPv6.
    pub normal_metric: [u32; 2],
    /// The metrics of routes that must win.
    pub elevated_metric: [u32; 2],
}

/// All workload endpoints.
#[derive(Debug)]
pub struct Workloads {
    settings: WorkloadSettings,
    pending: BTreeMap<WorkloadEndpointId, Option<Arc<WorkloadEndpoint>>>,
    active: BTreeMap<WorkloadEndpointId, Arc<WorkloadEndpoint>>,
    by_interface: BTreeMap<Text, WorkloadEndpointId>,
    shadowed: BTreeMap<WorkloadEndpointId, Arc<WorkloadEndpoint>>,
    /// Interfaces whose kernel settings have to be written.
    unconfigured: BTreeSet<Text>,
    status_changed: BTreeSet<WorkloadEndpointId>,
    /// Source addresses beside their own that workloads may use.
    allowed_sources: BTreeMap<Text, Vec<IpNet>>,
    allowed_sources_changed: bool,
    peering_addresses: [Option<IpAddr>; 2],
    dispatch: ChainSet,
    dispatch_changed: bool,
    maps_defined: bool,
}

/// What is reported of an endpoint: `up`, `down` or `error`, and what is programmed.
pub type Reported = (&'static str, Arc<WorkloadEndpoint>);

/// What `complete` works with.
pub(crate) struct Surroundings<'a> {
    pub(crate) renderer: &'a Renderer,
    pub(crate) planes: &'a mut [Plane],
    /// Rules about ARP, where they can be programmed.
    pub(crate) arp: Option<&'a mut (dyn RuleDriver + Send)>,
    pub(crate) policies: &'a Policies,
    pub(crate) groups: &'a mut Groups,
    pub(crate) marks: &'a mut EndpointMarks,
    pub(crate) migrations: &'a Migrations,
    pub(crate) bandwidth: &'a mut Bandwidth,
}

impl Workloads {
    /// No endpoints.
    #[must_use]
    pub fn new(settings: WorkloadSettings) -> Self {
        Self {
            settings,
            pending: BTreeMap::new(),
            active: BTreeMap::new(),
            by_interface: BTreeMap::new(),
            shadowed: BTreeMap::new(),
            unconfigured: BTreeSet::new(),
            status_changed: BTreeSet::new(),
            allowed_sources: BTreeMap::new(),
            allowed_sources_changed: true,
            peering_addresses: [None; 2],
            dispatch: ChainSet::default(),
            dispatch_changed: true,
            maps_defined: false,
        }
    }

    /// An endpoint is new or changed.
    pub fn update(&mut self, id: WorkloadEndpointId, endpoint: Arc<WorkloadEndpoint>) {
        self.pending.insert(id, Some(endpoint));
    }

    /// An endpoint is gone.
    pub fn remove(&mut self, id: WorkloadEndpointId) {
        self.pending.insert(id, None);
    }

    /// Something that an endpoint depends on changed.
    pub fn touch(&mut self, id: &WorkloadEndpointId) {
        if let Some(endpoint) = self.active.get(id) {
            self.pending.entry(id.clone()).or_insert_with(|| Some(Arc::clone(endpoint)));
        }
    }

    /// Policies are grouped in another way.
    pub fn regroup(&mut self, policies: &BTreeSet<PolicyId>) {
        if policies.is_empty() {
            return;
        }
        let uses = |endpoint: &WorkloadEndpoint| tiers_use(&endpoint.tiers, policies);
        let ids: Vec<_> =
            self.active.iter().filter(|(_, endpoint)| uses(endpoint)).map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.touch(id));
    }

    /// The settings of BGP changed.
    pub fn set_bgp(&mut self, config: &GlobalBgpConfig) {
        let new = [&config.local_workload_peering_ip_v4, &config.local_workload_peering_ip_v6]
            .map(|text| text.parse::<IpAddr>().ok());
        if new != self.peering_addresses {
            self.peering_addresses = new;
            let peers = self.active.values().filter(|endpoint| !endpoint.local_bgp_peer.is_empty());
            self.unconfigured.extend(peers.map(|endpoint| Text::from(endpoint.name.as_str())));
        }
    }

    /// An interface came up, went down or away.
    pub fn interface_changed(&mut self, name: &Text, up: bool) {
        if up && self.by_interface.contains_key(name) {
            self.unconfigured.insert(name.clone());
        }
        if let Some(id) = self.by_interface.get(name) {
            self.status_changed.insert(id.clone());
        }
    }

    /// Writes what changed to the drivers.
    pub(crate) fn complete(&mut self, around: &mut Surroundings<'_>) {
        while let Some((id, endpoint)) = self.pending.pop_first() {
            self.status_changed.insert(id.clone());
            match endpoint {
                Some(endpoint) => self.take_in(id, endpoint, around),
                None => self.give_up(&id, around),
            }
        }
        if self.allowed_sources_changed {
            for plane in around.planes.iter_mut() {
                let chain = around.renderer.rpf_skip_chain(&self.allowed_sources, plane.version);
                plane.rules.update_chain(Table::Raw, chain);
            }
            self.allowed_sources_changed = false;
        }
        if self.dispatch_changed {
            self.write_dispatch(around);
            self.dispatch_changed = false;
        }
    }

    /// The interfaces of endpoints.
    #[must_use]
    pub fn interfaces(&self) -> BTreeSet<Text> {
        self.by_interface.keys().cloned().collect()
    }

    fn take_in(
        &mut self,
        id: WorkloadEndpointId,
        endpoint: Arc<WorkloadEndpoint>,
        around: &mut Surroundings<'_>,
    ) {
        let interface = Text::from(endpoint.name.as_str());
        self.shadowed.remove(&id);
        if !names::is_interface(&interface) {
            tracing::error!(?id, %interface, "an endpoint's interface has a name that no interface can have");
            self.withdraw(&id, around);
            self.active.insert(id, endpoint);
            return;
        }
        if let Some(other) = self.by_interface.get(&interface).filter(|other| **other != id).cloned() {
            if other < id {
                tracing::info!(?id, ?other, %interface, "another endpoint has the interface; this one waits");
                self.withdraw(&id, around);
                self.shadowed.insert(id, endpoint);
                return;
            }
            tracing::info!(?id, ?other, %interface, "the endpoint takes the interface from another one");
            if let Some(shadowed) = self.withdraw(&other, around) {
                self.shadowed.insert(other.clone(), shadowed);
            }
            self.status_changed.insert(other);
        }
        if self.active.get(&id).is_some_and(|old| *old.name != *interface) {
            self.withdraw(&id, around);
        }
        self.write_chains(&interface, &endpoint, around);
        self.write_routes(&id, &interface, &endpoint, around);
        around.bandwidth.set(&interface, Limits::of(endpoint.qos_controls.as_deref()));
        let allowed = (!endpoint.allow_spoofed_source_prefixes.is_empty())
            .then(|| endpoint.allow_spoofed_source_prefixes.clone());
        let old = match allowed.clone() {
            Some(allowed) => self.allowed_sources.insert(interface.clone(), allowed),
            None => self.allowed_sources.remove(&interface),
        };
        self.allowed_sources_changed |= old != allowed;
        if self.by_interface.insert(interface.clone(), id.clone()).is_none() {
            self.enter_maps(&interface, true, around);
        }
        self.unconfigured.insert(interface);
        self.active.insert(id, endpoint);
    }

    fn give_up(&mut self, id: &WorkloadEndpointId, around: &mut Surroundings<'_>) {
        self.shadowed.remove(id);
        let Some(old) = self.withdraw(id, around) else { return };
        // Whoever waited for the interface has it now.
        let next =
            self.shadowed.iter().find(|(_, waiting)| waiting.name == old.name).map(|(id, _)| id.clone());
        if let Some((id, waiting)) = next.and_then(|id| self.shadowed.remove_entry(&id)) {
            self.pending.entry(id).or_insert(Some(waiting));
        }
    }

    /// Takes everything of an active endpoint back.
    fn withdraw(
        &mut self,
        id: &WorkloadEndpointId,
        around: &mut Surroundings<'_>,
    ) -> Option<Arc<WorkloadEndpoint>> {
        let old = self.active.remove(id)?;
        let interface = Text::from(old.name.as_str());
        if self.by_interface.get(&interface) != Some(id) {
            return Some(old);
        }
        self.by_interface.remove(&interface);
        let backend = around.renderer.backend();
        for plane in around.planes.iter_mut() {
            for chain in [EndpointChain::ToWorkload, EndpointChain::FromWorkload, EndpointChain::SetMark] {
                plane.rules.remove_chain(Table::Filter, &backend.endpoint_chain(chain, &interface));
            }
            if let Some(routes) = &mut plane.routes {
                routes.set_routes(RouteClass::LocalWorkload, &Some(interface.clone()), []);
                routes.ownership().bgp_interfaces.remove(&interface);
            }
            if let Some(addresses) = &mut plane.link_addresses {
                addresses.set(&interface, None);
            }
        }
        if let Some(arp) = &mut around.arp {
            if self.maps_defined {
                arp.set_map_entry(Table::Filter, names::ARP_DISPATCH, &interface, None);
            }
            arp.remove_chain(
                Table::Filter,
                &Backend::Nftables.endpoint_chain(EndpointChain::Arp, &interface),
            );
        }
        around.groups.set(&interface, [], around.renderer, around.planes);
        around.marks.release(&interface);
        around.bandwidth.set(&interface, Limits::default());
        self.enter_maps(&interface, false, around);
        self.unconfigured.remove(&interface);
        self.allowed_sources_changed |= self.allowed_sources.remove(&interface).is_some();
        Some(old)
    }

    fn write_chains(&mut self, interface: &Text, endpoint: &WorkloadEndpoint, around: &mut Surroundings<'_>) {
        let renderer = around.renderer;
        let tiers = TierGroups::of(&endpoint.tiers, |id| around.policies.selector(id));
        around.groups.set(interface, &tiers, renderer, around.planes);
        let mut chains: Vec<_> = renderer
            .workload_endpoint_chains(&WorkloadChains {
                interface,
                admin_up: is_admin_up(endpoint),
                tiers: &tiers,
                profiles: &endpoint.profile_ids,
                qos: endpoint.qos_controls.as_deref(),
            })
            .into();
        if renderer.config().ipvs_support {
            chains.push(renderer.set_endpoint_mark_chain(interface, around.marks.get(interface)));
        }
        for plane in around.planes.iter_mut() {
            plane.update_chains(Table::Filter, chains.iter().cloned());
        }
        if let Some(arp) = &mut around.arp {
            arp.update_chain(Table::Filter, renderer.workload_arp_chain(interface, &endpoint.ipv4_nets));
            if self.maps_defined {
                let chain = Backend::Nftables.endpoint_chain(EndpointChain::Arp, interface);
                let chain = (!endpoint.ipv4_nets.is_empty()).then_some(&chain);
                arp.set_map_entry(Table::Filter, names::ARP_DISPATCH, interface, chain);
            }
        }
    }

    fn write_routes(
        &mut self,
        id: &WorkloadEndpointId,
        interface: &Text,
        endpoint: &WorkloadEndpoint,
        around: &mut Surroundings<'_>,
    ) {
        let routing = around.migrations.routing(id);
        let mac = match endpoint.mac.as_str() {
            "" => None,
            text => text
                .parse::<MacAddress>()
                .inspect_err(|error| tracing::error!(?id, %error, "no neighbour entry for the endpoint"))
                .ok(),
        };
        for plane in around.planes.iter_mut() {
            let v6 = plane.is_v6();
            let Some(routes) = &mut plane.routes else { continue };
            match endpoint.local_bgp_peer.is_empty() {
                true => routes.ownership().bgp_interfaces.remove(interface),
                false => routes.ownership().bgp_interfaces.insert(interface.clone()),
            };
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
            routes.set_routes(RouteClass::LocalWorkload, &Some(interface.clone()), targets);
        }
    }

    /// With nftables the way to an endpoint is one entry of a map.
    fn enter_maps(&mut self, interface: &Text, present: bool, around: &mut Surroundings<'_>) {
        if around.renderer.backend() == Backend::Iptables || !self.maps_defined {
            self.dispatch_changed = true;
        } else {
            for (map, target) in [
                (names::FROM_WORKLOAD_DISPATCH, EndpointChain::FromWorkload),
                (names::TO_WORKLOAD_DISPATCH, EndpointChain::ToWorkload),
            ] {
                let chain = Backend::Nftables.endpoint_chain(target, interface);
                for plane in around.planes.iter_mut() {
                    plane.rules.set_map_entry(Table::Filter, map, interface, present.then_some(&chain));
                }
            }
        }
    }

    fn write_dispatch(&mut self, around: &mut Surroundings<'_>) {
        let interfaces = self.interfaces();
        let dispatch = around.renderer.workload_dispatch(&interfaces);
        for plane in around.planes.iter_mut() {
            dispatch.maps.iter().for_each(|map| plane.rules.update_map(Table::Filter, map.clone()));
        }
        let chains = dispatch.chains.into_iter().map(|chain| (Table::Filter, chain)).collect();
        self.dispatch.publish(around.planes, chains);
        if let Some(arp) = around.arp.as_mut().filter(|_| !self.maps_defined) {
            let has_v4 = |name: &&Text| {
                let endpoint = self.by_interface.get(*name).and_then(|id| self.active.get(id));
                endpoint.is_some_and(|endpoint| !endpoint.ipv4_nets.is_empty())
            };
            let (chain, map) =
                around.renderer.arp_dispatch(&interfaces.iter().filter(has_v4).cloned().collect());
            arp.update_map(Table::Filter, map);
            arp.update_chain(Table::Filter, chain);
        }
        self.maps_defined = true;
    }

    /// The interfaces that are up and whose kernel settings have to be written, and whether kernel checks of sources are
    /// off for them. Those that are down are forgotten until they come up.
    pub fn to_configure(&mut self, interfaces: &Interfaces) -> Vec<(Text, bool)> {
        self.unconfigured.retain(|name| interfaces.is_up(name));
        self.unconfigured.iter().map(|name| (name.clone(), self.allowed_sources.contains_key(name))).collect()
    }

    /// The address that a workload peers with, if it does; `Err` when it should and there is none.
    ///
    /// # Errors
    /// When the settings of BGP name no address.
    pub fn peering_address(&self, interface: &str, version: IpVersion) -> Result<Option<IpAddr>, String> {
        let endpoint = self.by_interface.get(interface).and_then(|id| self.active.get(id));
        let (wanted, has_nets) = match version {
            IpVersion::V4 => {
                (self.peering_addresses[0], endpoint.is_some_and(|one| !one.ipv4_nets.is_empty()))
            }
            IpVersion::V6 => {
                (self.peering_addresses[1], endpoint.is_some_and(|one| !one.ipv6_nets.is_empty()))
            }
        };
        match endpoint {
            Some(endpoint) if !endpoint.local_bgp_peer.is_empty() => match wanted {
                Some(address) => Ok(Some(address)),
                None if has_nets => {
                    Err("a workload speaks BGP, and no address to peer with is set".to_owned())
                }
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// An interface's kernel settings are written.
    pub fn configured(&mut self, interface: &Text) {
        self.unconfigured.remove(interface);
        if let Some(id) = self.by_interface.get(interface) {
            self.status_changed.insert(id.clone());
        }
    }

    /// Reports every endpoint anew that one of these tests is true for.
    pub fn mark_status(&mut self, changed: impl Fn(&WorkloadEndpoint) -> bool) {
        let ids = self.active.iter().filter(|(_, endpoint)| changed(endpoint)).map(|(id, _)| id.clone());
        self.status_changed.extend(ids.collect::<Vec<_>>());
    }

    /// The endpoints that may have another status since the last call: their status, or none when they are gone.
    pub fn take_statuses(
        &mut self,
        interfaces: &Interfaces,
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
                    } else if is_admin_up(endpoint)
                        && interfaces.is_up(interface)
                        && !self.unconfigured.contains(interface)
                    {
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

    /// The active endpoints.
    pub fn active(&self) -> impl Iterator<Item = (&WorkloadEndpointId, &Arc<WorkloadEndpoint>)> {
        self.active.iter()
    }
}

fn is_admin_up(endpoint: &WorkloadEndpoint) -> bool {
    endpoint.state == "active"
}

/// Whether tiers have one of these policies.
pub(crate) fn tiers_use(tiers: &[TierInfo], policies: &BTreeSet<PolicyId>) -> bool {
    let all = tiers.iter().flat_map(|tier| tier.ingress_policies.iter().chain(&tier.egress_policies));
    all.into_iter().any(|policy| policies.contains(policy))
}
