//! Custom resources: those of a real cluster are read and written back, and the forms of older releases are understood.

use super::*;
use crate::key::{AffinityType, BlockAffinityKey, IpVersion, ListOptions};

/// Custom resources of a cluster that Calico set up, with the kind of the resource inside.
fn of_a_cluster() -> Vec<(Kind, Value)> {
    include_str!("../../tests/data/custom-resources/cluster.jsonl")
        .lines()
        .map(|line| {
            let object: Value = serde_json::from_str(line).unwrap();
            let kind = match object["kind"].as_str().unwrap() {
                "IPAMConfig" => Kind::IPAMConfiguration,
                name => Kind::from_name(name).unwrap(),
            };
            (kind, object)
        })
        .collect()
}

/// Removes what only the API server sets.
fn as_written(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("creationTimestamp");
    metadata.remove("generation");
    object
}

fn is_ipam(kind: Kind) -> bool {
    matches!(kind, Kind::IPAMBlock | Kind::IPAMHandle | Kind::BlockAffinity)
}

#[test]
fn a_cluster_is_read_and_written_back() {
    let objects = of_a_cluster();
    assert_eq!(objects.len(), 15);
    for (kind, object) in objects {
        let pair = pair_from_crd(kind, object.clone()).unwrap();
        assert_eq!(pair.key, Key::resource(kind, "", object["metadata"]["name"].as_str().unwrap()));
        assert_eq!(pair.revision, object["metadata"]["resourceVersion"].as_str().unwrap());
        let resource = pair.as_resource().unwrap();
        assert!(!resource.metadata().annotations.contains_key(METADATA_ANNOTATION));
        assert_eq!(pair.uid.as_deref(), Some(resource.metadata().uid.as_str()));
        assert_ne!(resource.metadata().uid, object["metadata"]["uid"].as_str().unwrap());
        let mut written = to_crd(resource).unwrap();
        if written["status"] == json!({}) {
            // The API server does not keep an empty status that is sent with the object.
            written.as_object_mut().unwrap().remove("status");
        }
        let mut expected = as_written(object.clone());
        if is_ipam(kind) {
            // These were stored without a creation time; now they have that of the custom resource.
            let mut stored: Value = serde_json::from_str(
                object["metadata"]["annotations"][METADATA_ANNOTATION].as_str().unwrap(),
            )
            .unwrap();
            stored["creationTimestamp"] = object["metadata"]["creationTimestamp"].clone();
            expected["metadata"]["annotations"][METADATA_ANNOTATION] = stored.to_string().into();
        }
        assert_eq!(written, expected);
    }
}

#[test]
fn text_and_value_are_read_alike() {
    let bookkeeping = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
    let more = [
        (
            Kind::IPPool,
            json!({"metadata": {"name": "p", "managedFields": bookkeeping}, "spec": {"cidr": "10.0.0.0/8"}}),
        ),
        (
            Kind::IPPool,
            json!({"kind": "Other", "metadata": {"name": "p"}, "spec": {"later": 1}, "more": true}),
        ),
        (Kind::IPAMConfiguration, json!({"kind": "IPAMConfig", "metadata": {"name": "default"}, "spec": {}})),
        (Kind::BlockAffinity, json!({"metadata": {"name": "a"}, "spec": {"deleted": "true", "node": "n"}})),
        (Kind::BlockAffinity, json!({"metadata": {"name": "a"}, "spec": {"deleted": "maybe"}})),
        (Kind::IPPool, json!({"metadata": {"name": "p"}, "spec": {"blockSize": "many"}})),
        (Kind::IPPool, json!({"metadata": {"name": "p", "uid": "not one"}})),
        (Kind::Node, json!({"metadata": {"name": "n"}})),
        (Kind::IPPool, json!([])),
    ];
    for (kind, object) in of_a_cluster().into_iter().chain(more) {
        let by_text = pair_from_crd_text(kind, &object.to_string()).map_err(|error| error.to_string());
        let by_value = pair_from_crd(kind, object.clone()).map_err(|error| error.to_string());
        assert_eq!(by_text, by_value, "{object}");
    }
    assert!(pair_from_crd_text(Kind::IPPool, "{").is_err());
}

