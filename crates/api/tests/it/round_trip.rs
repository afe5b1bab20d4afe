//! Objects that Calico wrote into etcd are read and written back byte for byte, and pass our own validation.

use api::{Kind, Resource};

/// `(kind, JSON)` of each resource in a dump of etcd: key and value on alternating lines.
fn stored_resources() -> Vec<(Kind, &'static str)> {
    let dump = include_str!("../../../testkit/data/felix-etcd.txt");
    let lines: Vec<&str> = dump.lines().collect();
    lines
        .chunks_exact(2)
        .map(|pair| {
            let plural = pair[0]
                .strip_prefix("/calico/resources/v3/projectcalico.org/")
                .unwrap()
                .split('/')
                .next()
                .unwrap();
            (Kind::from_plural(plural).unwrap_or_else(|| panic!("no kind for {}", pair[0])), pair[1])
        })
        .collect()
}

#[test]
fn bytes_are_kept() {
    let resources = stored_resources();
    assert!(resources.len() >= 20, "the dump has {} resources", resources.len());
    for (kind, json) in resources {
        let resource =
            Resource::from_json(kind, json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"));
        assert_eq!(String::from_utf8(resource.to_json().unwrap()).unwrap(), json);
    }
}

#[test]
fn stored_objects_are_valid_and_have_all_defaults() {
    for (kind, json) in stored_resources() {
        let mut resource = Resource::from_json(kind, json.as_bytes()).unwrap();
        resource.validate().unwrap_or_else(|errors| panic!("{json}\n{errors}"));
        resource.set_read_defaults();
        resource.set_defaults();
        assert_eq!(String::from_utf8(resource.to_json().unwrap()).unwrap(), json);
    }
}

#[test]
fn unknown_fields_are_kept() {
    let json = concat!(
        r#"{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"p","namespace":"n","#,
        r#""ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"u","blockOwnerDeletion":true}],"#,
        r#""finalizers":["f"],"managedFields":[{"manager":"m"}]},"#,
        r#""spec":{"order":10.5,"ingress":[{"action":"Mirror","protocol":"QUIC","source":{"nets":["nonsense"],"geo":"se"},"#,
        r#""destination":{"ports":["90:80",70000]},"sample":0.1}],"types":["Ingress","Transit"],"novelty":{"a":[1]}},"#,
        r#""future":true}"#
    );
    let policy = Resource::from_json(Kind::NetworkPolicy, json.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(policy.to_json().unwrap()).unwrap(), json);
    assert!(policy.validate().is_err(), "kept, but not accepted in a write");
}

#[test]
fn numbers_and_nulls_are_written_like_in_go() {
    for (read, written) in [
        (r#"{"order":1000000.0}"#, r#"{"order":1000000}"#),
        (r#"{"order":null,"ingress":null,"selector":null}"#, "{}"),
        (r#"{"tier":"","ingress":[],"selector":""}"#, "{}"),
        (
            r#"{"ingress":[{"action":"Allow","protocol":"6","source":{},"destination":{"ports":["80","1:1"]}}]}"#,
            r#"{"ingress":[{"action":"Allow","protocol":6,"destination":{"ports":[80,1]}}]}"#,
        ),
        (r#"{"egress":[{}]}"#, r#"{"egress":[{"action":""}]}"#),
    ] {
        let spec: api::NetworkPolicySpec = serde_json::from_str(read).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), written);
    }
}

#[test]
fn text_is_escaped_like_in_go() {
    let json = concat!(
        r#"{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"p","namespace":"n","#,
        r#""annotations":{"a":"\u003cb\u003e \"q\" \\ \t é \u2028"}},"spec":{"selector":"has(a) \u0026\u0026 has(b)"}}"#
    );
    let policy = Resource::from_json(Kind::NetworkPolicy, json.as_bytes()).unwrap();
    let Resource::NetworkPolicy(typed) = &policy else { panic!("another kind") };
    assert_eq!(typed.spec.selector.as_str(), "has(a) && has(b)");
    assert_eq!(String::from_utf8(policy.to_json().unwrap()).unwrap(), json);
}

#[test]
fn a_policy_stored_without_its_tier_label_gets_it_on_reading() {
    for kind in [
        Kind::NetworkPolicy,
        Kind::GlobalNetworkPolicy,
        Kind::StagedNetworkPolicy,
        Kind::StagedGlobalNetworkPolicy,
    ] {
        for (stored, label) in [
            (r#"{"metadata":{"name":"p"},"spec":{"tier":"security"}}"#, "default"),
            (r#"{"metadata":{"name":"p","labels":{"projectcalico.org/tier":"security"}}}"#, "security"),
        ] {
            let mut policy = Resource::from_json(kind, stored.as_bytes()).unwrap();
            policy.set_read_defaults();
            assert_eq!(policy.metadata().labels["projectcalico.org/tier"], label, "{kind}");
        }
    }
}

#[test]
fn kinds_of_feeds_keep_what_kubernetes_wrote() {
    for (kind, json) in [
        (
            Kind::KubernetesService,
            concat!(
                r#"{"kind":"KubernetesService","apiVersion":"projectcalico.org/v3","metadata":{"name":"s","namespace":"n"},"#,
                r#""spec":{"ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":"web"}],"selector":{"a":"b"},"#,
                r#""clusterIP":"10.0.0.1","type":"ClusterIP"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}"#
            ),
        ),
        (
            Kind::KubernetesEndpointSlice,
            concat!(
                r#"{"kind":"KubernetesEndpointSlice","apiVersion":"projectcalico.org/v3","#,
                r#""metadata":{"name":"s-1","namespace":"n"},"spec":{"addressType":"IPv4","#,
                r#""endpoints":[{"addresses":["10.1.0.1"],"conditions":{"ready":true},"nodeName":"n1"}],"#,
                r#""ports":[{"name":"http","protocol":"TCP","port":8080}]}}"#
            ),
        ),
        (
            Kind::KubernetesNetworkPolicy,
            concat!(
                r#"{"kind":"KubernetesNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},"#,
                r#""spec":{"tier":"default","order":1000,"selector":"has(a)","types":["Ingress"]}}"#
            ),
        ),
    ] {
        let resource = Resource::from_json(kind, json.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(resource.to_json().unwrap()).unwrap(), json);
        assert_eq!(resource.validate(), Ok(()));
    }
}
