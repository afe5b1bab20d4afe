//! Pools and tiers of `projectcalico.org/v3`, and policies with old names.

use crate::stage::{Stage, Store, eventually};
use crate::world::World;
use anyhow::{Context as _, Result, ensure};
use kube_controllers::for_tests::{PolicyNames, PoolController, TierController};
use serde_json::{Value, json};

const PREFIX: &str = "/apis/projectcalico.org/v3";

async fn condition(stage: &Stage, pool: &str) -> Result<(String, bool)> {
    let object = stage.get(&format!("{PREFIX}/ippools/{pool}")).await?.context("the pool")?;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|entry| entry["type"] == "Allocatable").cloned().unwrap_or_default();
    let has_finalizer = object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|entry| entry == "projectcalico.org/ippool-finalizer"));
    Ok((found["reason"].as_str().unwrap_or_default().to_owned(), has_finalizer))
}

async fn until(stage: &Stage, pool: &str, reason: &str, has_finalizer: bool) -> Result<()> {
    let what = format!("pool {pool} is {reason}, with finalizer: {has_finalizer}");
    eventually(&what, || async { Ok(condition(stage, pool).await? == (reason.to_owned(), has_finalizer)) })
        .await
}

fn pool(name: &str, cidr: &str) -> Value {
    json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": name}, "spec": {"cidr": cidr, "blockSize": 28}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_and_tiers_wait_for_their_contents() -> Result<()> {
    let stage = Stage::start(Store::V3).await?;
    let context = stage.context();
    let (pools, tiers) = (PoolController::new(&context), TierController::new(&context));
    let running = stage.run(&context, vec![Box::new(pools), Box::new(tiers)]);
    let path = format!("{PREFIX}/ippools");
    stage.create(&path, &pool("first", "10.70.0.0/24")).await?;
    until(&stage, "first", "OK", true).await?;
    // Written by kubectl, without our checks: an overlapping pool stays closed.
    stage.create(&path, &pool("second", "10.70.0.0/16")).await?;
    until(&stage, "second", "CIDROverlap", false).await?;
    until(&stage, "first", "OK", true).await?;

    stage.node("n1").await?;
    let address = stage.take("n1", "net.web", "shop", "web").await?;
    ensure!(address.to_string().starts_with("10.70.0."));
    stage.delete(&format!("{path}/first")).await?;
    until(&stage, "first", "Terminating", true).await?;
    until(&stage, "second", "CIDROverlap", false).await?;
    // After the last address its block and then the pool are deleted; then the other pool opens.
    stage.ipam.release_by_handle(&"net.web".into()).await?;
    eventually("the pool is gone", || async { Ok(stage.get(&format!("{path}/first")).await?.is_none()) })
        .await?;
    until(&stage, "second", "OK", true).await?;

    // A tier.
    let tier = json!({"apiVersion": "projectcalico.org/v3", "kind": "Tier", "metadata": {"name": "edge"}, "spec": {"order": 10}});
    stage.create(&format!("{PREFIX}/tiers"), &tier).await?;
    let tier_path = format!("{PREFIX}/tiers/edge");
    eventually("the tier has the finalizer", || async {
        let tier = stage.get(&tier_path).await?.context("the tier")?;
        Ok(tier["metadata"]["finalizers"] == json!(["projectcalico.org/tier-controller"]))
    })
    .await?;
    let policy = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy", "metadata": {"name": "edge.deny"},
        "spec": {"tier": "edge", "selector": "all()", "types": ["Ingress"]},
    });
    stage.create(&format!("{PREFIX}/globalnetworkpolicies"), &policy).await?;
    stage.delete(&tier_path).await?;
    eventually("the tier shows what it waits for", || async {
        let tier = stage.get(&tier_path).await?.context("the tier")?;
        let message = &tier["status"]["conditions"][0]["message"];
        Ok(message == "Waiting for policies to be removed: 1 GlobalNetworkPolicy")
    })
    .await?;
    stage.delete(&format!("{PREFIX}/globalnetworkpolicies/edge.deny")).await?;
    eventually("the tier is gone", || async { Ok(stage.get(&tier_path).await?.is_none()) }).await?;
    running.stop().await;
    Ok(())
}

