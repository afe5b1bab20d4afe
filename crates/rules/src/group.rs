//! Policies of a tier that have the same selector share a chain, so that an endpoint's chain stays short.
//!
//! An endpoint that one of these policies selects is selected by all of them, so endpoints that share a policy of a
//! group share the whole group.

use crate::names::{Direction, is_staged};
use crate::policy::PolicySequence;
use crate::renderer::{Renderer, jump, mark_clear, mark_not_clear};
use crate::tree::{Action, Chain, ChainName, Rule, Text};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use messages::{PolicyId, TierInfo, TierName};
use model::feed::RuleAction;
use sha3::{Digest, Sha3_224};

/// After this number of jumps, a group's chain checks whether one of the policies decided.
const RETURN_STRIDE: usize = 5;

/// Neighbouring policies of a tier with the same selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyGroup {
    /// The direction of packets.
    pub direction: Direction,
    /// Their selector, as it is in the feed.
    pub selector: Text,
    /// The policies, in order.
    pub policies: Vec<PolicyId>,
}

/// The policies of a tier that apply to an endpoint, in groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierGroups {
    /// The tier.
    pub name: TierName,
    /// The action at its end.
    pub default_action: RuleAction,
    /// For packets to the endpoint.
    pub ingress: Vec<PolicyGroup>,
    /// For packets from the endpoint.
    pub egress: Vec<PolicyGroup>,
}

impl PolicyGroup {
    /// Puts policies into groups; `selector` returns the selector of a policy.
    pub fn divide(
        policies: &[PolicyId],
        direction: Direction,
        selector: impl Fn(&PolicyId) -> Text,
    ) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for policy in policies {
            let selector = selector(policy);
            match groups.last_mut().filter(|group| group.selector == selector) {
                Some(group) => group.policies.push(policy.clone()),
                None => groups.push(Self { direction, selector, policies: vec![policy.clone()] }),
            }
        }
        groups
    }

    /// The policies that are enforced, not staged.
    pub fn enforced(&self) -> impl Iterator<Item = &PolicyId> {
        self.policies.iter().filter(|policy| !is_staged(policy.kind))
    }

    /// Whether the group is too small for a chain of its own.
    #[must_use]
    pub fn is_inlined(&self) -> bool {
        self.enforced().nth(1).is_none()
    }

    /// The name of the group's chain.
    #[must_use]
    pub fn chain_name(&self) -> ChainName {
        let mut hash = Sha3_224::new();
        let direction = match self.direction {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        };
        hash.update(format!("{}\n{direction}\n{}\n", self.selector, self.policies.len()));
        for policy in &self.policies {
            let (name, namespace, kind) = (&policy.name, &policy.namespace, policy.kind.as_str());
            hash.update(format!("{{Name: {name}, Namespace: {namespace}, Kind: {kind}}}\n"));
        }
        let prefix = self.direction.group_prefix();
        let id = URL_SAFE_NO_PAD.encode(hash.finalize());
        // Short enough for iptables; nftables uses the same name.
        let room = crate::iptables::MAX_CHAIN_NAME - prefix.len();
        format!("{prefix}{}", id.get(..room).unwrap_or(&id)).into()
    }
}

impl TierGroups {
    /// Puts an endpoint's tiers into groups.
    pub fn of(tiers: &[TierInfo], selector: impl Fn(&PolicyId) -> Text) -> Vec<Self> {
        Self::divided(tiers, &selector, &[Direction::Inbound, Direction::Outbound])
    }

    /// Puts the tiers of policies that only apply to incoming packets into groups: those before destination NAT.
    pub fn of_inbound(tiers: &[TierInfo], selector: impl Fn(&PolicyId) -> Text) -> Vec<Self> {
        Self::divided(tiers, &selector, &[Direction::Inbound])
    }

    fn divided(
        tiers: &[TierInfo],
        selector: &impl Fn(&PolicyId) -> Text,
        directions: &[Direction],
    ) -> Vec<Self> {
        let groups = |policies: &[PolicyId], direction| match directions.contains(&direction) {
            true => PolicyGroup::divide(policies, direction, selector),
            false => Vec::new(),
        };
        tiers
            .iter()
            .map(|tier| Self {
                name: tier.name.clone(),
                default_action: tier.default_action,
                ingress: groups(&tier.ingress_policies, Direction::Inbound),
                egress: groups(&tier.egress_policies, Direction::Outbound),
            })
            .collect()
    }

    /// The groups of one direction.
    #[must_use]
    pub fn groups(&self, direction: Direction) -> &[PolicyGroup] {
        match direction {
            Direction::Inbound => &self.ingress,
            Direction::Outbound => &self.egress,
        }
    }

    /// The enforced policies of one direction, if there are any.
    #[must_use]
    pub fn sequence(&self, direction: Direction) -> Option<PolicySequence> {
        let policies: Vec<PolicyId> =
            self.groups(direction).iter().flat_map(PolicyGroup::enforced).cloned().collect();
        (!policies.is_empty()).then_some(PolicySequence { direction, policies })
    }
}

impl Renderer {
    /// The chain of a group that is not inlined. It is the same in every table.
    #[must_use]
    pub fn group_chain(&self, group: &PolicyGroup) -> Chain {
        let decided = self.config.marks.pass | self.config.marks.accept;
        let mut rules = Vec::new();
        for (index, policy) in group.enforced().enumerate() {
            let starts_block = index % RETURN_STRIDE == 0;
            if starts_block && index > 0 {
                rules
                    .push(Rule::when([mark_not_clear(decided)], Action::Return).comment("Return on verdict"));
            }
            // At the start of a block no policy can have decided yet.
            let undecided = if starts_block { Vec::new() } else { vec![mark_clear(decided)] };
            rules.push(Rule::when(undecided, jump(self.backend().policy_chain(group.direction, policy))));
        }
        Chain::new(group.chain_name(), rules)
    }
}
