//! Small serde helpers shared by all resource structs: Go's treatment of zero values, Go's spelling of JSON, and the
//! map for unknown fields.

mod by_text;

pub(crate) use by_text::{Ordered, without_place};
pub use by_text::{from_value, to_value};
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// Fields of an object that this version does not know, by name.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// Whether a value is its type's zero: Go's `omitempty` omits such fields.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads `null` as the zero value, as Go's decoder does.
///
/// # Errors
/// Those of the field's own type.
pub fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads a field's value in place; `null` leaves the existing zero value, as in Go.
pub(crate) struct InPlace<'a, T>(pub(crate) &'a mut T);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for InPlace<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for InPlace<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        T::deserialize_in_place(deserializer, self.0)
    }
}

/// Reads a list in place, item by item; `null` leaves the existing one. Lists of large items start with capacity for
/// one: most have one or two, and the usual capacity of four would be most of the memory of an object.
pub(crate) struct ListInPlace<'a, T>(pub(crate) &'a mut Vec<T>);

/// Items larger than this many bytes count as large.
const LARGE_ITEM: usize = 128;

impl<'de, T: Deserialize<'de> + Default> DeserializeSeed<'de> for ListInPlace<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for ListInPlace<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.clear();
        while items.next_element_seed(NextItem(self.0))?.is_some() {}
        Ok(())
    }
}

/// Reads one more item of a list in place. The place is only created if there is an item.
struct NextItem<'a, T>(&'a mut Vec<T>);

impl<'de, T: Deserialize<'de> + Default> DeserializeSeed<'de> for NextItem<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let list = self.0;
        if size_of::<T>() > LARGE_ITEM && list.len() == list.capacity() {
            list.reserve_exact(list.len().max(1));
        }
        let place = list.len();
        list.push(T::default());
        T::deserialize_in_place(deserializer, &mut list[place])
    }
}

/// The name of a field, borrowed from the text if it has no escapes.
pub(crate) struct FieldName<'de>(Cow<'de, str>);

impl FieldName<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl<'de> Deserialize<'de> for FieldName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = FieldName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(FieldName(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(FieldName(Cow::Owned(name.to_owned())))
            }

            fn visit_string<E>(self, name: String) -> Result<Self::Value, E> {
                Ok(FieldName(Cow::Owned(name)))
            }

            fn visit_borrowed_bytes<E: serde::de::Error>(self, name: &'de [u8]) -> Result<Self::Value, E> {
                std::str::from_utf8(name).map(|name| FieldName(Cow::Borrowed(name))).map_err(E::custom)
            }
        }
        deserializer.deserialize_identifier(Name)
    }
}

/// Writes JSON as Go's encoder does: `&`, `<`, `>` and the two Unicode line separators are escaped, so that what we
/// store is byte for byte what Calico stores.
///
/// # Errors
/// Never for objects of our types; the signature is serde's.
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

/// Writes a piece of a JSON string with the escapes of Go's encoder, which escapes every character that is special in
/// HTML or ends a line in JavaScript.
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
