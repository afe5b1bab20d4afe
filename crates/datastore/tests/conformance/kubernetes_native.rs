//! Kinds that are derived from Kubernetes' own objects, end to end on a real kube-apiserver; and what is specific to
//! Kubernetes: permissions, missing definitions, deletion by mark, conversion of bookkeeping.

use crate::fixture::Fixture as _;
use crate::harness::{expect_error, name_of, next_event, sample, short};
use crate::kubernetes_store::{KubernetesStore, alone};
use crate::kubernetes_validation;
use anyhow::{Context as _, Result, ensure};
use api::{Kind, Resource};
use datastore::kubernetes::{ApiGroup, KubernetesBackend, KubernetesConfig};
use datastore::{Backend, Error, Watch, WatchEvent, WatchOptions};
use futures::future::BoxFuture;
use model::{AffinityType, BlockAffinityKey, Key, KvPair, ListOptions, Value as Stored};
use serde_json::{Value, json};

type Case = (&'static str, for<'a> fn(&'a Server) -> BoxFuture<'a, Result<()>>);

const CASES: &[Case] = &[
    ("pods are workload endpoints", |server| Box::pin(pods(server))),
    ("the CNI plugin writes addresses", |server| Box::pin(cni(server))),
    ("namespaces and service accounts are profiles", |server| Box::pin(profiles(server))),
    ("nodes carry annotations", |server| Box::pin(nodes(server))),
    ("Kubernetes' policies are policies", |server| Box::pin(policies(server))),
    ("services and endpoint slices", |server| Box::pin(services(server))),
    ("missing definitions", |server| Box::pin(missing_definitions(server))),
    ("cluster policies and live migrations", |server| Box::pin(third_party(server))),
    ("IPAM objects are deleted by mark", |server| Box::pin(deletion_by_mark(server))),
    ("metadata survives", |server| Box::pin(metadata(server))),
    ("refusals name the user", |server| Box::pin(rights(server))),
    ("ways to connect", |server| Box::pin(connections(server))),
    ("validation verdicts agree", |server| Box::pin(kubernetes_validation::verdicts(&server.store))),
];

/// The server that the cases share.
struct Server {
    store: KubernetesStore,
    backend: KubernetesBackend,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_native_objects() -> Result<()> {
    let _alone = alone().await;
    let store = KubernetesStore::on_etcd(&api::crds::to_yaml()).await?;
    let backend = KubernetesBackend::connect(&store.config()).await?;
    ensure!(backend.is_kubernetes() && backend.api_group() == ApiGroup::CrdV1);
    let server = Server { store, backend };
    let only = std::env::var("TORTIE_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut passed = 0;
    for (name, case) in CASES.iter().filter(|(name, _)| name.contains(only.as_str())) {
        match case(&server).await {
            Ok(()) => {
                passed += 1;
                eprintln!("kubernetes: ok {name}");
            }
            Err(error) => {
                eprintln!("kubernetes: FAILED {name}: {error:#}");
                failures.push(*name);
            }
        }
    }
    eprintln!("kubernetes: {passed} of {} cases passed", passed + failures.len());
    ensure!(failures.is_empty() && passed > 0, "failed: {}", failures.join(", "));
    Ok(())
}

fn list_in(kind: Kind, namespace: &str) -> ListOptions {
    ListOptions::Resource { kind, namespace: Some(namespace.to_owned()), name: None, name_is_prefix: false }
}

async fn follow(server: &Server, list: &ListOptions) -> Result<(Vec<KvPair>, Watch)> {
    let listed = server.backend.list(list, None).await?;
    ensure!(listed.invalid.is_empty(), "{:?}", listed.invalid);
    let options = WatchOptions { revision: Some(listed.revision), ..WatchOptions::default() };
    Ok((listed.items, server.backend.watch(list, options).await?))
}

fn json_of(pair: &KvPair) -> Result<Value> {
    Ok(serde_json::to_value(pair.as_resource().context("no resource")?)?)
}

fn pod(namespace: &str, name: &str, node: Option<&str>) -> Value {
    let ports = json!([{"name": "http", "containerPort": 80}, {"containerPort": 81}]);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}},
        "spec": {"serviceAccountName": "runner", "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "none", "ports": ports}]},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

async fn pods(server: &Server) -> Result<()> {
    server.store.namespace("pods").await?;
    let list = list_in(Kind::WorkloadEndpoint, "pods");
    let (before, mut events) = follow(server, &list).await?;
    ensure!(before.is_empty(), "{before:?}");
    server.store.create(&pod("pods", "unscheduled", None)).await?;
    let mut on_host = pod("pods", "on-host", Some("node-1"));
    on_host["spec"]["hostNetwork"] = true.into();
    on_host["spec"]["containers"][0]["ports"] = json!([]);
    server.store.create(&on_host).await?;
    server.store.create(&pod("pods", "web-1", Some("node-1"))).await?;
    let WatchEvent::Added(added) = next_event(&mut events).await? else { anyhow::bail!("no addition") };
    let endpoint = json_of(&added)?;
    ensure!(name_of(&added) == "node--1-k8s-web--1-eth0", "{endpoint}");
    ensure!(endpoint["spec"]["profiles"] == json!(["kns.pods", "ksa.pods.runner"]), "{endpoint}");
    ensure!(endpoint["metadata"]["labels"]["projectcalico.org/serviceaccount"] == "runner", "{endpoint}");
    ensure!(endpoint["spec"].get("ipNetworks").is_none(), "{endpoint}");
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 80, "hostPort": 0, "hostIP": ""}]);
    ensure!(endpoint["spec"]["ports"] == ports, "{endpoint}");

    // kubelet reports the address; then the pod ends and its address is released.
    for (status, expected) in [
        (
            json!({"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}),
            json!(["10.0.0.9/32"]),
        ),
        (json!({"phase": "Succeeded", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}), Value::Null),
    ] {
        let patch = json!({"status": status}).to_string();
        let arguments =
            ["patch", "pod", "web-1", "-n", "pods", "--subresource=status", "--type=merge", "-p", &patch];
        server.store.kubectl(&arguments, "").await?;
        let WatchEvent::Modified { new } = next_event(&mut events).await? else {
            anyhow::bail!("no modification")
        };
        let endpoint = json_of(&new)?;
        ensure!(*endpoint.pointer("/spec/ipNetworks").unwrap_or(&Value::Null) == expected, "{endpoint}");
    }

    // Read by name, listed by name and by prefix.
    let read = server.backend.get(&added.key, None).await?;
    ensure!(read.revision != added.revision && read.uid == added.uid, "{read:?}");
    for (name, is_prefix, count) in [
        ("node--1-k8s-web--1-eth0", false, 1),
        ("node--1-k8s-web--1-", true, 1),
        ("node--1-", true, 1),
        ("node--2-", true, 0),
        ("node--1-k8s-web--1-eth1", false, 0),
    ] {
        let list = ListOptions::Resource {
            kind: Kind::WorkloadEndpoint,
            namespace: Some("pods".into()),
            name: Some(name.into()),
            name_is_prefix: is_prefix,
        };
        let listed = server.backend.list(&list, None).await?;
        ensure!(listed.items.len() == count, "{name}: {:?}", listed.items);
    }
    for name in
        ["node--1-k8s-unscheduled-eth0", "node--1-k8s-on--host-eth0", "node--2-k8s-web--1-eth0", "nonsense"]
    {
        let key = Key::resource(Kind::WorkloadEndpoint, "pods", name);
        expect_error(server.backend.get(&key, None).await, "does not exist", Error::is_does_not_exist)?;
    }

    // Text that is not an address is reported, and so is the pod's end.
    let patch = json!({"metadata": {"annotations": {"cni.projectcalico.org/allowedSourcePrefixes": "x"}}})
        .to_string();
    server.store.kubectl(&["patch", "pod", "web-1", "-n", "pods", "-p", &patch], "").await?;
    let WatchEvent::Invalid(reported) = next_event(&mut events).await? else { anyhow::bail!("no report") };
    ensure!(reported.parsed_key.as_ref() == Some(&added.key), "{reported:?}");
    let listed = server.backend.list(&list, None).await?;
    ensure!(listed.items.is_empty() && listed.invalid.len() == 1, "{listed:?}");
    server
        .store
        .kubectl(&["delete", "pod", "web-1", "-n", "pods", "--force", "--grace-period=0"], "")
        .await?;
    let mut next = next_event(&mut events).await?;
    while let WatchEvent::Invalid(_) = next {
        next = next_event(&mut events).await?;
    }
    ensure!(matches!(&next, WatchEvent::Deleted(pair) if pair.key == added.key), "{next:?}");
    Ok(())
}

async fn cni(server: &Server) -> Result<()> {
    server.store.namespace("cni").await?;
    server.store.create(&pod("cni", "web-1", Some("node-1"))).await?;
    let key = Key::resource(Kind::WorkloadEndpoint, "cni", "node--1-k8s-web--1-eth0");
    let mut entry = server.backend.get(&key, None).await?;
    let Stored::Resource(Resource::WorkloadEndpoint(endpoint)) = &mut entry.value else {
        anyhow::bail!("{entry:?}")
    };
    endpoint.spec.ip_networks = vec!["10.0.0.7/32".into(), "fd00::7/128".into()];
    endpoint.spec.container_id = "abc".to_owned();
    let refused = |error: &Error| matches!(error, Error::NotSupported { .. });
    expect_error(server.backend.create(&entry).await, "not supported", refused)?;
    expect_error(server.backend.update(&entry).await, "not supported", refused)?;

    let plugin = server.backend.clone().for_cni();
    let written = plugin.update(&entry).await?;
    let spec = json_of(&written)?["spec"].clone();
    ensure!(spec["ipNetworks"] == json!(["10.0.0.7/32", "fd00::7/128"]), "{spec}");
    ensure!(spec["containerID"] == "abc", "{spec}");
    let annotations = server
        .store
        .kubectl(&["get", "pod", "web-1", "-n", "cni", "-o", "jsonpath={.metadata.annotations}"], "")
        .await?;
    let expected = json!({
        "cni.projectcalico.org/podIP": "10.0.0.7/32", "cni.projectcalico.org/podIPs": "10.0.0.7/32,fd00::7/128",
        "cni.projectcalico.org/containerID": "abc",
    });
    ensure!(serde_json::from_str::<Value>(&annotations)? == expected, "{annotations}");
    let named = ListOptions::Resource {
        kind: Kind::WorkloadEndpoint,
        namespace: Some("cni".into()),
        name: Some("node--1-k8s-web--1-".into()),
        name_is_prefix: true,
    };
    ensure!(plugin.list(&named, None).await?.items.len() == 1);

    // Another pod with the same name is a different endpoint.
    let mut stranger = written.clone();
    stranger.uid = Some("99999999-2222-4333-8444-555555555555".into());
    expect_error(plugin.delete_entry(&stranger).await, "does not exist", Error::is_does_not_exist)?;
    let mut stale = written.clone();
    stale.revision = "1".into();
    expect_error(plugin.delete_entry(&stale).await, "conflict", Error::is_conflict)?;
    let removed = plugin.delete_entry(&written).await?;
    let spec = json_of(&removed)?["spec"].clone();
    ensure!(spec.get("ipNetworks").is_none() && spec["containerID"] == "abc", "{spec}");
    server.store.kubectl(&["delete", "pod", "web-1", "-n", "cni", "--force", "--grace-period=0"], "").await?;
    expect_error(plugin.delete(&key, None).await, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}

async fn profiles(server: &Server) -> Result<()> {
    let list = ListOptions::resources(Kind::Profile);
    let (before, mut events) = follow(server, &list).await?;
    let names: Vec<&str> = before.iter().map(name_of).collect();
    ensure!(names.contains(&"projectcalico-default-allow") && names.contains(&"kns.default"), "{names:?}");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"team": "a"}}});
    server.store.create(&namespace).await?;
    let added = next_event(&mut events).await?;
    ensure!(short(&added) == "added kns.shop ", "{added:?}");
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "web.v1", "namespace": "shop", "labels": {"role": "web"}},
    });
    server.store.create(&account).await?;
    let added = next_event(&mut events).await?;
    ensure!(short(&added) == "added ksa.shop.web.v1 ", "{added:?}");

    let read = server.backend.get(&Key::resource(Kind::Profile, "", "kns.shop"), None).await?;
    let labels = json!({"pcns.team": "a", "pcns.kubernetes.io/metadata.name": "shop", "pcns.projectcalico.org/name": "shop"});
    let profile = json_of(&read)?;
    ensure!(profile["spec"]["labelsToApply"] == labels, "{profile}");
    ensure!(profile["spec"]["ingress"][0]["action"] == "Allow" && read.revision.ends_with('/'), "{profile}");
    let account_key = Key::resource(Kind::Profile, "", "ksa.shop.web.v1");
    let read = server.backend.get(&account_key, None).await?;
    let labels = json!({"pcsa.role": "web", "pcsa.projectcalico.org/name": "web.v1"});
    ensure!(json_of(&read)?["spec"]["labelsToApply"] == labels && read.revision.starts_with('/'), "{read:?}");

    // From the revision of one event, both halves resume.
    let WatchEvent::Added(pair) = &added else { anyhow::bail!("{added:?}") };
    server.store.kubectl(&["label", "namespace", "shop", "team=b", "--overwrite"], "").await?;
    let options =
        WatchOptions { revision: Some(pair.revision.clone()), bookmarks: true, ..WatchOptions::default() };
    let mut resumed = server.backend.watch(&list, options).await?;
    let modified = next_event(&mut resumed).await?;
    ensure!(short(&modified) == "modified kns.shop ", "{modified:?}");
    server.store.kubectl(&["delete", "serviceaccount", "web.v1", "-n", "shop"], "").await?;
    let deleted = next_event(&mut resumed).await?;
    ensure!(short(&deleted) == "deleted ksa.shop.web.v1 ", "{deleted:?}");

    for (name, count) in
        [("kns.shop", 1), ("ksa.shop.web.v1", 0), ("projectcalico-default-allow", 1), ("other", 0)]
    {
        let list = ListOptions::Resource {
            kind: Kind::Profile,
            namespace: None,
            name: Some(name.into()),
            name_is_prefix: false,
        };
        let listed = server.backend.list(&list, None).await?;
        ensure!(listed.items.len() == count, "{name}: {:?}", listed.items);
    }
    expect_error(server.backend.get(&account_key, None).await, "does not exist", Error::is_does_not_exist)?;
    let entry = KvPair::resource(sample(Kind::Profile, "kns.other")?);
    for outcome in [server.backend.create(&entry).await, server.backend.update(&entry).await] {
        expect_error(outcome, "not supported", |error| matches!(error, Error::NotSupported { .. }))?;
    }
    Ok(())
}

