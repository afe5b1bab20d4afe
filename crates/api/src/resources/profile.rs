//! Profile: rules and labels that the endpoints of a namespace or service account inherit.

use super::rule::Rule;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::{ObjectMeta, StringMap};
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::names::{check_labels, check_metadata};
use api_derive::resource_struct;

/// Rules and labels for the endpoints that name this profile.
pub type Profile = Object<ProfileSpec>;

/// The profile that always exists and cannot be changed: everything is allowed.
pub const DEFAULT_ALLOW_PROFILE: &str = "projectcalico-default-allow";

/// What a Profile says.
#[resource_struct]
pub struct ProfileSpec {
    /// Rules for packets to the endpoints, in order.
    #[field(list = "atomic", max_items = 1024)]
    pub ingress: Vec<Rule>,
    /// Rules for packets from the endpoints, in order.
    #[field(list = "atomic", max_items = 1024)]
    pub egress: Vec<Rule>,
    /// Labels that the endpoints inherit unless they have their own of the same name.
    pub labels_to_apply: StringMap,
}

impl Spec for ProfileSpec {
    const KIND: Kind = Kind::Profile;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        for (name, rules) in [("ingress", &self.ingress), ("egress", &self.egress)] {
            for (index, rule) in rules.iter().enumerate() {
                rule.validate(&spec.child(name).index(index), errors);
            }
        }
        check_labels(&self.labels_to_apply, &spec.child("labelsToApply"), errors);
    }
}
