//! What a deletion must undo in IPAM's records: claims on blocks, and addresses that nobody will release any more.
//!
//! Only the clean-up that belongs to deleting a pool or a node. Handing out addresses, and every decision about which, is
//! the `ipam` crate's; nothing here ever allocates. All writes compare revisions, and start over when somebody was faster.

mod block;

use api::BlockAffinityState;
use datastore::{Backend, Error, Result};
use ipnet::IpNet;
use model::{AffinityType, AllocationBlock, BlockAffinityKey, IpVersion, Key, KvPair, ListOptions, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How often a write is tried against others before giving up, as in Calico's IPAM.
const MAX_ATTEMPTS: usize = 100;

/// Whether two ranges share an address.
pub(crate) fn overlaps(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// Takes the blocks of a pool from their owners. Blocks without addresses in use go away; the others stay, with no owner,
/// until their last address is released.
pub(crate) async fn release_pool_affinities(backend: &dyn Backend, pool: &IpNet) -> Result<()> {
    for affinity_type in [AffinityType::Host, AffinityType::Virtual] {
        for key in affinities(backend, None, affinity_type, Some(IpVersion::of(pool))).await? {
            if pool.contains(&key.cidr.network()) {
                release_affinity(backend, &key).await?;
            }
        }
    }
    Ok(())
}

/// Takes a host's blocks from it and removes the mark that it uses IPAM. Addresses in use stay in use.
pub(crate) async fn remove_host(backend: &dyn Backend, host: &str) -> Result<()> {
    for key in affinities(backend, Some(host), AffinityType::Host, None).await? {
        release_affinity(backend, &key).await?;
    }
    gone(backend.delete(&Key::IpamHost { host: host.to_owned() }, None).await)
}

/// Releases addresses, whoever holds them. An address that is in no block, or free already, is no error.
pub(crate) async fn release_addresses(backend: &dyn Backend, addresses: &BTreeSet<IpAddr>) -> Result<()> {
    if addresses.is_empty() {
        return Ok(());
    }
    let cooldown = match backend.get(&Key::IpamConfig, None).await {
        Ok(KvPair { value: Value::IpamConfig(config), .. }) => config.ip_cooldown_seconds,
        Ok(_) => 0,
        Err(error) if error.is_does_not_exist() => 0,
        Err(error) => return Err(error),
    };
    let blocks = backend.list(&ListOptions::Block { ip_version: None }, None).await?;
    for entry in blocks.items {
        let Key::Block { cidr } = entry.key else { continue };
        let inside: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| cidr.contains(address)).collect();
        if !inside.is_empty() {
            release_from_block(backend, &cidr, &inside, cooldown).await?;
        }
    }
    Ok(())
}

async fn affinities(
    backend: &dyn Backend,
    host: Option<&str>,
    affinity_type: AffinityType,
    ip_version: Option<IpVersion>,
) -> Result<Vec<BlockAffinityKey>> {
    let list = ListOptions::BlockAffinity {
        host: host.map(str::to_owned),
        affinity_type: Some(affinity_type),
        ip_version,
    };
    let found = backend.list(&list, None).await?;
    // The key alone says which block: a claim with unreadable contents is one all the same.
    let keys = found.items.into_iter().map(|entry| entry.key);
    let keys = keys.chain(found.invalid.into_iter().filter_map(|entry| entry.parsed_key));
    Ok(keys
        .filter_map(|key| match key {
            Key::BlockAffinity(key) => Some(key),
            _ => None,
        })
        .collect())
}

async fn release_affinity(backend: &dyn Backend, key: &BlockAffinityKey) -> Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        match try_release_affinity(backend, key).await {
            Err(error) if error.is_conflict() => {}
            outcome => return outcome,
        }
    }
    Err(too_many_attempts(&Key::BlockAffinity(key.clone())))
}

