//! A real etcd.

use crate::recorder::Recorder;
use crate::scenario::{Fixture, set, survive};
use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use datastore::Backend;
use datastore::etcd::{EtcdBackend, EtcdConfig};
use follow::feeds::{self, BgpOptions, FelixOptions};
use model::ListOptions;
use model::feed::{FeedEntry, FeedKey, RuleAction};
use model::v1::PolicyKey;
use std::sync::{Arc, Mutex, PoisonError};
use testkit::Etcd;

struct EtcdStore {
    server: Arc<Mutex<Etcd>>,
    endpoint: String,
}

impl EtcdStore {
    async fn open() -> Result<Self> {
        let server = tokio::task::spawn_blocking(Etcd::start).await??;
        Ok(Self { endpoint: server.endpoint(), server: Arc::new(Mutex::new(server)) })
    }

    async fn etcdctl(&self, arguments: &[&str]) -> Result<()> {
        let (server, arguments) = (
            Arc::clone(&self.server),
            arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>(),
        );
        let output = tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            server.lock().unwrap_or_else(PoisonError::into_inner).etcdctl(&arguments)
        })
        .await??;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

#[async_trait]
impl Fixture for EtcdStore {
    async fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(EtcdBackend::connect(&EtcdConfig::for_endpoints(&self.endpoint)).await?))
    }

    async fn stop(&self) -> Result<()> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).kill();
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        let server = Arc::clone(&self.server);
        tokio::task::spawn_blocking(move || server.lock().unwrap_or_else(PoisonError::into_inner).restart())
            .await?
    }

    async fn compact(&self) -> Result<()> {
        let list = ListOptions::resources(api::Kind::Tier);
        let revision = self.backend().await?.list(&list, None).await?.revision;
        self.etcdctl(&["compact", &revision]).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_survives_restarts_and_compaction() -> Result<()> {
    survive(&EtcdStore::open().await?).await
}

fn felix() -> Vec<follow::FollowedKind> {
    feeds::felix(FelixOptions { kubernetes: false, use_pod_cidr: false, leader: true })
}

/// An object written past the API's validation.
#[tokio::test(flavor = "multi_thread")]
async fn unreadable_objects_fail_closed() -> Result<()> {
    let store = EtcdStore::open().await?;
    let path = "/calico/resources/v3/projectcalico.org/networkpolicies/shop/web";
    let good = r#"{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"shop"},"spec":{"selector":"app == 'web'","ingress":[{"action":"Allow","source":{"nets":["10.0.0.0/8"]}}]}}"#;
    let bad = good.replace(r#"["10.0.0.0/8"]"#, "7");
    let policy = FeedKey::Policy(PolicyKey {
        kind: api::Kind::NetworkPolicy,
        namespace: "shop".into(),
        name: "web".into(),
    });
    let action = |known: &crate::recorder::Known| match known.values.get(&policy) {
        Some(FeedEntry::Policy(_, Some(policy))) => policy.inbound_rules.first().map(|rule| rule.action),
        _ => None,
    };
    store.etcdctl(&["put", path, &bad]).await?;
    let pools = "/calico/resources/v3/projectcalico.org/ippools";
    store.etcdctl(&["put", &format!("{pools}/broken"), "{"]).await?;
    let bad_pool = r#"{"metadata": {"name": "bad"}, "spec": {"cidr": ["10.0.0.0/8"]}}"#;
    store.etcdctl(&["put", &format!("{pools}/bad"), bad_pool]).await?;
    let (recorder, follower) = Recorder::follow(&store.backend().await?, felix());
    recorder.wait_in_sync().await?;
    // Never readable: what it might have allowed is denied, and reported.
    ensure!(action(&recorder.known()) == Some(RuleAction::Deny));
    let unreadable = follower.unreadable().objects();
    let reason = unreadable.get("NetworkPolicy(shop/web)").context("it is not reported")?;
    ensure!(reason.contains("spec.ingress[0].source.nets"), "{reason}");
    ensure!(unreadable.contains_key("IPPool(broken)") && unreadable.len() == 3, "{unreadable:?}");
    ensure!(unreadable["IPPool(bad)"].contains("spec.cidr"), "{unreadable:?}");
    store.etcdctl(&["del", &format!("{pools}/bad")]).await?;
    recorder.wait("the pool is gone", |_| follower.unreadable().count() == 2).await?;
    // Readable, then not: the readable version stays, even when the feed reconnects.
    store.etcdctl(&["put", path, good]).await?;
    recorder.wait("the readable policy", |known| action(known) == Some(RuleAction::Allow)).await?;
    recorder.wait("no more report", |_| follower.unreadable().count() == 1).await?;
    store.etcdctl(&["put", path, &bad]).await?;
    recorder.wait("the report", |_| follower.unreadable().count() == 2).await?;
    ensure!(action(&recorder.known()) == Some(RuleAction::Allow));
    store.stop().await?;
    store.start().await?;
    store.compact().await?;
    let backend = store.backend().await?;
    backend.apply(&set("after", "1")?).await?;
    recorder.wait("the feed is back", |known| known.sets().contains_key("after")).await?;
    ensure!(action(&recorder.known()) == Some(RuleAction::Allow));
    // It can still be deleted.
    store.etcdctl(&["del", path]).await?;
    recorder.wait("the deletion", |known| !known.values.contains_key(&policy)).await?;
    recorder.wait("no more report", |_| follower.unreadable().count() == 1).await?;
    ensure!(follower.unreadable().total() >= 3);
    Ok(())
}

/// A datastore that Calico itself has written, through all feeds at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_feeds_of_a_store_written_by_calico() -> Result<()> {
    let store = EtcdStore::open().await?;
    let lines: Vec<&str> = include_str!("../data/felix-etcd.txt").lines().collect();
    for entry in lines.chunks(2) {
        store.etcdctl(&["put", entry[0], entry[1]]).await?;
    }
    let mut counts = Vec::new();
    for kinds in [felix(), feeds::bgp(&BgpOptions { node: Some("n1".into()), ..BgpOptions::default() })] {
        let (recorder, follower) = Recorder::follow(&store.backend().await?, kinds);
        recorder.wait_in_sync().await?;
        counts.push(recorder.known().values.len());
        follower.stop().await;
        ensure!(recorder.known().complaints.is_empty());
    }
    // Felix: 2 settings, 6 policies, 1 set, 1 pool, 2 nodes with an address each, 3 profiles of 2 parts, 4
    // endpoints, 4 tiers, 1 host endpoint, 2 blocks. BGP: 1 pool, 2 nodes, 1 claim.
    ensure!(counts == [2 + 6 + 1 + 1 + 4 + 6 + 4 + 4 + 1 + 2, 4], "{counts:?}");
    Ok(())
}
