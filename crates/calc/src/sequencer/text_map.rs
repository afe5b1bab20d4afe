//! Labels that wait for a flush, packed: in a resync there is one map for each namespace and service account.

use crate::bytes::{Reader, put_bytes};
use std::collections::BTreeMap;

/// A map of texts as one run of bytes.
#[derive(Debug)]
pub(crate) struct PackedMap(Box<[u8]>);

impl PackedMap {
    pub(crate) fn new(map: BTreeMap<String, String>) -> Self {
        let mut bytes = Vec::new();
        for (name, value) in map {
            put_bytes(&mut bytes, name.as_bytes());
            put_bytes(&mut bytes, value.as_bytes());
        }
        Self(bytes.into_boxed_slice())
    }

    pub(crate) fn unpack(&self) -> BTreeMap<String, String> {
        let mut reader = Reader(&self.0);
        let mut map = BTreeMap::new();
        while let (Some(name), Some(value)) = (reader.bytes(), reader.bytes()) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            map.insert(text(name), text(value));
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use super::PackedMap;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn maps_come_back(map: BTreeMap<String, String>) {
            prop_assert_eq!(PackedMap::new(map.clone()).unpack(), map);
        }
    }
}
