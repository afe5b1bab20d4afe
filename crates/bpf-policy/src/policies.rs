//! From messages to tables, step by step: a message marks what it changes, and [`Policies::flush`] recomputes each
//! marked thing once, at a cost proportional to the changes: an address that joins a set costs as much as the lists
//! that use the set, not the cluster.

use crate::classes::Classes;
use crate::conditions::Atom;
use crate::layout::{ClassId, ListId, Lists};
use crate::list::{List, Owners, TooLarge};
use crate::members::{Member, Members, single};
use crate::parts::{Parts, Pool, Shared};
use crate::slab::Slab;
use crate::spec::{self, Spec, Specs};
use crate::tables::{EndpointId, EndpointLists, Tables};
use hashbrown::{HashMap, HashSet};
use messages::{IpSetId, IpSetMember, PolicyId, ProfileName, Rule, ToDataplane};
use model::IpVersion;
use rules::names;
use rules::nflog::OwnerKind;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The policies, sets and endpoints of this host, and the tables that follow from them.
#[derive(Debug, Default)]
pub struct Policies {
    known: Known,
    sets: HashMap<IpSetId, HashSet<Member>>,
    endpoints: BTreeMap<EndpointId, Endpoint>,
    /// A spec may name thousands of policies, so it is interned and referred to by number.
    specs: Slab<SpecState>,
    spec_numbers: HashMap<Arc<Spec>, u32>,
    /// The specs that refer to a policy or profile.
    named_by: HashMap<Owner, HashSet<u32>>,
    lists: HashMap<ListId, ListState>,
    /// The number of lists with rules that log.
    logging: usize,
    classes: Classes,
    members: Members,
    marked_specs: BTreeSet<u32>,
    marked_endpoints: BTreeSet<EndpointId>,
    /// Former lists of specs that got another one.
    left: Vec<ListId>,
    tables: Tables,
}

#[derive(Debug, Default)]
struct Known {
    policies: HashMap<PolicyId, Parts>,
    profiles: HashMap<ProfileName, Parts>,
    conditions: Pool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Policy(PolicyId),
    Profile(ProfileName),
}

#[derive(Debug)]
struct Endpoint {
    interface: String,
    specs: [[Option<u32>; 9]; 2],
}

#[derive(Debug)]
struct SpecState {
    spec: Arc<Spec>,
    /// 0 until the list is built.
    list: ListId,
    problem: Option<TooLarge>,
    endpoints: BTreeSet<EndpointId>,
}

#[derive(Debug)]
struct ListState {
    /// The number of specs that use it.
    users: usize,
    has_logs: bool,
}

impl Owners for Known {
    fn policy(&self, id: &PolicyId) -> Option<&Parts> {
        self.policies.get(id)
    }

    fn profile(&self, name: &ProfileName) -> Option<&Parts> {
        self.profiles.get(name)
    }

    fn always(&self) -> &Arc<Shared> {
        self.conditions.always()
    }
}

impl Known {
    /// Sets the rules of a policy or profile, inbound and outbound; `None` removes it.
    fn set(&mut self, owner: &Owner, rules: Option<[&[Rule]; 2]>) {
        let old = match owner {
            Owner::Policy(id) => {
                let take = |rules| self.conditions.take(rules, OwnerKind::Policy, &names::policy_id(id));
                exchange_parts(&mut self.policies, id, rules.map(take))
            }
            Owner::Profile(name) => {
                let take = |rules| self.conditions.take(rules, OwnerKind::Profile, name);
                exchange_parts(&mut self.profiles, name, rules.map(take))
            }
        };
        old.into_iter().for_each(|old| self.conditions.release(old));
    }
}

fn exchange_parts<K: Clone + Eq + std::hash::Hash>(
    all: &mut HashMap<K, Parts>,
    key: &K,
    parts: Option<Parts>,
) -> Option<Parts> {
    match parts {
        Some(parts) => all.insert(key.clone(), parts),
        None => all.remove(key),
    }
}

fn owners(spec: &Spec) -> impl Iterator<Item = Owner> {
    let policies = spec.tiers.iter().flat_map(|tier| &tier.policies).cloned().map(Owner::Policy);
    policies.chain(spec.profiles.iter().cloned().map(Owner::Profile))
}

impl Policies {
    /// The tables as of the last [`Self::flush`].
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The tables as of the last [`Self::flush`], for a driver that takes the changed keys.
    pub fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// The number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// The number of lists.
    #[must_use]
    pub fn lists(&self) -> usize {
        self.lists.len()
    }

    /// The number of different conditions of rules.
    #[must_use]
    pub fn conditions(&self) -> usize {
        self.known.conditions.len()
    }

    /// Whether any list has rules that log.
    #[must_use]
    pub fn has_logs(&self) -> bool {
        self.logging > 0
    }

    /// The endpoints whose packets are denied because their policy does not fit, with the reason.
    pub fn problems(&self) -> impl Iterator<Item = (&EndpointId, TooLarge)> {
        self.specs.iter().flat_map(|spec| {
            spec.problem.into_iter().flat_map(|why| spec.endpoints.iter().map(move |id| (id, why)))
        })
    }

