//! Moves objects from one group of definitions to the other and back, on a real kube-apiserver; then with the program
//! killed on the way.

use anyhow::{Context as _, Result};
use apiserver::for_tests::Outcome;
use apiserver::migration::{Arguments, Group, run};
use client::{Client, ClientConfig, ListQuery};
use daemon::Variables;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use testkit::{ApiServer, Etcd, Folder, Process, example};
use tokio::runtime::Runtime;

/// The number of objects when the program is killed.
const SETS: usize = 30;
/// How long the program runs between two checks of its progress.
const SLICE: Duration = Duration::from_millis(4);

fn arguments(kube: &ApiServer, to: Group, remove_old: bool) -> Arguments {
    Arguments { to, kubeconfig: Some(kube.kubeconfig()), dry_run: false, remove_old }
}

/// The contents of a group, without what a server decides.
async fn picture(kube: &ApiServer, group: Group) -> Result<Vec<Value>> {
    let client = Client::new(Arc::new(group.backend(&kube.kubeconfig()).await?));
    let mut found = Vec::new();
    for kind in [
        api::Kind::Tier,
        api::Kind::NetworkPolicy,
        api::Kind::GlobalNetworkSet,
        api::Kind::IPPool,
        api::Kind::FelixConfiguration,
    ] {
        for resource in client.list_any(kind, &ListQuery::all()).await?.items {
            let mut value = serde_json::to_value(&resource)?;
            if let Some(metadata) = value["metadata"].as_object_mut() {
                metadata.retain(|name, _| {
                    ["name", "namespace", "labels", "annotations"].contains(&name.as_str())
                });
            }
            found.push(value);
        }
    }
    Ok(found)
}

