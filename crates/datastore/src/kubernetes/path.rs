//! URL paths of Kubernetes objects: API group, plural, namespace, name, and the query.
//!
//! Names cannot change the meaning of a path: every character that is not plain is percent-encoded.

use std::fmt::{self, Write as _};

/// A collection of objects on the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApiResource {
    /// `api/v1`, or `apis/GROUP/VERSION`.
    pub(crate) base: &'static str,
    /// The plural.
    pub(crate) plural: &'static str,
    /// Whether the objects are namespaced.
    pub(crate) namespaced: bool,
}

impl ApiResource {
    pub(crate) const fn cluster(base: &'static str, plural: &'static str) -> Self {
        Self { base, plural, namespaced: false }
    }

    pub(crate) const fn namespaced(base: &'static str, plural: &'static str) -> Self {
        Self { base, plural, namespaced: true }
    }

    /// The path of the collection, in one namespace or (if empty) in all.
    pub(crate) fn collection(&self, namespace: &str) -> Address {
        let mut path = format!("/{}", self.base);
        if self.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            push_encoded(&mut path, namespace);
        }
        path.push('/');
        path.push_str(self.plural);
        Address { path, query: String::new() }
    }

    /// The path of one object.
    pub(crate) fn object(&self, namespace: &str, name: &str) -> Address {
        self.collection(namespace).segment(name)
    }
}

impl fmt::Display for ApiResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.base.strip_prefix("apis/").and_then(|base| base.split('/').next());
        match group {
            Some(group) => write!(f, "{}.{group}", self.plural),
            None => f.write_str(self.plural),
        }
    }
}

/// A path with its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    path: String,
    query: String,
}

impl Address {
    /// A fixed path, from a literal.
    pub(crate) fn fixed(path: &str) -> Self {
        Self { path: path.to_owned(), query: String::new() }
    }

    /// Appends a path segment.
    pub(crate) fn segment(mut self, name: &str) -> Self {
        self.path.push('/');
        push_encoded(&mut self.path, name);
        self
    }

    /// Adds a query parameter.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        self.query.push_str(name);
        self.query.push('=');
        push_encoded(&mut self.query, value);
        self
    }

    /// Adds a query parameter, if there is a value for it.
    pub(crate) fn with_optional(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) if !value.is_empty() => self.with(name, value),
            _ => self,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, self.query)
    }
}

fn push_encoded(out: &mut String, text: &str) {
    // One or two dots alone would be a relative step in the path.
    let dots_only = text == "." || text == "..";
    for byte in text.bytes() {
        match byte {
            b'.' if dots_only => out.push_str("%2E"),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: ApiResource = ApiResource::namespaced("apis/crd.projectcalico.org/v1", "networkpolicies");

    #[test]
    fn addresses() {
        let table = [
            (POLICIES.collection(""), "/apis/crd.projectcalico.org/v1/networkpolicies"),
            (POLICIES.collection("shop"), "/apis/crd.projectcalico.org/v1/namespaces/shop/networkpolicies"),
            (
                POLICIES.object("shop", "default.web").segment("status"),
                "/apis/crd.projectcalico.org/v1/namespaces/shop/networkpolicies/default.web/status",
            ),
            (
                ApiResource::cluster("api/v1", "nodes").object("", "../pods?x=1"),
                "/api/v1/nodes/..%2Fpods%3Fx%3D1",
            ),
            (ApiResource::cluster("api/v1", "nodes").object("", ".."), "/api/v1/nodes/%2E%2E"),
            (
                POLICIES
                    .collection("")
                    .with("fieldSelector", "metadata.name=a")
                    .with_optional("continue", Some("x+/=")),
                "/apis/crd.projectcalico.org/v1/networkpolicies?fieldSelector=metadata.name%3Da&continue=x%2B%2F%3D",
            ),
            (
                POLICIES.collection("").with_optional("continue", None),
                "/apis/crd.projectcalico.org/v1/networkpolicies",
            ),
        ];
        for (address, expected) in table {
            assert_eq!(address.to_string(), expected);
        }
    }

    #[test]
    fn resources_are_named_like_in_kubectl() {
        assert_eq!(POLICIES.to_string(), "networkpolicies.crd.projectcalico.org");
        assert_eq!(ApiResource::namespaced("api/v1", "pods").to_string(), "pods");
    }
}
