//! Kubernetes' own objects, trimmed to the fields that Calico reads.
//!
//! There are two families, on purpose. [`workloads`] and [`cluster_policy`] contain objects that are only read: unused
//! fields are dropped when they are parsed, so that a cache of ten thousand pods stays small, and none of them is ever
//! written back whole. [`policy`] and [`service`] contain parts that also occur in Calico's own resources: they keep
//! unknown fields and know their schema, like every resource struct.

pub mod cluster_policy;
pub mod policy;
pub mod service;
pub mod workloads;

pub use cluster_policy::ClusterNetworkPolicy;
pub use policy::{LabelSelector, NetworkPolicy};
pub use service::{EndpointSlice, Service};
pub use workloads::{Namespace, Node, Pod, ServiceAccount, VirtualMachineInstanceMigration};

use crate::meta::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// Reads metadata and drops unused fields: the bookkeeping of field owners is often larger than the object.
fn trimmed_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = Option::<ObjectMeta>::deserialize(deserializer)?.unwrap_or_default();
    metadata.extra.clear();
    Ok(metadata)
}

/// Declares structs that are read tolerantly: absent and `null` fields are zero, unknown fields are dropped.
macro_rules! read_only_structs {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $json:literal,)*
    })+) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$field_doc])*
            #[serde(rename = $json, deserialize_with = "crate::codec::null_as_default")]
            pub $field: $type,)*
        })+
    };
}

/// Declares whole objects: trimmed metadata, and the parts named.
macro_rules! read_only_objects {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })+) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            /// Name, labels, annotations and the rest.
            #[serde(deserialize_with = "crate::kubernetes::trimmed_metadata")]
            pub metadata: crate::meta::ObjectMeta,
            $($(#[$field_doc])*
            #[serde(deserialize_with = "crate::codec::null_as_default")]
            pub $field: $type,)*
        })+
    };
}

use {read_only_objects, read_only_structs};

#[cfg(test)]
mod tests;
