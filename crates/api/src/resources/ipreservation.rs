//! `IPReservation`: ranges from which IPAM does not allocate. It frees nothing: allocated addresses stay with their
//! owner.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::Cidr;
use crate::scalars::names::check_metadata;
use api_derive::resource_struct;
use serde_json::{Map, Value};

/// Addresses that IPAM never hands out on its own.
pub type IPReservation = Object<IPReservationSpec>;

/// The ranges that are set aside.
#[resource_struct]
pub struct IPReservationSpec {
    /// Ranges, each written as a CIDR; `/32` or `/128` for one address.
    #[field(name = "reservedCIDRs", list = "set", schema = cidr_items)]
    pub reserved_cidrs: Vec<Cidr>,
}

fn cidr_items(field: &mut Map<String, Value>) {
    if let Some(Value::Object(items)) = field.get_mut("items") {
        items.insert("format".into(), "cidr".into());
    }
}

impl Spec for IPReservationSpec {
    const KIND: Kind = Kind::IPReservation;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let list = FieldPath::new("spec.reservedCIDRs");
        for (index, cidr) in self.reserved_cidrs.iter().enumerate() {
            if let Err(reason) = cidr.parse() {
                errors.add(list.index(index), cidr, reason);
            }
        }
    }
}
