//! Our own API.

use crate::world::{NOW, World, key};
use flows::Reporter;
use http::StatusCode;
use serde_json::{Value, json};

#[tokio::test]
async fn flows_have_all_known_fields() {
    let (status, answer) = World::shop().json("/api/v1/flows?sortBy=SourceName").await;
    assert_eq!(status, StatusCode::OK);
    let first = &answer["items"][0];
    assert_eq!((&first["source_name"], &first["would"]), (&json!("probe"), &json!("Deny")));
    assert_eq!(
        (&first["source_type"], &first["connections_started"]),
        (&json!("WorkloadEndpoint"), &json!(3))
    );
    assert!(first["id"].is_u64());
    assert!(answer["items"][1].get("would").is_none(), "nothing else would happen");
}

#[tokio::test]
async fn the_graph_counts_a_connection_once() {
    let (_, graph) = World::shop().json("/api/v1/graph").await;
    let nodes: Vec<String> = graph["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| format!("{}/{}", node["namespace"].as_str().unwrap(), node["name"].as_str().unwrap()))
        .collect();
    assert_eq!(nodes, ["Global/PUBLIC NETWORK", "ops/probe", "shop/db", "shop/web-*"]);
    let edge = |from: usize, to: usize| -> Value {
        let edges = graph["edges"].as_array().unwrap();
        edges.iter().find(|edge| edge["from"] == from && edge["to"] == to).unwrap().clone()
    };
    let denied = edge(3, 2);
    // The source's end let it pass, the destination's did not: it was denied, and none of it passed.
    assert_eq!((&denied["deny"]["packets"], &denied["allow"]["packets"]), (&json!(21), &json!(0)));
    assert_eq!(denied["ports"], json!(["tcp/5432"]));
    assert_eq!(edge(1, 3)["would_deny"]["packets"], json!(3));
    assert!(edge(0, 3).get("deny").is_none());
    assert_eq!((&graph["collapsed"], &graph["left_out"]), (&json!(false), &json!(0)));
}

#[tokio::test]
async fn a_large_graph_shows_namespaces_and_counts_what_it_leaves_out() {
    let world = World::empty();
    for number in 0..40 {
        let from = format!("team{}/pod{number}", number % 4);
        world.add(&key(&from, "shop/web", 80, Reporter::Dst, &[], &[]), NOW - 30, number + 1);
    }
    let (_, graph) = world.json("/api/v1/graph?most=10").await;
    let named =
        |graph: &Value| graph["nodes"].as_array().unwrap().iter().filter(|node| node["name"] != "").count();
    assert_eq!((graph["nodes"].as_array().unwrap().len(), named(&graph)), (5, 0));
    assert_eq!(graph["collapsed"], true);
    let (_, graph) = world.json("/api/v1/graph?most=20&open=team1").await;
    assert_eq!((graph["nodes"].as_array().unwrap().len(), named(&graph)), (14, 10));
    let (_, graph) = world.json("/api/v1/graph?most=10&level=workload").await;
    assert_eq!((&graph["left_out"], graph["nodes"].as_array().unwrap().len()), (&json!(31), 10));
    let (status, _) = world.json("/api/v1/graph?level=planet").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn the_board_has_tiers_in_order_and_staged_policies_beside_others() {
    let (_, board) = World::shop().json("/api/v1/board").await;
    let tiers: Vec<&str> =
        board["tiers"].as_array().unwrap().iter().map(|tier| tier["name"].as_str().unwrap()).collect();
    assert_eq!(tiers, ["platform", "default", ""], "profiles are last");
    let default = &board["tiers"][1];
    let policies = default["policies"].as_array().unwrap();
    let policy = |name: &str| policies.iter().find(|policy| policy["name"] == name).unwrap();
    assert_eq!(policy("web")["allowed"]["packets"], 30);
    assert_eq!(
        (&policy("tried")["staged"], &policy("tried")["denied"]["packets"]),
        (&json!(true), &json!(3))
    );
    assert_eq!(
        policy("db")["rules"][0],
        json!({
            "direction": "ingress", "rule": -1,
            "allowed": {"bytes": 0, "packets": 0, "connections": 0},
            "denied": {"bytes": 7700, "packets": 21, "connections": 3},
            "passed": {"bytes": 0, "packets": 0, "connections": 0},
        })
    );
    assert_eq!(default["end"]["denied"]["packets"], 21);
    assert_eq!(board["tiers"][0]["policies"][0]["passed"]["packets"], 30);
}

#[tokio::test]
async fn top_talkers() {
    let world = World::shop();
    let (_, top) = world.json("/api/v1/top?of=source&by=packets").await;
    let first = &top["items"][0];
    assert_eq!((&first["source"], &first["allow"]["packets"]), (&json!("Global/PUBLIC NETWORK"), &json!(30)));
    let (_, top) = world.json("/api/v1/top?by=denied").await;
    assert_eq!(top["items"].as_array().unwrap().len(), 1);
    assert_eq!(top["items"][0]["dest"], "shop/db");
    let (_, top) = world.json("/api/v1/top?of=port&n=1").await;
    assert_eq!(top["items"][0]["port"], "tcp/80");
    assert_eq!(world.json("/api/v1/top?by=colour").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn losses_and_age_are_reported() {
    let world = World::shop();
    let (_, status) = world.json("/api/v1/status").await;
    assert_eq!((&status["losses"], &status["problem"]), (&json!([]), &Value::Null));
    assert_eq!((&status["received"], &status["keys"]), (&json!(4), &json!(4)));
    assert!(status["age"].is_u64());
    world.add(&key("a/b", "c/d", 1, Reporter::Dst, &[], &[]), NOW - 9999, 1);
    let (_, status) = world.json("/api/v1/status").await;
    assert_eq!(status["losses"], json!([{"what": "flows outside of the kept hour", "count": 1}]));
    assert_eq!(World::empty().json("/api/v1/status").await.1["age"], Value::Null);
}
