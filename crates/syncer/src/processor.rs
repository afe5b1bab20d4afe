//! From stored entries to entries of a feed. Pure: the same history of entries gives the same outputs.
//!
//! Most kinds are converted one by one ([`Converted`]) or passed on ([`Raw`]). State is kept only where the feed's key
//! does not follow from the stored one: [`host_endpoint`], [`pool`], [`node`], [`settings`].
//!
//! Nothing here knows what the feed has already told: an output that is told a second time is swallowed by the cache.

use api::{Kind, Resource};
use model::convert::{self, Faults};
use model::feed::FeedValue;
use model::names::workload_endpoint_v1_key;
use model::v1::PolicyKey;
use model::{Key, ResourceKey, V1Key, Value};

pub mod host_endpoint;
pub mod node;
pub mod pool;
pub mod settings;
#[cfg(test)]
mod tests;

/// What a feed has to say about one of its keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// This is its value.
    Value(FeedValue),
    /// It has none.
    Gone,
    /// It has one that cannot be read. What was told last stays in force; the fallback is told only where nothing
    /// readable ever was.
    Unreadable(Option<FeedValue>),
}

/// One key of a feed and its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The key in the feed.
    pub key: Key,
    /// What it holds now.
    pub content: Content,
    /// The store's version of the object that this comes from.
    pub revision: String,
    /// Told even if the revision is the one that was told last: it may be another object's.
    pub replaces: bool,
}

/// What came out of one or several stored entries.
#[derive(Debug, Default, PartialEq)]
pub struct Outputs {
    /// The outputs, to be applied in this order.
    pub entries: Vec<Output>,
    /// What could not be read.
    pub faults: Faults,
}

impl Outputs {
    fn push(&mut self, key: Key, content: Content, revision: &str) {
        self.entries.push(Output { key, content, revision: revision.to_owned(), replaces: false });
    }

    /// A value, or a substitute where parts of it could not be read.
    fn push_converted(&mut self, key: Key, value: Option<FeedValue>, faults: Faults, revision: &str) {
        let content = match value {
            value if !faults.is_empty() => Content::Unreadable(value),
            Some(value) => Content::Value(value),
            None => Content::Gone,
        };
        self.faults.append(faults);
        self.push(key, content, revision);
    }
}

/// Turns stored entries of one kind into entries of a feed.
pub trait Processor: Send {
    /// An entry is there, with this value and revision.
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs);

    /// An entry is gone.
    fn remove(&mut self, key: &Key, outputs: &mut Outputs) {
        for key in self.keys(key) {
            outputs.push(key, Content::Gone, "");
        }
    }

    /// The keys under which the feed may have told about a stored entry.
    fn keys(&self, key: &Key) -> Vec<Key>;

    /// A list begins: everything that is there will be processed again, or kept.
    fn begin(&mut self) {}

    /// An entry is there that cannot be read at all.
    fn keep(&mut self, _key: &Key) {}

    /// The list is complete: what was neither processed nor kept is gone.
    fn finish(&mut self, _outputs: &mut Outputs) {}
}

/// Passes on what is stored, under its own key.
#[derive(Debug, Default)]
pub struct Raw;

impl Processor for Raw {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let value = match value {
            Value::Resource(resource) => FeedValue::Resource(Box::new(resource)),
            Value::Block(block) => FeedValue::Block(Box::new(block)),
            Value::BlockAffinity(affinity) => FeedValue::BlockAffinity(affinity),
            _ => {
                outputs.faults.add("", "no feed has values of this sort");
                return;
            }
        };
        outputs.push(key.clone(), Content::Value(value), revision);
    }

    fn keys(&self, key: &Key) -> Vec<Key> {
        vec![key.clone()]
    }
}

/// Converts the kinds whose key in the feed follows from the stored key alone.
#[derive(Debug, Default)]
pub struct Converted;

impl Processor for Converted {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let (Key::Resource(key), Value::Resource(resource)) = (key, value) else {
            outputs.faults.add("", "this entry is no resource");
            return;
        };
        if let Resource::Profile(profile) = resource {
            return profile_outputs(key, *profile, revision, outputs);
        }
        let mut faults = Faults::new();
        let value = convert(key, resource, &mut faults);
        match v1_key(key) {
            Some(v1) => outputs.push_converted(Key::V1(v1), value, faults, revision),
            None => outputs.faults.add("metadata.name", format!("{key} has no name in this feed")),
        }
    }

    fn keys(&self, key: &Key) -> Vec<Key> {
        let Key::Resource(key) = key else { return Vec::new() };
        if key.kind == Kind::Profile {
            return profile_keys(key).into();
        }
        v1_key(key).map(Key::V1).into_iter().collect()
    }
}

