//! Parses the prefix of a reported packet: who decided what.
//!
//! The inverse of `rules::nflog`. Prefixes that were shortened with a hash, or changed because of characters that a
//! rule cannot hold, are only known to a [`PrefixTable`] that contains them.

use crate::key::{Action, Direction, Text};
use hashbrown::HashMap;
use rules::nflog::{OwnerKind, SHORTENED_LENGTH, Verdict, no_profile_prefix, rule_prefix, tier_prefix};
use std::sync::Arc;

/// The origin of a decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A rule of a policy.
    Policy {
        /// The policy's id: `np/<namespace>/<name>`, `gnp/<name>`, ...
        id: Text,
        /// The index of the rule among those of its direction.
        rule: usize,
    },
    /// A rule of a profile.
    Profile {
        /// The profile.
        name: Text,
        /// The index of the rule among those of its direction.
        rule: usize,
    },
    /// The end of a tier (or a staged policy in which nothing matched).
    EndOfTier(Text),
    /// No profile decided.
    NoProfile,
}

/// The meaning of a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The decision.
    pub action: Action,
    /// The direction of the packets.
    pub direction: Direction,
    /// The origin of the decision.
    pub owner: Owner,
}

impl Prefix {
    /// The text that rules report packets with; `None` for what no rule can report.
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

    /// Parses a text that was not shortened.
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
                // Only digits as the writer prints them: no sign, no leading zeros.
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

/// The prefixes that rules use at present.
#[derive(Clone, Debug, Default)]
pub struct PrefixTable(HashMap<String, Prefix>);

impl PrefixTable {
    /// Adds a prefix that rules may report.
    pub fn insert(&mut self, prefix: Prefix) {
        if let Some(text) = prefix.text() {
            self.0.insert(text, prefix);
        }
    }

    /// Removes a prefix that rules no longer report.
    pub fn remove(&mut self, prefix: &Prefix) {
        if let Some(text) = prefix.text() {
            self.0.remove(&text);
        }
    }

    /// The meaning of a text: as stored, or else as parsed.
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
    fn calicos_prefixes() {
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
        fn the_table_resolves_every_prefix_that_rules_report(prefix in any_prefix()) {
            let text = prefix.text().unwrap();
            let mut table = PrefixTable::default();
            table.insert(prefix.clone());
            prop_assert_eq!(table.resolve(&text), Some(prefix.clone()));
            // Without the table, a text means what it says, or nothing.
            table.remove(&prefix);
            if let Some(read) = table.resolve(&text) {
                prop_assert_eq!(read.text(), Some(text));
            }
        }
    }
}