#[test]
fn there_and_back() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let etcd = Etcd::start()?;
    let kube = ApiServer::start(&etcd.endpoint())?;
    kube.kubectl_with_input(
        &["create", "-f", "-"],
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}).to_string(),
    )?;
    runtime.block_on(async {
        let variables = Variables::new([
            ("DATASTORE_TYPE", "kubernetes".to_owned()),
            ("CALICO_API_GROUP", "crd.projectcalico.org/v1".to_owned()),
            ("KUBECONFIG", kube.kubeconfig().display().to_string()),
        ]);
        let client = Client::open(&ClientConfig::load(None, &variables)?).await?;
        client.backend().install().await?;
        // Kubernetes shows new definitions a little before it serves them.
        while client.ensure_initialized("v3.32.1", "k8s").await.is_err_and(|error| error.is_does_not_exist()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (kind, object) in [
            (api::Kind::Tier, json!({"metadata": {"name": "red", "labels": {"a": "b"}}, "spec": {"order": 5}})),
            (api::Kind::NetworkPolicy, json!({"metadata": {"name": "web", "namespace": "shop", "annotations": {"note": "kept"}}, "spec": {"tier": "red", "selector": "all()"}})),
            (api::Kind::GlobalNetworkSet, json!({"metadata": {"name": "nets", "labels": {"x": "y"}}, "spec": {"nets": ["10.0.0.0/8"]}})),
            (api::Kind::IPPool, json!({"metadata": {"name": "pool"}, "spec": {"cidr": "10.1.0.0/16"}})),
            (api::Kind::FelixConfiguration, json!({"metadata": {"name": "default"}, "spec": {"routeRefreshInterval": "10s"}})),
        ] {
            client.create_any(api::Resource::from_value(kind, object)?).await?;
        }
        let before = picture(&kube, Group::V1).await?;
        // A stranger at the new place is not silently overwritten.
        let there = Client::new(Arc::new(Group::V3.backend(&kube.kubeconfig()).await?));
        there.backend().install().await?;
        let stranger = api::Resource::from_value(api::Kind::Tier, json!({"metadata": {"name": "stranger"}, "spec": {"order": 7}}))?;
        while let Err(error) = there.create_any(stranger.clone()).await {
            assert!(error.is_does_not_exist(), "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let refused = run(&arguments(&kube, Group::V3, false)).await.err().context("refused")?;
        assert!(refused.to_string().contains("Tier(stranger)"), "{refused:#}");
        there.delete_any(api::Kind::Tier, "", "stranger", &client::DeleteOptions::default()).await?;
        let Outcome::Moved { found, written } = run(&arguments(&kube, Group::V3, false)).await? else {
            anyhow::bail!("nothing was moved");
        };
        assert!(written >= 5 && written <= found, "{written} of {found}");
        assert_eq!(picture(&kube, Group::V3).await?, before);
        // The new objects are not locked, the old ones are.
        for (group, ready) in [(Group::V3, Some(true)), (Group::V1, Some(false))] {
            let there = Client::new(Arc::new(group.backend(&kube.kubeconfig()).await?));
            let information = there.resource::<api::ClusterInformationSpec>().get("", "default").await?;
            assert_eq!(information.spec.datastore_ready, ready, "{group:?}");
        }
        // The new objects are in use. Another run does not bring the old ones back.
        let change = |tier: &mut api::Tier| {
            tier.spec.order = Some(6.0.into());
            true
        };
        there.resource::<api::TierSpec>().update_with_retry("", "red", change).await?;
        let used = picture(&kube, Group::V3).await?;
        assert_eq!(run(&arguments(&kube, Group::V3, false)).await?, Outcome::MovedBefore);
        assert_eq!(picture(&kube, Group::V3).await?, used);
        // And back, after the old definitions are gone.
        assert_eq!(run(&arguments(&kube, Group::V3, true)).await?, Outcome::MovedBefore);
        assert_eq!(run(&arguments(&kube, Group::V3, true)).await?, Outcome::MovedBefore);
        assert!(matches!(run(&arguments(&kube, Group::V1, false)).await?, Outcome::Moved { .. }));
        assert_eq!(picture(&kube, Group::V1).await?, used);
        anyhow::Ok(())
    })?;
    killed_on_the_way(&runtime, &kube)
}

/// How far a move has progressed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// The old place is locked.
    Locked,
    /// This many objects are at the new place.
    Copied(usize),
    /// Everything was moved, and that has been recorded.
    Noted,
}

/// Clients of the two places.
struct Places {
    v1: Client,
    v3: Client,
}

impl Places {
    async fn open(kube: &ApiServer) -> Result<Self> {
        let open =
            async |group: Group| anyhow::Ok(Client::new(Arc::new(group.backend(&kube.kubeconfig()).await?)));
        Ok(Self { v1: open(Group::V1).await?, v3: open(Group::V3).await? })
    }

    fn at(&self, group: Group) -> &Client {
        if group == Group::V1 { &self.v1 } else { &self.v3 }
    }
}

/// From the ClusterInformation: whether the place may be used, and whether its objects were moved away.
async fn said(client: &Client) -> Result<(bool, bool)> {
    match client.resource::<api::ClusterInformationSpec>().get("", "default").await {
        Ok(found) => Ok((
            found.spec.datastore_ready != Some(false),
            found.metadata.annotations.contains_key("migration.projectcalico.org/moved-to"),
        )),
        Err(error) if error.is_does_not_exist() => Ok((false, false)),
        Err(error) => Err(error.into()),
    }
}

async fn is_at(places: &Places, from: Group, to: Group, point: Point) -> Result<bool> {
    Ok(match point {
        Point::Locked => !said(places.at(from)).await?.0,
        Point::Noted => said(places.at(from)).await?.1,
        Point::Copied(wanted) => {
            match places.at(to).list_any(api::Kind::GlobalNetworkSet, &ListQuery::all()).await {
                Ok(found) => {
                    found.items.iter().filter(|set| set.name().starts_with("many-")).count() >= wanted
                }
                Err(error) if error.is_does_not_exist() => false,
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// Starts the program, and kills it when it has progressed this far. The program is stopped during each check, so that
/// a slow check misses nothing.
fn kill_at(runtime: &Runtime, kube: &ApiServer, places: &Places, to: Group, point: Point) -> Result<()> {
    let from = if to == Group::V3 { Group::V1 } else { Group::V3 };
    let folder = Folder::new("killed")?;
    let arguments =
        [format!("--to={}", name(to)), "--kubeconfig".to_owned(), kube.kubeconfig().display().to_string()];
    let mut program = Process::start(&example("migrate_crds")?, &arguments, &folder.path().join("log"))?;
    loop {
        std::thread::sleep(SLICE);
        if let Some(status) = program.ended()? {
            // One write comes between the note and the end.
            let is_at_its_end = status.success() && point == Point::Noted;
            anyhow::ensure!(is_at_its_end, "{to:?}, {point:?}: {status}: {}", program.log_tail());
            return Ok(());
        }
        program.pause()?;
        if runtime.block_on(is_at(places, from, to, point))? {
            return program.kill();
        }
        program.resume()?;
    }
}

fn name(group: Group) -> &'static str {
    if group == Group::V3 { "projectcalico.org/v3" } else { "crd.projectcalico.org/v1" }
}

/// `kill -9` at several points on the way there and back: nothing is lost, the two places are never in use at once, and
/// the next run finishes the move.
fn killed_on_the_way(runtime: &Runtime, kube: &ApiServer) -> Result<()> {
    runtime.block_on(async {
        let client = Client::new(Arc::new(Group::V1.backend(&kube.kubeconfig()).await?));
        for number in 0..SETS {
            let set = json!({"metadata": {"name": format!("many-{number:03}")}, "spec": {"nets": [format!("10.{number}.0.0/16")]}});
            client.create_any(api::Resource::from_value(api::Kind::GlobalNetworkSet, set)?).await?;
        }
        anyhow::Ok(())
    })?;
    let (places, before) =
        (runtime.block_on(Places::open(kube))?, runtime.block_on(picture(kube, Group::V1))?);
    assert!(before.len() > SETS, "{}", before.len());
    let there = [Point::Locked, Point::Copied(1), Point::Copied(SETS / 2), Point::Noted];
    for (from, to, points) in [(Group::V1, Group::V3, &there[..]), (Group::V3, Group::V1, &there[2..])] {
        for point in points {
            kill_at(runtime, kube, &places, to, *point)?;
            runtime.block_on(async {
                assert_eq!(picture(kube, from).await?, before, "the leftovers, {point:?}");
                let (old, new) = (said(places.at(from)).await?, said(places.at(to)).await?);
                assert!(!(old.0 && new.0), "both places are in use, {point:?}");
                if new.0 {
                    assert_eq!(
                        picture(kube, to).await?,
                        before,
                        "in use before everything has arrived, {point:?}"
                    );
                }
                anyhow::Ok(())
            })?;
        }
        runtime.block_on(async {
            // The way back begins with an empty place.
            run(&arguments(kube, to, true)).await?;
            assert_eq!(picture(kube, to).await?, before, "{to:?}");
            assert_eq!(
                (said(places.at(from)).await?.0, said(places.at(to)).await?.0),
                (false, true),
                "{to:?}"
            );
            anyhow::Ok(())
        })?;
    }
    Ok(())
}