async fn nodes(server: &Server) -> Result<()> {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "machine-1", "labels": {"rack": "7"}, "annotations": {"keep": "me"}},
        "spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]},
    });
    let list = ListOptions::resources(Kind::Node);
    let (_, mut events) = follow(server, &list).await?;
    server.store.create(&node).await?;
    let added = next_event(&mut events).await?;
    ensure!(short(&added) == "added machine-1 ", "{added:?}");
    let key = Key::resource(Kind::Node, "", "machine-1");
    let read = server.backend.get(&key, None).await?;
    let json = json_of(&read)?;
    ensure!(
        json["metadata"]["labels"]["rack"] == "7" && json["status"]["podCIDRs"] == json!(["10.9.0.0/24"]),
        "{json}"
    );

    let mut changed = read.clone();
    let Stored::Resource(Resource::Node(calico)) = &mut changed.value else { anyhow::bail!("{changed:?}") };
    calico.metadata.labels.insert("mine".into(), "yes".into());
    calico.spec.ipv4_vxlan_tunnel_addr = "10.1.0.1".into();
    let bgp = calico.spec.bgp.get_or_insert_default();
    bgp.ipv4_address = "192.0.2.1/24".into();
    bgp.as_number = Some(api::scalars::ASNumber(64512));
    let written = server.backend.update(&changed).await?;
    ensure!(written.revision != read.revision, "the revision stays");
    let annotations = server
        .store
        .kubectl(&["get", "node", "machine-1", "-o", "jsonpath={.metadata.annotations}"], "")
        .await?;
    let expected = json!({
        "keep": "me", "projectcalico.org/ASNumber": "64512", "projectcalico.org/IPv4Address": "192.0.2.1/24",
        "projectcalico.org/IPv4VXLANTunnelAddr": "10.1.0.1", "projectcalico.org/labels": "{\"mine\":\"yes\"}",
    });
    ensure!(serde_json::from_str::<Value>(&annotations)? == expected, "{annotations}");
    let labels =
        server.store.kubectl(&["get", "node", "machine-1", "-o", "jsonpath={.metadata.labels}"], "").await?;
    ensure!(!labels.contains("mine"), "{labels}");
    let modified = next_event(&mut events).await?;
    ensure!(short(&modified) == "modified machine-1 ", "{modified:?}");
    expect_error(server.backend.update(&changed).await, "conflict", Error::is_conflict)?;

    // Clearing a field removes its annotation; other tools' annotations stay.
    let mut cleared = written.clone();
    let Stored::Resource(Resource::Node(calico)) = &mut cleared.value else { anyhow::bail!("{cleared:?}") };
    calico.spec.bgp = None;
    calico.spec.ipv4_vxlan_tunnel_addr = Default::default();
    calico.metadata.labels.remove("mine");
    server.backend.update(&cleared).await?;
    let annotations = server
        .store
        .kubectl(&["get", "node", "machine-1", "-o", "jsonpath={.metadata.annotations}"], "")
        .await?;
    ensure!(serde_json::from_str::<Value>(&annotations)? == json!({"keep": "me"}), "{annotations}");

    let host_local =
        KubernetesBackend::connect(&KubernetesConfig { use_pod_cidr: true, ..server.store.config() }).await?;
    let json = json_of(&host_local.get(&key, None).await?)?;
    ensure!(json["spec"]["bgp"]["ipv4IPIPTunnelAddr"] == "10.9.0.1", "{json}");
    let outcome = host_local.list(&ListOptions::Block { ip_version: None }, None).await;
    expect_error(outcome, "not supported", |error| matches!(error, Error::NotSupported { .. }))?;
    for outcome in [server.backend.create(&read).await, server.backend.delete(&key, None).await] {
        expect_error(outcome, "not supported", |error| matches!(error, Error::NotSupported { .. }))?;
    }
    Ok(())
}

