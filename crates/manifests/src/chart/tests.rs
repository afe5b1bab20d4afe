//! Renders the templates with Go's template language and the functions of Helm that they use; the output is compared
//! with the objects that are generated without templates.

use super::*;
use crate::options::REGISTRY;
use gotmpl::{Template, TemplateError, Value as Datum};
use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
use std::sync::Arc;

/// YAML as JSON.
fn json(node: &MarkedYaml<'_>) -> Value {
    match &node.data {
        YamlData::Value(Scalar::Boolean(truth)) => json!(truth),
        YamlData::Value(Scalar::Integer(number)) => json!(number),
        YamlData::Value(Scalar::String(text)) => json!(text),
        YamlData::Sequence(items) => items.iter().map(json).collect(),
        YamlData::Mapping(fields) => {
            let field = |(name, value): (&MarkedYaml<'_>, &MarkedYaml<'_>)| match &name.data {
                YamlData::Value(Scalar::String(text)) => (text.to_string(), json(value)),
                other => panic!("a key that is {other:?}"),
            };
            Value::Object(fields.iter().map(field).collect())
        }
        _ => Value::Null,
    }
}

fn documents(text: &str) -> Vec<Value> {
    let documents = MarkedYaml::load_from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    documents.iter().map(json).filter(|value| !value.is_null()).collect()
}

fn datum(value: &Value) -> Datum {
    match value {
        Value::Null => Datum::Nil,
        Value::Bool(truth) => Datum::Bool(*truth),
        Value::Number(number) => Datum::Int(number.as_i64().unwrap()),
        Value::String(text) => Datum::String(text.as_str().into()),
        Value::Array(items) => Datum::List(items.iter().map(datum).collect()),
        Value::Object(fields) => Datum::Map(Arc::new(
            fields.iter().map(|(name, value)| (name.as_str().into(), datum(value))).collect(),
        )),
    }
}

fn plain(datum: &Datum) -> Value {
    match datum {
        Datum::Bool(truth) => json!(truth),
        Datum::Int(number) => json!(number),
        Datum::String(text) => json!(&**text),
        Datum::List(items) => items.iter().map(plain).collect(),
        Datum::Map(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.to_string(), plain(value))).collect())
        }
        _ => Value::Null,
    }
}

/// Renders a template like Helm: with the functions that it adds to Go's.
fn rendered(text: &str, values: &Value) -> Result<String, TemplateError> {
    let string = |text: String| Ok(Datum::String(text.into()));
    Template::new("chart")
        .func("toYaml", move |arguments| string(yaml::to_string(&plain(&arguments[0])).trim_end().to_owned()))
        .func("indent", move |arguments| {
            let pad = " ".repeat(usize::try_from(arguments[0].as_int().unwrap()).unwrap());
            let text = arguments[1].as_str().unwrap();
            string(text.lines().map(|line| format!("{pad}{line}")).collect::<Vec<_>>().join("\n"))
        })
        .func("quote", move |arguments| string(format!("{:?}", arguments[0].to_string())))
        .func("default", |arguments| {
            Ok(if arguments[1].is_truthy() { arguments[1].clone() } else { arguments[0].clone() })
        })
        .func("fail", |arguments| Err(TemplateError::Exec(arguments[0].to_string())))
        .parse(text)?
        .execute_to_string(&datum(&json!({"Values": values})))
}

fn set(values: &mut Value, path: &str, value: Value) {
    let pointer = format!("/{}", path.replace('.', "/"));
    *values.pointer_mut(&pointer).unwrap_or_else(|| panic!("no value {path}")) = value;
}

fn chart(changes: &[(&str, Value)]) -> Result<Vec<Value>, TemplateError> {
    let files = files("v1", REGISTRY);
    let text =
        |name: &str| files.iter().find(|(path, _)| path == name).map(|(_, text)| text.clone()).unwrap();
    let mut values = documents(&text("values.yaml")).remove(0);
    for (path, value) in changes {
        set(&mut values, path, value.clone());
    }
    let mut objects = Vec::new();
    for (path, text) in
        files.iter().filter(|(path, _)| path.starts_with("templates/") && !path.starts_with("templates/crds"))
    {
        let out = rendered(text, &values)?;
        assert!(!out.contains('@'), "a mark is left in {path}:\n{out}");
        objects.extend(documents(&out));
    }
    Ok(objects)
}

