//! Everything that address management has stored, read together for a repair: the records as `ipam-core` judges them,
//! and the stored entries with their revisions.

use crate::failure::{Failure, Result};
use datastore::Backend;
use ipam_core::{Records, Repair};
use model::{AffinityType, Key, KvPair, ListOptions, Value};
use std::collections::BTreeMap;

/// All records at one moment.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    records: Records,
    entries: BTreeMap<Key, KvPair>,
}

impl Snapshot {
    /// Reads everything.
    pub(super) async fn load(backend: &dyn Backend) -> Result<Self> {
        let mut snapshot = Self::default();
        for list in [
            ListOptions::BlockAffinity {
                host: None,
                affinity_type: Some(AffinityType::Host),
                ip_version: None,
            },
            ListOptions::BlockAffinity {
                host: None,
                affinity_type: Some(AffinityType::Virtual),
                ip_version: None,
            },
            ListOptions::IpamHandle,
            // Blocks last: a handle that was incremented before an address was taken is then never seen without that
            // address.
            ListOptions::Block { ip_version: None },
        ] {
            let failed = |error| Failure::new(format!("failed to list {list}: {error}"));
            let found = backend.list(&list, None).await.map_err(failed)?;
            for entry in found.items {
                snapshot.add(entry);
            }
            for entry in found.invalid {
                snapshot.add_unreadable(entry.parsed_key, &list);
            }
        }
        Ok(snapshot)
    }

    fn add(&mut self, entry: KvPair) {
        let records = &mut self.records;
        match (&entry.key, &entry.value) {
            (Key::Block { cidr }, Value::Block(block)) => drop(records.blocks.insert(*cidr, block.clone())),
            (Key::BlockAffinity(key), Value::BlockAffinity(claim)) => {
                records.claims.insert(key.clone(), claim.state.clone());
            }
            // A handle that is being deleted is left to the client that deletes it.
            (Key::IpamHandle { handle_id }, Value::IpamHandle(handle)) if handle.deleted => {
                records.unreadable_handles.insert(handle_id.clone());
            }
            (Key::IpamHandle { handle_id }, Value::IpamHandle(handle)) => {
                records.handles.insert(handle_id.clone(), handle.block.clone());
            }
            _ => return,
        }
        self.entries.insert(entry.key.clone(), entry);
    }

    fn add_unreadable(&mut self, key: Option<Key>, list: &ListOptions) {
        let records = &mut self.records;
        match key {
            Some(Key::Block { cidr }) => drop(records.unreadable_blocks.insert(cidr)),
            Some(Key::BlockAffinity(key)) => drop(records.unreadable_claims.insert(key)),
            Some(Key::IpamHandle { handle_id }) => drop(records.unreadable_handles.insert(handle_id)),
            _ if matches!(list, ListOptions::Block { .. }) => records.has_unknown_blocks = true,
            _ => {}
        }
    }

    /// The due repairs, by the key that they write; at most one per key.
    pub(super) fn repairs(&self) -> BTreeMap<Key, Repair> {
        self.records.repairs().into_iter().map(|repair| (key_of(&repair), repair)).collect()
    }

    /// The stored entry of a key.
    pub(super) fn entry(&self, key: &Key) -> Option<&KvPair> {
        self.entries.get(key)
    }

    /// The revision of a stored entry.
    pub(super) fn revision(&self, key: &Key) -> Option<&str> {
        self.entries.get(key).map(|entry| entry.revision.as_str())
    }
}

/// The key that a repair writes.
fn key_of(repair: &Repair) -> Key {
    match repair {
        Repair::DeleteHandle { handle_id } | Repair::SetHandle { handle_id, .. } => {
            Key::IpamHandle { handle_id: handle_id.clone() }
        }
        Repair::DeleteClaim { claim, .. } | Repair::CreateClaim { claim } => {
            Key::BlockAffinity(claim.clone())
        }
        Repair::DeleteBlock { cidr } => Key::Block { cidr: *cidr },
        Repair::RewriteBlock { block } => Key::Block { cidr: block.cidr },
    }
}
