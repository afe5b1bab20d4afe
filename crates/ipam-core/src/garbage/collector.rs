//! The collector: which allocations exist, since when each is suspected, and what follows from that.
//!
//! Blocks are fed one by one. Every change marks the nodes that it concerns; [`Collector::examine`] looks only at the
//! marked nodes, and at those whose suspicions have become old enough. Suspicions are the collector's memory: they end
//! when the address is assigned to another holder, is seen in use, or is released.

mod ledger;

use super::holder::Holder;
use super::judge::{NodeFact, Reason, World, judge};
use super::verdicts::{GoneNode, IdleBlock, Leak, Verdicts};
use crate::block::Block;
use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use model::{AffinityType, AllocationBlock, HandleId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// A machine that does not exist may be about to come back: the minimum time to wait for it.
const MACHINE_PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// How far a pod's status may lag behind its network, by default.
const POD_PATIENCE: SignedDuration = SignedDuration::from_mins(15);

/// The collector's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long an address must look leaked, and a block idle, while its node exists. `None`: addresses of such nodes
    /// are not even suspected. Zero: they are suspected but never released.
    pub grace: Option<SignedDuration>,
    /// How long addresses rest after their release.
    pub cooldown_seconds: i32,
}

/// The position of an allocation: its block and its ordinal.
type Place = (IpNet, u32);

/// What is remembered of an allocation.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) address: IpAddr,
    pub(super) handle: HandleId,
    pub(super) holder: Holder,
    /// The node that it is recorded for.
    pub(super) node: Option<Arc<str>>,
    pub(super) sequence_number: u64,
    pub(super) suspicion: Suspicion,
}

/// The stages of a suspicion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    None,
    Candidate { since: Timestamp },
    Confirmed { since: Timestamp, reason: Reason, node: Arc<str> },
}

/// What is remembered of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The node that owns the block.
    pub(super) owner: Option<Arc<str>>,
    /// Whether the block has any owner, a host or not.
    pub(super) has_affinity: bool,
    /// Allocations with a handle: others cannot be released.
    pub(super) entries: BTreeMap<u32, Entry>,
    /// Whether no address of it is taken or resting.
    is_idle: bool,
    /// The time since which it is idle while its node has other blocks.
    idle_since: Option<Timestamp>,
    /// The oldest release of an address that is still resting.
    resting_since: Option<Timestamp>,
}

/// What is remembered of a node that blocks or allocations name.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeEntry {
    pub(super) blocks: BTreeSet<IpNet>,
    pub(super) places: BTreeSet<Place>,
    /// The time at which it must be examined even without an event.
    due: Option<Timestamp>,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Collector {
    pub(super) blocks: BTreeMap<IpNet, Known>,
    pub(super) nodes: BTreeMap<Arc<str>, NodeEntry>,
    handles: BTreeMap<HandleId, BTreeSet<Place>>,
    dirty: BTreeSet<Arc<str>>,
    /// Nodes whose claims are to be given up, until the caller confirms it.
    leaving: BTreeSet<Arc<str>>,
    confirmed: BTreeSet<Place>,
    due: BTreeSet<(Timestamp, Arc<str>)>,
    resting: BTreeMap<IpNet, Timestamp>,
}