/// The objects, with what a chart always contains but manifests contain only on request.
fn expected(options: &Options) -> Vec<Value> {
    let mut objects: Vec<Value> = without_crds(options).into_iter().map(|object| object.value).collect();
    for object in &mut objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let Some(pod) = object.pointer_mut("/spec/template/spec") else { continue };
        pod["affinity"] = json!({});
        pod["imagePullSecrets"] = json!([]);
        if let Some(list) = pod.pointer_mut("/initContainers").and_then(Value::as_array_mut) {
            for container in list.iter_mut().filter(|container| container["name"] == "install-cni") {
                let variables = container["env"].as_array_mut().unwrap();
                let place =
                    variables.iter().position(|variable| variable["name"] == "CNI_NETWORK_CONFIG").unwrap();
                variables.insert(place + 1, json!({"name": "CNI_NET_DIR", "value": "/etc/cni/net.d"}));
            }
        }
        let container = &mut pod["containers"][0];
        if container.get("resources").is_none() {
            container["resources"] = json!({});
        }
        let figures = match name.as_str() {
            "canal" | "calico-node" => "FELIX_PROMETHEUSMETRICSENABLED",
            "calico-typha" => "TYPHA_PROMETHEUSMETRICSENABLED",
            _ => continue,
        };
        container["env"].as_array_mut().unwrap().push(json!({"name": figures, "value": "false"}));
    }
    objects
}

#[test]
fn values_give_the_objects_of_each_manifest() {
    for (like, changes) in [
        (Like::Calico, vec![]),
        (Like::CalicoVxlan, vec![("vxlan", json!(true))]),
        (Like::CalicoTypha, vec![("typha.enabled", json!(true))]),
        (Like::CalicoPolicyOnly, vec![("network", json!("none")), ("typha.enabled", json!(true))]),
        (Like::Canal, vec![("network", json!("flannel"))]),
        (
            Like::CalicoEtcd,
            vec![("datastore", json!("etcd")), ("etcd.endpoints", json!("http://10.0.0.5:2379"))],
        ),
    ] {
        let mut options = Options::new(like, REGISTRY, "v1");
        options.set("etcd.endpoints", "http://10.0.0.5:2379").unwrap();
        let mut found = chart(&changes).unwrap();
        for object in &mut found {
            // An empty string is not a certificate.
            if object["kind"] == "Secret" {
                object["data"] = json!({});
            }
            // Without Typha, its service is named "none".
            if object["kind"] == "DaemonSet" && !options.typha {
                let variables = object
                    .pointer_mut("/spec/template/spec/containers/0/env")
                    .unwrap()
                    .as_array_mut()
                    .unwrap();
                variables.retain(|variable| variable["name"] != "FELIX_TYPHAK8SSERVICENAME");
            }
        }
        let expected = expected(&options);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(yaml::to_string(found), yaml::to_string(expected), "{}", like.name());
        }
        assert_eq!(found.len(), expected.len(), "{}", like.name());
    }
}

#[test]
fn values_are_inserted_where_they_belong() {
    let objects = chart(&[
        ("vxlan", json!(true)),
        ("registry", json!("registry.example.org/net")),
        ("version", json!("v9")),
        ("ipv6", json!(true)),
        ("ipv4Pool.cidr", json!("10.7.0.0/16")),
        ("ipv4Pool.vxlanMode", json!("Always")),
        ("ipv6Pool.cidr", json!("fd00:7::/48")),
        ("metrics.enabled", json!(true)),
        ("node.env", json!([{"name": "FELIX_LOGSEVERITYSCREEN", "value": "Debug"}])),
        ("node.tolerations", json!([])),
        ("node.affinity", json!({"nodeAffinity": {}})),
        ("kubeControllers.resources", json!({"limits": {"memory": "100Mi"}})),
        ("imagePullSecrets", json!([{"name": "mine"}])),
        ("kubernetesServiceEndpoint.host", json!("10.0.0.1")),
        ("cni.binDir", json!("/usr/libexec/cni")),
    ])
    .unwrap();
    let find = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let pod = &find("DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(pod["tolerations"], json!([]));
    assert_eq!(pod["affinity"], json!({"nodeAffinity": {}}));
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "mine"}]));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.org/net/node:v9");
    assert_eq!(container["ports"], json!([{"containerPort": 9091, "name": "metrics", "protocol": "TCP"}]));
    let variable = |name: &str| {
        let list = container["env"].as_array().unwrap();
        list.iter().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone())
    };
    for (name, value) in [
        ("CALICO_IPV4POOL_CIDR", "10.7.0.0/16"),
        ("CALICO_IPV4POOL_VXLAN", "Always"),
        ("CALICO_IPV6POOL_CIDR", "fd00:7::/48"),
        ("FELIX_IPV6SUPPORT", "true"),
        ("IP6", "autodetect"),
        ("FELIX_LOGSEVERITYSCREEN", "Debug"),
        ("FELIX_PROMETHEUSMETRICSENABLED", "true"),
    ] {
        assert_eq!(variable(name), Some(json!(value)), "{name}");
    }
    assert_eq!(variable("IP_AUTODETECTION_METHOD"), None);
    let text = serde_json::to_string(&objects).unwrap();
    assert!(
        text.contains("/usr/libexec/cni")
            && text.contains("assign_ipv6")
            && text.contains("KUBERNETES_SERVICE_HOST")
    );
    let deployment = &find("Deployment")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment["resources"], json!({"limits": {"memory": "100Mi"}}));
}

