//! Profiles: their rules, and which of them local endpoints have.
//!
//! An endpoint may name a profile that does not exist. It then gets rules that deny everything in both directions, so
//! that whatever the profile would have restricted stays restricted.

use crate::packed::{pack, sets, unpack};
use crate::population::{ParentId, Population};
use crate::rules::{SetRegistry, fill_in_rule_ids};
use crate::sequencer::{Sequencer, SetIndex};
use crate::slab::{Slab, row_id};
use hashbrown::HashMap;
use messages::{Profile, ProfileName, Rule};
use model::feed::{ProfileRules, RuleAction};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

row_id! {
    /// The row of rules that profiles share.
    RulesId
}

#[derive(Debug)]
struct SharedRules {
    packed: Arc<[u8]>,
    users: u32,
}

#[derive(Debug, Default)]
struct UsedProfile {
    endpoints: usize,
    /// The sets that its rules name, once the profile was sent.
    sets: Option<Box<[SetIndex]>>,
}

/// All profiles' rules, and the profiles in use.
#[derive(Debug, Default)]
pub(crate) struct Profiles {
    /// Most profiles have the same rules, so they are kept once.
    rules: Slab<SharedRules, RulesId>,
    by_content: HashMap<Arc<[u8]>, RulesId>,
    by_profile: HashMap<ParentId, RulesId>,
    used: BTreeMap<ProfileName, UsedProfile>,
    stale: BTreeSet<ProfileName>,
}

impl Profiles {
    pub(crate) fn len(&self) -> usize {
        self.by_profile.len()
    }

    pub(crate) fn active_len(&self) -> usize {
        self.used.len()
    }

    /// Adds, changes or removes the rules of a profile.
    pub(crate) fn set_rules(
        &mut self,
        name: &ProfileName,
        rules: Option<&ProfileRules>,
        population: &mut Population,
    ) {
        let changed = match rules {
            Some(rules) => {
                let parent = population.get_or_add_parent(name);
                let shared = self.acquire(pack(&[], &[], &rules.inbound_rules, &rules.outbound_rules));
                match self.by_profile.insert(parent, shared) {
                    None => {
                        population.pin_parent(parent);
                        true
                    }
                    Some(old) => {
                        self.release(old);
                        old != shared
                    }
                }
            }
            None => population.find_parent(name).is_some_and(|parent| {
                let old = self.by_profile.remove(&parent);
                if let Some(old) = old {
                    self.release(old);
                    population.unpin_parent(parent);
                }
                old.is_some()
            }),
        };
        if changed && self.used.contains_key(name) {
            self.stale.insert(name.clone());
        }
    }

    fn acquire(&mut self, packed: Box<[u8]>) -> RulesId {
        if let Some(&id) = self.by_content.get(&*packed)
            && let Some(shared) = self.rules.get_mut(id)
        {
            shared.users += 1;
            return id;
        }
        let packed: Arc<[u8]> = packed.into();
        let id = self.rules.insert(SharedRules { packed: packed.clone(), users: 1 });
        self.by_content.insert(packed, id);
        id
    }

    fn release(&mut self, id: RulesId) {
        let Some(shared) = self.rules.get_mut(id) else { return };
        shared.users -= 1;
        if shared.users == 0
            && let Some(shared) = self.rules.remove(id)
        {
            self.by_content.remove(&shared.packed);
        }
    }

    /// Counts a local endpoint that has these profiles.
    pub(crate) fn used_by_endpoint(&mut self, names: &[ProfileName]) {
        for name in names {
            if let Some(used) = self.used.get_mut(name) {
                used.endpoints += 1;
            } else {
                self.stale.insert(name.clone());
                self.used.insert(name.clone(), UsedProfile { endpoints: 1, sets: None });
            }
        }
    }

    /// Reverts [`Self::used_by_endpoint`].
    pub(crate) fn unused_by_endpoint(&mut self, names: &[ProfileName]) {
        for name in names {
            if let Some(used) = self.used.get_mut(name) {
                used.endpoints -= 1;
                if used.endpoints == 0 {
                    self.stale.insert(name.clone());
                }
            }
        }
    }

    /// Sends profiles that are new or changed, and removes those that no endpoint has any more.
    pub(crate) fn resolve(
        &mut self,
        population: &Population,
        registry: &mut SetRegistry,
        released: &mut Vec<SetIndex>,
        sequencer: &mut Sequencer,
    ) {
        for name in std::mem::take(&mut self.stale) {
            let Some(used) = self.used.get(&name) else { continue };
            if used.endpoints == 0 {
                if let Some(sets) = self.used.remove(&name).and_then(|used| used.sets) {
                    released.extend(sets);
                    sequencer.profile_remove(&name);
                }
                continue;
            }
            let (message, sets) = self.message(&name, population, registry);
            sequencer.profile_update(name.clone(), Arc::new(message));
            if let Some(used) = self.used.get_mut(&name) {
                released.extend(used.sets.replace(sets).into_iter().flatten());
            }
        }
    }

    /// Builds the message about a profile, and returns the sets that it names.
    fn message(
        &self,
        name: &ProfileName,
        population: &Population,
        registry: &mut SetRegistry,
    ) -> (Profile, Box<[SetIndex]>) {
        let shared = population.find_parent(name).and_then(|parent| self.by_profile.get(&parent));
        let Some(SharedRules { packed, .. }) = shared.and_then(|id| self.rules.get(*id)) else {
            tracing::warn!(
                profile = name.as_str(),
                "local endpoints name a profile that does not exist; their traffic is denied"
            );
            let deny = || vec![Rule { action: RuleAction::Deny, ..Rule::default() }];
            return (identified(name, deny(), deny()), Box::default());
        };
        let sets = registry.acquire_all(sets(&[], packed));
        let unpacked = unpack(&[], packed, &registry.names(&sets));
        (identified(name, unpacked.inbound, unpacked.outbound), sets)
    }
}

/// Builds a profile of these rules, and gives them ids.
fn identified(name: &ProfileName, inbound_rules: Vec<Rule>, outbound_rules: Vec<Rule>) -> Profile {
    let mut profile = Profile { inbound_rules, outbound_rules };
    fill_in_rule_ids(&mut profile.inbound_rules, &format!("prof-in-{name}"));
    fill_in_rule_ids(&mut profile.outbound_rules, &format!("prof-out-{name}"));
    profile
}
