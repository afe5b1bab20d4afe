//! The policies and profiles that apply to the endpoints of this host, and their order.
//!
//! All policies are kept in packed form. A policy whose selector matches a local endpoint is active: its rules are
//! scanned for sets, and it is sent. Everything is decided at the flush, from the state at that time, so that what
//! appears and disappears between two flushes costs next to nothing.

mod computed;
mod endpoints;
mod order;
mod profiles;
mod selectors;
mod table;

pub(crate) use computed::{ComputedSources, ISTIO_SET, istio_selector};
pub(crate) use endpoints::LocalEndpoint;

use crate::population::{ItemId, Population};
use crate::rules::{SetRegistry, fill_in_rule_ids};
use crate::sequencer::{Sequencer, SetIndex};
use computed::Computed;
use endpoints::Tiers;
use messages::{Policy, PolicyId, ProfileName, TierName};
use model::feed::{self, Tier};
use model::v1::PolicyKey;
use order::{PolicyOrder, tier_name};
use profiles::Profiles;
use selectors::LocalSelectors;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use table::{ActivePolicy, Flags, PolicyRef, PolicyTable};

#[derive(Debug)]
struct Local {
    endpoint: LocalEndpoint,
    computed: Computed,
}

/// Policies, profiles and local endpoints.
#[derive(Debug, Default)]
pub(crate) struct ActiveRules {
    table: PolicyTable,
    selectors: LocalSelectors,
    order: PolicyOrder,
    profiles: Profiles,
    pub(crate) computed: ComputedSources,
    locals: BTreeMap<ItemId, Local>,
    /// Policies that may have become active or inactive, or whose content changed while active.
    stale_policies: BTreeSet<PolicyRef>,
    /// Those among them that must be sent again if they are active, whatever they were before.
    changed_policies: BTreeSet<PolicyRef>,
    /// Endpoints whose message may have changed.
    stale_endpoints: BTreeSet<ItemId>,
    /// Sets of policies that are gone; they are released once the new ones are known.
    released: Vec<SetIndex>,
    active: usize,
}

/// The numbers of policies, profiles, tiers and endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyCounts {
    pub(crate) policies: usize,
    pub(crate) profiles: usize,
    pub(crate) tiers: usize,
    pub(crate) active_policies: usize,
    pub(crate) active_profiles: usize,
    pub(crate) local_endpoints: usize,
}

impl ActiveRules {
    pub(crate) fn new(computed: ComputedSources) -> Self {
        Self { computed, ..Self::default() }
    }

    pub(crate) fn counts(&self) -> PolicyCounts {
        PolicyCounts {
            policies: self.table.len(),
            profiles: self.profiles.len(),
            tiers: self.order.tier_count(),
            active_policies: self.active,
            active_profiles: self.profiles.active_len(),
            local_endpoints: self.locals.len(),
        }
    }

    /// Adds or changes a policy.
    pub(crate) fn put_policy(&mut self, key: &PolicyKey, policy: &feed::Policy, population: &mut Population) {
        let names = &mut population.labels.names;
        let selector = self.selectors.get_or_add(&policy.selector, names);
        let mut row = self.table.row(key, policy, selector);
        let Some(found) = self.table.find(key) else {
            let id = self.table.insert(row);
            self.selectors.join(selector, id);
            self.stale_policies.insert(id);
            return;
        };
        let Some(old) = self.table.get_mut(found) else { return };
        let (same_selector, same_order) = (old.selector == selector, old.same_order(&row));
        if same_selector && same_order && old.same_content(&row) {
            let tier = row.tier;
            self.table.tiers.release(tier);
            return;
        }
        row.active = old.active.take();
        let old = std::mem::replace(old, row);
        if !same_order {
            let tier = tier_name(&self.table, old.tier);
            if let Some(active) = self.table.get(found).and_then(|row| row.active.as_ref()) {
                self.order.remove(&tier, old.order, &active.id, found);
            }
        }
        if !same_selector || !same_order {
            self.stale_endpoints.extend(self.selectors.matched(old.selector));
        }
        if !same_order && let Some(row) = self.table.get(found) {
            let tier = tier_name(&self.table, row.tier);
            if let Some(active) = &row.active {
                self.order.insert(&tier, row.order, &active.id, found);
            }
        }
        self.table.tiers.release(old.tier);
        if !same_selector {
            self.selectors.join(selector, found);
            self.selectors.leave(old.selector, found, &mut population.labels.names);
            self.stale_endpoints.extend(self.selectors.matched(selector));
        }
        self.stale_policies.insert(found);
        self.changed_policies.insert(found);
    }

