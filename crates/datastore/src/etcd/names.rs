//! The key under which a policy is stored.
//!
//! Calico v3.32 stores a policy under its own name. Calico v3.26 to v3.31 stored a policy `foo` of the default tier
//! under `default.foo`, and such entries stay until they are migrated. So one name can mean two keys:
//! - the plain key `foo` always wins;
//! - otherwise the old key `default.foo`, but only if the stored object says that it *is* `foo`; a policy that v3.32
//!   stored under its own name `default.foo` is another policy.
//!
//! An update or a delete applies to the key where the policy is, in place: older components still find it, watchers see
//! one change instead of a deletion and a creation, and compare-and-swap stays one comparison. Moving old entries is a
//! migration of its own (done by Calico's kube-controllers), not a side effect. Nothing is created beside an old entry
//! of the same name. Entries carry the key they are stored under; `metadata.name` is always the policy's own name.

use super::convert::{read, user_name};
use super::transport::{Condition, Entry, Step, TransactionResponse};
use crate::error::Result;
use bytes::Bytes;
use model::{Key, KvPair, ResourceKey};

/// The former prefix of stored names of policies in the default tier.
pub(super) const OLD_PREFIX: &str = "default.";

/// A key with its path.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) key: Key,
    pub(super) path: Bytes,
}

impl Place {
    fn new(key: Key) -> Result<Self> {
        let path = super::convert::path(&key)?;
        Ok(Self { key, path })
    }
}

/// The places where an entry can be stored.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The current place.
    pub(super) plain: Place,
    /// The place where an older release may have stored it.
    pub(super) old: Option<Place>,
}

/// The place where an entry was found.
#[derive(Debug)]
pub(super) enum Found {
    /// At the current place.
    Plain(Entry),
    /// At the place used by an older release.
    Old(Place, Entry),
    /// Nowhere.
    Nowhere {
        /// The revision of a different policy at the old place; 0 if there is none.
        stranger: i64,
    },
}

impl Places {
    pub(super) fn of(key: &Key) -> Result<Self> {
        Ok(Self { plain: Place::new(key.clone())?, old: old_key(key).map(Place::new).transpose()? })
    }

    /// The steps that read all places.
    pub(super) fn gets(&self, revision: i64) -> Vec<Step> {
        std::iter::once(&self.plain)
            .chain(&self.old)
            .map(|place| Step::Get { key: place.path.clone(), revision })
            .collect()
    }

    /// The conditions under which the entry does not exist, given the revision of a different policy at the old place.
    pub(super) fn absent(&self, stranger: i64) -> Vec<Condition> {
        let mut conditions = vec![Condition::Absent(self.plain.path.clone())];
        if let Some(old) = &self.old {
            conditions.push(match stranger {
                0 => Condition::Absent(old.path.clone()),
                revision => Condition::WrittenAt(old.path.clone(), revision),
            });
        }
        conditions
    }

    /// The conditions under which the entry is (still) at the old place, with this revision.
    pub(super) fn at_old_place(&self, old: &Place, revision: i64) -> Vec<Condition> {
        vec![Condition::WrittenAt(old.path.clone(), revision), Condition::Absent(self.plain.path.clone())]
    }

    /// Evaluates the result of [`Places::gets`].
    pub(super) fn locate(&self, answer: TransactionResponse) -> Found {
        let mut found = answer.found.into_iter().map(|entries| entries.into_iter().next());
        if let Some(entry) = found.next().flatten() {
            return Found::Plain(entry);
        }
        match (&self.old, found.next().flatten()) {
            (Some(old), Some(entry)) if is_named(&self.plain.key, &old.key, &entry) => {
                Found::Old(old.clone(), entry)
            }
            (_, Some(entry)) => Found::Nowhere { stranger: entry.mod_revision },
            (_, None) => Found::Nowhere { stranger: 0 },
        }
    }

    /// The result of [`Places::gets`] as an entry for an error message. Unreadable ones are left out.
    pub(super) fn existing(&self, found: &Found) -> Option<Box<KvPair>> {
        let pair = match found {
            Found::Plain(entry) => read(&self.plain.key, entry),
            Found::Old(place, entry) => read(&place.key, entry),
            Found::Nowhere { .. } => return None,
        };
        pair.ok().map(Box::new)
    }
}

/// The key under which releases before v3.32 stored the entry that now has this key.
pub(super) fn old_key(key: &Key) -> Option<Key> {
    match key {
        Key::Resource(ResourceKey { kind, namespace, name })
            if kind.is_tiered_policy() && !name.is_empty() && !name.starts_with(OLD_PREFIX) =>
        {
            Some(Key::resource(*kind, namespace, &format!("{OLD_PREFIX}{name}")))
        }
        _ => None,
    }
}

/// Whether the entry at the old key is the one known to users by the plain key's name.
fn is_named(plain: &Key, old: &Key, entry: &Entry) -> bool {
    let Key::Resource(plain) = plain else { return false };
    read(old, entry).is_ok_and(|pair| user_name(&pair.key, &pair.value) == Some(plain.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;

    #[test]
    fn only_policies_have_an_old_key() {
        let old = |kind, name| match old_key(&Key::resource(kind, "ns", name)) {
            Some(Key::Resource(key)) => Some(key.name),
            _ => None,
        };
        assert_eq!(old(Kind::NetworkPolicy, "foo"), Some("default.foo".to_owned()));
        assert_eq!(old(Kind::StagedGlobalNetworkPolicy, "foo"), Some("default.foo".to_owned()));
        assert_eq!(old(Kind::NetworkPolicy, "default.foo"), None);
        assert_eq!(old(Kind::NetworkSet, "foo"), None);
        assert_eq!(old(Kind::StagedKubernetesNetworkPolicy, "foo"), None);
    }
}
