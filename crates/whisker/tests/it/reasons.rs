//! Policies: rules, explanations, the matrix, previews, recommendations.

use crate::world::{NOW, World, bytes, key};
use axum::body::Body;
use flows::Reporter;
use http::{Request, StatusCode};
use serde_json::{Value, json};

async fn impact(world: &World, kind: &str, policy: &str) -> (StatusCode, Value) {
    let request = Request::post("/api/v1/impact?startTimeGte=-3600").header("content-type", kind);
    let response = world.ask(request.body(Body::from(policy.to_owned())).unwrap()).await;
    let status = response.status();
    (status, serde_json::from_slice(&bytes(response).await).unwrap())
}

#[tokio::test]
async fn a_policy_as_it_was_written() {
    let world = World::shop();
    let (status, policy) =
        world.json("/api/v1/policy?kind=CalicoNetworkPolicy&namespace=shop&name=db&tier=default").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(policy["spec"]["ingress"][0]["source"]["selector"], "app == 'api'");
    let (status, gone) = world.json("/api/v1/policy?kind=GlobalNetworkPolicy&name=gone").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(gone["error"].as_str().unwrap().contains("no longer in the datastore"));
}

#[tokio::test]
async fn why_a_connection_is_denied() {
    let world = World::shop();
    let (status, explanation) =
        world.json("/api/v1/explain?from=shop%2Fweb-*&to=shop%2Fdb&port=5432&protocol=tcp").await;
    assert_eq!((status, &explanation["verdict"]), (StatusCode::OK, &json!("deny")), "{explanation}");
    assert_eq!(explanation["from"], "shop/web-1", "any pod that the name stands for");
    let rule = &explanation["flows"][0]["stages"].as_array().unwrap().last().unwrap()["tiers"][0]["policies"]
        [0]["rules"][0];
    assert_eq!((&rule["matches"], &rule["place"]), (&json!(false), &json!("ingress[0]")));
    let (status, unknown) = world.json("/api/v1/explain?from=shop%2Fnobody&to=shop%2Fdb&port=1").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(unknown["error"].as_str().unwrap().contains("nobody"));
}

#[tokio::test]
async fn the_matrix_with_what_was_seen() {
    let world = World::shop();
    let (status, matrix) = world.json("/api/v1/matrix?startTimeGte=-3600").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(matrix["senders"], json!(["ops/probe", "shop/db", "shop/web-1"]));
    let column =
        matrix["receivers"].as_array().unwrap().iter().position(|name| name == "shop/db:5432").unwrap();
    let cell = &matrix["cells"][2][column];
    assert_eq!(cell["v"], "deny");
    assert!(cell["d"].as_u64().unwrap() > 0, "it was tried, and dropped: {cell}");
    let reason = &matrix["reasons"][usize::try_from(cell["r"].as_u64().unwrap()).unwrap()];
    assert!(reason.as_str().unwrap().starts_with("ingress: denied at the end of tier default"), "{reason}");
    assert_eq!((&matrix["namespaces"], &matrix["too_many"]), (&json!({"ops": 1, "shop": 2}), &json!(false)));
    let (_, one) = world.json("/api/v1/matrix?namespace=ops").await;
    assert_eq!(one["senders"], json!(["ops/probe"]));
}

#[tokio::test]
async fn the_effect_of_a_pasted_policy() {
    let world = World::empty();
    let denied = key("shop/web-*", "shop/db", 5432, Reporter::Dst, &["0|default|np:shop/db|deny|-1"], &[]);
    world.add(&denied, NOW - 30, 7);
    let policy = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: db, namespace: shop}\n\
                  spec: {selector: app == 'db', types: [Ingress], ingress: [{action: Allow, protocol: TCP}]}\n";
    let (status, effect) = impact(&world, "application/yaml", policy).await;
    assert_eq!(status, StatusCode::OK, "{effect}");
    let change = &effect["changes"][0];
    assert_eq!((&change["before"], &change["after"]), (&json!("denied"), &json!("allowed")), "{effect}");
    assert_eq!(effect["flows"], 1);
    let (status, mistake) = impact(&world, "application/yaml", "kind: NetworkPolicy\nspec: {}\n").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(mistake["error"].as_str().unwrap().contains("apiVersion"));
    // What a form on a stranger's page could send.
    let (status, _) = impact(&world, "text/plain", policy).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let elsewhere = Request::post("/api/v1/explain").body(Body::empty()).unwrap();
    assert_eq!(world.ask(elsewhere).await.status(), StatusCode::METHOD_NOT_ALLOWED);
    let large = format!("# {}\n{policy}", "x".repeat(300 << 10));
    let request = Request::post("/api/v1/impact").header("content-type", "application/yaml");
    let response = world.ask(request.body(Body::from(large)).unwrap()).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn policies_suggested_by_flows() {
    let world = World::empty();
    let allowed =
        key("shop/web-*", "shop/db", 5432, Reporter::Dst, &["0|__PROFILE__|pro:kns.shop|allow|0"], &[]);
    world.add(&allowed, NOW - 30, 7);
    let (status, made) = world.json("/api/v1/recommend?startTimeGte=-3600&namespace=shop").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!((&made["policies"], &made["differences"], &made["flows"]), (&json!(1), &json!(0), &json!(1)));
    let yaml = made["yaml"].as_str().unwrap();
    assert!(yaml.contains("kind: StagedNetworkPolicy") && yaml.contains("5432"), "{yaml}");
    let (_, none) = world.json("/api/v1/recommend?startTimeGte=-3600&namespace=other").await;
    assert_eq!(none["policies"], 0);
}

#[tokio::test]
async fn without_a_datastore_the_reason_is_given() {
    let world = World::without_policies();
    for path in ["policy?kind=GlobalNetworkPolicy&name=a", "explain?from=a&to=b", "matrix"] {
        let (status, answer) = world.json(&format!("/api/v1/{path}")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer["error"], "no datastore in this test", "{path}");
    }
    let (status, _) = world.json("/api/v1/recommend").await;
    assert_eq!(status, StatusCode::OK, "recommendations need flows only");
}
