//! The kinds that several controllers share, with the fields that they read. A kind that only one controller needs is
//! declared there.

use super::{Labels, ObjectKey, Slim, Strings, Taken};
use kube_access::cluster::Collection;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The metadata that is decoded for most kinds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireMeta {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid of the object.
    pub uid: String,
    /// The revision.
    #[serde(rename = "resourceVersion")]
    pub revision: String,
    /// Labels.
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
}

impl WireMeta {
    /// The object's key.
    pub(crate) fn key(&self, strings: &mut Strings) -> ObjectKey {
        ObjectKey { namespace: strings.share(&self.namespace), name: self.name.as_str().into() }
    }
}

/// Reads null as the default: Kubernetes writes `null` for some empty fields.
///
/// # Errors
/// When the value is neither null nor valid.
pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A pod: its node, its addresses, and the fields that policy uses. There may be very many of these.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pod {
    /// The node; empty before the pod is scheduled.
    pub node: Arc<str>,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: Arc<str>,
    /// The reason for that phase in one word, such as `Evicted`.
    pub reason: Arc<str>,
    /// The service account.
    pub service_account: Arc<str>,
    /// The labels; empty unless [`Informers::want_pod_labels`](super::Informers::want_pod_labels) was called.
    pub labels: Labels,
    /// The addresses, separated by commas: those that the kubelet reports (`status.podIPs`, else `status.podIP`), else
    /// those in the annotations `cni.projectcalico.org/podIPs`, `cni.projectcalico.org/podIP`,
    /// `vpc.amazonaws.com/pod-ips`.
    pub addresses: Box<str>,
    /// Whether it uses the network of its node.
    pub host_network: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether the kubelet reports `status.podIP`.
    pub has_address: bool,
    /// Whether the kubelet reports both `status.podIP` and `status.podIPs`.
    pub has_reported: bool,
    /// Whether `cni.projectcalico.org/podIP` or `vpc.amazonaws.com/pod-ips` exists and is empty: the CNI plugin empties
    /// them when it removes the pod's network.
    pub is_emptied: bool,
}

/// The fields of a pod that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WirePod {
    metadata: WirePodMeta,
    spec: WirePodSpec,
    status: WirePodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePodMeta {
    namespace: String,
    name: String,
    #[serde(rename = "resourceVersion")]
    revision: String,
    #[serde(rename = "deletionTimestamp")]
    deletion: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "null_as_default")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    annotations: WireAnnotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireAnnotations {
    #[serde(rename = "cni.projectcalico.org/podIP")]
    address: Option<String>,
    #[serde(rename = "cni.projectcalico.org/podIPs")]
    addresses: Option<String>,
    #[serde(rename = "vpc.amazonaws.com/pod-ips")]
    aws: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePodSpec {
    #[serde(rename = "nodeName")]
    node: String,
    #[serde(rename = "hostNetwork")]
    host_network: bool,
    #[serde(rename = "serviceAccountName")]
    service_account: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WirePodStatus {
    phase: String,
    reason: String,
    #[serde(rename = "podIP")]
    address: String,
    #[serde(rename = "podIPs", deserialize_with = "null_as_default")]
    addresses: Vec<WireAddress>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireAddress {
    ip: String,
}

impl WirePodStatus {
    /// The addresses, separated by commas, from the best available source.
    fn addresses(&self, annotations: &WireAnnotations) -> String {
        if !self.addresses.is_empty() {
            // An entry without an address counts as unreadable, not as missing.
            let text = |entry: &WireAddress| if entry.ip.is_empty() { "?" } else { &entry.ip }.to_owned();
            return self.addresses.iter().map(text).collect::<Vec<_>>().join(",");
        }
        let sources = [
            Some(&self.address),
            annotations.addresses.as_ref(),
            annotations.address.as_ref(),
            annotations.aws.as_ref(),
        ];
        sources.into_iter().flatten().find(|text| !text.is_empty()).cloned().unwrap_or_default()
    }
}

impl Slim for Pod {
    const COLLECTION: Collection = Collection { prefix: "/api/v1", plural: "pods" };
    type Wire = WirePod;

    fn take(wire: WirePod, strings: &mut Strings) -> Taken<Self> {
        let WirePod { metadata, spec, status } = wire;
        let labels = if strings.pod_labels { metadata.labels } else { BTreeMap::new() };
        let is_empty = |text: &Option<String>| text.as_deref() == Some("");
        let annotations = &metadata.annotations;
        let object = Self {
            node: strings.share(&spec.node),
            phase: strings.share(&status.phase),
            reason: strings.share(&status.reason),
            service_account: strings.share(&spec.service_account),
            labels: strings.share_labels(labels),
            addresses: status.addresses(annotations).into_boxed_str(),
            host_network: spec.host_network,
            is_deleting: metadata.deletion.is_some(),
            has_address: !status.address.is_empty(),
            has_reported: !status.address.is_empty() && !status.addresses.is_empty(),
            is_emptied: is_empty(&annotations.address) || is_empty(&annotations.aws),
        };
        let key =
            ObjectKey { namespace: strings.share(&metadata.namespace), name: metadata.name.as_str().into() };
        Taken { key, revision: metadata.revision, object }
    }
}

/// A node: that it exists, and its labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Labels.
    pub labels: Labels,
}

/// A namespace: that it exists, and its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Namespace {
    /// Labels.
    pub labels: Labels,
}

/// A service account: that it exists, and its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceAccount {
    /// Labels.
    pub labels: Labels,
}

