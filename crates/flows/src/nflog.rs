//! The prefix of a reported packet, read back: who decided what.
//!
//! The inverse of `rules::nflog`. A long prefix was shortened with a hash, and one with characters that a rule cannot hold
//! was changed: those are only known to a [`PrefixTable`] that has them.

use crate::key::{Action, Direction, Text};
use hashbrown::HashMap;
use rules::nflog::{OwnerKind, SHORTENED_LENGTH, Verdict, no_profile_prefix, rule_prefix, tier_prefix};
use std::sync::Arc;

/// Who decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A rule of a policy.
    Policy {
        /// The policy's id: `np/<namespace>/<name>`, `gnp/<name>`, ...
        id: Text,
        /// The rule's place among those of its direction.
        rule: usize,
    },
    /// A rule of a profile.
    Profile {
        /// The profile.
        name: Text,
        /// The rule's place among those of its direction.
        rule: usize,
    },
    /// The end of a tier (or a staged policy in which nothing matched).
    EndOfTier(Text),
    /// No profile decided.
    NoProfile,
}

/// What a prefix means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// What was decided.
    pub action: Action,
    /// About packets of this direction.
    pub direction: Direction,
    /// By whom.
    pub owner: Owner,
}

impl Prefix {
    /// The text that rules report packets with; none for what no rule can report.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let verdict = match self.action {
            Action::Allow => Verdict::Allow,
            Action::Deny => Verdict::Deny,
            Action::Pass => Verdict::Pass,
            Action::Unspecified => return None,
        };
        let direction = match self.direction {
            Direction::Ingress => rules::Direction::Inbound,
            Direction::Egress => rules::Direction::Outbound,
        };
        match &self.owner {
            Owner::Policy { id, rule } => Some(rule_prefix(verdict, OwnerKind::Policy, direction, *rule, id)),
            Owner::Profile { name, rule } => {
                Some(rule_prefix(verdict, OwnerKind::Profile, direction, *rule, name))
            }
            Owner::EndOfTier(tier) => Some(tier_prefix(verdict, direction, tier)),
            Owner::NoProfile => (verdict == Verdict::Deny).then(|| no_profile_prefix(direction)),
        }
    }

    /// Reads a text that is not shortened.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() >= SHORTENED_LENGTH {
            return None;
        }
        let mut letters = text.chars();
        let action = match letters.next()? {
            'A' => Action::Allow,
            'D' => Action::Deny,
            'P' => Action::Pass,
            _ => return None,
        };
        let is_policy = match letters.next()? {
            'P' => true,
            'R' => false,
            _ => return None,
        };
        let direction = match letters.next()? {
            'I' => Direction::Ingress,
            'E' => Direction::Egress,
            _ => return None,
        };
        let rest = letters.as_str();
        let owner = match (rest.split_once('|'), is_policy) {
            (None, false) if rest.is_empty() && action == Action::Deny => Owner::NoProfile,
            (Some(("", tier)), true) if !tier.is_empty() => Owner::EndOfTier(Arc::from(tier)),
            (Some((rule, id)), _) if !id.is_empty() => {
                // Only the digits that the text was made with: no sign, nothing in front.
                let number: usize = rule.parse().ok().filter(|number: &usize| number.to_string() == rule)?;
                match is_policy {
                    true => Owner::Policy { id: Arc::from(id), rule: number },
                    false => Owner::Profile { name: Arc::from(id), rule: number },
                }
            }
            _ => return None,
        };
        Some(Self { action, direction, owner })
    }
}

/// The prefixes that were given out.
#[derive(Clone, Debug, Default)]
pub struct PrefixTable(HashMap<String, Prefix>);

impl PrefixTable {
    /// Notes what rules may report.
    pub fn insert(&mut self, prefix: Prefix) {
        if let Some(text) = prefix.text() {
            self.0.insert(text, prefix);
        }
    }

    /// Forgets what they no longer report.
    pub fn remove(&mut self, prefix: &Prefix) {
        if let Some(text) = prefix.text() {
            self.0.remove(&text);
        }
    }

    /// What a text means: as noted, or else as it reads.
    #[must_use]
    pub fn resolve(&self, text: &str) -> Option<Prefix> {
        self.0.get(text).cloned().or_else(|| Prefix::parse(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_of_calico() {
        let policy = |id: &str, rule| Owner::Policy { id: Arc::from(id), rule };
        let (ingress, egress) = (Direction::Ingress, Direction::Egress);
        for (text, action, direction, owner) in [
            ("API0|np/ns/name", Action::Allow, ingress, policy("np/ns/name", 0)),
            ("DPE12|gnp/all", Action::Deny, egress, policy("gnp/all", 12)),
            ("PPI3|default.old", Action::Pass, ingress, policy("default.old", 3)),
            (
                "ARE0|kns.default",
                Action::Allow,
                egress,
                Owner::Profile { name: "kns.default".into(), rule: 0 },
            ),
            ("DPI|default", Action::Deny, ingress, Owner::EndOfTier("default".into())),
            ("PPE|platform", Action::Pass, egress, Owner::EndOfTier("platform".into())),
            ("DRI", Action::Deny, ingress, Owner::NoProfile),
        ] {
            let prefix = Prefix { action, direction, owner };
            assert_eq!(Prefix::parse(text), Some(prefix.clone()), "{text}");
            assert_eq!(prefix.text().as_deref(), Some(text));
        }
        for text in [
            "", "A", "XPI0|a", "AXI0|a", "APX0|a", "API0", "API0|", "APIx|a", "API+1|a", "ARI|a", "ARI",
            "DRI|",
        ] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
    }

    fn any_prefix() -> impl Strategy<Value = Prefix> {
        let owner = prop_oneof![
            ("[a-z/.-]{1,80}", 0..200usize).prop_map(|(id, rule)| Owner::Policy { id: id.into(), rule }),
            ("[a-zö ]{1,80}", 0..200usize)
                .prop_map(|(name, rule)| Owner::Profile { name: name.into(), rule }),
            "[a-z]{1,80}".prop_map(|tier| Owner::EndOfTier(tier.into())),
            Just(Owner::NoProfile),
        ];
        (1..4i32, any::<bool>(), owner).prop_map(|(action, is_ingress, owner)| Prefix {
            action: if owner == Owner::NoProfile { Action::Deny } else { Action::from_number(action) },
            direction: if is_ingress { Direction::Ingress } else { Direction::Egress },
            owner,
        })
    }

    proptest! {
        #[test]
        fn the_table_knows_every_text_that_rules_make(prefix in any_prefix()) {
            let text = prefix.text().unwrap();
            let mut table = PrefixTable::default();
            table.insert(prefix.clone());
            prop_assert_eq!(table.resolve(&text), Some(prefix.clone()));
            // Without the table, a text is read as what it says, or not at all.
            table.remove(&prefix);
            if let Some(read) = table.resolve(&text) {
                prop_assert_eq!(read.text(), Some(text));
            }
        }
    }
}
