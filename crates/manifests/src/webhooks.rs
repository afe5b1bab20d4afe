//! The objects that admission needs if kube-apiserver serves `projectcalico.org/v3` as custom resources, without an
//! aggregated server: Calico's admission policies, and its webhooks with everything that they need to run.
//!
//! | policy | what it does |
//! | --- | --- |
//! | `tierlabel.policy.projectcalico.org` | sets a missing tier of a policy to `default`, and labels the policy |
//! | `policytypes.policy.projectcalico.org` | derives the directions of a policy from its rules |
//! | `protect-builtin-tiers.projectcalico.org` | protects the built-in tiers from deletion |
//!
//! Names, messages and results are Calico's. The certificate of the webhooks comes from a secret that the user creates,
//! and its signer must be given: a configuration without it would refuse every write of a policy.

use crate::objects::Object;
use crate::options::Options;
use crate::parts::{Container, Rule, deployed_pod, read_only, unprivileged};
use crate::roles::{binding, role};
use serde_json::{Value, json};

const GROUP: &str = "admissionregistration.k8s.io";
const CALICO: &str = "projectcalico.org";
const NAME: &str = "calico-webhooks";
/// Calico's manifests put everything into one namespace.
const NAMESPACE: &str = "kube-system";
const PORT: u16 = 6443;
const CERTIFICATES: &str = "/certs";

/// The rights of the webhooks: to check the user's rights, and to read tiers.
const RULES: &[Rule] = &[
    Rule {
        groups: &["authorization.k8s.io"],
        resources: &["subjectaccessreviews"],
        verbs: &["create"],
        names: &[],
    },
    Rule { groups: &[CALICO], resources: &["tiers"], verbs: &["get", "list", "watch"], names: &[] },
];

/// The kinds with a tier.
const TIERED: [&str; 4] =
    ["networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"];
const STAGED_KUBERNETES: &str = "stagedkubernetesnetworkpolicies";

/// The objects that run the webhooks; `authority` is the signer of their certificate, in base64.
#[must_use]
pub fn objects(options: &Options, authority: &str) -> Vec<Object> {
    let account = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
    let mut objects = vec![
        Object::plain(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})),
        role(NAME, RULES),
        binding(NAME, NAME, &account),
        deployment(options),
        Object::plain(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {
                "type": "ClusterIP", "selector": {"k8s-app": NAME},
                "ports": [{"port": 443, "protocol": "TCP", "targetPort": PORT}],
            },
        })),
    ];
    objects.extend(mutating_policies("v1").into_iter().chain(validating_policies()).map(Object::plain));
    objects.push(Object::plain(webhook_configuration(|path| service(NAMESPACE, path, authority))));
    objects
}

/// The client configuration of the webhook at a path, behind the Service of a namespace.
#[must_use]
pub fn service(namespace: &str, path: &str, authority: &str) -> Value {
    json!({
        "service": {"name": NAME, "namespace": namespace, "path": path, "port": 443},
        "caBundle": authority,
    })
}

fn deployment(options: &Options) -> Object {
    let labels = json!({"k8s-app": NAME});
    let mut pod = deployed_pod(NAME, &container(options), options);
    pod["volumes"] = json!([{"name": "certs", "secret": {"secretName": "calico-webhooks-tls"}}]);
    Object::new(
        "The secret calico-webhooks-tls has a certificate for calico-webhooks.kube-system.svc (tls.crt, tls.key).",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }),
    )
}

fn container(options: &Options) -> Value {
    let container = Container {
        name: NAME,
        image: options.image("calico"),
        mounts: vec![read_only("certs", CERTIFICATES)],
        ..Container::default()
    };
    let mut value = container.value(options);
    value["args"] = json!([
        "component",
        "webhooks",
        "webhook",
        format!("--tls-cert-file={CERTIFICATES}/tls.crt"),
        format!("--tls-private-key-file={CERTIFICATES}/tls.key"),
        format!("--port={PORT}"),
    ]);
    value["ports"] = json!([{"containerPort": PORT, "protocol": "TCP"}]);
    value["readinessProbe"] = json!({
        "httpGet": {"path": "/readyz", "port": PORT, "scheme": "HTTPS"}, "periodSeconds": 10, "timeoutSeconds": 5,
    });
    value["securityContext"] = unprivileged();
    value
}

