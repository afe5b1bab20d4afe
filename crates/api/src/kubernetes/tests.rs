//! Trimmed objects read Kubernetes' own output, and keep nothing else.

use super::*;

#[test]
fn a_pod_is_read_tolerantly() {
    let pod: Pod = serde_json::from_str(
        r#"{
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-1", "namespace": "shop", "labels": {"app": "web"}, "creationTimestamp": null,
                "managedFields": [{"manager": "kubelet"}]
            },
            "spec": {
                "nodeName": "n1", "serviceAccountName": "default", "initContainers": null, "volumes": [{"name": "v"}],
                "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}]}]
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
        }"#,
    )
    .unwrap();
    assert_eq!(pod.metadata.name, "web-1");
    assert!(pod.metadata.extra.is_empty(), "field owners are dropped");
    assert_eq!(pod.spec.node_name, "n1");
    assert_eq!(pod.spec.containers[0].ports[0].container_port, 80);
    assert_eq!(pod.status.pod_ips[1].ip, "fd00::1");
    assert!(!pod.spec.host_network);
}

#[test]
fn an_absent_selector_is_not_an_empty_one() {
    let policy: NetworkPolicy = serde_json::from_str(
        r#"{"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [
            {"from": [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"a": "b"}}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}],
             "ports": [{"port": "http"}, {"port": 80, "endPort": 90, "protocol": "UDP"}, {"protocol": "SCTP"}]}
        ]}}"#,
    )
    .unwrap();
    let peers = &policy.spec.ingress[0].from;
    assert_eq!(peers[0].pod_selector, Some(LabelSelector::default()));
    assert_eq!(peers[0].namespace_selector, None);
    assert_eq!(peers[1].pod_selector, None);
    assert_eq!(peers[2].ip_block.as_ref().map(|block| block.cidr.as_str()), Some("10.0.0.0/8"));
    let ports: Vec<_> = policy.spec.ingress[0]
        .ports
        .iter()
        .map(|port| port.to_calico().map(|port| port.to_string()))
        .collect();
    assert_eq!(ports, [Some("http".to_owned()), Some("80:90".to_owned()), None]);
}

#[test]
fn a_cluster_policy_is_read() {
    let policy: ClusterNetworkPolicy = serde_json::from_str(
        r#"{"metadata": {"name": "p"}, "spec": {"tier": "Admin", "priority": 10,
            "subject": {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}},
            "egress": [{"name": "r", "action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}],
                "protocols": [{"tcp": {"destinationPort": {"range": {"start": 1, "end": 9}}}}, {"destinationNamedPort": "dns"}]}]
        }}"#,
    )
    .unwrap();
    assert_eq!(policy.spec.tier, "Admin");
    assert!(policy.spec.subject.namespaces.is_none());
    let rule = &policy.spec.egress[0];
    assert_eq!(rule.to[0].networks, ["10.0.0.0/8"]);
    let port = rule.protocols[0].tcp.as_ref().and_then(|tcp| tcp.destination_port.as_ref());
    assert_eq!(port.and_then(|port| port.range.as_ref()).map(|range| (range.start, range.end)), Some((1, 9)));
    assert_eq!(rule.protocols[1].destination_named_port, "dns");
}

#[test]
fn an_endpoint_slice_is_read_from_top_level_fields() {
    let slice = EndpointSlice::from_json(
        br#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web-x"},
            "addressType": "IPv4", "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1"}]}"#,
    )
    .unwrap();
    assert_eq!(slice.metadata.name, "web-x");
    assert_eq!(slice.content.endpoints[0].addresses, ["10.0.0.1"]);
    assert_eq!(slice.content.ports[0].port, Some(80));
    assert!(slice.content.extra.is_empty(), "unknown fields at the top are dropped");
}