#[test]
fn ipam_values_of_a_cluster_are_read_and_written_back() {
    let mut seen = 0;
    for (kind, object) in of_a_cluster() {
        if !is_ipam(kind) {
            continue;
        }
        seen += 1;
        let pair = ipam::from_resource(from_crd(kind, object.clone()).unwrap()).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(ipam::resource_name(&pair.key), Some((kind, name)));
        // The value is also what etcd holds.
        let stored = crate::value::encode(&pair.key, &pair.value).unwrap();
        let mut decoded = crate::value::decode(&pair.key, &stored).unwrap();
        if let Stored::Block(block) = &mut decoded {
            assert!(block.affinity.is_some());
        }
        assert_eq!(decoded, pair.value);
        assert_eq!(to_crd(&ipam::to_resource(&pair).unwrap()).unwrap(), as_written(object));
    }
    assert_eq!(seen, 8);
}

#[test]
fn settings_of_ipam_are_one_object() {
    let (kind, object) =
        of_a_cluster().into_iter().find(|(kind, _)| *kind == Kind::IPAMConfiguration).unwrap();
    let pair = ipam::from_resource(from_crd(kind, object).unwrap()).unwrap();
    let Stored::IpamConfig(config) = &pair.value else { panic!("{pair:?}") };
    assert!(config.auto_allocate_blocks && !config.strict_affinity);
    let written = to_crd(&ipam::to_resource(&pair).unwrap()).unwrap();
    assert_eq!(written["kind"], "IPAMConfig");
    assert_eq!(written["metadata"]["name"], "default");
    assert_eq!(
        written["spec"],
        json!({"strictAffinity": false, "autoAllocateBlocks": true, "kubeVirtVMAddressPersistence": "Enabled"})
    );
}

#[test]
fn metadata_is_hidden_and_found_again() {
    let policy = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "01020304-0506-4708-8910-111213141516", "resourceVersion": "9",
            "labels": {"app": "web", "projectcalico.org/tier": "default"},
            "annotations": {"note": "x", "operator.tigera.io/y": "z"},
            "finalizers": ["f"],
            "ownerReferences": [
                {"apiVersion": "projectcalico.org/v3", "kind": "Tier", "name": "t", "uid": "01020304-0506-4708-8910-111213141516"},
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "anything"}
            ]
        },
        "spec": {"tier": "default", "order": 10}
    });
    let resource = Resource::from_value(Kind::NetworkPolicy, policy).unwrap();
    let object = to_crd(&resource).unwrap();
    let stored = concat!(
        r#"{"name":"web","labels":{"app":"web","projectcalico.org/tier":"default"},"#,
        r#""annotations":{"note":"x","operator.tigera.io/y":"z"},"#,
        r#""ownerReferences":[{"apiVersion":"crd.projectcalico.org/v1","kind":"Tier","name":"t","#,
        r#""uid":"8040c020-a060-4710-8908-8848c828a868"},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"anything"}],"#,
        r#""finalizers":["f"]}"#
    );
    assert_eq!(
        object,
        json!({
            "kind": "NetworkPolicy", "apiVersion": "crd.projectcalico.org/v1",
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "8040c020-a060-4710-8908-8848c828a868", "resourceVersion": "9",
                "labels": {"projectcalico.org/tier": "default"},
                "annotations": {"operator.tigera.io/y": "z", METADATA_ANNOTATION: stored}
            },
            "spec": {"tier": "default", "order": 10}
        })
    );
    assert_eq!(from_crd(Kind::NetworkPolicy, object).unwrap(), resource);
}

