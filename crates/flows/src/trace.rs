//! Which policies decided about a flow, and Calico's text for that:
//! `<index>|<tier>|<short kind>:[<namespace>/]<name>|<action>|<rule>`.
//!
//! Rule -1 is the end of a tier: the policy is then the one that made the tier apply. Profiles have the tier
//! `__PROFILE__` in the text, which is not a real tier and therefore empty in the value.

use crate::key::{Action, Text, wire_enum};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Stands for the tier in a profile's text.
const PROFILE_TIER: &str = "__PROFILE__";
/// The rule number for the end of a tier.
const END_OF_TIER: i64 = -1;

wire_enum! {
    /// The kinds of policies, by Calico's names in flows.
    pub enum PolicyKind {
        /// Calico's NetworkPolicy.
        CalicoNetworkPolicy = 1, "CalicoNetworkPolicy";
        /// GlobalNetworkPolicy.
        GlobalNetworkPolicy = 2, "GlobalNetworkPolicy";
        /// StagedNetworkPolicy.
        StagedNetworkPolicy = 3, "StagedNetworkPolicy";
        /// StagedGlobalNetworkPolicy.
        StagedGlobalNetworkPolicy = 4, "StagedGlobalNetworkPolicy";
        /// StagedKubernetesNetworkPolicy.
        StagedKubernetesNetworkPolicy = 5, "StagedKubernetesNetworkPolicy";
        /// Kubernetes' NetworkPolicy.
        NetworkPolicy = 6, "NetworkPolicy";
        /// AdminNetworkPolicy, until Calico 3.31.
        AdminNetworkPolicy = 7, "AdminNetworkPolicy";
        /// BaselineAdminNetworkPolicy, until Calico 3.31.
        BaselineAdminNetworkPolicy = 8, "BaselineAdminNetworkPolicy";
        /// A profile.
        Profile = 9, "Profile";
        /// The end of a tier.
        EndOfTier = 10, "EndOfTier";
        /// ClusterNetworkPolicy.
        ClusterNetworkPolicy = 11, "ClusterNetworkPolicy";
    }
}

/// The kinds that have a short form.
const SHORT: [(PolicyKind, &str); 10] = [
    (PolicyKind::CalicoNetworkPolicy, "np"),
    (PolicyKind::GlobalNetworkPolicy, "gnp"),
    (PolicyKind::StagedNetworkPolicy, "snp"),
    (PolicyKind::StagedGlobalNetworkPolicy, "sgnp"),
    (PolicyKind::StagedKubernetesNetworkPolicy, "sknp"),
    (PolicyKind::NetworkPolicy, "knp"),
    (PolicyKind::AdminNetworkPolicy, "anp"),
    (PolicyKind::BaselineAdminNetworkPolicy, "banp"),
    (PolicyKind::ClusterNetworkPolicy, "kcnp"),
    (PolicyKind::Profile, "pro"),
];

impl PolicyKind {
    /// The short form in texts and NFLOG prefixes; empty for the end of a tier and the like, which are not policies.
    #[must_use]
    pub fn short(self) -> &'static str {
        SHORT.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// The kind with this short form.
    #[must_use]
    pub fn from_short(word: &str) -> Option<Self> {
        SHORT.iter().find(|(_, short)| *short == word).map(|(kind, _)| *kind)
    }

    /// Whether policies of this kind are staged.
    #[must_use]
    pub fn is_staged(self) -> bool {
        matches!(
            self,
            Self::StagedNetworkPolicy | Self::StagedGlobalNetworkPolicy | Self::StagedKubernetesNetworkPolicy
        )
    }

    /// Whether policies of this kind are namespaced.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        matches!(
            self,
            Self::CalicoNetworkPolicy
                | Self::NetworkPolicy
                | Self::StagedNetworkPolicy
                | Self::StagedKubernetesNetworkPolicy
        )
    }
}

/// A policy, or a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName {
    /// Its kind.
    pub kind: PolicyKind,
    /// Its tier; empty for a profile.
    pub tier: Text,
    /// Its namespace; empty if it has none.
    pub namespace: Text,
    /// Its name.
    pub name: Text,
}