/// The decoded fields of kinds of which only the metadata matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WireLabelled {
    metadata: WireMeta,
}

impl WireLabelled {
    fn take(self, strings: &mut Strings) -> Taken<Labels> {
        let key = self.metadata.key(strings);
        let object = strings.share_labels(self.metadata.labels);
        Taken { key, revision: self.metadata.revision, object }
    }
}

macro_rules! labelled_kinds {
    ($($name:ident = $plural:literal,)*) => {
        $(impl Slim for $name {
            const COLLECTION: Collection = Collection { prefix: "/api/v1", plural: $plural };
            type Wire = WireLabelled;

            fn take(wire: WireLabelled, strings: &mut Strings) -> Taken<Self> {
                let Taken { key, revision, object } = wire.take(strings);
                Taken { key, revision, object: Self { labels: object } }
            }
        })*
    };
}

labelled_kinds! {
    Node = "nodes",
    Namespace = "namespaces",
    ServiceAccount = "serviceaccounts",
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take<T: Slim>(object: serde_json::Value) -> Taken<T> {
        let wire = serde_json::from_value(object).expect("an object as the API writes it");
        let mut strings = Strings::with_pod_labels();
        T::take(wire, &mut strings)
    }

    #[test]
    fn only_used_fields_of_a_pod_are_kept() {
        let pod = json!({
            "metadata": {
                "namespace": "shop", "name": "web-1", "resourceVersion": "7",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"app": "web"},
                "annotations": {"cni.projectcalico.org/podIP": "", "a/b": "large"},
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {
                "nodeName": "node-1", "serviceAccountName": "default", "containers": [{"name": "c"}],
            },
            "status": {
                "phase": "Failed", "reason": "Evicted", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready"}],
            },
        });
        let Taken { key, revision, object } = take::<Pod>(pod);
        assert_eq!((key.to_string().as_str(), revision.as_str()), ("shop/web-1", "7"));
        assert_eq!((&*object.node, &*object.phase, &*object.reason), ("node-1", "Failed", "Evicted"));
        assert!(object.is_deleting && !object.host_network);
        assert!(object.is_emptied && object.has_address && object.has_reported);
        assert_eq!(&*object.addresses, "10.0.0.1");
        assert_eq!(object.labels.get("app"), Some("web"));
    }

    #[test]
    fn addresses_come_from_the_best_source() {
        let annotations = json!({"cni.projectcalico.org/podIPs": "10.0.0.7/32,fd00::7/128", "cni.projectcalico.org/podIP": "10.0.0.8/32"});
        for (annotations, status, expected) in [
            (
                &annotations,
                json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}),
                "10.0.0.1,fd00::1",
            ),
            (&annotations, json!({"podIPs": [{"ip": "10.0.0.1"}, {}]}), "10.0.0.1,?"),
            (&annotations, json!({"podIP": "10.0.0.1"}), "10.0.0.1"),
            (&annotations, json!({}), "10.0.0.7/32,fd00::7/128"),
            (
                &json!({"cni.projectcalico.org/podIPs": "", "cni.projectcalico.org/podIP": "10.0.0.8/32"}),
                json!({}),
                "10.0.0.8/32",
            ),
            (&json!({"vpc.amazonaws.com/pod-ips": "10.0.0.9"}), json!({}), "10.0.0.9"),
            (&json!({}), json!({}), ""),
        ] {
            let pod = json!({"metadata": {"name": "x", "annotations": annotations}, "status": status});
            assert_eq!(&*take::<Pod>(pod).object.addresses, expected, "{annotations} {status}");
        }
    }

    #[test]
    fn fields_that_are_null_or_missing_are_empty() {
        let pod = json!({"metadata": {"name": "x", "labels": null, "annotations": null}, "status": {"podIPs": null}});
        let Taken { key, object, .. } = take::<Pod>(pod);
        assert_eq!(key.to_string(), "x");
        assert!(object.labels.is_empty() && object.addresses.is_empty() && object.node.is_empty());
        let node = json!({"metadata": {"name": "n", "labels": {"zone": "a"}}});
        assert_eq!(take::<Node>(node).object.labels.len(), 1);
    }
}
