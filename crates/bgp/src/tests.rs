//! Behaviour that the captures of Calico do not show, especially where we differ from it.

use crate::intent::{FilterName, Intent, Remote, Session, SessionKind, SessionName};
use crate::{BgpState, Settings};
use api::{Kind, Resource};
use model::ResourceKey;
use serde_json::{Value, json};

fn resource(kind: &str, name: &str, object: &Value) -> (ResourceKey, Resource) {
    let mut document =
        json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}});
    for (field, value) in object.as_object().expect("fields") {
        document[field] = value.clone();
    }
    let kind = Kind::from_name(kind).expect("a kind");
    let resource = Resource::from_value(kind, document).expect("a resource");
    (ResourceKey { kind, namespace: String::new(), name: name.to_owned() }, resource)
}

struct World(BgpState);

impl World {
    fn new(settings: Settings) -> Self {
        Self(BgpState::new(Settings { node: "n1".into(), ..settings }))
    }

    fn with(mut self, kind: &str, name: &str, spec: &Value) -> Self {
        let (key, resource) = resource(kind, name, &json!({"spec": spec}));
        assert!(self.0.set_resource(&key, Some(&resource)));
        self
    }

    fn nodes(self, first: &Value, second: &Value) -> Self {
        let bgp = |address: &str, more: &Value| {
            let mut bgp = json!({"ipv4Address": address});
            for (field, value) in more.as_object().expect("fields") {
                bgp[field] = value.clone();
            }
            json!({"bgp": bgp})
        };
        self.with("Node", "n1", &bgp("10.65.0.1/24", first)).with("Node", "n2", &bgp("10.65.0.2/24", second))
    }

    fn intent(mut self) -> Intent {
        (*self.0.intent().expect("an intent")).clone()
    }
}

fn two_nodes() -> World {
    World::new(Settings::default()).nodes(&json!({}), &json!({}))
}

fn session(intent: &Intent, kind: SessionKind, address: &str, port: Option<u16>) -> Session {
    let name = SessionName::of(kind, &Remote::address(address.parse().expect("an address")), port);
    intent
        .v4
        .sessions
        .get(&name)
        .unwrap_or_else(|| panic!("{name} in {:?}", intent.v4.sessions.keys()))
        .clone()
}

fn problems(intent: &Intent) -> Vec<String> {
    intent.problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_mesh_peer_without_as_number_has_the_clusters() {
    let world = World::new(Settings::default()).nodes(&json!({"asNumber": 65001}), &json!({}));
    let intent = world.with("BGPConfiguration", "default", &json!({"asNumber": 64999})).intent();
    let peer = session(&intent, SessionKind::Mesh, "10.65.0.2", None);
    assert_eq!((peer.local_as.0, peer.peer_as.0), (65001, 64999));
}

#[test]
fn a_port_is_compared_with_the_one_that_the_node_listens_on() {
    let world = |port: u16| {
        two_nodes()
            .with("BGPConfiguration", "default", &json!({"listenPort": 1790, "nodeToNodeMeshEnabled": false}))
            .with("BGPConfiguration", "node.n1", &json!({"listenPort": 1791}))
            .with(
                "BGPPeer",
                "to-us",
                &json!({
                    "node": "n2", "peerIP": format!("10.65.0.1:{port}"), "asNumber": 64512,
                }),
            )
    };
    let reverse = session(&world(1791).intent(), SessionKind::Node, "10.65.0.2", Some(1790));
    assert_eq!(reverse.origin.to_string(), "reverse of BGPPeer to-us");
    assert_eq!(world(1790).intent().sessions().count(), 0);
}

#[test]
fn a_peer_that_cannot_be_understood_is_left_out_alone() {
    let intent = two_nodes()
        .with("BGPPeer", "a-no-as", &json!({"peerIP": "192.0.2.1"}))
        .with("BGPPeer", "b-no-address", &json!({"peerIP": "nowhere", "asNumber": 65000}))
        .with(
            "BGPPeer",
            "c-selector",
            &json!({"nodeSelector": "what is this", "peerIP": "192.0.2.2", "asNumber": 1}),
        )
        .with("BGPPeer", "d-family", &json!({"peerIP": "192.0.2.3", "asNumber": 1, "reachableBy": "fd00::1"}))
        .with("BGPPeer", "good", &json!({"peerIP": "192.0.2.9", "asNumber": 65000}))
        .intent();
    session(&intent, SessionKind::Global, "192.0.2.9", None);
    assert_eq!(intent.sessions().count(), 2, "and the mesh");
    let problems = problems(&intent);
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert_eq!(problems[0], "BGPPeer a-no-as is left out: asNumber is missing");
}

#[test]
fn a_filter_of_a_newer_release_lets_nothing_pass() {
    let rules = json!({"importV4": [{"action": "Accept", "phaseOfTheMoon": "full"}]});
    let peer = json!({"peerIP": "192.0.2.1", "asNumber": 65000, "filters": ["odd", "gone"]});
    let intent = two_nodes().with("BGPFilter", "odd", &rules).with("BGPPeer", "tor", &peer).intent();
    let session = session(&intent, SessionKind::Global, "192.0.2.1", None);
    let rules: Vec<_> = session.import_rules().map(|(_, rule)| rule.clone()).collect();
    assert_eq!(rules, [crate::intent::FilterRule::all(crate::intent::Action::Reject)]);
    assert!(session.export.is_empty(), "it has no rules for what is sent");
    assert!(intent.filters.contains_key(&FilterName("odd".to_owned())));
    assert_eq!(
        problems(&intent),
        [
            "BGPPeer tor: BGPFilter gone was not found",
            "BGPFilter odd cannot be applied and rejects all routes: field 'phaseOfTheMoon' is unknown",
        ]
    );
}

#[test]
fn ranges_of_kubernetes_stand_for_blocks() {
    let mut world = World::new(Settings { use_pod_cidr: true, ..Settings::default() });
    let node = json!({"spec": {"bgp": {"ipv4Address": "10.65.0.1/24"}}, "status": {"podCIDRs": ["10.66.1.0/24", "fd66::/64"]}});
    let (key, node) = resource("Node", "n1", &node);
    world.0.set_resource(&key, Some(&node));
    let intent = world.intent();
    assert_eq!(
        intent.v4.export.originated().map(|prefix| prefix.to_string()).collect::<Vec<_>>(),
        ["10.66.1.0/24"]
    );
    assert_eq!(
        intent.v6.export.originated().map(|prefix| prefix.to_string()).collect::<Vec<_>>(),
        ["fd66::/64"]
    );
}

#[test]
fn services_and_router_ids_from_the_environment() {
    let settings = Settings {
        advertise_cluster_ips: Some("10.112.0.0/12".to_owned()),
        router_id: "not an address".to_owned(),
        ..Settings::default()
    };
    let configuration = json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]});
    let world = World::new(settings).nodes(&json!({}), &json!({}));
    let intent = world.with("BGPConfiguration", "default", &configuration).intent();
    assert_eq!(intent.v4.kernel.services, ["10.112.0.0/12".parse::<crate::Prefix>().expect("a network")]);
    assert_eq!(intent.router_id.to_string(), "10.65.0.1");
    assert_eq!(
        problems(&intent),
        ["CALICO_ROUTER_ID: 'not an address' is neither an IPv4 address nor 'hash'"]
    );
}