async fn policies(server: &Server) -> Result<()> {
    server.store.namespace("policies").await?;
    let list = ListOptions::resources(Kind::KubernetesNetworkPolicy);
    let (before, mut events) = follow(server, &list).await?;
    ensure!(before.is_empty(), "{before:?}");
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "web", "namespace": "policies"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [{
            "from": [{"namespaceSelector": {}}], "ports": [{"port": 80}, {"port": 81}, {"port": "metrics"}],
        }]},
    });
    server.store.create(&policy).await?;
    let WatchEvent::Added(added) = next_event(&mut events).await? else { anyhow::bail!("no addition") };
    let spec = json_of(&added)?["spec"].clone();
    let expected = json!({
        "tier": "default", "order": 1000, "selector": "projectcalico.org/orchestrator == 'k8s' && app == 'web'",
        "types": ["Ingress"], "ingress": [{
            "action": "Allow", "protocol": "TCP",
            "source": {"selector": "projectcalico.org/orchestrator == 'k8s'", "namespaceSelector": "all()"},
            "destination": {"ports": ["metrics", "80:81"]},
        }],
    });
    ensure!(spec == expected, "{spec}");
    ensure!(added.key == Key::resource(Kind::KubernetesNetworkPolicy, "policies", "web"), "{:?}", added.key);
    let listed = server.backend.list(&list_in(Kind::KubernetesNetworkPolicy, "policies"), None).await?;
    ensure!(listed.items == [added.clone()], "{:?}", listed.items);
    server.store.kubectl(&["delete", "networkpolicy", "web", "-n", "policies"], "").await?;
    let deleted = next_event(&mut events).await?;
    ensure!(matches!(&deleted, WatchEvent::Deleted(pair) if pair.key == added.key), "{deleted:?}");
    let outcome = server.backend.get(&added.key, None).await;
    expect_error(outcome, "not supported", |error| matches!(error, Error::NotSupported { .. }))?;
    Ok(())
}

