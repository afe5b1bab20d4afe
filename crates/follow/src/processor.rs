//! Converts stored entries to entries of a feed. Pure: the same history of entries gives the same outputs.
//!
//! Most kinds are converted one by one ([`Converted`]) or passed on ([`Raw`]). State is kept only where the feed's key
//! does not follow from the stored one: [`host_endpoint`], [`pool`], [`node`], [`settings`].
//!
//! Nothing here knows what the feed has already reported: the cache drops repeated outputs.

use crate::keys::stamp;
use api::{Kind, Resource};
use model::convert::{self, Faults};
use model::feed::{FeedEntry, FeedKey, NamespacedName, Policy};
use model::names::workload_endpoint_key;
use model::v1::PolicyKey;
use model::{Key, ProfileName, ResourceKey, Value};

pub mod host_endpoint;
pub mod node;
pub mod pool;
pub mod settings;
#[cfg(test)]
mod tests;

/// What a feed should report about one of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The current entry.
    pub entry: FeedEntry,
    /// Whether all of it could be read. If not, the last reported version stays in force, and this is a substitute that
    /// is reported only if there never was a readable one.
    pub is_readable: bool,
    /// The store's version of the source object, as a number.
    pub revision: u64,
    /// Whether to report it even if its revision is the last one reported: that may be another object's.
    pub replaces: bool,
}

/// The results of one or several stored entries.
#[derive(Debug, Default, PartialEq)]
pub struct Outputs {
    /// The outputs, to be applied in this order.
    pub entries: Vec<Output>,
    /// What could not be read.
    pub faults: Faults,
}

impl Outputs {
    fn push(&mut self, entry: FeedEntry, revision: &str) {
        self.entries.push(Output { entry, is_readable: true, revision: stamp(revision), replaces: false });
    }

    /// Adds an entry that could not be read.
    fn push_unreadable(&mut self, entry: FeedEntry, revision: &str) {
        self.push(entry, revision);
        if let Some(output) = self.entries.last_mut() {
            output.is_readable = false;
        }
    }

    /// Adds an entry, or a substitute if parts of it could not be read.
    fn push_converted(&mut self, entry: FeedEntry, faults: Faults, revision: &str) {
        if faults.is_empty() {
            self.push(entry, revision);
        } else {
            self.push_unreadable(entry, revision);
        }
        self.faults.append(faults);
    }
}

/// Converts stored entries of one kind to entries of a feed.
pub trait Processor: Send {
    /// Processes an entry with this value and revision.
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs);

    /// Processes the removal of an entry.
    fn remove(&mut self, key: &Key, outputs: &mut Outputs) {
        for key in self.keys(key) {
            outputs.push(key.gone(), "");
        }
    }

    /// The keys under which the feed may have reported a stored entry.
    fn keys(&self, key: &Key) -> Vec<FeedKey>;

    /// A list begins: everything that exists will be processed again, or kept.
    fn begin(&mut self) {}

    /// Processes an entry that exists but cannot be read at all.
    fn keep(&mut self, _key: &Key) {}

    /// The list is complete: entries that were neither processed nor kept are gone.
    fn finish(&mut self, _outputs: &mut Outputs) {}

    /// [`Self::process`] as a function, if there is no state between entries: any thread may call it, in any order.
    fn pure(&self) -> Option<Pure> {
        None
    }
}

/// Converts one stored entry to entries of a feed.
pub type Pure = fn(&Key, Value, &str, &mut Outputs);

/// Passes on whole resources, with the revision in their metadata, and blocks and claims as stored.
#[derive(Debug, Default)]
pub struct Stored;

impl Processor for Stored {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let entry = match (key, value) {
            (Key::Resource(key), Value::Resource(mut resource)) => {
                revision.clone_into(&mut resource.metadata_mut().resource_version);
                FeedEntry::Resource(key.clone(), Some(Box::new(resource)))
            }
            (key, value) => return Raw.process(key, value, revision, outputs),
        };
        outputs.push(entry, revision);
    }

    fn pure(&self) -> Option<Pure> {
        Some(|key, value, revision, outputs| Stored.process(key, value, revision, outputs))
    }

    fn keys(&self, key: &Key) -> Vec<FeedKey> {
        match key {
            Key::Resource(key) => vec![FeedKey::Resource(key.clone())],
            key => Raw.keys(key),
        }
    }
}

/// Passes on the kinds that feeds carry whole. Unreadable parts are missing; the rest is current.
#[derive(Debug, Default)]
pub struct Raw;

