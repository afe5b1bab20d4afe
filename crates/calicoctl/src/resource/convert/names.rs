//! Maps names of the first version to names of the current one.

use sha1::{Digest as _, Sha1};
use std::fmt::Write as _;
use std::net::IpAddr;

/// How many digits of the old name's hash are added to a name that had to change.
const QUALIFIER: usize = 8;

/// The name in lower case, of letters, digits, dashes and dots, that begins and ends with a letter or digit. No suffix
/// is added to keep it distinct from others.
pub(super) fn node_name(old: &str) -> String {
    let mut name = String::new();
    let mut run = String::new();
    for character in old.to_lowercase().chars() {
        match character {
            'a'..='z' | '0'..='9' => {
                push_run(&mut name, &mut run);
                name.push(character);
            }
            '.' | '/' => run.push('.'),
            // Any run of other characters becomes a single dash.
            '-' => run.push('-'),
            _ if !run.ends_with('?') => run.push('?'),
            _ => {}
        }
    }
    name
}

/// Appends the separator between two words: one dot if the run had any, its dashes otherwise; nothing at the start.
fn push_run(name: &mut String, run: &mut String) {
    if !name.is_empty() {
        if run.contains('.') {
            name.push('.');
        } else {
            name.push_str(&run.replace('?', "-"));
        }
    }
    run.clear();
}

/// The new name; if it differs from the old one, with a part of the old name's hash.
pub(super) fn name(old: &str) -> String {
    qualified(old, &node_name(old))
}

/// A converted name without dots, for policies: the part before a dot would be read as a tier.
pub(super) fn name_without_dots(old: &str) -> String {
    qualified(old, &node_name(old).replace('.', "-"))
}

fn qualified(old: &str, new: &str) -> String {
    if old == new {
        return new.to_owned();
    }
    let mut hash = String::new();
    for byte in Sha1::digest(old.as_bytes()) {
        // Writing to a string cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    format!("{new}-{}", &hash[..QUALIFIER])
}

/// An address in a form that may be part of a name.
pub(super) fn of_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string().replace('.', "-"),
        IpAddr::V6(address) => address.segments().map(|segment| format!("{segment:04x}")).join("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_valid_and_stay_distinct() {
        for (old, new) in [
            ("plain-name", "plain-name"),
            ("Upper", "upper"),
            ("a/b", "a.b"),
            ("a.-.b", "a.b"),
            ("_a__b_", "a-b"),
            ("-.x.-", "x"),
        ] {
            assert_eq!(node_name(old), new, "{old}");
            let qualified = name(old);
            assert!(
                qualified == old
                    || qualified.starts_with(&format!("{new}-")) && qualified.len() == new.len() + 9
            );
        }
        assert!(name_without_dots("a.b").starts_with("a-b-"));
        assert_eq!(of_address("1.2.3.4".parse().unwrap()), "1-2-3-4");
        assert_eq!(of_address("aa::bb".parse().unwrap()), "00aa-0000-0000-0000-0000-0000-0000-00bb");
    }
}
