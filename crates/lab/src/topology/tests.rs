//! Plans from wishes, and impossible wishes.

use super::*;

#[test]
fn the_default_is_three_nodes_in_two_subnets() {
    let topology = plan("lab", &Wish::default()).unwrap();
    let nodes: Vec<_> = topology.nodes.iter().map(|node| (node.name.as_str(), node.subnet)).collect();
    assert_eq!(nodes, [("node1", 0), ("node2", 0), ("node3", 1)]);
    assert_eq!(topology.nodes[2].v4.unwrap().to_string(), "10.65.1.3/24");
    assert_eq!(topology.nodes[2].v6, None);
    assert_eq!(topology.pods.len(), 6);
    assert_eq!(topology.pods[3].full_name(), "billing/ledger");
    assert_eq!(topology.pods[3].node, "node1");
    assert_eq!(topology.server_address().to_string(), "10.65.0.254");
    assert_eq!(plan("lab", &Wish::default()).unwrap(), topology, "the same wish, the same plan");
}

#[test]
fn nodes_with_requested_subnets() {
    let wish = Wish {
        node_cidr: Some("10.0.0.0/24".into()),
        node_prefix: Some(32),
        mtu: Some(1460),
        service_cidr: Some("192.168.8.0/24".into()),
        subnets: Some(1),
        ..Wish::default()
    };
    let topology = plan("lab", &wish).unwrap();
    assert_eq!(topology.nodes[2].v4.unwrap().to_string(), "10.0.0.3/32");
    assert_eq!(topology.router_addresses(0)[0].to_string(), "10.0.0.254/24");
    assert_eq!((topology.mtu, topology.service_cidr.map(|range| range.prefix_len())), (Some(1460), Some(24)));
}

#[test]
fn many_pods_have_names_of_their_own() {
    let topology = plan("lab", &Wish { pod_count: Some(20), ..Wish::default() }).unwrap();
    let names: BTreeSet<_> = topology.pods.iter().map(Pod::full_name).collect();
    assert_eq!(names.len(), 20);
    assert!(names.contains("shop/frontend-2"));
}

#[test]
fn one_node_has_one_subnet() {
    let wish = Wish { node_count: Some(1), family: Some(Families::V6), ..Wish::default() };
    let topology = plan("lab", &wish).unwrap();
    assert_eq!((topology.subnets, topology.nodes[0].v4), (1, None));
    assert_eq!(topology.server_address().to_string(), "fd65::fe");
}

#[test]
fn impossible_wishes_get_a_one_sentence_error() {
    let node = |name: &str, subnet| NodeWish { name: name.to_owned(), subnet, ..NodeWish::default() };
    let pod = |name: &str, node: Option<&str>| PodWish {
        name: name.to_owned(),
        node: node.map(str::to_owned),
        ..PodWish::default()
    };
    let cases: Vec<(&str, Wish, &str)> = vec![
        ("Lab", Wish::default(), "cannot be the name of a lab"),
        ("../../etc", Wish::default(), "cannot be the name of a lab"),
        ("lab", Wish { node_count: Some(0), ..Wish::default() }, "0 nodes: a lab has 1 to 32"),
        ("lab", Wish { node_count: Some(1000), ..Wish::default() }, "1000 nodes"),
        ("lab", Wish { pod_count: Some(100_000), ..Wish::default() }, "100000 pods"),
        ("lab", Wish { subnets: Some(4), ..Wish::default() }, "4 subnets for 3 nodes:"),
        (
            "lab",
            Wish { nodes: vec![node("a", None), node("a", None)], ..Wish::default() },
            "two nodes named 'a'",
        ),
        (
            "lab",
            Wish { nodes: vec![node("a", Some(7))], subnets: Some(1), ..Wish::default() },
            "subnets 0 to 0",
        ),
        ("lab", Wish { nodes: vec![node("a", Some(usize::MAX))], ..Wish::default() }, "subnets: a lab has"),
        ("lab", Wish { nodes: vec![node("a b", None)], ..Wish::default() }, "name of a node"),
        ("lab", Wish { pods: vec![pod("x", Some("nowhere"))], ..Wish::default() }, "node 'nowhere'"),
        ("lab", Wish { pods: vec![pod("x", None), pod("x", None)], ..Wish::default() }, "two pods"),
        (
            "lab",
            Wish { encap: Some(Encap::Ipip), family: Some(Families::Dual), ..Wish::default() },
            "IP in IP carries IPv4 only",
        ),
        ("lab", Wish { pod_cidr: Some("10.0.0.0/8".into()), ..Wish::default() }, "overlaps the nodes"),
        ("lab", Wish { pod_cidr: Some("10.65.3.0/24".into()), ..Wish::default() }, "overlaps the nodes"),
        ("lab", Wish { pod_cidr: Some("172.16.0.1/16".into()), ..Wish::default() }, "not an IPv4 range"),
        ("lab", Wish { pod_cidr: Some("fd00::/48".into()), ..Wish::default() }, "not an IPv4 range"),
        ("lab", Wish { block_size: Some(12), ..Wish::default() }, "do not fit"),
        (
            "lab",
            Wish { node_cidr: Some("10.0.0.0/24".into()), ..Wish::default() },
            "not an IPv4 range for nodes in 2 subnets",
        ),
        (
            "lab",
            Wish { node_cidr: Some("10.0.0.1/16".into()), ..Wish::default() },
            "not an IPv4 range for nodes",
        ),
        ("lab", Wish { node_cidr: Some("172.16.0.0/16".into()), ..Wish::default() }, "overlaps the nodes"),
        ("lab", Wish { node_prefix: Some(16), ..Wish::default() }, "cannot be a /16"),
        ("lab", Wish { mtu: Some(100), ..Wish::default() }, "MTU of 100"),
        (
            "lab",
            Wish { service_cidr: Some("10.0.0.0/8".into()), ..Wish::default() },
            "not a range for services",
        ),
        ("lab", Wish { service_cidr: Some("here".into()), ..Wish::default() }, "not a range for services"),
    ];
    for (name, wish, expected) in cases {
        let error = plan(name, &wish).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error} should say {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn labels_of_a_command_line() {
    let labels = parse_labels("app=web,tier=").unwrap();
    assert_eq!(labels.get("tier").map(String::as_str), Some(""));
    assert!(parse_labels("app").is_err() && parse_labels("=x").is_err());
    assert!(parse_labels("").unwrap().is_empty());
}

#[test]
fn labels_that_kubernetes_would_refuse() {
    let nodes = plan("lab", &Wish::default()).unwrap().nodes;
    for (text, expected) in [
        ("a=b c", "'a=b c' is not a label"),
        ("a b=c", "'a b=c' is not a label"),
        ("a=b/c", "must start and end"),
    ] {
        let wish =
            PodWish { name: "x".to_owned(), labels: parse_labels(text).unwrap(), ..PodWish::default() };
        let error = plan_pod(&wish, &nodes, 0).expect_err(text).to_string();
        assert!(error.contains(expected), "{error} should say {expected}");
    }
    let labels = parse_labels("app.kubernetes.io/name=web,tier=").unwrap();
    assert!(plan_pod(&PodWish { name: "x".to_owned(), labels, ..PodWish::default() }, &nodes, 0).is_ok());
}