impl Collector {
    /// Enters a new or changed block.
    pub fn block_changed(&mut self, record: &AllocationBlock) {
        let view = Block::new(record);
        let cidr = record.cidr;
        let owner = view.owner().filter(|owner| owner.affinity_type == AffinityType::Host);
        let owner = owner.map(|owner| self.intern(&owner.host));
        let before = self.blocks.get(&cidr).and_then(|known| known.owner.clone());
        if before != owner {
            if let Some(node) = &before {
                self.with_node(node, |entry| entry.blocks.remove(&cidr));
            }
            if let Some(node) = &owner {
                self.with_node(node, |entry| entry.blocks.insert(cidr));
            }
        }
        let mut taken: BTreeMap<u32, Entry> = BTreeMap::new();
        let (mut is_idle, mut resting_since) = (true, None::<Timestamp>);
        for allocation in view.allocations() {
            is_idle = false;
            let released_at = allocation.attribute.and_then(|attribute| attribute.released_at.as_ref());
            // An unreadable time never ends.
            if let Some(time) = released_at.and_then(|time| time.parse().ok()) {
                resting_since = Some(resting_since.map_or(time, |earliest| earliest.min(time)));
            }
            if let Some((ordinal, entry)) = self.entry(&allocation) {
                taken.insert(ordinal, entry);
            }
        }
        let known = self.blocks.entry(cidr).or_default();
        let was_idle = known.is_idle;
        known.owner.clone_from(&owner);
        known.has_affinity = view.affinity().is_some();
        known.is_idle = is_idle;
        known.resting_since = resting_since;
        if !is_idle {
            known.idle_since = None;
        }
        let old: BTreeMap<u32, Entry> = std::mem::take(&mut known.entries);
        match resting_since {
            Some(time) => drop(self.resting.insert(cidr, time)),
            None => drop(self.resting.remove(&cidr)),
        }
        for (ordinal, entry) in &mut taken {
            match old.get(ordinal) {
                // The very same allocation: its suspicion stays.
                Some(same) if is_same(same, entry) => entry.suspicion = same.suspicion.clone(),
                Some(other) => {
                    self.unlink((cidr, *ordinal), other);
                    self.link((cidr, *ordinal), entry);
                }
                None => self.link((cidr, *ordinal), entry),
            }
        }
        for (ordinal, entry) in &old {
            if !taken.contains_key(ordinal) {
                self.unlink((cidr, *ordinal), entry);
            }
        }
        if let Some(known) = self.blocks.get_mut(&cidr) {
            known.entries = taken;
        }
        if was_idle != is_idle || before != owner {
            for node in [before, owner].into_iter().flatten() {
                self.dirty.insert(node);
            }
        }
    }

    /// Forgets a block that is gone.
    pub fn block_gone(&mut self, cidr: &IpNet) {
        let Some(known) = self.blocks.remove(cidr) else { return };
        self.resting.remove(cidr);
        for (ordinal, entry) in &known.entries {
            self.unlink((*cidr, *ordinal), entry);
        }
        if let Some(node) = known.owner {
            self.with_node(&node, |entry| entry.blocks.remove(cidr));
            self.dirty.insert(node);
        }
    }

    /// Records that an idle block could not be given up: its waiting time starts again.
    pub fn block_kept(&mut self, cidr: &IpNet) {
        if let Some(known) = self.blocks.get_mut(cidr) {
            known.idle_since = None;
            if let Some(node) = known.owner.clone() {
                self.dirty.insert(node);
            }
        }
    }

    /// Whether addresses are resting after their release, so that the cool-down matters.
    #[must_use]
    pub fn has_resting(&self) -> bool {
        !self.resting.is_empty()
    }

    /// The ranges of all blocks, to determine after a new list which ones are gone.
    pub fn blocks(&self) -> impl Iterator<Item = &IpNet> {
        self.blocks.keys()
    }

    /// Marks a node because of an event on it or on one of its pods: it is examined next time. Unknown nodes cost
    /// nothing.
    pub fn touch(&mut self, node: &str) {
        if let Some((name, _)) = self.nodes.get_key_value(node) {
            self.dirty.insert(Arc::clone(name));
        }
    }

    /// Marks everything to be examined next time.
    pub fn touch_all(&mut self) {
        self.dirty.extend(self.nodes.keys().cloned());
    }

    /// The time of the next examination if no event happens; a time in the past means now.
    #[must_use]
    pub fn due_at(&self, settings: &Settings) -> Option<Timestamp> {
        let resting = self.resting.values().min().and_then(|time| rested_at(*time, settings));
        self.due.first().map(|(time, _)| *time).into_iter().chain(resting).min()
    }

    /// Examines the marked nodes, and those whose time has come. Verdicts that were not carried out are repeated.
    pub fn examine(
        &mut self,
        world: &(impl World + ?Sized),
        now: Timestamp,
        settings: &Settings,
    ) -> Verdicts {
        while let Some((time, _)) = self.due.first()
            && *time <= now
        {
            if let Some((_, node)) = self.due.pop_first() {
                self.dirty.insert(node);
            }
        }
        let mut verdicts = Verdicts::default();
        for node in std::mem::take(&mut self.dirty) {
            self.examine_node(&node, world, now, settings, &mut verdicts);
        }
        verdicts.leaks = self.leaks();
        verdicts.gone_nodes =
            self.leaving.iter().map(|name| GoneNode { name: name.as_ref().to_owned() }).collect();
        let is_rested = |time: &Timestamp| rested_at(*time, settings).is_some_and(|end| end <= now);
        verdicts.rested_blocks =
            self.resting.iter().filter(|(_, time)| is_rested(time)).map(|(cidr, _)| *cidr).collect();
        verdicts
    }

