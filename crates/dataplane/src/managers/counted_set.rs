//! An IP set whose members several owners may share: a member goes when its last owner does.

use crate::ipsets::IpSetDriver;
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType};
use std::collections::BTreeMap;

/// The members of one set, counted.
#[derive(Clone, Debug)]
pub struct CountedSet {
    id: &'static str,
    counts: BTreeMap<IpSetMember, usize>,
}

impl CountedSet {
    /// Defines the set, with members that nobody takes away.
    pub fn new(id: &'static str, set_type: IpSetType, fixed: &[IpNet], sets: &mut dyn IpSetDriver) -> Self {
        let counts: BTreeMap<_, _> = fixed.iter().map(|net| (IpSetMember::Net(*net), 1)).collect();
        let members: Vec<_> = counts.keys().copied().collect();
        sets.update_set(id, set_type, &members);
        Self { id, counts }
    }

    /// Exchanges one owner's members.
    pub fn exchange(&mut self, old: &[IpSetMember], new: &[IpSetMember], sets: &mut dyn IpSetDriver) {
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        // The new ones first, so that what stays is never gone.
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
            sets.update_members(self.id, &added, &removed);
        }
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
