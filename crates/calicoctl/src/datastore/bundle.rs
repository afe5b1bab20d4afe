//! The file of a migration: the complete contents of a datastore, in Calico's format.
//!
//! ```text
//! resources, a list per kind, YAML documents
//! ===
//! ClusterInformation, JSON
//! ===
//! address management, JSON; and, under a name that Calico's own import ignores, the supplement
//! ```

use super::ipam_part::IpamPart;
use super::tolerant_yaml;
use crate::failure::{Failure, Result};
use api::kind::API_VERSION;
use api::meta::Time;
use api::{ClusterInformation, Kind, Resource};
use model::Key;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The kinds of the first part, in its order.
pub const KINDS: [Kind; 17] = [
    Kind::IPPool,
    Kind::BGPPeer,
    Kind::Tier,
    Kind::GlobalNetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
    Kind::GlobalNetworkSet,
    Kind::HostEndpoint,
    Kind::KubeControllersConfiguration,
    Kind::NetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::NetworkSet,
    Kind::Node,
    Kind::BGPConfiguration,
    Kind::FelixConfiguration,
    Kind::IPReservation,
    Kind::BGPFilter,
];

/// Kinds that only the supplement contains.
pub(crate) const SUPPLEMENTARY_KINDS: [Kind; 3] =
    [Kind::Profile, Kind::WorkloadEndpoint, Kind::CalicoNodeStatus];

/// Its own line before the JSON of each further part.
const SEPARATOR: &str = "===\n";

/// The contents of a datastore.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    /// The resources of [`KINDS`].
    pub resources: Vec<Resource>,
    /// The cluster's information about itself.
    pub cluster_information: ClusterInformation,
    /// Address management.
    pub ipam: IpamPart,
    /// Data that Calico's format has no place for.
    pub supplement: Supplement,
}

/// Data that Calico's format has no place for.
#[derive(Clone, Debug, Default)]
pub struct Supplement {
    /// Resources that Calico recreates in Kubernetes and therefore does not export.
    pub resources: Vec<Resource>,
    /// The identities of all resources, by path.
    pub identities: BTreeMap<String, Identity>,
}

/// What identifies an object over its lifetime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Its uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// When it was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
}

#[derive(Default, Serialize, Deserialize)]
struct LastPart {
    #[serde(flatten)]
    ipam: IpamPart,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tortie: Option<SupplementText>,
}

#[derive(Default, Serialize, Deserialize)]
struct SupplementText {
    #[serde(default)]
    resources: Vec<Value>,
    #[serde(default)]
    identities: BTreeMap<String, Identity>,
}

/// The list of one kind as a YAML document, including the terminating line.
///
/// # Errors
/// When an object cannot be encoded as JSON.
pub(crate) fn list_document(kind: Kind, items: &[&Resource], revision: &str) -> Result<String> {
    let items = items.iter().map(serde_json::to_value).collect::<std::result::Result<Vec<_>, _>>()?;
    let list = json!({
        "apiVersion": API_VERSION,
        "kind": format!("{kind}List"),
        "metadata": {"resourceVersion": revision},
        "items": items,
    });
    let text = api::yaml::to_string(&list);
    // Calico's import splits at every `===` at the end of a line, even inside an annotation. JSON is YAML as well, and
    // has no line ends inside strings.
    let text = if text.contains(SEPARATOR) { serde_json::to_string_pretty(&list)? + "\n" } else { text };
    Ok(format!("{text}---\n"))
}

/// The parts that follow the documents.
///
/// # Errors
/// When an object cannot be encoded as JSON.
pub(crate) fn remaining_parts(bundle: &Bundle) -> Result<String> {
    let resources = bundle.supplement.resources.iter().map(serde_json::to_value);
    let supplement = SupplementText {
        resources: resources.collect::<std::result::Result<_, _>>()?,
        identities: bundle.supplement.identities.clone(),
    };
    let is_empty = supplement.resources.is_empty() && supplement.identities.is_empty();
    let last = LastPart { ipam: bundle.ipam.clone(), tortie: (!is_empty).then_some(supplement) };
    Ok(format!(
        "{SEPARATOR}{}\n{SEPARATOR}{}\n",
        serde_json::to_string_pretty(&bundle.cluster_information)?,
        serde_json::to_string_pretty(&last)?
    ))
}

/// Parses a file; `name` identifies it in messages.
///
/// # Errors
/// The first mistake, with its place.
pub fn read(name: &str, text: &str) -> Result<Bundle> {
    let parts = parts(text);
    let [documents, information, last] = parts.as_slice() else {
        return Err(Failure::new(format!(
            "error while reading migration file: imported file: {name} is improperly formatted. Try recreating with \
             'calicoctl datastore migrate export'"
        )));
    };
    let mistake = |what: &str, reason: String| {
        Failure::new(format!("error while reading migration file: {name}: {what}: {reason}"))
    };
    let mut resources = Vec::new();
    for document in tolerant_yaml::documents(documents).map_err(|reason| mistake("resources", reason))? {
        collect(document, &mut resources).map_err(|reason| mistake("resources", reason))?;
    }
    let cluster_information = serde_json::from_str(information)
        .map_err(|error| mistake("ClusterInformation", error.to_string()))?;
    let last: LastPart = serde_json::from_str(last)
        .map_err(|error| Failure::new(format!("failed to read IPAM resources: {name}: {error}")))?;
    let mut supplement = Supplement::default();
    if let Some(text) = last.tortie {
        supplement.identities = text.identities;
        for resource in text.resources {
            collect(resource, &mut supplement.resources).map_err(|reason| mistake("supplement", reason))?;
        }
    }
    Ok(Bundle { resources, cluster_information, ipam: last.ipam, supplement })
}

