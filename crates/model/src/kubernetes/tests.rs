//! Conversions as tables in `tests/data/kubernetes`: some cases were captured from a cluster that runs Calico, the
//! others were written by hand.

use super::*;
use crate::value::Value as Stored;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

const PODS: &str = include_str!("../../tests/data/kubernetes/pods.json");
const NODES: &str = include_str!("../../tests/data/kubernetes/nodes.json");
const PROFILES: &str = include_str!("../../tests/data/kubernetes/profiles.json");
const POLICIES: &str = include_str!("../../tests/data/kubernetes/policies.json");

fn table(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

/// Applies a JSON merge patch: objects are merged, `null` removes.
fn merged(base: &Value, patch: &Value) -> Value {
    let (Value::Object(base), Value::Object(patch)) = (base, patch) else { return patch.clone() };
    let mut result: Map<String, Value> = base.clone();
    for (name, value) in patch {
        if value.is_null() {
            result.remove(name);
        } else {
            let below = result.get(name).cloned().unwrap_or_else(|| json!({}));
            result.insert(name.clone(), merged(&below, value));
        }
    }
    Value::Object(result)
}

fn as_json(converted: &Converted) -> Value {
    let Stored::Resource(resource) = &converted.pair.value else { panic!("no resource") };
    assert_eq!(converted.pair.revision, resource.metadata().resource_version);
    serde_json::to_value(resource).unwrap()
}

/// Compares an outcome with what the case expects: `expected`, or an `error` that contains this text.
fn check(case: &Value, outcome: Result<Converted, ConversionError>, expected: Option<Value>) {
    let name = case["case"].as_str().unwrap();
    match (outcome, case["error"].as_str()) {
        (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{name}: {error}"),
        (Err(error), None) => panic!("{name}: {error}"),
        (Ok(converted), Some(text)) => {
            panic!("{name}: converted to {converted:?} instead of failing with {text}")
        }
        (Ok(converted), None) => {
            assert_eq!(as_json(&converted), expected.unwrap(), "{name}");
            let problems = case["problems"].as_u64().unwrap_or(0);
            assert_eq!(converted.problems.len() as u64, problems, "{name}: {:?}", converted.problems);
        }
    }
}

#[test]
fn pods_become_endpoints() {
    let table = table(PODS);
    let base = &table["base"];
    for case in table["cases"].as_array().unwrap() {
        let pod: api::kubernetes::Pod = read(&merged(&base["pod"], &case["pod"]));
        let expected = case.get("endpoint").map(|endpoint| merged(&base["endpoint"], endpoint));
        check(case, pod::workload_endpoint(&pod, "cali"), expected);
    }
    for case in table["captured"].as_array().unwrap() {
        check(case, pod::workload_endpoint(&read(&case["pod"]), "cali"), Some(case["endpoint"].clone()));
    }
}

#[test]
fn only_pods_with_a_network_of_their_own_are_endpoints() {
    for (spec, expected) in [
        (json!({"nodeName": "n"}), true),
        (json!({}), false),
        (json!({"nodeName": "n", "hostNetwork": true}), false),
    ] {
        assert_eq!(pod::is_workload_endpoint(&read(&json!({"spec": spec}))), expected, "{spec}");
    }
}

#[test]
fn the_plugins_patches() {
    let mut endpoint = api::WorkloadEndpoint::default();
    assert_eq!(pod::addresses_patch(&endpoint), json!({"metadata": {}}));
    endpoint.spec.ip_networks = vec!["10.0.0.1/32".into(), "fd00::1/128".into()];
    endpoint.spec.container_id = "abc".to_owned();
    endpoint.metadata.uid = "u".to_owned();
    let expected = json!({"metadata": {"uid": "u", "annotations": {
        "cni.projectcalico.org/podIP": "10.0.0.1/32",
        "cni.projectcalico.org/podIPs": "10.0.0.1/32,fd00::1/128",
        "cni.projectcalico.org/containerID": "abc",
    }}});
    assert_eq!(pod::addresses_patch(&endpoint), expected);
    let emptied = json!({"cni.projectcalico.org/podIP": "", "cni.projectcalico.org/podIPs": ""});
    assert_eq!(pod::addresses_removed_patch(None, None), json!({"metadata": {"annotations": emptied}}));
    assert_eq!(
        pod::addresses_removed_patch(Some("5"), Some("u")),
        json!({"metadata": {"annotations": emptied, "resourceVersion": "5", "uid": "u"}})
    );
}

#[test]
fn nodes_become_nodes() {
    let table = table(NODES);
    let base = &table["base"];
    for case in table["cases"].as_array().unwrap() {
        let use_pod_cidr = case["usePodCIDR"].as_bool().unwrap_or(false);
        let outcome = node::calico_node(&read(&merged(&base["node"], &case["node"])), use_pod_cidr);
        check(case, outcome, case.get("calico").map(|calico| merged(&base["calico"], calico)));
    }
    for case in table["captured"].as_array().unwrap() {
        check(case, node::calico_node(&read(&case["node"]), false), Some(case["calico"].clone()));
    }
}

#[test]
fn a_node_that_was_read_is_written_back_unchanged() {
    let table = table(NODES);
    let base = &table["base"]["node"];
    let mut round_trips = 0;
    for case in table["cases"].as_array().unwrap() {
        let clean = case["problems"].is_null() && case["usePodCIDR"].is_null() && case["error"].is_null();
        if !clean {
            continue;
        }
        let kubernetes: api::kubernetes::Node = read(&merged(base, &case["node"]));
        let converted = node::calico_node(&kubernetes, false).unwrap();
        let Stored::Resource(Resource::Node(calico)) = converted.pair.value else { panic!("no node") };
        let mut annotations = kubernetes.metadata.annotations.clone();
        // As in Calico, a label that Kubernetes also has is shadowed, and lost when the node is written back.
        if let Some(labels) = annotations.get_mut("projectcalico.org/labels") {
            *labels = r#"{"mine":"1"}"#.to_owned();
        }
        let expected = annotations.clone();
        annotations.insert("other/annotation".to_owned(), "stays".to_owned());
        node::write_annotations(&calico, &mut annotations).unwrap();
        assert_eq!(annotations.remove("other/annotation").as_deref(), Some("stays"));
        assert_eq!(annotations, expected, "{}", case["case"]);
        round_trips += 1;
    }
    assert!(round_trips >= 4, "{round_trips}");
}

#[test]
fn an_empty_node_clears_calicos_annotations_only() {
    let case = &table(NODES)["cases"][1];
    let mut annotations: api::meta::StringMap = read(&case["node"]["metadata"]["annotations"]);
    assert!(annotations.len() > 10);
    annotations.insert("kubernetes.io/keep".to_owned(), "1".to_owned());
    node::write_annotations(&api::Node::default(), &mut annotations).unwrap();
    assert_eq!(annotations, api::meta::StringMap::from([("kubernetes.io/keep".to_owned(), "1".to_owned())]));
}

#[test]
fn namespaces_and_service_accounts_become_profiles() {
    for case in table(PROFILES).as_array().unwrap() {
        let outcome = match case.get("namespace") {
            Some(namespace) => profile::namespace_profile(&read(namespace)),
            None => profile::service_account_profile(&read(&case["serviceAccount"])),
        };
        check(case, outcome, Some(case["expected"].clone()));
    }
}

#[test]
fn policies_become_policies() {
    let table = table(POLICIES);
    let metadata = json!({
        "name": "p", "namespace": "shop", "uid": "839cb4d0-b382-4023-a47b-f2e4e4041cb6", "resourceVersion": "5",
        "labels": {"not": "copied"},
    });
    for case in table["networkPolicies"].as_array().unwrap() {
        let input = json!({"metadata": metadata, "spec": case["spec"]});
        let outcome = network_policy::kubernetes_network_policy(&read(&input));
        let expected = json!({
            "kind": "KubernetesNetworkPolicy",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {
                "name": "p", "namespace": "shop", "uid": "c1392d0b-cd41-40c4-a4de-4f272720386d", "resourceVersion": "5",
            },
            "spec": merged(&json!({"tier": "default", "order": 1000}), &case["expected"]),
        });
        check(case, outcome, Some(expected));
    }
    for case in table["clusterNetworkPolicies"].as_array().unwrap() {
        let input = json!({"metadata": {"name": "p", "resourceVersion": "5"}, "spec": case["spec"]});
        let outcome = cluster_network_policy::kubernetes_cluster_network_policy(&read(&input));
        let expected = json!({
            "kind": "KubernetesClusterNetworkPolicy",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "p", "resourceVersion": "5"},
            "spec": case["expected"],
        });
        check(case, outcome, Some(expected));
    }
}

#[test]
fn services_and_slices_are_passed_on() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "5", "managedFields": [{"manager": "x"}]},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "protocol": "TCP"}]},
        "status": {"loadBalancer": {}},
    });
    let converted = service::kubernetes_service(read(&service));
    let expected = json!({
        "kind": "KubernetesService", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "5"},
        "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.9", "ports": [{"port": 80, "protocol": "TCP"}]},
        "status": {"loadBalancer": {}},
    });
    assert_eq!(as_json(&converted), expected);
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-x", "namespace": "shop", "resourceVersion": "6"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}],
    });
    let converted = service::kubernetes_endpoint_slice(read(&slice));
    let expected = json!({
        "kind": "KubernetesEndpointSlice", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "web-x", "namespace": "shop", "resourceVersion": "6"},
        "spec": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
    });
    assert_eq!(as_json(&converted), expected);
}

