//! The sets and their members that are sent to the dataplane.
//!
//! A new set is sent as a whole, and its members are read from their owner at that moment, so that they are not kept
//! twice. For a set that was sent before, added and removed members are collected; one that was added and removed
//! between two flushes is not mentioned.

use crate::slab::row_id;
use messages::{IpSetId, IpSetMember, IpSetType, ToDataplane};
use std::collections::{BTreeMap, BTreeSet};

row_id! {
    /// The place of an active set in the tables of this crate. Places are reused.
    SetIndex
}

impl SetIndex {
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}

/// The owner of the members of sets.
pub(crate) trait MemberSource {
    /// Returns all members of the set, sorted.
    fn members(&self, set: SetIndex) -> Vec<IpSetMember>;
}

#[derive(Debug)]
struct Entry {
    id: IpSetId,
    set_type: IpSetType,
    sent: bool,
    /// Members that were added (true) or removed (false) since the last flush.
    changes: BTreeMap<IpSetMember, bool>,
}

/// What the dataplane knows about sets, and what it does not know yet.
#[derive(Debug, Default)]
pub(crate) struct IpSets {
    entries: Vec<Option<Entry>>,
    new: BTreeMap<IpSetId, SetIndex>,
    changed: BTreeSet<SetIndex>,
    removed: BTreeSet<IpSetId>,
}

impl IpSets {
    /// Adds a set that came into use.
    pub(crate) fn add(&mut self, set: SetIndex, id: IpSetId, set_type: IpSetType) {
        if self.entries.len() <= set.place() {
            self.entries.resize_with(set.place() + 1, || None);
        }
        self.removed.remove(&id);
        self.new.insert(id.clone(), set);
        if let Some(entry) = self.entries.get_mut(set.place()) {
            *entry = Some(Entry { id, set_type, sent: false, changes: BTreeMap::new() });
        }
    }

    /// Removes a set that is no longer used.
    pub(crate) fn remove(&mut self, set: SetIndex) {
        let Some(entry) = self.entries.get_mut(set.place()).and_then(Option::take) else { return };
        self.new.remove(&entry.id);
        self.changed.remove(&set);
        if entry.sent {
            self.removed.insert(entry.id);
        }
    }

    /// Whether changes of members must be sent: only if the set itself was sent already.
    pub(crate) fn is_sent(&self, set: SetIndex) -> bool {
        self.entries.get(set.place()).and_then(Option::as_ref).is_some_and(|entry| entry.sent)
    }

    /// Adds a member.
    pub(crate) fn member_added(&mut self, set: SetIndex, member: IpSetMember) {
        self.change(set, member, true);
    }

    /// Removes a member.
    pub(crate) fn member_removed(&mut self, set: SetIndex, member: IpSetMember) {
        self.change(set, member, false);
    }

    fn change(&mut self, set: SetIndex, member: IpSetMember, came: bool) {
        let Some(Some(entry)) = self.entries.get_mut(set.place()) else { return };
        if !entry.sent {
            return;
        }
        if entry.changes.get(&member) == Some(&!came) {
            entry.changes.remove(&member);
        } else {
            entry.changes.insert(member, came);
        }
        self.changed.insert(set);
    }

    pub(crate) fn flush_updates(&mut self, source: &impl MemberSource, sink: &mut impl FnMut(ToDataplane)) {
        for (id, set) in std::mem::take(&mut self.new) {
            let Some(Some(entry)) = self.entries.get_mut(set.place()) else { continue };
            entry.sent = true;
            sink(ToDataplane::IpSetUpdate { id, set_type: entry.set_type, members: source.members(set) });
        }
        let mut deltas = BTreeMap::new();
        for set in std::mem::take(&mut self.changed) {
            let Some(Some(entry)) = self.entries.get_mut(set.place()) else { continue };
            let changes = std::mem::take(&mut entry.changes);
            if changes.is_empty() {
                continue;
            }
            let (mut added, mut removed) = (Vec::new(), Vec::new());
            for (member, came) in changes {
                if came { added.push(member) } else { removed.push(member) }
            }
            deltas.insert(entry.id.clone(), (added, removed));
        }
        for (id, (added, removed)) in deltas {
            sink(ToDataplane::IpSetDelta { id, added, removed });
        }
    }

    pub(crate) fn flush_removes(&mut self, sink: &mut impl FnMut(ToDataplane)) {
        for id in std::mem::take(&mut self.removed) {
            sink(ToDataplane::IpSetRemove(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IpSets, MemberSource, SetIndex};
    use messages::{IpSetMember, IpSetType, ToDataplane};
    use std::net::IpAddr;

    struct Fixed(Vec<IpSetMember>);

    impl MemberSource for Fixed {
        fn members(&self, _set: SetIndex) -> Vec<IpSetMember> {
            self.0.clone()
        }
    }

    fn ip(last: u8) -> IpSetMember {
        IpSetMember::Ip(IpAddr::from([10, 0, 0, last]))
    }

    fn flush(sets: &mut IpSets, members: &[IpSetMember]) -> Vec<ToDataplane> {
        let mut out = Vec::new();
        let mut sink = |message| out.push(message);
        sets.flush_updates(&Fixed(members.to_vec()), &mut sink);
        sets.flush_removes(&mut sink);
        out
    }

    #[test]
    fn a_new_set_is_sent_whole_and_then_by_differences() {
        let (set, mut sets) = (SetIndex(3), IpSets::default());
        sets.add(set, "s:a".into(), IpSetType::Net);
        sets.member_added(set, ip(1));
        assert!(!sets.is_sent(set));
        assert_eq!(
            flush(&mut sets, &[ip(1)]),
            [ToDataplane::IpSetUpdate { id: "s:a".into(), set_type: IpSetType::Net, members: vec![ip(1)] }]
        );
        sets.member_added(set, ip(2));
        sets.member_removed(set, ip(2));
        assert!(flush(&mut sets, &[]).is_empty(), "2 came and went");
        sets.member_added(set, ip(3));
        sets.member_removed(set, ip(1));
        assert_eq!(
            flush(&mut sets, &[]),
            [ToDataplane::IpSetDelta { id: "s:a".into(), added: vec![ip(3)], removed: vec![ip(1)] }]
        );
    }

    #[test]
    fn a_set_that_comes_back_is_sent_whole_and_not_removed() {
        let mut sets = IpSets::default();
        sets.add(SetIndex(0), "s:a".into(), IpSetType::Net);
        flush(&mut sets, &[]);
        sets.remove(SetIndex(0));
        sets.add(SetIndex(1), "s:a".into(), IpSetType::Net);
        let out = flush(&mut sets, &[ip(1)]);
        assert!(matches!(&out[..], [ToDataplane::IpSetUpdate { .. }]), "{out:?}");
        sets.remove(SetIndex(1));
        assert_eq!(flush(&mut sets, &[]), [ToDataplane::IpSetRemove("s:a".into())]);
        sets.add(SetIndex(1), "s:b".into(), IpSetType::Net);
        sets.remove(SetIndex(1));
        assert!(flush(&mut sets, &[]).is_empty(), "it came and went");
    }
}
