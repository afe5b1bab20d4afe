//! kube-controllers: one pod that keeps Kubernetes and Calico in sync, and the budget that lets it be evicted.

use crate::NAMESPACE;
use crate::node::metrics_port;
use crate::objects::Object;
use crate::options::{Like, Options};
use crate::parts::{Asks, Container, Probe, config, deployed_pod, mount, text, with_extra};
use serde_json::json;

const NAME: &str = "calico-kube-controllers";

/// The deployment and its budget.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    vec![budget(NAME), deployment(options)]
}

/// A budget that lets one pod at a time be evicted.
pub(crate) fn budget(name: &str) -> Object {
    let labels = json!({"k8s-app": name});
    Object::new(
        "",
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
        }),
    )
}

fn deployment(options: &Options) -> Object {
    let labels = json!({"k8s-app": NAME});
    let is_etcd = options.like == Like::CalicoEtcd;
    let mut pod = deployed_pod(NAME, &container(options).value(options), options);
    if let Some(tolerations) = pod["tolerations"].as_array_mut() {
        tolerations.insert(0, json!({"key": "CriticalAddonsOnly", "operator": "Exists"}));
    }
    pod["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
    pod["priorityClassName"] = json!("system-cluster-critical");
    if is_etcd {
        // The etcd may only be reachable from hosts.
        pod["hostNetwork"] = json!(true);
        pod["volumes"] = json!([
            {"name": "etcd-certs", "secret": {"secretName": "calico-etcd-secrets", "defaultMode": 0o440}},
        ]);
    }
    Object::new(
        "Garbage collection of addresses, nodes, and what else Calico's controllers do. Only one may run.",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "strategy": {"type": "Recreate"},
                "template": {"metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels}, "spec": pod},
            },
        }),
    )
}

fn container(options: &Options) -> Container {
    let map = options.like.config_map();
    let (variables, mounts) = if options.like == Like::CalicoEtcd {
        let variables = vec![
            config("ETCD_ENDPOINTS", map, "etcd_endpoints"),
            config("ETCD_CA_CERT_FILE", map, "etcd_ca"),
            config("ETCD_KEY_FILE", map, "etcd_key"),
            config("ETCD_CERT_FILE", map, "etcd_cert"),
            text("ENABLED_CONTROLLERS", "policy,namespace,serviceaccount,workloadendpoint,node,loadbalancer"),
        ];
        (variables, vec![mount("etcd-certs", "/calico-secrets")])
    } else {
        (
            vec![text("ENABLED_CONTROLLERS", "node,loadbalancer"), text("DATASTORE_TYPE", "kubernetes")],
            Vec::new(),
        )
    };
    Container {
        name: NAME,
        image: options.image("kube-controllers"),
        variables: with_extra(variables, &options.controllers_variables),
        mounts,
        liveness: Some(Probe {
            asks: Asks::Program(&["/usr/bin/check-status", "-l"]),
            period: 10,
            delay: 10,
            failures: 6,
            timeout: 10,
        }),
        readiness: Some(Probe {
            asks: Asks::Program(&["/usr/bin/check-status", "-r"]),
            period: 10,
            delay: 0,
            failures: 0,
            timeout: 0,
        }),
        more: [("securityContext".to_owned(), json!({"runAsNonRoot": true}))]
            .into_iter()
            .chain(metrics_port(options, 9094))
            .collect(),
        ..Container::default()
    }
}
