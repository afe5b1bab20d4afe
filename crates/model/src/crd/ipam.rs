//! IPAM's values as resources, in both directions: in Kubernetes, blocks, claims, handles and settings are custom
//! resources.

use super::CrdError;
use crate::HandleId;
use crate::key::{AffinityType, BlockAffinityKey, Key, ListOptions};
use crate::names::{
    AFFINITY_TYPE_LABEL, HOSTNAME_HASH_LABEL, IP_VERSION_LABEL, block_affinity_labels, block_affinity_name,
    cidr_name, handle_name, hostname_hash,
};
use crate::value::{AllocationBlock, BlockAffinity, IpamConfig, IpamHandle, KvPair, Value};
use api::codec::Extra;
use api::meta::ObjectMeta;
use api::scalars::Cidr;
use api::{
    BlockAffinitySpec, IPAMBlockSpec, IPAMConfigurationSpec, IPAMHandleSpec, Kind, Object, Resource, Spec,
};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// The name of the one object that holds IPAM's settings.
pub const CONFIG_NAME: &str = api::words::GLOBAL_NAME;

/// Returns the kind and name of the custom resource for a key of IPAM; `None` for other keys.
#[must_use]
pub fn resource_name(key: &Key) -> Option<(Kind, String)> {
    match key {
        Key::Block { cidr } => Some((Kind::IPAMBlock, cidr_name(cidr))),
        Key::BlockAffinity(key) => Some((Kind::BlockAffinity, block_affinity_name(key))),
        Key::IpamHandle { handle_id } => Some((Kind::IPAMHandle, handle_name(handle_id))),
        Key::IpamConfig => Some((Kind::IPAMConfiguration, CONFIG_NAME.to_owned())),
        _ => None,
    }
}

/// The labels with which the API server can narrow down a list of claims.
#[must_use]
pub fn affinity_labels_to_match(options: &ListOptions) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    if let ListOptions::BlockAffinity { host, affinity_type, ip_version } = options {
        if let Some(host) = host {
            labels.insert(HOSTNAME_HASH_LABEL.to_owned(), hostname_hash(host));
        }
        if let Some(affinity_type) = affinity_type {
            labels.insert(AFFINITY_TYPE_LABEL.to_owned(), affinity_type.to_string());
        }
        if let Some(version) = ip_version {
            labels.insert(IP_VERSION_LABEL.to_owned(), version.to_string());
        }
    }
    labels
}

/// Returns the resource for a value of IPAM, with the pair's revision and uid; `None` for other pairs.
#[must_use]
pub fn to_resource(pair: &KvPair) -> Option<Resource> {
    let (_, name) = resource_name(&pair.key)?;
    let metadata = ObjectMeta {
        name,
        resource_version: pair.revision.clone(),
        uid: pair.uid.clone().unwrap_or_default(),
        ..ObjectMeta::default()
    };
    match (&pair.key, &pair.value) {
        (Key::Block { cidr }, Value::Block(block)) => Some(object(metadata, block_spec(cidr, block)).into()),
        (Key::BlockAffinity(key), Value::BlockAffinity(affinity)) => {
            let spec = BlockAffinitySpec {
                state: affinity.state.clone(),
                node: key.host.clone(),
                affinity_type: key.affinity_type.to_string(),
                cidr: Cidr::new(key.cidr.trunc().to_string()),
                deleted: affinity.deleted,
                extra: affinity.extra.clone(),
            };
            let labels = block_affinity_labels(&spec.node, &spec.affinity_type, spec.cidr.as_str());
            Some(object(ObjectMeta { labels, ..metadata }, spec).into())
        }
        (Key::IpamHandle { handle_id }, Value::IpamHandle(handle)) => {
            let spec = IPAMHandleSpec {
                handle_id: handle_id.to_string(),
                block: handle.block.clone(),
                deleted: handle.deleted,
                extra: handle.extra.clone(),
            };
            Some(object(metadata, spec).into())
        }
        (Key::IpamConfig, Value::IpamConfig(config)) => Some(object(metadata, config_spec(config)).into()),
        _ => None,
    }
}

