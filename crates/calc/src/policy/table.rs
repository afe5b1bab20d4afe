//! All policies of the cluster, as small as possible: most of them concern other hosts.

use super::selectors::SelectorRef;
use crate::bytes::{Reader, put_bytes};
use crate::packed::{Unpacked, pack, sets, unpack};
use crate::rules::SetSpec;
use crate::sequencer::SetIndex;
use crate::slab::{Slab, row_id};
use crate::symbols::{Symbol, Symbols};
use api::words::DEFAULT_TIER;
use api::{Kind, PolicyPerformanceHint};
use hashbrown::{DefaultHashBuilder, HashTable};
use messages::{IpSetId, PolicyId, TierName};
use model::feed::{self, PolicyType};
use model::v1::PolicyKey;
use std::hash::BuildHasher;

row_id! {
    /// The number of a policy.
    PolicyRef
}

/// The Boolean properties of a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    pub(crate) const DO_NOT_TRACK: Self = Self(1);
    pub(crate) const PRE_DNAT: Self = Self(1 << 1);
    pub(crate) const APPLY_ON_FORWARD: Self = Self(1 << 2);
    pub(crate) const INGRESS: Self = Self(1 << 3);
    pub(crate) const EGRESS: Self = Self(1 << 4);
    /// Needed on every host.
    pub(crate) const EVERYWHERE: Self = Self(1 << 5);
    /// The first of the packed texts is the namespace, because it differs from that of the key.
    const OTHER_NAMESPACE: Self = Self(1 << 6);
    /// The flags that affect the order of policies on an endpoint.
    const ORDERING: u8 = 0b1_1111;

    pub(crate) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    fn set(&mut self, flag: Self, on: bool) {
        if on {
            self.0 |= flag.0;
        }
    }

    fn of(policy: &feed::Policy) -> Self {
        let mut flags = Self::default();
        flags.set(Self::DO_NOT_TRACK, policy.do_not_track);
        flags.set(Self::PRE_DNAT, policy.pre_dnat);
        flags.set(Self::APPLY_ON_FORWARD, policy.apply_on_forward);
        // A policy without directions applies to both.
        let both = policy.types.is_empty();
        flags.set(Self::INGRESS, both || policy.types.contains(&PolicyType::Ingress));
        flags.set(Self::EGRESS, both || policy.types.contains(&PolicyType::Egress));
        flags.set(
            Self::EVERYWHERE,
            policy
                .performance_hints
                .iter()
                .any(|hint| hint == PolicyPerformanceHint::AssumeNeededOnEveryNode.as_str()),
        );
        flags
    }
}

/// A policy that applies to a local endpoint, or is needed on every host.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    pub(crate) id: PolicyId,
    /// The sets that its rules name, in the order of [`PolicyRow::sets`].
    pub(crate) sets: Box<[SetIndex]>,
    /// Its place among the active policies of all tiers, maintained by the order.
    pub(crate) rank: u32,
}

/// One policy.
#[derive(Debug)]
pub(crate) struct PolicyRow {
    key: Box<[u8]>,
    /// Everything else: hints and rules.
    packed: Box<[u8]>,
    pub(crate) order: f64,
    pub(crate) active: Option<Box<ActivePolicy>>,
    /// The row of its selector.
    pub(crate) selector: SelectorRef,
    pub(crate) tier: Symbol,
    pub(crate) flags: Flags,
}

impl PolicyRow {
    /// Returns the key.
    pub(crate) fn key(&self) -> PolicyKey {
        let mut reader = Reader(&self.key);
        let kind = reader.byte().and_then(|kind| Kind::ALL.get(usize::from(kind)).copied());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let namespace = text(reader.bytes().unwrap_or_default());
        PolicyKey { kind: kind.unwrap_or(Kind::GlobalNetworkPolicy), namespace, name: text(reader.0) }
    }

    /// Whether both have the same place in the order of policies.
    pub(crate) fn same_order(&self, other: &Self) -> bool {
        self.order.total_cmp(&other.order).is_eq()
            && self.tier == other.tier
            && self.flags.0 & Flags::ORDERING == other.flags.0 & Flags::ORDERING
    }

