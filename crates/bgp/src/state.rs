//! The current objects, and the intent computed from them.
//!
//! Objects are added and removed one by one; each change marks the parts of the intent that may depend on it, and only
//! those are recalculated when the intent is requested. A service's addresses are calculated for that service alone.

use crate::calc::peers::{self, Sessions};
use crate::calc::services::ServiceNetworks;
use crate::calc::{blocks, communities, export_of_pools, kernel};
use crate::convert;
use crate::convert_filter;
use crate::extras::Extras;
use crate::facts::{Facts, LocalPeer, NodeFacts, ObjectName, Service, Settings, Slice};
use crate::intent::{BlockState, FamilyIntent, FilterName, Intent, Listen, LogLevel, Problem};
use crate::values::{InterfacePattern, Password, Prefix, Priority};
use api::scalars::names::{is_dns_subdomain, is_ignored_interface};
use api::{BGPConfigurationSpec, BGPFilterSpec, BGPPeerSpec, BindMode, BlockAffinityState, IPPoolSpec};
use model::NodeName;
use model::{AffinityType, BlockAffinity, BlockAffinityKey, IpVersion};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The name of the BGPConfiguration for all nodes.
const DEFAULT_CONFIGURATION: &str = "default";
/// The prefix of the name of a node's own BGPConfiguration.
const NODE_CONFIGURATION: &str = "node.";

/// The node does not exist: it has no BGP state until it does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {0} was not found in the datastore")]
pub struct NodeMissing(pub NodeName);

/// The current objects, and the state computed from them.
#[derive(Debug, Default)]
pub struct BgpState {
    facts: Facts,
    own_name: NodeName,
    sessions: Cached<Sessions>,
    networks: Cached<ServiceNetworks>,
    /// The announced addresses of each service, and for each address the number of services that have it.
    service_routes: BTreeMap<ObjectName, BTreeSet<Prefix>>,
    service_counts: BTreeMap<Prefix, usize>,
    dirty_services: BTreeSet<ObjectName>,
    intent: Option<Arc<Intent>>,
}