impl Processor for Raw {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let entry = match (key, value) {
            (Key::Resource(key), Value::Resource(resource)) => raw_entry(key, resource, &mut outputs.faults),
            (Key::Block { cidr }, Value::Block(block)) => {
                Some(FeedEntry::Block(*cidr, Some(Box::new(block))))
            }
            (Key::BlockAffinity(key), Value::BlockAffinity(affinity)) => {
                Some(FeedEntry::BlockAffinity(key.clone(), Some(affinity)))
            }
            _ => None,
        };
        match entry {
            Some(entry) => outputs.push(entry, revision),
            None => outputs.faults.add("kind", "no feed carries entries of this sort"),
        }
    }

    fn pure(&self) -> Option<Pure> {
        Some(|key, value, revision, outputs| Raw.process(key, value, revision, outputs))
    }

    fn keys(&self, key: &Key) -> Vec<FeedKey> {
        let key = match key {
            Key::Block { cidr } => Some(FeedKey::Block(*cidr)),
            Key::BlockAffinity(key) => Some(FeedKey::BlockAffinity(key.clone())),
            Key::Resource(key) => raw_key(key),
            _ => None,
        };
        key.into_iter().collect()
    }
}

fn raw_entry(key: &ResourceKey, resource: Resource, faults: &mut Faults) -> Option<FeedEntry> {
    let name = || key.name.clone();
    Some(match resource {
        Resource::Node(node) => {
            FeedEntry::Node(key.name.as_str().into(), Some(Box::new(convert::node::node(*node, faults))))
        }
        Resource::BGPConfiguration(object) => FeedEntry::BgpConfiguration(name(), Some(object)),
        Resource::BGPPeer(object) => {
            FeedEntry::BgpPeer(name(), Some(Box::new(convert::object::bgp_peer(*object, faults))))
        }
        Resource::BGPFilter(object) => FeedEntry::BgpFilter(name(), Some(object)),
        Resource::CalicoNodeStatus(object) => FeedEntry::NodeStatus(name(), Some(object)),
        Resource::KubernetesService(object) => FeedEntry::Service(namespaced(key), Some(object)),
        Resource::KubernetesEndpointSlice(object) => FeedEntry::EndpointSlice(namespaced(key), Some(object)),
        Resource::LiveMigration(object) => {
            let value = convert::object::live_migration(*object, faults);
            FeedEntry::LiveMigration(namespaced(key), Some(Box::new(value)))
        }
        _ => return None,
    })
}

fn raw_key(key: &ResourceKey) -> Option<FeedKey> {
    let name = || key.name.clone();
    Some(match key.kind {
        Kind::Node => FeedKey::Node(key.name.as_str().into()),
        Kind::BGPConfiguration => FeedKey::BgpConfiguration(name()),
        Kind::BGPPeer => FeedKey::BgpPeer(name()),
        Kind::BGPFilter => FeedKey::BgpFilter(name()),
        Kind::CalicoNodeStatus => FeedKey::NodeStatus(name()),
        Kind::KubernetesService => FeedKey::Service(namespaced(key)),
        Kind::KubernetesEndpointSlice => FeedKey::EndpointSlice(namespaced(key)),
        Kind::LiveMigration => FeedKey::LiveMigration(namespaced(key)),
        _ => return None,
    })
}

fn namespaced(key: &ResourceKey) -> NamespacedName {
    NamespacedName { namespace: key.namespace.clone(), name: key.name.clone() }
}

/// Converts kinds whose key in the feed follows from the stored key alone.
#[derive(Debug, Default)]
pub struct Converted;

impl Processor for Converted {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let (Key::Resource(key), Value::Resource(resource)) = (key, value) else {
            outputs.faults.add("", "this entry is not a resource");
            return;
        };
        let resource = match resource {
            Resource::Profile(profile) => return profile_outputs(key, *profile, revision, outputs),
            other => other,
        };
        let mut faults = Faults::new();
        match feed_key(key).and_then(|feed_key| convert(feed_key, key, resource, &mut faults)) {
            Some(entry) => outputs.push_converted(entry, faults, revision),
            None => outputs.faults.add("metadata.name", format!("{key} has no name in this feed")),
        }
    }

    fn pure(&self) -> Option<Pure> {
        Some(|key, value, revision, outputs| Converted.process(key, value, revision, outputs))
    }

    fn keys(&self, key: &Key) -> Vec<FeedKey> {
        let Key::Resource(key) = key else { return Vec::new() };
        if key.kind == Kind::Profile {
            return profile_keys(&key.name).into();
        }
        feed_key(key).into_iter().collect()
    }
}

