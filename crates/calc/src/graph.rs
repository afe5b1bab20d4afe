//! The graph itself: which part hears of what, and in which order they are asked at a flush.

use crate::members::Members;
use crate::network::{Network, NetworkSettings};
use crate::policy::{ActiveRules, ComputedSources, ISTIO_SET, LocalEndpoint, istio_selector};
use crate::population::{ItemKey, Population, Put, pack_host, pack_network_set, pack_workload};
use crate::rules::{LookingUp, RuleScanner, SetRegistry, SetSpec};
use crate::sequencer::{MemberSource, Sequencer, SetIndex, Source};
use crate::service_index::ServiceIndex;
use crate::set_matcher::{Output, SetMatcher};
use crate::stats::{HostCounts, Stats};
use api::{Kind, Resource};
use messages::{IpSetMember, Policy, PolicyId, Text, ToDataplane, WorkloadEndpointId};
use model::feed::{FeedValue, HostEndpoint, NetworkSet, Status, TextMap, Update, WorkloadEndpoint};
use model::{Key, ResourceKey, V1Key};

/// What the graph must know about its host.
#[derive(Clone, Debug, Default)]
pub struct GraphConfig {
    /// The name of this host, as endpoints and nodes carry it.
    pub host: String,
    /// Whether a member of a set that lies within another member is left out: nftables cannot hold both.
    pub suppress_overlaps: bool,
    /// Whether workloads of Istio's ambient mesh are marked.
    pub istio_ambient: bool,
    /// Whether workload endpoints may ask for source addresses that are not theirs. If not, one that asks is treated as
    /// missing.
    pub allows_source_spoofing: bool,
    /// What the network half must know.
    pub network: NetworkSettings,
}

/// The calculation graph of one host.
#[derive(Debug)]
pub struct CalcGraph {
    config: GraphConfig,
    population: Population,
    active: ActiveRules,
    registry: SetRegistry,
    matcher: SetMatcher,
    services: ServiceIndex,
    members: Members,
    network: Network,
    sequencer: Sequencer,
    hosts: HostCounts,
    in_sync: InSync,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InSync {
    NotYet,
    ToBeSent,
    Sent,
}

impl CalcGraph {
    /// A graph that knows nothing yet.
    #[must_use]
    pub fn new(config: GraphConfig) -> Self {
        let mut registry = SetRegistry::default();
        if config.istio_ambient
            && let Some(selector) = istio_selector()
        {
            // This set is always in use; the reference to it is never given back.
            registry.acquire(SetSpec::Fixed { id: ISTIO_SET, selector });
        }
        Self {
            active: ActiveRules::new(ComputedSources::new(&config.host, config.istio_ambient)),
            network: Network::new(Text::from(config.host.as_str()), config.network),
            config,
            population: Population::default(),
            registry,
            matcher: SetMatcher::default(),
            services: ServiceIndex::default(),
            members: Members::default(),
            sequencer: Sequencer::default(),
            hosts: HostCounts::default(),
            in_sync: InSync::NotYet,
            scratch: Vec::new(),
        }
    }

    /// Takes in one entry of the feed. Nothing is sent before the next flush.
    pub fn on_update(&mut self, mut update: Update) {
        if !update.value.as_ref().is_none_or(|value| fits(&update.key, value)) {
            tracing::error!(key = %update.key, "the feed delivered a value of another kind than its key; it is ignored");
            return;
        }
        if let Some(FeedValue::WorkloadEndpoint(endpoint)) = &update.value
            && let Some(reason) = self.refusal(endpoint)
        {
            tracing::warn!(endpoint = %update.key, reason, "the workload endpoint is treated as missing");
            update.value = None;
        }
        self.network.on_update(&update, &mut self.sequencer);
        let Update { key, value, .. } = update;
        match &key {
            Key::V1(
                V1Key::WorkloadEndpoint { .. } | V1Key::HostEndpoint { .. } | V1Key::NetworkSet { .. },
            ) => {
                self.on_item(&key, value);
            }
            Key::V1(V1Key::Policy(policy)) => match value {
                Some(FeedValue::Policy(value)) => {
                    self.active.put_policy(policy, &value, &mut self.population);
                }
                None => self.active.remove_policy(policy, &mut self.population, &mut self.sequencer),
                Some(_) => {}
            },
            Key::V1(V1Key::Tier { name }) => match value {
                Some(FeedValue::Tier(tier)) => self.active.set_tier(name, Some(tier)),
                None => self.active.set_tier(name, None),
                Some(_) => {}
            },
            Key::V1(V1Key::ProfileRules { name }) => match value {
                Some(FeedValue::ProfileRules(rules)) => {
                    self.active.set_profile_rules(name, Some(&rules), &mut self.population);
                }
                None => self.active.set_profile_rules(name, None, &mut self.population),
                Some(_) => {}
            },
            Key::V1(V1Key::HostConfig { host, name }) => self.hosts.set_entry(host, name, value.is_some()),
            Key::Resource(resource) => self.on_resource(resource, value),
            _ => {}
        }
    }

