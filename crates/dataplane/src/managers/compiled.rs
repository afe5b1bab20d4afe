//! The policies of workload endpoints, compiled to few lookups: chains for each list of policies that an endpoint has,
//! and the sets that these look up.
//!
//! A change of a policy recompiles the lists that contain it. A change of a set's members changes the unions that
//! contain the set, and compiles nothing, unless the set became too large for unions or small enough for them.
//! Endpoints are not known here: [`super::Groups`] provides the lists.

use super::unions::{SetMembers, Unions};
use super::{Manager, News, World};
use crate::desired::Desired;
use ipnet::IpNet;
use messages::{IpSetId, IpSetMember, IpSetType, Policy, PolicyId};
use rules::tree::{ChainName, Table};
use rules::{PolicySequence, Renderer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

#[cfg(test)]
mod tests;

/// A set with more members than this gets lookup rules of its own: its members are not duplicated in unions.
const LARGE: usize = 1024;

/// The programmed state of a list of policies.
#[derive(Debug, Default)]
struct Programmed {
    policies: Vec<PolicyId>,
    /// The sets whose size matters for this list.
    sets: BTreeSet<IpSetId>,
    /// By IP version, in the order of [`Desired::versions`].
    versions: Vec<(BTreeSet<ChainName>, BTreeSet<IpSetId>)>,
}

/// All lists of policies.
#[derive(Debug)]
pub(crate) struct CompiledPolicies {
    renderer: Arc<Renderer>,
    policies: BTreeMap<PolicyId, Arc<Policy>>,
    sets: SetMembers,
    large: BTreeSet<IpSetId>,
    programmed: BTreeMap<ChainName, Programmed>,
    by_policy: BTreeMap<PolicyId, BTreeSet<ChainName>>,
    by_set: BTreeMap<IpSetId, BTreeSet<ChainName>>,
    /// By IP version, in the order of [`Desired::versions`].
    unions: Vec<Unions>,
    /// Lists that have to be recompiled.
    dirty: BTreeSet<ChainName>,
    is_begun: bool,
}

impl CompiledPolicies {
    /// A manager without policies.
    #[must_use]
    pub(crate) fn new(renderer: Arc<Renderer>) -> Self {
        Self {
            renderer,
            policies: BTreeMap::new(),
            sets: BTreeMap::new(),
            large: BTreeSet::new(),
            programmed: BTreeMap::new(),
            by_policy: BTreeMap::new(),
            by_set: BTreeMap::new(),
            unions: Vec::new(),
            dirty: BTreeSet::new(),
            is_begun: false,
        }
    }

    fn policy(&mut self, id: &PolicyId, policy: Option<&Arc<Policy>>) {
        match policy {
            Some(policy) => _ = self.policies.insert(Arc::clone(id), Arc::clone(policy)),
            None => _ = self.policies.remove(id),
        }
        self.dirty.extend(self.by_policy.get(id).into_iter().flatten().cloned());
    }

    /// Sets all members of a set, or removes it.
    fn set(&mut self, id: &IpSetId, members: Option<(IpSetType, &[IpSetMember])>, desired: &mut Desired) {
        let new: BTreeSet<IpNet> = match members {
            Some((IpSetType::Ip | IpSetType::Net, members)) => networks(members).collect(),
            Some((IpSetType::IpAndPort, _)) => return,
            None => BTreeSet::new(),
        };
        let old = self.sets.get(id).cloned().unwrap_or_default();
        let added: Vec<IpNet> = new.difference(&old).copied().collect();
        let removed: Vec<IpNet> = old.difference(&new).copied().collect();
        self.change_unions(id, &added, &removed, desired);
        match members {
            Some(_) => _ = self.sets.insert(id.clone(), new),
            None => _ = self.sets.remove(id),
        }
        self.measure(id);
    }

    fn members(
        &mut self,
        id: &IpSetId,
        added: &[IpSetMember],
        removed: &[IpSetMember],
        desired: &mut Desired,
    ) {
        let Some(set) = self.sets.get_mut(id) else { return };
        let removed: Vec<IpNet> = networks(removed).filter(|net| set.remove(net)).collect();
        let added: Vec<IpNet> = networks(added).filter(|net| set.insert(*net)).collect();
        self.change_unions(id, &added, &removed, desired);
        self.measure(id);
    }

    fn change_unions(&mut self, id: &IpSetId, added: &[IpNet], removed: &[IpNet], desired: &mut Desired) {
        for (unions, desired) in self.unions.iter_mut().zip(&mut desired.versions) {
            unions.change(id, added, removed, desired);
        }
    }

    /// Checks whether a set became large, or small again. The lower limit is well below the upper one, so that a single
    /// member cannot change the result back and forth.
    fn measure(&mut self, id: &IpSetId) {
        let size = self.sets.get(id).map_or(0, BTreeSet::len);
        let changed = match self.large.contains(id) {
            false => size > LARGE && self.large.insert(id.clone()),
            true => size < LARGE / 2 && self.large.remove(id),
        };
        if changed {
            self.dirty.extend(self.by_set.get(id).into_iter().flatten().cloned());
        }
    }

    /// Compiles a list, or removes it. Returns the unions that are no longer referenced, because other lists compiled
    /// in the same pass may refer to them.
    fn program(
        &mut self,
        name: &ChainName,
        sequence: Option<&PolicySequence>,
        desired: &mut Desired,
    ) -> Vec<(usize, IpSetId)> {
        let mut new = Programmed::default();
        if let Some(sequence) = sequence {
            new.policies.clone_from(&sequence.policies);
            for (place, desired) in desired.versions.iter_mut().enumerate() {
                let compiled = self.renderer.compile(
                    sequence,
                    |id| self.policies.get(id).map(|policy| &**policy),
                    desired.version,
                    |id| self.large.contains(id),
                );
                for union in compiled.unions.values() {
                    self.unions[place].acquire(union, &self.sets, desired);
                }
                new.sets.extend(compiled.sets);
                let chains = compiled.chains.iter().map(|chain| chain.name.clone()).collect();
                new.versions.push((chains, compiled.unions.into_keys().collect()));
                desired.rules.define_all(Table::Filter, compiled.chains);
            }
        }
        let old = self.programmed.remove(name).unwrap_or_default();
        let mut released = Vec::new();
        for (place, (chains, unions)) in old.versions.into_iter().enumerate() {
            let kept = new.versions.get(place).map(|(chains, _)| chains);
            for chain in chains.into_iter().filter(|chain| kept.is_none_or(|kept| !kept.contains(chain))) {
                desired.versions[place].rules.undefine(Table::Filter, chain);
            }
            released.extend(unions.into_iter().map(|id| (place, id)));
        }
        reindex(&mut self.by_policy, name, old.policies.iter(), new.policies.iter());
        reindex(&mut self.by_set, name, old.sets.iter(), new.sets.iter());
        if sequence.is_some() {
            self.programmed.insert(name.clone(), new);
        }
        released
    }
}

/// Replaces the index entries of a name.
fn reindex<'a, K: Ord + Clone + 'a>(
    index: &mut BTreeMap<K, BTreeSet<ChainName>>,
    name: &ChainName,
    old: impl Iterator<Item = &'a K>,
    new: impl Iterator<Item = &'a K>,
) {
    for key in old {
        if let Some(names) = index.get_mut(key) {
            names.remove(name);
            if names.is_empty() {
                index.remove(key);
            }
        }
    }
    for key in new {
        index.entry(key.clone()).or_default().insert(name.clone());
    }
}

fn networks(members: &[IpSetMember]) -> impl Iterator<Item = IpNet> {
    members.iter().filter_map(|member| match member {
        IpSetMember::Ip(address) => Some(IpNet::from(*address)),
        IpSetMember::Net(net) => Some(*net),
        IpSetMember::IpAndPort { .. } => None,
    })
}

impl Manager for CompiledPolicies {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        match *news {
            News::Policy(id, policy) => self.policy(id, policy),
            News::Set(id, members) => self.set(id, members, desired),
            News::Members(id, added, removed) => self.members(id, added, removed, desired),
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.unions.resize_with(desired.versions.len(), Unions::default);
            self.renderer.verdict_chains().iter().for_each(|chain| desired.define(Table::Filter, chain));
        }
        let mut names = std::mem::take(&mut self.dirty);
        names.append(&mut world.groups.take_changed_sequences());
        let mut released = Vec::new();
        for name in names {
            released.extend(self.program(&name, world.groups.sequence(&name), desired));
        }
        for (place, id) in released {
            self.unions[place].release(&id, &mut desired.versions[place]);
        }
    }
}
