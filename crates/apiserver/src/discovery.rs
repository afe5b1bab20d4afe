//! The documents that clients read first: which groups, versions and resources exist. Both as Calico's separate
//! documents and in the aggregated form, which has all of it in one answer.

use crate::kinds::{GROUP, SERVED, STATUS_VERBS, VERBS, VERSION};
use serde_json::{Value, json};

/// The media type of the aggregated form.
pub(crate) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/`: the paths of this server.
#[must_use]
pub(crate) fn paths() -> Value {
    json!({"paths": [
        "/apis", "/apis/", "/apis/projectcalico.org", "/apis/projectcalico.org/v3",
        "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/projectcalico.org/v3", "/readyz", "/version",
    ]})
}

/// `/apis`.
#[must_use]
pub(crate) fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [bare_group()]})
}

/// `/apis/projectcalico.org`.
#[must_use]
pub(crate) fn group() -> Value {
    let mut group = bare_group();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    group
}

fn bare_group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

/// `/apis/projectcalico.org/v3`.
#[must_use]
pub(crate) fn resources() -> Value {
    let mut resources = Vec::new();
    for served in &SERVED {
        let mut resource = json!({
            "name": served.plural(),
            "singularName": "",
            "namespaced": served.kind.is_namespaced(),
            "kind": served.kind.as_str(),
            "verbs": VERBS,
        });
        if !served.short_names.is_empty() {
            resource["shortNames"] = json!(served.short_names);
        }
        if served.has_category {
            resource["categories"] = json!([""]);
        }
        resources.push(resource);
        if served.has_status {
            resources.push(json!({
                "name": format!("{}/status", served.plural()),
                "singularName": "",
                "namespaced": served.kind.is_namespaced(),
                "kind": served.kind.as_str(),
                "verbs": STATUS_VERBS,
            }));
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": resources,
    })
}

/// `/apis` in its aggregated form.
#[must_use]
pub(crate) fn aggregated() -> Value {
    let resources: Vec<Value> = SERVED
        .iter()
        .map(|served| {
            let kind = json!({"group": GROUP, "version": VERSION, "kind": served.kind.as_str()});
            let mut resource = json!({
                "resource": served.plural(),
                "responseKind": kind,
                "scope": if served.kind.is_namespaced() { "Namespaced" } else { "Cluster" },
                "singularResource": "",
                "verbs": VERBS,
            });
            if !served.short_names.is_empty() {
                resource["shortNames"] = json!(served.short_names);
            }
            if served.has_category {
                resource["categories"] = json!([""]);
            }
            if served.has_status {
                resource["subresources"] =
                    json!([{"subresource": "status", "responseKind": kind, "verbs": STATUS_VERBS}]);
            }
            resource
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{
            "metadata": {"name": GROUP, "creationTimestamp": null},
            "versions": [{"version": VERSION, "resources": resources, "freshness": "Current"}],
        }],
    })
}

/// Whether a client accepts the aggregated form.
#[must_use]
pub(crate) fn wants_aggregated(accept: &str) -> bool {
    let wanted = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
    accept.split(',').any(|choice| {
        let parts: Vec<&str> = choice.split(';').map(str::trim).collect();
        parts.first() == Some(&"application/json") && wanted.iter().all(|part| parts.contains(part))
    })
}

/// `/version`, in the format of Kubernetes' servers.
#[must_use]
pub(crate) fn version() -> Value {
    let text = env!("CARGO_PKG_VERSION");
    let mut parts = text.split('.');
    json!({
        "major": parts.next().unwrap_or_default(),
        "minor": parts.next().unwrap_or_default(),
        "gitVersion": format!("v{text}"),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_match_calicos_server() {
        let captured: Vec<Value> = include_str!("../tests/data/resources.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(resources()["resources"], Value::Array(captured));
    }

    #[test]
    fn forms_are_negotiated() {
        assert!(wants_aggregated(AGGREGATED));
        assert!(wants_aggregated(
            "application/json; v=v2; g=apidiscovery.k8s.io; as=APIGroupDiscoveryList, application/json"
        ));
        assert!(!wants_aggregated(
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
        ));
        assert!(!wants_aggregated("application/json"));
    }

    #[test]
    fn both_forms_have_the_same_content() {
        let aggregated = aggregated();
        let items =
            aggregated.pointer("/items/0/versions/0/resources").and_then(Value::as_array).expect("a list");
        let mut names = Vec::new();
        for item in items {
            let name = item["resource"].as_str().unwrap_or_default();
            names.push(name.to_owned());
            for sub in item["subresources"].as_array().into_iter().flatten() {
                names.push(format!("{name}/{}", sub["subresource"].as_str().unwrap_or_default()));
            }
        }
        let document = resources();
        let plain: Vec<&str> = document["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|r| r["name"].as_str())
            .collect();
        assert_eq!(names, plain);
    }
}
