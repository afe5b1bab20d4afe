//! Services for a dataplane that serves them itself are sent with all their fields; other dataplanes do not get them.

use api::{KubernetesEndpointSlice, KubernetesService};
use calc::{CalcGraph, GraphConfig};
use messages::ToDataplane;
use model::feed::{FeedEntry, NamespacedName, Status};
use serde_json::json;

fn name(name: &str) -> NamespacedName {
    NamespacedName { namespace: "shop".to_owned(), name: name.to_owned() }
}

fn service() -> Box<KubernetesService> {
    let json = json!({
        "kind": "KubernetesService", "apiVersion": "projectcalico.org/v3",
        "metadata": {"namespace": "shop", "name": "web", "annotations": {"projectcalico.org/natExcludeService": "true"}},
        "spec": {
            "clusterIPs": ["10.96.0.1"], "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 100}},
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000, "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
        },
    });
    serde_json::from_value(json).expect("a service")
}

fn slice() -> Box<KubernetesEndpointSlice> {
    let json = json!({
        "kind": "KubernetesEndpointSlice", "apiVersion": "projectcalico.org/v3",
        "metadata": {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "spec": {
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "a"}]}}],
        },
    });
    serde_json::from_value(json).expect("a slice")
}

/// The messages of these two kinds that a change causes.
fn sent(graph: &mut CalcGraph, entries: Vec<FeedEntry>) -> Vec<ToDataplane> {
    for entry in entries {
        graph.on_entry(entry);
    }
    let mut out = Vec::new();
    graph.flush(&mut out);
    let is_object = |message: &ToDataplane| {
        matches!(message, ToDataplane::ServiceObject(..) | ToDataplane::EndpointSliceObject(..))
    };
    out.into_iter().filter(is_object).collect()
}

#[test]
fn objects_are_sent_only_to_dataplanes_that_serve_services() {
    for serves_services in [true, false] {
        let config = GraphConfig { host: "n1".into(), serves_services, ..GraphConfig::default() };
        let mut graph = CalcGraph::new(config);
        graph.on_status(Status::InSync);
        let both = vec![
            FeedEntry::EndpointSlice(name("web-1"), Some(slice())),
            FeedEntry::Service(name("web"), Some(service())),
        ];
        let whole = [
            ToDataplane::ServiceObject(name("web"), Some(service())),
            ToDataplane::EndpointSliceObject(name("web-1"), Some(slice())),
        ];
        let gone = [
            ToDataplane::ServiceObject(name("web"), None),
            ToDataplane::EndpointSliceObject(name("web-1"), None),
        ];
        let expected =
            |messages: [ToDataplane; 2]| if serves_services { messages.to_vec() } else { Vec::new() };
        assert_eq!(sent(&mut graph, both), expected(whole));
        // What appears and disappears between two flushes is not mentioned.
        let short =
            vec![FeedEntry::Service(name("short"), Some(service())), FeedEntry::Service(name("short"), None)];
        assert_eq!(sent(&mut graph, short), []);
        let both = vec![FeedEntry::Service(name("web"), None), FeedEntry::EndpointSlice(name("web-1"), None)];
        assert_eq!(sent(&mut graph, both), expected(gone));
    }
}
