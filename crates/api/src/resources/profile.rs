//! Profile: rules and labels that the endpoints of a namespace or service account inherit.

use super::rule::Rule;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::{ObjectMeta, StringMap};
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::names::{check_labels, check_metadata};
use api_derive::resource_struct;
use serde_json::{Map, Value};

/// Rules and labels for the endpoints that name this profile.
pub type Profile = Object<ProfileSpec>;

/// The profile that always exists and cannot be changed: everything is allowed.
pub const DEFAULT_ALLOW_PROFILE: &str = "projectcalico-default-allow";

/// What a Profile says.
#[resource_struct]
pub struct ProfileSpec {
    /// Rules for packets to the endpoints, in order.
    #[field(list = "atomic")]
    pub ingress: Vec<Rule>,
    /// Rules for packets from the endpoints, in order.
    #[field(list = "atomic")]
    pub egress: Vec<Rule>,
    /// Labels that the endpoints inherit unless they have their own of the same name.
    pub labels_to_apply: StringMap,
}

impl Spec for ProfileSpec {
    const KIND: Kind = Kind::Profile;
    type Status = NoStatus;

    // Calico has no schema for profiles: it accepts any text as an action (such a rule denies: see the warnings of
    // `document`) and lists and texts of any length.
    fn object_schema(schema: &mut Map<String, Value>) {
        for list in ["ingress", "egress"] {
            let rule = format!("/spec/properties/{list}/items");
            let Some(rule) = schema.get_mut("properties").and_then(|fields| fields.pointer_mut(&rule)) else {
                continue;
            };
            without_limits(rule);
            if let Some(required) = rule.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|name| name != "action");
            }
            if let Some(Value::Object(action)) = rule.pointer_mut("/properties/action") {
                action.remove("enum");
            }
        }
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        for (name, rules) in [("ingress", &self.ingress), ("egress", &self.egress)] {
            for (index, rule) in rules.iter().enumerate() {
                rule.validate_in_profile(&spec.child(name).index(index), errors);
            }
        }
        check_labels(&self.labels_to_apply, &spec.child("labelsToApply"), errors);
    }
}

fn without_limits(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for limit in ["maxItems", "maxLength"] {
                fields.remove(limit);
            }
            fields.values_mut().for_each(without_limits);
        }
        Value::Array(items) => items.iter_mut().for_each(without_limits),
        _ => {}
    }
}
