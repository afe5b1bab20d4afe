//! Everything that is rendered for one host: the work of the dataplane's managers, in the simplest form.

use ipnet::IpNet;
use messages::{
    HostEndpoint, InterfaceName, IpSetId, Policy, PolicyId, Profile, ProfileName, TierInfo, WorkloadEndpoint,
};
use rules::tree::{Chain, ChainName, IpVersion, KernelChain, Table, Text, VerdictMap};
use rules::{
    Backend, Direction, DscpRule, EndpointMarks, HostInterfaces, PlacedChain, PolicyGroup, Renderer,
    RulesConfig, TierGroups, UnionSet, WorkloadChains,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) config: RulesConfig,
    pub(crate) policies: BTreeMap<PolicyId, Arc<Policy>>,
    pub(crate) profiles: BTreeMap<ProfileName, Profile>,
    pub(crate) workloads: Vec<WorkloadEndpoint>,
    /// By interface, or [`rules::names::ANY_INTERFACE`].
    pub(crate) hosts: BTreeMap<InterfaceName, HostEndpoint>,
    pub(crate) nat_outgoing: bool,
    /// By external address.
    pub(crate) floating: BTreeMap<IpAddr, IpAddr>,
    pub(crate) service_ranges: Vec<IpNet>,
    pub(crate) dscp: Vec<DscpRule>,
    pub(crate) allowed_sources: BTreeMap<InterfaceName, Vec<IpNet>>,
}

pub(crate) struct Rendered {
    pub(crate) kernel: Vec<KernelChain>,
    pub(crate) chains: BTreeMap<ChainName, Chain>,
    pub(crate) maps: Vec<VerdictMap>,
    pub(crate) unions: BTreeMap<IpSetId, UnionSet>,
}

impl World {
    fn groups(&self, tiers: &[TierInfo]) -> Vec<TierGroups> {
        TierGroups::of(tiers, |id| self.selector(id))
    }

    fn selector(&self, id: &PolicyId) -> Text {
        self.policies.get(id).map_or("", |policy| policy.original_selector.as_str()).into()
    }

    fn host_interfaces(&self, wanted: impl Fn(&HostEndpoint) -> bool) -> HostInterfaces {
        let all: BTreeSet<InterfaceName> =
            self.hosts.iter().filter(|(_, host)| wanted(host)).map(|(name, _)| name.clone()).collect();
        HostInterfaces {
            any: all.contains(rules::names::ANY_INTERFACE),
            names: all.into_iter().filter(|name| &**name != rules::names::ANY_INTERFACE).collect(),
        }
    }

    pub(crate) fn render(&self, table: Table, version: IpVersion) -> Rendered {
        let renderer = Renderer::new(self.config.clone());
        let mut chains = renderer.fixed_chains(table, version);
        let mut maps = Vec::new();
        let mut unions = BTreeMap::new();
        let mut groups: Vec<PolicyGroup> = Vec::new();
        let mut remember = |tiers: &[TierGroups]| {
            groups.extend(tiers.iter().flat_map(|tier| tier.ingress.iter().chain(&tier.egress)).cloned());
        };
        for (id, policy) in self.policies.iter().filter(|_| table != Table::Nat) {
            chains.extend(policy_chains(&renderer, id, policy, table, version));
        }
        let all_hosts = self.host_interfaces(|_| true);
        match table {
            Table::Filter => {
                for (name, profile) in &self.profiles {
                    chains.extend(in_table(renderer.profile_chains(name, profile, version), table));
                }
                let mut marks = EndpointMarks::new(&self.config.marks);
                for workload in &self.workloads {
                    let tiers = self.groups(&workload.tiers);
                    match renderer.compiles_policies() {
                        true => self.compile(&renderer, &tiers, version, &mut chains, &mut unions),
                        false => remember(&tiers),
                    }
                    chains.extend(renderer.workload_endpoint_chains(&WorkloadChains {
                        interface: &workload.name,
                        admin_up: workload.state == "active",
                        tiers: &tiers,
                        profiles: &workload.profile_ids,
                        qos: workload.qos_controls.as_deref(),
                    }));
                    let mark = marks.get(&workload.name);
                    chains.push(renderer.set_endpoint_mark_chain(&workload.name, mark));
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
                    chains.push(renderer.set_endpoint_mark_chain(name, marks.get(name)));
                }
                let interfaces = self.workloads.iter().map(|one| one.name.clone()).collect();
                let dispatch = renderer.workload_dispatch(&interfaces);
                chains.extend(dispatch.chains);
                maps.extend(dispatch.maps);
                chains.extend(renderer.filter_host_dispatch(&all_hosts));
                chains.extend(renderer.endpoint_mark_dispatch(&mut marks, &interfaces, &all_hosts.names));
                chains.push(renderer.service_loop_chain(&self.service_ranges, version));
            }
            Table::Mangle => {
                for (name, profile) in &self.profiles {
                    chains.extend(in_table(renderer.profile_chains(name, profile, version), table));
                }
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
                let before_nat = self.host_interfaces(|host| !host.pre_dnat_tiers.is_empty());
                chains.extend(renderer.mangle_host_dispatch(&before_nat, &all_hosts));
                chains.push(renderer.egress_dscp_chain(&self.dscp, version));
            }
            Table::Nat => {
                chains.push(renderer.nat_outgoing_chain(self.nat_outgoing, version));
                chains.extend(renderer.floating_address_chains(&self.floating, version));
            }
            Table::Raw => {
                let untracked = self.host_interfaces(|host| !host.untracked_tiers.is_empty()).names;
                for name in &untracked {
                    let tiers = self.groups(&self.hosts[name].untracked_tiers);
                    remember(&tiers);
                    chains.extend(renderer.host_endpoint_raw_chains(name, &tiers));
                }
                chains.extend(renderer.raw_host_dispatch(&untracked));
                chains.push(renderer.rpf_skip_chain(&self.allowed_sources, version));
                chains.push(renderer.rpf_failed_chain());
            }
        }
        let not_inlined = groups.iter().filter(|group| !group.is_inlined());
        chains.extend(not_inlined.map(|group| renderer.group_chain(group)));
        let chains = chains.into_iter().map(|chain| (chain.name.clone(), chain)).collect();
        let is_short = renderer.has_short_way() && self.hosts.is_empty() && self.dscp.is_empty();
        let kernel = match is_short {
            true => renderer.short_kernel_chains(table, version),
            false => renderer.kernel_chains(table),
        };
        Rendered { kernel, chains, maps, unions }
    }