    fn examine_node(
        &mut self,
        name: &Arc<str>,
        world: &(impl World + ?Sized),
        now: Timestamp,
        settings: &Settings,
        verdicts: &mut Verdicts,
    ) {
        self.leaving.remove(name);
        let Some(node) = self.nodes.get(name) else { return };
        let places: Vec<Place> = node.places.iter().copied().collect();
        let (kubernetes, is_gone, is_migrating) = match world.node(name) {
            NodeFact::Exists { kubernetes, is_migrating } => (kubernetes, false, is_migrating),
            NodeFact::Gone { kubernetes } => (kubernetes, true, false),
            NodeFact::Untouchable => {
                for place in places {
                    self.acquit(place);
                }
                self.schedule(name, None);
                return;
            }
        };
        let kubernetes: Arc<str> = kubernetes.into();
        let mut is_free = true;
        let mut tunnels = Vec::new();
        let mut due = None;
        for place in places {
            let Some(entry) = self.entry_at(place) else { continue };
            match &entry.holder {
                Holder::Windows => continue,
                Holder::Unknown => {
                    is_free = false;
                    continue;
                }
                Holder::Tunnel => {
                    tunnels.push(place);
                    continue;
                }
                Holder::Pod { .. } | Holder::Machine { .. } => {}
            }
            let Some(reason) = judge(&entry.holder, entry.address, &kubernetes, world) else {
                is_free = false;
                self.acquit(place);
                continue;
            };
            let patience = match (is_gone, &entry.holder, settings.grace) {
                // The pod exists, on that very node, with another address: its status may lag behind its network.
                (true, ..) if is_maybe_restarting(&reason, &kubernetes) => {
                    settings.grace.filter(|grace| *grace > SignedDuration::ZERO).unwrap_or(POD_PATIENCE)
                }
                // Neither the holder nor the node exists: no reason to wait.
                (true, ..) => {
                    let since = self.suspect(place, now);
                    self.confirm(place, since, reason, &kubernetes);
                    continue;
                }
                (false, Holder::Machine { .. }, grace) => {
                    grace.unwrap_or(MACHINE_PATIENCE).max(MACHINE_PATIENCE)
                }
                (false, _, Some(grace)) if grace > SignedDuration::ZERO => grace,
                (false, _, Some(_)) => {
                    self.suspect(place, now);
                    continue;
                }
                (false, _, None) => continue,
            };
            let since = self.suspect(place, now);
            if is_over(since, patience, now) {
                self.confirm(place, since, reason, &kubernetes);
            } else {
                is_free = is_free && !is_gone;
                self.doubt(place, since);
                due = earlier(due, since, patience);
            }
        }
        if is_gone && is_free {
            // Released last: a tunnel address that is assigned to another node too early would confuse both.
            for place in tunnels {
                let since = self.suspect(place, now);
                let reason = Reason::NodeGone { node: name.as_ref().to_owned() };
                self.confirm(place, since, reason, &kubernetes);
            }
            self.leaving.insert(Arc::clone(name));
        } else {
            for place in tunnels {
                self.acquit(place);
            }
        }
        let idle = self.examine_blocks(name, is_migrating, now, settings, verdicts);
        self.schedule(name, [due, idle].into_iter().flatten().min());
    }

    /// Finds idle blocks of a node that has others. One block always stays.
    fn examine_blocks(
        &mut self,
        name: &Arc<str>,
        is_migrating: bool,
        now: Timestamp,
        settings: &Settings,
        verdicts: &mut Verdicts,
    ) -> Option<Timestamp> {
        let node = self.nodes.get(name)?;
        let ranges: Vec<IpNet> = node.blocks.iter().copied().collect();
        let grace = settings.grace.filter(|grace| *grace > SignedDuration::ZERO);
        let (mut left, mut due) = (ranges.len(), None);
        for cidr in ranges {
            let Some(known) = self.blocks.get_mut(&cidr) else { continue };
            let Some(grace) = grace.filter(|_| known.is_idle && left > 1 && !is_migrating) else {
                known.idle_since = None;
                continue;
            };
            let since = *known.idle_since.get_or_insert(now);
            if is_over(since, grace, now) {
                let node = name.as_ref().to_owned();
                verdicts.idle_blocks.push(IdleBlock { cidr, node, blocks_of_node: left });
                left -= 1;
            } else {
                due = earlier(due, since, grace);
            }
        }
        due
    }

