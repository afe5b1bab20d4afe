//! Requests and answers on a real etcd: those recorded from Calico's server, and those that it got wrong.

use crate::world::World;
use anyhow::Result;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The expected parts of an answer, by JSON pointer.
type Parts = Vec<(&'static str, Value)>;

async fn check(world: &World, line: &str, body: Value, code: u16, parts: Parts) -> Result<Value> {
    check_as(world, line, "application/json", body, code, parts).await
}

async fn check_as(
    world: &World,
    line: &str,
    content: &str,
    body: Value,
    code: u16,
    parts: Parts,
) -> Result<Value> {
    let (method, path) = line.split_once(' ').expect("a method and a path");
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (found, answer) = world.ask_with(method, path, content, "application/json", &text).await?;
    assert_eq!(found, code, "{line} {body}: {answer}");
    for (pointer, expected) in parts {
        assert_eq!(answer.pointer(pointer).unwrap_or(&Value::Null), &expected, "{line} {pointer}: {answer}");
    }
    Ok(answer)
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn names(answer: &Value) -> Vec<&str> {
    let items = answer["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item.pointer("/metadata/name")?.as_str()).collect()
}

#[tokio::test]
async fn answers_match_those_of_calicos_server() -> Result<()> {
    let w = World::start().await?;
    let np = "namespaces/shop/networkpolicies";
    let policy =
        |kind: &str, name: &str, tier: &str| object(kind, name, json!({"tier": tier, "selector": "all()"}));
    check(
        &w,
        "POST tiers",
        object("Tier", "red", json!({"order": 100})),
        201,
        vec![("/spec", json!({"order": 100, "defaultAction": "Deny"}))],
    )
    .await?;
    for (name, tier) in [("red.np", "red"), ("plain", "default"), ("default.old", "default")] {
        let tiered = vec![
            ("/metadata/labels", json!({"projectcalico.org/tier": tier})),
            ("/spec", json!({"tier": tier, "selector": "all()", "types": ["Ingress"]})),
        ];
        check(&w, &format!("POST {np}"), policy("NetworkPolicy", name, tier), 201, tiered).await?;
    }
    check(
        &w,
        "POST globalnetworkpolicies",
        policy("GlobalNetworkPolicy", "red.only-this", "red"),
        201,
        vec![],
    )
    .await?;
    let bad = object("GlobalNetworkPolicy", "bad", json!({"selector": "this is wrong"}));
    check(
        &w,
        "POST globalnetworkpolicies",
        bad,
        422,
        vec![
            ("/reason", json!("Invalid")),
            ("/details/kind", json!("GlobalNetworkPolicy")),
            ("/details/causes/0/reason", json!("FieldValueInvalid")),
            ("/details/causes/0/field", json!("spec.selector")),
        ],
    )
    .await?;
    // Calico's answer is 500 without a reason.
    check(
        &w,
        "POST globalnetworkpolicies",
        policy("GlobalNetworkPolicy", "x", "no-such-tier"),
        422,
        vec![("/details/causes/0/field", json!("spec.tier"))],
    )
    .await?;
    let generated = json!({"metadata": {"generateName": "gen-"}, "spec": {}});
    let made = check(&w, "POST globalnetworkpolicies", generated, 201, vec![]).await?;
    assert!(
        made["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("gen-") && name.len() == 9),
        "{made}"
    );
    check(
        &w,
        "POST tiers",
        object("Tier", "red", json!({})),
        409,
        vec![
            ("/reason", json!("AlreadyExists")),
            ("/message", json!("tiers.projectcalico.org \"red\" already exists")),
        ],
    )
    .await?;
    check(&w, "POST ippools", object("IPPool", "p", json!({"cidr": "10.66.0.0/16"})), 201, vec![("/spec", json!({
        "cidr": "10.66.0.0/16", "vxlanMode": "Never", "ipipMode": "Never", "blockSize": 26, "nodeSelector": "all()",
        "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic",
    }))]).await?;
    check(
        &w,
        "POST clusterinformations",
        object("ClusterInformation", "x", json!({})),
        405,
        vec![(
            "/message",
            json!("Create is not supported on resources of kind \"clusterinformations.projectcalico.org\""),
        )],
    )
    .await?;
    for (method, path) in [
        ("PUT", "clusterinformations/default"),
        ("DELETE", "clusterinformations/default"),
        ("PATCH", "clusterinformations/default"),
        ("DELETE", "clusterinformations"),
        ("POST", "blockaffinities"),
    ] {
        check(&w, &format!("{method} {path}"), json!({}), 405, vec![("/reason", json!("MethodNotAllowed"))])
            .await?;
    }
    check(
        &w,
        "POST nodes",
        object("Node", "n", json!({})),
        404,
        vec![("/message", json!("the server could not find the requested resource"))],
    )
    .await?;
    check(
        &w,
        "GET tiers/nope",
        Value::Null,
        404,
        vec![("/message", json!("tiers.projectcalico.org \"nope\" not found"))],
    )
    .await?;
    check(
        &w,
        "GET blockaffinities",
        Value::Null,
        200,
        vec![("/kind", json!("BlockAffinityList")), ("/items", json!([]))],
    )
    .await?;
    // Calico's answer is 500 without a reason.
    for tier in ["default", "red"] {
        check(&w, &format!("DELETE tiers/{tier}"), Value::Null, 403, vec![("/reason", json!("Forbidden"))])
            .await?;
    }
    for (query, expected) in [
        ("fieldSelector=spec.tier%3Dred", Ok(vec!["red.np"])),
        ("fieldSelector=spec.tier%21%3Dred", Err(400)),
        ("fieldSelector=metadata.namespace%3Dshop", Ok(vec!["default.old", "plain", "red.np"])),
        ("fieldSelector=metadata.namespace%3Dother", Ok(vec![])),
        ("fieldSelector=spec.order%3D1", Err(400)),
        ("labelSelector=projectcalico.org/tier%3Dred", Ok(vec!["red.np"])),
        (
            "labelSelector=projectcalico.org/tier%20in%20(red,default)",
            Ok(vec!["default.old", "plain", "red.np"]),
        ),
        ("labelSelector=projectcalico.org/tier%20notin%20(red)", Err(400)),
        ("limit=2", Ok(vec!["default.old", "plain"])),
    ] {
        let line = format!("GET networkpolicies?{query}");
        match expected {
            Ok(wanted) => {
                assert_eq!(names(&check(&w, &line, Value::Null, 200, vec![]).await?), wanted, "{query}");
            }
            Err(code) => {
                check(&w, &line, Value::Null, code, vec![]).await?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_kind_of_write() -> Result<()> {
    let w = World::start().await?;
    let made = check(&w, "POST ippools", object("IPPool", "p", json!({"cidr": "10.66.0.0/16"})), 201, vec![])
        .await?;
    let nat = json!({"spec": {"natOutgoing": true}});
    check_as(&w, "PATCH ippools/p", MERGE, nat.clone(), 200, vec![("/spec/natOutgoing", json!(true))])
        .await?;
    check_as(&w, "PATCH ippools/p", "application/strategic-merge-patch+json", nat, 200, vec![]).await?;
    let remove = json!([{"op": "remove", "path": "/spec/natOutgoing"}]);
    check_as(
        &w,
        "PATCH ippools/p",
        JSON_PATCH,
        remove.clone(),
        200,
        vec![("/spec/natOutgoing", Value::Null)],
    )
    .await?;
    check_as(&w, "PATCH ippools/p", JSON_PATCH, remove, 422, vec![]).await?;
    check_as(
        &w,
        "PATCH ippools/p",
        "text/plain",
        json!({}),
        415,
        vec![("/reason", json!("UnsupportedMediaType"))],
    )
    .await?;
    check_as(&w, "PATCH ippools/absent", MERGE, json!({}), 404, vec![]).await?;
    check_as(
        &w,
        "PATCH ippools/p",
        MERGE,
        json!({"metadata": {"resourceVersion": "1"}}),
        409,
        vec![("/reason", json!("Conflict"))],
    )
    .await?;
    check_as(
        &w,
        "PATCH ippools/p",
        MERGE,
        json!({"spec": {"cidr": "rubbish"}}),
        422,
        vec![("/details/causes/0/field", json!("spec.cidr"))],
    )
    .await?;
    // Server-side apply of an existing object and of a new one.
    let want = object("IPPool", "p", json!({"natOutgoing": true}));
    check_as(
        &w,
        "PATCH ippools/p",
        APPLY,
        want.clone(),
        422,
        vec![("/details/causes/0/field", json!("fieldManager"))],
    )
    .await?;
    check_as(
        &w,
        "PATCH ippools/p?fieldManager=me",
        APPLY,
        want,
        200,
        vec![("/spec/natOutgoing", json!(true))],
    )
    .await?;
    let other = object("IPPool", "p", json!({"natOutgoing": false}));
    check_as(
        &w,
        "PATCH ippools/p?fieldManager=you",
        APPLY,
        other.clone(),
        409,
        vec![("/details/causes/0/field", json!(".spec.natOutgoing"))],
    )
    .await?;
    check_as(&w, "PATCH ippools/p?fieldManager=you&force=true", APPLY, other, 200, vec![]).await?;
    let new = object("IPPool", "new", json!({"cidr": "10.67.0.0/16"}));
    check_as(
        &w,
        "PATCH ippools/new?fieldManager=me",
        APPLY,
        new,
        201,
        vec![("/spec/blockSize", json!(26)), ("/metadata/managedFields/0/manager", json!("me"))],
    )
    .await?;
    // Updates.
    check(&w, "PUT ippools/p", made.clone(), 409, vec![("/reason", json!("Conflict"))]).await?;
    let mut blind = made.clone();
    blind["metadata"]["resourceVersion"] = Value::Null;
    check(&w, "PUT ippools/p", blind.clone(), 422, vec![("/details/causes/0/field", json!("metadata.resourceVersion")), ("/message", json!("ippools.projectcalico.org \"p\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"))]).await?;
    blind["metadata"]["name"] = json!("absent");
    check(&w, "PUT ippools/absent", blind, 404, vec![]).await?;
    let mut current = check(&w, "GET ippools/p", Value::Null, 200, vec![]).await?;
    current["spec"]["natOutgoing"] = json!(true);
    let minimal = json!({"metadata": {"name": "p", "resourceVersion": current["metadata"]["resourceVersion"]}, "spec": current["spec"]});
    let stored = check(&w, "PUT ippools/p", minimal, 200, vec![("/spec/natOutgoing", json!(true))]).await?;
    assert_eq!(stored["metadata"]["uid"], made["metadata"]["uid"]);
    // The same object again writes nothing.
    check(
        &w,
        "PUT ippools/p",
        stored.clone(),
        200,
        vec![("/metadata/resourceVersion", stored["metadata"]["resourceVersion"].clone())],
    )
    .await?;
    // Dry runs.
    check(
        &w,
        "POST ippools?dryRun=All",
        object("IPPool", "dry", json!({"cidr": "10.69.0.0/16"})),
        201,
        vec![("/spec/blockSize", json!(26))],
    )
    .await?;
    check(
        &w,
        "POST ippools?dryRun=All",
        object("IPPool", "bad", json!({"cidr": "10.66.0.0/20"})),
        422,
        vec![],
    )
    .await?;
    check(&w, "GET ippools/dry", Value::Null, 404, vec![]).await?;
    check(&w, "DELETE ippools/new?dryRun=All", Value::Null, 200, vec![]).await?;
    check(&w, "GET ippools/new", Value::Null, 200, vec![]).await?;
    // Deletions with conditions.
    let uid = json!({"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}});
    check(&w, "DELETE ippools/new", uid, 409, vec![("/reason", json!("Conflict"))]).await?;
    check(&w, "DELETE ippools/new", json!({"preconditions": {"resourceVersion": "1"}}), 409, vec![]).await?;
    check(&w, "DELETE ippools", json!({"preconditions": {"resourceVersion": "1"}}), 409, vec![]).await?;
    check(
        &w,
        "DELETE ippools/new",
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"}),
        200,
        vec![("/status", json!("Success"))],
    )
    .await?;
    check(&w, "DELETE ippools/new", Value::Null, 404, vec![]).await?;
    Ok(())
}

#[tokio::test]
async fn status_is_written_separately() -> Result<()> {
    let w = World::start().await?;
    let spec = json!({"node": "n1", "classes": ["Agent"], "updatePeriodSeconds": 10});
    let mut made =
        check(&w, "POST caliconodestatuses", object("CalicoNodeStatus", "s", spec.clone()), 201, vec![])
            .await?;
    made["status"] = json!({"agent": {"birdV4": {"state": "Ready"}}});
    made["spec"]["node"] = json!("other");
    made["metadata"]["labels"] = json!({"a": "b"});
    let stored = check(
        &w,
        "PUT caliconodestatuses/s/status",
        made,
        200,
        vec![
            ("/spec", spec),
            ("/status/agent/birdV4/state", json!("Ready")),
            ("/metadata/labels", Value::Null),
        ],
    )
    .await?;
    let mut again = stored;
    again["status"] = json!({});
    again["spec"]["updatePeriodSeconds"] = json!(20);
    check(
        &w,
        "PUT caliconodestatuses/s",
        again,
        200,
        vec![("/spec/updatePeriodSeconds", json!(20)), ("/status/agent/birdV4/state", json!("Ready"))],
    )
    .await?;
    check_as(
        &w,
        "PATCH caliconodestatuses/s/status",
        MERGE,
        json!({"status": {"agent": {"birdV4": {"state": "NotReady"}}}}),
        200,
        vec![("/status/agent/birdV4/state", json!("NotReady"))],
    )
    .await?;
    check(&w, "GET bgppeers/x/status", Value::Null, 404, vec![]).await?;
    Ok(())
}

#[tokio::test]
async fn lists_in_pages_and_at_revisions() -> Result<()> {
    let w = World::start().await?;
    for name in ["a", "b", "c", "d", "e"] {
        check(
            &w,
            "POST globalnetworksets",
            object("GlobalNetworkSet", name, json!({"nets": []})),
            201,
            vec![],
        )
        .await?;
    }
    let first = check(
        &w,
        "GET globalnetworksets?limit=2",
        Value::Null,
        200,
        vec![("/metadata/remainingItemCount", json!(3))],
    )
    .await?;
    assert_eq!(names(&first), ["a", "b"]);
    let token = first["metadata"]["continue"].as_str().expect("a token").to_owned();
    // A change between two pages does not appear in the second.
    check(&w, "DELETE globalnetworksets/c", Value::Null, 200, vec![]).await?;
    check(&w, "POST globalnetworksets", object("GlobalNetworkSet", "f", json!({})), 201, vec![]).await?;
    let second = check(
        &w,
        &format!("GET globalnetworksets?limit=10&continue={token}"),
        Value::Null,
        200,
        vec![("/metadata/continue", Value::Null)],
    )
    .await?;
    assert_eq!(names(&second), ["c", "d", "e"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let revision = first["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    for (query, expected) in [
        (format!("resourceVersion={revision}&resourceVersionMatch=Exact"), Ok(5)),
        (format!("resourceVersion={revision}"), Ok(5)),
        ("resourceVersion=0".to_owned(), Ok(5)),
        (String::new(), Ok(5)),
        ("resourceVersion=999999999".to_owned(), Err(504)),
        ("continue=rubbish".to_owned(), Err(400)),
    ] {
        let line = format!("GET globalnetworksets?{query}");
        match expected {
            Ok(count) => {
                assert_eq!(names(&check(&w, &line, Value::Null, 200, vec![]).await?).len(), count, "{query}");
            }
            Err(code) => {
                check(&w, &line, Value::Null, code, vec![]).await?;
            }
        }
    }
    check(&w, "DELETE globalnetworksets?fieldSelector=metadata.name%21%3Da", Value::Null, 200, vec![])
        .await?;
    assert_eq!(names(&check(&w, "GET globalnetworksets", Value::Null, 200, vec![]).await?), ["a"]);
    Ok(())
}

#[tokio::test]
async fn writes_by_other_clients_are_seen_at_once() -> Result<()> {
    let w = World::start().await?;
    let other = crate::world::client(&w.etcd).await?;
    for number in 0..20 {
        let name = format!("t{number}");
        let tier = api::Object::new("", &name, api::TierSpec::default());
        other.resource::<api::TierSpec>().create(tier).await?;
        let listed = check(&w, "GET tiers", Value::Null, 200, vec![]).await?;
        assert!(names(&listed).contains(&name.as_str()), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn bad_input_is_refused_with_a_reason() -> Result<()> {
    let w = World::start().await?;
    let unknown = object("Tier", "u", json!({"oder": 1}));
    check(
        &w,
        "POST tiers?fieldValidation=Strict",
        unknown.clone(),
        400,
        vec![("/reason", json!("BadRequest"))],
    )
    .await?;
    check(&w, "POST tiers?fieldValidation=Ignore", unknown, 201, vec![("/spec/oder", Value::Null)]).await?;
    check(&w, "POST tiers", object("IPPool", "x", json!({})), 400, vec![]).await?;
    check(&w, "POST tiers", json!({"metadata": {"name": "x", "resourceVersion": "5"}}), 400, vec![]).await?;
    check(
        &w,
        "POST tiers",
        json!({"spec": {}}),
        422,
        vec![("/details/causes/0/field", json!("metadata.name"))],
    )
    .await?;
    let huge = object("GlobalNetworkSet", "x", json!({"nets": vec!["10.0.0.0/8"; 400_000]}));
    check(&w, "POST globalnetworksets", huge, 413, vec![("/reason", json!("RequestEntityTooLarge"))]).await?;
    check(
        &w,
        "POST namespaces/a/networkpolicies",
        json!({"metadata": {"name": "x", "namespace": "b"}}),
        400,
        vec![],
    )
    .await?;
    check_as(&w, "POST tiers", "application/vnd.kubernetes.protobuf", json!({}), 415, vec![]).await?;
    let yaml = "kind: Tier\nmetadata:\n  name: yaml\nspec:\n  order: 3\n";
    let (code, answer) = w.ask_with("POST", "tiers", "application/yaml", "application/json", yaml).await?;
    assert_eq!((code, &answer["spec"]["order"]), (201, &json!(3)));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (code, answer) = w.ask_with("GET", "tiers", "", table, "").await?;
    assert_eq!(
        (code, &answer["kind"], &answer["columnDefinitions"][1]["name"]),
        (200, &json!("Table"), &json!("Created At"))
    );
    assert_eq!(answer["rows"][0]["cells"][0], "default");
    Ok(())
}

#[tokio::test]
async fn every_kind_can_be_created_read_and_deleted() -> Result<()> {
    let w = World::start().await?;
    for (plural, kind, name, spec) in [
        ("bgpconfigurations", "BGPConfiguration", "default", json!({})),
        ("bgpfilters", "BGPFilter", "x", json!({})),
        ("bgppeers", "BGPPeer", "x", json!({"peerIP": "10.0.0.1", "asNumber": 64512})),
        (
            "caliconodestatuses",
            "CalicoNodeStatus",
            "x",
            json!({"node": "n", "classes": ["BGP"], "updatePeriodSeconds": 10}),
        ),
        ("felixconfigurations", "FelixConfiguration", "default", json!({})),
        ("globalnetworkpolicies", "GlobalNetworkPolicy", "x", json!({"selector": "all()"})),
        ("globalnetworksets", "GlobalNetworkSet", "x", json!({"nets": ["10.0.0.0/8"]})),
        ("hostendpoints", "HostEndpoint", "x", json!({"node": "n", "interfaceName": "eth0"})),
        (
            "ipamconfigurations",
            "IPAMConfiguration",
            "default",
            json!({"strictAffinity": true, "autoAllocateBlocks": true}),
        ),
        ("ippools", "IPPool", "x", json!({"cidr": "10.1.0.0/16"})),
        ("ipreservations", "IPReservation", "x", json!({"reservedCIDRs": ["10.1.0.0/24"]})),
        (
            "kubecontrollersconfigurations",
            "KubeControllersConfiguration",
            "default",
            json!({"controllers": {}}),
        ),
        ("namespaces/n/networkpolicies", "NetworkPolicy", "x", json!({"selector": "all()"})),
        ("namespaces/n/networksets", "NetworkSet", "x", json!({"nets": ["10.0.0.0/8"]})),
        ("profiles", "Profile", "x", json!({})),
        ("stagedglobalnetworkpolicies", "StagedGlobalNetworkPolicy", "x", json!({"selector": "all()"})),
        ("namespaces/n/stagedkubernetesnetworkpolicies", "StagedKubernetesNetworkPolicy", "x", json!({})),
        ("namespaces/n/stagednetworkpolicies", "StagedNetworkPolicy", "x", json!({"selector": "all()"})),
        ("tiers", "Tier", "x", json!({"order": 5})),
    ] {
        check(
            &w,
            &format!("POST {plural}"),
            object(kind, name, spec.clone()),
            201,
            vec![("/kind", json!(kind))],
        )
        .await?;
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        check_as(
            &w,
            &format!("PATCH {plural}/{name}"),
            MERGE,
            labels,
            200,
            vec![("/metadata/labels/a", json!("b"))],
        )
        .await?;
        let got = check(
            &w,
            &format!("GET {plural}/{name}"),
            Value::Null,
            200,
            vec![("/metadata/labels/a", json!("b"))],
        )
        .await?;
        check(&w, &format!("PUT {plural}/{name}"), got, 200, vec![]).await?;
        let list = check(
            &w,
            &format!("GET {plural}?labelSelector=a%3Db"),
            Value::Null,
            200,
            vec![("/kind", json!(format!("{kind}List")))],
        )
        .await?;
        assert_eq!(names(&list), [name], "{plural}");
        let revision = list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        let mut watch = w.watch(&format!("{plural}?watch=1&resourceVersion={revision}")).await?;
        let mut applied =
            json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}});
        applied["metadata"]["labels"] = json!({"c": "d"});
        check_as(
            &w,
            &format!("PATCH {plural}/{name}?fieldManager=m"),
            APPLY,
            applied,
            200,
            vec![("/metadata/labels/c", json!("d"))],
        )
        .await?;
        check(&w, &format!("DELETE {plural}?labelSelector=a%3Db"), Value::Null, 200, vec![]).await?;
        assert_eq!(watch.words(1).await?, [format!("MODIFIED {name}")], "{plural}");
        let mut last = watch.words(1).await?;
        if kind == "IPPool" {
            // A pool is disabled before it is deleted.
            assert_eq!(last, [format!("MODIFIED {name}")]);
            last = watch.words(1).await?;
        }
        assert_eq!(last, [format!("DELETED {name}")], "{plural}");
        check(&w, &format!("GET {plural}/{name}"), Value::Null, 404, vec![]).await?;
        check(&w, &format!("POST {plural}"), object(kind, name, spec), 201, vec![]).await?;
        check(&w, &format!("DELETE {plural}/{name}"), Value::Null, 200, vec![]).await?;
        check(&w, &format!("GET {plural}/{name}"), Value::Null, 404, vec![]).await?;
    }
    Ok(())
}
