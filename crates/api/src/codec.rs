//! Small serde pieces shared by all resource structs: Go's zero-value habits, Go's spelling of JSON, and the box for
//! unknown fields.

use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::io;

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

/// Writes JSON as Go's encoder does: `&`, `<`, `>` and the two Unicode line separators are escaped, so that what we
/// store is byte for byte what Calico stores.
///
/// # Errors
/// Never for objects made of our types; the signature is serde's.
pub fn to_go_json<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut out = Vec::with_capacity(512);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, GoFormatter))?;
    Ok(out)
}

struct GoFormatter;

impl serde_json::ser::Formatter for GoFormatter {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        write_go_text(writer, fragment)
    }
}

/// Writes a piece of a JSON string with the escapes of Go's encoder, which leaves no character that means something in
/// HTML or that ends a line in JavaScript.
///
/// # Errors
/// When the writer fails.
pub fn write_go_text<W: io::Write + ?Sized>(writer: &mut W, fragment: &str) -> io::Result<()> {
    let mut rest = fragment;
    while let Some(place) = rest.find(['&', '<', '>', '\u{2028}', '\u{2029}']) {
        let (plain, special) = rest.split_at(place);
        writer.write_all(plain.as_bytes())?;
        let mut letters = special.chars();
        if let Some(letter) = letters.next() {
            write!(writer, "\\u{:04x}", u32::from(letter))?;
        }
        rest = letters.as_str();
    }
    writer.write_all(rest.as_bytes())
}