    /// Removes a policy.
    pub(crate) fn remove_policy(
        &mut self,
        key: &PolicyKey,
        population: &mut Population,
        sequencer: &mut Sequencer,
    ) {
        let Some(policy) = self.table.find(key) else { return };
        let Some(row) = self.table.remove(policy) else { return };
        if let Some(active) = &row.active {
            self.stale_endpoints.extend(self.selectors.matched(row.selector));
            self.order.remove(&tier_name(&self.table, row.tier), row.order, &active.id, policy);
            sequencer.policy_remove(&active.id);
            self.released.extend(&active.sets);
            self.active -= 1;
        }
        self.table.tiers.release(row.tier);
        self.selectors.leave(row.selector, policy, &mut population.labels.names);
        self.stale_policies.remove(&policy);
        self.changed_policies.remove(&policy);
    }

    /// Adds, changes or removes a tier.
    pub(crate) fn set_tier(&mut self, name: &TierName, tier: Option<Tier>) {
        if self.order.set_tier(name, tier) {
            let locals = self.locals.keys().copied();
            self.stale_endpoints.extend(locals.filter(|item| !self.selectors.of_endpoint(*item).is_empty()));
        }
    }

    /// Adds, changes or removes the rules of a profile.
    pub(crate) fn set_profile_rules(
        &mut self,
        name: &ProfileName,
        rules: Option<&feed::ProfileRules>,
        population: &mut Population,
    ) {
        self.profiles.set_rules(name, rules, population);
    }

    /// Notes that the labels of a profile with these members changed.
    pub(crate) fn parent_changed(&mut self, members: &[ItemId]) {
        self.selectors.parent_changed(members);
    }

    /// Adds or changes a local endpoint. `rematch` if its labels or profiles changed.
    pub(crate) fn put_local(&mut self, item: ItemId, endpoint: LocalEndpoint, rematch: bool) {
        if rematch {
            self.selectors.endpoint_changed(item);
        }
        let old = self.locals.get(&item);
        if old.is_some_and(|old| old.endpoint == endpoint) {
            return;
        }
        self.profiles.used_by_endpoint(endpoint.profiles());
        let computed = old.map(|old| old.computed.clone()).unwrap_or_default();
        if let Some(old) = self.locals.insert(item, Local { endpoint, computed }) {
            self.profiles.unused_by_endpoint(old.endpoint.profiles());
        }
        self.stale_endpoints.insert(item);
    }

    /// Removes a local endpoint.
    pub(crate) fn remove_local(&mut self, item: ItemId, sequencer: &mut Sequencer) {
        self.selectors.endpoint_removed(item);
        self.stale_endpoints.remove(&item);
        let Some(local) = self.locals.remove(&item) else { return };
        self.profiles.unused_by_endpoint(local.endpoint.profiles());
        match &local.endpoint {
            LocalEndpoint::Workload(id, _) => sequencer.workload_endpoint_remove(id),
            LocalEndpoint::Host(name, _) => sequencer.host_endpoint_remove(name),
        }
    }

    /// Decides what applies now, and sends what changed. Sets that come into use are left in the registry, as are those
    /// that are no longer used.
    pub(crate) fn resolve(
        &mut self,
        population: &mut Population,
        registry: &mut SetRegistry,
        sequencer: &mut Sequencer,
    ) {
        let rematched = self.selectors.rematch(population);
        for selector in rematched.selectors {
            self.stale_policies.extend(self.selectors.policies(selector));
        }
        // The parts of a workload's message other than policy also depend on its labels.
        let recompute: Vec<ItemId> = if self.computed.take_changed() {
            self.locals.keys().copied().collect()
        } else {
            rematched.relabelled.iter().chain(&self.stale_endpoints).copied().collect()
        };
        self.stale_endpoints.extend(rematched.endpoints);
        self.recompute(&recompute, population);

        let changed = std::mem::take(&mut self.changed_policies);
        for policy in std::mem::take(&mut self.stale_policies) {
            self.resolve_policy(policy, changed.contains(&policy), registry, sequencer);
        }
        self.profiles.resolve(population, registry, &mut self.released, sequencer);
        for set in self.released.drain(..) {
            registry.release(set);
        }

        self.order.rank(&mut self.table);
        for item in std::mem::take(&mut self.stale_endpoints) {
            self.send_endpoint(item, sequencer);
        }
    }

