//! Cross-field rules: each is written once as CEL, for the kube-apiserver, and once as Rust, for every other store.
//!
//! Both stand side by side in one value, so that a rule cannot be added to one world alone. A test on a real
//! kube-apiserver applies the same objects to both and compares the verdicts.

use crate::errors::{FieldErrors, FieldPath};
use serde_json::{Map, Value, json};

/// Why a rule refuses, as the kube-apiserver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `FieldValueInvalid`
    Invalid,
    /// `FieldValueForbidden`
    Forbidden,
    /// `FieldValueRequired`
    Required,
    /// `FieldValueDuplicate`
    Duplicate,
}

impl Reason {
    /// The name used in a CRD.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
        }
    }
}

/// One rule over a struct `T`.
pub struct Rule<T> {
    /// The CEL expression, with `self` as the struct.
    pub cel: &'static str,
    /// What the user reads when it fails.
    pub message: &'static str,
    /// The class of the failure.
    pub reason: Reason,
    /// The same rule in Rust: true when the object is fine.
    pub holds: fn(&T) -> bool,
}

/// A struct with cross-field rules.
pub trait HasRules: Sized + 'static {
    /// The rules, in the order they are printed and checked.
    fn rules() -> &'static [Rule<Self>];

    /// Adds an error at `path` for each rule that does not hold.
    fn check_rules(&self, path: &FieldPath, errors: &mut FieldErrors) {
        for rule in Self::rules() {
            if !(rule.holds)(self) {
                errors.add(path.clone(), "", rule.message);
            }
        }
    }
}

/// Writes the rules of `T` into its schema.
pub fn attach<T: HasRules>(schema: &mut Map<String, Value>) {
    let rules: Vec<Value> = T::rules()
        .iter()
        .map(|rule| json!({"rule": rule.cel, "message": rule.message, "reason": rule.reason.as_str()}))
        .collect();
    if !rules.is_empty() {
        schema.insert("x-kubernetes-validations".into(), Value::Array(rules));
    }
}
