//! Checks of names, labels and annotations shared by all kinds.
//!
//! These are plain functions over text: each kind decides which of them its fields need.

use crate::errors::{FieldErrors, FieldPath};
use crate::meta::{ObjectMeta, StringMap};

/// The longest name of an object, in bytes.
pub const MAX_NAME_LENGTH: usize = 253;
/// The longest single label of a name, in bytes.
pub const MAX_NAME_LABEL_LENGTH: usize = 63;
/// Maximum total size of an object's annotations, keys and values together, in bytes.
pub const MAX_ANNOTATIONS_SIZE: usize = 256 * 1024;

const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether the text starts and ends with `edge`, and only contains `edge` or `inner` between.
fn has_form(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => edge(*only),
        [first, middle @ .., last] => {
            edge(*first) && edge(*last) && middle.iter().all(|&byte| edge(byte) || inner(byte))
        }
    }
}

/// Whether the text is one label of a DNS name, of any length.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    has_form(text, is_lower_alphanumeric, |byte| byte == b'-')
}

/// Whether the text consists of DNS labels joined by dots, of any length: the form of `metadata.name` and of fields
/// that name other objects.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Whether the text is a container id.
#[must_use]
pub fn is_container_id(text: &str) -> bool {
    has_form(text, |byte| byte.is_ascii_alphanumeric(), |byte| byte == b'-')
}

fn is_made_of(text: &str, max: usize, extra: &[u8]) -> bool {
    (1..=max).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || extra.contains(&byte))
}

/// Whether the text may name a network interface; `*` means all of them.
#[must_use]
pub fn is_interface_name(text: &str) -> bool {
    text == "*" || is_plain_interface_name(text)
}

/// Whether the text may name one network interface.
#[must_use]
pub fn is_plain_interface_name(text: &str) -> bool {
    is_made_of(text, 15, b"_.-")
}

/// Whether the text may occur in a BGP filter's interface match, where `*` is a wildcard.
#[must_use]
pub fn is_interface_pattern(text: &str) -> bool {
    is_made_of(text, 15, b"_.*-")
}

/// Whether the text may name interfaces to ignore: a pattern, but not all interfaces.
#[must_use]
pub fn is_ignored_interface(text: &str) -> bool {
    text != "*" && is_interface_pattern(text)
}

/// Whether the text may occur in a list of interface prefixes.
#[must_use]
pub fn is_interface_filter(text: &str) -> bool {
    is_made_of(text, 15, b":._+-")
}

/// Whether the text may be the host on which metrics are served.
#[must_use]
pub fn is_prometheus_host(text: &str) -> bool {
    is_made_of(text, 64, b":._+-")
}

/// Checks a port's name by Kubernetes' rules.
///
/// # Errors
/// A sentence saying what is wrong.
pub fn check_port_name(text: &str) -> Result<(), &'static str> {
    if text.len() > 15 {
        Err("must be no more than 15 characters")
    } else if !text.bytes().all(|byte| is_lower_alphanumeric(byte) || byte == b'-') || text.is_empty() {
        Err("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    } else if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        Err("must contain at least one letter (a-z)")
    } else if text.contains("--") {
        Err("must not contain consecutive hyphens")
    } else if text.starts_with('-') || text.ends_with('-') {
        Err("must not begin or end with a hyphen")
    } else {
        Ok(())
    }
}

/// Checks a label's or annotation's key: a name of at most 63 characters, optionally after a DNS subdomain and `/`.
///
/// # Errors
/// A sentence saying what is wrong.
pub fn check_qualified_name(text: &str) -> Result<(), String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Err("prefix part must be non-empty".into());
        }
        if prefix.len() > MAX_NAME_LENGTH || !is_dns_subdomain(prefix) {
            return Err(format!(
                "prefix part must be a DNS subdomain of at most {MAX_NAME_LENGTH} characters"
            ));
        }
    }
    if name.is_empty() {
        return Err("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Err("name part must be no more than 63 characters".into());
    }
    if !is_label_word(name) {
        return Err("name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                    alphanumeric character"
            .into());
    }
    Ok(())
}

/// Checks a label's value: empty, or at most 63 characters.
///
/// # Errors
/// A sentence saying what is wrong.
pub fn check_label_value(text: &str) -> Result<(), &'static str> {
    if text.len() > 63 {
        Err("must be no more than 63 characters")
    } else if !text.is_empty() && !is_label_word(text) {
        Err(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
             and end with an alphanumeric character",
        )
    } else {
        Ok(())
    }
}

