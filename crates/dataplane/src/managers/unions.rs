//! Sets that contain all members of several other sets and networks, of one IP version.
//!
//! A member is counted once for each set that it comes from, so the cost of a set's change is proportional to the
//! changed members, for each union that contains the set.

use crate::desired::VersionDesired;
use ipnet::IpNet;
use messages::{IpSetId, IpSetMember, IpSetType};
use rules::UnionSet;
use std::collections::{BTreeMap, BTreeSet};

/// The members of all sets of addresses, as networks of both IP versions.
pub(super) type SetMembers = BTreeMap<IpSetId, BTreeSet<IpNet>>;

#[derive(Debug)]
struct Union {
    users: usize,
    made_of: UnionSet,
    counts: BTreeMap<IpNet, usize>,
}

/// All unions of one IP version.
#[derive(Debug, Default)]
pub(super) struct Unions {
    all: BTreeMap<IpSetId, Union>,
    by_set: BTreeMap<IpSetId, BTreeSet<IpSetId>>,
}

impl Unions {
    /// Adds a chain's reference to the union.
    pub(super) fn acquire(&mut self, made_of: &UnionSet, sets: &SetMembers, desired: &mut VersionDesired) {
        if let Some(union) = self.all.get_mut(&made_of.id) {
            union.users += 1;
            return;
        }
        let is_v6 = desired.version == rules::tree::IpVersion::V6;
        let of_sets = made_of.sets.iter().filter_map(|id| sets.get(id)).flatten();
        let mut counts = BTreeMap::new();
        for net in of_sets.chain(&made_of.nets).filter(|net| net.addr().is_ipv6() == is_v6) {
            *counts.entry(*net).or_default() += 1;
        }
        desired.sets.define(
            &made_of.id,
            IpSetType::Net,
            counts.keys().copied().map(IpSetMember::Net).collect(),
        );
        for id in &made_of.sets {
            self.by_set.entry(id.clone()).or_default().insert(made_of.id.clone());
        }
        self.all.insert(made_of.id.clone(), Union { users: 1, made_of: made_of.clone(), counts });
    }

    /// Removes a chain's reference to the union.
    pub(super) fn release(&mut self, id: &IpSetId, desired: &mut VersionDesired) {
        let Some(union) = self.all.get_mut(id) else { return };
        union.users -= 1;
        if union.users > 0 {
            return;
        }
        let Some(union) = self.all.remove(id) else { return };
        for set in &union.made_of.sets {
            if let Some(users) = self.by_set.get_mut(set) {
                users.remove(id);
                if users.is_empty() {
                    self.by_set.remove(set);
                }
            }
        }
        desired.sets.remove(id);
    }

    /// Applies added and removed members of a set. Networks of the other IP version are ignored.
    pub(super) fn change(
        &mut self,
        set: &IpSetId,
        added: &[IpNet],
        removed: &[IpNet],
        desired: &mut VersionDesired,
    ) {
        let is_v6 = desired.version == rules::tree::IpVersion::V6;
        let own = |net: &&IpNet| net.addr().is_ipv6() == is_v6;
        for id in self.by_set.get(set).into_iter().flatten() {
            let Some(union) = self.all.get_mut(id) else { continue };
            let (mut new, mut old) = (Vec::new(), Vec::new());
            for net in removed.iter().filter(own) {
                let Some(count) = union.counts.get_mut(net) else { continue };
                *count -= 1;
                if *count == 0 {
                    union.counts.remove(net);
                    old.push(IpSetMember::Net(*net));
                }
            }
            for net in added.iter().filter(own) {
                let count = union.counts.entry(*net).or_default();
                *count += 1;
                if *count == 1 {
                    new.push(IpSetMember::Net(*net));
                }
            }
            if !new.is_empty() || !old.is_empty() {
                desired.sets.change(id, &new, &old);
            }
        }
    }
}
