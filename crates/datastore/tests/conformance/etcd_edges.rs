//! Situations that are too rare on a real server: a compaction between two pages of a list, a store that was restored
//! from an older copy, a deletion whose old value is gone. Runs on the embedded engine, with a thin layer that
//! interferes.

use crate::harness::{network_set, network_sets, short};
use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use datastore::etcd::EtcdBackend;
use datastore::etcd::embedded::EmbeddedTransport;
use datastore::etcd::transport::{
    Change, RangeRequest, RangeResponse, Span, Step, Transaction, TransactionResponse, Transport,
    TransportError, WatchAnswer, WatchRequest,
};
use datastore::{Backend, WatchOptions};
use futures::StreamExt as _;
use model::{Key, ListOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testkit::Folder;

/// The layer's interference.
#[derive(Clone, Copy, PartialEq)]
enum Meddling {
    /// Writes and compacts after every page of a list.
    CompactBetweenPages,
    /// Drops the last values of deleted keys.
    ForgetOldValues,
}

struct Meddler {
    below: EmbeddedTransport,
    store: Arc<kvstore_engine::Store>,
    meddling: Meddling,
    pages: AtomicUsize,
    active: AtomicBool,
}

#[async_trait]
impl Transport for Meddler {
    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, TransportError> {
        let answer = self.below.range(request).await?;
        if self.meddling == Meddling::CompactBetweenPages && self.active.load(Ordering::SeqCst) {
            self.pages.fetch_add(1, Ordering::SeqCst);
            let put = Step::Put { key: "/other".into(), value: "x".into(), lease: 0 };
            let written =
                self.below.transact(Transaction { then: vec![put], ..Transaction::default() }).await?;
            let outcome = self.store.compact(written.revision, true).await;
            outcome.map_err(|error| TransportError::Failed(error.to_string()))?;
        }
        Ok(answer)
    }

    async fn transact(&self, transaction: Transaction) -> Result<TransactionResponse, TransportError> {
        self.below.transact(transaction).await
    }

    async fn grant_lease(&self, seconds: i64) -> Result<i64, TransportError> {
        self.below.grant_lease(seconds).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchAnswer, TransportError> {
        let answer = self.below.watch(request).await?;
        if self.meddling != Meddling::ForgetOldValues {
            return Ok(answer);
        }
        let changes = answer.changes.map(|batch| Ok(batch?.into_iter().map(forget).collect())).boxed();
        Ok(WatchAnswer { changes, ..answer })
    }
}

fn forget(change: Change) -> Change {
    match change {
        Change::Delete { key, revision, .. } => Change::Delete { key, revision, previous: None },
        put => put,
    }
}

fn meddler(meddling: Meddling) -> Result<(Folder, Arc<Meddler>, EtcdBackend)> {
    let folder = Folder::new("meddler")?;
    let store = kvstore_engine::Store::open(folder.path(), kvstore_engine::Options::default())?;
    let below = EmbeddedTransport::new(Arc::clone(&store));
    let (pages, active) = (AtomicUsize::new(0), AtomicBool::new(false));
    let meddler = Arc::new(Meddler { below, store, meddling, pages, active });
    let backend = EtcdBackend::new(Arc::clone(&meddler) as Arc<dyn Transport>);
    Ok((folder, meddler, backend))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_between_two_pages_does_not_fail_a_list() -> Result<()> {
    let (_folder, meddler, backend) = meddler(Meddling::CompactBetweenPages)?;
    let count = 2_500;
    for start in (0..count).step_by(100) {
        let mut then = Vec::new();
        for index in start..start + 100 {
            let entry = network_set("default", &format!("set-{index:05}"), "10.0.0.0/8")?;
            let value = model::encode(&entry.key, &entry.value)?;
            then.push(Step::Put { key: entry.key.path()?.into(), value: value.into(), lease: 0 });
        }
        meddler.transact(Transaction { then, ..Transaction::default() }).await?;
    }
    meddler.active.store(true, Ordering::SeqCst);
    let listed = backend.list(&network_sets("default"), None).await?;
    ensure!(meddler.pages.load(Ordering::SeqCst) > 1, "the list had one page: nothing was tested");
    ensure!(listed.items.len() == count, "{} entries", listed.items.len());
    // At a revision requested by the caller there is no retry: the revision is gone.
    let outcome = backend.list(&network_sets("default"), Some(&listed.revision)).await;
    ensure!(matches!(&outcome, Err(error) if error.is_expired()), "{outcome:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_older_store_ends_a_watch() -> Result<()> {
    let folder = Folder::new("restored")?;
    let backend = EtcdBackend::embedded(kvstore_engine::Store::open(
        folder.path(),
        kvstore_engine::Options::default(),
    )?);
    let created = backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let later = (created.revision.parse::<i64>()? + 100).to_string();
    let options = WatchOptions { revision: Some(later), ..WatchOptions::default() };
    let error =
        backend.watch(&network_sets("default"), options).await.err().context("it waits for the future")?;
    ensure!(error.is_expired(), "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_is_reported_even_when_the_old_value_is_gone() -> Result<()> {
    let (_folder, meddler, backend) = meddler(Meddling::ForgetOldValues)?;
    let created = backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;
    let options = WatchOptions { revision: Some(created.revision.clone()), ..WatchOptions::default() };
    let mut events = backend.watch(&network_sets("default"), options.clone()).await?;
    backend.delete(&created.key, None).await?;
    let next = events.next().await.context("the watch has ended")??;
    ensure!(short(&next) == "deleted one ", "{}", short(&next));

    // A block has no identity besides its value: its watchers must list again rather than keep it.
    let key = Key::Block { cidr: "10.65.0.0/30".parse()? };
    let mut events = backend.watch(&ListOptions::Block { ip_version: None }, options).await?;
    let put = Step::Put { key: key.path()?.into(), value: "{}".into(), lease: 0 };
    meddler.transact(Transaction { then: vec![put], ..Transaction::default() }).await?;
    let delete = Step::Delete(Span::key(key.path()?));
    meddler.transact(Transaction { then: vec![delete], ..Transaction::default() }).await?;
    let next = events.next().await.context("the watch has ended")??;
    ensure!(short(&next).starts_with("invalid "), "{}", short(&next));
    let outcome = events.next().await.context("the watch has ended")?;
    ensure!(matches!(&outcome, Err(error) if error.is_expired()), "{outcome:?}");
    ensure!(events.next().await.is_none(), "the watch goes on");
    Ok(())
}
