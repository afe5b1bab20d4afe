//! The graph itself: which parts receive which entries, and the order in which they run at a flush.

use crate::members::Members;
use crate::network::{Network, NetworkSettings};
use crate::policy::{ActiveRules, ComputedSources, ISTIO_SET, LocalEndpoint, istio_selector};
use crate::population::{ItemKey, Population, Put, pack_host, pack_network_set, pack_workload};
use crate::rules::{SetRegistry, SetSpec};
use crate::sequencer::{MemberSource, Sequencer, SetIndex, Source};
use crate::service_index::ServiceIndex;
use crate::set_matcher::{Output, SetMatcher};
use crate::stats::{HostCounts, Stats};
use api::KubernetesEndpointSlice;
use messages::{
    HostEndpointName, IpSetMember, NodeName, Policy, PolicyId, ProfileName, Text, ToDataplane,
    WorkloadEndpointId,
};
use model::feed::{
    FeedEntry, HostEndpoint, NamespacedName, NetworkSet, Node, Status, TextMap, WorkloadEndpoint,
};
use model::v1::{HostEndpointKey, WorkloadEndpointKey};

/// The settings of the graph.
#[derive(Clone, Debug, Default)]
pub struct GraphConfig {
    /// The name of this host, as it is in endpoints and nodes.
    pub host: NodeName,
    /// Whether a member of a set that lies within another member is left out; nftables accepts no overlaps.
    pub suppress_overlaps: bool,
    /// Whether workloads of Istio's ambient mesh are marked in their messages, and put into a set.
    pub istio_ambient: bool,
    /// Whether workload endpoints may use source addresses that are not theirs. If not, an endpoint that wants to is
    /// treated as missing.
    pub allows_source_spoofing: bool,
    /// Whether the dataplane serves services itself, and so receives services and endpoint slices with all their
    /// fields.
    pub serves_services: bool,
    /// The settings of the network half.
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
    /// Creates an empty graph.
    #[must_use]
    pub fn new(config: GraphConfig) -> Self {
        let mut registry = SetRegistry::default();
        if config.istio_ambient {
            // This set is always in use; its reference is never released.
            registry.acquire(SetSpec::Fixed { id: ISTIO_SET, selector: istio_selector() });
        }
        Self {
            active: ActiveRules::new(ComputedSources::new(config.host.clone(), config.istio_ambient)),
            network: Network::new(config.host.clone(), config.network),
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

    /// Applies one entry of the feed. Nothing is sent before the next flush.
    pub fn on_entry(&mut self, mut entry: FeedEntry) {
        if let FeedEntry::WorkloadEndpoint(key, value) = &mut entry
            && let Some(reason) = value.as_deref().and_then(|endpoint| self.refusal(endpoint))
        {
            tracing::warn!(?key, reason, "the workload endpoint is treated as missing");
            *value = None;
        }
        self.network.on_entry(&entry, &mut self.sequencer);
        match entry {
            FeedEntry::WorkloadEndpoint(key, Some(endpoint)) => self.put_workload(&key, endpoint),
            FeedEntry::WorkloadEndpoint(key, None) => self.remove_item(&ItemKey::from(&key)),
            FeedEntry::HostEndpoint(key, Some(endpoint)) => self.put_host(&key, endpoint),
            FeedEntry::HostEndpoint(key, None) => self.remove_item(&ItemKey::from(&key)),
            FeedEntry::NetworkSet(name, Some(set)) => self.put_network_set(&name, &set),
            FeedEntry::NetworkSet(name, None) => self.remove_item(&ItemKey::NetworkSet { name: &name }),
            FeedEntry::Policy(key, Some(policy)) => {
                self.active.put_policy(&key, &policy, &mut self.population);
            }
            FeedEntry::Policy(key, None) => {
                self.active.remove_policy(&key, &mut self.population, &mut self.sequencer);
            }
            FeedEntry::Tier(name, tier) => self.active.set_tier(&name, tier),
            FeedEntry::ProfileRules(name, rules) => {
                self.active.set_profile_rules(&name, rules.as_deref(), &mut self.population);
            }
            FeedEntry::Profile(name, profile) => {
                let labels = profile.map(|profile| profile.spec.labels_to_apply).unwrap_or_default();
                self.set_profile_labels(&name, &labels);
            }
            FeedEntry::HostConfig(key, text) => self.hosts.set_entry(&key.host, &key.name, text.is_some()),
            FeedEntry::Node(name, node) => self.set_node(&name, node),
            FeedEntry::EndpointSlice(key, slice) => self.set_slice(key, slice),
            FeedEntry::Service(key, service) if self.config.serves_services => {
                self.sequencer.service_object(key, service);
            }
            FeedEntry::BgpPeer(name, peer) => self.active.computed.set_peer(&name, peer.map(|peer| *peer)),
            FeedEntry::LiveMigration(key, migration) => {
                self.active.computed.set_migration(key, migration.map(|migration| *migration));
            }
            // These concern only the network half, or nothing in this crate.
            FeedEntry::Ready(..)
            | FeedEntry::GlobalConfig(..)
            | FeedEntry::FelixConfiguration(..)
            | FeedEntry::IpPool(..)
            | FeedEntry::Wireguard(..)
            | FeedEntry::Block(..)
            | FeedEntry::BlockAffinity(..)
            | FeedEntry::BgpConfiguration(..)
            | FeedEntry::BgpFilter(..)
            | FeedEntry::Service(..)
            | FeedEntry::NodeStatus(..)
            | FeedEntry::Resource(..) => {}
        }
    }

    /// Returns why nothing is programmed for a workload endpoint, on whichever host: no policy may rely on its
    /// addresses.
    fn refusal(&self, endpoint: &WorkloadEndpoint) -> Option<&'static str> {
        if endpoint.name.is_empty() {
            return Some("it does not name its interface");
        }
        (!endpoint.allow_spoofed_source_prefixes.is_empty() && !self.config.allows_source_spoofing)
            .then_some("it asks for foreign source addresses; set Felix's parameter WorkloadSourceSpoofing to Any to allow that")
    }

    /// Applies the status of the feed.
    pub fn on_status(&mut self, status: Status) {
        self.network.on_status(status, &mut self.sequencer);
        if status == Status::InSync && self.in_sync == InSync::NotYet {
            self.in_sync = InSync::ToBeSent;
        }
    }

    /// Sends what changed since the last flush, in an order that is safe to apply.
    ///
    /// Until the feed is in sync for the first time, nothing about policy is sent: a policy that has not arrived yet
    /// might restrict an endpoint.
    pub fn flush(&mut self, out: &mut Vec<ToDataplane>) {
        self.flush_each(|message| out.push(message));
    }

    /// Does what [`Self::flush`] does, one message at a time: together, the messages of a first flush are larger than
    /// the graph.
    pub fn flush_each(&mut self, mut sink: impl FnMut(ToDataplane)) {
        if self.in_sync != InSync::NotYet {
            self.resolve();
        }
        self.network.flush(&mut self.sequencer);
        let mut contents =
            Contents { members: &self.members, active: &self.active, registry: &self.registry };
        self.sequencer.flush(&mut contents, &mut sink);
        if self.in_sync == InSync::ToBeSent {
            self.in_sync = InSync::Sent;
            sink(ToDataplane::InSync);
        }
    }

    /// Returns the figures for metrics.
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

    fn put_workload(&mut self, key: &WorkloadEndpointKey, endpoint: Box<WorkloadEndpoint>) {
        let mut packed = std::mem::take(&mut self.scratch);
        pack_workload(&endpoint, &mut packed);
        let item = ItemKey::from(key);
        let put = self.population.put(&item, &endpoint.labels, &endpoint.profile_ids, &packed);
        self.scratch = packed;
        if key.host == self.config.host {
            let id = WorkloadEndpointId {
                orchestrator: Text::from(key.orchestrator.as_str()),
                workload: Text::from(key.workload.as_str()),
                endpoint: Text::from(key.endpoint.as_str()),
            };
            self.put_local(&put, LocalEndpoint::Workload(id, endpoint));
        }
        self.put_item(&item, put);
    }

    fn put_host(&mut self, key: &HostEndpointKey, endpoint: Box<HostEndpoint>) {
        let mut packed = std::mem::take(&mut self.scratch);
        pack_host(&endpoint, &mut packed);
        let item = ItemKey::from(key);
        let put = self.population.put(&item, &endpoint.labels, &endpoint.profile_ids, &packed);
        self.scratch = packed;
        if key.host == self.config.host {
            self.put_local(
                &put,
                LocalEndpoint::Host(HostEndpointName::from(key.endpoint.as_str()), endpoint),
            );
        }
        self.put_item(&item, put);
    }

    fn put_network_set(&mut self, name: &str, set: &NetworkSet) {
        let mut packed = std::mem::take(&mut self.scratch);
        pack_network_set(set, &mut packed);
        let item = ItemKey::NetworkSet { name };
        let put = self.population.put(&item, &set.labels, &set.profile_ids, &packed);
        self.scratch = packed;
        self.put_item(&item, put);
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
        if key.host() == Some(&self.config.host) {
            self.active.remove_local(id, &mut self.sequencer);
        }
        let mut output = Output { members: &mut self.members, told: &mut self.sequencer.ip_sets };
        self.matcher.removed(id, &item, &mut self.population, &mut output);
    }

    fn set_node(&mut self, name: &NodeName, node: Option<Box<Node>>) {
        self.hosts.set_entry(name, "", node.is_some());
        if *name == self.config.host {
            let labels = node.map(|node| node.object.metadata.labels).unwrap_or_default();
            self.active.computed.set_node_labels(labels);
        }
    }

    fn set_slice(&mut self, key: NamespacedName, slice: Option<Box<KubernetesEndpointSlice>>) {
        let mut output = Output { members: &mut self.members, told: &mut self.sequencer.ip_sets };
        self.services.set_slice(&key.namespace, &key.name, slice.as_deref(), &mut output);
        if self.config.serves_services {
            self.sequencer.slice_object(key, slice);
        }
    }

    fn set_profile_labels(&mut self, name: &ProfileName, labels: &TextMap) {
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

/// What the sequencer reads when it sends.
struct Contents<'a> {
    members: &'a Members,
    active: &'a ActiveRules,
    registry: &'a SetRegistry,
}

impl MemberSource for Contents<'_> {
    fn members(&self, set: SetIndex) -> Vec<IpSetMember> {
        self.members.members(set)
    }
}

impl Source for Contents<'_> {
    fn policy(&mut self, id: &PolicyId) -> Policy {
        self.active.message(id, self.registry)
    }
}
