//! The semantics of create, update, apply, delete, get, list and watch, on etcd's data model.
//!
//! Every write is one transaction whose conditions carry the compare-and-swap, so there is no window between check and
//! write. Deleted entries carry the revision of their deletion, so that a watch resumed from there repeats nothing.

use super::config::EtcdConfig;
use super::convert::{
    default_allow_key, default_allow_profile, exact_revision, pair, read, remains, revision_or_now,
    store_error,
};
use super::embedded::EmbeddedTransport;
use super::list::Selection;
use super::names::{Found, Place, Places};
use super::remote::RemoteTransport;
use super::transport::{
    Condition, Entry, RangeRequest, Span, Step, Transaction, TransactionResponse, Transport,
};
use super::{compaction, list, watch};
use crate::backend::{Backend, Batch, Compaction, KvList, ListParts, Watch, WatchOptions, Write};
use crate::error::{Error, Result};
use crate::parts::{UndecodedPart, UndecodedParts, look_ahead};
use async_trait::async_trait;
use bytes::Bytes;
use model::{Key, KvPair, ListOptions};
use std::sync::Arc;

/// All of Calico's keys start with this.
const ROOT: &str = "/calico/";
/// How many times an operation without a revision is retried because another writer was faster.
const ATTEMPTS: usize = 10;

/// Calico's data in a store that implements etcd's v3 API.
#[derive(Clone)]
pub struct EtcdBackend {
    transport: Arc<dyn Transport>,
}

impl EtcdBackend {
    /// Uses an etcd cluster or a `tortie datastore`. Checks the settings; connects on first use.
    ///
    /// # Errors
    /// When the settings contradict each other or a certificate cannot be read.
    pub async fn connect(config: &EtcdConfig) -> Result<Self> {
        Ok(Self::new(Arc::new(RemoteTransport::new(config).await?)))
    }

    /// Uses an embedded store opened by this process.
    #[must_use]
    pub fn embedded(store: Arc<kvstore_engine::Store>) -> Self {
        Self::new(Arc::new(EmbeddedTransport::new(store)))
    }

    /// Uses any transport.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport }
    }

    async fn transact(
        &self,
        key: &Key,
        action: &str,
        transaction: Transaction,
    ) -> Result<TransactionResponse> {
        let size: usize = transaction
            .then
            .iter()
            .map(|step| if let Step::Put { value, .. } = step { value.len() } else { 0 })
            .sum();
        self.transport.transact(transaction).await.map_err(|error| {
            store_error(error, || {
                if size > 0 {
                    format!("cannot {action} {key} ({size} bytes)")
                } else {
                    format!("cannot {action} {key}")
                }
            })
        })
    }

    /// The content to write for an entry: its value, and its lease.
    async fn content(&self, entry: &KvPair) -> Result<(Bytes, i64)> {
        let value = model::encode(&entry.key, &entry.value)
            .map_err(|error| Error::permanent(format!("cannot encode {}", entry.key), error.to_string()))?;
        let lease = match entry.ttl {
            Some(ttl) if !ttl.is_zero() => {
                let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
                self.transport.grant_lease(seconds).await.map_err(|error| {
                    store_error(error, || format!("cannot grant a lease for {}", entry.key))
                })?
            }
            _ => 0,
        };
        Ok((value.into(), lease))
    }
}

/// The entry as now stored.
fn written(entry: &KvPair, place: &Place, answer: &TransactionResponse) -> KvPair {
    let mut stored = pair(place.key.clone(), entry.value.clone(), answer.revision.to_string());
    stored.ttl = entry.ttl;
    stored
}