    /// The compiled policies of an endpoint. Some sets count as large, whatever they contain.
    fn compile(
        &self,
        renderer: &Renderer,
        tiers: &[TierGroups],
        version: IpVersion,
        chains: &mut Vec<Chain>,
        unions: &mut BTreeMap<IpSetId, UnionSet>,
    ) {
        chains.extend(renderer.verdict_chains());
        for tier in tiers {
            for direction in [Direction::Inbound, Direction::Outbound] {
                let Some(sequence) = tier.sequence(direction) else { continue };
                let compiled = renderer.compile(
                    &sequence,
                    |id| self.policies.get(id).map(|policy| &**policy),
                    version,
                    |id| id.ends_with('3'),
                );
                assert_eq!(compiled.chains[0].name, sequence.chain_name());
                chains.extend(compiled.chains);
                unions.extend(compiled.unions);
            }
        }
    }

    pub(crate) fn is_nftables(&self) -> bool {
        self.config.backend == Backend::Nftables
    }
}

impl Rendered {
    /// Only the chains that packets can reach, which are those that drivers program.
    pub(crate) fn programmed(mut self) -> Self {
        let mut open: Vec<ChainName> = self
            .kernel
            .iter()
            .flat_map(|chain| chain.inserted.iter().chain(&chain.appended))
            .filter_map(|rule| rule.target().cloned())
            .collect();
        let mut seen = BTreeSet::new();
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let chain =
                self.chains.get(&name).unwrap_or_else(|| panic!("a rule goes to {name}, which is missing"));
            open.extend(chain.targets().cloned());
            for map in chain.maps() {
                let map = self.maps.iter().find(|known| known.name == *map);
                open.extend(
                    map.unwrap_or_else(|| panic!("{name} looks up a missing map")).entries.values().cloned(),
                );
            }
        }
        self.chains.retain(|name, _| seen.contains(name));
        self
    }

    /// The kernel's chain with our rules in it, as a chain of its own.
    pub(crate) fn kernel_chain(&self, name: &str) -> Chain {
        let chain = self.kernel.iter().find(|chain| chain.name == name).expect("a chain of the kernel");
        Chain::new(name, chain.inserted.iter().chain(&chain.appended).cloned().collect())
    }
}

/// The chains of a policy in a table, also in those that its kind does not use: endpoints here name any policy
/// anywhere.
fn policy_chains(
    renderer: &Renderer,
    id: &PolicyId,
    policy: &Policy,
    table: Table,
    version: IpVersion,
) -> Vec<Chain> {
    let own: Vec<Chain> = in_table(renderer.policy_chains(id, policy, version), table).collect();
    if own.len() == 2 {
        return own;
    }
    let (untracked, pre_dnat) = (table == Table::Raw, table == Table::Mangle);
    let elsewhere = Policy { untracked, pre_dnat, ..policy.clone() };
    in_table(renderer.policy_chains(id, &elsewhere, version), table).collect()
}

/// The chains in a table.
fn in_table(placed: Vec<PlacedChain>, table: Table) -> impl Iterator<Item = Chain> {
    placed.into_iter().filter(move |one| one.tables.contains(&table)).map(|one| one.chain)
}