/// The rule or tier that decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decider {
    /// A rule of a policy.
    Rule {
        /// The policy.
        policy: PolicyName,
        /// The index of the rule among those of its direction.
        rule: i64,
    },
    /// No rule of a tier matched, and the tier's default action was taken.
    EndOfTier {
        /// The tier.
        tier: Text,
        /// The policy that made the tier apply, if known.
        trigger: Option<PolicyName>,
    },
}

/// One decision about a flow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyHit {
    /// The index among the policies that the flow passed through.
    pub index: i64,
    /// The decision.
    pub action: Action,
    /// The rule, or the end of a tier, that decided.
    pub by: Decider,
}

impl PolicyHit {
    /// The policy to name: the rule's, or the one that made the tier apply.
    #[must_use]
    pub fn policy(&self) -> Option<&PolicyName> {
        match &self.by {
            Decider::Rule { policy, .. } => Some(policy),
            Decider::EndOfTier { trigger, .. } => trigger.as_ref(),
        }
    }

    /// The rule's index; -1 for the end of a tier.
    #[must_use]
    pub fn rule(&self) -> i64 {
        match &self.by {
            Decider::Rule { rule, .. } => *rule,
            Decider::EndOfTier { .. } => END_OF_TIER,
        }
    }

    /// The kind that filters compare.
    #[must_use]
    pub fn kind(&self) -> PolicyKind {
        match &self.by {
            Decider::Rule { policy, .. } => policy.kind,
            Decider::EndOfTier { .. } => PolicyKind::EndOfTier,
        }
    }
}

/// Every decision about a flow, enforced and pending, ordered by index.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Trace {
    /// The enforced decisions.
    pub enforced: Vec<PolicyHit>,
    /// The decisions if staged policies were enforced.
    pub pending: Vec<PolicyHit>,
}

impl fmt::Display for PolicyHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nobody = PolicyName::default();
        let policy = self.policy().unwrap_or(&nobody);
        let tier = match &self.by {
            Decider::Rule { policy, .. } if policy.kind == PolicyKind::Profile => PROFILE_TIER,
            Decider::Rule { policy, .. } => &policy.tier,
            Decider::EndOfTier { tier, .. } => tier,
        };
        write!(f, "{}|{tier}|{}:", self.index, policy.kind.short())?;
        if !policy.namespace.is_empty() {
            write!(f, "{}/", policy.namespace)?;
        }
        write!(f, "{}|{}|{}", policy.name, self.action.as_str().to_lowercase(), self.rule())
    }
}

/// Why a text cannot be parsed as a decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy hit {text:?}: {reason}")]
pub struct HitError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl FromStr for PolicyHit {
    type Err = HitError;

    fn from_str(text: &str) -> Result<Self, HitError> {
        parse(text).map_err(|reason| HitError { text: text.to_owned(), reason })
    }
}