/// A part that is cached until something it depends on changes.
#[derive(Debug)]
struct Cached<T>(Option<T>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl BgpState {
    /// Creates a state that only knows the node's own settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let own_name = settings.node.clone();
        Self { facts: Facts { settings, ..Facts::default() }, own_name, ..Self::default() }
    }

    /// Sets or removes a node.
    pub fn set_node(&mut self, name: &str, node: Option<&api::Node>) {
        let name = NodeName::from(name);
        if replace(&mut self.facts.nodes, name.clone(), node.map(convert::node)) {
            self.sessions.0 = None;
            if name == self.own_name {
                self.networks.0 = None;
            }
            self.intent = None;
        }
    }

    /// Sets or removes a pool.
    pub fn set_pool(&mut self, name: &str, pool: Option<&IPPoolSpec>) {
        if replace(&mut self.facts.pools, name.to_owned(), pool.and_then(convert::pool)) {
            self.intent = None;
        }
    }

    /// Sets or removes a pool in the form of feeds, by its network.
    pub fn set_feed_pool(&mut self, network: &str, pool: Option<&model::feed::IpPool>) {
        if replace(&mut self.facts.pools, network.to_owned(), pool.map(convert::feed_pool)) {
            self.intent = None;
        }
    }

    /// Sets or removes a claim on a block. Claims of other nodes, and pending ones, are ignored.
    pub fn set_affinity(&mut self, key: &BlockAffinityKey, affinity: Option<&BlockAffinity>) {
        if key.affinity_type != AffinityType::Host || key.host != *self.own_name {
            return;
        }
        let state =
            affinity.filter(|affinity| !affinity.deleted).and_then(|affinity| match &affinity.state {
                BlockAffinityState::Pending => None,
                BlockAffinityState::Confirmed => Some(BlockState::Confirmed),
                BlockAffinityState::Unset => Some(BlockState::Implicit),
                other => Some(BlockState::Other(other.as_str().to_owned())),
            });
        if replace(&mut self.facts.blocks, Prefix::new(key.cidr), state) {
            self.intent = None;
        }
    }

    /// Sets or removes a BGPConfiguration. Names other than `default` and `node.NAME` are ignored.
    pub fn set_configuration(&mut self, name: &str, spec: Option<&BGPConfigurationSpec>) {
        let spec = spec.map(|spec| Arc::new(spec.clone()));
        if name == DEFAULT_CONFIGURATION {
            if self.facts.default != spec {
                self.facts.default = spec;
                self.networks.0 = None;
                self.sessions.0 = None;
                self.intent = None;
            }
        } else if let Some(node) = name.strip_prefix(NODE_CONFIGURATION)
            && replace(&mut self.facts.node_configurations, node.into(), spec)
        {
            self.sessions.0 = None;
            self.intent = None;
        }
    }

    /// Sets or removes a BGPPeer.
    pub fn set_peer(&mut self, name: &str, spec: Option<&BGPPeerSpec>) {
        let spec = spec.map(|spec| Arc::new(spec.clone()));
        if replace(&mut self.facts.peers, name.to_owned(), spec) {
            self.sessions.0 = None;
            self.intent = None;
        }
    }

    /// Sets the annotations of a BGPPeer; empty if it is gone.
    pub fn set_peer_annotations(&mut self, name: &str, annotations: &BTreeMap<String, String>) {
        let extras = Some(Extras::read(annotations)).filter(|extras| *extras != Extras::default());
        if replace(&mut self.facts.extras, name.to_owned(), extras) {
            self.sessions.0 = None;
            self.intent = None;
        }
    }

    /// Sets the annotations of a BGPConfiguration. Only those of the default one have an effect.
    pub fn set_configuration_annotations(&mut self, name: &str, annotations: &BTreeMap<String, String>) {
        let extras = Extras::read(annotations);
        if name == DEFAULT_CONFIGURATION && self.facts.mesh_extras != extras {
            self.facts.mesh_extras = extras;
            self.sessions.0 = None;
            self.intent = None;
        }
    }

    /// Sets or removes a BGPFilter. A name that Calico could not have accepted is refused, because it becomes part of
    /// names in the files of BIRD.
    pub fn set_filter(&mut self, name: &str, spec: Option<&BGPFilterSpec>) {
        let key = FilterName(name.to_owned());
        let (filter, problem) = match spec {
            None => (None, None),
            Some(_) if !is_dns_subdomain(name) => {
                let reason = "its name is not a DNS name".to_owned();
                (None, Some(Problem::Filter { filter: name.to_owned(), reason }))
            }
            Some(spec) => {
                let (filter, problem) = convert_filter::filter(name, spec);
                (Some(Arc::new(filter)), problem)
            }
        };
        let changed = replace(&mut self.facts.filters, key.clone(), filter);
        if replace(&mut self.facts.filter_problems, key, problem) || changed {
            self.sessions.0 = None;
            self.intent = None;
        }
    }

    /// Sets or removes a service.
    pub fn set_service(&mut self, name: &ObjectName, service: Option<Service>) {
        if replace(&mut self.facts.services, name.clone(), service) {
            self.dirty_services.insert(name.clone());
        }
    }

    /// Sets or removes an endpoint slice.
    pub fn set_slice(&mut self, name: &ObjectName, slice: Option<Slice>) {
        let former = self.facts.slice_services.get(name).cloned();
        if let Some(service) =
            former.filter(|former| slice.as_ref().is_none_or(|slice| slice.service != *former))
        {
            if let Some(slices) = self.facts.slices.get_mut(&service) {
                slices.remove(name);
                if slices.is_empty() {
                    self.facts.slices.remove(&service);
                }
            }
            self.facts.slice_services.remove(name);
            self.dirty_services.insert(service);
        }
        if let Some(slice) = slice {
            let service = slice.service.clone();
            self.facts.slice_services.insert(name.clone(), service.clone());
            if replace(self.facts.slices.entry(service.clone()).or_default(), name.clone(), Some(slice)) {
                self.dirty_services.insert(service);
            }
        }
    }

    /// Sets the keys of a secret in the namespace of this node's pod, or removes it.
    pub fn set_secret(&mut self, name: &str, keys: Option<BTreeMap<String, Password>>) {
        if replace(&mut self.facts.secrets, name.to_owned(), keys) {
            self.sessions.0 = None;
            self.intent = None;
        }
    }

    /// Sets or removes a workload of this node with a session, by the name of its status file.
    pub fn set_local_peer(&mut self, file: &str, peer: Option<LocalPeer>) {
        if replace(&mut self.facts.local_peers, file.to_owned(), peer) {
            self.sessions.0 = None;
            self.intent = None;
        }
    }

    /// The secrets that passwords refer to.
    #[must_use]
    pub fn wanted_secrets(&self) -> BTreeSet<String> {
        let mesh = self.facts.default.iter().filter_map(|spec| spec.node_mesh_password.as_ref());
        let peers = self.facts.peers.values().filter_map(|spec| spec.password.as_ref());
        let references = mesh.chain(peers).filter_map(|password| password.secret_key_ref.as_ref());
        references.map(|reference| reference.name.clone()).collect()
    }

    /// Whether any service network is configured; otherwise services do not matter.
    #[must_use]
    pub fn wants_services(&self) -> bool {
        let default = self.facts.default.as_deref();
        self.facts.settings.advertise_cluster_ips.is_some()
            || default.is_some_and(|spec| {
                !spec.service_cluster_ips.is_empty()
                    || !spec.service_external_ips.is_empty()
                    || !spec.service_load_balancer_ips.is_empty()
            })
    }

    /// Computes the node's intent.
    ///
    /// # Errors
    /// When the node does not exist.
    pub fn intent(&mut self) -> Result<Arc<Intent>, NodeMissing> {
        let Some(own) = self.facts.nodes.get(&self.own_name) else {
            return Err(NodeMissing(self.own_name.clone()));
        };
        let all_services = self.networks.0.is_none();
        let networks = self.networks.0.get_or_insert_with(|| ServiceNetworks::of(&self.facts, own));
        if all_services {
            self.dirty_services.extend(self.facts.services.keys().chain(self.service_routes.keys()).cloned());
        }
        for name in std::mem::take(&mut self.dirty_services) {
            let service = self.facts.services.get(&name);
            let routes =
                service.map(|service| networks.routes(&self.facts, &name, service)).unwrap_or_default();
            let former = if routes.is_empty() {
                self.service_routes.remove(&name)
            } else {
                self.service_routes.insert(name, routes.clone())
            }
            .unwrap_or_default();
            for route in routes.difference(&former) {
                let count = self.service_counts.entry(*route).or_insert(0);
                *count += 1;
                if *count == 1 {
                    self.intent = None;
                }
            }
            for route in former.difference(&routes) {
                if let Some(count) = self.service_counts.get_mut(route) {
                    *count -= 1;
                    if *count == 0 {
                        self.service_counts.remove(route);
                        self.intent = None;
                    }
                }
            }
        }
        if let Some(intent) = &self.intent {
            return Ok(intent.clone());
        }
        let sessions =
            self.sessions.0.get_or_insert_with(|| peers::sessions(&self.facts, &self.own_name, own)).clone();
        let announced = self.service_counts.keys().copied().collect();
        let intent = assemble(&self.facts, &self.own_name, own, sessions, networks, &announced);
        Ok(self.intent.insert(Arc::new(intent)).clone())
    }
}

