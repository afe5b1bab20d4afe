//! The values that are stored, and their bytes in etcd.
//!
//! [`encode`] and [`decode`] use Calico's own JSON. Fields that this version does not know are kept. A value that does
//! not belong under its key is an error and never skipped silently.

use crate::HandleId;
use crate::key::Key;
use crate::names::{policy_tier, restore_policy_name, store_policy_name};
use api::codec::{Extra, null_as_default};
use api::meta::{ObjectMeta, Time};
use api::scalars::GoFloat;
use api::{AllocationAttribute, BlockAffinityState, Kind, Resource, VMAddressPersistence};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Any stored value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A resource.
    Resource(Resource),
    /// A block of addresses.
    Block(AllocationBlock),
    /// A claim on a block.
    BlockAffinity(BlockAffinity),
    /// The addresses held under one handle.
    IpamHandle(IpamHandle),
    /// The settings of address management.
    IpamConfig(IpamConfig),
    /// The mark that a host uses address management.
    IpamHost,
    /// The state of a host or workload endpoint.
    EndpointStatus(EndpointStatus),
    /// Felix's status report.
    StatusReport(StatusReport),
}

/// A block: which of its addresses are in use, and by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocationBlock {
    /// The range.
    #[serde(with = "range")]
    pub cidr: IpNet,
    /// The owner of the block: `host:NAME` or `virtual:NAME`.
    #[serde(default)]
    pub affinity: Option<String>,
    /// When the current owner claimed the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_claim_time: Option<Time>,
    /// One entry per address: `None` when it is free, otherwise the index of its entry in `attributes`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allocations: Vec<Option<usize>>,
    /// The free addresses by ordinal; the first is handed out next.
    #[serde(default, deserialize_with = "null_as_default")]
    pub unallocated: Vec<usize>,
    /// What is known about the users of addresses.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attributes: Vec<AllocationAttribute>,
    /// Incremented by each write of the block.
    #[serde(default, rename = "sequenceNumber")]
    pub sequence_number: u64,
    /// For each allocated ordinal, the block's sequence number when it was allocated.
    #[serde(default, rename = "sequenceNumberForAllocation", deserialize_with = "null_as_default")]
    pub sequence_number_for_allocation: BTreeMap<String, u64>,
    /// Set just before the block is removed from Kubernetes.
    #[serde(default)]
    pub deleted: bool,
    /// The owner, in the form that very old releases wrote.
    #[serde(default, rename = "hostAffinity", skip_serializing_if = "Option::is_none")]
    pub host_affinity: Option<String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A claim on a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockAffinity {
    /// The state of the claim; empty in values of very old releases.
    #[serde(default)]
    pub state: BlockAffinityState,
    /// Set just before the claim is removed from Kubernetes.
    #[serde(default)]
    pub deleted: bool,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How many addresses of each block one handle holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpamHandle {
    /// The handle; in etcd it is part of the key, not of the value.
    #[serde(skip)]
    pub handle_id: HandleId,
    /// For each block, by its CIDR, the number of its addresses under this handle.
    #[serde(default, deserialize_with = "null_as_default")]
    pub block: BTreeMap<String, i64>,
    /// Set just before the handle is removed from Kubernetes.
    #[serde(default)]
    pub deleted: bool,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The settings of address management.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpamConfig {
    /// Whether a node may only use addresses of its own blocks.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict_affinity: bool,
    /// Whether nodes may claim further blocks by themselves.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_allocate_blocks: bool,
    /// The greatest number of blocks that one node may own; 0 means the built-in limit.
    #[serde(default, rename = "maxBlocksPerHost", skip_serializing_if = "is_zero")]
    pub max_blocks_per_host: i32,
    /// Whether a KubeVirt machine keeps its address; `None` means that it does.
    #[serde(default, rename = "kubeVirtVMAddressPersistence", skip_serializing_if = "Option::is_none")]
    pub kubevirt_vm_address_persistence: Option<VMAddressPersistence>,
    /// For how many seconds a released address is not assigned again.
    #[serde(default, rename = "ipCooldownSeconds", skip_serializing_if = "is_zero")]
    pub ip_cooldown_seconds: i32,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The state of an endpoint, as Felix reports it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// `up`, `down` or `error`.
    #[serde(default)]
    pub status: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Felix's status report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// When Felix sent it.
    #[serde(default, rename = "time")]
    pub timestamp: String,
    /// For how many seconds Felix had been running.
    #[serde(default, rename = "uptime")]
    pub uptime_seconds: GoFloat,
    /// Whether this was the first report of this run.
    #[serde(default)]
    pub first_update: bool,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A range as text.
mod range {
    use ipnet::IpNet;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use std::borrow::Cow;

    pub(super) fn serialize<S: Serializer>(net: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(net)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let net: IpNet = text.parse().map_err(|_| D::Error::custom(format!("'{text}' is not a CIDR")))?;
        Ok(net.trunc())
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}

/// A key, the value under it, and the store's metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct KvPair {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Value,
    /// The store's version of the value, for optimistic concurrency; empty if unknown.
    pub revision: String,
    /// The uid of the object, if the store has one.
    pub uid: Option<String>,
    /// For writes: the lifetime of the value.
    pub ttl: Option<Duration>,
}

impl KvPair {
    /// Creates a pair to store; revision, uid and lifetime can be set afterwards.
    #[must_use]
    pub fn new(key: Key, value: Value) -> Self {
        Self { key, value, revision: String::new(), uid: None, ttl: None }
    }

    /// Creates the pair of a resource under its own key, with the revision and uid of its metadata.
    #[must_use]
    pub fn resource(resource: impl Into<Resource>) -> Self {
        let resource = resource.into();
        let metadata = resource.metadata();
        Self {
            key: Key::resource(resource.kind(), &metadata.namespace, &metadata.name),
            revision: metadata.resource_version.clone(),
            uid: Some(metadata.uid.clone()).filter(|uid| !uid.is_empty()),
            ttl: None,
            value: Value::Resource(resource),
        }
    }

    /// Returns the resource, if the value is one.
    #[must_use]
    pub fn as_resource(&self) -> Option<&Resource> {
        match &self.value {
            Value::Resource(resource) => Some(resource),
            _ => None,
        }
    }

    /// Sets the revision, also in a resource's metadata.
    pub fn set_revision(&mut self, revision: &str) {
        revision.clone_into(&mut self.revision);
        if let Value::Resource(resource) = &mut self.value {
            revision.clone_into(&mut resource.metadata_mut().resource_version);
        }
    }
}

/// Why a value cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// The value is not of the kind that the key requires.
    #[error("{key} cannot hold this value")]
    Mismatch {
        /// The key.
        key: Box<Key>,
    },
    /// The bytes are not the expected JSON.
    #[error("{key}: {source}")]
    Json {
        /// The key.
        key: Box<Key>,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A field has a value that it must not have.
    #[error("{key}: {field} = '{value}' ({reason})")]
    Field {
        /// The key.
        key: Box<Key>,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with the value.
        reason: &'static str,
    },
}

/// Returns the bytes of a value in etcd.
///
/// # Errors
/// When the value does not belong under the key.
pub fn encode(key: &Key, value: &Value) -> Result<Vec<u8>, ValueError> {
    let json = match (key, value) {
        (Key::Resource(wanted), Value::Resource(resource)) if wanted.kind == resource.kind() => {
            encode_resource(resource)
        }
        (Key::Block { .. }, Value::Block(block)) => serde_json::to_vec(block),
        (Key::BlockAffinity(_), Value::BlockAffinity(affinity)) => serde_json::to_vec(affinity),
        (Key::IpamHandle { .. }, Value::IpamHandle(handle)) => serde_json::to_vec(handle),
        (Key::IpamConfig, Value::IpamConfig(config)) => serde_json::to_vec(config),
        (Key::IpamHost { .. }, Value::IpamHost) => Ok(b"{}".to_vec()),
        (
            Key::HostEndpointStatus { .. } | Key::WorkloadEndpointStatus { .. },
            Value::EndpointStatus(status),
        ) => serde_json::to_vec(status),
        (Key::ActiveStatusReport { .. } | Key::LastStatusReport { .. }, Value::StatusReport(report)) => {
            serde_json::to_vec(report)
        }
        _ => return Err(ValueError::Mismatch { key: Box::new(key.clone()) }),
    };
    json.map_err(|source| ValueError::Json { key: Box::new(key.clone()), source })
}

/// Reads a value from its bytes in etcd. The revision is not part of them: see [`KvPair::set_revision`].
///
/// # Errors
/// When the bytes are not a value of the kind that the key requires. Keys of the first data model have no stored
/// values.
pub fn decode(key: &Key, bytes: &[u8]) -> Result<Value, ValueError> {
    fn read<'a, T: Deserialize<'a>>(key: &Key, bytes: &'a [u8]) -> Result<T, ValueError> {
        serde_json::from_slice(bytes)
            .map_err(|source| ValueError::Json { key: Box::new(key.clone()), source })
    }
    Ok(match key {
        Key::Resource(resource) => Value::Resource(decode_resource(key, resource.kind, bytes)?),
        Key::Block { .. } => Value::Block(read(key, bytes)?),
        // Very old releases stored claims without a value.
        Key::BlockAffinity(_) if bytes.is_empty() => Value::BlockAffinity(BlockAffinity::default()),
        Key::BlockAffinity(_) => Value::BlockAffinity(read(key, bytes)?),
        Key::IpamHandle { handle_id } => {
            Value::IpamHandle(IpamHandle { handle_id: handle_id.clone(), ..read(key, bytes)? })
        }
        Key::IpamConfig => Value::IpamConfig(read(key, bytes)?),
        Key::IpamHost { .. } => {
            let _: Extra = read(key, bytes)?;
            Value::IpamHost
        }
        Key::HostEndpointStatus { .. } | Key::WorkloadEndpointStatus { .. } => {
            Value::EndpointStatus(read(key, bytes)?)
        }
        Key::ActiveStatusReport { .. } | Key::LastStatusReport { .. } => {
            Value::StatusReport(read(key, bytes)?)
        }
        Key::V1(_) => return Err(ValueError::Mismatch { key: Box::new(key.clone()) }),
    })
}

fn encode_resource(resource: &Resource) -> Result<Vec<u8>, serde_json::Error> {
    let mut stored = resource.clone();
    let metadata = stored.metadata_mut();
    metadata.resource_version.clear();
    metadata.self_link.clear();
    if resource.kind().is_tiered_policy() {
        store_policy_name(metadata);
    }
    match &stored {
        Resource::BlockAffinity(affinity) => serde_json::to_vec(&StoredAffinity::from(affinity.as_ref())),
        other => other.to_json(),
    }
}

/// A `BlockAffinity` resource in its stored form, which has always had text where the API has a Boolean.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoredAffinity<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: &'a ObjectMeta,
    spec: StoredAffinitySpec<'a>,
    #[serde(flatten)]
    extra: &'a Extra,
}

#[derive(Serialize)]
struct StoredAffinitySpec<'a> {
    state: &'a BlockAffinityState,
    node: &'a str,
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    affinity_type: &'a str,
    cidr: &'a str,
    deleted: &'static str,
    #[serde(flatten)]
    extra: &'a Extra,
}

impl<'a> From<&'a api::BlockAffinity> for StoredAffinity<'a> {
    fn from(affinity: &'a api::BlockAffinity) -> Self {
        let spec = &affinity.spec;
        Self {
            kind: Kind::BlockAffinity.as_str(),
            api_version: api::kind::API_VERSION,
            metadata: &affinity.metadata,
            spec: StoredAffinitySpec {
                state: &spec.state,
                node: &spec.node,
                affinity_type: &spec.affinity_type,
                cidr: spec.cidr.as_str(),
                deleted: bool_text(spec.deleted),
                extra: &spec.extra,
            },
            extra: &affinity.extra,
        }
    }
}

fn decode_resource(key: &Key, kind: Kind, bytes: &[u8]) -> Result<Resource, ValueError> {
    let json = |source| ValueError::Json { key: Box::new(key.clone()), source };
    let mut resource = if kind == Kind::BlockAffinity {
        let mut object: serde_json::Value = serde_json::from_slice(bytes).map_err(json)?;
        if let Some(deleted) = object.pointer_mut("/spec/deleted")
            && let Some(text) = deleted.as_str()
        {
            let value = parse_bool(text).ok_or_else(|| ValueError::Field {
                key: Box::new(key.clone()),
                field: "spec.deleted",
                value: text.to_owned(),
                reason: "must be true or false",
            })?;
            *deleted = value.into();
        }
        Resource::from_value(kind, object).map_err(json)?
    } else {
        Resource::from_json(kind, bytes).map_err(json)?
    };
    if let Some(tier) = policy_tier(&resource).map(str::to_owned) {
        restore_policy_name(resource.metadata_mut(), &tier).map_err(json)?;
    }
    Ok(resource)
}

/// A Boolean as text.
pub(crate) fn bool_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// The words that Go reads as Booleans.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