    fn recompute(&mut self, items: &[ItemId], population: &Population) {
        for id in items {
            if let Some(local) = self.locals.get_mut(id)
                && let LocalEndpoint::Workload(endpoint, _) = &local.endpoint
                && let Some(item) = population.item(*id)
            {
                let computed = self.computed.compute(population, item, endpoint);
                if computed != local.computed {
                    local.computed = computed;
                    self.stale_endpoints.insert(*id);
                }
            }
        }
    }

    fn resolve_policy(
        &mut self,
        policy: PolicyRef,
        changed: bool,
        registry: &mut SetRegistry,
        sequencer: &mut Sequencer,
    ) {
        let Some(row) = self.table.get(policy) else { return };
        let wanted = row.flags.has(Flags::EVERYWHERE) || !self.selectors.matched(row.selector).is_empty();
        if !wanted {
            self.deactivate(policy, sequencer);
            return;
        }
        if row.active.is_some() && !changed {
            return;
        }
        let id = row.active.as_ref().map_or_else(|| Arc::new(row.key()), |active| active.id.clone());
        // The message is built when it is sent: sets are sent first, and rules are large.
        let sets = registry.acquire_all(row.sets(&id, self.selectors.text(row.selector)));
        sequencer.policy_update(id.clone());
        let Some(row) = self.table.get_mut(policy) else { return };
        if let Some(active) = &mut row.active {
            self.released.extend(std::mem::replace(&mut active.sets, sets));
        } else {
            row.active = Some(Box::new(ActivePolicy { id: id.clone(), sets, rank: 0 }));
            self.active += 1;
            let (tier, order) = (row.tier, row.order);
            self.stale_endpoints.extend(self.selectors.matched(row.selector));
            self.order.insert(&tier_name(&self.table, tier), order, &id, policy);
        }
    }

    /// Builds the message about an active policy.
    pub(crate) fn message(&self, id: &PolicyId, registry: &SetRegistry) -> Policy {
        let Some(row) = self.table.find(id).and_then(|policy| self.table.get(policy)) else {
            return Policy::default();
        };
        let Some(active) = &row.active else { return Policy::default() };
        let selector = self.selectors.text(row.selector);
        let (namespace, unpacked) = row.unpack(id, selector, &registry.names(&active.sets));
        let mut message = Policy {
            namespace,
            tier: tier_name(&self.table, row.tier),
            inbound_rules: unpacked.inbound,
            outbound_rules: unpacked.outbound,
            untracked: row.flags.has(Flags::DO_NOT_TRACK),
            pre_dnat: row.flags.has(Flags::PRE_DNAT),
            original_selector: selector.to_owned(),
            performance_hints: unpacked.texts,
        };
        fill_in_rule_ids(&mut message.inbound_rules, &format!("pol-in-default/{}", id.name));
        fill_in_rule_ids(&mut message.outbound_rules, &format!("pol-out-default/{}", id.name));
        message
    }

    fn deactivate(&mut self, policy: PolicyRef, sequencer: &mut Sequencer) {
        let Some(row) = self.table.get_mut(policy) else { return };
        let Some(active) = row.active.take() else { return };
        let (tier, order) = (row.tier, row.order);
        self.active -= 1;
        self.order.remove(&tier_name(&self.table, tier), order, &active.id, policy);
        sequencer.policy_remove(&active.id);
        self.released.extend(active.sets);
    }

    fn send_endpoint(&self, item: ItemId, sequencer: &mut Sequencer) {
        let Some(local) = self.locals.get(&item) else { return };
        let mut ranks: Vec<u32> = self
            .selectors
            .of_endpoint(item)
            .iter()
            .flat_map(|selector| self.selectors.policies(*selector))
            .filter_map(|policy| self.table.get(*policy)?.active.as_ref())
            .map(|active| active.rank)
            .collect();
        ranks.sort_unstable();
        let tiers = Tiers::new(&ranks, &self.order, &self.table);
        match &local.endpoint {
            LocalEndpoint::Workload(id, endpoint) => {
                let message = endpoints::workload(endpoint, tiers, &local.computed);
                sequencer.workload_endpoint_update(id.clone(), message);
            }
            LocalEndpoint::Host(name, endpoint) => {
                sequencer.host_endpoint_update(name.clone(), endpoints::host(endpoint, tiers));
            }
        }
    }
}
