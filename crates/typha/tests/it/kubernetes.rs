//! Typhas behind a service of a real Kubernetes API: which are found, in which order, and how many clients each keeps.

use crate::world::{Raw, World, hello, quick, until};
use daemon::Variables;
use kube_access::KubeAccess;
use model::feed::Status;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use testkit::{ApiServer, Etcd};
use typha::for_tests::{Limits, Rebalancing};
use typha_client::Discovery;
use typha_wire::Message;

fn node(name: &str, zone: &str) -> Value {
    let labels = json!({"topology.kubernetes.io/zone": zone});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

fn slice(name: &str, port_name: &str, endpoints: &[(&str, &str, &str, Option<bool>)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, node, zone, ready)| {
            json!({"addresses": [address], "nodeName": node, "zone": zone, "conditions": {"ready": ready}})
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": name, "namespace": "kube-system", "labels": {"kubernetes.io/service-name": "calico-typha"},
        },
        "addressType": "IPv4", "ports": [{"name": port_name, "port": 5473, "protocol": "TCP"}],
        "endpoints": endpoints,
    })
}

fn apply(server: &ApiServer, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    server.kubectl_with_input(&["apply", "-f", "-"], &list.to_string()).unwrap();
}

async fn found(access: &KubeAccess, node: &str) -> Result<Vec<String>, String> {
    let discovery = Discovery::Service {
        access: Box::new(access.clone()),
        namespace: "kube-system".to_owned(),
        name: "calico-typha".to_owned(),
        node: node.to_owned(),
    };
    let addresses = discovery.find().await.map_err(|error| error.to_string())?;
    Ok(addresses.iter().map(SocketAddr::to_string).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_of_a_service_and_shares_of_clients() {
    let etcd = Etcd::start().unwrap();
    let server = ApiServer::start(&etcd.endpoint()).unwrap();
    let variables = Variables::new([("KUBECONFIG", server.kubeconfig().display().to_string())]);
    let access = KubeAccess::from_environment(&variables).await.unwrap().unwrap();
    assert_eq!(
        found(&access, "n1").await,
        Err("the service kube-system/calico-typha has no ready Typha".to_owned())
    );
    apply(
        &server,
        &[
            node("n1", "a"),
            node("n2", "a"),
            node("n3", "b"),
            slice(
                "one",
                "calico-typha",
                &[("10.0.0.1", "n1", "a", Some(false)), ("10.0.0.2", "n2", "a", Some(true))],
            ),
            slice("two", "calico-typha", &[("10.0.0.3", "n3", "b", None)]),
            slice("metrics", "metrics", &[("10.0.0.9", "n1", "a", Some(true))]),
        ],
    );
    // The one on the client's node is not ready: the one in its zone is next. The node's zone is looked up, because no
    // Typha reports it.
    for _ in 0..6 {
        assert_eq!(found(&access, "n1").await.unwrap(), ["10.0.0.2:5473", "10.0.0.3:5473"]);
        assert_eq!(found(&access, "n3").await.unwrap(), ["10.0.0.3:5473", "10.0.0.2:5473"]);
    }
    assert_eq!(found(&access, "nobody").await.unwrap().len(), 2);

    // Two Typhas and three nodes: with one type of client, each keeps four.
    let rebalancing = Rebalancing {
        access: access.clone(),
        namespace: "kube-system".to_owned(),
        service: "calico-typha".to_owned(),
        port_name: "calico-typha".to_owned(),
        interval: Duration::from_secs(1),
        limits: Limits { lower: 1, upper: 1000 },
    };
    assert_eq!(rebalancing.most(1).await, 4);
    assert_eq!(rebalancing.most(4).await, 16);
    let world = World::start(quick(), None).await;
    world.felix().set_status(Status::InSync);
    let mut clients = Vec::new();
    for _ in 0..6 {
        let mut client = Raw::connect(world.address).await;
        client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
        assert_eq!(client.message().await, "hello felix");
        clients.push(client);
    }
    world.server.as_ref().unwrap().set_most_connections(rebalancing.most(1).await);
    until("two are sent away", || world.connections() == 4).await;
    // A single Typha keeps all clients.
    server.kubectl(&["-n", "kube-system", "delete", "endpointslice", "two"]).unwrap();
    assert_eq!(rebalancing.most(1).await, 1000);
    // If Kubernetes does not answer, no client is dropped.
    drop(server);
    assert_eq!(rebalancing.most(1).await, 1000);
}
