//! Servers that go away, expired revisions, missing permissions, two instances at once, and the process around the
//! controllers.

use crate::world::{Servers, World, eventually, servers};
use anyhow::Result;
use api::{KubeControllersConfigurationSpec, ProfileSpec};
use client::{Client, DeleteOptions};
use daemon::ShutdownHandle;
use daemon::Variables;
use kube_access::KubeAccess;
use kube_access::cluster::Cluster;
use kube_controllers::for_tests::{
    Candidate, Informers, LeaderSettings, Namespace, ObjectKey, ServiceAccount, check, compact,
};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use testkit::Etcd;

async fn is_there(client: &Client, profile: &str) -> Result<bool> {
    match client.resource::<ProfileSpec>().get("", profile).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_does_not_exist() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The API server dies in the middle of everything, a namespace vanishes in the meantime without appearing in any
/// watch, and the history from which the watch would resume is gone.
#[tokio::test]
async fn an_api_server_may_return_with_a_compacted_history() -> Result<()> {
    let mut servers = Servers::start()?;
    let world = World::embedded(&servers.api_server).await?;
    let client = &world.client;
    for name in ["stays", "vanishes"] {
        world.create_namespace(name, &json!({})).await?;
    }
    let running = world.start(&[("ENABLED_CONTROLLERS", "namespace")]);
    eventually("both are copied", async || {
        Ok(is_there(client, "kns.stays").await? && is_there(client, "kns.vanishes").await?)
    })
    .await?;
    servers.api_server.kill();
    let deleted = servers.etcd.etcdctl(&["del", "/registry/namespaces/vanishes"])?;
    assert!(deleted.status.success());
    let status = servers.etcd.etcdctl(&["endpoint", "status", "-w", "json"])?;
    let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
    let revision = status.pointer("/0/Status/header/revision").map(ToString::to_string).unwrap_or_default();
    assert!(servers.etcd.etcdctl(&["compact", &revision])?.status.success(), "compacting to {revision}");
    eventually("probes see that the API server is away", async || {
        let (text, ready) = check(&world.status_file());
        Ok(!ready && text.contains("Error reaching apiserver"))
    })
    .await?;
    servers.api_server.restart()?;
    world.create_namespace("new", &json!({})).await?;
    eventually("the copies are right again", async || {
        Ok(is_there(client, "kns.new").await?
            && is_there(client, "kns.stays").await?
            && !is_there(client, "kns.vanishes").await?)
    })
    .await?;
    eventually("probes see that all is well", async || Ok(check(&world.status_file()).1)).await?;
    running.stop().await
}

#[tokio::test]
async fn a_missing_permission_is_reported() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let role = json!({
        "metadata": {"name": "only-namespaces"},
        "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}],
    });
    world.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await?;
    let binding = json!({
        "metadata": {"name": "only-namespaces"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "only-namespaces"},
        "subjects": [{"kind": "User", "name": "nobody"}],
    });
    world.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await?;
    let kubeconfig = servers.api_server.kubeconfig_without_rights();
    let variables = Variables::new([("KUBECONFIG", &kubeconfig)]);
    let cluster = Cluster::new(&KubeAccess::open(&variables, Path::new("/nowhere")).await?);
    let informers = Informers::default();
    let (allowed, refused) = (informers.of::<Namespace>(), informers.of::<ServiceAccount>());
    // It is also requested by a caller that could do without it: what counts is that one cannot.
    assert!(!informers.if_allowed::<ServiceAccount>().is_synced());
    let (end, shutdown) = ShutdownHandle::new();
    let tasks = informers.start(&cluster, &shutdown);
    eventually("what is allowed works", async || Ok(allowed.is_synced() && !allowed.is_empty())).await?;
    eventually("what is forbidden is reported", async || {
        let refusals = informers.refusals();
        Ok(refusals.iter().any(|(trouble, is_needed)| {
            *is_needed
                && trouble.contains("a permission is missing")
                && trouble.contains("cannot list resource \"serviceaccounts\"")
        }))
    })
    .await?;
    assert!(!refused.is_synced());
    // When the permission is granted, no restart is needed.
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["namespaces", "serviceaccounts"], "verbs": ["list", "watch"]}]});
    world.patch("/apis/rbac.authorization.k8s.io/v1/clusterroles/only-namespaces", &rules).await?;
    eventually("it works as soon as it may", async || Ok(refused.is_synced())).await?;
    assert_eq!(informers.troubles(), Vec::<String>::new());
    end.request();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