/// Returns the value of IPAM that a resource represents, under IPAM's key.
///
/// # Errors
/// When the resource is of another kind, or has no valid range.
pub fn from_resource(resource: Resource) -> Result<KvPair, CrdError> {
    let metadata = resource.metadata();
    let (name, revision) = (metadata.name.clone(), metadata.resource_version.clone());
    let uid = Some(metadata.uid.clone()).filter(|uid| !uid.is_empty());
    let (key, value) = match resource {
        Resource::IPAMBlock(block) => {
            let block = block_value(&name, block.spec)?;
            (Key::Block { cidr: block.cidr }, Value::Block(block))
        }
        Resource::BlockAffinity(affinity) => {
            let spec = affinity.spec;
            let wrong_type = |value: String| CrdError::Field {
                kind: Kind::BlockAffinity,
                name: name.clone(),
                field: "spec.type",
                value,
                reason: "must be host or virtual",
            };
            let key = BlockAffinityKey {
                cidr: range(Kind::BlockAffinity, &name, &spec.cidr)?,
                host: spec.node,
                affinity_type: AffinityType::from_word(&spec.affinity_type)
                    .ok_or_else(|| wrong_type(spec.affinity_type.clone()))?,
            };
            let value = BlockAffinity { state: spec.state, deleted: spec.deleted, extra: spec.extra };
            (Key::BlockAffinity(key), Value::BlockAffinity(value))
        }
        Resource::IPAMHandle(handle) => {
            let IPAMHandleSpec { handle_id, block, deleted, extra } = handle.spec;
            let handle_id = HandleId::from(handle_id);
            let key = Key::IpamHandle { handle_id: handle_id.clone() };
            (key, Value::IpamHandle(IpamHandle { handle_id, block, deleted, extra }))
        }
        Resource::IPAMConfiguration(config) => {
            (Key::IpamConfig, Value::IpamConfig(config_value(config.spec)))
        }
        other => return Err(CrdError::NotACustomResource(other.kind())),
    };
    Ok(KvPair { key, value, revision, uid, ttl: None })
}

fn object<S: Spec>(metadata: ObjectMeta, spec: S) -> Object<S> {
    Object { metadata, spec, status: S::Status::default(), extra: Extra::new() }
}

fn range(kind: Kind, name: &str, cidr: &Cidr) -> Result<IpNet, CrdError> {
    cidr.parse().map(|network| network.masked()).map_err(|_| CrdError::Field {
        kind,
        name: name.to_owned(),
        field: "spec.cidr",
        value: cidr.to_string(),
        reason: "must be a CIDR",
    })
}

/// An ordinal as it is written in the resource. Blocks have at most 4096 addresses.
fn number(ordinal: usize) -> i64 {
    i64::try_from(ordinal).unwrap_or(i64::MAX)
}

fn block_spec(cidr: &IpNet, block: &AllocationBlock) -> IPAMBlockSpec {
    IPAMBlockSpec {
        cidr: Cidr::new(cidr.trunc().to_string()),
        affinity: block.affinity.clone(),
        affinity_claim_time: block.affinity_claim_time.clone(),
        allocations: block.allocations.iter().map(|entry| entry.map(number)).collect(),
        unallocated: block.unallocated.iter().copied().map(number).collect(),
        attributes: block.attributes.clone(),
        sequence_number: block.sequence_number,
        sequence_number_for_allocation: block.sequence_number_for_allocation.clone(),
        deleted: block.deleted,
        deprecated_strict_affinity: false,
        extra: block.extra.clone(),
    }
}

fn block_value(name: &str, spec: IPAMBlockSpec) -> Result<AllocationBlock, CrdError> {
    let ordinal = |field: &'static str, value: i64| {
        usize::try_from(value).map_err(|_| CrdError::Field {
            kind: Kind::IPAMBlock,
            name: name.to_owned(),
            field,
            value: value.to_string(),
            reason: "must not be negative",
        })
    };
    Ok(AllocationBlock {
        cidr: range(Kind::IPAMBlock, name, &spec.cidr)?,
        affinity: spec.affinity,
        affinity_claim_time: spec.affinity_claim_time,
        allocations: spec
            .allocations
            .into_iter()
            .map(|entry| entry.map(|value| ordinal("spec.allocations", value)).transpose())
            .collect::<Result<_, _>>()?,
        unallocated: spec
            .unallocated
            .into_iter()
            .map(|value| ordinal("spec.unallocated", value))
            .collect::<Result<_, _>>()?,
        attributes: spec.attributes,
        sequence_number: spec.sequence_number,
        sequence_number_for_allocation: spec.sequence_number_for_allocation,
        deleted: spec.deleted,
        host_affinity: None,
        extra: spec.extra,
    })
}

fn config_spec(config: &IpamConfig) -> IPAMConfigurationSpec {
    IPAMConfigurationSpec {
        strict_affinity: config.strict_affinity,
        max_blocks_per_host: config.max_blocks_per_host,
        auto_allocate_blocks: config.auto_allocate_blocks,
        kubevirt_vm_address_persistence: config.kubevirt_vm_address_persistence.clone(),
        ip_cooldown_seconds: config.ip_cooldown_seconds,
        extra: config.extra.clone(),
    }
}

fn config_value(spec: IPAMConfigurationSpec) -> IpamConfig {
    IpamConfig {
        strict_affinity: spec.strict_affinity,
        auto_allocate_blocks: spec.auto_allocate_blocks,
        max_blocks_per_host: spec.max_blocks_per_host,
        kubevirt_vm_address_persistence: spec.kubevirt_vm_address_persistence,
        ip_cooldown_seconds: spec.ip_cooldown_seconds,
        extra: spec.extra,
    }
}
