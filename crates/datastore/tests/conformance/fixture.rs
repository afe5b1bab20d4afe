//! What the suite needs from a store under test, beyond the backend itself: a way to break it, to write what Calico could
//! not read, and a plain statement of what this store can and cannot do.
//!
//! A difference between stores is an ability that is asserted both ways, never a skipped case.

use anyhow::Result;
use async_trait::async_trait;
use datastore::Backend;
use model::Key;
use std::sync::Arc;

/// What a store can do, where stores differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Reads at an old revision. Kubernetes reads "not older than" instead.
    pub(crate) reads_at_revision: bool,
    /// Stores every kind. Kubernetes computes some from its own objects and refuses to create those.
    pub(crate) stores_native_kinds: bool,
    /// Keeps entries with a time to live, and Felix's status entries.
    pub(crate) status_entries: bool,
    /// Fills in the defaults of its schemas. With etcd that is the client's business.
    pub(crate) fills_defaults: bool,
    /// Knows after a restart what changed before it. A kube-apiserver starts with an empty memory.
    pub(crate) keeps_history: bool,
    /// The largest request, in bytes, where it is known exactly.
    pub(crate) request_limit: usize,
}

/// etcd and what speaks its data model.
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

    /// What this store can do.
    fn abilities(&self) -> Abilities;

    /// Makes sure that a namespace exists, where that is needed.
    async fn namespace(&self, name: &str) -> Result<()>;

    /// Writes a value for a key behind the backend's back: `json` is what etcd would hold. A name with a `default.`
    /// prefix is stored as releases before v3.32 did.
    async fn put_raw(&self, key: &Key, json: &str) -> Result<()>;

    /// Writes something under this key that no backend can read.
    async fn put_unreadable(&self, key: &Key) -> Result<()>;

    /// Forgets all revisions before now, so that old ones are gone for good.
    async fn compact(&self) -> Result<()>;

    /// Ends the server without warning.
    async fn stop(&self) -> Result<()>;

    /// Starts it again on the same data.
    async fn start(&self) -> Result<()>;
}