/// One list and one watch serve all subscribers, and changes of unused fields do not wake any.
#[tokio::test]
async fn informers_are_shared_and_quiet() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    world.create_namespace("quiet", &json!({})).await?;
    let informers = Informers::default();
    let heard = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&heard);
    let informer = informers.of::<Namespace>();
    informer.subscribe(move |change| {
        if &*change.key.name == "quiet" {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let (_end, shutdown) = ShutdownHandle::new();
    let _tasks = informers.start(&world.cluster, &shutdown);
    informers.synced().await;
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    // A late subscriber gets everything that exists.
    let late = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&late);
    informers.of::<Namespace>().subscribe(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(late.load(Ordering::SeqCst), informer.len());
    world.patch("/api/v1/namespaces/quiet", &json!({"metadata": {"annotations": {"a": "b"}}})).await?;
    world.patch("/api/v1/namespaces/quiet", &json!({"metadata": {"labels": {"a": "b"}}})).await?;
    let key = ObjectKey::new("", "quiet");
    eventually("the label is seen", async || {
        Ok(informer.get(&key).is_some_and(|namespace| namespace.labels.contains_key("a")))
    })
    .await?;
    assert_eq!(heard.load(Ordering::SeqCst), 2, "an annotation wakes no subscriber");
    Ok(())
}

#[tokio::test]
async fn one_instance_leads_and_another_takes_over() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let candidate = |identity: &str| {
        let settings = LeaderSettings {
            namespace: "default".to_owned(),
            name: "controllers".to_owned(),
            identity: identity.to_owned(),
        };
        Candidate::new(world.cluster.clone(), settings)
    };
    let (_end, shutdown) = ShutdownHandle::new();
    let (mut first, mut second) = (candidate("a"), candidate("b"));
    assert!(first.wait(&shutdown).await);
    let waiting = tokio::time::timeout(Duration::from_secs(3), second.wait(&shutdown)).await;
    assert!(waiting.is_err(), "there is one leader");
    // It renews: `keep` does not report a loss.
    assert!(tokio::time::timeout(Duration::from_secs(3), first.keep()).await.is_err());
    first.release().await;
    assert!(second.wait(&shutdown).await);
    assert!(
        tokio::time::timeout(Duration::from_secs(10), first.keep()).await.is_ok(),
        "the old holder notices the loss"
    );
    Ok(())
}

#[tokio::test]
async fn old_revisions_of_etcd_are_compacted() -> Result<()> {
    let etcd = Etcd::start()?;
    let variables = Variables::new([("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.endpoint())]);
    let client = Client::open(&client::ClientConfig::load(None, &variables)?).await?;
    client.ensure_initialized("", "").await?;
    let (_end, shutdown) = ShutdownHandle::new();
    // Two programs that compact share the work.
    for _ in 0..2 {
        let backend = Arc::clone(client.backend());
        tokio::spawn(compact(backend, Duration::from_millis(300), shutdown.clone()));
    }
    eventually("the first revision is gone", async || {
        let old = etcd.etcdctl(&["get", "--rev=1", "x"])?;
        Ok(String::from_utf8_lossy(&old.stderr).contains("compacted"))
    })
    .await?;
    client.ensure_initialized("", "").await?;
    let marker = etcd.etcdctl(&["get", "compact_rev_key"])?;
    assert!(!marker.stdout.is_empty(), "in turn with Kubernetes' own compaction");
    Ok(())
}

#[tokio::test]
async fn the_configuration_is_created_reported_and_created_again() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let port = testkit::free_port()?;
    let variables = [("ENABLED_CONTROLLERS", "node,namespace"), ("LOG_LEVEL", "debug")];
    let running = world.start_with(&variables, port);
    let configurations = world.client.resource::<KubeControllersConfigurationSpec>();
    let is_told = async || -> Result<bool> {
        match configurations.get("", "default").await {
            Ok(found) => Ok(found.status.running_config.is_some()),
            Err(error) if error.is_does_not_exist() => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    eventually("it is created and its status is written", async || is_told().await).await?;
    let found = configurations.get("", "default").await?;
    assert_eq!(found.spec.prometheus_metrics_port, Some(9094));
    assert_eq!(found.status.environment_vars.len(), 2);
    let told = found.status.running_config.unwrap_or_default();
    assert_eq!(told.log_severity_screen.as_str(), "Debug");
    assert!(told.controllers.node.is_some() && told.controllers.policy.is_none());
    eventually("probes say ready", async || Ok(check(&world.status_file()).1)).await?;
    configurations.delete("", "default", &DeleteOptions::default()).await?;
    eventually("it is made again", async || is_told().await).await?;

    // A changed port for metrics: the pages move, the process keeps running.
    let metrics = testkit::free_port()?;
    let set = |found: &mut api::KubeControllersConfiguration| {
        found.spec.prometheus_metrics_port = Some(metrics.into());
        true
    };
    configurations.update_with_retry("", "default", set).await?;
    eventually("metrics are served", async || {
        Ok(tokio::net::TcpStream::connect(("127.0.0.1", metrics)).await.is_ok())
    })
    .await?;
    assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok(), "health pages stay");
    assert!(running.is_running());
    running.stop().await
}

#[tokio::test]
async fn invalid_settings_are_reported_at_once() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let running = world.start(&[("ENABLED_CONTROLLERS", "node,robot")]);
    let error = running.outcome().await.expect_err("no such controller").to_string();
    assert!(error.contains("unknown controller 'robot'"), "{error}");
    let running = world.start(&[("KUBECONFIG", "/nowhere/at/all")]);
    let error = running.outcome().await.expect_err("no such file").to_string();
    assert!(error.contains("/nowhere/at/all"), "{error}");
    Ok(())
}
