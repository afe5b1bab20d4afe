//! Tier: an ordered group of policies. Three tiers always exist, with fixed order and default action.

use super::policy::Action;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::{Condition, ObjectMeta};
use crate::object::{Object, Spec, StatusPart};
use crate::scalars::GoFloat;
use crate::scalars::names::{MAX_NAME_LABEL_LENGTH, check_metadata_with_name, is_dns_label};
use crate::words::{ADMIN_TIER, BASELINE_TIER, DEFAULT_TIER};
use api_derive::resource_struct;
use serde_json::{Map, Value, json};

/// An ordered group of policies.
pub type Tier = Object<TierSpec>;

/// The finalizer of the controller that prevents the deletion of tiers with policies.
pub const TIER_FINALIZER: &str = crate::words::TIER_FINALIZER;

/// The order of tiers that do not specify one, and of the tier `default`.
pub const DEFAULT_TIER_ORDER: f64 = 1_000_000.0;

/// A tier that always exists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuiltInTier {
    /// The name.
    pub name: &'static str,
    /// The only order it may have.
    pub order: f64,
    /// The only default action it may have.
    pub default_action: &'static str,
}

/// The tiers that always exist and cannot be deleted.
pub const BUILT_IN_TIERS: [BuiltInTier; 3] = [
    BuiltInTier { name: ADMIN_TIER, order: 1_000.0, default_action: "Pass" },
    BuiltInTier { name: BASELINE_TIER, order: 10_000_000.0, default_action: "Pass" },
    BuiltInTier { name: DEFAULT_TIER, order: DEFAULT_TIER_ORDER, default_action: "Deny" },
];

/// What a Tier says.
#[resource_struct]
pub struct TierSpec {
    /// The tier's place: low numbers first.
    pub order: Option<GoFloat>,
    /// What happens to packets that a policy of this tier selects and no rule decides: `Deny` or `Pass`.
    #[field(default = "\"Deny\"", schema = default_actions)]
    pub default_action: Option<Action>,
}

/// What was observed about a Tier.
#[resource_struct]
pub struct TierStatus {
    /// Conditions, one per type.
    #[field(list = "map:type")]
    pub conditions: Vec<Condition>,
}

impl StatusPart for TierStatus {}

fn default_actions(schema: &mut Map<String, Value>) {
    schema.insert("enum".into(), json!(["Pass", "Deny"]));
}

impl Spec for TierSpec {
    const KIND: Kind = Kind::Tier;
    type Status = TierStatus;

    fn set_defaults(&mut self, _metadata: &mut ObjectMeta) {
        self.order.get_or_insert(GoFloat(DEFAULT_TIER_ORDER));
        self.default_action.get_or_insert(Action::Deny);
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata_with_name(metadata, MAX_NAME_LABEL_LENGTH, is_dns_label, errors);
        let Some(built_in) = BUILT_IN_TIERS.iter().find(|tier| tier.name == metadata.name) else { return };
        let action = self.default_action.as_ref().map_or("", Action::as_str);
        if action != built_in.default_action {
            let reason = format!(
                "The '{}' tier must have default action '{}'",
                built_in.name, built_in.default_action
            );
            errors.add(FieldPath::new("spec.defaultAction"), action, reason);
        }
        if self.order != Some(GoFloat(built_in.order)) {
            let shown = self.order.map_or_else(String::new, |order| order.to_string());
            let reason = format!("{} tier order must be {}", built_in.name, built_in.order);
            errors.add(FieldPath::new("spec.order"), shown, reason);
        }
    }

    fn object_schema(schema: &mut Map<String, Value>) {
        // CEL only sees metadata.name at the root of an object, so these rules cannot be on the spec.
        let mut rules = Vec::new();
        for BuiltInTier { name, default_action, .. } in BUILT_IN_TIERS {
            rules.push(json!({
                "rule": format!(
                    "self.metadata.name != '{name}' || \
                     (has(self.spec.defaultAction) && self.spec.defaultAction == '{default_action}')"
                ),
                "message": format!("The '{name}' tier must have default action '{default_action}'"),
                "reason": "FieldValueInvalid",
            }));
        }
        for BuiltInTier { name, order, .. } in BUILT_IN_TIERS {
            rules.push(json!({
                "rule": format!(
                    "self.metadata.name != '{name}' || (has(self.spec.order) && self.spec.order == {order:.1})"
                ),
                "message": format!("{name} tier order must be {order}"),
                "reason": "FieldValueInvalid",
            }));
        }
        schema.insert("required".into(), json!(["metadata", "spec"]));
        schema.insert("x-kubernetes-validations".into(), Value::Array(rules));
    }
}
