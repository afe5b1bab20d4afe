//! Optional display of flows: Goldmane, which collects flows from nodes, and Whisker, the page.
//!
//! All of them present a certificate from one secret that the user creates. Nodes do not use the cluster's DNS, so
//! Goldmane's name leads to a service address that is chosen beforehand, as Tigera's operator does. The page is served
//! inside its pod only (`kubectl port-forward`): users who may forward ports of `kube-system` may see flows.

use crate::NAMESPACE;
use crate::objects::Object;
use crate::options::{Like, Options};
use crate::parts::{
    Asks, Container, Mount, Probe, Rule, Variable, deployed_pod, read_only, text, unprivileged,
};
use crate::roles::{binding, of_account, role, service_account};
use serde_json::{Value, json};

const GOLDMANE: &str = "goldmane";
const WHISKER: &str = "whisker";
/// The name in Goldmane's certificate.
const HOST: &str = "goldmane.kube-system.svc";
const PORT: u16 = 7443;
const HEALTH_PORT: u16 = 8080;
const PAGE_PORT: u16 = 8081;

/// The mount of the secret in every container that presents the certificate.
pub(crate) const CERTIFICATES: Mount = read_only("goldmane-tls", "/goldmane-tls");

const fn read(groups: &'static [&'static str], resources: &'static [&'static str]) -> Rule {
    Rule { groups, resources, verbs: &["get", "list"], names: &[] }
}

/// What the page reads to explain flows.
const POLICIES: &[Rule] = &[
    read(&[""], &["namespaces", "nodes", "pods", "serviceaccounts"]),
    read(&["networking.k8s.io"], &["networkpolicies"]),
    read(
        &["policy.networking.k8s.io"],
        &["clusternetworkpolicies", "adminnetworkpolicies", "baselineadminnetworkpolicies"],
    ),
    read(
        &["projectcalico.org", "crd.projectcalico.org"],
        &[
            "clusterinformations",
            "felixconfigurations",
            "globalnetworkpolicies",
            "globalnetworksets",
            "hostendpoints",
            "networkpolicies",
            "networksets",
            "stagedglobalnetworkpolicies",
            "stagedkubernetesnetworkpolicies",
            "stagednetworkpolicies",
            "tiers",
        ],
    ),
];

/// The volume with the certificate.
pub(crate) fn volume() -> Value {
    json!({"name": CERTIFICATES.volume, "secret": {"secretName": "goldmane-tls"}})
}

/// Goldmane's name in `/etc/hosts`.
pub(crate) fn alias(address: &str) -> Value {
    json!([{"ip": address, "hostnames": [HOST]}])
}

fn file(name: &str) -> String {
    format!("{}/{name}", CERTIFICATES.path)
}

/// Felix's variables: it presents to Goldmane the same certificate as to Typha.
pub(crate) fn node_variables() -> [Variable; 4] {
    [
        text("FELIX_FLOWLOGSGOLDMANESERVER", format!("{HOST}:{PORT}")),
        text("FELIX_TYPHACAFILE", file("ca.crt")),
        text("FELIX_TYPHACERTFILE", file("tls.crt")),
        text("FELIX_TYPHAKEYFILE", file("tls.key")),
    ]
}

/// Goldmane, with its service at this address.
#[must_use]
pub fn goldmane(options: &Options, address: &str) -> Vec<Object> {
    let probe =
        |command, period| Probe { asks: Asks::Program(command), period, delay: 0, failures: 0, timeout: 5 };
    let container = Container {
        name: GOLDMANE,
        image: options.image("goldmane"),
        variables: vec![
            text("PORT", PORT.to_string()),
            text("SERVER_CERT_PATH", file("tls.crt")),
            text("SERVER_KEY_PATH", file("tls.key")),
            text("CA_CERT_PATH", file("ca.crt")),
            text("HEALTH_ENABLED", "true"),
            text("HEALTH_PORT", HEALTH_PORT.to_string()),
        ],
        mounts: vec![CERTIFICATES],
        liveness: Some(probe(&["/health", "-live"], 60)),
        readiness: Some(probe(&["/health", "-ready"], 10)),
        more: [
            ("ports".to_owned(), json!([{"containerPort": PORT, "protocol": "TCP"}])),
            ("securityContext".to_owned(), unprivileged()),
        ]
        .into_iter()
        .collect(),
        ..Container::default()
    };
    let labels = json!({"k8s-app": GOLDMANE});
    vec![
        service_account(GOLDMANE),
        Object::plain(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": GOLDMANE, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "type": "ClusterIP", "clusterIP": address, "selector": labels,
                "ports": [{"name": GOLDMANE, "port": PORT, "protocol": "TCP", "targetPort": PORT}],
            },
        })),
        deployment(
            GOLDMANE,
            "An hour of flows of all nodes. The secret goldmane-tls has tls.crt (for goldmane.kube-system.svc), tls.key and ca.crt.",
            deployed_pod(GOLDMANE, &container.value(options), options),
        ),
    ]
}

