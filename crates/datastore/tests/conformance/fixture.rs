//! What the suite needs from a store under test, beyond the backend itself: a way to break it, a way to write
//! unreadable data, and a list of what this store can and cannot do.
//!
//! A difference between stores is an ability that is asserted both ways, never a skipped case.

use anyhow::Result;
use async_trait::async_trait;
use datastore::Backend;
use model::Key;
use std::sync::Arc;

/// The abilities of a store, where stores differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Reads at an old revision. Kubernetes reads "not older than" instead.
    pub(crate) reads_at_revision: bool,
    /// Stores every kind. Kubernetes computes some from its own objects and refuses to create those.
    pub(crate) stores_native_kinds: bool,
    /// Keeps entries with a time to live, and Felix's status entries.
    pub(crate) status_entries: bool,
    /// Fills in the defaults of its schemas. With etcd the client does that.
    pub(crate) fills_defaults: bool,
    /// Remembers changes across a restart. A kube-apiserver starts with an empty memory.
    pub(crate) keeps_history: bool,
    /// The largest request, in bytes, where it is known exactly.
    pub(crate) request_limit: usize,
}

/// etcd and stores with its data model.
pub(crate) const ETCD: Abilities = Abilities {
    reads_at_revision: true,
    stores_native_kinds: true,
    status_entries: true,
    fills_defaults: false,
    keeps_history: true,
    request_limit: 1_572_864,
};

/// The Kubernetes API.
pub(crate) const KUBERNETES: Abilities = Abilities {
    reads_at_revision: false,
    stores_native_kinds: false,
    status_entries: false,
    fills_defaults: true,
    keeps_history: false,
    request_limit: 1_572_864,
};

/// A store under test.
#[async_trait]
pub(crate) trait Fixture: Send + Sync {
    /// A backend with connections of its own.
    async fn backend(&self) -> Result<Arc<dyn Backend>>;

    /// The abilities of this store.
    fn abilities(&self) -> Abilities;

    /// Ensures that a namespace exists, where that is needed.
    async fn namespace(&self, name: &str) -> Result<()>;

    /// Writes a value for a key without the backend: `json` is the value in etcd. A name with a `default.` prefix is
    /// stored as releases before v3.32 did.
    async fn put_raw(&self, key: &Key, json: &str) -> Result<()>;

    /// Writes a value under this key that no backend can read.
    async fn put_unreadable(&self, key: &Key) -> Result<()>;

    /// Compacts all revisions before now, so that they are permanently gone.
    async fn compact(&self) -> Result<()>;

    /// Kills the server.
    async fn stop(&self) -> Result<()>;

    /// Restarts it on the same data.
    async fn start(&self) -> Result<()>;
}
