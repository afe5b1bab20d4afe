//! Moves objects from one place to another, so that a run interrupted anywhere can simply be repeated.
//!
//! ```text
//! lock the old place ─► copy ─► compare ─► note at the old place that all has moved ─► unlock the new place
//! ```
//!
//! Three facts are kept on the ClusterInformations, where a new run finds them: a source is locked (`datastoreReady:
//! false`) and remembers whether it was locked before; a place that everything was moved away from names the
//! destination. From that moment on the old objects are only leftovers: they are never copied again, however often the
//! command is run, and a move back replaces them.
//!
//! The move stops wherever something would be lost: at an object that cannot be read or is being deleted, or at one in
//! the new place that the old one does not have.

use anyhow::{Context as _, Result, bail};
use api::kind::{API_VERSION, KubernetesForm};
use api::meta::OwnerReference;
use api::words::GLOBAL_NAME;
use api::{Kind, Resource};
use datastore::Backend;
use model::{Key, KvPair, ListOptions, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Annotation: whether the datastore was ready before it was locked.
const WAS_READY: &str = "migration.projectcalico.org/datastore-ready";
/// Annotation: where everything was moved to.
const MOVED_TO: &str = "migration.projectcalico.org/moved-to";

/// How long new definitions may take until they are served.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// What a run did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: a dry run.
    WouldMove {
        /// Objects at the old place.
        found: usize,
    },
    /// Everything is at the new place.
    Moved {
        /// Objects at the old place.
        found: usize,
        /// Objects that had to be written at the new place.
        written: usize,
    },
    /// An earlier run moved everything.
    MovedBefore,
}

/// A move from one place to another.
#[derive(Clone, Copy)]
pub struct Move<'a> {
    /// The store that objects are moved from.
    pub old: &'a dyn Backend,
    /// The store that objects are moved to.
    pub new: &'a dyn Backend,
    /// The name of the old place.
    pub from: &'a str,
    /// The name of the new place.
    pub to: &'a str,
}

