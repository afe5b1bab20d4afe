//! The definitions as a whole: which there are, and that a kube-apiserver accepts each of them.

use super::*;
use crate::errors::{FieldErrors, FieldPath};
use crate::schema::check;
use std::collections::BTreeSet;

fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap()
}

fn schema(definition: &Value) -> &Map<String, Value> {
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].as_object().unwrap()
}

#[test]
fn the_definitions_are_calicos() {
    // Name, kind, singular, scope, status subresource.
    let expected = "\
bgpconfigurations BGPConfiguration bgpconfiguration Cluster -
bgpfilters BGPFilter bgpfilter Cluster -
bgppeers BGPPeer bgppeer Cluster -
blockaffinities BlockAffinity blockaffinity Cluster -
caliconodestatuses CalicoNodeStatus caliconodestatus Cluster status
clusterinformations ClusterInformation clusterinformation Cluster -
felixconfigurations FelixConfiguration felixconfiguration Cluster -
globalnetworkpolicies GlobalNetworkPolicy globalnetworkpolicy Cluster -
globalnetworksets GlobalNetworkSet globalnetworkset Cluster -
hostendpoints HostEndpoint hostendpoint Cluster -
ipamblocks IPAMBlock ipamblock Cluster -
ipamconfigs IPAMConfig ipamconfig Cluster -
ipamhandles IPAMHandle ipamhandle Cluster -
ippools IPPool ippool Cluster status
ipreservations IPReservation ipreservation Cluster -
kubecontrollersconfigurations KubeControllersConfiguration kubecontrollersconfiguration Cluster status
networkpolicies NetworkPolicy networkpolicy Namespaced -
networksets NetworkSet networkset Namespaced -
stagedglobalnetworkpolicies StagedGlobalNetworkPolicy stagedglobalnetworkpolicy Cluster -
stagedkubernetesnetworkpolicies StagedKubernetesNetworkPolicy stagedkubernetesnetworkpolicy Namespaced -
stagednetworkpolicies StagedNetworkPolicy stagednetworkpolicy Namespaced -
tiers Tier tier Cluster status
";
    let mut found = String::new();
    for definition in all() {
        let spec = &definition["spec"];
        let names = &spec["names"];
        let (kind, plural) = (names["kind"].as_str().unwrap(), names["plural"].as_str().unwrap());
        assert_eq!(name(&definition), format!("{plural}.crd.projectcalico.org"));
        assert_eq!(names["listKind"], format!("{kind}List"));
        assert!(names.get("shortNames").is_none());
        let version = &spec["versions"][0];
        assert_eq!(
            (&version["name"], &version["served"], &version["storage"]),
            (&json!("v1"), &json!(true), &json!(true))
        );
        let status = if version.get("subresources").is_some() { "status" } else { "-" };
        let (singular, scope) = (names["singular"].as_str().unwrap(), spec["scope"].as_str().unwrap());
        found.push_str(&format!("{plural} {kind} {singular} {scope} {status}\n"));
    }
    assert_eq!(found, expected);
    assert_eq!(all_v3().len(), all().len());
}

#[test]
fn names_differ_between_the_groups_where_calicos_do() {
    let v3 = all_v3();
    let find = |plural: &str| {
        v3.iter().find(|definition| name(definition) == format!("{plural}.projectcalico.org")).unwrap()
    };
    assert_eq!(find("ipamconfigurations")["spec"]["names"]["kind"], "IPAMConfiguration");
    assert_eq!(find("globalnetworkpolicies")["spec"]["names"]["shortNames"], json!(["gnp", "cgnp"]));
    assert_eq!(
        find("networkpolicies")["spec"]["versions"][0]["selectableFields"],
        json!([{"jsonPath": ".spec.tier"}])
    );
    assert_eq!(find("tiers")["spec"]["versions"][0]["additionalPrinterColumns"][0]["name"], "Order");
    let deleted = |definition: &Value| {
        schema(definition)["properties"]["spec"]["properties"]["deleted"]["type"].clone()
    };
    assert_eq!(deleted(find("blockaffinities")), "boolean");
    let v1 = all();
    let v1 = v1.iter().find(|definition| name(definition).starts_with("blockaffinities.")).unwrap();
    assert_eq!(deleted(v1), "string");
}

#[test]
fn every_schema_is_structural() {
    for definition in all().iter().chain(&all_v3()) {
        structural(schema(definition), name(definition));
    }
}

