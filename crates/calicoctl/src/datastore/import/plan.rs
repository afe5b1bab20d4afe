//! Plans an import: compares the file with the contents of the datastore.

use crate::datastore::bundle::{Bundle, KINDS, SUPPLEMENTARY_KINDS};
use crate::datastore::sameness;
use crate::failure::{Failure, Result};
use api::{BUILT_IN_TIERS, DEFAULT_ALLOW_PROFILE, Kind, Resource};
use client::{Client, Error, ListQuery};
use model::{AffinityType, Key, KvPair, ListOptions, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Policies that Calico creates in etcd from Kubernetes' policies.
const KUBERNETES_POLICY: &str = "knp.default.";

/// The steps, in order, and the messages about them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The resources.
    pub(super) steps: Vec<Step>,
    /// The entries of address management.
    pub(super) entries: Vec<EntryStep>,
    /// Messages for the user.
    pub(super) notices: Vec<String>,
    /// Differences between the datastore and the file.
    pub(super) conflicts: Vec<String>,
}

/// One resource of the file.
#[derive(Debug)]
pub(super) struct Step {
    /// As in the file.
    pub(super) resource: Resource,
    /// What to do with it.
    pub(super) action: Action,
}

/// What to do with a resource.
#[derive(Debug)]
pub(super) enum Action {
    /// It does not exist.
    Create,
    /// It exists and is equal.
    Keep(Resource),
    /// It exists and differs.
    Replace(Resource),
}

/// One entry of address management.
#[derive(Debug)]
pub(super) struct EntryStep {
    /// As in the file.
    pub(super) entry: KvPair,
    /// What to do with it.
    pub(super) action: EntryAction,
}

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryAction {
    /// It does not exist.
    Create,
    /// It exists and is equal.
    Keep,
    /// It exists and differs.
    Replace,
}

/// Compares the file with the datastore. Writes nothing.
pub(super) async fn make(client: &Client, bundle: Bundle) -> Result<Plan> {
    let is_kubernetes = client.backend().is_kubernetes();
    let mut plan = Plan::default();
    let mut left_behind: BTreeMap<Kind, usize> = BTreeMap::new();
    let mut wanted: BTreeMap<Key, Resource> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for mut resource in bundle.resources.into_iter().chain(bundle.supplement.resources) {
        let key = Key::resource(resource.kind(), resource.namespace(), resource.name());
        if is_kubernetes && is_made_by_kubernetes(&resource) {
            *left_behind.entry(resource.kind()).or_default() += 1;
            continue;
        }
        let metadata = resource.metadata_mut();
        metadata.resource_version.clear();
        metadata.generation = 0;
        if is_kubernetes {
            let (kept, removed) = sameness::pruned(&resource)?;
            plan.notices.extend(removed.iter().map(|path| {
                format!(
                    "[WARNING] {key}: {path} is not known to this version, and Kubernetes does not keep it."
                )
            }));
            resource = kept;
        } else if let Some(identity) = bundle.supplement.identities.get(&key.path()?) {
            let metadata = resource.metadata_mut();
            identity.uid.clone_into(&mut metadata.uid);
            metadata.creation_timestamp.clone_from(&identity.creation_timestamp);
        }
        let mut complete = resource.clone();
        complete.set_defaults();
        if let Err(errors) = complete.validate() {
            mistakes.push(format!("{key}: {errors}"));
        }
        if wanted.insert(key.clone(), resource).is_some() {
            mistakes.push(format!("{key} appears twice"));
        }
    }
    if !mistakes.is_empty() {
        return Err(Failure::new(format!(
            "failed to import v3 resources, nothing was changed:\n  {}",
            mistakes.join("\n  ")
        )));
    }
    for (kind, count) in left_behind {
        plan.notices.push(format!(
            "[INFO] {count} '{kind}' resource(s) are not imported: Kubernetes' own objects represent them."
        ));
    }
    compare_resources(client, wanted, &mut plan).await?;
    compare_entries(client, bundle.ipam.into_entries()?, &mut plan).await?;
    Ok(plan)
}

async fn compare_resources(
    client: &Client,
    mut wanted: BTreeMap<Key, Resource>,
    plan: &mut Plan,
) -> Result<()> {
    let is_kubernetes = client.backend().is_kubernetes();
    for kind in KINDS.into_iter().chain(SUPPLEMENTARY_KINDS) {
        if is_kubernetes && matches!(kind, Kind::Profile | Kind::WorkloadEndpoint) {
            continue;
        }
        let list = client.list_any(kind, &ListQuery::all()).await.map_err(|error| {
            Failure::new(format!("failed to retrieve {kind} resources during datastore check: {error}"))
        })?;
        plan.conflicts.extend(
            list.invalid.iter().map(|entry| format!("{} cannot be read: {}", entry.key, entry.reason)),
        );
        for existing in list.items {
            let key = Key::resource(kind, existing.namespace(), existing.name());
            let Some(mut resource) = wanted.remove(&key) else {
                if !may_be_there(&existing, is_kubernetes) {
                    plan.conflicts.push(format!("{key} is not in the file"));
                }
                continue;
            };
            let is_node_of_kubernetes = is_kubernetes && kind == Kind::Node;
            if is_node_of_kubernetes {
                keep_own_metadata(&mut resource, &existing);
            }
            let mut is_same = sameness::essence(&resource)? == sameness::essence(&existing)?;
            if is_node_of_kubernetes {
                is_same &= sameness::status(&resource)? == sameness::status(&existing)?;
            } else if !is_same && !is_built_in(&existing) {
                plan.conflicts.push(format!("{key} differs from the file"));
            }
            let action = if is_same { Action::Keep(existing) } else { Action::Replace(existing) };
            plan.steps.push(Step { resource, action });
        }
    }
    for (key, resource) in wanted {
        if is_kubernetes && resource.kind() == Kind::Node {
            plan.notices.push(format!(
                "[WARNING] Attempted to import node {key} from etcd that references a nonexistent Kubernetes node. \
                 Skipping that node. Non-Kubernetes nodes are not supported in the Kubernetes datastore and will be \
                 skipped."
            ));
            continue;
        }
        plan.steps.push(Step { resource, action: Action::Create });
    }
    plan.steps.sort_by_key(|step| rank(step.resource.kind()));
    Ok(())
}

