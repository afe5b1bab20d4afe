//! Small serde pieces shared by all resource structs: Go's zero-value habits, and the box for unknown fields.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Fields of an object that this version does not know, by name.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// Whether a value is its type's zero: Go's `omitempty` leaves such fields out.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads `null` as the zero value, as Go's decoder does.
///
/// # Errors
/// Whatever the field's own type refuses.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}
