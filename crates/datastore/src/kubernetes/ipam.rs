//! Blocks, claims, handles and settings of address management, as custom resources.
//!
//! A deletion that must not lose a race takes two steps, as in every Calico client: mark the object as deleted at the
//! revision that was read, then remove it by uid. A reader of a marked object completes the removal and treats the
//! object as absent. (The API server could compare revisions on delete today; clients of earlier releases still look
//! for the mark.)

use super::custom::{CustomResources, decode};
use super::feed::{Conversion, Feed};
use super::group::ApiGroup;
use super::transport::ListQuery;
use crate::backend::{InvalidEntry, KvList, Watch, WatchOptions};
use crate::error::{Error, Result};
use api::Kind;
use model::crd::ipam as convert;
use model::{Key, KvPair, ListOptions, Value};
use serde_json::value::RawValue;

/// Address management's objects on one server.
#[derive(Clone, Debug)]
pub(crate) struct Ipam {
    pub(crate) custom: CustomResources,
}

impl Ipam {
    pub(crate) async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        self.custom.create(&as_resource(entry)?).await.and_then(from_resource)
    }

    pub(crate) async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        self.custom.update(&as_resource(entry)?).await.and_then(from_resource)
    }

    pub(crate) async fn apply(&self, entry: &KvPair) -> Result<KvPair> {
        self.custom.apply(&as_resource(entry)?).await.and_then(from_resource)
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<KvPair> {
        let pair = self.read(key).await?;
        if !is_marked(&pair) {
            return Ok(pair);
        }
        match self.remove(&pair).await {
            Ok(()) => {
                Err(Error::DoesNotExist { key: key.to_string(), reason: "it is being deleted".to_owned() })
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes exactly the entry that was read.
    pub(crate) async fn delete_entry(&self, entry: &KvPair) -> Result<KvPair> {
        let mut entry = entry.clone();
        if entry.revision.is_empty() {
            entry.revision = self.read(&entry.key).await?.revision;
        }
        if matches!(entry.key, Key::IpamConfig) {
            let key = resource_key(&entry.key)?;
            let pair = self.custom.delete(&key, Some(&entry.revision), entry.uid.as_deref()).await?;
            return from_resource(pair);
        }
        let mut marked = entry.clone();
        mark(&mut marked.value);
        let marked = self.update(&marked).await?;
        if let Some(uid) = &entry.uid
            && marked.uid.as_ref() != Some(uid)
        {
            let reason = format!("its uid is not {uid}");
            return Err(Error::DoesNotExist { key: entry.key.to_string(), reason });
        }
        self.remove(&marked).await?;
        entry.revision = marked.revision;
        entry.uid = marked.uid;
        Ok(entry)
    }

    pub(crate) async fn delete(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        let mut current = self.get(key).await?;
        if let Some(revision) = revision.filter(|revision| !revision.is_empty()) {
            revision.clone_into(&mut current.revision);
        }
        self.delete_entry(&current).await
    }

    /// Removes a marked object. Another client may have done so first.
    async fn remove(&self, pair: &KvPair) -> Result<()> {
        match self.custom.delete(&resource_key(&pair.key)?, None, pair.uid.as_deref()).await {
            Err(error) if !error.is_does_not_exist() => Err(error),
            _ => Ok(()),
        }
    }

    async fn read(&self, key: &Key) -> Result<KvPair> {
        let pair = self.custom.get(&resource_key(key)?).await.map_err(|error| match error {
            Error::DoesNotExist { reason, .. } => Error::DoesNotExist { key: key.to_string(), reason },
            other => other,
        })?;
        from_resource(pair)
    }

    pub(crate) async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        let (feed, labels) = self.feed(list)?;
        let query = ListQuery { label_selector: labels.as_deref(), revision, ..ListQuery::default() };
        let mut found = feed.list(&self.custom.transport, &query, list).await?;
        // A claim with the mark no longer counts; readers of blocks and handles check the mark themselves.
        found.items.retain(|pair| !matches!(&pair.value, Value::BlockAffinity(affinity) if affinity.deleted));
        Ok(found)
    }

    pub(crate) async fn watch(&self, list: &ListOptions, options: &WatchOptions) -> Result<Watch> {
        if matches!(list, ListOptions::IpamHandle) {
            return Err(Error::NotSupported {
                operation: "Watch",
                key: list.to_string(),
                reason: String::new(),
            });
        }
        let (feed, labels) = self.feed(list)?;
        let query = ListQuery { label_selector: labels.as_deref(), ..ListQuery::default() };
        feed.watch(&self.custom.transport, &query, list, options).await
    }

    fn feed(&self, list: &ListOptions) -> Result<(Feed<Box<RawValue>>, Option<String>)> {
        let unsupported =
            || Error::NotSupported { operation: "List", key: list.to_string(), reason: String::new() };
        let kind = kind_of(list).ok_or_else(unsupported)?;
        let resource = self.custom.group.resource(kind).ok_or_else(unsupported)?;
        let labels = convert::affinity_labels_to_match(list);
        let labels: Vec<String> =
            labels.into_iter().map(|(label, value)| format!("{label}={value}")).collect();
        let group = self.custom.group;
        let feed =
            Feed::new(resource, None, list, move |object: Box<RawValue>| decode_value(group, kind, &object));
        Ok((feed, (!labels.is_empty()).then(|| labels.join(","))))
    }
}

/// The kind of custom resource behind a class of keys; `None` for classes that are not address management's.
pub(crate) fn kind_of(list: &ListOptions) -> Option<Kind> {
    match list {
        ListOptions::Block { .. } => Some(Kind::IPAMBlock),
        ListOptions::BlockAffinity { .. } => Some(Kind::BlockAffinity),
        ListOptions::IpamHandle => Some(Kind::IPAMHandle),
        _ => None,
    }
}

/// Whether a key is one of address management's.
pub(crate) fn is_ipam(key: &Key) -> bool {
    convert::resource_name(key).is_some()
}

fn decode_value(group: ApiGroup, kind: Kind, object: &RawValue) -> Conversion {
    match decode(group, kind, object) {
        Conversion::Entry(pair) => {
            let path = pair.key.to_string();
            match from_resource(*pair) {
                Ok(pair) => Conversion::Entry(Box::new(pair)),
                Err(error) => Conversion::Invalid(
                    InvalidEntry { key: path, parsed_key: None, reason: error.to_string(), salvaged: None },
                    None,
                ),
            }
        }
        // The block or handle is identified only inside the unreadable content.
        Conversion::Invalid(entry, _) => {
            Conversion::Invalid(InvalidEntry { parsed_key: None, ..entry }, None)
        }
        other => other,
    }
}

fn as_resource(entry: &KvPair) -> Result<KvPair> {
    let mismatch =
        || Error::permanent(format!("cannot store {}", entry.key), "the value does not belong there");
    let resource = convert::to_resource(entry).ok_or_else(mismatch)?;
    let mut pair = KvPair::resource(resource);
    pair.set_revision(&entry.revision);
    Ok(pair)
}

fn from_resource(pair: KvPair) -> Result<KvPair> {
    let key = pair.key.to_string();
    let Value::Resource(resource) = pair.value else {
        return Err(Error::Parse { key, reason: "not a resource".to_owned() });
    };
    convert::from_resource(resource).map_err(|error| Error::Parse { key, reason: error.to_string() })
}

fn resource_key(key: &Key) -> Result<Key> {
    let unsupported =
        || Error::NotSupported { operation: "Access", key: key.to_string(), reason: String::new() };
    let (kind, name) = convert::resource_name(key).ok_or_else(unsupported)?;
    Ok(Key::resource(kind, "", &name))
}

fn is_marked(pair: &KvPair) -> bool {
    match &pair.value {
        Value::Block(block) => block.deleted,
        Value::BlockAffinity(affinity) => affinity.deleted,
        Value::IpamHandle(handle) => handle.deleted,
        _ => false,
    }
}

fn mark(value: &mut Value) {
    match value {
        Value::Block(block) => block.deleted = true,
        Value::BlockAffinity(affinity) => affinity.deleted = true,
        Value::IpamHandle(handle) => handle.deleted = true,
        _ => {}
    }
}
