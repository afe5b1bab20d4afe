//! Kubernetes objects as Calico resources, and back for those that Calico writes.
//!
//! | Kubernetes | Calico | module |
//! |---|---|---|
//! | Pod | WorkloadEndpoint | [`pod`] |
//! | Namespace, ServiceAccount | Profile | [`profile`] |
//! | Node and its annotations | Node | [`node`] |
//! | NetworkPolicy | KubernetesNetworkPolicy | [`network_policy`] |
//! | ClusterNetworkPolicy | KubernetesClusterNetworkPolicy | [`cluster_network_policy`] |
//! | Service, EndpointSlice | KubernetesService, KubernetesEndpointSlice | [`service`] |
//! | VirtualMachineInstanceMigration | LiveMigration | [`live_migration`] |
//!
//! These are pure functions: no clock, no environment, no requests. What a conversion had to leave out or clamp is in
//! [`Converted::problems`]. A conversion that cannot do what it promises fails, so that the caller can fail closed.

pub mod cluster_network_policy;
mod label_selector;
pub mod live_migration;
pub mod network_policy;
pub mod node;
pub mod pod;
mod ports;
pub mod profile;
pub mod qos;
pub mod quantity;
pub mod service;

use crate::value::KvPair;
use api::Resource;

/// The outcome of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The resource under its key, with the revision of the Kubernetes object.
    pub pair: KvPair,
    /// What was left out or changed, one sentence each.
    pub problems: Vec<String>,
}

impl Converted {
    fn new(resource: impl Into<Resource>, revision: &str) -> Self {
        let mut pair = KvPair::resource(resource);
        pair.set_revision(revision);
        Self { pair, problems: Vec::new() }
    }
}

/// Why an object has no Calico form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// An annotation that decides about addresses cannot be read.
    #[error("annotation {annotation}: {reason}")]
    Annotation {
        /// The annotation that cannot be used.
        annotation: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A field has a value that it must not have.
    #[error("{field}: {reason}")]
    Field {
        /// Its path in the Kubernetes object.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No name can be computed for the resource.
    #[error("no Calico name can be made: {0}")]
    Name(String),
}

impl ConversionError {
    fn field(field: &str, reason: impl Into<String>) -> Self {
        Self::Field { field: field.to_owned(), reason: reason.into() }
    }
}

/// Returns a uid for the Calico object that differs from the Kubernetes object's own; an empty uid stays empty.
fn translated_uid(uid: &str) -> Result<String, ConversionError> {
    if uid.is_empty() {
        return Ok(String::new());
    }
    crate::names::translate_uid(uid)
        .map_err(|error| ConversionError::field("metadata.uid", error.to_string()))
}

#[cfg(test)]
mod tests;
