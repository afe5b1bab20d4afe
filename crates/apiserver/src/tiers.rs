//! Permissions on the policies of a tier, decided exactly as Calico decides them.
//!
//! A user needs `get` on the tier, and the verb on the pseudo-resource `tier.networkpolicies` (or that of the other
//! kind), under the name of the policy as the request has it or under `TIER.*`. Here is which questions to ask and what
//! the answers mean; asking happens elsewhere.

use crate::kinds::{GROUP, Served};
use crate::request::{Options, Verb};
use crate::selectors::Operator;
use crate::status::{Outcome, Refusal};
use api::words::LABEL_TIER;

/// A question to Kubernetes' authorization: may the user do this?
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// The verb.
    pub verb: &'static str,
    /// The namespace; empty for none.
    pub namespace: String,
    /// The resource.
    pub resource: String,
    /// The subresource, such as `status`; empty for none.
    pub subresource: &'static str,
    /// The name; empty for none.
    pub name: String,
}

/// The questions about a request for the policies of one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Questions {
    /// May the user see the tier?
    pub tier: Question,
    /// May the user do this under the policy's name?
    pub policy: Question,
    /// May the user do this to all policies of the tier?
    pub wildcard: Question,
}

/// The operation that a request needs permission for.
#[derive(Clone, Copy, Debug)]
pub struct Act<'a> {
    /// The resource.
    pub served: &'static Served,
    /// The verb.
    pub verb: Verb,
    /// The namespace of the request.
    pub namespace: &'a str,
    /// The name in the request, as sent.
    pub name: &'a str,
}

impl Questions {
    /// All three questions.
    #[must_use]
    pub fn all(self) -> [Question; 3] {
        [self.tier, self.policy, self.wildcard]
    }
}

impl Act<'_> {
    /// The questions for this tier.
    #[must_use]
    pub fn questions(&self, tier: &str) -> Questions {
        let pseudo = |name: &str| Question {
            verb: self.verb.as_str(),
            namespace: self.namespace.to_owned(),
            resource: format!("tier.{}", self.served.plural()),
            subresource: "",
            name: name.to_owned(),
        };
        Questions {
            tier: Question {
                verb: "get",
                namespace: String::new(),
                resource: "tiers".into(),
                subresource: "",
                name: tier.to_owned(),
            },
            policy: pseudo(self.name),
            wildcard: pseudo(&format!("{tier}.*")),
        }
    }

    /// Decides from the answers to the three questions. A refusal names `policy`.
    ///
    /// # Errors
    /// The refusal.
    pub fn decide(&self, user: &str, tier: &str, policy: &str, answers: [bool; 3]) -> Outcome<()> {
        match answers {
            [true, true, _] | [true, _, true] => Ok(()),
            [may_get_tier, ..] => Err(self.refused(user, tier, policy, may_get_tier)),
        }
    }

    /// The refusal after negative answers. It names `policy`.
    #[must_use]
    fn refused(&self, user: &str, tier: &str, policy: &str, may_get_tier: bool) -> Box<Refusal> {
        Refusal::forbidden(self.served.plural(), policy, &self.message(user, tier, may_get_tier))
    }

    /// Calico's message for the refusal.
    #[must_use]
    pub fn message(&self, user: &str, tier: &str, may_get_tier: bool) -> String {
        let mut text = format!(
            "User {user:?} cannot {} {}.{GROUP} in tier {tier:?}",
            self.verb.as_str(),
            self.served.plural()
        );
        if !self.namespace.is_empty() {
            text.push_str(&format!(" and namespace {:?}", self.namespace));
        }
        if !may_get_tier {
            text.push_str(" (user cannot get tier)");
        }
        text
    }
}

/// The tiers that a list or watch names; `None` when it names none.
///
/// # Errors
/// When it names them in an unsupported way.
pub(crate) fn named_tiers(options: &Options) -> Outcome<Option<Vec<String>>> {
    if let Some(requirement) = options.fields.requirements().iter().find(|r| r.field == "spec.tier") {
        return match requirement.equal {
            true => Ok(Some(vec![requirement.value.clone()])),
            false => {
                Err(Refusal::bad_request("non equal selector operator not supported for field spec.tier"))
            }
        };
    }
    let named = options.labels.requirements().iter().find(|requirement| requirement.key == LABEL_TIER);
    match named.map(|requirement| &requirement.operator) {
        None => Ok(None),
        Some(Operator::In(values)) => Ok(Some(values.iter().cloned().collect())),
        Some(Operator::Equals(value)) => Ok(Some(vec![value.clone()])),
        Some(_) => Err(Refusal::bad_request(format!(
            "non equal selector operator not supported for label {LABEL_TIER}"
        ))),
    }
}

