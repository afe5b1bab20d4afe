//! The part of an exported file about address management: datastore paths and values in their etcd form, with the field
//! names of Calico's tool.

use crate::failure::{Failure, Result};
use model::{AllocationBlock, BlockAffinity, IpamConfig, IpamHandle, Key, KvPair, Value};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Blocks, claims, handles and settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpamPart {
    /// Claims on blocks.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "api::codec::null_as_default"
    )]
    pub block_affinities: Vec<Entry<BlockAffinity>>,
    /// Blocks.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "api::codec::null_as_default"
    )]
    pub blocks: Vec<Entry<AllocationBlock>>,
    /// Handles.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "api::codec::null_as_default"
    )]
    pub handles: Vec<Entry<IpamHandle>>,
    /// Settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Entry<IpamConfig>>,
}

/// A path and its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry<T> {
    /// The path in etcd.
    #[serde(rename = "Key")]
    pub key: String,
    /// The value.
    #[serde(rename = "Value")]
    pub value: T,
    /// The lifetime of the value in nanoseconds; 0 means forever.
    #[serde(rename = "TTL", default)]
    pub ttl: u64,
}

impl IpamPart {
    /// The part with these entries. Entries that do not belong to address management are ignored.
    ///
    /// # Errors
    /// When a key has no path.
    pub fn from_entries(entries: Vec<KvPair>) -> Result<Self> {
        let mut part = Self::default();
        for entry in entries {
            let key = entry.key.path()?;
            let ttl = entry.ttl.map_or(0, |ttl| u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX));
            match entry.value {
                Value::BlockAffinity(value) => part.block_affinities.push(Entry { key, value, ttl }),
                Value::Block(value) => part.blocks.push(Entry { key, value, ttl }),
                Value::IpamHandle(value) => part.handles.push(Entry { key, value, ttl }),
                Value::IpamConfig(value) => part.config = Some(Entry { key, value, ttl }),
                Value::Resource(_) | Value::IpamHost | Value::EndpointStatus(_) | Value::StatusReport(_) => {}
            }
        }
        Ok(part)
    }

    /// All entries, in the order in which they are to be stored: a claim before its block.
    ///
    /// # Errors
    /// When a path does not match its section.
    pub fn into_entries(self) -> Result<Vec<KvPair>> {
        let mut entries = Vec::new();
        for entry in self.block_affinities {
            let key = parsed(&entry.key, |key| matches!(key, Key::BlockAffinity(_)))?;
            entries.push(pair(key, Value::BlockAffinity(entry.value), entry.ttl));
        }
        for entry in self.blocks {
            let key = parsed(&entry.key, |key| matches!(key, Key::Block { .. }))?;
            entries.push(pair(key, Value::Block(entry.value), entry.ttl));
        }
        for entry in self.handles {
            let key = parsed(&entry.key, |key| matches!(key, Key::IpamHandle { .. }))?;
            let mut value = entry.value;
            if let Key::IpamHandle { handle_id } = &key {
                value.handle_id = handle_id.clone();
            }
            entries.push(pair(key, Value::IpamHandle(value), entry.ttl));
        }
        if let Some(entry) = self.config {
            // There is only one; older exports do not always include its path.
            entries.push(pair(Key::IpamConfig, Value::IpamConfig(entry.value), entry.ttl));
        }
        Ok(entries)
    }
}

fn parsed(path: &str, is_right: impl Fn(&Key) -> bool) -> Result<Key> {
    Key::parse(path).filter(|key| is_right(key)).ok_or_else(|| {
        Failure::new(format!("failed to read IPAM resources: '{path}' is not a key of its sort"))
    })
}

fn pair(key: Key, value: Value, ttl: u64) -> KvPair {
    let mut pair = KvPair::new(key, value);
    pair.ttl = (ttl > 0).then(|| Duration::from_nanos(ttl));
    pair
}
