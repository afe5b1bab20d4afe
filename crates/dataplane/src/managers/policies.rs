//! Policies and profiles: each has chains of its own, and a change of one rewrites these and nothing else.
//!
//! Policy is enforced in different layers by its kind, so chains are defined only where an endpoint of that kind can lead
//! to them. Selectors are kept because endpoints group their policies by them.

use super::Plane;
use messages::{Policy, PolicyId, Profile, Text};
use rules::tree::{Chain, Rule, Table};
use rules::{Direction, Renderer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The hint by which a policy is in the kernel before any endpoint of this host has it, so that the first one need not wait.
const NEEDED_EVERYWHERE: &str = "AssumeNeededOnEveryNode";

/// All policies that apply on this host.
#[derive(Debug, Default)]
pub struct Policies {
    selectors: BTreeMap<PolicyId, Text>,
    regrouped: BTreeSet<PolicyId>,
}

/// The layers in which a policy is used, and whether for packets to endpoints too.
fn layers(policy: &Policy) -> &'static [(Table, bool)] {
    match policy {
        Policy { untracked: true, .. } => &[(Table::Raw, true)],
        Policy { pre_dnat: true, .. } => &[(Table::Mangle, true)],
        // Packets from the host to endpoints behind NAT meet their policy after routing.
        _ => &[(Table::Filter, true), (Table::Mangle, false)],
    }
}

/// The chain, with the rules that another layer has already if they are the same: there are thousands of policies.
fn once(known: &mut Arc<[Rule]>, chain: Chain) -> Chain {
    if *known != chain.rules {
        known.clone_from(&chain.rules);
    }
    Chain { rules: Arc::clone(known), ..chain }
}

impl Policies {
    /// A policy is new or changed.
    pub fn update(&mut self, id: &PolicyId, policy: &Policy, renderer: &Renderer, planes: &mut [Plane]) {
        let names =
            [Direction::Inbound, Direction::Outbound].map(|way| renderer.backend().policy_chain(way, id));
        let keep = policy.performance_hints.iter().any(|hint| hint == NEEDED_EVERYWHERE);
        for plane in planes {
            let mut known = Arc::default();
            for layer in [Table::Raw, Table::Mangle, Table::Filter] {
                let used = layers(policy).iter().find(|(one, _)| *one == layer);
                let chains = used.and_then(|_| renderer.policy_chains(id, policy, layer, plane.version));
                let chains = chains.map(|[inbound, outbound]| [inbound, once(&mut known, outbound)]);
                match (used, chains) {
                    (Some((_, true)), Some(chains)) => {
                        plane.update_chains(layer, chains);
                        // Only in the main layer, as with Calico's Felix.
                        names.iter().for_each(|name| {
                            plane.rules.keep_chain(layer, name, keep && layer == Table::Filter);
                        });
                    }
                    (Some((_, false)), Some([_, outbound])) => {
                        plane.rules.remove_chain(layer, &names[0]);
                        plane.rules.update_chain(layer, outbound);
                    }
                    _ => names.iter().for_each(|name| plane.rules.remove_chain(layer, name)),
                }
            }
        }
        let selector = Text::from(policy.original_selector.as_str());
        if self.selectors.insert(id.clone(), selector.clone()).is_some_and(|old| old != selector) {
            // Groups are by selector. For a new policy its endpoints are told anew anyway.
            self.regrouped.insert(id.clone());
        }
    }

    /// A policy is gone.
    pub fn remove(&mut self, id: &PolicyId, renderer: &Renderer, planes: &mut [Plane]) {
        let names =
            [Direction::Inbound, Direction::Outbound].map(|way| renderer.backend().policy_chain(way, id));
        for plane in planes {
            for layer in [Table::Raw, Table::Mangle, Table::Filter] {
                names.iter().for_each(|name| plane.rules.remove_chain(layer, name));
            }
        }
        self.selectors.remove(id);
        self.regrouped.remove(id);
    }

    /// A profile is new or changed.
    pub fn update_profile(
        &mut self,
        name: &str,
        profile: &Profile,
        renderer: &Renderer,
        planes: &mut [Plane],
    ) {
        for plane in planes {
            let chains = renderer.profile_chains(name, profile, Table::Filter, plane.version);
            let mut known = Arc::clone(&chains[1].rules);
            plane.update_chains(Table::Filter, chains);
            let [_, outbound] = renderer.profile_chains(name, profile, Table::Mangle, plane.version);
            plane.rules.update_chain(Table::Mangle, once(&mut known, outbound));
        }
    }

    /// A profile is gone.
    pub fn remove_profile(&mut self, name: &str, renderer: &Renderer, planes: &mut [Plane]) {
        let names =
            [Direction::Inbound, Direction::Outbound].map(|way| renderer.backend().profile_chain(way, name));
        for plane in planes {
            for layer in [Table::Mangle, Table::Filter] {
                names.iter().for_each(|name| plane.rules.remove_chain(layer, name));
            }
        }
    }

    /// The selector of a policy.
    #[must_use]
    pub fn selector(&self, id: &PolicyId) -> Text {
        self.selectors.get(id).cloned().unwrap_or_default()
    }

    /// The policies whose selector changed since the last call.
    pub fn take_regrouped(&mut self) -> BTreeSet<PolicyId> {
        std::mem::take(&mut self.regrouped)
    }
}
