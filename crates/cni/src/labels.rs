//! Converts the labels that Mesos gives its containers to valid labels of Calico's.

use crate::config::Label;
use api::meta::StringMap;
use api::words::LABEL_NAMESPACE;

/// The labels for the endpoint, and the namespace if a label names it.
#[must_use]
pub(crate) fn mesos_labels(given: &[Label]) -> (StringMap, Option<String>) {
    let mut labels = StringMap::new();
    let mut namespace = None;
    for label in given {
        let value = sanitised(&label.value);
        if label.key == LABEL_NAMESPACE {
            namespace = Some(value);
        } else {
            labels.insert(sanitised(&label.key), value);
        }
    }
    (labels, namespace)
}

/// A text with only letters, digits, `-`, `_` and `.`: a slash becomes a dot, a run of other characters a dash, a run
/// of dots and dashes with a dot in it a dot; dots and dashes at the ends are removed.
fn sanitised(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut after_foreign = false;
    for it in text.chars() {
        let foreign = !(it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '/'));
        match it {
            '/' => plain.push('.'),
            _ if foreign && !after_foreign => plain.push('-'),
            _ if foreign => {}
            it => plain.push(it),
        }
        after_foreign = foreign;
    }
    let mut joined = String::with_capacity(plain.len());
    let mut run = String::new();
    for it in plain.chars().chain(std::iter::once('\0')) {
        if matches!(it, '.' | '-') {
            run.push(it);
            continue;
        }
        if run.contains('.') {
            joined.push('.');
        } else {
            joined.push_str(&run);
        }
        run.clear();
        if it != '\0' {
            joined.push(it);
        }
    }
    joined.trim_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{mesos_labels, sanitised};
    use crate::config::Label;

    #[test]
    fn texts_become_labels() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a/b", "a.b"),
            ("--a..-b--c!! d-", "a.b--c-d"),
            ("ünï", "n"),
            ("a.-.b", "a.b"),
            ("", ""),
            ("...", ""),
        ] {
            assert_eq!(sanitised(text), expected, "{text}");
        }
        let label = |key: &str, value: &str| Label { key: key.into(), value: value.into() };
        let (labels, namespace) =
            mesos_labels(&[label("projectcalico.org/namespace", "ns"), label("a/b", "c d")]);
        assert_eq!(namespace.as_deref(), Some("ns"));
        assert_eq!(labels.into_iter().collect::<Vec<_>>(), [("a.b".to_owned(), "c-d".to_owned())]);
    }
}
