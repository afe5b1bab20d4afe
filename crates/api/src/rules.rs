//! Cross-field rules: each is written once as CEL, for the kube-apiserver, and once as Rust, for every other store.
//!
//! Both forms are in one value, so that a rule cannot be added to one side alone. A test on a real kube-apiserver
//! applies the same objects to both and compares the verdicts.

use crate::codec::to_value;
use crate::errors::{FieldErrors, FieldPath};
use serde_json::{Map, Value, json};

/// The reason for a refusal, as the kube-apiserver names it.
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
    /// The message for the user when it fails.
    pub message: &'static str,
    /// The class of the failure.
    pub reason: Reason,
    /// The rule in Rust: true when the object is fine.
    pub holds: fn(&T) -> bool,
}

/// A struct with cross-field rules.
pub trait HasRules: serde::Serialize + Sized + 'static {
    /// The rules, in the order in which they are printed and checked.
    fn rules() -> &'static [Rule<Self>];

    /// Adds an error for each rule that does not hold, at the field below `path` that it concerns.
    fn check_rules(&self, path: &FieldPath, errors: &mut FieldErrors) {
        for rule in Self::rules() {
            if !(rule.holds)(self) {
                let (path, value) = blamed(to_value(self).ok(), rule.cel, rule.message, path);
                errors.add(path, value, rule.message);
            }
        }
    }
}

/// The field to report when a rule does not hold: of the fields that the object has and the rule uses, the first that
/// the message names, or else the first. If there is none, the struct itself.
fn blamed(object: Option<Value>, cel: &str, message: &str, path: &FieldPath) -> (FieldPath, String) {
    let Some(Value::Object(fields)) = object else {
        return (path.clone(), String::new());
    };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let about: Vec<&str> = cel
        .split("self.")
        .skip(1)
        .map(|rest| rest.split(|c: char| !is_letter(c)).next().unwrap_or(""))
        .filter(|name| fields.contains_key(*name))
        .collect();
    let named = |name: &&&str| message.split(|c: char| !is_letter(c)).any(|word| word == **name);
    match about.iter().find(named).or_else(|| about.first()) {
        Some(name) => {
            let value = match &fields[*name] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            (path.child(name), value)
        }
        None => (path.clone(), String::new()),
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