async fn services(server: &Server) -> Result<()> {
    server.store.namespace("services").await?;
    let (_, mut service_events) = follow(server, &list_in(Kind::KubernetesService, "services")).await?;
    let (_, mut slice_events) = follow(server, &list_in(Kind::KubernetesEndpointSlice, "services")).await?;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "services"},
        "spec": {"ports": [{"port": 80, "targetPort": "http"}], "selector": {"app": "web"}},
    });
    server.store.create(&service).await?;
    let WatchEvent::Added(added) = next_event(&mut service_events).await? else {
        anyhow::bail!("no addition")
    };
    let json = json_of(&added)?;
    ensure!(json["spec"]["ports"][0]["port"] == 80 && json["spec"]["type"] == "ClusterIP", "{json}");
    let read = server.backend.get(&added.key, None).await?;
    ensure!(read == added, "{read:?}");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-x", "namespace": "services", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
    });
    server.store.create(&slice).await?;
    let WatchEvent::Added(added) = next_event(&mut slice_events).await? else { anyhow::bail!("no addition") };
    let json = json_of(&added)?;
    ensure!(json["spec"]["endpoints"][0]["addresses"] == json!(["10.0.0.1"]), "{json}");
    ensure!(json["metadata"]["labels"]["kubernetes.io/service-name"] == "web", "{json}");
    ensure!(json["spec"].get("kind").is_none() && json["spec"].get("apiVersion").is_none(), "{json}");
    Ok(())
}

