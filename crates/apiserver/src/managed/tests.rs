//! Scenarios of server-side apply and field ownership.

use super::*;

const NOW: &str = "2026-11-17T10:00:00Z";

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, is_status: false, now: NOW }
}

fn pool(spec: &Value) -> Value {
    json!({"kind": "IPPool", "apiVersion": API_VERSION, "metadata": {"name": "p"}, "spec": spec})
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn apply_as(manager: &str, live: &Value, spec: Value, force: bool) -> Outcome<Value> {
    apply(Kind::IPPool, live, &pool(&spec), &writer(manager), force)
}

#[test]
fn an_apply_sets_wanted_fields_and_removes_those_no_longer_wanted() {
    let first =
        apply_as("a", &pool(&json!({})), json!({"cidr": "10.0.0.0/16", "natOutgoing": true}), false).unwrap();
    assert_eq!(first["spec"], json!({"cidr": "10.0.0.0/16", "natOutgoing": true}));
    let second = apply_as("a", &first, json!({"cidr": "10.0.0.0/16"}), false).unwrap();
    assert_eq!(second["spec"], json!({"cidr": "10.0.0.0/16"}));
    let fields = &second["metadata"]["managedFields"];
    assert_eq!(fields[0]["fieldsV1"], json!({"f:spec": {"f:cidr": {}}}));
    assert_eq!((&fields[0]["operation"], &fields[0]["manager"]), (&json!("Apply"), &json!("a")));
    assert_eq!(apply_as("a", &second, json!({"cidr": "10.0.0.0/16"}), false).unwrap(), second);
}

#[test]
fn fields_owned_by_others_conflict_unless_forced() {
    let live = apply_as("a", &pool(&json!({})), json!({"natOutgoing": true}), false).unwrap();
    let refusal = apply_as("b", &live, json!({"natOutgoing": false}), false).unwrap_err();
    assert_eq!((refusal.code, refusal.causes[0].field.as_str()), (409, ".spec.natOutgoing"));
    assert_eq!(refusal.message, "Apply failed with 1 conflict: conflict with \"a\": .spec.natOutgoing");
    // The same value does not conflict, and then has two owners.
    let shared = apply_as("b", &live, json!({"natOutgoing": true}), false).unwrap();
    assert_eq!(shared["metadata"]["managedFields"].as_array().unwrap().len(), 2);
    let left = apply_as("b", &shared, json!({}), false).unwrap();
    assert_eq!(left["spec"], json!({"natOutgoing": true}));
    let taken = apply_as("b", &live, json!({"natOutgoing": false}), true).unwrap();
    assert_eq!(taken["spec"], json!({"natOutgoing": false}));
    let owners = taken["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["manager"]), (1, &json!("b")));
}

#[test]
fn a_write_owns_the_fields_it_changed() {
    let mut new = pool(&json!({"cidr": "10.0.0.0/16", "natOutgoing": true}));
    track_update(Kind::IPPool, None, &mut new, &writer("kubectl-create"));
    assert_eq!(
        new["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:cidr": {}, "f:natOutgoing": {}}})
    );
    let mut edited = new.clone();
    edited["spec"]["natOutgoing"] = json!(false);
    edited["metadata"]["labels"] = json!({"a": "b"});
    track_update(Kind::IPPool, Some(&new), &mut edited, &writer("kubectl-edit"));
    let owners = edited["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(owners[0]["fieldsV1"], json!({"f:spec": {"f:cidr": {}}}));
    assert_eq!(
        owners[1]["fieldsV1"],
        json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:natOutgoing": {}}})
    );
    // Applying over another manager's edit is a conflict that names its manager and API version.
    let refusal = apply_as("a", &edited, json!({"natOutgoing": true}), false).unwrap_err();
    assert_eq!(refusal.causes[0].message, "conflict with \"kubectl-edit\" using projectcalico.org/v3");
    // An empty list of owners forgets all owners.
    let mut forgotten = edited.clone();
    forgotten["metadata"]["managedFields"] = json!([]);
    track_update(Kind::IPPool, Some(&edited), &mut forgotten, &writer("kubectl-edit"));
    assert_eq!(forgotten["metadata"].get("managedFields"), None);
}

#[test]
fn each_label_has_its_own_owners() {
    let config = |labels: Value| json!({"metadata": {"name": "p", "labels": labels}, "spec": {}});
    let live = pool(&json!({"cidr": "10.0.0.0/16"}));
    let one = apply(Kind::IPPool, &live, &config(json!({"a": "1"})), &writer("a"), false).unwrap();
    let two = apply(Kind::IPPool, &one, &config(json!({"b": "2"})), &writer("b"), false).unwrap();
    assert_eq!(two["metadata"]["labels"], json!({"a": "1", "b": "2"}));
    let three = apply(Kind::IPPool, &two, &config(json!({})), &writer("a"), false).unwrap();
    assert_eq!(three["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(three["spec"], json!({"cidr": "10.0.0.0/16"}));
}

#[test]
fn a_status_has_separate_owners() {
    let live = apply_as("a", &pool(&json!({})), json!({"natOutgoing": true}), false).unwrap();
    let mut new = live.clone();
    new["status"] = json!({"conditions": [{"type": "Allocatable", "status": "True"}]});
    let status = Writer { is_status: true, ..writer("controllers") };
    track_update(Kind::IPPool, Some(&live), &mut new, &status);
    let owners = new["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[1]["subresource"]), (2, &json!("status")));
    assert!(owners[1]["fieldsV1"]["f:status"].is_object());
}