/// The entry in the feed, without a value for an object that the feed leaves out; `None` for a resource that is not of
/// the kind of its key. The namespace is taken from the key: the store's access rules apply to that one.
fn convert(
    feed_key: FeedKey,
    key: &ResourceKey,
    resource: Resource,
    faults: &mut Faults,
) -> Option<FeedEntry> {
    let namespace = key.namespace.as_str();
    let policy: Option<Policy> = match (feed_key, resource) {
        (FeedKey::WorkloadEndpoint(key), Resource::WorkloadEndpoint(object)) => {
            let value = convert::endpoint::workload(*object, faults);
            return Some(FeedEntry::WorkloadEndpoint(key, value.map(Box::new)));
        }
        (FeedKey::NetworkSet(name), Resource::NetworkSet(object)) => {
            let value = convert::set::namespaced_set(*object, faults);
            return Some(FeedEntry::NetworkSet(name, Some(Box::new(value))));
        }
        (FeedKey::NetworkSet(name), Resource::GlobalNetworkSet(object)) => {
            let value = convert::set::global_set(*object, faults);
            return Some(FeedEntry::NetworkSet(name, Some(Box::new(value))));
        }
        (FeedKey::Tier(name), Resource::Tier(object)) => {
            return Some(FeedEntry::Tier(name, Some(convert::set::tier(&object.spec))));
        }
        (FeedKey::Policy(_), Resource::NetworkPolicy(object)) => {
            Some(convert::policy::namespaced(namespace, object.spec, faults))
        }
        (FeedKey::Policy(_), Resource::KubernetesNetworkPolicy(object)) => {
            Some(convert::policy::namespaced(namespace, object.spec.0, faults))
        }
        (FeedKey::Policy(_), Resource::GlobalNetworkPolicy(object)) => {
            Some(convert::policy::global(object.spec, faults))
        }
        (FeedKey::Policy(_), Resource::KubernetesClusterNetworkPolicy(object)) => {
            Some(convert::policy::global(object.spec.0, faults))
        }
        (FeedKey::Policy(_), Resource::StagedNetworkPolicy(object)) => {
            convert::policy::staged(namespace, &object.spec, faults)
        }
        (FeedKey::Policy(_), Resource::StagedGlobalNetworkPolicy(object)) => {
            convert::policy::staged_global(&object.spec, faults)
        }
        (FeedKey::Policy(_), Resource::StagedKubernetesNetworkPolicy(object)) => {
            convert::policy::staged_kubernetes(&object, faults)
        }
        _ => return None,
    };
    Some(FeedEntry::Policy(policy_key(key), policy.map(Box::new)))
}

fn policy_key(ResourceKey { kind, namespace, name }: &ResourceKey) -> PolicyKey {
    PolicyKey { kind: *kind, namespace: namespace.clone(), name: name.clone() }
}

/// The feed's key for a kind that is converted one by one.
fn feed_key(key: &ResourceKey) -> Option<FeedKey> {
    let ResourceKey { kind, namespace, name } = key;
    if name.is_empty() || (kind.is_namespaced() && namespace.is_empty()) {
        return None;
    }
    Some(match kind {
        kind if model::v1::is_policy(*kind) => FeedKey::Policy(policy_key(key)),
        Kind::WorkloadEndpoint => FeedKey::WorkloadEndpoint(workload_endpoint_key(key)?),
        Kind::NetworkSet => FeedKey::NetworkSet(format!("{namespace}/{name}")),
        Kind::GlobalNetworkSet => FeedKey::NetworkSet(name.clone()),
        Kind::Tier => FeedKey::Tier(name.as_str().into()),
        _ => return None,
    })
}

fn profile_keys(name: &str) -> [FeedKey; 2] {
    let name = ProfileName::from(name);
    [FeedKey::ProfileRules(name.clone()), FeedKey::Profile(name)]
}

/// A profile becomes two entries: its rules, and itself with the labels that it passes on.
fn profile_outputs(key: &ResourceKey, profile: api::Profile, revision: &str, outputs: &mut Outputs) {
    let name = ProfileName::from(key.name.as_str());
    let mut faults = Faults::new();
    let rules = convert::policy::profile_rules(profile.spec.clone(), &mut faults);
    let mut label_faults = Faults::new();
    if profile.spec.extra.contains_key("labelsToApply") {
        label_faults.add("spec.labelsToApply", "is not a map of texts");
    }
    let rules = FeedEntry::ProfileRules(name.clone(), Some(Box::new(rules)));
    outputs.push_converted(rules, faults, revision);
    let own = FeedEntry::Profile(name, Some(Box::new(profile)));
    outputs.push_converted(own, label_faults, revision);
}