async fn missing_definitions(server: &Server) -> Result<()> {
    // KubeVirt and the cluster policies are not installed: there are no objects, and a watch reports why.
    for kind in [Kind::LiveMigration, Kind::KubernetesClusterNetworkPolicy] {
        let list = ListOptions::resources(kind);
        let listed = server.backend.list(&list, None).await?;
        ensure!(listed.items.is_empty() && listed.revision.is_empty(), "{listed:?}");
        let Err(error) = server.backend.watch(&list, WatchOptions::default()).await else {
            anyhow::bail!("a watch of nothing")
        };
        ensure!(error.is_does_not_exist() && error.to_string().contains("not installed"), "{error}");
    }
    let elsewhere =
        KubernetesConfig { calico_api_group: "ProjectCalico.org/v3".into(), ..server.store.config() };
    let elsewhere = KubernetesBackend::connect(&elsewhere).await?;
    ensure!(elsewhere.api_group() == ApiGroup::ProjectCalicoV3);
    let Err(error) = elsewhere.ensure_ready().await else { anyhow::bail!("ready without definitions") };
    let text = error.to_string();
    ensure!(
        text.contains("projectcalico.org/v3")
            && text.contains("networkpolicies")
            && text.contains("tortie crds"),
        "{text}"
    );
    let outcome = elsewhere.create(&KvPair::resource(sample(Kind::NetworkSet, "x")?)).await;
    let error = expect_error(outcome, "does not exist", Error::is_does_not_exist)?;
    ensure!(error.to_string().contains("not installed"), "{error}");
    Ok(())
}