/// The rules of a kube-apiserver for schemas, as far as ours could violate them.
fn structural(schema: &Map<String, Value>, place: &str) {
    let is = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(true));
    let kind = schema.get("type").and_then(Value::as_str);
    if is("x-kubernetes-int-or-string") {
        assert_eq!(kind, None, "{place}: no type beside int-or-string");
    } else if !is("x-kubernetes-preserve-unknown-fields") {
        let known = ["object", "array", "string", "integer", "number", "boolean"];
        assert!(kind.is_some_and(|kind| known.contains(&kind)), "{place}: type {kind:?}");
    }
    if let Some(pattern) = schema.get("pattern") {
        regex::Regex::new(pattern.as_str().unwrap()).unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    if let Some(default) = schema.get("default") {
        let mut errors = FieldErrors::new();
        check(schema, default, &FieldPath::new(place), &mut errors);
        assert!(errors.is_empty(), "{place}: the default breaks the schema: {errors}");
    }
    let properties = schema.get("properties").map(|properties| properties.as_object().unwrap());
    assert!(properties.is_none() || kind == Some("object"), "{place}: properties of a {kind:?}");
    for required in schema.get("required").into_iter().flat_map(|required| required.as_array().unwrap()) {
        let required = required.as_str().unwrap();
        assert!(
            properties.is_some_and(|p| p.contains_key(required)),
            "{place}: required {required} is not a property"
        );
    }
    for rule in schema.get("x-kubernetes-validations").into_iter().flat_map(|rules| rules.as_array().unwrap())
    {
        assert!(rule["rule"].as_str().is_some_and(|text| text.contains("self")), "{place}: {rule}");
        assert!(
            rule["message"].as_str().is_some_and(|text| !text.is_empty() && !text.contains('\n')),
            "{place}: {rule}"
        );
    }
    assert_eq!(
        schema.contains_key("items"),
        kind == Some("array"),
        "{place}: a list, and only a list, has items"
    );
    if let Some(list_type) = schema.get("x-kubernetes-list-type") {
        let items = schema["items"].as_object().unwrap();
        let keys: BTreeSet<&str> = schema
            .get("x-kubernetes-list-map-keys")
            .into_iter()
            .flat_map(|keys| keys.as_array().unwrap())
            .map(|key| key.as_str().unwrap())
            .collect();
        match list_type.as_str().unwrap() {
            "map" => {
                assert!(!keys.is_empty(), "{place}: a map needs keys");
                for key in keys {
                    let required = items["required"].as_array().unwrap();
                    assert!(required.contains(&key.into()), "{place}: key {key} must be required");
                }
            }
            "set" => assert!(
                !matches!(items["type"].as_str(), Some("object" | "array")),
                "{place}: set of scalars"
            ),
            other => assert_eq!(other, "atomic", "{place}"),
        }
    }
    for (name, property) in properties.into_iter().flatten() {
        structural(property.as_object().unwrap(), &format!("{place}.{name}"));
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = schema.get(below) {
            structural(below.as_object().unwrap(), &format!("{place}[]"));
        }
    }
}

#[test]
fn every_field_has_a_description() {
    fn walk(schema: &Map<String, Value>, place: &str, missing: &mut Vec<String>) {
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let (property, place) = (property.as_object().unwrap(), format!("{place}.{name}"));
            let envelope = ["metadata", "status"].iter().any(|part| place.ends_with(&format!("org.{part}")));
            if !envelope && !property.contains_key("description") {
                missing.push(place.clone());
            }
            walk(property, &place, missing);
        }
        if let Some(items) = schema.get("items").and_then(Value::as_object) {
            walk(items, place, missing);
        }
    }
    let mut missing = Vec::new();
    for definition in all() {
        walk(schema(&definition), name(&definition), &mut missing);
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn the_yaml_round_trips() {
    let text = to_yaml();
    assert_eq!(text, to_yaml(), "the same bytes each time");
    assert_eq!(text.matches("---\n").count(), all().len());
    let documents: Vec<Value> = read_yaml(&text);
    assert_eq!(documents, all());
}

/// Reads YAML with a library other than the one that wrote it.
fn read_yaml(text: &str) -> Vec<Value> {
    use saphyr::{LoadableYamlNode as _, Scalar, Yaml};
    fn convert(node: &Yaml<'_>) -> Value {
        match node {
            Yaml::Value(Scalar::Null) => Value::Null,
            Yaml::Value(Scalar::Boolean(flag)) => (*flag).into(),
            Yaml::Value(Scalar::Integer(number)) => (*number).into(),
            Yaml::Value(Scalar::FloatingPoint(number)) => number.into_inner().into(),
            Yaml::Value(Scalar::String(text)) => text.as_ref().into(),
            Yaml::Sequence(items) => items.iter().map(convert).collect(),
            Yaml::Mapping(entries) => entries
                .iter()
                .map(|(key, value)| (key.as_str().unwrap().to_owned(), convert(value)))
                .collect(),
            other => panic!("unexpected node {other:?}"),
        }
    }
    Yaml::load_from_str(text).unwrap().iter().map(convert).collect()
}

#[test]
fn our_readers_keywords_are_not_published() {
    for text in [to_yaml(), to_yaml_v3()] {
        assert!(!text.contains(READS));
    }
}