/// The value in the feed; none for an object that the feed leaves out. The namespace is the key's: that is the one that
/// the store's access rules were about.
fn convert(key: &ResourceKey, resource: Resource, faults: &mut Faults) -> Option<FeedValue> {
    let namespace = key.namespace.as_str();
    let policy = |policy| FeedValue::Policy(Box::new(policy));
    let set = |set| FeedValue::NetworkSet(Box::new(set));
    Some(match resource {
        Resource::NetworkPolicy(object) => {
            policy(convert::policy::namespaced(namespace, object.spec, faults))
        }
        Resource::KubernetesNetworkPolicy(object) => {
            policy(convert::policy::namespaced(namespace, object.spec.0, faults))
        }
        Resource::GlobalNetworkPolicy(object) => policy(convert::policy::global(object.spec, faults)),
        Resource::KubernetesClusterNetworkPolicy(object) => {
            policy(convert::policy::global(object.spec.0, faults))
        }
        Resource::StagedNetworkPolicy(object) => {
            policy(convert::policy::staged(namespace, &object.spec, faults)?)
        }
        Resource::StagedGlobalNetworkPolicy(object) => {
            policy(convert::policy::staged_global(&object.spec, faults)?)
        }
        Resource::StagedKubernetesNetworkPolicy(object) => {
            policy(convert::policy::staged_kubernetes(&object, faults)?)
        }
        Resource::WorkloadEndpoint(object) => {
            FeedValue::WorkloadEndpoint(Box::new(convert::endpoint::workload(*object, faults)?))
        }
        Resource::NetworkSet(object) => set(convert::set::namespaced_set(*object, faults)),
        Resource::GlobalNetworkSet(object) => set(convert::set::global_set(*object, faults)),
        Resource::Tier(object) => FeedValue::Tier(convert::set::tier(&object.spec)),
        other => {
            faults.add("kind", format!("{} is not converted one by one", other.kind()));
            return None;
        }
    })
}

/// The key in the feed of a kind that is converted one by one.
fn v1_key(key: &ResourceKey) -> Option<V1Key> {
    let ResourceKey { kind, namespace, name } = key;
    if name.is_empty() || (kind.is_namespaced() && namespace.is_empty()) {
        return None;
    }
    Some(match kind {
        kind if model::v1::is_policy(*kind) => {
            V1Key::Policy(PolicyKey { kind: *kind, namespace: namespace.clone(), name: name.clone() })
        }
        Kind::WorkloadEndpoint => workload_endpoint_v1_key(key)?,
        Kind::NetworkSet => V1Key::NetworkSet { name: format!("{namespace}/{name}") },
        Kind::GlobalNetworkSet => V1Key::NetworkSet { name: name.clone() },
        Kind::Tier => V1Key::Tier { name: name.clone() },
        _ => return None,
    })
}

fn profile_keys(key: &ResourceKey) -> [Key; 3] {
    let name = &key.name;
    [
        Key::V1(V1Key::ProfileLabels { name: name.clone() }),
        Key::V1(V1Key::ProfileRules { name: name.clone() }),
        Key::Resource(key.clone()),
    ]
}

/// A profile is three things: the labels it hands down, its rules, and itself.
fn profile_outputs(key: &ResourceKey, profile: api::Profile, revision: &str, outputs: &mut Outputs) {
    let [labels_key, rules_key, own_key] = profile_keys(key);
    let labels = profile.spec.labels_to_apply.clone();
    let mut faults = Faults::new();
    let mut label_faults = Faults::new();
    if profile.spec.extra.contains_key("labelsToApply") {
        label_faults.add("spec.labelsToApply", "is no map of texts");
    }
    let own = FeedValue::Resource(Box::new(Resource::from(profile.clone())));
    let rules = convert::policy::profile_rules(profile.spec, &mut faults);
    let labels = (!labels.is_empty()).then_some(FeedValue::ProfileLabels(labels));
    outputs.push_converted(labels_key, labels, label_faults, revision);
    outputs.push_converted(rules_key, Some(FeedValue::ProfileRules(Box::new(rules))), faults, revision);
    outputs.push(own_key, Content::Value(own), revision);
}