fn parse(text: &str) -> Result<PolicyHit, &'static str> {
    let parts: Vec<&str> = text.split('|').collect();
    let [index, tier, policy, action, rule] = parts[..] else {
        return Err("must have five parts between '|'");
    };
    let number = |text: &str| text.parse().map_err(|_| "index and rule must be numbers");
    let action = match action.to_lowercase().as_str() {
        "allow" => Action::Allow,
        "deny" => Action::Deny,
        "pass" => Action::Pass,
        _ => return Err("the action must be allow, deny or pass"),
    };
    let (kind, name) = policy.split_once(':').ok_or("the policy must be <kind>:[<namespace>/]<name>")?;
    let kind = PolicyKind::from_short(kind).ok_or("the kind of policy is not known")?;
    let (namespace, name) = match name.split_once('/') {
        Some((namespace, name)) if kind != PolicyKind::Profile => (namespace, name),
        _ => ("", name),
    };
    if name.is_empty() || (kind != PolicyKind::Profile && name.contains('/')) {
        return Err("the policy must be <kind>:[<namespace>/]<name>");
    }
    if kind.is_namespaced() == namespace.is_empty() {
        return Err("the namespace does not go with the kind of policy");
    }
    if tier.is_empty() {
        return Err("the tier is missing");
    }
    let is_profile = tier == PROFILE_TIER;
    if is_profile != (kind == PolicyKind::Profile) {
        return Err("the tier does not go with the kind of policy");
    }
    let tier: Text = Arc::from(if is_profile { "" } else { tier });
    let policy =
        PolicyName { kind, tier: Arc::clone(&tier), namespace: Arc::from(namespace), name: Arc::from(name) };
    let by = match number(rule)? {
        END_OF_TIER if !is_profile => Decider::EndOfTier { tier, trigger: Some(policy) },
        rule => Decider::Rule { policy, rule },
    };
    Ok(PolicyHit { index: number(index)?, action, by })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calicos_texts() {
        for text in [
            "0|default|np:ns/allow-dns|allow|0",
            "1|platform|gnp:deny-all|deny|12",
            "2|default|knp:shop/web|pass|3",
            "0|default|snp:ns/tried|deny|-1",
            "3|default|sknp:ns/tried|allow|0",
            "0|adminnetworkpolicy|kcnp:base|pass|0",
            "1|__PROFILE__|pro:kns.default|allow|0",
            "1|__PROFILE__|pro:__NO_MATCH__|deny|-1",
        ] {
            let hit: PolicyHit = text.parse().unwrap();
            assert_eq!(hit.to_string(), text);
        }
        let hit: PolicyHit = "0|default|np:ns/last|Deny|-1".parse().unwrap();
        assert_eq!(hit.kind(), PolicyKind::EndOfTier);
        assert_eq!(hit.policy().map(|policy| &*policy.name), Some("last"));
        let hit: PolicyHit = "0|__PROFILE__|pro:__NO_MATCH__|deny|-1".parse().unwrap();
        assert_eq!((hit.kind(), hit.policy().map(|policy| &*policy.tier)), (PolicyKind::Profile, Some("")));
    }

    #[test]
    fn invalid_texts() {
        for (text, reason) in [
            ("0|default|np:ns/a|allow", "must have five parts between '|'"),
            ("x|default|np:ns/a|allow|0", "index and rule must be numbers"),
            ("0|default|np:ns/a|allowed|0", "the action must be allow, deny or pass"),
            ("0|default|pod:ns/a|allow|0", "the kind of policy is not known"),
            ("0|default|np:a|allow|0", "the namespace does not go with the kind of policy"),
            ("0|default|gnp:ns/a|allow|0", "the namespace does not go with the kind of policy"),
            ("0|default|gnp:|allow|0", "the policy must be <kind>:[<namespace>/]<name>"),
            ("0||gnp:a|allow|0", "the tier is missing"),
            ("0|default|pro:a|allow|0", "the tier does not go with the kind of policy"),
        ] {
            assert_eq!(text.parse::<PolicyHit>().unwrap_err().reason, reason, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_texts_parse_back(
            index in 0..20i64, rule in -1..20i64, action in 1..4i32, kind in 0..SHORT.len(),
            tier in "[a-z]{1,6}", namespace in "[a-z]{1,6}", name in "[a-z.]{1,8}",
        ) {
            let kind = SHORT[kind].0;
            let text = |text: &str| Text::from(text);
            let tier = if kind == PolicyKind::Profile { text("") } else { text(&tier) };
            let namespace = if kind.is_namespaced() { text(&namespace) } else { text("") };
            let policy = PolicyName { kind, tier: tier.clone(), namespace, name: text(&name) };
            let by = match rule {
                -1 if kind != PolicyKind::Profile => Decider::EndOfTier { tier, trigger: Some(policy) },
                rule => Decider::Rule { policy, rule },
            };
            let hit = PolicyHit { index, action: Action::from_number(action), by };
            prop_assert_eq!(hit.to_string().parse::<PolicyHit>().unwrap(), hit);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,40}") {
            if let Ok(hit) = text.parse::<PolicyHit>() {
                prop_assert_eq!(hit.to_string().parse::<PolicyHit>().unwrap(), hit);
            }
        }
    }
}
