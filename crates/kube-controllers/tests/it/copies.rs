//! Namespaces, service accounts and policies copied to the etcd datastore.

use crate::world::{World, eventually, servers};
use anyhow::{Context as _, Result};
use api::{NetworkPolicySpec, Object, ProfileSpec};
use client::{Client, DeleteOptions};
use serde_json::json;

const COPIERS: &[(&str, &str)] = &[("ENABLED_CONTROLLERS", "namespace,serviceaccount,policy")];

async fn handed_down(client: &Client, profile: &str, label: &str) -> Result<Option<String>> {
    match client.resource::<ProfileSpec>().get("", profile).await {
        Ok(profile) => Ok(profile.spec.labels_to_apply.get(label).cloned()),
        Err(error) if error.is_does_not_exist() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn is_there(client: &Client, profile: &str) -> Result<bool> {
    match client.resource::<ProfileSpec>().get("", profile).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_does_not_exist() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn namespaces_are_copied_updated_and_removed() -> Result<()> {
    let servers = servers()?;
    let world = World::etcd(&servers.api_server, &servers.etcd).await?;
    let client = &world.client;
    world.create_namespace("copies-before", &json!({"team": "a"})).await?;
    let running = world.start(COPIERS);
    eventually("a namespace from before is copied", async || {
        Ok(handed_down(client, "kns.copies-before", "pcns.team").await?.as_deref() == Some("a"))
    })
    .await?;
    let profile = client.resource::<ProfileSpec>().get("", "kns.copies-before").await?;
    assert_eq!((profile.spec.ingress.len(), profile.spec.egress.len()), (1, 1));
    assert!(!profile.metadata.uid.is_empty() && profile.metadata.creation_timestamp.is_some());

    world.create_namespace("copies-after", &json!({})).await?;
    eventually("a new namespace is copied", async || is_there(client, "kns.copies-after").await).await?;
    world.patch("/api/v1/namespaces/copies-after", &json!({"metadata": {"labels": {"team": "b"}}})).await?;
    eventually("its new label is copied", async || {
        Ok(handed_down(client, "kns.copies-after", "pcns.team").await?.as_deref() == Some("b"))
    })
    .await?;
    world.delete_namespace("copies-after").await?;
    eventually("its copy goes with it", async || Ok(!is_there(client, "kns.copies-after").await?)).await?;
    running.stop().await
}

#[tokio::test]
async fn changes_missed_while_stopped_are_corrected() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let client = &world.client;
    for name in ["drift-gone", "drift-changed", "drift-missing"] {
        world.create_namespace(name, &json!({"team": "a"})).await?;
    }
    let account = json!({"metadata": {"name": "robot.one", "labels": {"team": "a"}}});
    world.create("/api/v1/namespaces/drift-gone/serviceaccounts", &account).await?;
    let running = world.start(COPIERS);
    eventually("everything is copied", async || {
        Ok(is_there(client, "kns.drift-gone").await?
            && is_there(client, "kns.drift-changed").await?
            && is_there(client, "kns.drift-missing").await?
            && is_there(client, "ksa.drift-gone.robot.one").await?)
    })
    .await?;
    running.stop().await?;

    // While the controllers are stopped, objects are deleted, copies changed and deleted, and someone else adds a
    // profile.
    world.delete("/api/v1/namespaces/drift-gone/serviceaccounts/robot.one").await?;
    world.delete_namespace("drift-gone").await?;
    let profiles = client.resource::<ProfileSpec>();
    let label = |object: &mut Object<ProfileSpec>| {
        object.spec.labels_to_apply.insert("pcns.team".to_owned(), "z".to_owned());
        object.metadata.labels.insert("mine".to_owned(), "1".to_owned());
        true
    };
    profiles.update_with_retry("", "kns.drift-changed", label).await?;
    profiles.delete("", "kns.drift-missing", &DeleteOptions::default()).await?;
    profiles.create(Object::new("", "somebody", ProfileSpec::default())).await?;

    let running = world.start(COPIERS);
    eventually("all is made good", async || {
        Ok(!is_there(client, "kns.drift-gone").await?
            && !is_there(client, "ksa.drift-gone.robot.one").await?
            && is_there(client, "kns.drift-missing").await?
            && handed_down(client, "kns.drift-changed", "pcns.team").await?.as_deref() == Some("a"))
    })
    .await?;
    assert!(is_there(client, "somebody").await?, "a profile that is not a copy is kept");
    let changed = profiles.get("", "kns.drift-changed").await?;
    assert_eq!(
        changed.metadata.labels.get("mine").map(String::as_str),
        Some("1"),
        "labels of others are kept"
    );
    running.stop().await
}

#[tokio::test]
async fn drift_is_found_periodically() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let client = &world.client;
    world.create_namespace("period", &json!({})).await?;
    let running = world.start(&[("ENABLED_CONTROLLERS", "namespace"), ("RECONCILER_PERIOD", "200ms")]);
    eventually("it is copied", async || is_there(client, "kns.period").await).await?;
    client.resource::<ProfileSpec>().delete("", "kns.period", &DeleteOptions::default()).await?;
    eventually("it is copied again", async || is_there(client, "kns.period").await).await?;
    running.stop().await
}

#[tokio::test]
async fn concurrent_writers_do_no_harm() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let client = world.client.clone();
    world.create_namespace("busy", &json!({"round": "0"})).await?;
    let running = world.start(COPIERS);
    eventually("it is copied", async || is_there(&client, "kns.busy").await).await?;
    let writer = tokio::spawn(async move {
        for number in 0..100_u32 {
            let touch = |object: &mut Object<ProfileSpec>| {
                object.metadata.annotations.insert("touched".to_owned(), number.to_string());
                true
            };
            client.resource::<ProfileSpec>().update_with_retry("", "kns.busy", touch).await?;
        }
        anyhow::Ok(())
    });
    for round in 1..=10_u32 {
        let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
        world.patch("/api/v1/namespaces/busy", &patch).await?;
    }
    writer.await??;
    eventually("the last round is copied", async || {
        Ok(handed_down(&world.client, "kns.busy", "pcns.round").await?.as_deref() == Some("10"))
    })
    .await?;
    let profile = world.client.resource::<ProfileSpec>().get("", "kns.busy").await?;
    assert_eq!(profile.metadata.annotations.get("touched").map(String::as_str), Some("99"));
    running.stop().await
}