#[test]
fn invalid_values_are_refused() {
    for (path, value, reason) in [
        ("network", "weave", "network: weave is unknown"),
        ("datastore", "files", "datastore: files is unknown"),
        ("datastore", "etcd", "etcd.endpoints: say where"),
    ] {
        let error = chart(&[(path, json!(value))]).err().unwrap_or_else(|| panic!("{path}={value}"));
        assert!(error.to_string().contains(reason), "{error}");
    }
    for (path, reason) in [
        ("apiServer.enabled", "apiServer.caBundle: say who"),
        ("useV3CRDs", "webhooks.caBundle: say who"),
        ("goldmane.enabled", "goldmane.clusterIP: say which"),
        ("whisker.enabled", "whisker.enabled: the page"),
    ] {
        let error = chart(&[(path, json!(true))]).err().unwrap_or_else(|| panic!("{path}"));
        assert!(error.to_string().contains(reason), "{error}");
    }
    let error = chart(&[("ipv4", json!(false))]).expect_err("pods without addresses");
    assert!(error.to_string().contains("ipv4: without"), "{error}");
}

/// The same objects as with `--set`, in any order.
#[test]
fn optional_parts_are_present_on_request() {
    for settings in [
        &[("apiServer.enabled", "true"), ("apiServer.caBundle", "Y2E=")][..],
        &[("useV3CRDs", "true"), ("webhooks.caBundle", "Y2E=")],
        &[("goldmane.enabled", "true"), ("goldmane.clusterIP", "10.96.0.50"), ("whisker.enabled", "true")],
        &[("ipv4", "false"), ("ipv6", "true"), ("ipv6Pool.cidr", "fd00:5::/48")],
    ] {
        let mut options = Options::new(Like::CalicoVxlan, REGISTRY, "v1");
        let mut changes = vec![("vxlan", json!(true))];
        for (key, value) in settings {
            options.set(key, value).unwrap();
            changes.push((key, value.parse::<bool>().map_or(json!(value), Value::from)));
        }
        options.check().unwrap();
        // Variables are compared by name: their order differs if values add some.
        let described = |mut object: Value| {
            if let Some(list) =
                object.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut)
            {
                list.retain(|variable| variable["name"] != "FELIX_TYPHAK8SSERVICENAME");
                list.sort_by_key(|variable| variable["name"].as_str().map(str::to_owned));
            }
            if let Some(text) = object.pointer("/data/cni_network_config").and_then(Value::as_str) {
                let list = text.replace("__CNI_MTU__", "0");
                object["data"]["cni_network_config"] = serde_json::from_str(&list).unwrap();
            }
            yaml::to_string(&object)
        };
        let mut found: Vec<String> = chart(&changes).unwrap().into_iter().map(described).collect();
        let mut wanted: Vec<String> = expected(&options).into_iter().map(described).collect();
        found.sort();
        wanted.sort();
        for (found, wanted) in found.iter().zip(&wanted) {
            assert_eq!(found, wanted, "{settings:?}");
        }
        assert_eq!(found.len(), wanted.len(), "{settings:?}");
    }
}