/// The refusal of a list for which no tier is allowed.
#[must_use]
pub(crate) fn none_allowed(served: &Served) -> Box<Refusal> {
    Refusal::forbidden(served.plural(), "", "operation on Calico tiered policy is forbidden")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act<'a>(verb: Verb, namespace: &'a str, name: &'a str) -> Act<'a> {
        let served = Served::from_plural("networkpolicies").expect("served");
        Act { served, verb, namespace, name }
    }

    #[test]
    fn three_questions_are_derived_from_an_act() {
        let asked = act(Verb::Update, "shop", "web").questions("red");
        assert_eq!(
            (asked.tier.verb, asked.tier.resource.as_str(), asked.tier.name.as_str()),
            ("get", "tiers", "red")
        );
        assert_eq!(asked.tier.namespace, "");
        assert_eq!(
            (asked.policy.resource.as_str(), asked.policy.name.as_str()),
            ("tier.networkpolicies", "web")
        );
        assert_eq!((asked.wildcard.name.as_str(), asked.wildcard.namespace.as_str()), ("red.*", "shop"));
        assert_eq!(asked.wildcard.verb, "update");
    }

    #[test]
    fn messages_are_calicos() {
        let exchanges = include_str!("../tests/data/exchanges.txt");
        for (refusal, wanted) in [
            (
                act(Verb::Get, "shop", "plain").refused("alice", "default", "plain", false),
                "alice GET namespaces/shop/networkpolicies/plain 403",
            ),
            (
                act(Verb::List, "shop", "").refused("alice", "default", "", false),
                "alice GET namespaces/shop/networkpolicies?fieldSelector=spec.tier%3Ddefault 403",
            ),
            (
                act(Verb::Delete, "shop", "plain").refused("alice", "default", "plain", false),
                "alice DELETE namespaces/shop/networkpolicies/plain 403",
            ),
            (
                act(Verb::DeleteCollection, "shop", "").refused("alice", "default", "", false),
                "alice DELETE namespaces/shop/networkpolicies?fieldSelector=spec.tier%3Ddefault 403",
            ),
        ] {
            let line = exchanges.lines().find(|line| line.starts_with(wanted)).expect(wanted);
            let captured: serde_json::Value = serde_json::from_str(&line[wanted.len()..]).expect("JSON");
            assert_eq!(refusal.message, captured["message"], "{wanted}");
            assert_eq!(refusal.to_value()["details"], captured["details"], "{wanted}");
        }
    }

    /// Calico's own test cases of its authorizer: what is asked and answered, and the result.
    #[test]
    fn decisions_are_calicos() {
        for (what, [tier, policy, wildcard], refused) in [
            ("the tier cannot be seen", [false, true, true], Some(" (user cannot get tier)")),
            ("the wildcard allows", [true, false, true], None),
            ("the name allows", [true, true, false], None),
            ("both allow", [true, true, true], None),
            ("neither allows", [true, false, false], Some("")),
            ("nothing is allowed", [false, false, false], Some(" (user cannot get tier)")),
        ] {
            for (plural, place, name) in [
                ("networkpolicies", "test-namespace", "test-tier.test-np"),
                ("globalnetworkpolicies", "", "test-tier.test-gnp"),
                ("stagednetworkpolicies", "test-namespace", "test-tier.test-snp"),
                ("stagedglobalnetworkpolicies", "", "test-tier.test-sgnp"),
            ] {
                for verb in [
                    Verb::Get,
                    Verb::Create,
                    Verb::Update,
                    Verb::Patch,
                    Verb::Delete,
                    Verb::List,
                    Verb::Watch,
                ] {
                    let is_one = !matches!(verb, Verb::List | Verb::Watch);
                    let name = if is_one { name } else { "" };
                    let served = Served::from_plural(plural).expect("served");
                    let act = Act { served, verb, namespace: place, name };
                    let decided = act.decide("testuser", "test-tier", name, [tier, policy, wildcard]);
                    let about = if is_one { format!(" {name:?}") } else { String::new() };
                    let within = if place.is_empty() { "" } else { " and namespace \"test-namespace\"" };
                    let wanted = refused.map(|end| {
                        format!(
                            "{plural}.projectcalico.org{about} is forbidden: User \"testuser\" cannot {} \
                             {plural}.projectcalico.org in tier \"test-tier\"{within}{end}",
                            verb.as_str()
                        )
                    });
                    assert_eq!(decided.err().map(|refusal| refusal.message), wanted, "{what}");
                }
            }
        }
    }

    #[test]
    fn tiers_of_selectors() {
        for (query, expected) in [
            ("", Ok(None)),
            ("fieldSelector=spec.tier%3Dred", Ok(Some(vec!["red"]))),
            ("fieldSelector=spec.tier%21%3Dred", Err(400)),
            ("labelSelector=projectcalico.org/tier%3Dred", Ok(Some(vec!["red"]))),
            ("labelSelector=projectcalico.org/tier%20in%20(red,blue)", Ok(Some(vec!["blue", "red"]))),
            ("labelSelector=projectcalico.org/tier%20notin%20(red)", Err(400)),
            ("labelSelector=projectcalico.org/tier", Err(400)),
            ("labelSelector=app%3Dweb", Ok(None)),
        ] {
            let options = Options::parse(query).expect("good");
            let found = named_tiers(&options).map_err(|refusal| refusal.code);
            let expected = expected.map(|o| o.map(|v| v.into_iter().map(str::to_owned).collect::<Vec<_>>()));
            assert_eq!(found, expected, "{query}");
        }
    }
}
