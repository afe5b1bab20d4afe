//! Plans for clusters of both generations of manifests: to Tortie and back, complete and partial.

use super::*;

fn request() -> Request {
    Request { nodes: Vec::new(), is_back: false, registry: "r".into(), tag: "v1".into(), force: false }
}

fn pod(node: &str, image: &str) -> Value {
    json!({
        "metadata": {"name": format!("calico-node-{node}"), "labels": {"k8s-app": "calico-node"}},
        "spec": {"nodeName": node, "containers": [{"name": "calico-node", "image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn calico(version: &str) -> Facts {
    let image = |name: &str| format!("quay.io/calico/{name}:{version}");
    Facts {
        daemon_set: Some(json!({
            "metadata": {"name": "calico-node"},
            "spec": {
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
                "template": {"spec": {
                    "initContainers": [{"name": "install-cni", "image": image("cni"), "securityContext": {"privileged": true}}],
                    "containers": [{"name": "calico-node", "image": image("node")}],
                }},
            },
        })),
        pods: vec![pod("b", &image("node")), pod("a", &image("node"))],
        controllers: Some(json!({
            "metadata": {"name": "calico-kube-controllers"},
            "spec": {"template": {"spec": {"containers": [{"name": "calico-kube-controllers", "image": image("kube-controllers")}]}}},
        })),
        typha: Some(json!({
            "metadata": {"name": "calico-typha"},
            "spec": {"template": {"spec": {"containers": [{"name": "calico-typha", "image": image("typha")}]}}},
        })),
        nodes: vec!["a".into(), "b".into()],
        has_definitions: true,
        ..Facts::default()
    }
}

fn lines(plan: &Plan) -> Vec<String> {
    assert_eq!(plan.refusals, Vec::<String>::new());
    plan.steps.iter().map(ToString::to_string).collect()
}

#[test]
fn the_whole_cluster() {
    let plan = plan(&calico("v3.32.1"), &request());
    assert_eq!(
        lines(&plan),
        [
            "bring the custom resource definitions up to what both need",
            "Deployment calico-kube-controllers: change its images",
            "Deployment calico-kube-controllers: wait until it is ready",
            "DaemonSet calico-node: change its images; pods are replaced only when they are deleted",
            "node a: replace calico-node-a, and wait until the new one is ready",
            "node b: replace calico-node-b, and wait until the new one is ready",
            "DaemonSet calico-node: change its update strategy, back to the previous one",
            "Deployment calico-typha: change its images",
            "Deployment calico-typha: wait until it is ready",
        ]
    );
    assert_eq!(plan.warnings, Vec::<String>::new());
    let Step::Change { patch, .. } = &plan.steps[3] else { panic!("{:?}", plan.steps[3]) };
    assert_eq!(
        patch["spec"]["template"]["spec"]["initContainers"][0],
        json!({"name": "install-cni", "image": "r/cni:v1"})
    );
    assert_eq!(patch["spec"]["updateStrategy"]["type"], "OnDelete");
    let kept = patch["metadata"]["annotations"][PREVIOUS_IMAGES].as_str().unwrap();
    assert!(kept.contains("quay.io/calico/node:v3.32.1"), "{kept}");
}

#[test]
fn one_node_leaves_the_others_and_typha_alone() {
    let request = Request { nodes: vec!["b".into()], ..request() };
    let found = lines(&plan(&calico("v3.32.1"), &request));
    assert!(found.contains(&"node b: replace calico-node-b, and wait until the new one is ready".to_owned()));
    assert!(
        !found
            .iter()
            .any(|line| line.contains("node a") || line.contains("typha") || line.contains("strategy, to"))
    );
    let unknown = Request { nodes: vec!["z".into()], ..request };
    assert_eq!(plan(&calico("v3.32.1"), &unknown).refusals, ["there is no node z; there are a, b"]);
}

/// The state of the cluster after the steps of a plan.
fn carried_out(mut facts: Facts, plan: &Plan) -> Facts {
    for step in &plan.steps {
        match step {
            Step::Change { kind, name, patch, .. } => {
                let workload = match (*kind, name.as_str()) {
                    ("DaemonSet", _) => facts.daemon_set.as_mut(),
                    (_, "calico-typha") => facts.typha.as_mut(),
                    _ => facts.controllers.as_mut(),
                };
                let workload = workload.unwrap();
                for (name, value) in patch["metadata"]["annotations"].as_object().into_iter().flatten() {
                    workload["metadata"]["annotations"][name] = value.clone();
                    if value.is_null() {
                        workload["metadata"]["annotations"].as_object_mut().unwrap().remove(name);
                    }
                }
                if let Some(strategy) = patch.pointer("/spec/updateStrategy") {
                    workload["spec"]["updateStrategy"] = strategy.clone();
                }
                for list in ["initContainers", "containers"] {
                    for change in patch
                        .pointer(&format!("/spec/template/spec/{list}"))
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                    {
                        let place = format!("/spec/template/spec/{list}");
                        let all = workload.pointer_mut(&place).and_then(Value::as_array_mut).unwrap();
                        let container =
                            all.iter_mut().find(|container| container["name"] == change["name"]).unwrap();
                        container["image"] = change["image"].clone();
                    }
                }
            }
            Step::ReplacePod { node, .. } => {
                let image = facts
                    .daemon_set
                    .as_ref()
                    .unwrap()
                    .pointer("/spec/template/spec/containers/0/image")
                    .unwrap()
                    .clone();
                facts.pods.retain(|pod| node_of(pod) != node);
                facts.pods.push(pod(node, image.as_str().unwrap()));
            }
            _ => {}
        }
    }
    facts
}

#[test]
fn migrating_there_and_back_restores_everything() {
    let before = calico("v3.32.1");
    let there = plan(&before, &request());
    let ours = carried_out(before.clone(), &there);
    assert_eq!(
        lines(&plan(&ours, &request())),
        ["bring the custom resource definitions up to what both need"],
        "nothing is left to do"
    );
    let back = plan(&ours, &Request { is_back: true, ..request() });
    let expected = [
        "Deployment calico-typha: change its images",
        "Deployment calico-typha: wait until it is ready",
        "DaemonSet calico-node: change its images; pods are replaced only when they are deleted",
        "node a: replace calico-node-a, and wait until the new one is ready",
        "node b: replace calico-node-b, and wait until the new one is ready",
        "DaemonSet calico-node: change its update strategy, back to the previous one",
        "Deployment calico-kube-controllers: change its images",
        "Deployment calico-kube-controllers: wait until it is ready",
    ];
    assert_eq!(lines(&back), expected);
    let theirs = carried_out(ours, &back);
    for (was, is) in [(&before.daemon_set, &theirs.daemon_set), (&before.typha, &theirs.typha)] {
        assert_eq!(images(was.as_ref().unwrap()), images(is.as_ref().unwrap()));
    }
    assert_eq!(
        before.daemon_set.as_ref().unwrap()["spec"]["updateStrategy"],
        theirs.daemon_set.as_ref().unwrap()["spec"]["updateStrategy"]
    );
}

#[test]
fn an_interrupted_run_continues() {
    let before = calico("v3.32.1");
    let mut whole = plan(&before, &request());
    whole.steps.truncate(5);
    let half = carried_out(before, &whole);
    let rest = lines(&plan(&half, &request()));
    assert!(
        rest.contains(&"node b: replace calico-node-b, and wait until the new one is ready".to_owned()),
        "{rest:?}"
    );
    assert!(!rest.iter().any(|line| line.contains("node a")), "{rest:?}");
    assert!(
        rest.contains(
            &"DaemonSet calico-node: change its update strategy, back to the previous one".to_owned()
        ),
        "{rest:?}"
    );
}

#[test]
fn old_calico_keeps_iptables() {
    let plan = plan(&calico("v3.29.1"), &request());
    let Step::Change { patch, .. } = &plan.steps[3] else { panic!() };
    assert_eq!(
        patch["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([{"name": "FELIX_NFTABLESMODE", "value": "Disabled"}])
    );
    assert!(plan.warnings[0].contains("Calico v3.29 filters with iptables"), "{:?}", plan.warnings);
    let mut facts = calico("v3.29.1");
    let mut is_kept = |felix: Value| {
        facts.felix = Some(felix);
        !super::plan(&facts, &request()).warnings.is_empty()
    };
    // The value that our definitions fill in is not a user's choice.
    assert!(is_kept(json!({"spec": {"nftablesMode": "Auto"}})));
    let owned = json!([{"fieldsV1": {"f:spec": {"f:nftablesMode": {}}}}]);
    assert!(!is_kept(json!({"metadata": {"managedFields": owned}, "spec": {"nftablesMode": "Auto"}})));
    assert!(!is_kept(json!({"spec": {"nftablesMode": "Disabled"}})));
}

#[test]
fn the_combined_image_runs_as_root_where_necessary() {
    let mut facts = calico("v3.33.0");
    facts.daemon_set.as_mut().unwrap()["spec"]["template"]["spec"]["initContainers"][0]["image"] =
        json!("quay.io/calico/calico:v3.33.0");
    let plan = plan(&facts, &request());
    let Step::Change { patch, .. } = &plan.steps[3] else { panic!() };
    assert_eq!(
        patch["spec"]["template"]["spec"]["initContainers"][0],
        json!({"name": "install-cni", "image": "r/calico:v1", "securityContext": {"runAsUser": 0}})
    );
}

#[test]
fn a_cluster_with_ebpf_is_migrated_with_a_warning() {
    let mut facts = calico("v3.32.1");
    facts.felix = Some(json!({"spec": {"bpfEnabled": true}}));
    for (is_back, expected) in
        [(false, "our programs replace Calico's"), (true, "Calico's programs replace ours")]
    {
        let found = plan(&facts, &Request { is_back, ..request() });
        assert!(is_back || found.refusals.is_empty(), "{:?}", found.refusals);
        assert!(found.warnings.iter().any(|text| text.contains(expected)), "{:?}", found.warnings);
    }
}

#[test]
fn obstacles_are_reported() {
    type Break = fn(&mut Facts);
    let cases: [(&str, Break); 5] = [
        ("there is no Calico to replace", |facts| facts.daemon_set = None),
        ("operator owns these objects", |facts| facts.has_operator = true),
        ("not ready on a", |facts| facts.pods[1]["status"] = json!({})),
        ("there is no image \"hardened-calico\" of ours", |facts| {
            facts.daemon_set.as_mut().unwrap()["spec"]["template"]["spec"]["containers"][0]["image"] =
                json!("rancher/hardened-calico:v3.30.0@sha256:00");
        }),
        ("there is no image \"mystery\" of ours", |facts| {
            facts.typha.as_mut().unwrap()["spec"]["template"]["spec"]["containers"][0]["image"] =
                json!("mystery");
        }),
    ];
    for (expected, spoil) in cases {
        let mut facts = calico("v3.32.1");
        spoil(&mut facts);
        let found = plan(&facts, &request());
        assert!(
            found.refusals.iter().any(|reason| reason.contains(expected)),
            "{expected}: {:?}",
            found.refusals
        );
        assert!(found.steps.is_empty());
    }
    let mut facts = calico("v3.32.1");
    facts.has_operator = true;
    facts.daemon_set.as_mut().unwrap()["metadata"]["annotations"] =
        json!({"unsupported.operator.tigera.io/ignore": "true"});
    assert!(plan(&facts, &request()).refusals.is_empty());
}
