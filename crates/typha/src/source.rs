//! From the datastore to the feeds: one follower for each type of client.

use crate::cache::Input;
use crate::feed::Feed;
use datastore::Backend;
use follow::feeds::{self, FollowedKind};
use follow::{BgpOptions, FeedEvent, FelixOptions, Follower};
use model::feed::FeedEntry;
use std::array;
use std::cell::RefCell;
use std::iter::Flatten;
use std::sync::Arc;
use tokio::sync::mpsc;
use typha_wire::SyncerType;
use typha_wire::entries::Encoder;

/// Properties of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    /// Whether it is the Kubernetes API.
    pub kubernetes: bool,
    /// Whether Kubernetes allocates the addresses.
    pub use_pod_cidr: bool,
}

/// The kinds of each feed. They contain the data of all nodes.
#[must_use]
pub fn kinds(kind: SyncerType, options: SourceOptions) -> Vec<FollowedKind> {
    let SourceOptions { kubernetes, use_pod_cidr } = options;
    match kind {
        SyncerType::Felix => feeds::felix(FelixOptions { kubernetes, use_pod_cidr, leader: true }),
        SyncerType::Bgp => feeds::bgp(&BgpOptions { node: None, use_pod_cidr, services: false }),
        SyncerType::TunnelIpAllocation => feeds::tunnel_addresses(None),
        SyncerType::NodeStatus => feeds::node_status(),
    }
}

/// Keeps a feed following the store; dropping it ends that.
pub struct Source {
    _follower: Follower,
}

/// Follows the store for a feed, until the value is dropped. Needs a Tokio runtime.
#[must_use]
pub fn follow(backend: &Arc<dyn Backend>, feed: &Arc<Feed>, options: SourceOptions) -> Source {
    let (follower, events) = follow::follow_as(backend, kinds(feed.kind(), options));
    let feed = Arc::clone(feed);
    // A thread of its own, which ends with the follower. A task would share a thread with the tasks that wake it, and
    // reading a large cluster is work for several processors.
    tokio::task::spawn_blocking(move || publish(events, &feed));
    Source { _follower: follower }
}

thread_local! {
    static ENCODER: RefCell<Encoder> = RefCell::default();
}

/// The inputs for an entry: one, or two for a profile. An entry that cannot be serialised is left out and logged:
/// clients keep its previous value.
#[derive(Debug, Default)]
pub(crate) struct Inputs([Option<Input>; 2]);

impl Inputs {
    fn of(entry: &FeedEntry) -> Self {
        let mut inputs = Self::default();
        let mut places = inputs.0.iter_mut();
        let encoded = ENCODER.with_borrow_mut(|encoder| {
            encoder.encode(entry, |path, value, version| {
                if let Some(place) = places.next() {
                    // Feeds do not carry the store's versions; resources carry their own.
                    *place = Some(Input::new(path, value, version, version));
                }
            })
        });
        if let Err(error) = encoded {
            tracing::error!(key = %entry.key(), %error, "an entry cannot be sent to clients");
        }
        inputs
    }
}

impl From<FeedEntry> for Inputs {
    fn from(entry: FeedEntry) -> Self {
        Self::of(&entry)
    }
}

impl IntoIterator for Inputs {
    type Item = Input;
    type IntoIter = Flatten<array::IntoIter<Option<Input>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().flatten()
    }
}

/// Converts entries to inputs of the cache.
#[must_use]
pub fn inputs(entries: &[FeedEntry]) -> Vec<Input> {
    entries.iter().flat_map(Inputs::of).collect()
}

fn publish(mut events: mpsc::Receiver<FeedEvent<Inputs>>, feed: &Feed) {
    while let Some(event) = events.blocking_recv() {
        match event {
            FeedEvent::Entries(entries) => feed.publish(entries.into_iter().flatten()),
            FeedEvent::Status(status) => feed.set_status(status),
            FeedEvent::Away(error) => {
                tracing::warn!(syncer = %feed.kind(), %error, "the datastore has been unreachable for long; clients keep their entries");
            }
        }
    }
}
