//! Any bytes are read or refused; what is read can be written as JSON and read again with the same result, and every
//! mistake can be displayed. Run with `cargo +nightly fuzz run document fuzz/corpus/document tests/documents` from the
//! api crate: its test files are a good start.
#![no_main]

use api::document::{Checks, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match read("input", bytes, Checks::Structure) {
        Ok(documents) => {
            for document in documents {
                let json = serde_json::to_vec(&document.value).expect("JSON can be written");
                let again = read("again", &json, Checks::Structure).unwrap_or_else(|found| panic!("{found}"));
                assert_eq!(again.len(), 1);
                assert_eq!(again[0].resource, document.resource);
                if let Err(found) = document.validate() {
                    assert!(!found.to_string().is_empty());
                }
            }
        }
        Err(found) => {
            assert!(!found.is_empty());
            assert!(found.to_string().lines().count() > found.len());
        }
    }
});