/// The entry as it was before it was deleted, with the revision of the deletion.
fn removed(place: &Place, answer: TransactionResponse) -> Result<KvPair> {
    let revision = answer.revision;
    let held = answer.found.into_iter().flatten().next();
    let outcome = match &held {
        Some(entry) => read(&place.key, entry),
        None => Err("the store did not return its value".to_owned()),
    };
    match outcome {
        Ok(mut pair) => {
            pair.set_revision(&revision.to_string());
            Ok(pair)
        }
        Err(reason) => remains(&place.key, revision)
            .ok_or_else(|| Error::Parse { key: place.key.to_string(), reason: format!("deleted; {reason}") }),
    }
}

fn does_not_exist(key: &Key) -> Error {
    Error::DoesNotExist { key: key.to_string(), reason: String::new() }
}

fn busy(key: &Key, action: &str) -> Error {
    Error::transient(format!("cannot {action} {key}"), "it keeps changing concurrently")
}

/// Why a compare-and-swap on a known revision failed.
fn lost(places: &Places, found: &Found) -> Error {
    let key = places.plain.key.to_string();
    match found {
        Found::Nowhere { .. } => Error::DoesNotExist { key, reason: String::new() },
        Found::Plain(_) | Found::Old(..) => Error::UpdateConflict { key, existing: places.existing(found) },
    }
}

/// Maximum number of conditions in one transaction: etcd's default limit.
const MAX_STEPS: usize = 128;

/// Maximum bytes of values in one transaction, well below etcd's limit for a request.
const MAX_BATCH_SIZE: usize = 1 << 20;

