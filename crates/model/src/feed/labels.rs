//! Labels as one piece of text. A large cluster has half a million endpoints with half a dozen labels each, and every
//! reader looks at each label once. A map of texts would cost a dozen allocations for each endpoint; this costs one.
//!
//! Labels cannot be changed, only built anew.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Lengths are written in characters of six bits each; this bit says that more follow. So each of these characters is
/// one byte.
const MORE: u8 = 0x40;
/// Enough for the labels of most endpoints.
const ROOM: usize = 192;

/// Labels: values by name, in the order of the names, each name once.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    /// For each label its name and its value, each preceded by its length.
    packed: String,
}

impl Labels {
    /// Returns the value of a label.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(have, _)| *have == name).map(|(_, value)| value)
    }

    /// Whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// Iterates over names and values.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { rest: &self.packed }
    }

    fn push(&mut self, name: &str, value: &str) {
        for text in [name, value] {
            self.push_length(text.len());
            self.packed.push_str(text);
        }
    }

    fn push_length(&mut self, mut length: usize) {
        loop {
            let bits = u8::try_from(length % usize::from(MORE)).unwrap_or_default();
            length /= usize::from(MORE);
            self.packed.push(char::from(if length > 0 { bits | MORE } else { bits }));
            if length == 0 {
                return;
            }
        }
    }

    fn of_sorted<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut packed = Self::default();
        for (name, value) in labels {
            packed.push(name, value);
        }
        packed
    }
}

/// An iterator over the names and values of labels.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    rest: &'a str,
}

impl<'a> Iter<'a> {
    fn text(&mut self) -> Option<&'a str> {
        let (mut length, mut place) = (0, 1);
        loop {
            let byte = *self.rest.as_bytes().first()?;
            self.rest = self.rest.get(1..)?;
            length += usize::from(byte % MORE) * place;
            if byte < MORE {
                break;
            }
            place *= usize::from(MORE);
        }
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.text()?, self.text()?))
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a str, &'a str);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl From<&BTreeMap<String, String>> for Labels {
    fn from(labels: &BTreeMap<String, String>) -> Self {
        Self::of_sorted(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Self::from(&labels)
    }
}

/// If a name appears twice, the last value wins.
impl<N: AsRef<str> + Ord, V: AsRef<str>> FromIterator<(N, V)> for Labels {
    fn from_iter<T: IntoIterator<Item = (N, V)>>(labels: T) -> Self {
        let labels: BTreeMap<N, V> = labels.into_iter().collect();
        Self::of_sorted(labels.iter().map(|(name, value)| (name.as_ref(), value.as_ref())))
    }
}

impl<N: AsRef<str> + Ord, V: AsRef<str>, const COUNT: usize> From<[(N, V); COUNT]> for Labels {
    fn from(labels: [(N, V); COUNT]) -> Self {
        labels.into_iter().collect()
    }
}

impl selector::Labels for Labels {
    fn get(&self, name: &str) -> Option<&str> {
        Self::get(self, name)
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

/// Text that is only copied if it contains escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
        let mut labels = Labels::default();
        let mut last: Option<Cow<'de, str>> = None;
        while let Some((Text(name), Text(value))) = map.next_entry()? {
            if last.as_ref().is_some_and(|last| *last >= name) {
                // Out of order, which neither Go nor we write.
                let mut all: BTreeMap<String, String> =
                    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                all.insert(name.into_owned(), value.into_owned());
                while let Some((name, value)) = map.next_entry()? {
                    all.insert(name, value);
                }
                return Ok(all.into());
            }
            if labels.is_empty() {
                labels.packed.reserve(ROOM);
            }
            labels.push(&name, &value);
            last = Some(name);
        }
        Ok(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn map(labels: &Labels) -> BTreeMap<String, String> {
        labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    proptest! {
        #[test]
        fn it_is_the_map(labels: BTreeMap<String, String>) {
            let packed = Labels::from(labels.clone());
            prop_assert_eq!(map(&packed), labels.clone());
            prop_assert_eq!(packed.is_empty(), labels.is_empty());
            prop_assert_eq!(format!("{packed:?}"), format!("{labels:?}"));
            for (name, value) in &labels {
                prop_assert_eq!(packed.get(name), Some(value.as_str()));
            }
            prop_assert_eq!(packed.get("no such name\0"), None);
            let json = serde_json::to_string(&labels).unwrap();
            prop_assert_eq!(serde_json::to_string(&packed).unwrap(), json.clone());
            prop_assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), packed.clone());
            prop_assert_eq!(labels.iter().rev().collect::<Labels>(), packed);
        }
    }

    #[test]
    fn long_texts_and_any_order() {
        let (long, longer) = ("n".repeat(64), "v".repeat(70_000));
        let packed = Labels::from([("b", longer.as_str()), (&*long, "1"), ("a", "")]);
        assert_eq!(
            (packed.get("a"), packed.get("b"), packed.get(&long)),
            (Some(""), Some(&*longer), Some("1"))
        );
        let read: Labels = serde_json::from_str(r#"{"a":"1","c":"2","b":"\"","a":"4","d":"5"}"#).unwrap();
        assert_eq!(read, Labels::from([("a", "4"), ("b", "\""), ("c", "2"), ("d", "5")]));
        assert!(serde_json::from_str::<Labels>(r#"{"a":1}"#).is_err());
    }
}
