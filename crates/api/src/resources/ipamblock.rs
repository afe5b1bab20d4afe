//! `IPAMBlock`: the custom resource behind a block of addresses. It only carries the data; IPAM interprets allocations,
//! and in etcd the same data is stored under a key of its own with slightly different field names.

use crate::errors::FieldErrors;
use crate::kind::Kind;
use crate::meta::{ObjectMeta, StringMap, Time};
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::Cidr;
use api_derive::resource_struct;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A block of addresses and who holds each of them.
pub type IPAMBlock = Object<IPAMBlockSpec>;

/// The state of one block.
#[resource_struct]
pub struct IPAMBlockSpec {
    /// The range of the block.
    #[field(always, required, format = "cidr")]
    pub cidr: Cidr,
    /// Who the block belongs to, such as `host:node-1`; absent for a block without owner.
    #[field(pattern = r"^(host|virtual):[a-zA-Z0-9\.\-_]+$")]
    pub affinity: Option<String>,
    /// When the present owner took the block.
    pub affinity_claim_time: Option<Time>,
    /// One entry per address: null when it is free, otherwise the index of its entry in `attributes`.
    #[field(always, required, list = "atomic", schema = nullable_items)]
    pub allocations: Vec<Option<i64>>,
    /// The free addresses by ordinal, the next to hand out first.
    #[field(always, required, list = "atomic")]
    pub unallocated: Vec<i64>,
    /// What is known about the holders of addresses.
    #[field(always, required, list = "atomic")]
    pub attributes: Vec<AllocationAttribute>,
    /// Grows with each write of the block.
    #[field(always, default = "0")]
    pub sequence_number: u64,
    /// For each allocated ordinal, the block's sequence number when it was allocated.
    #[field(always)]
    pub sequence_number_for_allocation: BTreeMap<String, u64>,
    /// Set just before the object is removed, so that nobody builds on it meanwhile. Not for people to set.
    #[field(always)]
    pub deleted: bool,
    /// No longer used; kept because older versions expect the field.
    #[field(name = "strictAffinity", always, required)]
    pub deprecated_strict_affinity: bool,
}

/// What is known about the holder of one or more addresses.
#[resource_struct]
pub struct AllocationAttribute {
    /// The handle under which the addresses are held.
    #[field(name = "handle_id")]
    pub handle_id: Option<String>,
    /// Attributes of the present owner: pod, namespace, node, type.
    #[field(name = "secondary")]
    pub active_owner_attrs: StringMap,
    /// Attributes of the other side of a live migration.
    pub alternate_owner_attrs: StringMap,
    /// When the address was released; set while it waits out its cool-down.
    pub released_at: Option<Time>,
}

fn nullable_items(field: &mut Map<String, Value>) {
    if let Some(Value::Object(items)) = field.get_mut("items") {
        items.insert("nullable".into(), true.into());
    }
}

impl Spec for IPAMBlockSpec {
    const KIND: Kind = Kind::IPAMBlock;
    type Status = NoStatus;

    // Only IPAM writes blocks; their names are derived from CIDRs.
    fn validate(&self, _metadata: &ObjectMeta, _errors: &mut FieldErrors) {}
}
