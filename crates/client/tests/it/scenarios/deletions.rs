//! Deletions that delete other objects, too.

use super::pools::{blocks, claims, put_block};
use crate::stores::Store;
use api::*;
use client::{DeleteOptions, Error, ListQuery};
use model::{IpamHandle, Key, KvPair, Value};
use serde_json::json;

pub(super) async fn deleting_a_node_deletes_what_belongs_to_it(store: &dyn Store) {
    let client = store.client();
    let nodes = client.resource::<NodeSpec>();
    if store.is_kubernetes() {
        let outcome = nodes.create(Node::new("", "n1", NodeSpec::default())).await;
        assert!(matches!(outcome, Err(Error::NotSupported { .. })), "nodes are Kubernetes' own: {outcome:?}");
        let outcome = nodes.delete("", "n1", &DeleteOptions::default()).await;
        assert!(matches!(outcome, Err(Error::NotSupported { .. })), "nodes are Kubernetes' own: {outcome:?}");
        return;
    }
    let of = |kind: Kind, namespace: &str, name: &str, spec: serde_json::Value| {
        let value = json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec});
        Resource::from_value(kind, value).expect("an object")
    };
    let endpoint = |node: &str, pod: &str, address: &str| {
        let spec = json!({"orchestrator": "k8s", "node": node, "pod": pod, "endpoint": "eth0",
            "interfaceName": "cali0", "ipNetworks": [address]});
        of(Kind::WorkloadEndpoint, "shop", "", spec)
    };
    // Creating the first node initialises the datastore. The first node's name is a prefix of the other's.
    let objects = [
        of(Kind::Node, "", "n", json!({"ipv4VXLANTunnelAddr": "10.0.0.8"})),
        of(Kind::Node, "", "n-k8s-x", json!({})),
        endpoint("n", "a", "10.0.0.0/32"),
        endpoint("n-k8s-x", "b", "10.0.0.4/32"),
        of(Kind::BGPPeer, "", "own", json!({"node": "n", "peerIP": "192.0.2.1", "asNumber": 64512})),
        of(Kind::BGPPeer, "", "shared", json!({"peerIP": "192.0.2.2", "asNumber": 64512})),
        of(Kind::FelixConfiguration, "", "node.n", json!({})),
        of(Kind::FelixConfiguration, "", "default", json!({})),
        of(Kind::BGPConfiguration, "", "node.n", json!({})),
        of(Kind::HostEndpoint, "", "n-eth0", json!({"node": "n", "interfaceName": "eth0"})),
        of(Kind::HostEndpoint, "", "other", json!({"node": "n-k8s-x", "interfaceName": "eth0"})),
    ];
    for object in objects {
        let label = format!("{}({})", object.kind(), object.name());
        client.create_any(object).await.unwrap_or_else(|error| panic!("{label}: {error}"));
    }
    client.resource::<TierSpec>().get("", "default").await.expect("the datastore is initialised");

    put_block(client, "n", "10.0.0.0/30", Some("net.a")).await;
    put_block(client, "n-k8s-x", "10.0.0.4/30", Some("net.b")).await;
    put_block(client, "n", "10.0.0.8/30", Some("vxlan-tunnel-addr-n")).await;
    put_block(client, "n", "10.0.0.12/30", Some("somebody-else")).await;
    let key = Key::IpamHost { host: "n".into() };
    client.backend().create(&KvPair::new(key.clone(), Value::IpamHost)).await.expect("storing");
    for (handle_id, block) in [("net.a", "10.0.0.0/30"), ("net.b", "10.0.0.4/30")] {
        let handle = IpamHandle { block: [(block.to_owned(), 1)].into(), ..IpamHandle::default() };
        let entry = KvPair::new(Key::IpamHandle { handle_id: handle_id.into() }, Value::IpamHandle(handle));
        client.backend().create(&entry).await.expect("storing");
    }

    nodes.delete("", "n", &DeleteOptions::default()).await.expect("deleting");
    let names = |kind: Kind| async move {
        let list = client.list_any(kind, &ListQuery::all()).await.expect("listing");
        list.items.iter().map(|item| item.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(Kind::Node).await, ["n-k8s-x"]);
    assert_eq!(names(Kind::WorkloadEndpoint).await, ["n--k8s--x-k8s-b-eth0"]);
    assert_eq!(names(Kind::BGPPeer).await, ["shared"]);
    assert_eq!(names(Kind::FelixConfiguration).await, ["default"]);
    assert_eq!(names(Kind::BGPConfiguration).await, Vec::<String>::new());
    assert_eq!(names(Kind::HostEndpoint).await, ["other"]);
    // Blocks without allocated addresses are deleted; one with an address of another node is kept, without an owner.
    let left = blocks(client).await;
    assert_eq!(
        left,
        [("10.0.0.12/30".to_owned(), None), ("10.0.0.4/30".to_owned(), Some("host:n-k8s-x".to_owned()))]
    );
    assert_eq!(claims(client).await, 1);
    assert!(client.backend().get(&key, None).await.is_err_and(|error| error.is_does_not_exist()));
    let handles = client.backend().list(&model::ListOptions::IpamHandle, None).await.expect("listing").items;
    assert_eq!(handles.len(), 1);
    let outcome = nodes.delete("", "n", &DeleteOptions::default()).await;
    assert!(matches!(outcome, Err(Error::DoesNotExist { .. })), "{outcome:?}");
}
