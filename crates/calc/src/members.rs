//! The members of the sets in use, with the number of contributions of each, in as little memory as possible.
//!
//! Several endpoints may contribute an address, and a network may contain others. Members are kept in order, so that a
//! set is written out sorted without sorting. Where the dataplane cannot hold a member and another one that contains
//! it, only the wider one is reported; the narrower one is reported again when the wider one is gone.

mod counted;
mod key;

use crate::sequencer::{IpSets, MemberSource, SetIndex};
use counted::Counted;
use ipnet::IpNet;
use key::{Key4, Key6, MemberKey};
use messages::{IpSetMember, IpSetType};
use std::net::IpAddr;

/// The members of one set.
#[derive(Debug)]
struct SetMembers {
    set_type: IpSetType,
    /// Whether members within others are not reported.
    suppress: bool,
    v4: Counted<Key4>,
    v6: Counted<Key6>,
}

/// The members of all sets in use.
#[derive(Debug, Default)]
pub(crate) struct Members {
    sets: Vec<Option<SetMembers>>,
}

/// A member that is added or removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Member {
    Net(IpNet),
    Port(IpAddr, u8, u16),
}

impl Members {
    /// Adds an empty set.
    pub(crate) fn open(&mut self, set: SetIndex, set_type: IpSetType, suppress: bool) {
        if self.sets.len() <= set.place() {
            self.sets.resize_with(set.place() + 1, || None);
        }
        let suppress = suppress && set_type == IpSetType::Net;
        self.sets[set.place()] =
            Some(SetMembers { set_type, suppress, v4: Counted::default(), v6: Counted::default() });
    }

    /// Drops a set with all its members.
    pub(crate) fn close(&mut self, set: SetIndex) {
        if let Some(members) = self.sets.get_mut(set.place()) {
            *members = None;
        }
    }

    /// Adds a contribution of a member.
    pub(crate) fn add(&mut self, set: SetIndex, member: Member, told: &mut IpSets) {
        self.change(set, member, Way::In, told);
    }

    /// Removes a contribution of a member.
    pub(crate) fn remove(&mut self, set: SetIndex, member: Member, told: &mut IpSets) {
        self.change(set, member, Way::Out, told);
    }

    fn change(&mut self, set: SetIndex, member: Member, way: Way, told: &mut IpSets) {
        let Some(Some(members)) = self.sets.get_mut(set.place()) else { return };
        let (set_type, suppress) = (members.set_type, members.suppress);
        match Either::of(member) {
            Either::V4(key) => change(&mut members.v4, key, way, (set_type, suppress), set, told),
            Either::V6(key) => change(&mut members.v6, key, way, (set_type, suppress), set, told),
        }
    }
}

/// Whether a member is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

impl Way {
    fn back(self) -> Self {
        match self {
            Self::In => Self::Out,
            Self::Out => Self::In,
        }
    }

    fn tell(self, told: &mut IpSets, set: SetIndex, member: IpSetMember) {
        match self {
            Self::In => told.member_added(set, member),
            Self::Out => told.member_removed(set, member),
        }
    }
}

impl MemberSource for Members {
    fn members(&self, set: SetIndex) -> Vec<IpSetMember> {
        let Some(Some(members)) = self.sets.get(set.place()) else { return Vec::new() };
        let mut out = Vec::with_capacity(members.v4.len() + members.v6.len());
        list(&members.v4, members.set_type, members.suppress, &mut out);
        list(&members.v6, members.set_type, members.suppress, &mut out);
        out
    }
}

enum Either {
    V4(Key4),
    V6(Key6),
}

impl Either {
    fn of(member: Member) -> Self {
        match member {
            Member::Net(IpNet::V4(net)) => Self::V4(Key4::net(net)),
            Member::Net(IpNet::V6(net)) => Self::V6(Key6::net(net)),
            Member::Port(IpAddr::V4(address), protocol, port) => {
                Self::V4(Key4::port(address, protocol, port))
            }
            Member::Port(IpAddr::V6(address), protocol, port) => {
                Self::V6(Key6::port(address, protocol, port))
            }
        }
    }
}

fn change<K: MemberKey>(
    members: &mut Counted<K>,
    key: K,
    way: Way,
    (set_type, suppress): (IpSetType, bool),
    set: SetIndex,
    told: &mut IpSets,
) {
    let changed = match way {
        Way::In => members.add(key, suppress),
        Way::Out => members.remove(key, suppress),
    };
    if !changed || !told.is_sent(set) {
        return;
    }
    if suppress {
        if members.is_covered(key) {
            return;
        }
        // Members that a wider one hides are removed when it is added, and added when it is removed.
        for within in members.widest_within(key) {
            way.back().tell(told, set, within.member(set_type));
        }
    }
    way.tell(told, set, key.member(set_type));
}

fn list<K: MemberKey>(members: &Counted<K>, set_type: IpSetType, suppress: bool, out: &mut Vec<IpSetMember>) {
    let mut widest: Option<K> = None;
    for key in members.iter() {
        if suppress {
            // In this order, everything that contains a network comes before it, and everything in between is also
            // contained.
            if widest.is_some_and(|wide| wide.contains(key)) {
                continue;
            }
            widest = Some(key);
        }
        out.push(key.member(set_type));
    }
}

#[cfg(test)]
mod tests;