/// Sets or removes an entry; returns whether that changed anything.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> bool {
    match value {
        None => map.remove(&key).is_some(),
        Some(value) => match map.get_mut(&key) {
            Some(present) if *present == value => false,
            Some(present) => {
                *present = value;
                true
            }
            None => {
                map.insert(key, value);
                true
            }
        },
    }
}

fn assemble(
    facts: &Facts,
    own_name: &NodeName,
    own: &NodeFacts,
    sessions: Sessions,
    networks: &ServiceNetworks,
    announced: &BTreeSet<Prefix>,
) -> Intent {
    let mut problems: Vec<Problem> = own.problems.clone();
    problems.extend(facts.filter_problems.values().cloned());
    problems.extend(networks.problems.iter().cloned());
    problems.extend(sessions.problems);
    let router_id = router_id(&facts.settings, own, &mut problems);
    let default = facts.default.as_deref();
    let mut ignored_interfaces = Vec::new();
    for name in default.into_iter().flat_map(|spec| &spec.ignored_interfaces) {
        if is_ignored_interface(name) {
            ignored_interfaces.push(InterfacePattern::new(name));
        } else {
            let reason = format!("ignoredInterfaces: '{name}' is not the name of an interface");
            problems.push(Problem::Setting { object: "BGPConfiguration default".to_owned(), reason });
        }
    }
    let whole = networks.whole();
    let (sessions_v4, sessions_v6, gateways) = (sessions.v4, sessions.v6, sessions.gateways);
    let mut family = |version: IpVersion, sessions| {
        let of_family = |prefix: &Prefix| prefix.version() == version;
        let mut export = export_of_pools(facts, version);
        export.blocks = blocks(facts, own, version);
        export.communities = communities(facts, own_name, version, &mut problems);
        let mut services: BTreeSet<Prefix> = announced.iter().copied().filter(of_family).collect();
        if !networks.excluded {
            services.extend(whole.iter().filter(|prefix| of_family(prefix)));
        }
        export.services = services.into_iter().collect();
        if own.cluster_id.is_some() {
            let reflected = |networks: &[Prefix]| networks.iter().copied().filter(of_family).collect();
            export.reflected_load_balancers = reflected(&networks.load_balancer);
            export.reflected_externals = reflected(&networks.external);
        }
        export.gateways =
            gateways.iter().copied().filter(|gateway| of_family(&Prefix::host(gateway.peer))).collect();
        let mut kernel = kernel(facts, own_name, own, version);
        kernel.services = whole.iter().copied().filter(of_family).collect();
        let bind = default.and_then(|spec| spec.bind_mode.as_ref()) == Some(&BindMode::NodeIP);
        FamilyIntent {
            version,
            address: own.address(version),
            listen: Listen {
                address: own.address(version).filter(|_| bind),
                port: facts.listen_port(own_name),
            },
            normal_priority: normal_priority(default, version),
            sessions,
            export,
            kernel,
        }
    };
    let (v4, v6) = (family(IpVersion::V4, sessions_v4), family(IpVersion::V6, sessions_v6));
    problems.sort();
    problems.dedup();
    Intent {
        node: own_name.clone(),
        router_id,
        local_as: facts.as_of(own),
        cluster_id: own.cluster_id,
        log_level: log_level(facts, own_name),
        ignored_interfaces,
        filters: facts.filters.clone(),
        v4,
        v6,
        problems,
    }
}