    /// Takes in a message. Messages that do not concern policy are ignored.
    pub fn update(&mut self, message: &ToDataplane) {
        match message {
            ToDataplane::IpSetUpdate { id, members, .. } => self.replace_set(id, members),
            ToDataplane::IpSetDelta { id, added, removed } => {
                removed.iter().for_each(|member| self.change_member(id, member.into(), false));
                added.iter().for_each(|member| self.change_member(id, member.into(), true));
            }
            ToDataplane::IpSetRemove(id) => {
                self.replace_set(id, &[]);
                self.sets.remove(id);
            }
            ToDataplane::PolicyUpdate(id, policy) => {
                let rules: [&[Rule]; 2] = [&policy.inbound_rules, &policy.outbound_rules];
                self.set_rules(&Owner::Policy(id.clone()), Some(rules));
            }
            ToDataplane::PolicyRemove(id) => self.set_rules(&Owner::Policy(id.clone()), None),
            ToDataplane::ProfileUpdate(name, profile) => {
                let rules: [&[Rule]; 2] = [&profile.inbound_rules, &profile.outbound_rules];
                self.set_rules(&Owner::Profile(name.clone()), Some(rules));
            }
            ToDataplane::ProfileRemove(name) => self.set_rules(&Owner::Profile(name.clone()), None),
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                let specs = IpVersion::BOTH.map(|version| spec::workload(endpoint, version));
                self.set_endpoint(EndpointId::Workload(id.clone()), &endpoint.name, specs);
            }
            ToDataplane::WorkloadEndpointRemove(id) => self.remove_endpoint(EndpointId::Workload(id.clone())),
            ToDataplane::HostEndpointUpdate(name, endpoint) => {
                let specs = IpVersion::BOTH.map(|version| spec::host(endpoint, version));
                self.set_endpoint(EndpointId::Host(name.clone()), &endpoint.name, specs);
            }
            ToDataplane::HostEndpointRemove(name) => self.remove_endpoint(EndpointId::Host(name.clone())),
            _ => {}
        }
    }

    fn replace_set(&mut self, id: &IpSetId, members: &[IpSetMember]) {
        let new: HashSet<Member> = members.iter().map(Member::from).collect();
        let old = self.sets.entry(id.clone()).or_default();
        let gone: Vec<Member> = old.difference(&new).copied().collect();
        let came: Vec<Member> = new.difference(old).copied().collect();
        gone.into_iter().for_each(|member| self.change_member(id, member, false));
        came.into_iter().for_each(|member| self.change_member(id, member, true));
    }

    fn change_member(&mut self, id: &IpSetId, member: Member, is_in: bool) {
        let set = self.sets.entry(id.clone()).or_default();
        let changed = if is_in { set.insert(member) } else { set.remove(&member) };
        if !changed {
            return;
        }
        if let Some(atom) = self.classes.number(&Atom::Set(id.clone())) {
            match is_in {
                true => self.members.add(member, atom),
                false => self.members.remove(member, atom),
            }
        }
    }

    fn set_rules(&mut self, owner: &Owner, rules: Option<[&[Rule]; 2]>) {
        self.known.set(owner, rules);
        self.marked_specs.extend(self.named_by.get(owner).into_iter().flatten());
    }

    fn set_endpoint(&mut self, id: EndpointId, interface: &str, specs: [Specs; 2]) {
        let specs = specs.map(|specs| specs.map(|spec| spec.map(|spec| self.use_spec(&id, spec))));
        let endpoint = Endpoint { interface: interface.to_owned(), specs };
        if let Some(old) = self.endpoints.insert(id.clone(), endpoint) {
            let is_left = |spec: &u32| !specs.iter().flatten().flatten().any(|new| new == spec);
            let left = old.specs.into_iter().flatten().flatten();
            left.filter(is_left).for_each(|spec| self.leave_spec(&id, spec));
        }
        self.marked_endpoints.insert(id);
    }

    fn remove_endpoint(&mut self, id: EndpointId) {
        if let Some(old) = self.endpoints.remove(&id) {
            old.specs.into_iter().flatten().flatten().for_each(|spec| self.leave_spec(&id, spec));
        }
        self.marked_endpoints.insert(id);
    }

    /// Returns the number of a spec, and records that the endpoint uses it.
    fn use_spec(&mut self, id: &EndpointId, spec: Spec) -> u32 {
        let number = match self.spec_numbers.get(&spec) {
            Some(number) => *number,
            None => {
                let spec = Arc::new(spec);
                let state = SpecState {
                    spec: spec.clone(),
                    list: ListId::NONE,
                    problem: None,
                    endpoints: BTreeSet::new(),
                };
                let number = self.specs.insert(state);
                for owner in owners(&spec) {
                    self.named_by.entry(owner).or_default().insert(number);
                }
                self.spec_numbers.insert(spec, number);
                self.marked_specs.insert(number);
                number
            }
        };
        if let Some(state) = self.specs.get_mut(number) {
            state.endpoints.insert(id.clone());
        }
        number
    }

    fn leave_spec(&mut self, id: &EndpointId, number: u32) {
        if let Some(state) = self.specs.get_mut(number) {
            state.endpoints.remove(id);
            if state.endpoints.is_empty() {
                self.marked_specs.insert(number);
            }
        }
    }

    /// Updates the tables to the state after all messages so far.
    pub fn flush(&mut self) {
        self.grow();
        self.shrink();
    }

    /// The first half of [`Self::flush`]: updates the tables, but keeps the lists that endpoints had before. Until an
    /// interface has its new lists, the old ones still find a row for every class that an address gets.
    pub fn grow(&mut self) {
        for number in std::mem::take(&mut self.marked_specs) {
            self.make_spec(number);
        }
        self.classify();
        self.classes.write_rows(&mut self.tables);
        for id in std::mem::take(&mut self.marked_endpoints) {
            self.write_endpoint(id);
        }
    }

    /// The second half of [`Self::flush`]: removes unused lists, and gives addresses the remaining classes.
    pub fn shrink(&mut self) {
        if self.left.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.left) {
            self.leave_list(id);
        }
        self.classify();
        self.classes.write_rows(&mut self.tables);
    }

    /// Builds the list of a spec, or forgets the spec if no endpoint uses it.
    fn make_spec(&mut self, number: u32) {
        let Some(state) = self.specs.get_mut(number) else { return };
        let old = state.list;
        if state.endpoints.is_empty() {
            let spec = state.spec.clone();
            self.specs.remove(number);
            self.spec_numbers.remove(&spec);
            for owner in owners(&spec) {
                if let Some(specs) = self.named_by.get_mut(&owner) {
                    specs.remove(&number);
                    if specs.is_empty() {
                        self.named_by.remove(&owner);
                    }
                }
            }
        } else {
            let (list, problem) = List::of(&state.spec, &self.known);
            state.problem = problem;
            if list.id == old {
                return;
            }
            state.list = list.id;
            self.marked_endpoints.extend(state.endpoints.iter().cloned());
            self.use_list(&list);
        }
        if old != ListId::NONE {
            self.left.push(old);
        }
    }

    fn use_list(&mut self, list: &List) {
        if let Some(state) = self.lists.get_mut(&list.id) {
            state.users += 1;
            return;
        }
        self.tables.add_list(list);
        for (atom, number) in self.classes.add_list(list) {
            self.members_of(&atom).into_iter().for_each(|member| self.members.add(member, number));
        }
        let has_logs = list.has_logs();
        self.logging += usize::from(has_logs);
        self.lists.insert(list.id, ListState { users: 1, has_logs });
    }

    fn leave_list(&mut self, id: ListId) {
        let Some(state) = self.lists.get_mut(&id) else { return };
        state.users -= 1;
        if state.users > 0 {
            return;
        }
        self.logging -= usize::from(state.has_logs);
        self.lists.remove(&id);
        self.tables.remove_list(id);
        for (atom, number) in self.classes.remove_list(id) {
            self.members_of(&atom).into_iter().for_each(|member| self.members.remove(member, number));
        }
    }

    fn members_of(&self, atom: &Atom) -> Vec<Member> {
        match atom {
            Atom::Set(id) => self.sets.get(id).into_iter().flatten().copied().collect(),
            Atom::Nets(nets) => nets.iter().copied().map(Member::Net).collect(),
        }
    }

    /// Updates the class of every member whose atoms may have changed.
    fn classify(&mut self) {
        for member in self.members.take_touched() {
            let atoms = self.members.atoms(&member);
            let class = if atoms.is_empty() { None } else { Some(self.classes.enter(atoms)) };
            let old = match member {
                Member::Net(net) => match single(&net) {
                    Some(address) => exchange(&mut self.tables.addresses, address, class),
                    None => exchange(&mut self.tables.nets, net, class),
                },
                Member::Pair(pair) => exchange(&mut self.tables.pairs, pair, class),
            };
            if let Some(old) = old {
                self.classes.leave(old);
            }
        }
    }

    fn write_endpoint(&mut self, id: EndpointId) {
        let Some(endpoint) = self.endpoints.get(&id) else {
            self.tables.endpoints.remove(&id);
            return;
        };
        let list = |spec: &Option<u32>| {
            spec.and_then(|spec| self.specs.get(spec)).map_or(ListId::NONE, |state| state.list)
        };
        let [v4, v6] = endpoint.specs.each_ref().map(|specs| Lists::from(specs.each_ref().map(list)));
        let lists = EndpointLists { interface: endpoint.interface.clone(), v4, v6 };
        self.tables.endpoints.set(id, lists);
    }
}

/// Sets or removes an entry. Returns the previous value.
fn exchange<K: Ord + Clone>(
    table: &mut crate::tables::Table<K, ClassId>,
    key: K,
    value: Option<ClassId>,
) -> Option<ClassId> {
    let old = table.get(&key).copied();
    match value {
        Some(value) => table.set(key, value),
        None => table.remove(&key),
    }
    old
}
