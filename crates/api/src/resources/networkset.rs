//! NetworkSet and GlobalNetworkSet: networks with labels, so that rules can select them like endpoints.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::IpOrCidr;
use crate::scalars::names::check_metadata;
use crate::words::LABEL_NAMESPACE;
use api_derive::resource_struct;

/// Networks that policies of one namespace can select.
pub type NetworkSet = Object<NetworkSetSpec>;

/// Networks that all policies can select.
pub type GlobalNetworkSet = Object<GlobalNetworkSetSpec>;

/// What a NetworkSet holds.
#[resource_struct]
pub struct NetworkSetSpec {
    /// Networks or single addresses.
    #[field(list = "set")]
    pub nets: Vec<IpOrCidr>,
}

/// What a GlobalNetworkSet holds.
#[resource_struct]
pub struct GlobalNetworkSetSpec {
    /// Networks or single addresses.
    #[field(list = "set")]
    pub nets: Vec<IpOrCidr>,
}

fn validate(nets: &[IpOrCidr], metadata: &ObjectMeta, errors: &mut FieldErrors) {
    check_metadata(metadata, errors);
    if metadata.labels.contains_key(LABEL_NAMESPACE) {
        let path = FieldPath::new("metadata.labels").key(LABEL_NAMESPACE);
        errors.add(path, LABEL_NAMESPACE, format!("{LABEL_NAMESPACE} is not a valid label name"));
    }
    for (index, net) in nets.iter().enumerate() {
        if let Err(reason) = net.parse() {
            errors.add(FieldPath::new("spec.nets").index(index), net, reason);
        }
    }
}

impl Spec for NetworkSetSpec {
    const KIND: Kind = Kind::NetworkSet;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        validate(&self.nets, metadata, errors);
    }
}

impl Spec for GlobalNetworkSetSpec {
    const KIND: Kind = Kind::GlobalNetworkSet;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        validate(&self.nets, metadata, errors);
    }
}