/// A definition of a third-party kind that accepts anything.
fn third_party_definition(group: &str, version: &str, plural: &str, kind: &str, scope: &str) -> Value {
    let singular = kind.to_lowercase();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // The group's owner has not reviewed this definition, and the API server requires a note of that.
        "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {
            "group": group, "scope": scope,
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

async fn third_party(server: &Server) -> Result<()> {
    let group = "policy.networking.k8s.io";
    let policies = third_party_definition(
        group,
        "v1alpha2",
        "clusternetworkpolicies",
        "ClusterNetworkPolicy",
        "Cluster",
    );
    let plural = "virtualmachineinstancemigrations";
    let migrations =
        third_party_definition("kubevirt.io", "v1", plural, "VirtualMachineInstanceMigration", "Namespaced");
    for definition in [&policies, &migrations] {
        server.store.create(definition).await?;
    }
    let mut feeds = Vec::new();
    for kind in [Kind::KubernetesClusterNetworkPolicy, Kind::LiveMigration] {
        let list = ListOptions::resources(kind);
        let mut tries = 0;
        feeds.push(loop {
            match server.backend.watch(&list, WatchOptions::default()).await {
                Ok(events) => break events,
                // Established does not mean served yet.
                Err(error) if tries > 300 => return Err(error.into()),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        });
    }
    let [policy_events, migration_events] = &mut feeds[..] else { anyhow::bail!("two feeds") };

    let mut policy = json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy", "metadata": {"name": "fence"},
        "spec": {"tier": "Admin", "priority": 5, "subject": {"namespaces": {}},
            "egress": [{"name": "no", "action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}]}]},
    });
    server.store.create(&policy).await?;
    let WatchEvent::Added(added) = next_event(policy_events).await? else { anyhow::bail!("no addition") };
    let spec = json_of(&added)?["spec"].clone();
    ensure!(
        spec["tier"] == "kube-admin" && spec["egress"][0]["destination"]["nets"] == json!(["10.0.0.0/8"]),
        "{spec}"
    );
    // A rule that is not understood denies everything; a policy that is not understood is reported, never dropped.
    policy["spec"]["egress"][0]["to"] = json!([{"domainNames": ["example.org"]}]);
    server.store.kubectl(&["replace", "-f", "-"], &policy.to_string()).await?;
    let WatchEvent::Modified { new, .. } = next_event(policy_events).await? else {
        anyhow::bail!("no modification")
    };
    ensure!(json_of(&new)?["spec"]["egress"] == json!([{"action": "Deny"}]), "{new:?}");
    policy["spec"]["tier"] = "Unheard".into();
    server.store.kubectl(&["replace", "-f", "-"], &policy.to_string()).await?;
    let WatchEvent::Invalid(reported) = next_event(policy_events).await? else { anyhow::bail!("no report") };
    ensure!(
        reported.parsed_key.as_ref() == Some(&added.key) && reported.reason.contains("spec.tier"),
        "{reported:?}"
    );
    server.store.kubectl(&["delete", "clusternetworkpolicies.policy.networking.k8s.io", "fence"], "").await?;
    let deleted = next_event(policy_events).await?;
    ensure!(matches!(&deleted, WatchEvent::Deleted(pair) if pair.key == added.key), "{deleted:?}");

    // A migration only counts while it is running.
    let mut migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "move", "namespace": "default"}, "spec": {"vmiName": "vm"}, "status": {"phase": "Pending"},
    });
    server.store.create(&migration).await?;
    for (phase, expected) in [("Running", "modified move "), ("Succeeded", "deleted move ")] {
        migration["status"]["phase"] = phase.into();
        server.store.kubectl(&["replace", "-f", "-"], &migration.to_string()).await?;
        let next = next_event(migration_events).await?;
        ensure!(short(&next) == expected, "{phase}: {next:?}");
    }
    let key = Key::resource(Kind::LiveMigration, "default", "move");
    expect_error(server.backend.get(&key, None).await, "does not exist", Error::is_does_not_exist)?;
    Ok(())
}