/// The steps of a release, in an order that leaves a state which can be continued wherever it stops.
async fn try_release_affinity(backend: &dyn Backend, key: &BlockAffinityKey) -> Result<()> {
    let Some(mut affinity) = existing(backend.get(&Key::BlockAffinity(key.clone()), None).await)? else {
        return Ok(());
    };
    let block = existing(backend.get(&Key::Block { cidr: key.cidr }, None).await)?;
    let owner = format!("{}:{}", key.affinity_type, key.host);
    let block = match block.map(into_block) {
        Some((entry, Some(block))) if block.affinity.as_ref().is_none_or(|current| *current == owner) => {
            Some((entry, block))
        }
        // No block, or one that belongs to somebody else: the claim is all there is to remove.
        _ => None,
    };
    if let Some((mut entry, mut block)) = block {
        if let Value::BlockAffinity(claim) = &mut affinity.value {
            claim.state = BlockAffinityState::PendingDeletion;
        }
        affinity = backend.update(&affinity).await?;
        if block::is_empty(&block) {
            gone(backend.delete_entry(&entry).await)?;
        } else {
            block.affinity = None;
            block.affinity_claim_time = None;
            block.host_affinity = None;
            block.sequence_number += 1;
            entry.value = Value::Block(block);
            backend.update(&entry).await?;
        }
    }
    gone(backend.delete_entry(&affinity).await)
}

async fn release_from_block(
    backend: &dyn Backend,
    cidr: &IpNet,
    addresses: &[IpAddr],
    cooldown: i32,
) -> Result<()> {
    let key = Key::Block { cidr: *cidr };
    for _ in 0..MAX_ATTEMPTS {
        let Some((mut entry, Some(mut block))) = existing(backend.get(&key, None).await)?.map(into_block)
        else {
            return Ok(());
        };
        let counts = block::release(&mut block, addresses, cooldown, jiff::Timestamp::now());
        if counts.is_empty() {
            return Ok(());
        }
        let outcome = if block::is_empty(&block) && block.affinity.is_none() {
            backend.delete_entry(&entry).await
        } else {
            block.sequence_number += 1;
            entry.value = Value::Block(block);
            backend.update(&entry).await
        };
        match outcome {
            Err(error) if error.is_conflict() => continue,
            Err(error) if error.is_does_not_exist() => return Ok(()),
            outcome => outcome?,
        };
        for (handle_id, count) in counts.into_iter().filter(|(handle_id, _)| !handle_id.is_empty()) {
            // The addresses are free; a handle that still counts them is a small leak and no reason to fail.
            if let Err(error) = decrement_handle(backend, &handle_id, cidr, count).await {
                tracing::warn!(handle_id, %cidr, %error, "could not take the released addresses off their handle");
            }
        }
        return Ok(());
    }
    Err(too_many_attempts(&key))
}

async fn decrement_handle(backend: &dyn Backend, handle_id: &str, cidr: &IpNet, count: i64) -> Result<()> {
    let key = Key::IpamHandle { handle_id: handle_id.to_owned() };
    for _ in 0..MAX_ATTEMPTS {
        let Some(mut entry) = existing(backend.get(&key, None).await)? else { return Ok(()) };
        let Value::IpamHandle(handle) = &mut entry.value else { return Ok(()) };
        let block = cidr.to_string();
        let left = handle.block.get(&block).copied().unwrap_or_default() - count;
        if left > 0 {
            handle.block.insert(block, left);
        } else {
            handle.block.remove(&block);
        }
        let outcome = if handle.block.is_empty() {
            backend.delete_entry(&entry).await
        } else {
            backend.update(&entry).await
        };
        match outcome {
            Err(error) if error.is_conflict() => {}
            outcome => return gone(outcome),
        }
    }
    Err(too_many_attempts(&key))
}

/// The entry without its block, and the block, where it holds one.
fn into_block(mut entry: KvPair) -> (KvPair, Option<AllocationBlock>) {
    // The entry keeps a copy: deleting it on Kubernetes first writes it back with a mark.
    let block = match &mut entry.value {
        Value::Block(block) => Some(block.clone()),
        _ => None,
    };
    (entry, block)
}

/// An entry that may well be missing.
fn existing(outcome: Result<KvPair>) -> Result<Option<KvPair>> {
    match outcome {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if error.is_does_not_exist() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The end of a deletion: gone already is fine.
fn gone(outcome: Result<KvPair>) -> Result<()> {
    existing(outcome).map(|_| ())
}

fn too_many_attempts(key: &Key) -> Error {
    Error::transient(format!("releasing {key}"), "Max retries hit - excessive concurrent IPAM requests")
}

/// How many addresses were released, by handle; addresses without one are under the empty handle.
type Counts = BTreeMap<String, i64>;
