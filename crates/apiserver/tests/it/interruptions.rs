//! A move of objects, there and back, killed after each of its writes or just before the answer to one, and run again.
//!
//! A kill leaves exactly what was written so far. So each write in turn is made the last one, on two stores in this
//! process.

use anyhow::{Context as _, Result, ensure};
use apiserver::for_tests::{Move, Outcome};
use async_trait::async_trait;
use client::{Client, ListQuery};
use datastore::etcd::EtcdBackend;
use datastore::{Backend, Error, KvList, Watch, WatchOptions};
use model::{Key, KvPair, ListOptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::Folder;

/// A store whose user is killed after a number of writes.
struct Mortal {
    inner: Arc<EtcdBackend>,
    /// How many writes remain until the kill, on both stores together.
    left: Arc<AtomicUsize>,
    /// Whether the last write still reaches the store.
    arrives: bool,
}

impl Mortal {
    /// Whether the next write is the last one, and whether it comes after the last one.
    fn dies(&self) -> (bool, bool) {
        let left =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        let left = left.unwrap_or_default();
        (left <= 1, left == 1 && self.arrives)
    }

    async fn write<T>(
        &self,
        write: impl Future<Output = datastore::Result<T>> + Send,
    ) -> datastore::Result<T> {
        match self.dies() {
            (false, _) => write.await,
            (true, arrives) => {
                if arrives {
                    write.await?;
                }
                Err(Error::permanent("killed", "killed"))
            }
        }
    }
}

#[async_trait]
impl Backend for Mortal {
    async fn create(&self, entry: &KvPair) -> datastore::Result<KvPair> {
        self.write(self.inner.create(entry)).await
    }

    async fn update(&self, entry: &KvPair) -> datastore::Result<KvPair> {
        self.write(self.inner.update(entry)).await
    }

    async fn update_status(&self, entry: &KvPair) -> datastore::Result<KvPair> {
        self.write(self.inner.update_status(entry)).await
    }

    async fn apply(&self, entry: &KvPair) -> datastore::Result<KvPair> {
        let known = self.inner.get(&entry.key, None).await.ok();
        let entry = with_uid(entry, known.as_ref());
        self.write(self.inner.apply(&entry)).await
    }

    async fn delete(&self, key: &Key, revision: Option<&str>) -> datastore::Result<KvPair> {
        self.write(self.inner.delete(key, revision)).await
    }

    async fn delete_entry(&self, entry: &KvPair) -> datastore::Result<KvPair> {
        self.write(self.inner.delete_entry(entry)).await
    }

    async fn get(&self, key: &Key, revision: Option<&str>) -> datastore::Result<KvPair> {
        self.inner.get(key, revision).await
    }

    async fn list(&self, list: &ListOptions, revision: Option<&str>) -> datastore::Result<KvList> {
        self.inner.list(list, revision).await
    }

    async fn watch(&self, list: &ListOptions, options: WatchOptions) -> datastore::Result<Watch> {
        self.inner.watch(list, options).await
    }

    async fn clean(&self) -> datastore::Result<()> {
        self.inner.clean().await
    }
}

/// An entry with a uid, which Kubernetes assigns to every object and etcd to none.
fn with_uid(entry: &KvPair, known: Option<&KvPair>) -> KvPair {
    let mut entry = entry.clone();
    let known = known.and_then(|known| match &known.value {
        model::Value::Resource(resource) => Some(resource.metadata().uid.clone()),
        _ => None,
    });
    if let model::Value::Resource(resource) = &mut entry.value
        && resource.metadata().uid.is_empty()
    {
        resource.metadata_mut().uid = known.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    }
    entry
}

/// The two places that objects move between.
struct Places {
    a: Arc<EtcdBackend>,
    b: Arc<EtcdBackend>,
    _folder: Folder,
}

impl Places {
    fn open() -> Result<Self> {
        let folder = Folder::new("move")?;
        let open = |name: &str| -> Result<Arc<EtcdBackend>> {
            let path = folder.path().join(name);
            let store = kvstore_engine::Store::open(path, kvstore_engine::Options::default())?;
            Ok(Arc::new(EtcdBackend::embedded(store)))
        };
        Ok(Self { a: open("a")?, b: open("b")?, _folder: folder })
    }

    fn at(&self, place: &str) -> &Arc<EtcdBackend> {
        if place == "a" { &self.a } else { &self.b }
    }

    /// Moves everything; is killed after this many writes.
    async fn run(&self, from: &str, to: &str, writes: usize, arrives: bool) -> Result<Outcome> {
        let left = Arc::new(AtomicUsize::new(writes));
        let mortal =
            |place: &str| Mortal { inner: Arc::clone(self.at(place)), left: Arc::clone(&left), arrives };
        let (old, new) = (mortal(from), mortal(to));
        let place = Move { old: &old, new: &new, from, to };
        let outcome = match place.is_done().await? {
            true => Outcome::MovedBefore,
            false => place.copy().await?,
        };
        place.finish().await?;
        Ok(outcome)
    }

    /// Whether a place may be used; `None` where it never was.
    async fn is_ready(&self, place: &str) -> Result<Option<bool>> {
        let client = Client::new(Arc::clone(self.at(place)) as Arc<dyn Backend>);
        match client.resource::<api::ClusterInformationSpec>().get("", "default").await {
            Ok(information) => Ok(Some(information.spec.datastore_ready != Some(false))),
            Err(error) if error.is_does_not_exist() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The contents of a place, without what a store decides and without the notes of a move.
    async fn picture(&self, place: &str) -> Result<BTreeMap<String, Value>> {
        let client = Client::new(Arc::clone(self.at(place)) as Arc<dyn Backend>);
        let mut found = BTreeMap::new();
        for kind in
            [api::Kind::Tier, api::Kind::NetworkPolicy, api::Kind::GlobalNetworkSet, api::Kind::IPPool]
        {
            for resource in client.list_any(kind, &ListQuery::all()).await?.items {
                let name = format!("{kind} {}", resource.name());
                let mut value = serde_json::to_value(&resource)?;
                if let Some(metadata) = value["metadata"].as_object_mut() {
                    for name in ["resourceVersion", "uid", "creationTimestamp"] {
                        metadata.remove(name);
                    }
                    for owner in metadata
                        .get_mut("ownerReferences")
                        .and_then(Value::as_array_mut)
                        .into_iter()
                        .flatten()
                    {
                        owner["uid"] = Value::Null;
                    }
                }
                found.insert(name, value);
            }
        }
        Ok(found)
    }

    /// Checks that every referenced owner exists under that uid.
    async fn check_owners(&self, place: &str) -> Result<()> {
        let client = Client::new(Arc::clone(self.at(place)) as Arc<dyn Backend>);
        let tiers = client.list_any(api::Kind::Tier, &ListQuery::all()).await?.items;
        for set in client.list_any(api::Kind::GlobalNetworkSet, &ListQuery::all()).await?.items {
            for owner in &set.metadata().owner_references {
                let found = tiers.iter().find(|tier| tier.name() == owner.name).context("the owner")?;
                ensure!(found.metadata().uid == owner.uid, "{place}: {} names {}", set.name(), owner.uid);
            }
        }
        Ok(())
    }
}

async fn put(client: &Client, kind: api::Kind, object: Value) -> Result<api::Resource> {
    Ok(client.create_any(api::Resource::from_value(kind, object)?).await?)
}

async fn fill(places: &Places) -> Result<()> {
    places.a.clean().await?;
    places.b.clean().await?;
    let client = Client::new(Arc::clone(&places.a) as Arc<dyn Backend>);
    client.ensure_initialized("v3.32.1", "").await?;
    let tier = put(
        &client,
        api::Kind::Tier,
        json!({"metadata": {"name": "red", "labels": {"a": "b"}}, "spec": {"order": 5}}),
    )
    .await?;
    let owner = json!({"apiVersion": "projectcalico.org/v3", "kind": "Tier", "name": "red", "uid": tier.metadata().uid});
    for (kind, object) in [
        (
            api::Kind::NetworkPolicy,
            json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"tier": "red", "selector": "all()"}}),
        ),
        (
            api::Kind::GlobalNetworkSet,
            json!({"metadata": {"name": "nets", "ownerReferences": [owner]}, "spec": {"nets": ["10.0.0.0/8"]}}),
        ),
        (api::Kind::IPPool, json!({"metadata": {"name": "pool"}, "spec": {"cidr": "10.1.0.0/16"}})),
    ] {
        put(&client, kind, object).await?;
    }
    Ok(())
}

