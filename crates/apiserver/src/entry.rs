//! An object as clients receive it: encoded once, along with the data for selectors and order.

use crate::selectors::{FieldSelector, LabelSelector};
use api::{Kind, Resource};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The place of an object in a list: namespace and name.
pub(crate) type Place = (String, String);

/// Labels as a list: most objects have one or two, and a map takes several times their size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Returns the value of a label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| **key == *name).map(|(_, value)| &**value)
    }
}

impl From<&BTreeMap<String, String>> for Labels {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        Self(labels.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into())).collect())
    }
}

/// An encoded object.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Namespace and name.
    pub place: Place,
    /// Its revision, as clients see it.
    pub revision: String,
    /// Its labels.
    pub labels: Labels,
    /// The tier of a policy; empty for other kinds.
    pub tier: String,
    /// The whole object as JSON.
    pub json: Bytes,
}

impl Entry {
    /// Encodes an object; `None` if clients are not to see it.
    ///
    /// # Errors
    /// When encoding fails, which it does not for our types.
    pub fn new(mut resource: Resource) -> Result<Option<Self>, serde_json::Error> {
        match &mut resource {
            // A tier that an old version stored may lack its order and action.
            Resource::Tier(tier) => tier.set_defaults(),
            Resource::BlockAffinity(affinity) if affinity.spec.deleted => return Ok(None),
            _ => {}
        }
        let metadata = resource.metadata();
        Ok(Some(Self {
            place: place_of(&resource),
            revision: metadata.resource_version.clone(),
            labels: Labels::from(&metadata.labels),
            tier: tier(&resource).unwrap_or_default().to_owned(),
            // Kept for long, so without the encoder's unused capacity.
            json: Bytes::from(resource.to_json()?.into_boxed_slice()),
        }))
    }

    /// The object with another revision, as in the last event of a deleted object.
    #[must_use]
    pub fn at_revision(&self, revision: &str) -> Self {
        let mut value: serde_json::Value = serde_json::from_slice(&self.json).unwrap_or_default();
        if let Some(metadata) = value.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), revision.into());
        }
        Self { revision: revision.to_owned(), json: Bytes::from(value.to_string()), ..self.clone() }
    }
}

/// Encodes an object; `None` if clients are not to see it. Encoding does not fail for our types.
#[must_use]
pub(crate) fn encoded(resource: Resource) -> Option<Arc<Entry>> {
    Entry::new(resource).ok().flatten().map(Arc::new)
}

/// The place of an object.
#[must_use]
pub(crate) fn place_of(resource: &Resource) -> Place {
    (resource.namespace().to_owned(), resource.name().to_owned())
}

/// The tier of a policy; `None` for other kinds.
#[must_use]
pub(crate) fn tier(resource: &Resource) -> Option<&str> {
    let tier = match resource {
        Resource::NetworkPolicy(policy) => &policy.spec.tier,
        Resource::GlobalNetworkPolicy(policy) => &policy.spec.tier,
        Resource::StagedNetworkPolicy(policy) => &policy.spec.tier,
        Resource::StagedGlobalNetworkPolicy(policy) => &policy.spec.tier,
        _ => return None,
    };
    Some(if tier.is_empty() { api::words::DEFAULT_TIER } else { tier.as_str() })
}

/// Selects the objects of a kind that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this namespace; empty for all.
    pub namespace: String,
    /// Only objects with matching labels.
    pub labels: LabelSelector,
    /// Only objects with matching fields.
    pub fields: FieldSelector,
    /// Only policies that the user may see; `None` if tiers do not matter.
    pub visible: Option<Arc<Visible>>,
}

/// The policies of all tiers that a user may see, decided for the tiers that existed at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// The tiers that the user may see.
    pub allowed: BTreeSet<String>,
    /// Whether these were all the tiers.
    pub is_all: bool,
    /// The revision of the decision.
    pub revision: u64,
}

impl Visible {
    /// Whether the user may see a policy. A user who may see every tier also sees policies whose tier does not exist,
    /// but not those of tiers created after the decision.
    #[must_use]
    pub fn passes(&self, entry: &Entry) -> bool {
        self.allowed.contains(&entry.tier)
            || (self.is_all && number(&entry.revision).is_some_and(|revision| revision <= self.revision))
    }

    /// Whether it is still undecided if the user may see a policy, because its tier was created after the decision.
    #[must_use]
    pub fn is_undecided(&self, entry: &Entry) -> bool {
        self.is_all && !self.passes(entry)
    }
}

impl Filter {
    /// Whether the filter restricts only the namespace.
    #[must_use]
    pub fn is_by_namespace(&self) -> bool {
        self.labels.is_empty()
            && self.fields.is_empty()
            && self.visible.as_ref().is_none_or(|visible| visible.is_all)
    }

    /// Whether an object passes the filter.
    #[must_use]
    pub fn passes(&self, entry: &Entry) -> bool {
        (self.namespace.is_empty() || self.namespace == entry.place.0)
            && self.visible.as_ref().is_none_or(|visible| visible.passes(entry))
            && self.labels.matches(|name| entry.labels.get(name))
            && self.fields.matches(|field| match field {
                "metadata.name" => Some(entry.place.1.as_str()),
                "metadata.namespace" => Some(entry.place.0.as_str()),
                "spec.tier" => Some(entry.tier.as_str()),
                _ => None,
            })
    }
}

/// The revision as a number that can be compared. Profiles in Kubernetes have revisions that cannot.
#[must_use]
pub(crate) fn number(revision: &str) -> Option<u64> {
    revision.parse().ok()
}

/// The object of a bookmark: empty except for its kind and revision.
#[must_use]
pub(crate) fn bookmark(kind: Kind, revision: &str, ends_initial_events: bool) -> serde_json::Value {
    let mut metadata = serde_json::json!({"resourceVersion": revision, "creationTimestamp": null});
    if ends_initial_events {
        metadata["annotations"] = serde_json::json!({"k8s.io/initial-events-end": "true"});
    }
    serde_json::json!({
        "kind": kind.as_str(), "apiVersion": api::kind::API_VERSION, "metadata": metadata, "spec": {},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_tiers_created_later_are_undecided() {
        let entry = |tier: &str, revision: u64| Entry {
            place: (String::new(), "p".into()),
            revision: revision.to_string(),
            labels: Labels::default(),
            tier: tier.to_owned(),
            json: Bytes::new(),
        };
        let visible = |is_all| Visible { allowed: BTreeSet::from(["red".to_owned()]), is_all, revision: 10 };
        for (tier, revision, is_all, passes, is_undecided) in [
            ("red", 5, true, true, false),
            ("red", 15, true, true, false),
            ("red", 15, false, true, false),
            // The policy existed when the tier did not.
            ("stray", 5, true, true, false),
            ("stray", 5, false, false, false),
            ("later", 15, true, false, true),
            ("later", 15, false, false, false),
        ] {
            let (visible, entry) = (visible(is_all), entry(tier, revision));
            let found = (visible.passes(&entry), visible.is_undecided(&entry));
            assert_eq!(found, (passes, is_undecided), "{tier} at {revision}, all: {is_all}");
        }
    }
}