/// The order of writing: referenced kinds come first.
fn rank(kind: Kind) -> usize {
    const FIRST: [Kind; 3] = [Kind::Tier, Kind::IPPool, Kind::BGPFilter];
    let position = |kinds: &[Kind]| kinds.iter().position(|candidate| *candidate == kind);
    position(&FIRST)
        .or_else(|| position(&KINDS).map(|index| FIRST.len() + index))
        .unwrap_or(FIRST.len() + KINDS.len())
}

/// Whether Kubernetes derives this resource from its own objects.
fn is_made_by_kubernetes(resource: &Resource) -> bool {
    match resource.kind() {
        Kind::Profile | Kind::WorkloadEndpoint => true,
        Kind::NetworkPolicy => resource.name().starts_with(KUBERNETES_POLICY),
        _ => false,
    }
}

/// Whether a datastore may contain this resource without anyone having imported it.
fn may_be_there(resource: &Resource, is_kubernetes: bool) -> bool {
    match resource.kind() {
        Kind::Node => is_kubernetes,
        Kind::NetworkPolicy => resource.name().starts_with(KUBERNETES_POLICY),
        Kind::Profile => resource.name() == DEFAULT_ALLOW_PROFILE,
        _ => is_built_in(resource),
    }
}

/// Whether this is a tier that every datastore has.
pub(super) fn is_built_in(resource: &Resource) -> bool {
    resource.kind() == Kind::Tier && BUILT_IN_TIERS.iter().any(|tier| tier.name == resource.name())
}

/// A node of Kubernetes keeps the labels, annotations and addresses that Kubernetes gives it; the file adds to them.
fn keep_own_metadata(resource: &mut Resource, existing: &Resource) {
    let file = resource.metadata().clone();
    let metadata = resource.metadata_mut();
    *metadata = existing.metadata().clone();
    for (name, value) in file.labels {
        metadata.labels.entry(name).or_insert(value);
    }
    for (name, value) in file.annotations {
        metadata.annotations.entry(name).or_insert(value);
    }
    if let (Resource::Node(node), Resource::Node(existing)) = (resource, existing) {
        // These two, and the pod CIDRs, are read from the node itself, whatever is written.
        node.spec.addresses.clone_from(&existing.spec.addresses);
        node.spec.orch_refs.clone_from(&existing.spec.orch_refs);
        node.status.pod_cidrs.clone_from(&existing.status.pod_cidrs);
    }
}

async fn compare_entries(client: &Client, wanted: Vec<KvPair>, plan: &mut Plan) -> Result<()> {
    let backend = client.backend();
    let is_kubernetes = backend.is_kubernetes();
    let claims = |affinity_type| ListOptions::BlockAffinity {
        host: None,
        affinity_type: Some(affinity_type),
        ip_version: None,
    };
    let mut existing: BTreeMap<Key, Value> = BTreeMap::new();
    let failed = |error: Error| {
        Failure::new(format!("failed to retrieve IPAM resources during datastore check: {error}"))
    };
    for list in [
        claims(AffinityType::Host),
        claims(AffinityType::Virtual),
        ListOptions::Block { ip_version: None },
        ListOptions::IpamHandle,
    ] {
        match backend.list(&list, None).await {
            Ok(found) => {
                plan.conflicts.extend(
                    found
                        .invalid
                        .iter()
                        .map(|entry| format!("{} cannot be read: {}", entry.key, entry.reason)),
                );
                existing.extend(found.items.into_iter().map(|entry| (entry.key, entry.value)));
            }
            Err(Error::NotSupported { .. }) if wanted.is_empty() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    match backend.get(&Key::IpamConfig, None).await {
        Ok(entry) => _ = existing.insert(entry.key, entry.value),
        Err(Error::DoesNotExist { .. } | Error::NotSupported { .. }) => {}
        Err(error) => return Err(failed(error)),
    }
    let mut seen = BTreeSet::new();
    for entry in wanted {
        if !seen.insert(entry.key.clone()) {
            return Err(Failure::new(format!("failed to read IPAM resources: {} appears twice", entry.key)));
        }
        let action = match existing.remove(&entry.key) {
            None => EntryAction::Create,
            Some(value) if plain(&value, is_kubernetes) == plain(&entry.value, is_kubernetes) => {
                EntryAction::Keep
            }
            Some(_) => {
                plan.conflicts.push(format!("{} differs from the file", entry.key));
                EntryAction::Replace
            }
        };
        plan.entries.push(EntryStep { entry, action });
    }
    plan.conflicts.extend(existing.keys().map(|key| format!("{key} is not in the file")));
    Ok(())
}

/// The value without the fields that Kubernetes does not keep.
fn plain(value: &Value, is_kubernetes: bool) -> Value {
    let mut value = value.clone();
    if is_kubernetes {
        match &mut value {
            Value::Block(block) => {
                block.extra.clear();
                block.attributes.iter_mut().for_each(|attribute| attribute.extra.clear());
            }
            Value::BlockAffinity(affinity) => affinity.extra.clear(),
            Value::IpamHandle(handle) => handle.extra.clear(),
            Value::IpamConfig(config) => config.extra.clear(),
            _ => {}
        }
    }
    value
}
