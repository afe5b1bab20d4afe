//! The name of a WorkloadEndpoint: node, orchestrator, workload and endpoint joined by `-`, each `-` inside doubled.
//!
//! The field of the spec that names the workload depends on the orchestrator. The form is reversible because no part
//! may start or end with `-`; parts that do are refused, never repaired.

use super::WorkloadEndpointSpec;
use crate::words::KUBERNETES;
use std::fmt;

/// What identifies a WorkloadEndpoint; empty parts are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadEndpointIdentifiers {
    /// The node; always needed.
    pub node: String,
    /// The orchestrator.
    pub orchestrator: String,
    /// The interface's name inside the workload.
    pub endpoint: String,
    /// The workload, for orchestrators other than those below.
    pub workload: String,
    /// The pod, for `k8s`.
    pub pod: String,
    /// The container, for `cni`.
    pub container_id: String,
}

/// A field of the spec that does not give a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    /// The field's name in the spec.
    pub field: &'static str,
    /// What it holds.
    pub value: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = '{}' ({})", self.field, self.value, self.reason)
    }
}

impl std::error::Error for NameError {}

impl From<&WorkloadEndpointSpec> for WorkloadEndpointIdentifiers {
    fn from(spec: &WorkloadEndpointSpec) -> Self {
        Self {
            node: spec.node.clone(),
            orchestrator: spec.orchestrator.clone(),
            endpoint: spec.endpoint.clone(),
            workload: spec.workload.clone(),
            pod: spec.pod.clone(),
            container_id: spec.container_id.clone(),
        }
    }
}

impl WorkloadEndpointIdentifiers {
    /// Builds the name.
    ///
    /// # Errors
    /// The first part that is missing, or that starts or ends with `-`.
    pub fn name(&self) -> Result<String, NameError> {
        let mut parts = Vec::with_capacity(4);
        for segment in self.segments()? {
            if segment.value.is_empty() {
                return Err(segment.error("must be set"));
            }
            parts.push(segment.escaped()?);
        }
        Ok(parts.join("-"))
    }

    /// The prefix of the names of all endpoints that share the known parts, up to the first unknown one. Names of other
    /// endpoints may have the same prefix; [`Self::matches`] distinguishes them.
    ///
    /// # Errors
    /// No node, or a part that starts or ends with `-`.
    pub fn prefix(&self) -> Result<String, NameError> {
        let mut parts = Vec::with_capacity(4);
        for segment in self.segments()? {
            if segment.value.is_empty() {
                return Ok(parts.join("-") + "-");
            }
            parts.push(segment.escaped()?);
        }
        Ok(parts.join("-"))
    }

    /// Whether a name has all the known parts.
    ///
    /// # Errors
    /// No node.
    pub fn matches(&self, name: &str) -> Result<bool, NameError> {
        let segments = self.segments()?;
        let Some(parts) = split_exact(name, segments.len()) else { return Ok(false) };
        Ok(segments
            .iter()
            .zip(&parts)
            .all(|(segment, part)| segment.value.is_empty() || segment.value == part))
    }

    /// Parses the parts of a name, as far as they are present.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if name.is_empty() {
            return None;
        }
        let mut parts = split(name).into_iter();
        let mut ids =
            Self { node: parts.next()?, orchestrator: parts.next().unwrap_or_default(), ..Self::default() };
        if let Some(workload) = parts.next() {
            match ids.orchestrator.as_str() {
                KUBERNETES => ids.pod = workload,
                "cni" => ids.container_id = workload,
                // The orchestrator's name is in both places.
                "libnetwork" => ids.orchestrator = workload,
                _ => ids.workload = workload,
            }
        }
        ids.endpoint = parts.next().unwrap_or_default();
        if parts.next().is_some() { None } else { Some(ids) }
    }

    fn segments(&self) -> Result<[Segment<'_>; 4], NameError> {
        let node = Segment { field: "node", value: &self.node };
        if node.value.is_empty() {
            return Err(node.error("must be set"));
        }
        let orchestrator = Segment { field: "orchestrator", value: &self.orchestrator };
        let workload = match self.orchestrator.as_str() {
            KUBERNETES => Segment { field: "pod", value: &self.pod },
            "cni" => Segment { field: "containerID", value: &self.container_id },
            "libnetwork" => orchestrator,
            _ => Segment { field: "workload", value: &self.workload },
        };
        Ok([node, orchestrator, workload, Segment { field: "endpoint", value: &self.endpoint }])
    }
}

#[derive(Clone, Copy)]
struct Segment<'a> {
    field: &'static str,
    value: &'a str,
}