async fn deletion_by_mark(server: &Server) -> Result<()> {
    let cidr = "10.65.0.0/30".parse()?;
    let entry = |key: Key, json: &str| -> Result<KvPair> {
        let value = model::decode(&key, json.as_bytes())?;
        Ok(KvPair::new(key, value))
    };
    let block = r#"{"cidr":"10.65.0.0/30","affinity":"host:node-a","allocations":[null,null,null,null],"unallocated":[0,1,2,3],"attributes":[],"deleted":false}"#;
    let claim = BlockAffinityKey { cidr, host: "node-a".into(), affinity_type: AffinityType::Host };
    let entries = [
        (entry(Key::Block { cidr }, block)?, "ipamblocks", "10-65-0-0-30", "true"),
        (
            entry(Key::BlockAffinity(claim), r#"{"state":"confirmed","deleted":false}"#)?,
            "blockaffinities",
            "node-a-10-65-0-0-30",
            "\"true\"",
        ),
        (
            entry(
                Key::IpamHandle { handle_id: "Pod.One".into() },
                r#"{"block":{"10.65.0.0/30":1},"deleted":false}"#,
            )?,
            "ipamhandles",
            "pod.one",
            "true",
        ),
    ];
    for (entry, plural, name, mark) in &entries {
        let created = server.backend.create(entry).await.with_context(|| entry.key.to_string())?;
        // Another client has marked it and gone away before removing it.
        let plural = format!("{plural}.crd.projectcalico.org");
        let patch = format!(r#"{{"spec":{{"deleted":{mark}}}}}"#);
        server.store.kubectl(&["patch", &plural, name, "--type=merge", "-p", &patch], "").await?;
        let outcome = server.backend.get(&entry.key, None).await;
        expect_error(outcome, "does not exist", Error::is_does_not_exist)?;
        let left = server.store.kubectl(&["get", &plural, "-o", "name"], "").await?;
        ensure!(left.is_empty(), "{} is still there: {left}", entry.key);
        // A stale deletion does not affect a recreated object.
        let again = server.backend.create(entry).await?;
        let outcome = server.backend.delete_entry(&created).await;
        let refused = |error: &Error| error.is_conflict() || error.is_does_not_exist();
        expect_error(outcome, "conflict", refused)?;
        let read = server.backend.get(&entry.key, None).await?;
        ensure!(read.revision == again.revision && read.value == entry.value, "{read:?}");
        server.backend.delete_entry(&read).await?;
        expect_error(server.backend.get(&entry.key, None).await, "does not exist", Error::is_does_not_exist)?;
    }
    let (claim, ..) = &entries[1];
    let created = server.backend.create(claim).await?;
    let labels = server
        .store
        .kubectl(
            &["get", "blockaffinities.crd.projectcalico.org", "-o", "jsonpath={.items[0].metadata.labels}"],
            "",
        )
        .await?;
    let hash = model::names::hostname_hash("node-a");
    let expected = json!({
        "projectcalico.org/affinity-type": "host", "projectcalico.org/hostname-hash": hash, "projectcalico.org/ip-version": "4",
    });
    ensure!(serde_json::from_str::<Value>(&labels)? == expected, "{labels}");
    server
        .store
        .kubectl(
            &[
                "patch",
                "blockaffinities.crd.projectcalico.org",
                "node-a-10-65-0-0-30",
                "--type=merge",
                "-p",
                r#"{"spec":{"deleted":"true"}}"#,
            ],
            "",
        )
        .await?;
    let all = ListOptions::BlockAffinity { host: None, affinity_type: None, ip_version: None };
    ensure!(server.backend.list(&all, None).await?.items.is_empty(), "a marked claim is listed");
    expect_error(server.backend.update(&created).await, "conflict", Error::is_conflict)?;
    server.backend.clean().await?;
    Ok(())
}

async fn metadata(server: &Server) -> Result<()> {
    let mut set = sample(Kind::GlobalNetworkSet, "outside")?;
    let fields = set.metadata_mut();
    fields.labels.insert("plain".into(), "1".into());
    fields.labels.insert("projectcalico.org/own".into(), "2".into());
    fields.annotations.insert("note".into(), "3".into());
    fields.finalizers = vec!["example.org/wait".into()];
    fields.owner_references = serde_json::from_value(json!([
        {"apiVersion": "projectcalico.org/v3", "kind": "Tier", "name": "t", "uid": "839cb4d0-b382-4023-a47b-f2e4e4041cb6"},
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"},
    ]))?;
    let written = fields.clone();
    let created = server.backend.create(&KvPair::resource(set)).await?;
    let read = server.backend.get(&created.key, None).await?;
    let found = read.as_resource().context("no resource")?.metadata();
    ensure!(found.labels == written.labels && found.annotations == written.annotations, "{found:?}");
    ensure!(
        found.finalizers == written.finalizers && found.owner_references == written.owner_references,
        "{found:?}"
    );
    ensure!(found.creation_timestamp == written.creation_timestamp, "{found:?}");
    // The custom resource itself contains only Calico's own data.
    let text = server
        .store
        .kubectl(&["get", "globalnetworksets.crd.projectcalico.org", "outside", "-o", "json"], "")
        .await?;
    let object: Value = serde_json::from_str(&text)?;
    ensure!(object["metadata"]["labels"] == json!({"projectcalico.org/own": "2"}), "{object}");
    ensure!(object["metadata"].get("finalizers").is_none(), "{object}");
    ensure!(object["metadata"]["uid"] != json!(read.uid) && read.uid.is_some(), "{object}");
    let stored: Value = serde_json::from_str(
        object
            .pointer("/metadata/annotations/projectcalico.org~1metadata")
            .and_then(Value::as_str)
            .unwrap_or("null"),
    )?;
    ensure!(stored["ownerReferences"][0]["apiVersion"] == "crd.projectcalico.org/v1", "{stored}");
    ensure!(stored.get("name").is_none() && stored["labels"]["plain"] == "1", "{stored}");
    // An object created with kubectl, without any bookkeeping, can be read, too.
    let plain = json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "GlobalNetworkSet",
        "metadata": {"name": "by-hand", "labels": {"a": "b"}}, "spec": {"nets": ["10.0.0.0/8"]},
    });
    server.store.create(&plain).await?;
    let read = server.backend.get(&Key::resource(Kind::GlobalNetworkSet, "", "by-hand"), None).await?;
    let found = read.as_resource().context("no resource")?.metadata();
    ensure!(found.labels.contains_key("a") && found.creation_timestamp.is_some(), "{found:?}");
    let mut config = sample(Kind::KubeControllersConfiguration, "default")?;
    if let Resource::KubeControllersConfiguration(config) = &mut config {
        let spec = json!({"controllers": {"node": {"syncLabels": "Disabled"}}});
        config.spec = serde_json::from_value(spec)?;
    }
    let outcome = server.backend.create(&KvPair::resource(config)).await;
    expect_error(outcome, "a validation error", |error| matches!(error, Error::Validation(_)))?;
    server.backend.clean().await?;
    Ok(())
}