#[async_trait]
impl Backend for EtcdBackend {
    async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        let places = Places::of(&entry.key)?;
        let (value, lease) = self.content(entry).await?;
        let mut stranger = 0;
        for _ in 0..ATTEMPTS {
            let put = Step::Put { key: places.plain.path.clone(), value: value.clone(), lease };
            let transaction = Transaction {
                conditions: places.absent(stranger),
                then: vec![put],
                otherwise: places.gets(0),
            };
            let answer = self.transact(&entry.key, "create", transaction).await?;
            if answer.succeeded {
                return Ok(written(entry, &places.plain, &answer));
            }
            match places.locate(answer) {
                Found::Nowhere { stranger: other } => stranger = other,
                found => {
                    let key = entry.key.to_string();
                    return Err(Error::AlreadyExists { key, existing: places.existing(&found) });
                }
            }
        }
        Err(busy(&entry.key, "create"))
    }

    async fn create_all(&self, entries: &[KvPair]) -> Result<Option<Vec<KvPair>>> {
        let Some(first) = entries.first() else { return Ok(Some(Vec::new())) };
        let mut places = Vec::with_capacity(entries.len());
        let mut transaction = Transaction::default();
        let mut size = 0;
        for entry in entries {
            let place = Places::of(&entry.key)?;
            let (value, lease) = self.content(entry).await?;
            size += value.len();
            transaction.conditions.extend(place.absent(0));
            transaction.then.push(Step::Put { key: place.plain.path.clone(), value, lease });
            places.push(place);
        }
        if transaction.conditions.len() > MAX_STEPS || size > MAX_BATCH_SIZE {
            return Ok(None);
        }
        let answer = self.transact(&first.key, "create", transaction).await?;
        if !answer.succeeded {
            return Ok(None);
        }
        let stored = entries.iter().zip(&places).map(|(entry, place)| written(entry, &place.plain, &answer));
        Ok(Some(stored.collect()))
    }

    async fn write_all(&self, writes: &[Write]) -> Result<Batch> {
        let Some(first) = writes.first() else { return Ok(Batch::Done(Vec::new())) };
        let mut places = Vec::with_capacity(writes.len());
        let mut transaction = Transaction::default();
        let mut size = 0;
        for write in writes {
            let at = Places::of(write.key())?;
            if at.old.is_some() {
                // It would first have to be determined which of the two keys is meant.
                return Ok(Batch::Unsupported);
            }
            let path = at.plain.path.clone();
            transaction.otherwise.push(Step::Get { key: path.clone(), revision: 0 });
            transaction.conditions.push(match write {
                Write::Create(_) | Write::Unchanged { revision: None, .. } => Condition::Absent(path.clone()),
                Write::Update(KvPair { revision, .. })
                | Write::Delete(KvPair { revision, .. })
                | Write::Unchanged { revision: Some(revision), .. } => {
                    Condition::WrittenAt(path.clone(), exact_revision(revision)?)
                }
            });
            match write {
                Write::Create(entry) | Write::Update(entry) => {
                    let (value, lease) = self.content(entry).await?;
                    size += value.len();
                    transaction.then.push(Step::Put { key: path, value, lease });
                }
                Write::Delete(_) => transaction.then.push(Step::Delete(Span::key(path))),
                Write::Unchanged { .. } => {}
            }
            places.push(at.plain);
        }
        if writes.len() > MAX_STEPS || size > MAX_BATCH_SIZE {
            return Ok(Batch::Unsupported);
        }
        let answer = self.transact(first.key(), "write", transaction).await?;
        if answer.succeeded {
            let stored = writes.iter().zip(&places).map(|(write, place)| match write {
                Write::Create(entry) | Write::Update(entry) => Some(written(entry, place, &answer)),
                Write::Delete(_) | Write::Unchanged { .. } => None,
            });
            return Ok(Batch::Done(stored.collect()));
        }
        let found = places.iter().zip(answer.found).map(|(place, entries)| {
            let Some(entry) = entries.into_iter().next() else { return Ok(None) };
            let path = || String::from_utf8_lossy(&place.path).into_owned();
            read(&place.key, &entry).map(Some).map_err(|reason| Error::Parse { key: path(), reason })
        });
        Ok(Batch::Conflict(found.collect::<Result<_>>()?))
    }

    async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        let revision = exact_revision(&entry.revision)?;
        let places = Places::of(&entry.key)?;
        let (value, lease) = self.content(entry).await?;
        let swap = |conditions, place: &Place| Transaction {
            conditions,
            then: vec![Step::Put { key: place.path.clone(), value: value.clone(), lease }],
            otherwise: places.gets(0),
        };
        let here = vec![Condition::WrittenAt(places.plain.path.clone(), revision)];
        let answer = self.transact(&entry.key, "update", swap(here, &places.plain)).await?;
        if answer.succeeded {
            return Ok(written(entry, &places.plain, &answer));
        }
        let found = places.locate(answer);
        let Found::Old(old, current) = &found else { return Err(lost(&places, &found)) };
        if current.mod_revision != revision {
            return Err(lost(&places, &found));
        }
        let transaction = swap(places.at_old_place(old, revision), old);
        let answer = self.transact(&entry.key, "update", transaction).await?;
        if answer.succeeded {
            return Ok(written(entry, old, &answer));
        }
        Err(lost(&places, &places.locate(answer)))
    }

    async fn apply(&self, entry: &KvPair) -> Result<KvPair> {
        let places = Places::of(&entry.key)?;
        let (value, lease) = self.content(entry).await?;
        let mut conditions = Vec::new();
        let mut target = places.plain.clone();
        if let Some(old) = &places.old {
            conditions.push(Condition::Absent(old.path.clone()));
        }
        for _ in 0..ATTEMPTS {
            let put = Step::Put { key: target.path.clone(), value: value.clone(), lease };
            let transaction = Transaction { conditions, then: vec![put], otherwise: places.gets(0) };
            let answer = self.transact(&entry.key, "apply", transaction).await?;
            if answer.succeeded {
                return Ok(written(entry, &target, &answer));
            }
            (conditions, target) = match places.locate(answer) {
                Found::Old(old, current) => (places.at_old_place(&old, current.mod_revision), old),
                Found::Plain(_) => {
                    (vec![Condition::Present(places.plain.path.clone())], places.plain.clone())
                }
                Found::Nowhere { stranger } => (places.absent(stranger), places.plain.clone()),
            };
        }
        Err(busy(&entry.key, "apply"))
    }

    async fn delete(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        let revision = revision.filter(|text| !text.is_empty()).map(exact_revision).transpose()?;
        let places = Places::of(key)?;
        let delete = |conditions, place: &Place| Transaction {
            conditions,
            then: vec![Step::Delete(Span::key(place.path.clone()))],
            otherwise: places.gets(0),
        };
        for _ in 0..ATTEMPTS {
            let here = match revision {
                Some(revision) => Condition::WrittenAt(places.plain.path.clone(), revision),
                None => Condition::Present(places.plain.path.clone()),
            };
            let answer = self.transact(key, "delete", delete(vec![here], &places.plain)).await?;
            if answer.succeeded {
                return removed(&places.plain, answer);
            }
            let found = places.locate(answer);
            let Found::Old(old, current) = &found else { return Err(lost(&places, &found)) };
            if revision.is_some_and(|revision| revision != current.mod_revision) {
                return Err(lost(&places, &found));
            }
            let transaction = delete(places.at_old_place(old, current.mod_revision), old);
            let answer = self.transact(key, "delete", transaction).await?;
            if answer.succeeded {
                return removed(old, answer);
            }
            if revision.is_some() {
                return Err(lost(&places, &places.locate(answer)));
            }
        }
        Err(busy(key, "delete"))
    }

    async fn delete_entry(&self, entry: &KvPair) -> Result<KvPair> {
        let Some(uid) = entry.uid.as_ref().filter(|uid| !uid.is_empty()) else {
            return self.delete(&entry.key, Some(&entry.revision)).await;
        };
        for _ in 0..ATTEMPTS {
            let current = self.get(&entry.key, None).await?;
            if current.uid.as_ref().is_some_and(|current| current != uid) {
                let reason = format!("its uid is not {uid}");
                return Err(Error::DoesNotExist { key: entry.key.to_string(), reason });
            }
            let revision = if entry.revision.is_empty() { &current.revision } else { &entry.revision };
            match self.delete(&current.key, Some(revision)).await {
                Err(Error::UpdateConflict { .. }) if entry.revision.is_empty() => {}
                other => return other,
            }
        }
        Err(busy(&entry.key, "delete"))
    }

    async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        if *key == default_allow_key() {
            return default_allow_profile();
        }
        let revision = revision_or_now(revision)?;
        let places = Places::of(key)?;
        let (place, entry) = if places.old.is_none() {
            (places.plain.clone(), self.read_one(&places.plain, revision).await?)
        } else {
            let transaction = Transaction { then: places.gets(revision), ..Transaction::default() };
            match places.locate(self.transact(key, "get", transaction).await?) {
                Found::Plain(entry) => (places.plain.clone(), Some(entry)),
                Found::Old(place, entry) => (place, Some(entry)),
                Found::Nowhere { .. } => (places.plain.clone(), None),
            }
        };
        let entry = entry.ok_or_else(|| does_not_exist(key))?;
        read(&place.key, &entry)
            .map_err(|reason| Error::Parse { key: String::from_utf8_lossy(&place.path).into_owned(), reason })
    }

    async fn list(&self, options: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        let selection = Arc::new(Selection::new(options)?);
        list::list(&*self.transport, &selection, revision_or_now(revision)?).await
    }

    async fn list_parts(&self, options: &ListOptions, revision: Option<&str>) -> Result<ListParts> {
        let selection = Arc::new(Selection::new(options)?);
        let parts = list::list_undecoded(Arc::clone(&self.transport), selection, revision_or_now(revision)?);
        Ok(look_ahead(parts.await?, UndecodedPart::decode))
    }

    async fn list_undecoded(&self, options: &ListOptions, revision: Option<&str>) -> Result<UndecodedParts> {
        let selection = Arc::new(Selection::new(options)?);
        list::list_undecoded(Arc::clone(&self.transport), selection, revision_or_now(revision)?).await
    }

    async fn newest_revision(&self) -> Result<Option<String>> {
        let request = RangeRequest { span: Span::key(&b"/calico/"[..]), revision: 0, limit: 1 };
        let answer = self.transport.range(request).await;
        let answer =
            answer.map_err(|error| Error::transient("reading the newest revision", error.to_string()))?;
        Ok(Some(answer.revision.to_string()))
    }

    async fn watch(&self, options: &ListOptions, watch: WatchOptions) -> Result<Watch> {
        let selection = Arc::new(Selection::new(options)?);
        let revision = revision_or_now(watch.revision.as_deref())?;
        watch::watch(Arc::clone(&self.transport), selection, revision, watch.deleted_keys_only).await
    }

    /// Reads one key from the store, so that a wrong address, certificate or password shows here and not later.
    async fn ensure_ready(&self) -> Result<()> {
        let request = RangeRequest { span: Span::prefix(ROOT), revision: 0, limit: 1 };
        match self.transport.range(request).await {
            Ok(_) => Ok(()),
            Err(error) => Err(store_error(error, || "cannot use the etcd datastore".to_owned())),
        }
    }

    /// One transaction: the policy is never missing, nor present twice.
    async fn store_under_own_name(&self, entry: &KvPair) -> Result<bool> {
        let (Some(old), Some(policy)) = (entry.key.as_resource(), entry.as_resource()) else {
            return Ok(false);
        };
        if !old.kind.is_tiered_policy() || policy.name() == old.name {
            return Ok(false);
        }
        let own = Key::resource(old.kind, &old.namespace, policy.name());
        let (from, to) = (super::convert::path(&entry.key)?, super::convert::path(&own)?);
        let unchanged = Condition::WrittenAt(from.clone(), exact_revision(&entry.revision)?);
        let (value, lease) = self.content(&KvPair { key: own, ..entry.clone() }).await?;
        let delete = Step::Delete(Span::key(from.clone()));
        let moving = Transaction {
            conditions: vec![unchanged.clone(), Condition::Absent(to.clone())],
            then: vec![Step::Put { key: to.clone(), value, lease }, delete.clone()],
            otherwise: Vec::new(),
        };
        if self.transact(&entry.key, "rename", moving).await?.succeeded {
            return Ok(true);
        }
        // An entry under the plain name already hides the old one: only the removal remains.
        let removing = Transaction {
            conditions: vec![unchanged, Condition::Present(to)],
            then: vec![delete],
            otherwise: vec![Step::Get { key: from, revision: 0 }],
        };
        let answer = self.transact(&entry.key, "rename", removing).await?;
        if answer.succeeded {
            return Ok(true);
        }
        let is_there = answer.found.into_iter().flatten().next().is_some();
        let key = entry.key.to_string();
        Err(if is_there { Error::UpdateConflict { key, existing: None } } else { does_not_exist(&entry.key) })
    }

    async fn compaction_round(&self, last: Compaction) -> Result<Compaction> {
        let outcome = compaction::round(&*self.transport, last).await;
        outcome.map_err(|error| store_error(error, || "cannot compact the store".to_owned()))
    }

    async fn clean(&self) -> Result<()> {
        let transaction =
            Transaction { then: vec![Step::Delete(Span::prefix(ROOT))], ..Transaction::default() };
        match self.transport.transact(transaction).await {
            Ok(_) => Ok(()),
            Err(error) => Err(store_error(error, || format!("cannot delete everything below {ROOT}"))),
        }
    }
}

impl EtcdBackend {
    async fn read_one(&self, place: &Place, revision: i64) -> Result<Option<Entry>> {
        let request = RangeRequest { span: Span::key(place.path.clone()), revision, limit: 1 };
        let answer = self
            .transport
            .range(request)
            .await
            .map_err(|error| store_error(error, || format!("cannot get {}", place.key)))?;
        Ok(answer.entries.into_iter().next())
    }
}
