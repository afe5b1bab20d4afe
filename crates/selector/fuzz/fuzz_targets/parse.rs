//! Any text is accepted or refused; what is accepted can be written, read again and evaluated with the same verdict.
//! Run with `cargo +nightly fuzz run parse` from the selector crate.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selector::Selector;

const SAMPLES: [&[(&str, &str)]; 3] = [&[], &[("a", "b")], &[("a", ""), ("b", "a"), ("c", "ab")]];

fuzz_target!(|text: &str| {
    match Selector::parse(text) {
        Ok(selector) => {
            let again = Selector::parse(selector.canonical()).expect("canonical text is a selector");
            let restrictions = selector.label_restrictions();
            for labels in SAMPLES {
                let verdict = selector.evaluate(labels);
                assert_eq!(verdict, again.evaluate(labels));
                let admitted = restrictions.iter().all(|(label, restriction)| {
                    restriction.admits(selector::Labels::get(labels, label))
                });
                assert!(admitted || !verdict);
            }
            let prefixed = selector.with_key_prefix("pcns.");
            assert_eq!(prefixed.evaluate(&()), selector.evaluate(&()));
        }
        Err(error) => {
            assert!(text.is_char_boundary(error.position()));
            assert_eq!(error.render(text).lines().count(), 3);
        }
    }
});