/// Is killed after this many writes and run again; then everything must be at the other place. Returns whether it was
/// killed at all.
async fn there(places: &Places, from: &str, to: &str, writes: usize, arrives: bool) -> Result<bool> {
    let before = places.picture(from).await?;
    let died = places.run(from, to, writes, arrives).await.is_err();
    ensure!(places.picture(from).await? == before, "the leftovers changed");
    let ready = [places.is_ready(from).await?, places.is_ready(to).await?];
    ensure!(ready != [Some(true), Some(true)], "both places can be used");
    if ready == [Some(false), Some(true)] {
        ensure!(places.picture(to).await? == before, "the new place is in use before everything has arrived");
    }
    places.run(from, to, usize::MAX, false).await?;
    ensure!(places.picture(to).await? == before, "something is missing");
    ensure!(places.is_ready(from).await? == Some(false) && places.is_ready(to).await? == Some(true));
    places.check_owners(to).await?;
    Ok(died)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_after_any_write() -> Result<()> {
    let places = Places::open()?;
    for arrives in [false, true] {
        for writes in 1.. {
            let context = || format!("killed at write {writes}, which arrives: {arrives}");
            fill(&places).await?;
            let died = there(&places, "a", "b", writes, arrives).await.with_context(context)?;
            // The new place is in use. Another run must not bring the old objects back.
            let client = Client::new(Arc::clone(&places.b) as Arc<dyn Backend>);
            put(
                &client,
                api::Kind::IPPool,
                json!({"metadata": {"name": "second"}, "spec": {"cidr": "10.2.0.0/16"}}),
            )
            .await?;
            client
                .delete_any(api::Kind::GlobalNetworkSet, "", "nets", &client::DeleteOptions::default())
                .await?;
            client
                .resource::<api::TierSpec>()
                .update_with_retry("", "red", |tier| {
                    tier.spec.order = Some(7.0.into());
                    true
                })
                .await?;
            let used = places.picture("b").await?;
            ensure!(places.run("a", "b", usize::MAX, false).await? == Outcome::MovedBefore, context());
            ensure!(places.picture("b").await? == used, context());
            // And back, killed on the way.
            let died_back = there(&places, "b", "a", writes, arrives).await.with_context(context)?;
            ensure!(places.picture("a").await? == used, context());
            if !died && !died_back {
                ensure!(writes > 8, "only {writes} writes were tried");
                break;
            }
        }
    }
    Ok(())
}
