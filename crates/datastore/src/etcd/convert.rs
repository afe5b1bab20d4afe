//! Converts between stored bytes and entries: decoding, revisions, errors, and the one profile that is never stored.

use super::transport::{Entry, TransportError};
use crate::backend::InvalidEntry;
use crate::error::{Error, Result};
use api::{FieldErrors, FieldPath, Kind, Resource};
use bytes::Bytes;
use model::{Key, KeyError, KvPair, Value};

/// The profile that exists in every store without being stored.
const DEFAULT_ALLOW: &str = "projectcalico-default-allow";
const DEFAULT_ALLOW_JSON: &str = r#"{"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{"name":"projectcalico-default-allow"},"spec":{"ingress":[{"action":"Allow","source":{},"destination":{}}],"egress":[{"action":"Allow","source":{},"destination":{}}]}}"#;

/// The key of the profile that exists in every store without being stored.
pub(super) fn default_allow_key() -> Key {
    Key::resource(Kind::Profile, "", DEFAULT_ALLOW)
}

/// Whether a key is that of the profile that exists in every store without being stored.
pub(super) fn is_default_allow(key: &Key) -> bool {
    key.as_resource().is_some_and(|key| key.kind == Kind::Profile && key.name == DEFAULT_ALLOW)
}

/// The profile that exists in every store without being stored.
pub(super) fn default_allow_profile() -> Result<KvPair> {
    let key = default_allow_key();
    let profile = Resource::from_json(Kind::Profile, DEFAULT_ALLOW_JSON.as_bytes())
        .map_err(|error| Error::Parse { key: key.to_string(), reason: error.to_string() })?;
    Ok(pair(key, Value::Resource(profile), "1".to_owned()))
}

/// Decodes an entry of the store.
pub(super) fn read(key: &Key, entry: &Entry) -> std::result::Result<KvPair, String> {
    let value = model::decode(key, &entry.value).map_err(|error| error.to_string())?;
    Ok(pair(key.clone(), value, entry.mod_revision.to_string()))
}

/// An entry of this key and value at this revision.
pub(super) fn pair(key: Key, mut value: Value, revision: String) -> KvPair {
    let mut uid = None;
    if let Value::Resource(resource) = &mut value {
        let metadata = resource.metadata_mut();
        metadata.resource_version.clone_from(&revision);
        uid = Some(metadata.uid.clone()).filter(|uid| !uid.is_empty());
    }
    KvPair { key, value, revision, uid, ttl: None }
}

/// A substitute for a deleted resource whose content could not be read: its identity and nothing else.
pub(super) fn remains(key: &Key, revision: i64) -> Option<KvPair> {
    let Key::Resource(resource) = key else { return None };
    let metadata = serde_json::json!({"metadata": {"name": resource.name, "namespace": resource.namespace}});
    let value = Resource::from_value(resource.kind, metadata).ok()?;
    Some(pair(key.clone(), Value::Resource(value), revision.to_string()))
}

/// The name by which users know an entry; the key's own name may still have a tier prefix.
pub(super) fn user_name<'a>(key: &'a Key, value: &'a Value) -> Option<&'a str> {
    match (key, value) {
        (_, Value::Resource(resource)) => Some(resource.name()),
        (Key::Resource(resource), _) => Some(&resource.name),
        _ => None,
    }
}

/// The etcd path of a key.
pub(super) fn path(key: &Key) -> Result<Bytes> {
    Ok(key.path().map_err(|error| key_error(key, &error))?.into())
}

/// The error for an invalid key, in Calico's error classes.
pub(super) fn key_error(key: impl std::fmt::Display, error: &KeyError) -> Error {
    match error {
        KeyError::Missing(part) => Error::InsufficientIdentifiers { missing: (*part).to_owned() },
        KeyError::NotAPart { .. } => Error::permanent(format!("cannot use {key}"), error.to_string()),
    }
}

/// Parses a revision passed in by users. `None`, `""` and `"0"` mean "now".
pub(super) fn revision_or_now(revision: Option<&str>) -> Result<i64> {
    match revision {
        None | Some("" | "0") => Ok(0),
        Some(text) => exact_revision(text),
    }
}

/// Parses a revision that must not be "now".
pub(super) fn exact_revision(text: &str) -> Result<i64> {
    match text.parse::<i64>() {
        Ok(revision) if revision > 0 => Ok(revision),
        _ => {
            let mut errors = FieldErrors::new();
            errors.add(FieldPath::new("ResourceVersion"), text, "must be a positive decimal number");
            Err(Error::Validation(errors))
        }
    }
}

/// Reports an entry that exists but cannot be read.
pub(super) fn invalid(path: &[u8], parsed_key: Option<Key>, reason: String) -> InvalidEntry {
    InvalidEntry { key: String::from_utf8_lossy(path).into_owned(), parsed_key, reason, salvaged: None }
}

/// The reason why an entry is unreadable, with the fields concerned.
pub(super) fn with_place(key: &Key, entry: &Entry, reason: String) -> String {
    let Key::Resource(resource) = key else { return reason };
    let fields = model::convert::salvage::unreadable_fields(resource.kind, &entry.value);
    if fields.is_empty() { reason } else { format!("{}: {reason}", fields.join(", ")) }
}

/// As much of an unreadable entry as can be read, where that matters.
pub(super) fn salvaged(key: &Key, entry: &Entry) -> Option<Box<KvPair>> {
    let resource = model::convert::salvage::from_store(key.as_resource()?, &entry.value)?;
    Some(Box::new(pair(key.clone(), Value::Resource(resource), entry.mod_revision.to_string())))
}

/// Converts a transport error to Calico's error classes.
pub(super) fn store_error(error: TransportError, context: impl FnOnce() -> String) -> Error {
    match error {
        TransportError::Revision(reason) => Error::Expired { reason },
        TransportError::Unauthorized(reason) => Error::Unauthorized { reason },
        TransportError::Unavailable(reason) => Error::transient(context(), reason),
        TransportError::TooLarge(reason) => {
            Error::permanent(format!("{}: larger than the store accepts", context()), reason)
        }
        TransportError::Failed(reason) => Error::permanent(context(), reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_replaces_a_deleted_resource_of_every_kind() {
        for kind in Kind::ALL {
            let key = Key::resource(*kind, "", "gone");
            let pair = remains(&key, 7).unwrap_or_else(|| panic!("{kind:?}"));
            assert_eq!((pair.key, pair.revision.as_str()), (key, "7"), "{kind:?}");
        }
    }
}
