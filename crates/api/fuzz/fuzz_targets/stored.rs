//! Any JSON is a stored object of any kind, or is refused. Writing an object gives back what was read, whether or not
//! this version knows the fields; defaults are complete after one round; and checking never panics. The first byte
//! selects the kind. Run with `cargo +nightly fuzz run stored` from the api crate.
#![no_main]

use api::{Kind, Resource};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [first, json @ ..] = input else { return };
    let kind = Kind::ALL[usize::from(*first) % Kind::ALL.len()];
    let Ok(resource) = Resource::from_json(kind, json) else { return };
    let written = resource.to_json().expect("JSON can be written");
    let again = Resource::from_json(kind, &written).expect("what was written can be read");
    assert_eq!(again, resource);
    assert_eq!(again.to_json().expect("JSON can be written"), written);
    let mut complete = resource.clone();
    complete.set_defaults();
    let once = complete.clone();
    complete.set_defaults();
    assert_eq!(complete, once, "defaults are complete after one turn");
    complete.set_read_defaults();
    for one in [&resource, &once, &complete] {
        if let Err(found) = one.validate() {
            assert!(!found.to_string().is_empty());
        }
        let _ = one.validate_update(&resource);
    }
});