#[test]
fn names_of_policies() {
    let read = |kind: Kind, name: &str, tier: &str, annotation: Option<&str>| {
        let mut object = json!({"metadata": {"name": name}, "spec": {"tier": tier}});
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({METADATA_ANNOTATION: annotation});
        }
        let pair = pair_from_crd(kind, object).unwrap();
        let Key::Resource(key) = &pair.key else { panic!("{pair:?}") };
        assert_eq!(key.name, name, "the key is the stored name");
        pair.as_resource().unwrap().name().to_owned()
    };
    for kind in Kind::ALL.iter().copied().filter(|kind| kind.is_tiered_policy()) {
        assert_eq!(read(kind, "default.a", "default", Some("{}")), "a");
        assert_eq!(read(kind, "default.a", "", Some("{}")), "a");
        assert_eq!(read(kind, "default.a", "default", Some(r#"{"name":"default.a"}"#)), "default.a");
        assert_eq!(read(kind, "sec.a", "sec", Some("{}")), "sec.a");
        // Only a user can have written this one, and it means what it says.
        assert_eq!(read(kind, "default.a", "default", None), "default.a");
    }
}

#[test]
fn labels_of_both_places_are_merged() {
    let object = json!({
        "metadata": {
            "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": "m"}],
            "labels": {"a": "old", "b": "kept"},
            "annotations": {"c": "old", "d": "kept", METADATA_ANNOTATION: r#"{"labels":{"a":"new"},"annotations":{"c":"new"}}"#}
        },
        "spec": {"cidr": "10.0.0.0/16"}
    });
    let resource = from_crd(Kind::IPPool, object).unwrap();
    let metadata = serde_json::to_value(resource.metadata()).unwrap();
    assert_eq!(
        metadata,
        json!({
            "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"a": "new", "b": "kept"}, "annotations": {"c": "new", "d": "kept"}
        })
    );
}

#[test]
fn claims_are_labelled_and_their_old_forms_read() {
    let claim = |spec: Value| from_crd(Kind::BlockAffinity, json!({"metadata": {"name": "a"}, "spec": spec}));
    let resource =
        claim(json!({"state": "confirmed", "node": "n1", "cidr": "fd00::/122", "deleted": ""})).unwrap();
    let object = to_crd(&resource).unwrap();
    assert_eq!(object["spec"]["deleted"], "false");
    assert_eq!(object["metadata"]["labels"]["projectcalico.org/ip-version"], "6");
    let pair = ipam::from_resource(resource).unwrap();
    let expected = BlockAffinityKey {
        cidr: "fd00::/122".parse().unwrap(),
        host: "n1".into(),
        affinity_type: AffinityType::Host,
    };
    assert_eq!(pair.key, Key::BlockAffinity(expected));
    assert!(claim(json!({"deleted": "maybe"})).is_err());
    let wrong = claim(json!({"cidr": "10.0.0.0/26", "type": "cloud", "deleted": "true"})).unwrap();
    assert!(ipam::from_resource(wrong).is_err());
    let options = ListOptions::BlockAffinity {
        host: Some("kc-node1".into()),
        affinity_type: Some(AffinityType::Virtual),
        ip_version: Some(IpVersion::V4),
    };
    let labels = ipam::affinity_labels_to_match(&options);
    assert_eq!(
        serde_json::to_value(labels).unwrap(),
        json!({
            "projectcalico.org/hostname-hash": "FRXXL4ZJCRAQGLY23LYN5VYK7K3GE2HPCNCTI6NSIBMC6IRCVRRA",
            "projectcalico.org/affinity-type": "virtual",
            "projectcalico.org/ip-version": "4"
        })
    );
}

#[test]
fn objects_without_another_form_are_errors() {
    let node: Resource = api::Node::new("", "n", api::NodeSpec::default()).into();
    assert!(matches!(to_crd(&node), Err(CrdError::NotACustomResource(Kind::Node))));
    assert!(matches!(from_crd(Kind::Node, json!({})), Err(CrdError::NotACustomResource(Kind::Node))));
    assert!(ipam::from_resource(node).is_err());
    for object in [
        json!({"metadata": {"name": "a", "uid": "not one"}}),
        json!({"metadata": {"name": "a", "annotations": {METADATA_ANNOTATION: "{"}}}),
        json!({"metadata": {"name": "a"}, "spec": {"blockSize": []}}),
        json!([]),
    ] {
        assert!(from_crd(Kind::IPPool, object.clone()).is_err(), "{object}");
    }
    let block = json!({"metadata": {"name": "a"}, "spec": {"cidr": "10.0.0.0/30", "allocations": [-1]}});
    assert!(ipam::from_resource(from_crd(Kind::IPAMBlock, block).unwrap()).is_err());
}