fn is_label_word(text: &str) -> bool {
    has_form(text, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

/// Checks labels, keys and values.
pub fn check_labels(labels: &StringMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (key, value) in labels {
        if let Err(reason) = check_qualified_name(key) {
            errors.add(path.key(key), key, reason);
        }
        if let Err(reason) = check_label_value(value) {
            errors.add(path.key(key), value, reason);
        }
    }
}

/// Checks annotations: the keys, and the size of all of them together.
pub fn check_annotations(annotations: &StringMap, path: &FieldPath, errors: &mut FieldErrors) {
    let mut size = 0;
    for (key, value) in annotations {
        if let Err(reason) = check_qualified_name(&key.to_lowercase()) {
            errors.add(path.key(key), key, reason);
        }
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS_SIZE {
        let surplus = size - MAX_ANNOTATIONS_SIZE;
        errors.add(path.clone(), "", format!("total size of annotations is too large by {surplus} bytes"));
    }
}

/// Checks the metadata of an ordinary object: its name is a DNS subdomain, its labels and annotations are well formed.
/// Every kind's validation starts with this or with one of its stricter variants below.
pub fn check_metadata(metadata: &ObjectMeta, errors: &mut FieldErrors) {
    check_name_length(&metadata.name, MAX_NAME_LENGTH, errors);
    if !is_dns_subdomain(&metadata.name) {
        errors.add(
            FieldPath::new("metadata.name"),
            &metadata.name,
            format!(
                "name must consist of lower case alphanumeric characters, '-' or '.' (regex: {SUBDOMAIN})"
            ),
        );
    }
    check_annotations(&metadata.annotations, &FieldPath::new("metadata.annotations"), errors);
    check_labels(&metadata.labels, &FieldPath::new("metadata.labels"), errors);
}

/// Checks the metadata of a kind with more restricted names: at most `max` bytes, and of the form that `is_name`
/// accepts.
pub fn check_metadata_with_name(
    metadata: &ObjectMeta,
    max: usize,
    is_name: fn(&str) -> bool,
    errors: &mut FieldErrors,
) {
    check_name_length(&metadata.name, max, errors);
    if !is_name(&metadata.name) {
        errors.add(
            FieldPath::new("metadata.name"),
            &metadata.name,
            format!("name must consist of lower case alphanumeric characters or '-' (regex: {LABEL})"),
        );
    }
    check_annotations(&metadata.annotations, &FieldPath::new("metadata.annotations"), errors);
    check_labels(&metadata.labels, &FieldPath::new("metadata.labels"), errors);
}

fn check_name_length(name: &str, max: usize, errors: &mut FieldErrors) {
    if name.len() > max {
        let surplus = name.len() - max;
        errors.add(FieldPath::new("metadata.name"), name, format!("name is too long by {surplus} bytes"));
    }
}

/// Whether the text may name a GlobalNetworkPolicy: one label, or two joined by a dot.
#[must_use]
pub fn is_global_policy_name(text: &str) -> bool {
    text.split('.').count() <= 2 && is_dns_subdomain(text)
}

/// Whether the text may name a NetworkPolicy: as a global one, or any subdomain after one of the prefixes that mark
/// policies derived from Kubernetes' and OpenStack's own.
#[must_use]
pub fn is_policy_name(text: &str) -> bool {
    let converted = text.strip_prefix("knp.default.").or_else(|| text.strip_prefix("ossg.default."));
    is_global_policy_name(text) || converted.is_some_and(is_dns_subdomain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_forms() {
        // Text, label, subdomain, global policy, namespaced policy.
        for (text, label, subdomain, global, policy) in [
            ("a", true, true, true, true),
            ("a-1", true, true, true, true),
            ("", false, false, false, false),
            ("-a", false, false, false, false),
            ("a-", false, false, false, false),
            ("A", false, false, false, false),
            ("a.b", false, true, true, true),
            ("a.b.c", false, true, false, false),
            ("a..b", false, false, false, false),
            (".a", false, false, false, false),
            ("knp.default.a.b.c", false, true, false, true),
            ("ossg.default.a", false, true, false, true),
            ("knp.default.", false, false, false, false),
            ("knp.other.a", false, true, false, false),
            ("a_b", false, false, false, false),
            ("é", false, false, false, false),
        ] {
            let found = (
                is_dns_label(text),
                is_dns_subdomain(text),
                is_global_policy_name(text),
                is_policy_name(text),
            );
            assert_eq!(found, (label, subdomain, global, policy), "{text}");
        }
    }

    #[test]
    fn label_forms() {
        for (key, good) in [
            ("app", true),
            ("A_b.c-9", true),
            ("example.com/app", true),
            ("example.com/", false),
            ("/app", false),
            ("Example.com/app", false),
            ("a/b/c", false),
            ("_app", false),
            ("", false),
        ] {
            assert_eq!(check_qualified_name(key).is_ok(), good, "{key}");
        }
        assert!(check_qualified_name(&"a".repeat(63)).is_ok());
        assert!(check_qualified_name(&"a".repeat(64)).is_err());
        for (value, good) in [("", true), ("v1.2_3", true), ("-", false), ("a b", false), ("a-", false)] {
            assert_eq!(check_label_value(value).is_ok(), good, "{value}");
        }
    }

    #[test]
    fn interface_and_port_names() {
        for (text, interface, ignored, filter) in [
            ("eth0", true, true, true),
            ("*", true, false, false),
            ("cali*", false, true, false),
            ("eth0:1", false, false, true),
            ("sixteen-letters-", false, false, false),
            ("", false, false, false),
        ] {
            let found = (is_interface_name(text), is_ignored_interface(text), is_interface_filter(text));
            assert_eq!(found, (interface, ignored, filter), "{text}");
        }
        for (text, good) in [
            ("http", true),
            ("http-8", true),
            ("80", false),
            ("HTTP", false),
            ("a--b", false),
            ("-a", false),
            ("", false),
        ] {
            assert_eq!(check_port_name(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn the_total_size_of_annotations_is_limited() {
        let mut annotations =
            StringMap::from([("Example.com/A".to_owned(), "x".repeat(MAX_ANNOTATIONS_SIZE - 13))]);
        let mut errors = FieldErrors::new();
        check_annotations(&annotations, &FieldPath::new("metadata.annotations"), &mut errors);
        assert!(errors.is_empty(), "{errors}");
        annotations.insert("b".into(), String::new());
        check_annotations(&annotations, &FieldPath::new("metadata.annotations"), &mut errors);
        assert_eq!(errors.as_slice()[0].reason, "total size of annotations is too large by 1 bytes");
    }
}
