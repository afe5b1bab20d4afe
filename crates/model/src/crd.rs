//! Resources as custom resources of `crd.projectcalico.org/v1`, in both directions.
//!
//! A custom resource carries the resource's own metadata in an annotation, so that a label or a finalizer of the
//! resource is not one of the custom resource; only keys that are Calico's own are visible on both. Where the
//! definitions are those of `projectcalico.org/v3`, nothing is converted and this module is not used (except that
//! [`ipam`] still makes resources of IPAM's values).

use crate::key::Key;
use crate::names::{
    METADATA_ANNOTATION, UidError, block_affinity_labels, policy_name_without_annotation, policy_tier,
    translate_uid,
};
use crate::value::{KvPair, Value as Stored, bool_text, parse_bool};
use api::kind::{API_VERSION, CRD_API_VERSION, KubernetesForm};
use api::meta::{ObjectMeta, OwnerReference};
use api::{Kind, Resource};
use serde_json::{Value, json};

pub mod ipam;
#[cfg(test)]
mod tests;

/// Why an object cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The kind is derived from Kubernetes' own objects.
    #[error("{0} is not kept as a custom resource")]
    NotACustomResource(Kind),
    /// A uid is not a UUID.
    #[error("metadata: uid: {0}")]
    Uid(#[from] UidError),
    /// The object is not what its kind requires.
    #[error("{kind}({name}): {source}")]
    Json {
        /// The kind.
        kind: Kind,
        /// The object's name, if it could be read.
        name: String,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A field has a value that it must not have.
    #[error("{kind}({name}): {field} = '{value}' ({reason})")]
    Field {
        /// The kind.
        kind: Kind,
        /// The object's name.
        name: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with the value.
        reason: &'static str,
    },
}

/// Returns the custom resource of a resource.
///
/// # Errors
/// When the kind has no custom resource, or a uid is not a UUID.
pub fn to_crd(resource: &Resource) -> Result<Value, CrdError> {
    let kind = resource.kind();
    let KubernetesForm::CustomResource { kind: crd_kind, .. } = kind.info().kubernetes else {
        return Err(CrdError::NotACustomResource(kind));
    };
    let mut metadata = resource.metadata().clone();
    if let Resource::BlockAffinity(affinity) = resource {
        // Claims are found by these labels.
        let spec = &affinity.spec;
        metadata.labels.extend(block_affinity_labels(&spec.node, &spec.affinity_type, spec.cidr.as_str()));
    }
    let failed = |source| CrdError::Json { kind, name: metadata.name.clone(), source };
    let mut object = resource.to_value().map_err(failed)?;
    object["kind"] = crd_kind.into();
    object["apiVersion"] = CRD_API_VERSION.into();
    object["metadata"] = api::codec::to_value(&crd_metadata(kind, &metadata)?).map_err(failed)?;
    if let Resource::BlockAffinity(affinity) = resource {
        object["spec"]["deleted"] = bool_text(affinity.spec.deleted).into();
    }
    Ok(object)
}

/// The metadata of the custom resource.
fn crd_metadata(kind: Kind, metadata: &ObjectMeta) -> Result<ObjectMeta, CrdError> {
    let mut stored = metadata.clone();
    stored.namespace.clear();
    stored.resource_version.clear();
    stored.uid.clear();
    if !kind.is_tiered_policy() {
        stored.name.clear();
    }
    // An annotation of this name on the resource itself can only be left over from storage.
    stored.annotations.remove(METADATA_ANNOTATION);
    for owner in &mut stored.owner_references {
        if owner.api_version == API_VERSION {
            translate_owner(owner, CRD_API_VERSION)?;
        }
    }
    let text = serde_json::to_string(&stored).map_err(|source| CrdError::Json {
        kind,
        name: metadata.name.clone(),
        source,
    })?;
    let ours = |(key, value): (&String, &String)| is_ours(key).then(|| (key.clone(), value.clone()));
    let mut annotations: std::collections::BTreeMap<_, _> =
        metadata.annotations.iter().filter_map(ours).collect();
    annotations.insert(METADATA_ANNOTATION.to_owned(), text);
    Ok(ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        resource_version: metadata.resource_version.clone(),
        uid: translate_optional(&metadata.uid)?,
        labels: metadata.labels.iter().filter_map(ours).collect(),
        annotations,
        ..ObjectMeta::default()
    })
}

/// The labels and annotations that are also visible on the custom resource.
fn is_ours(key: &str) -> bool {
    key.contains(api::words::OWN_PREFIX) || key.contains("operator.tigera.io/")
}

fn translate_optional(uid: &str) -> Result<String, CrdError> {
    if uid.is_empty() { Ok(String::new()) } else { Ok(translate_uid(uid)?) }
}

fn translate_owner(owner: &mut OwnerReference, api_version: &str) -> Result<(), CrdError> {
    owner.uid = translate_uid(&owner.uid)?;
    api_version.clone_into(&mut owner.api_version);
    Ok(())
}