#[tokio::test]
async fn policies_are_copied_updated_and_removed() -> Result<()> {
    let servers = servers()?;
    let world = World::embedded(&servers.api_server).await?;
    let policies = world.client.resource::<NetworkPolicySpec>();
    world.create_namespace("policed", &json!({})).await?;
    let path = "/apis/networking.k8s.io/v1/namespaces/policed/networkpolicies";
    let policy = json!({
        "metadata": {"name": "web"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}], "ports": [{"port": 80}]}],
        },
    });
    world.create(path, &policy).await?;
    let running = world.start(COPIERS);
    eventually("the policy is copied", async || match policies.get("policed", "knp.default.web").await {
        Ok(copy) => Ok(copy.spec.ingress.len() == 1),
        Err(error) if error.is_does_not_exist() => Ok(false),
        Err(error) => Err(error.into()),
    })
    .await?;
    let copy = policies.get("policed", "knp.default.web").await?;
    assert_eq!(copy.spec.tier, "default");
    assert_eq!(copy.spec.order.map(|order| order.0), Some(1000.0));
    assert!(copy.spec.selector.as_str().contains("app == 'web'"), "{}", copy.spec.selector.as_str());
    let before = copy.metadata.resource_version;

    // More rules than users may write: Kubernetes accepted the policy, so it must be enforced.
    let rule =
        json!({"from": [{"podSelector": {"matchLabels": {"app": "client"}}}], "ports": [{"port": 80}]});
    let rules: Vec<_> = std::iter::repeat_n(rule, 1100).collect();
    world.patch(&format!("{path}/web"), &json!({"spec": {"ingress": rules}})).await?;
    eventually("a policy of many rules is copied", async || {
        Ok(policies.get("policed", "knp.default.web").await?.spec.ingress.len() == 1100)
    })
    .await?;
    let after = policies.get("policed", "knp.default.web").await?.metadata;
    assert_ne!(after.resource_version, before);
    assert_eq!(after.uid, copy.metadata.uid, "it is the same object");
    world.delete(&format!("{path}/web")).await?;
    eventually("the copy goes with it", async || {
        Ok(policies.get("policed", "knp.default.web").await.is_err_and(|error| error.is_does_not_exist()))
    })
    .await?;
    running.stop().await.context("ending")
}