    /// Why nothing is programmed for a workload endpoint, wherever it is: nobody may take its addresses for granted.
    fn refusal(&self, endpoint: &WorkloadEndpoint) -> Option<&'static str> {
        if endpoint.name.is_empty() {
            return Some("it does not name its interface");
        }
        (!endpoint.allow_spoofed_source_prefixes.is_empty() && !self.config.allows_source_spoofing)
            .then_some("it asks for foreign source addresses; set Felix's parameter WorkloadSourceSpoofing to Any to allow that")
    }

    /// Takes in how far the feed has come.
    pub fn on_status(&mut self, status: Status) {
        self.network.on_status(status, &mut self.sequencer);
        if status == Status::InSync && self.in_sync == InSync::NotYet {
            self.in_sync = InSync::ToBeSent;
        }
    }

    /// Sends what changed since the last flush, in an order that is safe to apply.
    ///
    /// Until the feed is in sync for the first time, nothing about policy is sent: what is not known yet might be what
    /// restricts an endpoint.
    pub fn flush(&mut self, out: &mut Vec<ToDataplane>) {
        self.flush_each(|message| out.push(message));
    }

    /// The same, one message at a time: the messages of a first flush together are larger than the graph.
    pub fn flush_each(&mut self, mut sink: impl FnMut(ToDataplane)) {
        if self.in_sync != InSync::NotYet {
            self.resolve();
        }
        self.network.flush(&mut self.sequencer);
        let mut contents = Contents {
            members: &self.members,
            active: &self.active,
            scanner: RuleScanner::of_known(&self.registry),
        };
        self.sequencer.flush(&mut contents, &mut sink);
        if self.in_sync == InSync::ToBeSent {
            self.in_sync = InSync::Sent;
            sink(ToDataplane::InSync);
        }
    }

