//! Object metadata, in the field order of Kubernetes, with everything kept that we do not use.

use crate::text::text_newtype;
use api_derive::resource_struct;
use std::collections::BTreeMap;

/// Labels or annotations.
pub type StringMap = BTreeMap<String, String>;

text_newtype! {
    /// A moment, as RFC 3339 text; kept as written.
    Time => jiff::Timestamp, |text: &str| text.parse::<jiff::Timestamp>().map_err(|error| error.to_string()),
    {"type": "string", "format": "date-time", (crate::schema::READS): "text"}
}

/// The metadata of an object.
#[resource_struct]
pub struct ObjectMeta {
    /// The name, unique for its kind (and namespace).
    pub name: String,
    /// A prefix from which Kubernetes makes a name.
    pub generate_name: String,
    /// The namespace, for namespaced kinds.
    pub namespace: String,
    /// Deprecated by Kubernetes; kept when present.
    pub self_link: String,
    /// The identity of this object over its lifetime.
    pub uid: String,
    /// The store's version of this object, for optimistic concurrency.
    pub resource_version: String,
    /// Counts changes of the desired state.
    pub generation: i64,
    /// When the object was created.
    pub creation_timestamp: Option<Time>,
    /// When deletion was asked for.
    pub deletion_timestamp: Option<Time>,
    /// How long deletion may take.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Labels.
    pub labels: StringMap,
    /// Annotations.
    pub annotations: StringMap,
    /// Objects that own this one.
    pub owner_references: Vec<OwnerReference>,
    /// Names that must all be taken off this list before the object is removed.
    pub finalizers: Vec<String>,
}

/// An object that owns another.
#[resource_struct]
pub struct OwnerReference {
    /// The owner's API version.
    #[field(always)]
    pub api_version: String,
    /// The owner's kind.
    #[field(always)]
    pub kind: String,
    /// The owner's name.
    #[field(always)]
    pub name: String,
    /// The owner's uid.
    #[field(always)]
    pub uid: String,
    /// Whether the owner is the controlling one.
    pub controller: Option<bool>,
    /// Whether the owner cannot go before this object.
    pub block_owner_deletion: Option<bool>,
}

/// One condition of a status, as Kubernetes defines it.
#[resource_struct]
pub struct Condition {
    /// The aspect that is reported.
    #[field(
        name = "type",
        always,
        required,
        max_len = 316,
        pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    )]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[field(always, required, schema = condition_status)]
    pub status: String,
    /// The generation that the condition was computed from.
    #[field(min = 0, schema = int64)]
    pub observed_generation: i64,
    /// When the status last changed.
    #[field(always, required)]
    pub last_transition_time: Option<Time>,
    /// A word for the cause.
    #[field(
        always,
        required,
        min_len = 1,
        max_len = 1024,
        pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    )]
    pub reason: String,
    /// A sentence for people.
    #[field(always, required, max_len = 32768)]
    pub message: String,
}

fn condition_status(schema: &mut serde_json::Map<String, serde_json::Value>) {
    schema.insert("enum".into(), serde_json::json!(["True", "False", "Unknown"]));
}

fn int64(schema: &mut serde_json::Map<String, serde_json::Value>) {
    schema.insert("format".into(), "int64".into());
}
