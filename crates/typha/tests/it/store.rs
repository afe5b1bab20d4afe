//! A real etcd behind the server: a feed through Typha equals that of the datastore itself.

use crate::captured::stored;
use crate::world::{World, quick, settings, until};
use client::{ClientConfig, DatastoreType};
use datastore::Backend;
use follow::FeedEvent;
use model::KvPair;
use model::feed::{FeedEntry, FeedKey, Status};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use telemetry::Pulse;
use testkit::Etcd;
use tokio::sync::mpsc;
use typha::for_tests::{SourceOptions, follow_store, kinds};
use typha_client::{Discovery, follow_feed};

#[derive(Default)]
struct Known {
    entries: BTreeMap<FeedKey, FeedEntry>,
    status: Option<Status>,
}

#[derive(Clone, Default)]
pub(crate) struct Keeper(Arc<Mutex<Known>>);

impl Keeper {
    /// Keeps the entries of the events.
    pub(crate) fn of(mut events: mpsc::Receiver<FeedEvent>) -> Self {
        let keeper = Self::default();
        let kept = keeper.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                let mut known = kept.0.lock().unwrap();
                match event {
                    FeedEvent::Entries(entries) => {
                        for entry in entries {
                            let key = entry.key().to_owned();
                            match entry.is_gone() {
                                true => known.entries.remove(&key),
                                false => known.entries.insert(key, entry),
                            };
                        }
                    }
                    FeedEvent::Status(status) => known.status = Some(status),
                    FeedEvent::Away(_) => {}
                }
            }
        });
        keeper
    }

    pub(crate) fn is_in_sync(&self) -> bool {
        self.0.lock().unwrap().status == Some(Status::InSync)
    }

    pub(crate) fn entries(&self) -> BTreeMap<FeedKey, FeedEntry> {
        self.0.lock().unwrap().entries.clone()
    }
}

pub(crate) async fn open(endpoint: &str) -> Arc<dyn Backend> {
    let mut config = ClientConfig {
        datastore_type: DatastoreType::EtcdV3,
        etcd: client::config::EtcdSettings::default(),
        kubernetes: client::config::KubernetesSettings::default(),
        embedded_path: String::new(),
    };
    endpoint.clone_into(&mut config.etcd.endpoints);
    client::open_backend(&config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_is_the_same_with_and_without_typha() {
    let mut etcd = Etcd::start().unwrap();
    let backend = open(&etcd.endpoint()).await;
    let entries = stored();
    for (key, value, _) in &entries {
        let value = model::decode(key, value.as_bytes()).unwrap();
        backend.apply(&KvPair::new(key.clone(), value)).await.unwrap();
    }
    let options = SourceOptions { kubernetes: false, use_pod_cidr: false };
    let world = World::start(quick(), None).await;
    let _source = follow_store(&backend, world.felix(), options);
    let discovery = Discovery::Address(world.address.to_string());
    let (_follower, events) = follow_feed(discovery, settings(), Pulse::new());
    let through = Keeper::of(events);
    let (_direct, events) = follow::follow(&backend, kinds(world.felix().kind(), options));
    let direct = Keeper::of(events);
    until("both are in sync", || through.is_in_sync() && direct.is_in_sync()).await;
    until("both are the same", || through.entries() == direct.entries()).await;
    assert!(direct.entries().len() > 50, "{}", direct.entries().len());

    // The store is down for a while: nothing is deleted, and missed changes arrive afterwards.
    let before = through.entries();
    etcd.kill();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(through.entries().len(), before.len());
    etcd.restart().unwrap();
    let backend = open(&etcd.endpoint()).await;
    let gone = entries.iter().find(|(key, ..)| key.to_string().contains("bad-guys")).unwrap();
    backend.delete(&gone.0, None).await.unwrap();
    until("the deletion comes through", || {
        through.entries().len() == before.len() - 1 && through.entries() == direct.entries()
    })
    .await;
}