    /// Whether both have the same rules. Only meaningful if their selectors are equal.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        self.packed == other.packed && self.flags == other.flags && self.tier == other.tier
    }

    /// The sets that its rules name.
    pub(crate) fn sets(&self, key: &PolicyKey, selector: &str) -> Vec<SetSpec> {
        sets(&[selector, &key.namespace, &key.name], &self.packed)
    }

    /// Returns the namespace, the hints and the rules. `names` are those of the sets, in the order of [`Self::sets`].
    pub(crate) fn unpack(&self, key: &PolicyKey, selector: &str, names: &[IpSetId]) -> (String, Unpacked) {
        let known = [selector, &key.namespace, &key.name];
        let mut unpacked = unpack(&known, &self.packed, names);
        let namespace = if self.flags.has(Flags::OTHER_NAMESPACE) && !unpacked.texts.is_empty() {
            unpacked.texts.remove(0)
        } else {
            key.namespace.clone()
        };
        (namespace, unpacked)
    }
}

/// All policies by key.
#[derive(Debug, Default)]
pub(crate) struct PolicyTable {
    rows: Slab<PolicyRow, PolicyRef>,
    by_key: HashTable<PolicyRef>,
    /// The names of tiers.
    pub(crate) tiers: Symbols<TierName>,
    hasher: DefaultHashBuilder,
}

impl PolicyTable {
    pub(crate) fn get(&self, policy: PolicyRef) -> Option<&PolicyRow> {
        self.rows.get(policy)
    }

    pub(crate) fn get_mut(&mut self, policy: PolicyRef) -> Option<&mut PolicyRow> {
        self.rows.get_mut(policy)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Builds the row of a policy, which holds a reference to the tier's name.
    pub(crate) fn row(&mut self, key: &PolicyKey, policy: &feed::Policy, selector: SelectorRef) -> PolicyRow {
        let mut flags = Flags::of(policy);
        let mut texts: Vec<&str> = Vec::new();
        if policy.namespace != key.namespace {
            flags.set(Flags::OTHER_NAMESPACE, true);
            texts.push(&policy.namespace);
        }
        texts.extend(policy.performance_hints.iter().map(String::as_str));
        let known = [policy.selector.canonical(), &key.namespace, &key.name];
        let tier = if policy.tier.is_empty() { DEFAULT_TIER } else { &policy.tier };
        PolicyRow {
            key: pack_key(key),
            packed: pack(&known, &texts, &policy.inbound_rules, &policy.outbound_rules),
            // Adding zero makes zero of minus zero.
            order: policy.order.unwrap_or(f64::INFINITY) + 0.0,
            active: None,
            selector,
            tier: self.tiers.acquire(tier),
            flags,
        }
    }

    pub(crate) fn find(&self, key: &PolicyKey) -> Option<PolicyRef> {
        let packed = pack_key(key);
        let hash = self.hasher.hash_one(&*packed);
        self.by_key.find(hash, |policy| self.rows.get(*policy).is_some_and(|row| row.key == packed)).copied()
    }

    pub(crate) fn insert(&mut self, row: PolicyRow) -> PolicyRef {
        let hash = self.hasher.hash_one(&*row.key);
        let policy = self.rows.insert(row);
        let (rows, hasher) = (&self.rows, &self.hasher);
        self.by_key.insert_unique(hash, policy, |policy| {
            hasher.hash_one(rows.get(*policy).map_or(&[][..], |row| &row.key))
        });
        policy
    }

    /// Removes a policy. The caller releases the tier's name.
    pub(crate) fn remove(&mut self, policy: PolicyRef) -> Option<PolicyRow> {
        let hash = self.hasher.hash_one(&*self.rows.get(policy)?.key);
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == policy) {
            entry.remove();
        }
        self.rows.remove(policy)
    }
}

fn pack_key(key: &PolicyKey) -> Box<[u8]> {
    let mut packed = Vec::with_capacity(2 + key.namespace.len() + key.name.len());
    let kind = Kind::ALL.iter().position(|kind| *kind == key.kind).and_then(|place| u8::try_from(place).ok());
    packed.push(kind.unwrap_or(u8::MAX));
    put_bytes(&mut packed, key.namespace.as_bytes());
    packed.extend_from_slice(key.name.as_bytes());
    packed.into_boxed_slice()
}