#[test]
fn migrations_concern_the_network_in_some_phases() {
    let migration = |phase: &str,
                     instance: &str,
                     uid: &str,
                     source: &str|
     -> api::kubernetes::VirtualMachineInstanceMigration {
        read(&json!({
            "metadata": {"name": "m", "namespace": "vms", "uid": uid, "resourceVersion": "8", "labels": {"a": "b"}},
            "spec": {"vmiName": instance},
            "status": {"phase": phase, "migrationState": {"sourcePod": source}},
        }))
    };
    for (phase, expected) in [
        ("Pending", false),
        ("Scheduling", true),
        ("Scheduled", true),
        ("PreparingTarget", true),
        ("TargetReady", true),
        ("Running", true),
        ("Failed", true),
        ("Succeeded", false),
        ("", false),
    ] {
        assert_eq!(live_migration::is_live_migration(&migration(phase, "vm", "u", "")), expected, "{phase}");
    }
    assert!(!live_migration::is_live_migration(&migration("Running", "", "u", "")));
    assert!(!live_migration::is_live_migration(&migration("Running", "vm", "", "")));
    let selector =
        "(vmi.kubevirt.io/id == 'vm' || vm.kubevirt.io/name == 'vm') && kubevirt.io/migrationJobUID == 'u'";
    let expected = json!({
        "kind": "LiveMigration", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "m", "namespace": "vms", "uid": "u", "resourceVersion": "8", "labels": {"a": "b"}},
        "spec": {
            "source": {"workload": {"orchestratorID": "k8s", "workloadID": "vms/pod-1"}},
            "target": {"selector": selector},
        },
    });
    assert_eq!(as_json(&live_migration::live_migration(&migration("Running", "vm", "u", "pod-1"))), expected);
    let early = live_migration::live_migration(&migration("Scheduling", "vm", "u", ""));
    assert_eq!(as_json(&early)["spec"], json!({"target": {"selector": selector}}));
}
