//! Copies Kubernetes' NetworkPolicy to Calico's NetworkPolicy `knp.default.NAME`, for the etcd datastore. (With the
//! Kubernetes datastore Calico reads the original.)

use crate::copy::Copied;
use crate::informer::kinds::WireMeta;
use crate::informer::{ObjectKey, Slim, Strings, Taken};
use api::kubernetes::NetworkPolicy as KubernetesPolicy;
use api::{NetworkPolicy, NetworkPolicySpec, Object, Resource};
use kube_access::cluster::Collection;
use model::Value;
use model::kubernetes::network_policy::kubernetes_network_policy;
use serde::Deserialize;

/// The prefix of the names of copies.
const PREFIX: &str = "knp.default.";

/// A Kubernetes policy. Its whole spec is needed, so all of it is kept, as text, which takes less space than the
/// values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    spec: Box<str>,
}

/// The fields of a policy that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WirePolicy {
    metadata: WireMeta,
    spec: serde_json::Value,
}

impl Slim for Policy {
    const COLLECTION: Collection =
        Collection { prefix: "/apis/networking.k8s.io/v1", plural: "networkpolicies" };
    type Wire = WirePolicy;

    fn take(wire: WirePolicy, strings: &mut Strings) -> Taken<Self> {
        let key = wire.metadata.key(strings);
        let object = Self { spec: wire.spec.to_string().into_boxed_str() };
        Taken { key, revision: wire.metadata.revision, object }
    }
}

/// Copies NetworkPolicy to NetworkPolicy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policies;

impl Copied for Policies {
    type Source = Policy;
    type Spec = NetworkPolicySpec;
    const NAME: &'static str = "NetworkPolicy";

    fn copy_of(source: &ObjectKey) -> (String, String) {
        (source.namespace.to_string(), format!("{PREFIX}{}", source.name))
    }

    fn source_of(namespace: &str, name: &str) -> Option<ObjectKey> {
        Some(ObjectKey::new(namespace, name.strip_prefix(PREFIX)?))
    }

    fn desired(key: &ObjectKey, source: &Policy) -> Result<NetworkPolicy, String> {
        let mut policy = KubernetesPolicy {
            spec: serde_json::from_str(&source.spec).map_err(|error| error.to_string())?,
            ..KubernetesPolicy::default()
        };
        policy.metadata.namespace = key.namespace.to_string();
        policy.metadata.name = key.name.to_string();
        let converted = kubernetes_network_policy(&policy).map_err(|error| error.to_string())?;
        for problem in &converted.problems {
            tracing::warn!(policy = %key, problem, "a policy can only be copied in part");
        }
        match converted.pair.value {
            Value::Resource(Resource::KubernetesNetworkPolicy(converted)) => {
                let (namespace, name) = Self::copy_of(key);
                Ok(Object::new(&namespace, &name, converted.spec.0))
            }
            _ => Err("the conversion did not return a policy".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_is_copied_under_its_own_name() {
        let wire = json!({
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "3"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 80}]}],
            },
        });
        let wire = serde_json::from_value(wire).expect("a policy");
        let taken = Policy::take(wire, &mut Strings::default());
        let copy = Policies::desired(&taken.key, &taken.object).expect("a copy");
        assert_eq!(
            (copy.metadata.namespace.as_str(), copy.metadata.name.as_str()),
            ("shop", "knp.default.web")
        );
        assert_eq!(copy.spec.order.map(|order| order.0), Some(1000.0));
        assert!(copy.spec.selector.as_str().contains("app == 'web'"));
        assert_eq!(copy.spec.ingress.len(), 1);
        assert_eq!(Policies::source_of("shop", "knp.default.web"), Some(taken.key));
        assert_eq!(Policies::source_of("shop", "web"), None);
    }
}
