//! What is stored under a key, and its bytes in etcd.
//!
//! [`encode`] and [`decode`] speak Calico's own JSON. Fields that this version does not know are kept; a value that
//! does not belong under its key is an error, never a silent skip.

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

/// Anything that is stored.
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
    /// Felix's sign of life.
    StatusReport(StatusReport),
}

/// A block: which of its addresses are taken, and by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocationBlock {
    /// The range.
    #[serde(with = "range")]
    pub cidr: IpNet,
    /// Who the block belongs to: `host:NAME` or `virtual:NAME`.
    #[serde(default)]
    pub affinity: Option<String>,
    /// When the present owner took the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_claim_time: Option<Time>,
    /// One entry per address: nothing when it is free, otherwise the index of its entry in `attributes`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub allocations: Vec<Option<usize>>,
    /// The free addresses by ordinal, the next to hand out first.
    #[serde(default, deserialize_with = "null_as_default")]
    pub unallocated: Vec<usize>,
    /// What is known about the holders of addresses.
    #[serde(default, deserialize_with = "null_as_default")]
    pub attributes: Vec<AllocationAttribute>,
    /// Grows with each write of the block.
    #[serde(default, rename = "sequenceNumber")]
    pub sequence_number: u64,
    /// For each allocated ordinal, the block's sequence number when it was allocated.
    #[serde(default, rename = "sequenceNumberForAllocation", deserialize_with = "null_as_default")]
    pub sequence_number_for_allocation: BTreeMap<String, u64>,
    /// Set just before the block is removed from Kubernetes.
    #[serde(default)]
    pub deleted: bool,
    /// How very old releases wrote the owner.
    #[serde(default, rename = "hostAffinity", skip_serializing_if = "Option::is_none")]
    pub host_affinity: Option<String>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A claim on a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockAffinity {
    /// How far the claim has come; empty in values of very old releases.
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
    /// The handle; not part of the value in etcd, where the key has it.
    #[serde(skip)]
    pub handle_id: HandleId,
    /// For each block (as a CIDR), how many of its addresses.
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
    /// Whether nodes may take new blocks by themselves.
    #[serde(default, skip_serializing_if = "is_false")]
    pub auto_allocate_blocks: bool,
    /// How many blocks one node may own; 0 means the built-in limit.
    #[serde(default, rename = "maxBlocksPerHost", skip_serializing_if = "is_zero")]
    pub max_blocks_per_host: i32,
    /// Whether a KubeVirt machine keeps its address; unset means that it does.
    #[serde(default, rename = "kubeVirtVMAddressPersistence", skip_serializing_if = "Option::is_none")]
    pub kubevirt_vm_address_persistence: Option<VMAddressPersistence>,
    /// How many seconds a released address rests.
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

/// Felix's sign of life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// When.
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

/// A key, what is stored under it, and the store's notes about it.
#[derive(Clone, Debug, PartialEq)]
pub struct KvPair {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Value,
    /// The store's version of the value, for optimistic concurrency; empty when not known.
    pub revision: String,
    /// The uid of the object, where the store has one.
    pub uid: Option<String>,
    /// For writes: how long the value shall live.
    pub ttl: Option<Duration>,
}

impl KvPair {
    /// A value to store; revision, uid and lifetime can be set afterwards.
    #[must_use]
    pub fn new(key: Key, value: Value) -> Self {
        Self { key, value, revision: String::new(), uid: None, ttl: None }
    }

    /// A resource under its own key, with the revision and uid of its metadata.
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

    /// The resource, where this is one.
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
    /// The value is not of the sort that the key says.
    #[error("{key} cannot hold this value")]
    Mismatch {
        /// The key.
        key: Box<Key>,
    },
    /// The bytes are not the JSON that they should be.
    #[error("{key}: {source}")]
    Json {
        /// The key.
        key: Box<Key>,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A field holds what it must not hold.
    #[error("{key}: {field} = '{value}' ({reason})")]
    Field {
        /// The key.
        key: Box<Key>,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: String,
        /// What is wrong with that.
        reason: &'static str,
    },
}

/// The bytes of a value in etcd.
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

/// The value of bytes in etcd. The revision is not part of them: see [`KvPair::set_revision`].
///
/// # Errors
/// When the bytes are not a value of the sort that the key says. Keys of the first data model have no stored values.
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

/// A `BlockAffinity` resource in its stored form, which has always had text where the API has a truth value.
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

/// A truth value as text.
pub(crate) fn bool_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// The words that Go reads as truth values.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
