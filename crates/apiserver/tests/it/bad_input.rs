//! Malformed requests, and objects that should not be in the store.

use crate::world::World;
use anyhow::Result;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";

#[tokio::test]
async fn every_bad_request_is_refused_with_its_code() -> Result<()> {
    let w = World::start().await?;
    w.ask("POST", "tiers", r#"{"metadata":{"name":"t"},"spec":{"order":1}}"#).await?;
    for (what, method, path, content, body, code) in [
        ("no JSON", "POST", "tiers", JSON, "{", 400),
        ("no object", "POST", "tiers", JSON, "[]", 400),
        ("nothing", "POST", "tiers", JSON, "", 400),
        ("another kind", "POST", "tiers", JSON, r#"{"kind":"IPPool","metadata":{"name":"x"}}"#, 400),
        (
            "another group",
            "POST",
            "tiers",
            JSON,
            r#"{"apiVersion":"v1","kind":"Tier","metadata":{"name":"x"}}"#,
            400,
        ),
        (
            "a field of another type",
            "POST",
            "tiers",
            JSON,
            r#"{"metadata":{"name":"x"},"spec":{"order":"much"}}"#,
            400,
        ),
        ("a name that cannot be", "POST", "tiers", JSON, r#"{"metadata":{"name":"a/b"},"spec":{}}"#, 422),
        (
            "another name than in the path",
            "PUT",
            "tiers/t",
            JSON,
            r#"{"metadata":{"name":"x","resourceVersion":"1"}}"#,
            400,
        ),
        ("a patch without a type", "PATCH", "tiers/t", JSON, "{}", 415),
        ("a patch that is not JSON", "PATCH", "tiers/t", MERGE, "{", 400),
        ("a patch that is not a list", "PATCH", "tiers/t", JSON_PATCH, "{}", 400),
        (
            "a patch of a missing object",
            "PATCH",
            "tiers/t",
            JSON_PATCH,
            r#"[{"op":"remove","path":"/spec/x"}]"#,
            422,
        ),
        (
            "a test that fails",
            "PATCH",
            "tiers/t",
            JSON_PATCH,
            r#"[{"op":"test","path":"/spec/order","value":9}]"#,
            422,
        ),
        ("a patch to something invalid", "PATCH", "tiers/t", MERGE, r#"{"spec":{"order":"much"}}"#, 400),
        ("a patch of the name", "PATCH", "tiers/t", MERGE, r#"{"metadata":{"name":"x"}}"#, 400),
        ("an apply without a manager", "PATCH", "tiers/t", APPLY, r#"{"kind":"Tier"}"#, 422),
        ("an apply without a kind", "PATCH", "tiers/t?fieldManager=me", APPLY, "{}", 400),
        ("force without apply", "PATCH", "tiers/t?force=true", MERGE, "{}", 422),
        (
            "a revision from the future",
            "GET",
            "tiers?resourceVersion=99999999&resourceVersionMatch=NotOlderThan",
            JSON,
            "",
            504,
        ),
        ("a revision that is not a number", "GET", "tiers?resourceVersion=soon", JSON, "", 422),
        ("a match without a revision", "GET", "tiers?resourceVersionMatch=Exact", JSON, "", 422),
        ("a limit that is not a number", "GET", "tiers?limit=few", JSON, "", 400),
        ("a token from elsewhere", "GET", "tiers?limit=1&continue=rubbish", JSON, "", 400),
        ("a selector that cannot be read", "GET", "tiers?labelSelector=a%20in%20(", JSON, "", 400),
        ("a field that cannot select", "GET", "tiers?fieldSelector=spec.order%3D1", JSON, "", 400),
        ("an unknown mode", "POST", "tiers?fieldValidation=Sometimes", JSON, "{}", 422),
        ("an unknown dry run", "POST", "tiers?dryRun=Some", JSON, "{}", 422),
        ("options of another kind", "DELETE", "tiers/t", JSON, r#"{"kind":"Tier"}"#, 400),
        ("an unknown resource", "GET", "nodes", JSON, "", 404),
        ("a status where there is none", "GET", "globalnetworksets/x/status", JSON, "", 404),
        ("an unknown verb", "TRACE", "tiers/t", JSON, "", 405),
    ] {
        let (found, answer) = w.ask_with(method, path, content, JSON, body).await?;
        assert_eq!(found, code, "{what}: {answer}");
        assert_eq!(
            (&answer["kind"], &answer["status"]),
            (&json!("Status"), &json!("Failure")),
            "{what}: {answer}"
        );
        assert!(answer["message"].as_str().is_some_and(|text| !text.is_empty()), "{what}");
    }
    let (_, tier) = w.ask("GET", "tiers/t", "").await?;
    assert_eq!(tier["spec"]["order"], 1, "nothing of it was stored");
    Ok(())
}

#[tokio::test]
async fn unknown_fields_are_handled_in_each_mode() -> Result<()> {
    let w = World::start().await?;
    let set = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nets":["10.0.0.0/8"],"nests":[],"nets":["10.0.0.0/8"]}}}}"#
        )
    };
    for (mode, code, words) in [
        ("Strict", 400, &[][..]),
        ("Warn", 201, &["unknown field \\\"spec.nests\\\"", "duplicate field \\\"spec.nets\\\""][..]),
        ("Ignore", 201, &[][..]),
    ] {
        let path = format!("globalnetworksets?fieldValidation={mode}");
        let (found, warnings) = w.warnings("POST", &path, &set(&mode.to_lowercase())).await?;
        assert_eq!((found, warnings.len()), (code, words.len()), "{mode}: {warnings:?}");
        for word in words {
            assert!(warnings.iter().any(|warning| warning.contains(word)), "{mode}: {warnings:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn invalid_stored_objects_can_be_read_and_deleted() -> Result<()> {
    let w = World::start().await?;
    let key = |name: &str| format!("/calico/resources/v3/projectcalico.org/globalnetworkpolicies/{name}");
    let policy = |name: &str, spec: Value| {
        json!({"kind": "GlobalNetworkPolicy", "apiVersion": "projectcalico.org/v3",
               "metadata": {"name": name, "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec})
        .to_string()
    };
    w.put(
        &key("wrong"),
        &policy("wrong", json!({"tier": "default", "selector": "this is wrong", "types": ["Sideways"]})),
    )?;
    w.put(&key("stray"), &policy("stray", json!({"tier": "no-such-tier", "selector": "all()"})))?;
    // These cannot be read. They must not affect the others.
    w.put(&key("rubbish"), "rubbish")?;
    w.put(&key("typed"), &policy("typed", json!({"order": {"a": 1}})))?;
    let names = |answer: &Value| -> Vec<String> {
        let items = answer["items"].as_array().into_iter().flatten();
        items.filter_map(|item| Some(item.pointer("/metadata/name")?.as_str()?.to_owned())).collect()
    };
    let (code, listed) = w.ask("GET", "globalnetworkpolicies", "").await?;
    assert_eq!((code, names(&listed)), (200, vec!["stray".to_owned(), "wrong".to_owned()]), "{listed}");
    let mut watch = w.watch("globalnetworkpolicies?watch=1").await?;
    assert_eq!(watch.words(2).await?, ["ADDED stray", "ADDED wrong"]);
    for name in ["wrong", "stray"] {
        let (code, found) = w.ask("GET", &format!("globalnetworkpolicies/{name}"), "").await?;
        assert_eq!((code, &found["metadata"]["name"]), (200, &json!(name)), "{found}");
        let (code, found) = w.ask("DELETE", &format!("globalnetworkpolicies/{name}"), "").await?;
        assert_eq!(code, 200, "{found}");
        assert_eq!(watch.words(1).await?, [format!("DELETED {name}")]);
    }
    let (code, found) = w.ask("GET", "globalnetworkpolicies/rubbish", "").await?;
    assert!(code >= 500, "{found}");
    Ok(())
}