impl Segment<'_> {
    fn escaped(&self) -> Result<String, NameError> {
        if self.value.starts_with('-') {
            Err(self.error("must not begin with a '-'"))
        } else if self.value.ends_with('-') {
            Err(self.error("must not end with a '-'"))
        } else {
            Ok(self.value.replace('-', "--"))
        }
    }

    fn error(&self, reason: &'static str) -> NameError {
        NameError { field: self.field, value: self.value.to_owned(), reason }
    }
}

/// The four parts of an endpoint's name, in order; `None` for a name that does not have four.
#[must_use]
pub fn split_workload_endpoint_name(name: &str) -> Option<Vec<String>> {
    split_exact(name, 4)
}

/// The parts of a name with exactly `count` parts.
fn split_exact(name: &str, count: usize) -> Option<Vec<String>> {
    // Each part has at least one character.
    if name.len() + 1 < 2 * count {
        return None;
    }
    Some(split(name)).filter(|parts| parts.len() == count)
}

/// The parts of a name: a lone `-` separates, a double one is a `-` of the part. A leading `-` belongs to the part.
fn split(name: &str) -> Vec<String> {
    let mut parts = Vec::with_capacity(4);
    let mut start = 0;
    let bytes = name.as_bytes();
    let mut index = 1;
    while index < bytes.len() {
        if bytes[index] == b'-' {
            if bytes.get(index + 1) == Some(&b'-') {
                index += 1;
            } else {
                parts.push(plain(&name[start..index]));
                start = index + 1;
            }
        }
        index += 1;
    }
    parts.push(plain(&name[start.min(bytes.len())..]));
    parts
}

/// Replaces each double `-` of a part with a single one. There are as many names as pods: one allocation per part.
fn plain(part: &str) -> String {
    let mut plain = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(place) = rest.find("--") {
        plain.push_str(&rest[..=place]);
        rest = &rest[place + 2..];
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(node: &str, orchestrator: &str, workload: &str, endpoint: &str) -> WorkloadEndpointIdentifiers {
        let mut ids = WorkloadEndpointIdentifiers {
            node: node.into(),
            orchestrator: orchestrator.into(),
            endpoint: endpoint.into(),
            ..Default::default()
        };
        match orchestrator {
            "k8s" => ids.pod = workload.into(),
            "cni" => ids.container_id = workload.into(),
            "libnetwork" => {}
            _ => ids.workload = workload.into(),
        }
        ids
    }

    #[test]
    fn names_are_built_and_parsed() {
        for (ids, name) in [
            (ids("kc-node2", "k8s", "client-1", "eth0"), "kc--node2-k8s-client--1-eth0"),
            (ids("node-a", "cni", "c1", "eth0"), "node--a-cni-c1-eth0"),
            (ids("n", "libnetwork", "", "e-p"), "n-libnetwork-libnetwork-e--p"),
            (ids("n.x", "openstack", "a--b", "tap1"), "n.x-openstack-a----b-tap1"),
        ] {
            assert_eq!(ids.name().unwrap(), name);
            assert_eq!(WorkloadEndpointIdentifiers::parse(name), Some(ids.clone()), "{name}");
            assert!(ids.matches(name).unwrap());
        }
        assert_eq!(WorkloadEndpointIdentifiers::parse(""), None);
        assert_eq!(WorkloadEndpointIdentifiers::parse("a-k8s-b-c-d"), None);
    }

    #[test]
    fn wrong_parts_are_named() {
        for (ids, field) in [
            (ids("", "k8s", "p", "e"), "node"),
            (ids("n", "", "p", "e"), "orchestrator"),
            (ids("n", "k8s", "", "e"), "pod"),
            (ids("n", "cni", "", "e"), "containerID"),
            (ids("n", "other", "", "e"), "workload"),
            (ids("n", "k8s", "p", ""), "endpoint"),
            (ids("n", "k8s", "-p", "e"), "pod"),
            (ids("n-", "k8s", "p", "e"), "node"),
        ] {
            assert_eq!(ids.name().unwrap_err().field, field);
        }
    }

    #[test]
    fn prefixes_and_their_matches() {
        let node = ids("node1", "", "", "");
        assert_eq!(node.prefix().unwrap(), "node1-");
        let pod = ids("node1", "k8s", "pod", "");
        assert_eq!(pod.prefix().unwrap(), "node1-k8s-pod-");
        // Has the same prefix, but is another pod.
        assert!(!pod.matches("node1-k8s-pod--1-eth0").unwrap());
        assert!(pod.matches("node1-k8s-pod-eth0").unwrap());
        assert!(!pod.matches("n-k").unwrap());
    }
}