/// Returns the resource of a custom resource.
///
/// # Errors
/// When the object is not what the kind requires, or a uid is not a UUID.
pub fn from_crd(kind: Kind, mut object: Value) -> Result<Resource, CrdError> {
    let KubernetesForm::CustomResource { .. } = kind.info().kubernetes else {
        return Err(CrdError::NotACustomResource(kind));
    };
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let failed = |source| CrdError::Json { kind, name: name.clone(), source };
    if let Some(fields) = object.as_object_mut() {
        // IPAM's settings have another kind here, which must not be reported as a mistake.
        fields.insert("kind".into(), kind.as_str().into());
        fields.insert("apiVersion".into(), json!(API_VERSION));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        // The API server's own bookkeeping, often larger than the object.
        metadata.remove("managedFields");
    }
    if kind == Kind::BlockAffinity
        && let Some(deleted) = object.pointer_mut("/spec/deleted")
        && let Some(text) = deleted.as_str()
    {
        let value = if text.is_empty() { Some(false) } else { parse_bool(text) };
        *deleted = value
            .ok_or_else(|| CrdError::Field {
                kind,
                name: name.clone(),
                field: "spec.deleted",
                value: text.to_owned(),
                reason: "must be true or false",
            })?
            .into();
    }
    restored(Resource::from_value(kind, object).map_err(failed)?)
}

/// Returns the resource as users know it, from one that has the custom resource's metadata.
fn restored(mut resource: Resource) -> Result<Resource, CrdError> {
    let (kind, tier) = (resource.kind(), policy_tier(&resource).map(str::to_owned));
    restore_metadata(kind, resource.metadata_mut(), tier.as_deref())?;
    Ok(resource)
}

/// Replaces the custom resource's metadata with that in the annotation.
fn restore_metadata(kind: Kind, metadata: &mut ObjectMeta, tier: Option<&str>) -> Result<(), CrdError> {
    metadata.uid = translate_optional(&metadata.uid)?;
    let Some(text) = metadata.annotations.remove(METADATA_ANNOTATION) else { return Ok(()) };
    let mut stored: ObjectMeta = serde_json::from_str(&text).map_err(|source| CrdError::Json {
        kind,
        name: metadata.name.clone(),
        source,
    })?;
    for owner in &mut stored.owner_references {
        // Releases that did not translate owners wrote them with the API version that users see.
        if owner.api_version == CRD_API_VERSION || owner.api_version == API_VERSION {
            translate_owner(owner, API_VERSION)?;
        }
    }
    if stored.name.is_empty() {
        stored.name = match tier {
            Some(tier) => policy_name_without_annotation(&metadata.name, tier).to_owned(),
            None => std::mem::take(&mut metadata.name),
        };
    }
    stored.namespace = std::mem::take(&mut metadata.namespace);
    stored.resource_version = std::mem::take(&mut metadata.resource_version);
    stored.uid = std::mem::take(&mut metadata.uid);
    // The metadata of the custom resource itself is older, so the annotation wins.
    let mut labels = std::mem::take(&mut metadata.labels);
    labels.append(&mut stored.labels);
    stored.labels = labels;
    let mut annotations = std::mem::take(&mut metadata.annotations);
    annotations.append(&mut stored.annotations);
    stored.annotations = annotations;
    if stored.creation_timestamp.is_none() {
        stored.creation_timestamp = metadata.creation_timestamp.take();
    }
    *metadata = stored;
    Ok(())
}

/// Reads as much as possible of a custom resource whose kind holds rules. The key is that of its own name.
#[must_use]
pub fn salvage(kind: Kind, object: Value) -> Option<KvPair> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = Key::resource(kind, &text("/metadata/namespace"), &text("/metadata/name"));
    let mut resource = crate::convert::salvage::salvage(kind, object)?;
    let tier = policy_tier(&resource).map(str::to_owned);
    // Without its own metadata it keeps that of the custom resource: only the name matters.
    let metadata = resource.metadata().clone();
    if restore_metadata(kind, resource.metadata_mut(), tier.as_deref()).is_err() {
        *resource.metadata_mut() = metadata;
    }
    let revision = resource.metadata().resource_version.clone();
    let mut pair = KvPair::resource(resource);
    pair.key = key;
    pair.set_revision(&revision);
    Some(pair)
}

/// Returns the resource of a custom resource under the key of the custom resource's own name, with its revision and
/// translated uid.
///
/// # Errors
/// Like [`from_crd`].
pub fn pair_from_crd(kind: Kind, object: Value) -> Result<KvPair, CrdError> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = Key::resource(kind, &text("/metadata/namespace"), &text("/metadata/name"));
    Ok(pair(key, from_crd(kind, object)?))
}

/// Does what [`pair_from_crd`] does, from the object's text: the fast path, for lists and watches.
///
/// # Errors
/// Like [`from_crd`].
pub fn pair_from_crd_text(kind: Kind, json: &str) -> Result<KvPair, CrdError> {
    let is_custom = matches!(kind.info().kubernetes, KubernetesForm::CustomResource { .. });
    // What cannot be read or is stored in another form takes the slow path, which reports what is wrong or repairs it.
    if is_custom
        && kind != Kind::BlockAffinity
        && let Ok(mut resource) = Resource::from_json(kind, json.as_bytes())
    {
        let metadata = resource.metadata_mut();
        metadata.extra.remove("managedFields");
        let key = Key::resource(kind, &metadata.namespace, &metadata.name);
        return Ok(pair(key, restored(resource)?));
    }
    let object = serde_json::from_str(json);
    pair_from_crd(kind, object.map_err(|source| CrdError::Json { kind, name: String::new(), source })?)
}

fn pair(key: Key, resource: Resource) -> KvPair {
    let metadata = resource.metadata();
    KvPair {
        key,
        revision: metadata.resource_version.clone(),
        uid: Some(metadata.uid.clone()).filter(|uid| !uid.is_empty()),
        ttl: None,
        value: Stored::Resource(resource),
    }
}
