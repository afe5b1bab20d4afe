//! An IP set whose members several owners may share: a member is removed with its last owner.

use crate::desired::VersionDesired;
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType};
use std::collections::BTreeMap;

/// The members of one set, counted.
#[derive(Clone, Debug)]
pub(crate) struct CountedSet {
    id: &'static str,
    counts: BTreeMap<IpSetMember, usize>,
}

impl CountedSet {
    /// Defines the set, with members that are never removed.
    pub(crate) fn new(
        id: &'static str,
        set_type: IpSetType,
        fixed: &[IpNet],
        desired: &mut VersionDesired,
    ) -> Self {
        let counts: BTreeMap<_, _> = fixed
            .iter()
            .map(|net| (IpSetMember::Net(*net), 1))
            .filter(|(member, _)| member.is_ipv6() == (desired.version == rules::tree::IpVersion::V6))
            .collect();
        desired.sets.define(id, set_type, counts.keys().copied().collect());
        Self { id, counts }
    }

    /// Replaces one owner's members.
    pub(crate) fn exchange(
        &mut self,
        old: &[IpSetMember],
        new: &[IpSetMember],
        desired: &mut VersionDesired,
    ) {
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        // The new members first, so that common members are never missing.
        for member in new {
            let count = self.counts.entry(*member).or_default();
            *count += 1;
            if *count == 1 {
                added.push(*member);
            }
        }
        for member in old {
            if let Some(count) = self.counts.get_mut(member) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(member);
                    removed.push(*member);
                }
            }
        }
        if !added.is_empty() || !removed.is_empty() {
            desired.sets.change(self.id, &added, &removed);
        }
    }
}
