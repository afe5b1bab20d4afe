//! Simulates a node's kernel: resources pass through the conversion, the calculation graph and the renderer, and
//! packets through the rendered chains. Everything here is production code; the evaluator under test shares none of it.

use api::{Kind, Resource};
use calc::{CalcGraph, GraphConfig};
use messages::{
    HostEndpoint, InterfaceName, IpSetId, IpSetMember, Policy, PolicyId, Profile, ProfileName, TierInfo,
    ToDataplane, WorkloadEndpoint,
};
use model::ResourceKey;
use model::convert::{Faults, endpoint, policy, set};
use model::feed::{FeedEntry, NamespacedName, Status};
use model::names::workload_endpoint_key;
use model::v1::{HostEndpointKey, PolicyKey};
use rules::simulate::{Packet, Simulation, Verdict};
use rules::tree::{Chain, IpVersion, Table, Text};
use rules::{
    Backend, EndpointToHost, HostInterfaces, PlacedChain, PolicyGroup, Renderer, RulesConfig, TierGroups,
    WorkloadChains, names,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The entries of the feed for a resource.
pub(crate) fn entries(resource: &Resource) -> Vec<FeedEntry> {
    let (kind, namespace, name) =
        (resource.kind(), resource.namespace().to_owned(), resource.name().to_owned());
    let mut faults = Faults::new();
    let faults = &mut faults;
    let key = ResourceKey { kind, namespace: namespace.clone(), name: name.clone() };
    let policy_entry = |value| {
        let key = PolicyKey { kind, namespace: namespace.clone(), name: name.clone() };
        vec![FeedEntry::Policy(key, Some(Box::new(value)))]
    };
    let set_entry = |name, value| vec![FeedEntry::NetworkSet(name, Some(Box::new(value)))];
    match resource.clone() {
        Resource::NetworkPolicy(object) => policy_entry(policy::namespaced(&namespace, object.spec, faults)),
        Resource::KubernetesNetworkPolicy(object) => {
            policy_entry(policy::namespaced(&namespace, object.spec.0, faults))
        }
        Resource::GlobalNetworkPolicy(object) => policy_entry(policy::global(object.spec, faults)),
        Resource::StagedNetworkPolicy(object) => {
            policy::staged(&namespace, &object.spec, faults).map(policy_entry).unwrap_or_default()
        }
        Resource::StagedGlobalNetworkPolicy(object) => {
            policy::staged_global(&object.spec, faults).map(policy_entry).unwrap_or_default()
        }
        Resource::WorkloadEndpoint(object) => {
            let key = workload_endpoint_key(&key).expect("the endpoint's name");
            vec![FeedEntry::WorkloadEndpoint(key, endpoint::workload(*object, faults).map(Box::new))]
        }
        Resource::HostEndpoint(object) => {
            let key = HostEndpointKey { host: object.spec.node.as_str().into(), endpoint: name };
            vec![FeedEntry::HostEndpoint(key, Some(Box::new(endpoint::host(*object, faults))))]
        }
        Resource::NetworkSet(object) => {
            set_entry(format!("{namespace}/{name}"), set::namespaced_set(*object, faults))
        }
        Resource::GlobalNetworkSet(object) => set_entry(name, set::global_set(*object, faults)),
        Resource::Tier(object) => vec![FeedEntry::Tier(name.into(), Some(set::tier(&object.spec)))],
        Resource::Profile(object) => {
            let rules = policy::profile_rules(object.spec.clone(), faults);
            vec![
                FeedEntry::Profile(name.as_str().into(), Some(object)),
                FeedEntry::ProfileRules(name.into(), Some(Box::new(rules))),
            ]
        }
        Resource::KubernetesEndpointSlice(object) => {
            vec![FeedEntry::EndpointSlice(NamespacedName { namespace, name }, Some(object))]
        }
        _ => Vec::new(),
    }
}

/// The state of a node's dataplane.
#[derive(Default)]
struct State {
    sets: BTreeMap<IpSetId, BTreeSet<IpSetMember>>,
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    profiles: BTreeMap<ProfileName, Arc<Profile>>,
    workloads: Vec<WorkloadEndpoint>,
    /// By interface.
    hosts: BTreeMap<InterfaceName, HostEndpoint>,
}

impl State {
    fn of<'a>(host: &str, backend: Backend, resources: impl Iterator<Item = &'a Resource>) -> Self {
        let config = GraphConfig {
            host: host.into(),
            suppress_overlaps: backend == Backend::Nftables,
            ..GraphConfig::default()
        };
        let mut graph = CalcGraph::new(config);
        for entry in resources.flat_map(entries) {
            graph.on_entry(entry);
        }
        for status in [Status::WaitForDatastore, Status::ResyncInProgress, Status::InSync] {
            graph.on_status(status);
        }
        let mut messages = Vec::new();
        graph.flush(&mut messages);
        let mut state = Self::default();
        for message in messages {
            match message {
                ToDataplane::IpSetUpdate { id, members, .. } => {
                    state.sets.insert(id, members.into_iter().collect());
                }
                ToDataplane::PolicyUpdate(id, policy) => _ = state.policies.insert(id, policy),
                ToDataplane::ProfileUpdate(name, profile) => _ = state.profiles.insert(name, profile),
                ToDataplane::WorkloadEndpointUpdate(_, endpoint) => state.workloads.push(*endpoint),
                ToDataplane::HostEndpointUpdate(_, endpoint) => {
                    let interface = if endpoint.name == "*" { names::ANY_INTERFACE } else { &endpoint.name };
                    state.hosts.insert(interface.into(), *endpoint);
                }
                _ => {}
            }
        }
        state
    }

    fn groups(&self, tiers: &[TierInfo]) -> Vec<TierGroups> {
        TierGroups::of(tiers, |id| self.selector(id))
    }

    fn selector(&self, id: &PolicyId) -> Text {
        self.policies.get(id).map_or("", |policy| policy.original_selector.as_str()).into()
    }

    fn interfaces(&self, wanted: impl Fn(&HostEndpoint) -> bool) -> HostInterfaces {
        let all: BTreeSet<InterfaceName> =
            self.hosts.iter().filter(|(_, host)| wanted(host)).map(|(name, _)| name.clone()).collect();
        HostInterfaces {
            any: all.contains(names::ANY_INTERFACE),
            names: all.into_iter().filter(|name| &**name != names::ANY_INTERFACE).collect(),
        }
    }

    /// The chains of a table and the sets that they use.
    fn simulation(&self, config: &RulesConfig, table: Table, version: IpVersion) -> Simulation {
        let renderer = Renderer::new(config.clone());
        let mut simulation = Simulation::new(config.backend);
        let mut chains = renderer.fixed_chains(table, version);
        let mut groups: Vec<PolicyGroup> = Vec::new();
        let mut remember = |tiers: &[TierGroups]| {
            groups.extend(tiers.iter().flat_map(|tier| tier.ingress.iter().chain(&tier.egress)).cloned());
        };
        for (id, policy) in &self.policies {
            chains.extend(in_table(renderer.policy_chains(id, policy, version), table));
        }
        if table != Table::Raw {
            for (name, profile) in &self.profiles {
                chains.extend(in_table(renderer.profile_chains(name, profile, version), table));
            }
        }
        let all = self.interfaces(|_| true);
        match table {
            Table::Filter => {
                for workload in &self.workloads {
                    let tiers = self.groups(&workload.tiers);
                    remember(&tiers);
                    chains.extend(renderer.workload_endpoint_chains(&WorkloadChains {
                        interface: &workload.name,
                        admin_up: workload.state == "active",
                        tiers: &tiers,
                        profiles: &workload.profile_ids,
                        qos: None,
                    }));
                }
                for (name, host) in &self.hosts {
                    let (tiers, forward) = (self.groups(&host.tiers), self.groups(&host.forward_tiers));
                    remember(&tiers);
                    remember(&forward);
                    chains.extend(renderer.host_endpoint_filter_chains(
                        name,
                        &tiers,
                        &forward,
                        &host.profile_ids,
                    ));
                }
                let interfaces = self.workloads.iter().map(|one| one.name.clone()).collect();
                let dispatch = renderer.workload_dispatch(&interfaces);
                chains.extend(dispatch.chains);
                simulation.add_maps(dispatch.maps);
                chains.extend(renderer.filter_host_dispatch(&all));
                chains.push(renderer.service_loop_chain(&[], version));
            }
            Table::Mangle => {
                for (name, host) in &self.hosts {
                    let tiers = self.groups(&host.tiers);
                    remember(&tiers);
                    chains.push(renderer.host_endpoint_mangle_egress_chain(name, &tiers, &host.profile_ids));
                    if !host.pre_dnat_tiers.is_empty() {
                        let tiers = TierGroups::of_inbound(&host.pre_dnat_tiers, |id| self.selector(id));
                        remember(&tiers);
                        chains.push(renderer.host_endpoint_mangle_ingress_chain(name, &tiers));
                    }
                }
                let before_nat = self.interfaces(|host| !host.pre_dnat_tiers.is_empty());
                chains.extend(renderer.mangle_host_dispatch(&before_nat, &all));
                chains.push(renderer.egress_dscp_chain(&[], version));
            }
            Table::Raw => {
                let untracked = self.interfaces(|host| !host.untracked_tiers.is_empty()).names;
                for name in &untracked {
                    let tiers = self.groups(&self.hosts[name].untracked_tiers);
                    remember(&tiers);
                    chains.extend(renderer.host_endpoint_raw_chains(name, &tiers));
                }
                chains.extend(renderer.raw_host_dispatch(&untracked));
                chains.push(renderer.rpf_skip_chain(&BTreeMap::new(), version));
            }
            Table::Nat => {}
        }
        chains.extend(
            groups.iter().filter(|group| !group.is_inlined()).map(|group| renderer.group_chain(group)),
        );
        simulation.add_chains(chains);
        for kernel in renderer.kernel_chains(table) {
            let rules = kernel.inserted.iter().chain(&kernel.appended).cloned().collect();
            simulation.add_chains([Chain::new(kernel.name, rules)]);
        }
        for (id, members) in &self.sets {
            let own = members.iter().filter(|member| member.is_ipv6() == (version == IpVersion::V6)).copied();
            simulation.add_set(names::ip_set(version, id), own.collect());
        }
        simulation
    }
}

