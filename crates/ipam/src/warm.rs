//! What a long-lived process follows, so that an assignment reads nothing that did not change.
//!
//! Pools, reservations, the host's node and its claims are listed once and then watched. A feed that is not in step with the
//! store (before its first list, after its watch broke) has nothing to say, and callers read for themselves. What we
//! write ourselves is entered at once; the watch brings it again.
//!
//! Settings cannot be watched; they are remembered and checked by the write itself.

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::shared::{claims_of, lock, read_labels, read_pools, read_reservations};
use api::Kind;
use datastore::{Backend, InvalidEntry, WatchEvent, WatchOptions};
use futures::StreamExt as _;
use ipam_core::pools::{Labels, Pool};
use ipam_core::{AddressSet, Block, Owner};
use model::{AffinityType, AllocationBlock, IpVersion, Key, KvPair, ListOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long to wait before following again after trouble.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The feeds of one host.
pub(crate) struct Warm {
    owner: Owner,
    pools: Feed<Arc<Vec<Pool>>>,
    reservations: Feed<Option<Arc<AddressSet>>>,
    node: Feed<Option<Arc<Labels>>>,
    claims: Feed<Vec<KvPair>>,
}

impl Warm {
    /// Starts to follow. Must be called inside a tokio runtime.
    pub(crate) fn start(backend: &Arc<dyn Backend>, clock: &Arc<dyn Clock>, host: &str) -> Self {
        let owner = Owner { affinity_type: AffinityType::Host, host: host.to_owned() };
        let node = ListOptions::Resource {
            kind: Kind::Node,
            namespace: None,
            name: Some(host.to_owned()),
            name_is_prefix: false,
        };
        Self {
            pools: Feed::start(backend, clock, ListOptions::resources(Kind::IPPool), |entries| {
                Arc::new(read_pools(entries.items.values(), &entries.unreadable()))
            }),
            reservations: Feed::start(
                backend,
                clock,
                ListOptions::resources(Kind::IPReservation),
                |entries| read_reservations(entries.items.values(), &entries.unreadable()).ok().map(Arc::new),
            ),
            node: Feed::start(backend, clock, node, |entries| {
                entries.items.values().next().map(|node| Arc::new(read_labels(node)))
            }),
            claims: Feed::start(backend, clock, claims_of(&owner, None), |entries| {
                entries.items.values().cloned().collect()
            }),
            owner,
        }
    }

    /// All pools, when they are in step.
    pub(crate) fn pools(&self) -> Option<Arc<Vec<Pool>>> {
        self.pools.get()
    }

    /// All reserved addresses, when they are in step. Unreadable ones are looked at anew, so that the error is exact.
    pub(crate) fn reservations(&self) -> Option<Result<Arc<AddressSet>, Error>> {
        self.reservations.get().flatten().map(Ok)
    }

    /// The labels of the host's node, when they are in step.
    pub(crate) fn node_labels(&self, host: &str) -> Option<Arc<Labels>> {
        self.node.get().flatten().filter(|_| self.owner.host == host)
    }

    /// The host's claims of an IP version, when they are in step.
    pub(crate) fn claims(&self, owner: &Owner, version: IpVersion) -> Option<Vec<KvPair>> {
        if *owner != self.owner {
            return None;
        }
        let mut claims = self.claims.get()?;
        claims.retain(
            |claim| matches!(&claim.key, Key::BlockAffinity(key) if IpVersion::of(&key.cidr) == version),
        );
        Some(claims)
    }

    /// Whether a block is the host's.
    pub(crate) fn owns(&self, block: &AllocationBlock) -> bool {
        Block::new(block).owner().as_ref() == Some(&self.owner)
    }

    /// Enters a claim that we wrote.
    pub(crate) fn remember_claim(&self, claim: &KvPair) {
        let is_ours = matches!(&claim.key, Key::BlockAffinity(key)
            if key.host == self.owner.host && key.affinity_type == self.owner.affinity_type);
        if is_ours {
            self.claims.change(|entries| drop(entries.items.insert(claim.key.clone(), claim.clone())));
        }
    }

    /// Strikes a claim that we deleted.
    pub(crate) fn forget_claim(&self, key: &Key) {
        self.claims.change(|entries| drop(entries.items.remove(key)));
    }
}

/// Entries as they were last seen.
#[derive(Default)]
struct Entries {
    items: BTreeMap<Key, KvPair>,
    invalid: BTreeMap<String, InvalidEntry>,
}

impl Entries {
    fn unreadable(&self) -> Vec<InvalidEntry> {
        self.invalid.values().cloned().collect()
    }

    fn apply(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Added(entry) | WatchEvent::Modified { new: entry, .. } => {
                self.readable(&entry.key);
                self.items.insert(entry.key.clone(), entry);
            }
            WatchEvent::Deleted(entry) => {
                self.readable(&entry.key);
                self.items.remove(&entry.key);
            }
            WatchEvent::Invalid(entry) => {
                if let Some(key) = &entry.parsed_key {
                    self.items.remove(key);
                }
                self.invalid.insert(entry.key.clone(), entry);
            }
            WatchEvent::Bookmark(_) => {}
        }
    }

    fn readable(&mut self, key: &Key) {
        if !self.invalid.is_empty() {
            self.invalid.retain(|_, entry| entry.parsed_key.as_ref() != Some(key));
        }
    }
}

/// The entries of one list, and what is made of them.
struct Feed<T> {
    state: Arc<Mutex<State<T>>>,
    task: JoinHandle<()>,
}

struct State<T> {
    /// `None` while out of step.
    entries: Option<Entries>,
    /// Made of the entries when somebody asks, not at each change.
    made: Option<T>,
    make: fn(&Entries) -> T,
}

impl<T: Clone + Send + 'static> Feed<T> {
    fn start(
        backend: &Arc<dyn Backend>,
        clock: &Arc<dyn Clock>,
        list: ListOptions,
        make: fn(&Entries) -> T,
    ) -> Self {
        let state = Arc::new(Mutex::new(State { entries: None, made: None, make }));
        let (backend, clock, shared) = (Arc::clone(backend), Arc::clone(clock), Arc::clone(&state));
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = follow(backend.as_ref(), &list, &shared).await {
                    tracing::warn!(%list, %error, "not in step with the datastore; reading instead of following");
                }
                lock(&shared).set(None);
                clock.wait(RETRY_AFTER).await;
            }
        });
        Self { state, task }
    }

    fn get(&self) -> Option<T> {
        let mut state = lock(&self.state);
        if state.made.is_none() {
            state.made = state.entries.as_ref().map(state.make);
        }
        state.made.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Entries)) {
        lock(&self.state).change(change);
    }
}

impl<T> State<T> {
    fn set(&mut self, entries: Option<Entries>) {
        self.entries = entries;
        self.made = None;
    }

    fn change(&mut self, change: impl FnOnce(&mut Entries)) {
        if let Some(entries) = &mut self.entries {
            change(entries);
            self.made = None;
        }
    }
}

/// Lists and then watches, until the watch ends.
async fn follow<T>(
    backend: &dyn Backend,
    list: &ListOptions,
    state: &Mutex<State<T>>,
) -> datastore::Result<()> {
    let found = backend.list(list, None).await?;
    let options = WatchOptions { revision: Some(found.revision), bookmarks: true };
    let mut watch = backend.watch(list, options).await?;
    let items = found.items.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    let invalid = found.invalid.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    lock(state).set(Some(Entries { items, invalid }));
    while let Some(event) = watch.next().await {
        let event = event?;
        lock(state).change(|entries| entries.apply(event));
    }
    Ok(())
}

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