async fn rights(server: &Server) -> Result<()> {
    let nobody = KubernetesConfig { calico_api_group: String::new(), ..server.store.config_without_rights() };
    let nobody = KubernetesBackend::connect(&nobody).await?;
    let entry = KvPair::resource(sample(Kind::NetworkSet, "x")?);
    let outcomes = [
        ("create", nobody.create(&entry).await.map(drop)),
        ("get", nobody.get(&entry.key, None).await.map(drop)),
        ("list", nobody.list(&ListOptions::resources(Kind::NetworkSet), None).await.map(drop)),
        (
            "watch",
            nobody
                .watch(
                    &ListOptions::resources(Kind::NetworkSet),
                    WatchOptions { revision: Some("1".into()), ..WatchOptions::default() },
                )
                .await
                .map(drop),
        ),
        ("list", nobody.list(&ListOptions::resources(Kind::Node), None).await.map(drop)),
    ];
    for (verb, outcome) in outcomes {
        let error =
            expect_error(outcome, "unauthorized", |error| matches!(error, Error::Unauthorized { .. }))?;
        let text = error.to_string();
        ensure!(text.starts_with("connection is unauthorized: ") && text.contains("nobody"), "{text}");
        ensure!(text.contains(verb) && (text.contains("networksets") || text.contains("nodes")), "{text}");
    }
    let stranger = KubernetesConfig { api_token: "wrong".into(), ..server.store.config() };
    let stranger = KubernetesBackend::connect(&stranger).await?;
    let outcome = stranger.list(&ListOptions::resources(Kind::Node), None).await;
    expect_error(outcome, "unauthorized", |error| matches!(error, Error::Unauthorized { .. }))?;
    Ok(())
}

async fn connections(server: &Server) -> Result<()> {
    let list = ListOptions::resources(Kind::Node);
    // Without any kubeconfig: an address, an authority and a token.
    let pieces = KubernetesConfig {
        api_endpoint: server.store.endpoint(),
        ca_file: server.store.authority().display().to_string(),
        api_token: "admin-token".into(),
        ..KubernetesConfig::default()
    };
    KubernetesBackend::connect(&pieces).await?.list(&list, None).await?;
    let trusting =
        KubernetesConfig { ca_file: String::new(), insecure_skip_tls_verify: true, ..pieces.clone() };
    KubernetesBackend::connect(&trusting).await?.list(&list, None).await?;
    let suspicious = KubernetesConfig { ca_file: String::new(), ..pieces.clone() };
    let outcome = match KubernetesBackend::connect(&suspicious).await {
        Ok(backend) => backend.list(&list, None).await.map(drop),
        Err(error) => Err(error),
    };
    expect_error(outcome, "a refusal of the certificate", |error| matches!(error, Error::Datastore { .. }))?;
    let inline = KubernetesConfig {
        kubeconfig_inline: std::fs::read_to_string(&server.store.config().kubeconfig[0])?.into(),
        ..KubernetesConfig::default()
    };
    KubernetesBackend::connect(&inline).await?.list(&list, None).await?;
    let gone =
        KubernetesConfig { api_endpoint: format!("https://127.0.0.1:{}", testkit::free_port()?), ..pieces };
    let gone = KubernetesBackend::connect(&gone).await?;
    let outcome = gone.list(&list, None).await;
    let error = expect_error(outcome, "a passing failure", Error::is_transient)?;
    ensure!(error.to_string().contains("list nodes"), "{error}");
    Ok(())
}