    /// Figures for metrics.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let policy = self.active.counts();
        let matcher = self.matcher.counts();
        let (optimized, unoptimized) = self.matcher.selector_counts();
        Stats {
            active_local_endpoints: policy.local_endpoints,
            active_local_policies: policy.active_policies,
            active_local_selectors: self.registry.len(),
            cluster_num_hosts: self.hosts.hosts(),
            cluster_num_workload_endpoints: self.hosts.workload_endpoints,
            cluster_num_host_endpoints: self.hosts.host_endpoints,
            cluster_num_tiers: policy.tiers,
            cluster_num_policies: policy.policies,
            cluster_num_profiles: policy.profiles,
            label_index_num_endpoints: self.population.item_count(),
            label_index_selectors_optimized: optimized,
            label_index_selectors_unoptimized: unoptimized,
            label_index_evaluations_true: matcher.evaluations_true,
            label_index_evaluations_false: matcher.evaluations_false,
            label_index_lookups_by_value: matcher.lookups_by_value,
            label_index_lookups_by_name: matcher.lookups_by_name,
            label_index_lookups_of_nobody: matcher.lookups_of_nobody,
            label_index_full_scans: matcher.full_scans,
        }
    }

    fn resolve(&mut self) {
        self.active.resolve(&mut self.population, &mut self.registry, &mut self.sequencer);
        let new = self.registry.take_new();
        if new.len() > 1 {
            self.matcher.prepare(new.iter().filter_map(|(_, _, spec)| spec.selector()), &self.population);
        }
        for (set, id, spec) in new {
            let set_type = spec.set_type();
            let suppress = self.config.suppress_overlaps && !matches!(spec, SetSpec::Service { .. });
            self.members.open(set, set_type, suppress);
            self.sequencer.ip_sets.add(set, id, set_type);
            let mut output = Output { members: &mut self.members, told: &mut self.sequencer.ip_sets };
            match spec {
                SetSpec::Selector(selector) | SetSpec::Fixed { selector, .. } => {
                    self.matcher.open(set, &selector, None, &mut self.population, &mut output);
                }
                SetSpec::NamedPort { selector, protocol, name } => {
                    let port = Some((name.as_str(), protocol));
                    self.matcher.open(set, &selector, port, &mut self.population, &mut output);
                }
                SetSpec::Service { service, with_ports } => {
                    self.services.open(set, &service, with_ports, &mut output);
                }
            }
        }
        for (set, is_service) in self.registry.take_idle() {
            if is_service {
                self.services.close(set);
            } else {
                self.matcher.close(set, &mut self.population);
            }
            self.members.close(set);
            self.sequencer.ip_sets.remove(set);
        }
        self.matcher.tidy();
    }

    fn on_item(&mut self, key: &Key, value: Option<FeedValue>) {
        let Some(item) = ItemKey::of(key) else { return };
        match (value, key) {
            (None, _) => self.remove_item(&item),
            (Some(FeedValue::WorkloadEndpoint(endpoint)), Key::V1(V1Key::WorkloadEndpoint { .. })) => {
                self.put_workload(&item, endpoint);
            }
            (Some(FeedValue::HostEndpoint(endpoint)), Key::V1(V1Key::HostEndpoint { .. })) => {
                self.put_host(&item, endpoint);
            }
            (Some(FeedValue::NetworkSet(set)), Key::V1(V1Key::NetworkSet { .. })) => {
                self.put_network_set(&item, &set);
            }
            (Some(_), _) => {}
        }
    }

    fn put_workload(&mut self, key: &ItemKey<'_>, endpoint: Box<WorkloadEndpoint>) {
        let mut packed = std::mem::take(&mut self.scratch);
        pack_workload(&endpoint, &mut packed);
        let put = self.population.put(key, &endpoint.labels, &endpoint.profile_ids, &packed);
        self.scratch = packed;
        let is_local = key.host() == Some(self.config.host.as_str());
        if let (ItemKey::Workload { orchestrator, workload, endpoint: name, .. }, true) = (key, is_local) {
            let id = WorkloadEndpointId {
                orchestrator: Text::from(*orchestrator),
                workload: Text::from(*workload),
                endpoint: Text::from(*name),
            };
            self.put_local(&put, LocalEndpoint::Workload(id, endpoint));
        }
        self.put_item(key, put);
    }

    fn put_host(&mut self, key: &ItemKey<'_>, endpoint: Box<HostEndpoint>) {
        let mut packed = std::mem::take(&mut self.scratch);
        pack_host(&endpoint, &mut packed);
        let put = self.population.put(key, &endpoint.labels, &endpoint.profile_ids, &packed);
        self.scratch = packed;
        let is_local = key.host() == Some(self.config.host.as_str());
        if let (ItemKey::Host { endpoint: name, .. }, true) = (key, is_local) {
            self.put_local(&put, LocalEndpoint::Host(Text::from(*name), endpoint));
        }
        self.put_item(key, put);
    }

    fn put_network_set(&mut self, key: &ItemKey<'_>, set: &NetworkSet) {
        let mut packed = std::mem::take(&mut self.scratch);
        pack_network_set(set, &mut packed);
        let put = self.population.put(key, &set.labels, &set.profile_ids, &packed);
        self.scratch = packed;
        self.put_item(key, put);
    }

    fn put_local(&mut self, put: &Put, endpoint: LocalEndpoint) {
        let (item, rematch) = match put {
            Put::New(item) | Put::Changed(item, _) => (*item, true),
            Put::Same(item) => (*item, false),
        };
        self.active.put_local(item, endpoint, rematch);
    }

    fn put_item(&mut self, key: &ItemKey<'_>, put: Put) {
        if matches!(put, Put::New(_)) {
            self.hosts.count(key, true);
        }
        let mut output = Output { members: &mut self.members, told: &mut self.sequencer.ip_sets };
        self.matcher.put(put, &mut self.population, &mut output);
    }

    fn remove_item(&mut self, key: &ItemKey<'_>) {
        let Some((id, item)) = self.population.remove(key) else { return };
        self.hosts.count(key, false);
        if key.host() == Some(self.config.host.as_str()) {
            self.active.remove_local(id, &mut self.sequencer);
        }
        let mut output = Output { members: &mut self.members, told: &mut self.sequencer.ip_sets };
        self.matcher.removed(id, &item, &mut self.population, &mut output);
    }

    fn on_resource(&mut self, key: &ResourceKey, value: Option<FeedValue>) {
        let resource = match value {
            Some(FeedValue::Resource(resource)) => Some(*resource),
            _ => None,
        };
        match (key.kind, resource) {
            (Kind::Profile, Some(Resource::Profile(profile))) => {
                self.set_profile_labels(&key.name, &profile.spec.labels_to_apply);
            }
            (Kind::Profile, _) => self.set_profile_labels(&key.name, &TextMap::new()),
            (Kind::KubernetesEndpointSlice, resource) => {
                let slice = match &resource {
                    Some(Resource::KubernetesEndpointSlice(slice)) => Some(&**slice),
                    _ => None,
                };
                let mut output = Output { members: &mut self.members, told: &mut self.sequencer.ip_sets };
                self.services.set_slice(&key.namespace, &key.name, slice, &mut output);
            }
            (Kind::Node, resource) => {
                self.hosts.set_entry(&key.name, "", resource.is_some());
                if key.name == self.config.host {
                    let labels = resource.map(|node| node.metadata().labels.clone()).unwrap_or_default();
                    self.active.computed.set_node_labels(labels);
                }
            }
            (Kind::BGPPeer, Some(Resource::BGPPeer(peer))) => {
                self.active.computed.set_peer(&key.name, Some(&peer));
            }
            (Kind::BGPPeer, _) => self.active.computed.set_peer(&key.name, None),
            (Kind::LiveMigration, Some(Resource::LiveMigration(migration))) => {
                self.active.computed.set_migration(key, Some(&migration));
            }
            (Kind::LiveMigration, _) => self.active.computed.set_migration(key, None),
            _ => {}
        }
    }

    fn set_profile_labels(&mut self, name: &str, labels: &TextMap) {
        if labels.is_empty() && self.population.find_parent(name).is_none() {
            return;
        }
        let parent = self.population.get_or_add_parent(name);
        if let Some(before) = self.population.set_parent_labels(parent, labels) {
            if let Some(row) = self.population.parent(parent) {
                self.active.parent_changed(row.items.as_slice());
            }
            let mut output = Output { members: &mut self.members, told: &mut self.sequencer.ip_sets };
            self.matcher.parent_changed(parent, before, &mut self.population, &mut output);
        }
        self.population.drop_parent_if_unused(parent);
    }
}