    /// Confirmed leaks whose handle holds nothing else. A handle is released as a whole or not at all: if one address
    /// of a pod is in use, the others stay, too.
    fn leaks(&self) -> Vec<Leak> {
        let is_confirmed = |place: &Place| self.confirmed.contains(place);
        let mut leaks = Vec::new();
        for place in &self.confirmed {
            let Some(entry) = self.entry_at(*place) else { continue };
            let Suspicion::Confirmed { since, reason, node } = &entry.suspicion else { continue };
            if !self.handles.get(&entry.handle).is_some_and(|places| places.iter().all(is_confirmed)) {
                continue;
            }
            leaks.push(Leak {
                address: entry.address,
                block: place.0,
                handle: entry.handle.clone(),
                sequence_number: entry.sequence_number,
                holder: entry.holder.clone(),
                node: entry.node.as_deref().unwrap_or_default().to_owned(),
                kubernetes_node: node.as_ref().to_owned(),
                since: *since,
                reason: reason.clone(),
            });
        }
        leaks
    }

    /// Checks a leak again, against the live cluster. If it is no longer a leak, its suspicion ends.
    pub fn still_leaked(&mut self, leak: &Leak, world: &(impl World + ?Sized)) -> bool {
        let is_leaked = match leak.holder {
            Holder::Tunnel => matches!(world.node(&leak.node), NodeFact::Gone { .. }),
            _ => judge(&leak.holder, leak.address, &leak.kubernetes_node, world).is_some(),
        };
        if let (false, Some(place)) = (is_leaked, self.place_of(leak)) {
            self.acquit(place);
            if let Some(node) = self.entry_at(place).and_then(|entry| entry.node.clone()) {
                self.leaving.remove(&node);
                // The cache was outdated, or the API did not answer: either way the node must be examined again.
                self.dirty.insert(node);
            }
        }
        is_leaked
    }

    /// Records that a leak was released, or was no longer allocated. The feed will report the same, later.
    pub fn released(&mut self, leak: &Leak) {
        let Some(place) = self.place_of(leak) else { return };
        let entry = self.blocks.get_mut(&place.0).and_then(|known| known.entries.remove(&place.1));
        if let Some(entry) = entry {
            self.unlink(place, &entry);
        }
    }

    /// Records that the claims of a node that is gone were given up.
    pub fn node_released(&mut self, name: &str) {
        self.leaving.remove(name);
        // The feed removes its blocks; until then there is nothing to examine, unless addresses are left.
        if self.nodes.get(name).is_none_or(|node| node.places.is_empty()) {
            self.dirty.remove(name);
        }
    }

    /// How many confirmed leaks have not been released yet.
    #[must_use]
    pub fn confirmed(&self) -> usize {
        self.confirmed.len()
    }

    /// How many allocations are known.
    #[must_use]
    pub fn allocations(&self) -> usize {
        self.blocks.values().map(|known| known.entries.len()).sum()
    }
}

/// Whether the pod may have got this address a moment ago without having reported it yet.
fn is_maybe_restarting(reason: &Reason, kubernetes: &str) -> bool {
    !kubernetes.is_empty()
        && matches!(reason, Reason::PodHasOthers { addresses, .. } if !addresses.is_empty())
}

/// Whether two entries are equal in everything that matters for the suspicion.
fn is_same(one: &Entry, other: &Entry) -> bool {
    one.handle == other.handle
        && one.sequence_number == other.sequence_number
        && one.holder == other.holder
        && one.node == other.node
}

fn is_over(since: Timestamp, patience: SignedDuration, now: Timestamp) -> bool {
    now.duration_since(since) > patience
}

/// The earlier of a time and the end of a waiting period.
fn earlier(due: Option<Timestamp>, since: Timestamp, patience: SignedDuration) -> Option<Timestamp> {
    let end = since.checked_add(patience).ok()?.checked_add(SignedDuration::from_millis(1)).ok()?;
    Some(due.map_or(end, |due| due.min(end)))
}

/// The time at which an address has rested.
fn rested_at(since: Timestamp, settings: &Settings) -> Option<Timestamp> {
    let rest = SignedDuration::from_secs(i64::from(settings.cooldown_seconds.max(0)));
    since.checked_add(rest).ok()?.checked_add(SignedDuration::from_secs(1)).ok()
}

#[cfg(test)]
mod tests;
