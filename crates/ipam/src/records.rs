//! Converts between entries of the datastore and the records of address management.

use crate::error::{Error, Result};
use api::BlockAffinityState;
use ipam_core::Owner;
use ipnet::IpNet;
use model::{AllocationBlock, BlockAffinity, BlockAffinityKey, HandleId, IpamHandle, Key, KvPair, Value};

/// An entry that may be missing.
pub(crate) fn existing(outcome: datastore::Result<KvPair>) -> datastore::Result<Option<KvPair>> {
    match outcome {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if error.is_does_not_exist() => Ok(None),
        Err(error) => Err(error),
    }
}

fn unexpected(what: &'static str, entry: &KvPair) -> Error {
    Error::Unreadable { what, key: entry.key.to_string(), reason: "it is another kind of object".to_owned() }
}

/// The block of an entry.
pub(crate) fn block(entry: &KvPair) -> Result<&AllocationBlock> {
    match &entry.value {
        Value::Block(block) => Ok(block),
        _ => Err(unexpected("a block", entry)),
    }
}

/// The same entry with another block. Blocks are large: the old one is not copied only to be discarded.
pub(crate) fn with_block(entry: &KvPair, block: AllocationBlock) -> KvPair {
    let KvPair { key, value: _, revision, uid, ttl } = entry;
    KvPair {
        key: key.clone(),
        value: Value::Block(block),
        revision: revision.clone(),
        uid: uid.clone(),
        ttl: *ttl,
    }
}

pub(crate) fn block_key(cidr: IpNet) -> Key {
    Key::Block { cidr }
}

/// An entry for a new block.
pub(crate) fn new_block(block: AllocationBlock) -> KvPair {
    KvPair::new(block_key(block.cidr), Value::Block(block))
}

/// The state of a claim.
pub(crate) fn state(claim: &KvPair) -> Result<&BlockAffinityState> {
    match &claim.value {
        Value::BlockAffinity(affinity) => Ok(&affinity.state),
        _ => Err(unexpected("a claim on a block", claim)),
    }
}

/// The same claim in another state.
pub(crate) fn with_state(claim: &KvPair, state: BlockAffinityState) -> KvPair {
    let mut claim = claim.clone();
    if let Value::BlockAffinity(affinity) = &mut claim.value {
        affinity.state = state;
    }
    claim
}

pub(crate) fn claim_key(owner: &Owner, cidr: IpNet) -> Key {
    let Owner { affinity_type, host } = owner.clone();
    Key::BlockAffinity(BlockAffinityKey { cidr, host, affinity_type })
}

/// An entry for a new claim.
pub(crate) fn new_claim(owner: &Owner, cidr: IpNet, state: BlockAffinityState) -> KvPair {
    let affinity = BlockAffinity { state, ..BlockAffinity::default() };
    KvPair::new(claim_key(owner, cidr), Value::BlockAffinity(affinity))
}

/// The block that a claim is about.
pub(crate) fn claimed(claim: &KvPair) -> Option<IpNet> {
    match &claim.key {
        Key::BlockAffinity(key) => Some(key.cidr),
        _ => None,
    }
}

pub(crate) fn handle_key(handle: &HandleId) -> Key {
    Key::IpamHandle { handle_id: handle.clone() }
}

/// The handle of an entry.
pub(crate) fn handle(entry: &KvPair) -> Result<&IpamHandle> {
    match &entry.value {
        Value::IpamHandle(handle) => Ok(handle),
        _ => Err(unexpected("a handle", entry)),
    }
}

/// The blocks that a handle counts. A name that is not a range is logged and ignored.
pub(crate) fn blocks_of(handle: &IpamHandle) -> Vec<IpNet> {
    let ranges = handle.block.keys().filter_map(|text| match text.parse::<IpNet>() {
        Ok(cidr) => Some(cidr.trunc()),
        Err(_) => {
            tracing::warn!(
                handle = %handle.handle_id,
                block = text,
                "the handle names a block that is not a range"
            );
            None
        }
    });
    ranges.collect()
}
