//! A long-lived process: it reads only what has changed, and notices changes.

use crate::fixtures::{node, pool, pool_key, request, reservation};
use async_trait::async_trait;
use datastore::etcd::EtcdBackend;
use datastore::{Backend, Batch, KvList, Result, Watch, WatchOptions, Write};
use ipam::Ipam;
use model::{IpamConfig, Key, KvPair, ListOptions, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::Folder;

/// Counts the operations that pass through it.
struct Counting {
    inner: EtcdBackend,
    reads: AtomicUsize,
    lists: AtomicUsize,
    writes: AtomicUsize,
}

impl Counting {
    fn take(&self) -> (usize, usize, usize) {
        let take = |counter: &AtomicUsize| counter.swap(0, Ordering::SeqCst);
        (take(&self.reads), take(&self.lists), take(&self.writes))
    }

    fn count(counter: &AtomicUsize) {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Backend for Counting {
    async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        Self::count(&self.writes);
        self.inner.create(entry).await
    }

    async fn write_all(&self, writes: &[Write]) -> Result<Batch> {
        Self::count(&self.writes);
        self.inner.write_all(writes).await
    }

    async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        Self::count(&self.writes);
        self.inner.update(entry).await
    }

    async fn apply(&self, entry: &KvPair) -> Result<KvPair> {
        self.inner.apply(entry).await
    }

    async fn delete(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        Self::count(&self.writes);
        self.inner.delete(key, revision).await
    }

    async fn delete_entry(&self, entry: &KvPair) -> Result<KvPair> {
        Self::count(&self.writes);
        self.inner.delete_entry(entry).await
    }

    async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        Self::count(&self.reads);
        self.inner.get(key, revision).await
    }

    async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        Self::count(&self.lists);
        self.inner.list(list, revision).await
    }

    async fn watch(&self, list: &ListOptions, options: WatchOptions) -> Result<Watch> {
        self.inner.watch(list, options).await
    }

    async fn clean(&self) -> Result<()> {
        self.inner.clean().await
    }
}

struct Setting {
    counting: Arc<Counting>,
    ipam: Ipam,
    _folder: Folder,
}

async fn setting() -> Setting {
    let folder = Folder::new("ipam-warm").expect("a folder");
    let store = kvstore_engine::Store::open(folder.path().join("data"), kvstore_engine::Options::default())
        .expect("opening");
    let counting = Arc::new(Counting {
        inner: EtcdBackend::embedded(store),
        reads: AtomicUsize::new(0),
        lists: AtomicUsize::new(0),
        writes: AtomicUsize::new(0),
    });
    for entry in [pool("p", r#"{"cidr":"10.0.0.0/24","blockSize":28}"#), node("n1", &[])] {
        counting.create(&entry).await.expect("creating");
    }
    let backend: Arc<dyn Backend> = Arc::clone(&counting) as Arc<dyn Backend>;
    Setting { counting, ipam: Ipam::warm(backend, "n1"), _folder: folder }
}

/// Retries until the condition holds; fails with `what` otherwise.
async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    testkit::eventually_async(what, holds).await.expect(what);
}

#[tokio::test]
async fn a_warm_assignment_is_a_single_write() {
    let Setting { counting, ipam, _folder } = setting().await;
    let mut number = 0;
    eventually("an assignment without reads", async || {
        number += 1;
        counting.take();
        ipam.auto_assign(&request("n1", &format!("h{number}"), 1)).await.expect("an address");
        counting.take() == (0, 0, 1)
    })
    .await;
    counting.take();
    ipam.release_by_handle(&format!("h{number}").into()).await.expect("releasing");
    assert_eq!(counting.take(), (1, 0, 1), "a release reads its handle");
    ipam.auto_assign(&request("n1", "after", 1)).await.expect("an address");
    assert_eq!(counting.take(), (0, 0, 1), "and leaves the block known");
}

#[tokio::test]
async fn changes_by_others_are_noticed() {
    let Setting { counting, ipam, _folder } = setting().await;
    ipam.auto_assign(&request("n1", "first", 1)).await.expect("an address");
    // Another process takes and releases an address: a block that has changed is read again.
    let other = Ipam::new(Arc::clone(&counting) as Arc<dyn Backend>);
    for number in 0..3 {
        other.auto_assign(&request("n1", &format!("other{number}"), 1)).await.expect("an address");
        ipam.auto_assign(&request("n1", &format!("warm{number}"), 1)).await.expect("an address");
        other.release_by_handle(&format!("warm{number}").into()).await.expect("releasing");
        ipam.release_by_handle(&format!("other{number}").into()).await.expect("releasing");
    }
    // Settings apply at once: they are a condition of the write.
    let config = IpamConfig { ip_cooldown_seconds: 3600, ..ipam::default_config() };
    counting.create(&KvPair::new(Key::IpamConfig, Value::IpamConfig(config))).await.expect("settings");
    let got: Vec<_> =
        ipam.auto_assign(&request("n1", "rests", 1)).await.expect("an address").addresses().collect();
    ipam.release_by_handle(&"rests".into()).await.expect("releasing");
    let mut again = ipam::AssignIp::new(got[0], "n1");
    again.handle = Some("again".into());
    assert!(ipam.assign_ip(&again).await.expect_err("it rests").is_already_exists());

    // Reservations, pools and labels are watched.
    let reserved = reservation("all", &["10.0.0.0/24"]);
    counting.create(&reserved).await.expect("a reservation");
    eventually("nothing is free", async || {
        let assigned = ipam.auto_assign(&request("n1", "reserved", 1)).await.expect("a pool");
        let is_empty = assigned.ipv4.is_empty();
        drop(ipam.release_by_handle(&"reserved".into()).await);
        is_empty
    })
    .await;
    counting.delete(&reserved.key, None).await.expect("deleting");
    eventually("something is free", async || {
        !ipam.auto_assign(&request("n1", "free", 1)).await.expect("a pool").ipv4.is_empty()
    })
    .await;
    let mut current = counting.get(&pool_key("p"), None).await.expect("the pool");
    let disabled = pool("p", r#"{"cidr":"10.0.0.0/24","blockSize":28,"disabled":true}"#);
    current.value = disabled.value;
    counting.apply(&current).await.expect("disabling");
    eventually("the pool is closed", async || ipam.auto_assign(&request("n1", "late", 1)).await.is_err())
        .await;
}
