//! The optional aggregated API server: a namespace of its own, as in Calico's apiserver.yaml.
//!
//! Its certificate comes from a secret that the user creates, and the `APIService` names the authority that signed it:
//! certificate checks are never turned off.

use crate::objects::Object;
use crate::options::{Like, Options};
use crate::parts::{Container, Rule, deployed_pod, mount, text};
use crate::roles::{binding, role};
use serde_json::{Value, json};

/// Its namespace.
const NAMESPACE: &str = "calico-apiserver";
const NAME: &str = "calico-apiserver";
const PORT: u16 = 5443;
const CERTIFICATES: &str = "/code/apiserver.local.config/certificates";

const READ: &[&str] = &["get", "list", "watch"];

/// Calico's data, and what is looked at to judge it.
const DATA: &[Rule] = &[
    Rule {
        groups: &["networking.k8s.io", ""],
        resources: &["networkpolicies", "nodes", "namespaces", "pods", "serviceaccounts"],
        verbs: READ,
        names: &[],
    },
    Rule {
        groups: &["crd.projectcalico.org"],
        resources: &[
            "bgpconfigurations",
            "bgpfilters",
            "bgppeers",
            "blockaffinities",
            "caliconodestatuses",
            "clusterinformations",
            "felixconfigurations",
            "globalnetworkpolicies",
            "globalnetworksets",
            "hostendpoints",
            "ipamblocks",
            "ipamconfigs",
            "ippools",
            "ipreservations",
            "kubecontrollersconfigurations",
            "networkpolicies",
            "networksets",
            "stagedglobalnetworkpolicies",
            "stagedkubernetesnetworkpolicies",
            "stagednetworkpolicies",
            "tiers",
        ],
        verbs: &["get", "list", "watch", "create", "update", "delete"],
        names: &[],
    },
];

/// The rights to read how clients are authenticated, authorized and admitted.
const AUTHORITIES: &[Rule] = &[
    Rule {
        groups: &[""],
        resources: &["configmaps"],
        verbs: READ,
        names: &["extension-apiserver-authentication"],
    },
    Rule {
        groups: &["rbac.authorization.k8s.io"],
        resources: &["clusterroles", "clusterrolebindings", "roles", "rolebindings"],
        verbs: READ,
        names: &[],
    },
    Rule {
        groups: &["admissionregistration.k8s.io"],
        resources: &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        verbs: READ,
        names: &[],
    },
];

const WEBHOOKS: &[Rule] = &[Rule {
    groups: &["admissionregistration.k8s.io"],
    resources: &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
    verbs: READ,
    names: &[],
}];

/// All objects of the API server; `authority` is the signer of its certificate, in base64.
#[must_use]
pub fn objects(options: &Options, authority: &str) -> Vec<Object> {
    let account = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
    let labels = json!({"apiserver": "true"});
    vec![
        Object::plain(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {"name": NAMESPACE}}}),
        ),
        Object::plain(
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}),
        ),
        role("calico-crds", DATA),
        role("calico-extension-apiserver-auth-access", AUTHORITIES),
        role("calico-webhook-reader", WEBHOOKS),
        binding("calico-apiserver-access-crds", "calico-crds", &account),
        binding("calico-apiserver-delegate-auth", "system:auth-delegator", &account),
        binding("calico-apiserver-webhook-reader", "calico-webhook-reader", &account),
        binding("calico-extension-apiserver-auth-access", "calico-extension-apiserver-auth-access", &account),
        Object::plain(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "allow-apiserver", "namespace": NAMESPACE},
            "spec": {
                "podSelector": {"matchLabels": labels},
                "ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}],
            },
        })),
        Object::plain(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "calico-api", "namespace": NAMESPACE},
            "spec": {
                "type": "ClusterIP", "selector": labels,
                "ports": [{"name": "apiserver", "port": 443, "protocol": "TCP", "targetPort": PORT}],
            },
        })),
        deployment(options),
        Object::plain(json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v3.projectcalico.org"},
            "spec": {
                "group": "projectcalico.org", "version": "v3",
                "groupPriorityMinimum": 1500, "versionPriority": 200,
                "service": {"name": "calico-api", "namespace": NAMESPACE, "port": 443},
                "caBundle": authority,
            },
        })),
    ]
}

fn deployment(options: &Options) -> Object {
    let labels = json!({"apiserver": "true", "k8s-app": NAME});
    let mut pod = deployed_pod(NAME, &container(options), options);
    pod["volumes"] =
        json!([{"name": "calico-apiserver-certs", "secret": {"secretName": "calico-apiserver-certs"}}]);
    Object::new(
        "projectcalico.org/v3 for kubectl. The secret calico-apiserver-certs has apiserver.crt and apiserver.key.",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"apiserver": "true"}},
                "strategy": {"type": "Recreate"},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
    )
}

fn container(options: &Options) -> Value {
    let variables = match options.like {
        // The config map with the etcd settings of the other components is in another namespace.
        Like::CalicoEtcd => {
            vec![text("DATASTORE_TYPE", "etcdv3"), text("ETCD_ENDPOINTS", options.etcd.endpoints.clone())]
        }
        _ => vec![text("DATASTORE_TYPE", "kubernetes")],
    };
    let container = Container {
        name: NAME,
        image: options.image("calico"),
        variables,
        mounts: vec![mount("calico-apiserver-certs", CERTIFICATES)],
        ..Container::default()
    };
    let mut value = container.value(options);
    value["args"] = json!([
        "component",
        "apiserver",
        format!("--secure-port={PORT}"),
        format!("--cert-dir={CERTIFICATES}")
    ]);
    value["readinessProbe"] = json!({
        "httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"}, "periodSeconds": 10, "timeoutSeconds": 5,
    });
    value["securityContext"] = json!({"privileged": false, "runAsUser": 0});
    value
}