/// Splits a file into its parts. A separator is a whole line that is followed by JSON: the same text inside an object,
/// indented or not, does not count.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in text.match_indices(SEPARATOR) {
        let end = at + SEPARATOR.len();
        let is_line = at == 0 || text[..at].ends_with('\n');
        if is_line && at >= start && text[end..].trim_start().starts_with('{') {
            parts.push(&text[start..at]);
            start = end;
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Adds the resources of one document: a resource, a list object, or a plain list.
fn collect(document: Value, resources: &mut Vec<Resource>) -> std::result::Result<(), String> {
    let items = match document {
        Value::Array(items) => items,
        Value::Object(mut object) => {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            if Kind::from_name(&kind).is_none() && kind.ends_with("List") {
                match object.remove("items") {
                    Some(Value::Array(items)) => items,
                    None | Some(Value::Null) => Vec::new(),
                    Some(_) => return Err(format!("the items of a {kind} are not a list")),
                }
            } else {
                resources.push(one(&kind, object)?);
                return Ok(());
            }
        }
        _ => return Err("a document is neither an object nor a list".to_owned()),
    };
    for item in items {
        let Value::Object(object) = item else { return Err("an item of a list is not an object".to_owned()) };
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        resources.push(one(&kind, object)?);
    }
    Ok(())
}

fn one(kind: &str, object: serde_json::Map<String, Value>) -> std::result::Result<Resource, String> {
    let name = object.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    let place = format!("{kind}({})", name.unwrap_or_default());
    match object.get("apiVersion").and_then(Value::as_str) {
        Some(API_VERSION) => {}
        version => return Err(format!("{place}: unknown apiVersion '{}'", version.unwrap_or_default())),
    }
    let kind = Kind::from_name(kind).ok_or_else(|| format!("{place}: unknown kind"))?;
    Resource::from_value(kind, Value::Object(object)).map_err(|error| format!("{place}: {error}"))
}

/// The path that identifies a resource in a file.
///
/// # Errors
/// When its name cannot be part of a path.
pub(crate) fn path_of(resource: &Resource) -> Result<String> {
    Ok(Key::resource(resource.kind(), resource.namespace(), resource.name()).path()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../../tests/data/migration/calico-export.yaml");

    #[test]
    fn an_export_of_calico_is_read() {
        let bundle = read("calico-export.yaml", FILE).expect("reading");
        let names: Vec<String> = bundle
            .resources
            .iter()
            .map(|resource| format!("{} {}", resource.kind(), resource.name()))
            .collect();
        assert_eq!(
            names,
            ["IPPool default-ipv4-ippool", "Tier default", "GlobalNetworkPolicy allow-dns", "Node kc-node1"]
        );
        assert_eq!(bundle.cluster_information.spec.cluster_guid, "0d5e4bd8c0a54c7f8a4c2b6a3e1f9d70");
        assert_eq!(bundle.ipam.blocks.len(), 1);
        assert!(bundle.supplement.resources.is_empty() && bundle.supplement.identities.is_empty());
        let again = bundle.ipam.clone().into_entries().and_then(IpamPart::from_entries).expect("converting");
        let json = |part: &IpamPart| serde_json::to_value(part).expect("JSON");
        assert_eq!(json(&again), json(&bundle.ipam));
    }

    #[test]
    fn a_separator_line_inside_an_object_is_ignored() {
        const NOTE: &str = "Title\n===\n{ text }\n===\n";
        // As Calico would print it: an indented block of text.
        let file = FILE.replacen(
            "    creationTimestamp: null\n    name: allow-dns\n",
            "      note: |\n        Title\n        ===\n        { text }\n        ===\n    name: allow-dns\n",
            1,
        );
        assert_ne!(file, FILE);
        let note = |bundle: &Bundle| {
            let annotated = bundle.resources.iter().find(|resource| resource.name() == "allow-dns");
            annotated.and_then(|resource| resource.metadata().annotations.get("note").cloned())
        };
        let bundle = read("file", &file).expect("reading");
        assert_eq!(note(&bundle).as_deref(), Some(NOTE));
        // In our files the separator only appears where Calico's import, which splits at each, must split.
        let policies: Vec<&Resource> =
            bundle.resources.iter().filter(|resource| resource.name() == "allow-dns").collect();
        let documents = list_document(Kind::GlobalNetworkPolicy, &policies, "1").expect("writing");
        let written = format!("{documents}{}", remaining_parts(&bundle).expect("writing"));
        assert_eq!(written.matches(SEPARATOR).count(), 2, "{written}");
        assert_eq!(note(&read("file", &written).expect("reading")).as_deref(), Some(NOTE));
    }

    #[test]
    fn files_of_other_formats_are_rejected() {
        let two_parts = FILE.rsplit_once(SEPARATOR).expect("parts").0;
        for (text, expected) in [
            ("", "improperly formatted"),
            (two_parts, "improperly formatted"),
            (
                &FILE.replace("kind: GlobalNetworkPolicy\n", "kind: GlobalNetworkWhat\n"),
                "GlobalNetworkWhat(allow-dns): unknown kind",
            ),
            (&FILE.replace("\"clusterGUID\"", "clusterGUID"), "ClusterInformation: "),
            (&FILE.replace("\"blocks\": [", "\"blocks\": [,"), "failed to read IPAM resources"),
            (
                &FILE.replace("- apiVersion: projectcalico.org/v3", "- apiVersion: v1"),
                "unknown apiVersion 'v1'",
            ),
        ] {
            let failure = read("file", text).expect_err(expected);
            assert!(failure.message().contains(expected), "{failure}");
        }
    }
}
