//! Calico's paths, with the same requests and answers.

use crate::world::{NOW, World, key};
use flows::Reporter;
use http::StatusCode;
use serde_json::{Value, json};

fn encoded(filters: &Value) -> String {
    filters.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn names(answer: &Value) -> Vec<String> {
    let items = answer["items"].as_array().into_iter().flatten();
    let text = |flow: &Value, name: &str| flow[name].as_str().unwrap().to_owned();
    items
        .map(|flow| {
            format!("{} {} {}", text(flow, "source_name"), text(flow, "dest_name"), text(flow, "reporter"))
        })
        .collect()
}

#[tokio::test]
async fn a_flow_has_calicos_form() {
    let world = World::empty();
    let trace = ["0|platform|gnp:base|pass|1", "1|default|np:shop/db|deny|-1"];
    world.add(&key("shop/web-*", "-/pvt", 443, Reporter::Src, &trace, &[]), NOW - 30, 4);
    let expected = json!({
        "total": {"totalPages": 1},
        "items": [{
            "start_time": "2023-11-14T22:13:00Z", "end_time": "2023-11-14T22:13:15Z", "action": "Deny",
            "source_name": "web-*", "source_namespace": "shop", "source_labels": "app=web | tier=front",
            "dest_name": "PRIVATE NETWORK", "dest_namespace": "-", "dest_labels": "app=db",
            "protocol": "tcp", "dest_port": 443, "reporter": "Src",
            "policies": {
                "enforced": [
                    {"kind": "GlobalNetworkPolicy", "name": "base", "namespace": "", "tier": "platform", "action": "Pass",
                     "policy_index": 0, "rule_index": 1, "trigger": null},
                    {"kind": "EndOfTier", "name": "", "namespace": "", "tier": "default", "action": "Deny",
                     "policy_index": 1, "rule_index": -1, "trigger":
                        {"kind": "CalicoNetworkPolicy", "name": "db", "namespace": "shop", "tier": "default",
                         "action": "ActionUnspecified", "policy_index": 0, "rule_index": 0, "trigger": null}}
                ],
                "pending": null
            },
            "packets_in": 4, "packets_out": 8, "bytes_in": 400, "bytes_out": 4000
        }]
    });
    for path in ["/flows", "/whisker-backend/flows", "/flows?page=3&pageSize=1", "/flows?watch=false"] {
        assert_eq!(world.json(path).await, (StatusCode::OK, expected.clone()), "{path}");
    }
}

#[tokio::test]
async fn filters_and_orders() {
    let world = World::shop();
    for (filters, expected) in [
        (json!({}), 4),
        (json!({"actions": ["Deny"]}), 1),
        (json!({"pending_actions": ["Deny"]}), 1),
        (json!({"source_names": [{"value": "PUBLIC NETWORK", "type": "Exact"}]}), 1),
        (json!({"source_names": [{"value": "we", "type": "Fuzzy"}]}), 2),
        (json!({"source_names": [{"value": "we", "type": "Exact"}]}), 0),
        (json!({"source_namespaces": [{"value": "Global", "type": "Exact"}]}), 1),
        (json!({"dest_ports": [{"value": 5432, "type": "Exact"}], "reporter": "Dst"}), 1),
        (json!({"policies": [{"kind": "Profile"}]}), 2),
        (json!({"policies": [{"tier": {"value": "default", "type": "Exact"}, "action": "Deny"}]}), 2),
    ] {
        let (status, answer) = world.json(&format!("/flows?filters={}", encoded(&filters))).await;
        assert_eq!((status, names(&answer).len()), (StatusCode::OK, expected), "{filters}");
    }
    let (_, answer) = world.json("/flows?sortBy=SourceName").await;
    assert_eq!(names(&answer)[0], "probe web-* Dst");
    let (_, answer) = world.json("/flows?startTimeGte=-10").await;
    assert_eq!(answer, json!({"total": {"totalPages": 0}, "items": null}), "nothing is null, as in Calico");
}

#[tokio::test]
async fn hints_have_the_form_that_pages_show() {
    let world = World::shop();
    for (query, pages, expected) in [
        ("type=SourceNamespace", 1, vec!["Global", "ops", "shop"]),
        ("type=SourceName", 1, vec!["probe", "PUBLIC NETWORK", "web-*"]),
        ("type=PolicyTier", 1, vec!["default", "platform"]),
        ("type=PolicyKind&pageSize=1&page=1", 3, vec!["GlobalNetworkPolicy"]),
        ("type=DestName&filters=%7B%22actions%22%3A%5B%22Deny%22%5D%7D", 1, vec!["db"]),
        ("type=DestName&startTimeGte=9&filters=%7B%22actions%22%3A%5B%22Pass%22%5D%7D", 0, vec![]),
    ] {
        let items: Vec<Value> = expected.iter().map(|value| json!({"value": value})).collect();
        let expected = json!({"total": {"totalPages": pages}, "items": items});
        assert_eq!(
            world.json(&format!("/flows-filter-hints?{query}")).await,
            (StatusCode::OK, expected),
            "{query}"
        );
    }
}

#[tokio::test]
async fn errors_state_the_reason() {
    let world = World::shop();
    for (path, status, reason) in [
        ("/flows?startTimeGte=x", 400, "startTimeGte"),
        ("/flows?filters=%7B", 400, "filters"),
        ("/flows?sortBy=Size", 400, "unknown sortBy value: Size"),
        ("/flows?watch=perhaps", 400, "watch"),
        ("/flows-filter-hints", 400, "type is required"),
        ("/flows-filter-hints?type=Reporter", 400, "unknown filter type value Reporter"),
        // Calico's backend reports an internal error for what Goldmane itself refuses.
        ("/flows?sortBy=SourceType", 500, "Internal Server Error"),
        ("/flows?startTimeGte=20&startTimeLt=10", 500, "Internal Server Error"),
    ] {
        let (found, answer) = world.json(path).await;
        assert_eq!(found.as_u16(), status, "{path}");
        assert!(answer["error"].as_str().unwrap().contains(reason), "{path}: {answer}");
    }
}

#[tokio::test]
async fn the_configuration_of_the_page() {
    let (status, answer) = World::empty().json("/config/config.json").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        answer,
        json!({"config": {"cluster_id": "id-1", "cluster_type": "k8s,bgp", "calico_version": "v3.32.1",
            "notifications": "Disabled", "calico_cloud_url": ""}})
    );
}
