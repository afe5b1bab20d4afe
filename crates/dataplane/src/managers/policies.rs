//! Policies and profiles: each has chains of its own, and a change of one rewrites only these.
//!
//! Chains depend on the policy alone, so they are written as soon as it is received: thousands of policies are never
//! held twice. Selectors are kept because endpoints group their policies by them.

use super::{Manager, News, World};
use crate::desired::{Desired, VersionDesired};
use api::PolicyPerformanceHint;
use delta::Changes;
use messages::{Policy, PolicyId, Profile, Text};
use rules::tree::{ChainName, Table};
use rules::{Direction, PlacedChain, Renderer};
use std::sync::Arc;
use std::time::Instant;

/// The layers in which policy is enforced.
const LAYERS: [Table; 3] = [Table::Raw, Table::Mangle, Table::Filter];

/// All policies that apply on this host.
#[derive(Debug)]
pub(crate) struct Policies {
    renderer: Arc<Renderer>,
    /// Changes of selectors since they were written last.
    selectors: Changes<PolicyId, Text>,
}

impl Policies {
    /// A manager without policies.
    #[must_use]
    pub(crate) fn new(renderer: Arc<Renderer>) -> Self {
        Self { renderer, selectors: Changes::default() }
    }

    fn policy(&mut self, id: &PolicyId, policy: Option<&Policy>, desired: &mut Desired) {
        let backend = self.renderer.backend();
        let names = [Direction::Inbound, Direction::Outbound].map(|way| backend.policy_chain(way, id));
        let keep = policy.is_some_and(|policy| {
            policy
                .performance_hints
                .iter()
                .any(|hint| hint == PolicyPerformanceHint::AssumeNeededOnEveryNode.as_str())
        });
        for one in &mut desired.versions {
            let placed = policy.map(|policy| self.renderer.policy_chains(id, policy, one.version));
            publish(one, &names, &placed.unwrap_or_default(), keep);
        }
        self.selectors.set(Arc::clone(id), policy.map(|policy| policy.original_selector.as_str().into()));
    }

    fn profile(&self, name: &str, profile: Option<&Profile>, desired: &mut Desired) {
        let backend = self.renderer.backend();
        let names = [Direction::Inbound, Direction::Outbound].map(|way| backend.profile_chain(way, name));
        for one in &mut desired.versions {
            let placed = profile.map(|profile| self.renderer.profile_chains(name, profile, one.version));
            publish(one, &names, &placed.unwrap_or_default(), false);
        }
    }
}

/// Defines chains in the layers where they belong, and in no others. As in Calico's Felix, they are kept in the main
/// layer only.
fn publish(desired: &mut VersionDesired, names: &[ChainName; 2], placed: &[PlacedChain], keep: bool) {
    for layer in LAYERS {
        for name in names {
            match placed.iter().find(|one| one.chain.name == *name && one.tables.contains(&layer)) {
                Some(one) => {
                    desired.rules.define_kept(layer, one.chain.clone(), keep && layer == Table::Filter);
                }
                None => desired.rules.undefine(layer, name.clone()),
            }
        }
    }
}

impl Manager for Policies {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        match *news {
            News::Policy(id, policy) => self.policy(id, policy.map(|policy| &**policy), desired),
            News::Profile(name, profile) => self.profile(name, profile, desired),
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, _: &mut Desired) {
        for (id, selector) in std::mem::take(&mut self.selectors) {
            let Some(selector) = selector else {
                world.selectors.remove(&id);
                continue;
            };
            let old = world.selectors.insert(Arc::clone(&id), selector.clone());
            // Groups depend on selectors. The endpoints of a new policy get updates of their own.
            if old.is_some_and(|old| old != selector) {
                world.changed.selectors.insert(id);
            }
        }
    }
}
