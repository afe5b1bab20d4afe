//! Determines which objects a command line means.

use crate::failure::{Failure, Result};
use crate::kinds;
use api::{Kind, Resource};
use std::fmt;

/// The namespace of objects when no other is given.
const DEFAULT_NAMESPACE: &str = "default";

/// One object, or all of a kind if the name is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for cluster-scoped kinds, and for all namespaces.
    pub namespace: String,
    /// The name; empty for all.
    pub name: String,
}

impl Identity {
    /// The identity of an object.
    #[must_use]
    pub(crate) fn of(resource: &Resource) -> Self {
        Self {
            kind: resource.kind(),
            namespace: resource.namespace().to_owned(),
            name: resource.name().to_owned(),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}({})", self.kind, self.name)
        } else {
            write!(f, "{}({}/{})", self.kind, self.namespace, self.name)
        }
    }
}

/// The namespaces that the flags of a command line select.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Namespaces<'a> {
    /// The value of `-n`.
    pub flag: Option<&'a str>,
    /// Whether all namespaces are meant.
    pub all: bool,
}

impl Namespaces<'_> {
    /// The namespace of an object; `written` is the one in its own text. Empty for cluster-scoped kinds and for all
    /// namespaces.
    ///
    /// # Errors
    /// When the flags and the object contradict each other.
    pub(crate) fn resolve(&self, kind: Kind, written: &str) -> Result<String> {
        let flag = self.flag.unwrap_or_default();
        if !kind.is_namespaced() {
            return match (written, self.all || !flag.is_empty()) {
                ("", false) => Ok(String::new()),
                ("", true) => Err(Failure::new(format!("{kind} is not namespaced"))),
                _ => Err(Failure::new(format!(
                    "namespace should not be specified for a non-namespaced resource. {kind} is not a namespaced resource"
                ))),
            };
        }
        match (written, flag, self.all) {
            (_, flag, true) if !flag.is_empty() => {
                Err(Failure::new("cannot use both --namespace and --all-namespaces flags at the same time"))
            }
            (_, _, true) => Ok(String::new()),
            ("", "", false) => Ok(DEFAULT_NAMESPACE.to_owned()),
            ("", flag, false) => Ok(flag.to_owned()),
            (written, "", false) => Ok(written.to_owned()),
            (written, flag, false) if written != flag => Err(Failure::new(format!(
                "resource namespace does not match client namespace. {written} != {flag}"
            ))),
            (written, _, false) => Ok(written.to_owned()),
        }
    }
}

/// The objects that `KIND [NAME...]` or `KIND/NAME...` names. Without names, one identity with an empty name.
///
/// # Errors
/// When a kind is unknown, a name is empty, or the namespaces contradict each other.
pub(crate) fn from_words(words: &[String], namespaces: Namespaces<'_>) -> Result<Vec<Identity>> {
    let identity = |kind: Kind, name: &str| {
        let namespace = namespaces.resolve(kind, "")?;
        Ok(Identity { kind, namespace, name: name.to_owned() })
    };
    if words.iter().skip(1).any(String::is_empty) {
        return Err(Failure::new("resource name may not be empty"));
    }
    match words {
        [] => Err(Failure::new("no resources specified: name a type (and names), or a file with -f")),
        [first, ..] if first.contains('/') => words
            .iter()
            .map(|word| match word.split_once('/') {
                Some((_, "")) => Err(Failure::new("resource name may not be empty")),
                Some((kind, name)) => identity(kinds::find(kind)?.kind, name),
                None => Err(Failure::new(format!("'{word}' is not of the form KIND/NAME, as '{first}' is"))),
            })
            .collect(),
        [kind] => Ok(vec![identity(kinds::find(kind)?.kind, "")?]),
        [kind, names @ ..] => {
            let kind = kinds::find(kind)?.kind;
            names.iter().map(|name| identity(kind, name)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_resolved_like_calico() {
        type Case =
            (Kind, &'static str, Option<&'static str>, bool, std::result::Result<&'static str, &'static str>);
        let cases: [Case; 10] = [
            (Kind::NetworkPolicy, "", None, false, Ok("default")),
            (Kind::NetworkPolicy, "", Some("a"), false, Ok("a")),
            (Kind::NetworkPolicy, "a", None, false, Ok("a")),
            (Kind::NetworkPolicy, "a", Some("a"), false, Ok("a")),
            (
                Kind::NetworkPolicy,
                "a",
                Some("b"),
                false,
                Err("resource namespace does not match client namespace. a != b"),
            ),
            (Kind::NetworkPolicy, "a", None, true, Ok("")),
            (
                Kind::NetworkPolicy,
                "",
                Some("a"),
                true,
                Err("cannot use both --namespace and --all-namespaces flags at the same time"),
            ),
            (Kind::IPPool, "", None, false, Ok("")),
            (Kind::IPPool, "", Some("a"), false, Err("IPPool is not namespaced")),
            (
                Kind::IPPool,
                "a",
                None,
                false,
                Err(
                    "namespace should not be specified for a non-namespaced resource. IPPool is not a namespaced resource",
                ),
            ),
        ];
        for (kind, written, flag, all, expected) in cases {
            let found = Namespaces { flag, all }.resolve(kind, written);
            assert_eq!(
                found.as_deref().map_err(Failure::message),
                expected,
                "{kind} {written} {flag:?} {all}"
            );
        }
    }

    #[test]
    fn words_name_objects() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let none = Namespaces::default();
        let shown = |text: &str| {
            from_words(&words(text), none)
                .map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(shown("np a b").unwrap(), ["NetworkPolicy(default/a)", "NetworkPolicy(default/b)"]);
        assert_eq!(shown("IPPools").unwrap(), ["IPPool()"]);
        assert_eq!(shown("ippool/x tier/y").unwrap(), ["IPPool(x)", "Tier(y)"]);
        for wrong in ["", "ippool a ", "ippool/", "ippool/a b", "nosuch a"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