/// The page, with Goldmane at this address.
#[must_use]
pub fn whisker(options: &Options, address: &str) -> Vec<Object> {
    let mut variables = vec![
        text("PORT", PAGE_PORT.to_string()),
        text("GOLDMANE_HOST", format!("{HOST}:{PORT}")),
        text("TLS_CERT_PATH", file("tls.crt")),
        text("TLS_KEY_PATH", file("tls.key")),
        text("CA_CERT_PATH", file("ca.crt")),
    ];
    if options.like != Like::CalicoEtcd {
        variables.push(text("DATASTORE_TYPE", "kubernetes"));
    }
    let container = Container {
        name: WHISKER,
        image: options.image("whisker-backend"),
        variables,
        mounts: vec![CERTIFICATES],
        readiness: Some(Probe {
            asks: Asks::Program(&["/usr/bin/calico", "health", "--port=8081", "--type=readiness"]),
            period: 10,
            delay: 0,
            failures: 0,
            timeout: 5,
        }),
        more: [
            ("ports".to_owned(), json!([{"containerPort": PAGE_PORT, "protocol": "TCP"}])),
            ("securityContext".to_owned(), unprivileged()),
        ]
        .into_iter()
        .collect(),
        ..Container::default()
    };
    let mut pod = deployed_pod(WHISKER, &container.value(options), options);
    pod["hostAliases"] = alias(address);
    vec![
        service_account(WHISKER),
        role(WHISKER, POLICIES),
        binding(WHISKER, WHISKER, &of_account(WHISKER)),
        deployment(
            WHISKER,
            "The page. kubectl -n kube-system port-forward deployment/whisker 8081, then http://localhost:8081",
            pod,
        ),
    ]
}

fn deployment(name: &str, about: &'static str, mut pod: Value) -> Object {
    let labels = json!({"k8s-app": name});
    pod["volumes"] = json!([volume()]);
    Object::new(
        about,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                // Two at once would split the flows between them.
                "strategy": {"type": "Recreate"},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::without_crds;
    use crate::options::REGISTRY;

    fn options(settings: &[(&str, &str)]) -> Options {
        let mut options = Options::new(Like::CalicoVxlan, REGISTRY, "v1");
        for (key, value) in settings {
            options.set(key, value).expect("a setting");
        }
        options
    }

    #[test]
    fn incompatible_settings_are_refused() {
        let enabled = ("goldmane.enabled", "true");
        let address = ("goldmane.clusterIP", "10.96.0.50");
        for (settings, reason) in [
            (vec![enabled], "goldmane.clusterIP"),
            (vec![enabled, address, ("typha.enabled", "true")], "goldmane.enabled"),
            (vec![("whisker.enabled", "true")], "whisker.enabled"),
        ] {
            let error = options(&settings).check().expect_err("settings that do not fit").to_string();
            assert!(error.starts_with(reason), "{error}");
        }
        options(&[enabled, address, ("whisker.enabled", "true")]).check().expect("settings that fit");
    }

    #[test]
    fn nodes_reach_goldmane_by_name_and_present_the_certificate() {
        let options = options(&[
            ("goldmane.enabled", "true"),
            ("goldmane.clusterIP", "10.96.0.50"),
            ("whisker.enabled", "true"),
        ]);
        let objects = without_crds(&options);
        let find = |kind: &str, name: &str| {
            let found = objects.iter().find(|object| object.kind() == kind && object.name() == name);
            &found.unwrap_or_else(|| panic!("{kind} {name}")).value
        };
        let service = find("Service", GOLDMANE);
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.50");
        for (kind, name) in [("DaemonSet", "calico-node"), ("Deployment", WHISKER)] {
            let pod = &find(kind, name)["spec"]["template"]["spec"];
            assert_eq!(pod["hostAliases"], json!([{"ip": "10.96.0.50", "hostnames": [HOST]}]), "{name}");
            assert!(pod["volumes"].as_array().expect("volumes").contains(&volume()), "{name}");
            let text = pod["containers"][0].to_string();
            assert!(text.contains("goldmane.kube-system.svc:7443") && text.contains("/goldmane-tls/tls.key"));
        }
        // Nothing of it is present unless requested.
        assert!(!crate::to_yaml("", &without_crds(&self::options(&[]))).contains("goldmane"));
    }
}