/// The configured router id, or the node's IPv4 address, or else one derived from its name: a router id has four bytes
/// in both families, and without one there can be no session.
fn router_id(settings: &Settings, own: &NodeFacts, problems: &mut Vec<Problem>) -> Ipv4Addr {
    let address = match own.address(IpVersion::V4) {
        Some(IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    match settings.router_id.as_str() {
        "hash" => hashed(&settings.node),
        "" => address.unwrap_or_else(|| hashed(&settings.node)),
        text => text.parse().unwrap_or_else(|_| {
            problems.push(Problem::Setting {
                object: "CALICO_ROUTER_ID".to_owned(),
                reason: format!("'{text}' is neither an IPv4 address nor 'hash'"),
            });
            address.unwrap_or_else(|| hashed(&settings.node))
        }),
    }
}

/// The first bytes of the name's SHA-256, moved out of the ranges that are not for hosts.
fn hashed(name: &str) -> Ipv4Addr {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(name.as_bytes());
    let first = if digest[0] > 223 { digest[0] - 32 } else { digest[0] };
    Ipv4Addr::new(first, digest[1], digest[2], digest[3])
}

/// The node's own level takes precedence over the global one. Levels other than debug and info have no meaning.
fn log_level(facts: &Facts, own_name: &NodeName) -> LogLevel {
    let of = |spec: &Arc<BGPConfigurationSpec>| match spec
        .log_severity_screen
        .as_str()
        .to_ascii_lowercase()
        .as_str()
    {
        "" => None,
        "debug" => Some(LogLevel::Debug),
        "info" => Some(LogLevel::Info),
        _ => Some(LogLevel::None),
    };
    let own = facts.node_configurations.get(own_name).and_then(of);
    own.or_else(|| facts.default.as_ref().and_then(of)).unwrap_or_default()
}

fn normal_priority(default: Option<&BGPConfigurationSpec>, version: IpVersion) -> Priority {
    let configured = default.and_then(|spec| match version {
        IpVersion::V4 => spec.ipv4_normal_route_priority,
        IpVersion::V6 => spec.ipv6_normal_route_priority,
    });
    configured.and_then(|value| u32::try_from(value).ok()).map_or(Priority::NORMAL, Priority)
}