/// The whole program on a cluster that has only resources of `projectcalico.org/v3`: it detects that by itself, and
/// does their bookkeeping whatever controllers are enabled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_finds_pools_and_tiers_of_the_newer_group() -> Result<()> {
    let stage = Stage::start(Store::V3).await?;
    let world = World::as_it_is(&stage.api).await?;
    let running = world.start(&[("ENABLED_CONTROLLERS", "node")]);
    let path = format!("{PREFIX}/ippools");
    stage.create(&path, &pool("first", "10.71.0.0/24")).await?;
    until(&stage, "first", "OK", true).await?;
    stage.create(&path, &pool("second", "10.71.0.0/16")).await?;
    until(&stage, "second", "CIDROverlap", false).await?;
    // Every existing tier gets the finalizer; the default one existed before the program started.
    let tier = json!({"apiVersion": "projectcalico.org/v3", "kind": "Tier", "metadata": {"name": "edge"}, "spec": {"order": 10}});
    stage.create(&format!("{PREFIX}/tiers"), &tier).await?;
    for name in ["default", "edge"] {
        eventually(&format!("tier {name} has the finalizer"), || async {
            let tier = stage.get(&format!("{PREFIX}/tiers/{name}")).await?.context("the tier")?;
            Ok(tier["metadata"]["finalizers"] == json!(["projectcalico.org/tier-controller"]))
        })
        .await?;
    }
    // They are empty: both are deleted as soon as this is requested.
    for object in ["ippools/first", "tiers/edge"] {
        let path = format!("{PREFIX}/{object}");
        stage.delete(&path).await?;
        eventually(&format!("{object} is gone"), || async { Ok(stage.get(&path).await?.is_none()) }).await?;
    }
    until(&stage, "second", "OK", true).await?;
    ensure!(running.is_running());
    running.stop().await
}

const POLICIES: &str = "/calico/resources/v3/projectcalico.org/networkpolicies/shop/";

fn stored(stage: &Stage) -> Result<Vec<String>> {
    let output = stage.etcd.etcdctl(&["get", "--prefix", "--keys-only", POLICIES])?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_prefix(POLICIES)).map(str::to_owned).collect())
}

/// How often DaemonSets have been read by name.
fn reads_of_daemon_sets(stage: &Stage) -> Result<usize> {
    let page = stage.api.kubectl(&["get", "--raw", "/metrics"])?;
    let page = String::from_utf8(page.stdout)?;
    let is_read = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"daemonsets\"")
            && line.contains("verb=\"GET\"")
    };
    let counts =
        page.lines().filter(is_read).filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
    Ok(counts.sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_get_their_own_names_once_calico_node_is_rolled_out() -> Result<()> {
    let stage = Stage::start(Store::Etcd).await?;
    stage.namespace("shop").await?;
    stage.namespace("calico-system").await?;
    for name in ["default.web", "default.api"] {
        let policy = format!(
            r#"{{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}","namespace":"shop","uid":"48dca345-983e-47eb-8df1-062b86817137","creationTimestamp":"2024-11-15T19:47:49Z"}},"spec":{{"order":200,"selector":"app == 'db'","types":["Ingress"]}}}}"#
        );
        ensure!(stage.etcd.etcdctl(&["put", &format!("{POLICIES}{name}"), &policy])?.status.success());
    }
    let set = json!({
        "metadata": {"name": "calico-node"},
        "spec": {
            "selector": {"matchLabels": {"k8s-app": "calico-node"}},
            "template": {
                "metadata": {"labels": {"k8s-app": "calico-node"}},
                "spec": {"containers": [{"name": "calico-node", "image": "i"}]},
            },
        },
    });
    let path = "/apis/apps/v1/namespaces/calico-system/daemonsets";
    stage.create(path, &set).await?;
    let status = |updated: i64| {
        json!({"status": {
            "observedGeneration": 1, "currentNumberScheduled": 2, "desiredNumberScheduled": 2,
            "updatedNumberScheduled": updated, "numberMisscheduled": 0, "numberReady": 2,
        }})
    };
    stage.patch(&format!("{path}/calico-node/status"), &status(1)).await?;
    let context = stage.context();
    let controller = PolicyNames::new(&context, None);
    let before = reads_of_daemon_sets(&stage)?;
    let running = stage.run(&context, vec![Box::new(controller)]);
    // The second read comes after the first one has been acted on.
    eventually("the roll-out is checked twice", || async { Ok(reads_of_daemon_sets(&stage)? >= before + 2) })
        .await?;
    ensure!(stored(&stage)? == ["default.api", "default.web"], "an old calico-node still runs");
    stage.patch(&format!("{path}/calico-node/status"), &status(2)).await?;
    eventually("policies have their own names", || async { Ok(stored(&stage)? == ["api", "web"]) }).await?;
    running.stop().await;
    Ok(())
}