#[test]
fn an_irrelevant_change_leaves_the_intent_alone() {
    let mut world = two_nodes();
    let before = world.0.intent().expect("an intent");
    let object = json!({
        "metadata": {"name": "n2", "annotations": {"heartbeat": "now"}},
        "spec": {"bgp": {"ipv4Address": "10.65.0.2/24", "ipv4IPIPTunnelAddr": "10.66.2.1"}},
    });
    let (key, node) = resource("Node", "n2", &object);
    world.0.set_resource(&key, Some(&node));
    assert!(std::sync::Arc::ptr_eq(&before, &world.0.intent().expect("an intent")));
}

/// Features requested by our annotations, beside Calico's fields.
#[test]
fn annotations_request_what_calico_has_no_fields_for() {
    let mut world = two_nodes();
    let mut put = |kind: &str, name: &str, annotations: &Value, spec: &Value| {
        let object = json!({"metadata": {"name": name, "annotations": annotations}, "spec": spec});
        let (key, resource) = resource(kind, name, &object);
        assert!(world.0.set_resource(&key, Some(&resource)));
    };
    let tor = json!({"asNumber": 65001});
    put("BGPConfiguration", "default", &json!({"tortie/bfd": "multihop"}), &json!({}));
    put("BGPPeer", "by-link", &json!({"tortie/interface": "eth1", "tortie/bfd": "true"}), &tor);
    put("BGPPeer", "by-network", &json!({"tortie/range": "10.7.0.0/24"}), &tor);
    put(
        "BGPPeer",
        "link-local",
        &json!({"tortie/interface": "eth2"}),
        &json!({"peerIP": "fe80::7", "asNumber": 65001}),
    );
    put("BGPPeer", "mistaken", &json!({"tortie/range": "10.7.0.0/99"}), &tor);
    put(
        "BGPPeer",
        "no-link",
        &json!({"tortie/interface": "eth3"}),
        &json!({"peerIP": "10.9.9.9", "asNumber": 65001}),
    );
    let intent = world.intent();
    let mesh = session(&intent, SessionKind::Mesh, "10.65.0.2", None);
    assert_eq!(mesh.bfd.and_then(|bfd| bfd.multihop), Some(true));
    let shown = |sessions: &std::collections::BTreeMap<SessionName, Session>| -> Vec<String> {
        let line =
            |session: &Session| format!("{} {} {}", session.name, session.remote, session.bfd.is_some());
        sessions.values().map(line).collect()
    };
    // The node has no IPv6 address, and does not need one for these.
    assert_eq!(
        shown(&intent.v6.sessions),
        ["Global_eth1 eth1 true", "Global_fe80__7_eth2 fe80::7%eth2 false"]
    );
    assert_eq!(shown(&intent.v4.sessions)[0], "Global_10_7_0_0_24 10.7.0.0/24 false");
    assert_eq!(
        problems(&intent),
        [
            "BGPPeer mistaken is left out: its annotations do not identify the peer",
            "BGPPeer no-link is left out: 10.9.9.9 is not a link-local address: it needs no tortie/interface",
            "BGPPeer mistaken: tortie/range: '10.7.0.0/99' is not a network",
        ]
    );
}