fn rules(resources: &[&str], operations: &[&str]) -> Value {
    json!({"resourceRules": [{
        "apiGroups": [CALICO], "apiVersions": ["v3"],
        "operations": operations, "resources": resources,
    }]})
}

fn mutating(version: &str, name: &str, binding: &str, resources: &[&str], rest: Value) -> [Value; 2] {
    let api = format!("{GROUP}/{version}");
    let constraints = rules(resources, &["CREATE", "UPDATE"]);
    let mut policy = json!({
        "apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": constraints, "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded"},
    });
    if let (Some(spec), Value::Object(rest)) = (policy["spec"].as_object_mut(), rest) {
        spec.extend(rest);
    }
    let binding = json!({
        "apiVersion": api, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": binding},
        "spec": {"policyName": name, "matchResources": constraints},
    });
    [policy, binding]
}

fn patch(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// The policies that change objects, in this version of Kubernetes' API.
#[must_use]
pub fn mutating_policies(version: &str) -> Vec<Value> {
    let tier = json!({
        "variables": [{
            "name": "tier",
            "expression": "has(object.spec.tier) && object.spec.tier != '' ? object.spec.tier : 'default'",
        }],
        "mutations": [
            patch(
                "has(object.spec.tier) && object.spec.tier != '' ? [] \
                 : [JSONPatch{op: 'add', path: '/spec/tier', value: variables.tier}]",
            ),
            patch(
                "(has(object.metadata.labels) ? [] : [JSONPatch{op: 'add', path: '/metadata/labels', value: {}}]) + \
                 [JSONPatch{op: 'add', path: '/metadata/labels/projectcalico.org~1tier', value: variables.tier}]",
            ),
        ],
    });
    let every: Vec<&str> = TIERED.iter().copied().chain([STAGED_KUBERNETES]).collect();
    let types = json!({
        "matchConditions": [{
            "name": "missing-types",
            "expression": "!has(object.spec.types) && !has(object.spec.policyTypes)",
        }],
        "variables": [
            {"name": "ingress", "expression": "has(object.spec.ingress) && size(object.spec.ingress) > 0"},
            {"name": "egress", "expression": "has(object.spec.egress) && size(object.spec.egress) > 0"},
            {"name": "staged", "expression": "object.kind == 'StagedKubernetesNetworkPolicy'"},
        ],
        "mutations": [patch(
            "[JSONPatch{op: 'add', path: variables.staged ? '/spec/policyTypes' : '/spec/types', \
             value: !variables.egress ? ['Ingress'] : \
             variables.ingress || variables.staged ? ['Ingress', 'Egress'] : ['Egress']}]",
        )],
    });
    let policies = [
        mutating(version, "tierlabel.policy.projectcalico.org", "set-tier-label-binding", &TIERED, tier),
        mutating(version, "policytypes.policy.projectcalico.org", "set-policytypes-binding", &every, types),
    ];
    policies.into_iter().flatten().collect()
}

/// The policies that refuse objects.
#[must_use]
pub fn validating_policies() -> Vec<Value> {
    let name = "protect-builtin-tiers.projectcalico.org";
    let api = format!("{GROUP}/v1");
    vec![
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": rules(&["tiers"], &["DELETE"]),
                "validations": [{
                    "expression": "!(oldObject.metadata.name in ['default', 'kube-admin', 'kube-baseline'])",
                    "messageExpression": "'The built-in tier ' + oldObject.metadata.name + ' cannot be deleted'",
                }],
            },
        }),
        json!({
            "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

/// The configuration that sends writes to the webhooks; `client` returns the client configuration of the webhook at a
/// path.
#[must_use]
pub fn webhook_configuration(client: impl Fn(&str) -> Value) -> Value {
    let hook = |name: &str, path: &str, resources: &[&str], failure: &str| {
        let mut hook = rules(resources, &["CREATE", "UPDATE", "DELETE"]);
        let rules = hook["resourceRules"].take();
        json!({
            "name": format!("{name}.projectcalico.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": failure, "timeoutSeconds": 5, "clientConfig": client(path), "rules": rules,
        })
    };
    let every: Vec<&str> = TIERED.iter().copied().chain([STAGED_KUBERNETES]).collect();
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "calico-webhooks"},
        "webhooks": [
            hook("tiered-rbac", "/rbac", &every, "Fail"),
            hook("cluster-info.api", "/cluster-info", &["clusterinformations"], "Ignore"),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::all;
    use crate::options::{Like, REGISTRY};

    fn options() -> Options {
        let mut options = Options::new(Like::CalicoVxlan, REGISTRY, "v1");
        options.set("useV3CRDs", "true").expect("a setting");
        options
    }

    #[test]
    fn definitions_come_with_everything_that_admission_needs() {
        let mut options = options();
        assert!(options.check().is_err_and(|error| error.to_string().contains("webhooks.caBundle")));
        options.set("webhooks.caBundle", "Y2E=").expect("a setting");
        options.check().expect("settings that fit together");
        let objects = all(&options);
        let groups: Vec<&Value> = objects
            .iter()
            .filter(|object| object.kind() == "CustomResourceDefinition")
            .filter_map(|object| object.value.pointer("/spec/group"))
            .collect();
        assert!(groups.contains(&&json!(CALICO)) && !groups.contains(&&json!("crd.projectcalico.org")));
        let find = |kind: &str, name: &str| {
            let found = objects.iter().find(|object| object.kind() == kind && object.name() == name);
            &found.unwrap_or_else(|| panic!("{kind} {name}")).value
        };
        let hooks = find("ValidatingWebhookConfiguration", NAME);
        for hook in hooks["webhooks"].as_array().expect("webhooks") {
            assert_eq!(hook["clientConfig"]["caBundle"], "Y2E=");
            let service = find("Service", NAME);
            assert_eq!(hook["clientConfig"]["service"]["namespace"], service["metadata"]["namespace"]);
            assert_eq!(hook["clientConfig"]["service"]["port"], service["spec"]["ports"][0]["port"]);
        }
        let deployment = find("Deployment", NAME);
        let port = deployment.pointer("/spec/template/spec/containers/0/ports/0/containerPort");
        assert_eq!(port, find("Service", NAME).pointer("/spec/ports/0/targetPort"));
        assert_eq!(
            deployment.pointer("/spec/template/metadata/labels"),
            find("Service", NAME).pointer("/spec/selector")
        );
        find("ValidatingAdmissionPolicy", "protect-builtin-tiers.projectcalico.org");
        find("MutatingAdmissionPolicy", "tierlabel.policy.projectcalico.org");
    }

    #[test]
    fn apiserver_and_webhooks_exclude_each_other() {
        let mut both = options();
        for (key, value) in
            [("webhooks.caBundle", "Y2E="), ("apiServer.enabled", "true"), ("apiServer.caBundle", "Y2E=")]
        {
            both.set(key, value).expect("a setting");
        }
        assert!(both.check().is_err());
        let mut etcd = Options::new(Like::CalicoEtcd, REGISTRY, "v1");
        for (key, value) in
            [("etcd.endpoints", "http://x:1"), ("useV3CRDs", "true"), ("webhooks.caBundle", "Y2E=")]
        {
            etcd.set(key, value).expect("a setting");
        }
        assert!(etcd.check().is_err());
    }
}
