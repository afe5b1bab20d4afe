//! What a long-lived process watches, so that an assignment reads only what has changed.
//!
//! Pools, reservations, the host's node and its claims are listed once and then watched. A feed that is not in step
//! with the store (before its first list, after its watch broke) returns nothing, and callers read for themselves. Our
//! own writes are entered at once; the watch delivers them again.
//!
//! Settings cannot be watched; they are cached and checked by the write itself.

use crate::error::{Error, Result};
use crate::store::{claims_of, read_labels, read_pools, read_reservations};
use api::Kind;
use datastore::Backend;
use follow::Snapshot;
use ipam_core::pools::{Labels, Pool};
use ipam_core::{AddressSet, Block, Owner};
use model::{AffinityType, AllocationBlock, IpVersion, Key, KvPair, ListOptions};
use std::sync::Arc;

/// The feeds for one host.
pub(crate) struct Warm {
    owner: Owner,
    pools: Snapshot<Arc<Vec<Pool>>>,
    reservations: Snapshot<Option<Arc<AddressSet>>>,
    node: Snapshot<Option<Arc<Labels>>>,
    claims: Snapshot<Vec<KvPair>>,
}

impl Warm {
    /// Starts watching. Must be called inside a tokio runtime.
    pub(crate) fn start(backend: &Arc<dyn Backend>, host: &str) -> Self {
        let owner = Owner { affinity_type: AffinityType::Host, host: host.to_owned() };
        let node = ListOptions::Resource {
            kind: Kind::Node,
            namespace: None,
            name: Some(host.to_owned()),
            name_is_prefix: false,
        };
        Self {
            pools: Snapshot::start(backend, ListOptions::resources(Kind::IPPool), |entries| {
                Arc::new(read_pools(entries.items.values(), &entries.unreadable()))
            }),
            reservations: Snapshot::start(backend, ListOptions::resources(Kind::IPReservation), |entries| {
                read_reservations(entries.items.values(), &entries.unreadable()).ok().map(Arc::new)
            }),
            node: Snapshot::start(backend, node, |entries| {
                entries.items.values().next().map(|node| Arc::new(read_labels(node)))
            }),
            claims: Snapshot::start(backend, claims_of(&owner, None), |entries| {
                entries.items.values().cloned().collect()
            }),
            owner,
        }
    }

    /// All pools, if in step.
    pub(crate) fn pools(&self) -> Option<Arc<Vec<Pool>>> {
        self.pools.get()
    }

    /// All reserved addresses, if in step. Unreadable ones are parsed again, so that the error is exact.
    pub(crate) fn reservations(&self) -> Option<Result<Arc<AddressSet>, Error>> {
        self.reservations.get().flatten().map(Ok)
    }

    /// The labels of the host's node, if in step.
    pub(crate) fn node_labels(&self, host: &str) -> Option<Arc<Labels>> {
        self.node.get().flatten().filter(|_| self.owner.host == host)
    }

    /// The host's claims of an IP version, if in step.
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

    /// Whether a block belongs to the host.
    pub(crate) fn owns(&self, block: &AllocationBlock) -> bool {
        Block::new(block).owner().as_ref() == Some(&self.owner)
    }

    /// Enters a claim that we have written.
    pub(crate) fn remember_claim(&self, claim: &KvPair) {
        let is_ours = matches!(&claim.key, Key::BlockAffinity(key)
            if key.host == self.owner.host && key.affinity_type == self.owner.affinity_type);
        if is_ours {
            self.claims.change(|entries| drop(entries.items.insert(claim.key.clone(), claim.clone())));
        }
    }

    /// Removes a claim that we have deleted.
    pub(crate) fn forget_claim(&self, key: &Key) {
        self.claims.change(|entries| drop(entries.items.remove(key)));
    }
}