impl Move<'_> {
    /// Whether an earlier run moved everything.
    ///
    /// # Errors
    /// When the places cannot be read, or there is nothing to move.
    pub async fn is_done(&self) -> Result<bool> {
        if let Some(information) = information(self.old).await? {
            return Ok(note(&information, MOVED_TO) == Some(self.to));
        }
        // The old definitions may have been removed; then only the new place is left.
        match information(self.new).await? {
            Some(there) if note(&there, WAS_READY).is_none() => Ok(true),
            _ => bail!("{} has no ClusterInformation: there is nothing to move", self.from),
        }
    }

    /// Waits until every kind can be read at the new place: Kubernetes lists new definitions shortly before it serves
    /// them.
    ///
    /// # Errors
    /// When a kind still cannot be read after a while.
    pub async fn wait_for_new(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for list in lists() {
            while let Err(error) = self.new.list(&list, None).await {
                if Instant::now() > deadline || !error.is_does_not_exist() {
                    return Err(error).with_context(|| format!("{list} at {}", self.to));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(())
    }

    /// How many objects there are to move.
    ///
    /// # Errors
    /// When one of the objects cannot be moved.
    pub async fn count(&self) -> Result<usize> {
        let mut found = 0;
        for list in lists() {
            found += listed(self.old, &list).await?.len();
        }
        Ok(found)
    }

    /// Copies everything, compares, and notes that it was moved.
    ///
    /// # Errors
    /// When something could not be done; nothing is lost then, and the old place stays locked.
    pub async fn copy(&self) -> Result<Outcome> {
        self.lock().await?;
        let outcome = self.copy_objects().await?;
        self.compare().await?;
        let mut entry = self.old.get(&place(), None).await?;
        change(&mut entry, |information| {
            information.metadata.annotations.insert(MOVED_TO.into(), self.to.to_owned());
        });
        self.old.update(&entry).await.context("noting that everything was moved")?;
        Ok(outcome)
    }

    /// Locks the old place.
    async fn lock(&self) -> Result<()> {
        let mut entry = self.old.get(&place(), None).await.context("the ClusterInformation")?;
        if note(&entry, WAS_READY).is_some() {
            return Ok(());
        }
        change(&mut entry, |information| {
            let was_ready = information.spec.datastore_ready != Some(false);
            information.metadata.annotations.insert(WAS_READY.into(), was_ready.to_string());
            information.spec.datastore_ready = Some(false);
        });
        self.old.update(&entry).await.context("locking the datastore")?;
        Ok(())
    }

    /// Restores at the new place the lock state that the old one had, unless that has been done.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn finish(&self) -> Result<()> {
        let mut there = self.new.get(&place(), None).await.context("the new ClusterInformation")?;
        if note(&there, WAS_READY).is_none() && note(&there, MOVED_TO).is_none() {
            return Ok(());
        }
        let was_ready = information(self.old)
            .await?
            .and_then(|old| note(&old, WAS_READY).map(|text| text == "true"))
            .unwrap_or(true);
        change(&mut there, |information| {
            information.metadata.annotations.remove(WAS_READY);
            information.metadata.annotations.remove(MOVED_TO);
            information.spec.datastore_ready = Some(was_ready);
        });
        self.new.update(&there).await.context("unlocking the datastore")?;
        Ok(())
    }

    async fn copy_objects(&self) -> Result<Outcome> {
        // Anything left behind by a move in the other direction is outdated, whatever it says.
        let there = information(self.new).await?;
        let is_remainder = there.as_ref().is_some_and(|there| note(there, MOVED_TO) == Some(self.from));
        let (mut found, mut written, mut uids) = (0, 0, Uids::new());
        for list in lists() {
            let (source, target) = (listed(self.old, &list).await?, listed(self.new, &list).await?);
            for (key, stranger) in target.iter().filter(|(key, _)| !source.contains_key(*key)) {
                if !is_remainder {
                    bail!(
                        "{key} is at the new place but not at the old one; delete it, or copy it to the old place"
                    );
                }
                self.new.delete(&stranger.key, None).await.with_context(|| format!("removing {key}"))?;
            }
            found += source.len();
            for (key, entry) in &source {
                let there = target.get(key);
                if there.is_some_and(|there| essence(there) == essence(entry)) && !is_unmarked(entry, there) {
                    remember(&mut uids, key, there);
                    continue;
                }
                let mut copy = fresh(entry);
                owned(&mut copy, &uids, false);
                if is_remainder {
                    keep_note(&mut copy, self.from);
                }
                let new = self.new.apply(&copy).await.with_context(|| format!("writing {key}"))?;
                let new = with_status(self.new, &copy, new)
                    .await
                    .with_context(|| format!("the status of {key}"))?;
                remember(&mut uids, key, Some(&new));
                written += 1;
            }
        }
        self.copy_owners(&uids).await?;
        Ok(Outcome::Moved { found, written })
    }

    /// Owners are referenced by uid, and uids at the new place differ and are known only now. Until then an object has
    /// no owner there: one with a wrong uid would be treated as an orphan and removed.
    async fn copy_owners(&self, uids: &Uids) -> Result<()> {
        for list in lists() {
            let source = listed(self.old, &list).await?;
            let is_owned = |entry: &KvPair| !owners(entry).is_empty();
            if !source.values().any(is_owned) {
                continue;
            }
            for (key, mut there) in listed(self.new, &list).await? {
                let Some(entry) = source.get(&key).filter(|entry| is_owned(entry)) else { continue };
                let mut wanted = fresh(entry);
                owned(&mut wanted, uids, true);
                let wanted = owners(&wanted).to_vec();
                if let Value::Resource(resource) = &mut there.value
                    && resource.metadata().owner_references != wanted
                {
                    resource.metadata_mut().owner_references = wanted;
                    self.new.update(&there).await.with_context(|| format!("the owners of {key}"))?;
                }
            }
        }
        Ok(())
    }

    /// Checks that everything is at the new place and is equal.
    async fn compare(&self) -> Result<()> {
        for list in lists() {
            let (source, target) = (listed(self.old, &list).await?, listed(self.new, &list).await?);
            let names = |entries: &BTreeMap<String, KvPair>| entries.keys().cloned().collect::<BTreeSet<_>>();
            if names(&source) != names(&target) {
                bail!("{list}: the two places do not have the same objects; run this again");
            }
            for (key, entry) in &source {
                if target.get(key).is_none_or(|there| essence(there) != essence(entry)) {
                    bail!("{key} is not the same at the two places; run this again");
                }
            }
        }
        Ok(())
    }
}

/// The uids of objects at the new place.
type Uids = BTreeMap<String, String>;

fn place() -> Key {
    Key::resource(Kind::ClusterInformation, "", GLOBAL_NAME)
}

/// The ClusterInformation of a place; `None` where it has none, or no definition for it.
async fn information(backend: &dyn Backend) -> Result<Option<KvPair>> {
    match backend.get(&place(), None).await {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if error.is_does_not_exist() => Ok(None),
        Err(error) => Err(error).context("the ClusterInformation"),
    }
}

fn note<'a>(entry: &'a KvPair, name: &str) -> Option<&'a str> {
    let Value::Resource(resource) = &entry.value else { return None };
    resource.metadata().annotations.get(name).map(String::as_str)
}

fn change(entry: &mut KvPair, change: impl FnOnce(&mut api::ClusterInformation)) {
    if let Value::Resource(Resource::ClusterInformation(information)) = &mut entry.value {
        change(information);
    }
}

/// Whether this is the ClusterInformation, and the one at the new place does not record yet that it must be unlocked.
fn is_unmarked(entry: &KvPair, there: Option<&KvPair>) -> bool {
    note(entry, WAS_READY).is_some() && there.is_none_or(|there| note(there, WAS_READY).is_none())
}

