//! Tests of names, addresses, templates and steps.

use super::*;
use serde_json::json;

fn node(json: serde_json::Value) -> NodeFacts {
    NodeFacts::of(&serde_json::from_value(json).expect("a node"))
}

fn worker() -> NodeFacts {
    node(json!({
        "kind": "Node", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "worker", "labels": {"zone": "a", "role": "edge"}},
        "spec": {
            "bgp": {"ipv4Address": "172.16.1.1/24", "ipv6Address": "fe80::1", "ipv4IPIPTunnelAddr": "192.168.100.1"},
            "ipv4VXLANTunnelAddr": "192.168.200.1",
            "wireguard": {"interfaceIPv4Address": "192.168.210.1"},
            "addresses": [
                {"address": "172.16.1.1", "type": "InternalIP"},
                {"address": "172.16.2.1", "type": "InternalIP"},
                {"address": "203.0.113.1", "type": "ExternalIP"},
            ],
            "interfaces": [
                {"name": "eth0", "addresses": ["172.16.1.1"]},
                {"name": "eth1", "addresses": ["10.9.0.1", "no address"]},
            ],
        },
    }))
}

fn config(templates: serde_json::Value) -> HostEndpointsConfig {
    HostEndpointsConfig {
        auto_create: true,
        create_default: false,
        templates: serde_json::from_value(templates).expect("templates"),
    }
}

fn told(endpoints: &BTreeMap<String, HostEndpoint>) -> Vec<String> {
    endpoints
        .iter()
        .map(|(name, endpoint)| {
            let ips: Vec<&str> = endpoint.spec.expected_ips.iter().map(api::scalars::Ip::as_str).collect();
            format!("{name} {:?} {}", endpoint.spec.interface_name, ips.join(","))
        })
        .collect()
}

#[test]
fn the_default_endpoint_has_all_addresses_once() {
    let config = HostEndpointsConfig { auto_create: true, create_default: true, templates: Vec::new() };
    let endpoints = desired(&config, &worker()).expect("endpoints");
    assert_eq!(
        told(&endpoints),
        [
            "worker-auto-hep \"*\" 172.16.1.1,fe80::1,192.168.100.1,192.168.200.1,192.168.210.1,172.16.2.1,10.9.0.1"
        ]
    );
    let endpoint = &endpoints["worker-auto-hep"];
    assert!(is_ours(endpoint));
    assert_eq!(endpoint.metadata.labels.len(), 3);
    assert_eq!(endpoint.spec.profiles, ["projectcalico-default-allow"]);
    let off = HostEndpointsConfig { auto_create: false, ..config };
    assert!(desired(&off, &worker()).expect("nothing").is_empty());
}

#[test]
fn templates_choose_nodes_networks_and_interfaces() {
    let templates = json!([
        {"generateName": "cidr", "interfaceCIDRs": ["172.16.0.0/16"], "nodeSelector": "zone == 'a'",
         "labels": {"role": "mine"}, "annotations": {"why": "because"}},
        {"generateName": "elsewhere", "interfaceCIDRs": ["172.16.0.0/16"], "nodeSelector": "zone == 'b'"},
        {"generateName": "nothing", "interfaceCIDRs": ["8.0.0.0/8"], "nodeSelector": "all()"},
        {"generateName": "pattern", "interfacePattern": "eth.*", "nodeSelector": ""},
        {"generateName": "both", "interfacePattern": "^eth1$", "interfaceCIDRs": ["192.168.100.0/24"]},
    ]);
    let endpoints = desired(&config(templates), &worker()).expect("endpoints");
    assert_eq!(
        told(&endpoints),
        [
            "worker-both-eth1-auto-hep \"eth1\" 192.168.100.1,10.9.0.1",
            "worker-cidr-auto-hep \"\" 172.16.1.1,172.16.2.1",
            "worker-pattern-eth0-auto-hep \"eth0\" 172.16.1.1",
            "worker-pattern-eth1-auto-hep \"eth1\" 10.9.0.1",
        ]
    );
    let endpoint = &endpoints["worker-cidr-auto-hep"];
    assert_eq!(
        (endpoint.metadata.labels["role"].as_str(), endpoint.metadata.labels["zone"].as_str()),
        ("mine", "a")
    );
    assert_eq!(endpoint.metadata.annotations.len(), 1);
}

#[test]
fn an_unusable_template_changes_nothing() {
    for template in [
        json!([{"generateName": "x", "interfacePattern": "(", "nodeSelector": ""}]),
        json!([{"generateName": "x", "interfacePattern": "a", "nodeSelector": "zone =="}]),
        json!([{"generateName": "x", "interfaceCIDRs": ["what"]}]),
    ] {
        assert!(desired(&config(template), &worker()).is_err());
    }
}

#[test]
fn long_names_become_hashes() {
    let long = "n".repeat(250);
    let hashed = name(&[&long]);
    assert!(hashed.len() < 64 && hashed.ends_with("-auto-hep"), "{hashed}");
    assert_ne!(hashed, name(&[&long, "t"]));
    assert!(hashed.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
    assert_eq!(name(&["n", "t", "eth0"]), "n-t-eth0-auto-hep");
}

#[test]
fn steps_lead_from_the_actual_to_the_desired_endpoints() {
    let config = HostEndpointsConfig { auto_create: true, create_default: true, templates: Vec::new() };
    let wanted = desired(&config, &worker()).expect("endpoints");
    assert!(matches!(&steps(wanted.clone(), &BTreeMap::new())[..], [Step::Create(_)]));
    let mut actual = wanted.clone();
    let stored = actual.get_mut("worker-auto-hep").expect("the endpoint");
    stored.metadata.uid = "u".to_owned();
    stored.metadata.resource_version = "5".to_owned();
    assert!(steps(wanted.clone(), &actual).is_empty());
    actual.get_mut("worker-auto-hep").expect("the endpoint").spec.expected_ips.pop();
    match &steps(wanted, &actual)[..] {
        [Step::Update(endpoint)] => {
            assert_eq!(
                (endpoint.metadata.uid.as_str(), endpoint.metadata.resource_version.as_str()),
                ("u", "5")
            );
            assert_eq!(endpoint.spec.expected_ips.len(), 7);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(&steps(BTreeMap::new(), &actual)[..], [Step::Delete(_)]));
}
