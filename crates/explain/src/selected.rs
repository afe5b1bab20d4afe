//! Which endpoints a policy selects, and which policies apply to an endpoint: the same selection as for a packet, asked
//! without one.

use crate::report::Direction;
use crate::world::{Item, ItemKind, Policy, World};
use api::{Kind, StagedAction};

/// A policy that applies to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applying {
    /// The tier that it is in.
    pub tier: String,
    /// Its kind and name.
    pub policy: String,
    /// What it decides about.
    pub directions: Vec<Direction>,
    /// Whether it is only tried.
    pub staged: bool,
}

impl World<'_> {
    /// The endpoints that a policy selects, by name; `None` if the policy is not in the cluster.
    #[must_use]
    pub fn endpoints_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<Vec<String>> {
        let identity = (kind, namespace.to_owned(), name.to_owned());
        let policy = self.policies.iter().find(|policy| policy.identity == identity)?;
        let mut names: Vec<String> =
            self.items.iter().filter(|item| applies(policy, item)).map(|item| item.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        Some(names)
    }

    /// The policies that apply to an endpoint, in the order in which they are asked; `None` if the endpoint is not in the
    /// cluster, or has no address.
    #[must_use]
    pub fn policies_of(&self, kind: Kind, namespace: &str, name: &str) -> Option<Vec<Applying>> {
        let identity = (kind, namespace.to_owned(), name.to_owned());
        let item = self.items.iter().find(|item| item.identity == identity)?;
        let mut found = Vec::new();
        for tier in &self.tiers {
            let policies =
                self.policies.iter().filter(|policy| policy.tier == tier.name && applies(policy, item));
            found.extend(policies.map(|policy| {
                Applying {
                    tier: tier.name.clone(),
                    policy: policy.name(),
                    directions: [Direction::Ingress, Direction::Egress]
                        .into_iter()
                        .filter(|direction| policy.rules(*direction).is_some())
                        .collect(),
                    staged: policy.staged.is_some(),
                }
            }));
        }
        Some(found)
    }
}

fn applies(policy: &Policy, item: &Item) -> bool {
    // Before connection tracking and address translation there are only the host's own endpoints.
    let is_here = match item.kind {
        ItemKind::Workload => !policy.do_not_track && !policy.pre_dnat,
        ItemKind::Host => true,
        ItemKind::Set => false,
    };
    is_here
        && policy.staged != Some(StagedAction::Delete)
        && policy.selection.faults.is_empty()
        && policy.selection.selects(&item.labels)
}