/// What the sequencer asks for when it sends.
struct Contents<'a> {
    members: &'a Members,
    active: &'a ActiveRules,
    scanner: RuleScanner<LookingUp<'a>>,
}

impl MemberSource for Contents<'_> {
    fn members(&self, set: SetIndex) -> Vec<IpSetMember> {
        self.members.members(set)
    }
}

impl Source for Contents<'_> {
    fn policy(&mut self, id: &PolicyId) -> Policy {
        self.active.message(id, &mut self.scanner)
    }
}

/// Whether a value is of the kind that its key says. Only keys that some part looks at are checked.
fn fits(key: &Key, value: &FeedValue) -> bool {
    match key {
        Key::Resource(key) => matches!(value, FeedValue::Resource(resource) if resource.kind() == key.kind),
        Key::Block { .. } => matches!(value, FeedValue::Block(_)),
        Key::V1(key) => match key {
            V1Key::HostConfig { .. } => matches!(value, FeedValue::Text(_)),
            V1Key::Wireguard { .. } => matches!(value, FeedValue::Wireguard(_)),
            V1Key::WorkloadEndpoint { .. } => matches!(value, FeedValue::WorkloadEndpoint(_)),
            V1Key::HostEndpoint { .. } => matches!(value, FeedValue::HostEndpoint(_)),
            V1Key::NetworkSet { .. } => matches!(value, FeedValue::NetworkSet(_)),
            V1Key::Policy(_) => matches!(value, FeedValue::Policy(_)),
            V1Key::Tier { .. } => matches!(value, FeedValue::Tier(_)),
            V1Key::ProfileRules { .. } => matches!(value, FeedValue::ProfileRules(_)),
            V1Key::IpPool { .. } => matches!(value, FeedValue::IpPool(_)),
            _ => true,
        },
        _ => true,
    }
}