/// Marks the new place as leftovers until everything has arrived.
fn keep_note(copy: &mut KvPair, from: &str) {
    change(copy, |information| {
        information.metadata.annotations.insert(MOVED_TO.into(), from.to_owned());
    });
}

/// The lists to copy; referenced objects come first.
fn lists() -> Vec<ListOptions> {
    let is_custom = |kind: &Kind| {
        kind.info().stored && matches!(kind.info().kubernetes, KubernetesForm::CustomResource { .. })
    };
    // Affinities belong to IPAM and are copied with its other data. The lock comes first.
    let later = |kind: &Kind| !matches!(kind, Kind::BlockAffinity | Kind::ClusterInformation | Kind::Tier);
    let rest = Kind::ALL.iter().copied().filter(is_custom).filter(later);
    let kinds = [Kind::ClusterInformation, Kind::Tier].into_iter().chain(rest);
    let ipam = [
        ListOptions::Block { ip_version: None },
        ListOptions::BlockAffinity { host: None, affinity_type: None, ip_version: None },
        ListOptions::IpamHandle,
    ];
    kinds.map(ListOptions::resources).chain(ipam).collect()
}

async fn listed(backend: &dyn Backend, list: &ListOptions) -> Result<BTreeMap<String, KvPair>> {
    let found = backend.list(list, None).await?;
    if let Some(entry) = found.invalid.first() {
        bail!("{} cannot be read: {}; repair or delete it first", entry.key, entry.reason);
    }
    for entry in &found.items {
        if let Value::Resource(resource) = &entry.value
            && resource.metadata().deletion_timestamp.is_some()
        {
            bail!("{} is being deleted; wait until it is gone, or remove its finalizers", entry.key);
        }
    }
    Ok(found.items.into_iter().map(|entry| (entry.key.to_string(), entry)).collect())
}

/// An entry as if no store had ever held it.
fn fresh(entry: &KvPair) -> KvPair {
    let mut entry = KvPair::new(entry.key.clone(), entry.value.clone());
    if let Value::Resource(resource) = &mut entry.value {
        let metadata = resource.metadata_mut();
        metadata.resource_version.clear();
        metadata.uid.clear();
        metadata.self_link.clear();
        metadata.extra.remove("managedFields");
        metadata.annotations.remove(MOVED_TO);
    }
    entry
}

fn owners(entry: &KvPair) -> &[OwnerReference] {
    let Value::Resource(resource) = &entry.value else { return &[] };
    &resource.metadata().owner_references
}

/// Gives owners of our kinds the uids of the new place. Unknown owners are kept or dropped.
fn owned(entry: &mut KvPair, uids: &Uids, keeps_unknown: bool) {
    let Value::Resource(resource) = &mut entry.value else { return };
    let namespace = resource.namespace().to_owned();
    resource.metadata_mut().owner_references.retain_mut(|owner| {
        let Some(kind) = Kind::from_name(&owner.kind).filter(|_| owner.api_version == API_VERSION) else {
            return true;
        };
        let place = if kind.is_namespaced() { namespace.as_str() } else { "" };
        match uids.get(&Key::resource(kind, place, &owner.name).to_string()) {
            Some(uid) => {
                uid.clone_into(&mut owner.uid);
                true
            }
            None => keeps_unknown,
        }
    });
}

/// Writes the status, which definitions store separately.
async fn with_status(new: &dyn Backend, copy: &KvPair, written: KvPair) -> Result<KvPair> {
    let Value::Resource(resource) = &copy.value else { return Ok(written) };
    let KubernetesForm::CustomResource { status: true, .. } = resource.kind().info().kubernetes else {
        return Ok(written);
    };
    let mut whole = copy.clone();
    if let Value::Resource(resource) = &mut whole.value {
        resource.metadata_mut().uid = written.uid.clone().unwrap_or_default();
    }
    whole.uid.clone_from(&written.uid);
    whole.set_revision(&written.revision);
    Ok(new.update_status(&whole).await?)
}

fn remember(uids: &mut Uids, key: &str, entry: Option<&KvPair>) {
    if let Some(Value::Resource(resource)) = entry.map(|entry| &entry.value) {
        uids.insert(key.to_owned(), resource.metadata().uid.clone());
    }
}

/// The part of an entry that matters: everything but what a server decides.
fn essence(entry: &KvPair) -> Value {
    let mut value = entry.value.clone();
    if let Value::Resource(resource) = &mut value {
        resource.set_defaults();
        let metadata = resource.metadata_mut();
        metadata.resource_version.clear();
        metadata.uid.clear();
        metadata.self_link.clear();
        metadata.generation = 0;
        metadata.creation_timestamp = None;
        metadata.extra.remove("managedFields");
        metadata.annotations.remove(WAS_READY);
        metadata.annotations.remove(MOVED_TO);
        for owner in &mut metadata.owner_references {
            owner.uid.clear();
        }
    }
    value
}