/// A node's three tables that can drop packets, for one IP version.
pub(crate) struct Kernel {
    raw: Simulation,
    mangle: Simulation,
    filter: Simulation,
}

impl Kernel {
    pub(crate) fn of<'a>(
        host: &str,
        backend: Backend,
        version: IpVersion,
        to_host: EndpointToHost,
        resources: impl Iterator<Item = &'a Resource>,
    ) -> Self {
        let state = State::of(host, backend, resources);
        let config = RulesConfig { backend, endpoint_to_host_action: to_host, ..RulesConfig::default() };
        Self {
            raw: state.simulation(&config, Table::Raw, version),
            mangle: state.simulation(&config, Table::Mangle, version),
            filter: state.simulation(&config, Table::Filter, version),
        }
    }

    /// A packet that arrives on an interface, and is forwarded to another or (without one) delivered to the host.
    pub(crate) fn arrives(&mut self, mut packet: Packet, from: &str, to: Option<&str>) -> bool {
        packet.in_interface = from.into();
        let early = passes(&mut self.raw, "PREROUTING", &mut packet)
            && passes(&mut self.mangle, "PREROUTING", &mut packet);
        packet.out_interface = to.unwrap_or_default().into();
        early && passes(&mut self.filter, if to.is_some() { "FORWARD" } else { "INPUT" }, &mut packet)
    }

    /// A packet that the host itself sends.
    pub(crate) fn leaves(&mut self, mut packet: Packet, to: &str) -> bool {
        packet.out_interface = to.into();
        passes(&mut self.raw, "OUTPUT", &mut packet) && passes(&mut self.filter, "OUTPUT", &mut packet)
    }
}

fn passes(table: &mut Simulation, chain: &str, packet: &mut Packet) -> bool {
    match table.run(chain, packet) {
        Ok(Verdict::Accept | Verdict::Continue) => true,
        Ok(Verdict::Drop | Verdict::Reject) => false,
        Err(error) => panic!("{chain}: {error}"),
    }
}

/// Whether the conversion above supports a kind.
pub(crate) fn is_fed(kind: Kind) -> bool {
    !matches!(kind, Kind::Node | Kind::IPPool | Kind::FelixConfiguration)
}

/// The chains of a table.
fn in_table(placed: Vec<PlacedChain>, table: Table) -> impl Iterator<Item = Chain> {
    placed.into_iter().filter(move |one| one.tables.contains(&table)).map(|one| one.chain)
}
