//! Typha: the service that nodes find it by, the deployment, and its disruption budget.

use crate::NAMESPACE;
use crate::controllers::budget;
use crate::node::metrics_entry;
use crate::objects::Object;
use crate::options::Options;
use crate::parts::{Asks, Container, Probe, Variable, pull_secrets, text, with_extra};
use serde_json::json;

const NAME: &str = "calico-typha";
const PORT: u16 = 5473;
/// How long Typha may take to move its clients elsewhere; used for both the pod's grace period and Typha's own setting.
const GRACE: u32 = 300;

/// All objects of Typha.
#[must_use]
pub fn objects(options: &Options) -> Vec<Object> {
    vec![budget(NAME), service(), deployment(options)]
}

fn service() -> Object {
    let labels = json!({"k8s-app": NAME});
    Object::new(
        "",
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "ports": [{"name": NAME, "port": PORT, "protocol": "TCP", "targetPort": NAME}],
                "selector": labels,
            },
        }),
    )
}

fn deployment(options: &Options) -> Object {
    let labels = json!({"k8s-app": NAME});
    let mut pod = json!({
        "nodeSelector": {"kubernetes.io/os": "linux"},
        // Pods have no network before Typha runs.
        "hostNetwork": true,
        "terminationGracePeriodSeconds": GRACE,
        "tolerations": [
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
            {"effect": "NoSchedule", "operator": "Exists"},
            {"effect": "NoExecute", "operator": "Exists"},
        ],
        "serviceAccountName": options.like.node_name(),
        "priorityClassName": "system-cluster-critical",
        "securityContext": {"fsGroup": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container(options).value(options)],
    });
    pull_secrets(&mut pod, options);
    let annotations = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"});
    Object::new(
        "Between the API and the nodes: one for each 100 to 200 nodes, three or more where it matters.",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "replicas": options.typha_replicas,
                "revisionHistoryLimit": 2,
                "selector": {"matchLabels": labels},
                // All new pods start before old ones stop: clients then move only once.
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 1}},
                "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod},
            },
        }),
    )
}

fn container(options: &Options) -> Container {
    let probe = |path, period, delay| Probe {
        asks: Asks::Http { path, port: 9098 },
        period,
        delay,
        failures: 0,
        timeout: 10,
    };
    let mut ports = vec![json!({"containerPort": PORT, "name": NAME, "protocol": "TCP"})];
    if options.metrics {
        ports.push(metrics_entry(9093));
    }
    Container {
        name: NAME,
        image: options.image("typha"),
        takes_endpoint: true,
        variables: with_extra(variables(options), &options.typha_variables),
        liveness: Some(probe("/liveness", 30, 30)),
        readiness: Some(probe("/readiness", 10, 0)),
        more: [
            ("ports".to_owned(), json!(ports)),
            ("securityContext".to_owned(), json!({"runAsNonRoot": true, "allowPrivilegeEscalation": false})),
        ]
        .into_iter()
        .collect(),
        ..Container::default()
    }
}

fn variables(options: &Options) -> Vec<Variable> {
    let mut variables = vec![
        text("TYPHA_LOGSEVERITYSCREEN", "info"),
        text("TYPHA_LOGFILEPATH", "none"),
        text("TYPHA_LOGSEVERITYSYS", "none"),
        text("TYPHA_CONNECTIONREBALANCINGMODE", "kubernetes"),
        text("TYPHA_DATASTORETYPE", "kubernetes"),
        text("TYPHA_HEALTHENABLED", "true"),
        text("TYPHA_SHUTDOWNTIMEOUTSECS", GRACE.to_string()),
    ];
    if !options.like.has_ipam() {
        variables.push(text("USE_POD_CIDR", "true"));
    }
    if options.metrics {
        variables.push(text("TYPHA_PROMETHEUSMETRICSENABLED", "true"));
    }
    variables
}
