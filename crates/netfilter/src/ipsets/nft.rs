//! Sets of our nftables table.
//!
//! Each apply is one transaction: sets are created, and members added and removed, all at once. Networks become ranges;
//! a network inside another one is left out, because the kernel accepts no overlapping ranges.

use super::cover::Cover;
use super::{IpSetDriver, Metrics};
use crate::driver::{Applied, ApplyError};
use crate::nftables::transient;
use crate::refused::{Refused, SetFault};
use delta::{Operation, SetDelta};
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType};
use netlink::netfilter::nft::{
    Change, Client, CommitRefused, Element, ElementFound, Family, Key, KeyType, Set, SetFound, Table,
};
use netlink::netfilter::{Error, Result};
use rules::names::ip_set;
use rules::nftables::{TABLE_NAME, set_name};
use rules::tree::IpVersion;
use rules::tree::SetName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// How soon a set that was in use is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The kernel operations that the driver needs.
pub trait NftSetKernel {
    /// Returns the sets of a table, without its maps, and their members.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn read_sets(&mut self, table: &Table) -> Result<Vec<(SetFound, Vec<ElementFound>)>>;

    /// Carries out all changes or none.
    ///
    /// # Errors
    /// The outer error when the kernel cannot be reached; the inner one names the refused changes.
    fn commit(&mut self, table: &Table, changes: &[Change])
    -> Result<std::result::Result<(), CommitRefused>>;
}

impl NftSetKernel for Client {
    fn read_sets(&mut self, table: &Table) -> Result<Vec<(SetFound, Vec<ElementFound>)>> {
        let sets = self.sets(table)?;
        let sets = sets.into_iter().filter(|set| !set.map);
        sets.map(|set| self.elements(table, &set).map(|elements| (set, elements))).collect()
    }

    fn commit(
        &mut self,
        table: &Table,
        changes: &[Change],
    ) -> Result<std::result::Result<(), CommitRefused>> {
        Client::commit(self, table, changes)
    }
}

/// The properties of a set other than its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    key: KeyType,
    interval: bool,
}

#[derive(Debug, Default)]
struct State {
    wanted: Option<(Kind, IpSetType)>,
    /// Whether it exists, and with which properties; `Some(None)` for a kind that we never create.
    actual: Option<Option<Kind>>,
    members: SetDelta<Element>,
    cover: Cover,
}

/// What a change belongs to.
#[derive(Clone, Debug)]
enum Origin {
    Table,
    Set(SetName),
    Members(SetName, Vec<Element>),
}

/// The driver of one IP version's sets in our nftables table.
#[derive(Debug)]
pub struct NftSets<K> {
    kernel: K,
    version: IpVersion,
    table: Table,
    sets: BTreeMap<SetName, State>,
    dirty: BTreeSet<SetName>,
    in_sync: bool,
    held: bool,
    refused: super::RefusedMembers<Element>,
    /// Sets that are emptied and filled in the same transaction: kernels before 6.x confuse removed ranges with new
    /// ones in their place.
    rebuilt: BTreeSet<SetName>,
    /// Sets of which each member is a separate change, because one of them was refused.
    separate: BTreeSet<SetName>,
    metrics: Metrics,
}

impl<K: NftSetKernel> NftSets<K> {
    /// A driver that wants no sets.
    pub fn new(kernel: K, version: IpVersion) -> Self {
        let family = match version {
            IpVersion::V4 => Family::Ip,
            IpVersion::V6 => Family::Ip6,
        };
        Self {
            kernel,
            version,
            table: Table::new(family, TABLE_NAME),
            sets: BTreeMap::new(),
            dirty: BTreeSet::new(),
            in_sync: false,
            held: false,
            refused: BTreeMap::new(),
            rebuilt: BTreeSet::new(),
            separate: BTreeSet::new(),
            metrics: Metrics::default(),
        }
    }

    /// The underlying kernel.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    fn name(&self, id: &str) -> SetName {
        set_name(&ip_set(self.version, id)).into()
    }

    fn kind(&self, set_type: IpSetType) -> Kind {
        let v6 = self.version == IpVersion::V6;
        let key = match (set_type, v6) {
            (IpSetType::Ip | IpSetType::Net, false) => KeyType::Ipv4,
            (IpSetType::Ip | IpSetType::Net, true) => KeyType::Ipv6,
            (IpSetType::IpAndPort, false) => KeyType::Ipv4ProtocolPort,
            (IpSetType::IpAndPort, true) => KeyType::Ipv6ProtocolPort,
        };
        Kind { key, interval: set_type == IpSetType::Net }
    }

    fn desire(&mut self, name: &SetName, member: &IpSetMember, present: bool) {
        if member.is_ipv6() != (self.version == IpVersion::V6) {
            return;
        }
        let Some(state) = self.sets.get_mut(name) else { return };
        let Some((_, set_type)) = state.wanted else { return };
        let single = match (set_type, member) {
            (IpSetType::Ip, IpSetMember::Ip(address)) => Key::address(*address),
            (IpSetType::Ip, IpSetMember::Net(net)) if net.prefix_len() == net.max_prefix_len() => {
                Key::address(net.addr())
            }
            (IpSetType::IpAndPort, IpSetMember::IpAndPort { address, protocol, port }) => {
                Key::address_port(*address, *protocol, *port)
            }
            (IpSetType::Net, IpSetMember::Net(_) | IpSetMember::Ip(_)) => {
                let net = match member {
                    IpSetMember::Net(net) => *net,
                    IpSetMember::Ip(address) => IpNet::from(*address),
                    IpSetMember::IpAndPort { .. } => return,
                };
                let change = if present { state.cover.add(net) } else { state.cover.remove(net) };
                for net in change.removed {
                    state.members.remove_desired(&range(net));
                }
                for net in change.added {
                    state.members.set_desired(range(net), ());
                }
                return;
            }
            _ => {
                tracing::warn!(set = %name, %member, "a member does not fit the set's type");
                return;
            }
        };
        if present {
            state.members.set_desired(Element::Single(single), ());
        } else {
            state.members.remove_desired(&Element::Single(single));
        }
    }

    fn read(&mut self) -> Result<()> {
        let mut found: BTreeMap<SetName, (SetFound, Vec<ElementFound>)> = self
            .kernel
            .read_sets(&self.table)?
            .into_iter()
            .map(|(set, elements)| (set.name.as_str().into(), (set, elements)))
            .collect();
        for (name, state) in &mut self.sets {
            if !found.contains_key(name) && state.actual.is_some() {
                state.actual = None;
                state.members.replace_actual([]);
                self.dirty.insert(name.clone());
            }
        }
        while let Some((name, (set, elements))) = found.pop_first() {
            let state = self.sets.entry(name.clone()).or_default();
            state.actual = Some(set.key.map(|key| Kind { key, interval: set.interval }));
            state.members.replace_actual(elements.into_iter().map(|element| match element {
                ElementFound::Known(element) => (element, ()),
                ElementFound::Foreign(key) => (Element::Single(key), ()),
            }));
            if state.actual != Some(state.wanted.map(|(kind, _)| kind)) || !state.members.is_in_sync() {
                self.dirty.insert(name);
            }
        }
        self.sets.retain(|_, state| state.wanted.is_some() || state.actual.is_some());
        self.in_sync = true;
        Ok(())
    }

    /// The transaction that creates and fills the wanted sets.
    fn plan(&self) -> (Vec<Change>, Vec<Origin>) {
        let (mut changes, mut origins) = (vec![Change::AddTable], vec![Origin::Table]);
        for name in &self.dirty {
            let Some((state, (kind, _))) = self.sets.get(name).and_then(|state| Some((state, state.wanted?)))
            else {
                continue;
            };
            if self.refused.contains_key(&(name.clone(), None)) || (self.held && state.actual.is_some()) {
                continue;
            }
            if state.actual.is_none() {
                let set = Set {
                    name: name.text().clone(),
                    key: kind.key,
                    interval: kind.interval,
                    verdicts: false,
                };
                changes.push(Change::AddSet(set));
                origins.push(Origin::Set(name.clone()));
            }
            let (mut added, mut removed) = (Vec::new(), Vec::new());
            if self.rebuilt.contains(name) && state.actual.is_some() {
                changes.push(Change::FlushSet(name.text().clone()));
                origins.push(Origin::Set(name.clone()));
                added.extend(state.members.all_desired().map(|(element, ())| element.clone()));
            } else {
                for operation in state.members.pending() {
                    match operation {
                        Operation::Create(element, ()) => added.push(element.clone()),
                        Operation::Remove(element, ()) => removed.push(element.clone()),
                        Operation::Replace(..) => {}
                    }
                }
            }
            added.retain(|element| !self.refused.contains_key(&(name.clone(), Some(element.clone()))));
            let size = if self.separate.contains(name) { 1 } else { usize::MAX };
            for (all, add) in [(removed, false), (added, true)] {
                for part in all.chunks(size.min(all.len().max(1))) {
                    let (set, elements) = (name.text().clone(), part.to_vec());
                    origins.push(Origin::Members(name.clone(), elements.clone()));
                    changes.push(match add {
                        true => Change::AddElements { set, elements },
                        false => Change::DeleteElements { set, elements },
                    });
                }
            }
        }
        (changes, origins)
    }

    fn accept(&mut self) {
        for name in std::mem::take(&mut self.dirty) {
            let Some(state) = self.sets.get_mut(&name) else { continue };
            let Some((kind, _)) = state.wanted.filter(|_| !self.held || state.actual.is_none()) else {
                self.dirty.insert(name);
                continue;
            };
            if self.refused.contains_key(&(name.clone(), None)) {
                continue;
            }
            state.actual = Some(Some(kind));
            if !self.refused.keys().any(|(set, _)| *set == name) {
                state.members.accept_all();
                continue;
            }
            let refused = &self.refused;
            let done: Vec<Element> = state
                .members
                .pending()
                .map(|operation| match operation {
                    Operation::Create(element, ()) | Operation::Remove(element, ()) => element.clone(),
                    Operation::Replace(element, ..) => element.clone(),
                })
                .filter(|element| !refused.contains_key(&(name.clone(), Some(element.clone()))))
                .collect();
            done.iter().for_each(|element| state.members.accept(element));
        }
    }

    /// Finds the refused parts; returns false when there is nothing more to find.
    fn blame(&mut self, origins: &[Origin], refused: &CommitRefused) -> bool {
        let mut progress = false;
        // One step for each set: further refusals may only be consequences of the first.
        let mut stepped = BTreeSet::new();
        for (index, refusal) in &refused.refused {
            match origins.get(*index) {
                Some(Origin::Members(name, _)) if stepped.contains(name) => {}
                Some(Origin::Set(name)) => {
                    tracing::warn!(set = %name, %refusal, "the kernel refused a set");
                    progress |= self.refused.insert((name.clone(), None), refusal.to_string()).is_none();
                }
                // The set itself is at fault, not the member.
                Some(Origin::Members(name, _)) if self.refused.contains_key(&(name.clone(), None)) => {}
                Some(Origin::Members(name, elements)) => {
                    if self.rebuilt.insert(name.clone()) {
                        stepped.insert(name.clone());
                        progress = true;
                    } else if let [element] = elements.as_slice() {
                        tracing::warn!(set = %name, member = %describe(element), %refusal, "the kernel refused a member");
                        let key = (name.clone(), Some(element.clone()));
                        progress |= self.refused.insert(key, refusal.to_string()).is_none();
                    } else {
                        stepped.insert(name.clone());
                        progress |= self.separate.insert(name.clone());
                    }
                }
                Some(Origin::Table) | None => {}
            }
        }
        progress
    }

    fn give_up(&mut self, refused: &CommitRefused) -> ApplyError {
        self.in_sync = false;
        ApplyError::Refused {
            table: format!("sets of nftables table {}", self.table),
            reason: refused.to_string(),
        }
    }
}

impl<K: NftSetKernel> IpSetDriver for NftSets<K> {
    fn update_set(&mut self, id: &str, set_type: IpSetType, members: &[IpSetMember]) {
        let name = self.name(id);
        let kind = self.kind(set_type);
        self.refused.retain(|(set, _), _| *set != name);
        let state = self.sets.entry(name.clone()).or_default();
        state.wanted = Some((kind, set_type));
        state.cover = Cover::default();
        state.members.replace_desired([]);
        members.iter().for_each(|member| self.desire(&name, member, true));
        self.dirty.insert(name);
    }

    fn update_members(&mut self, id: &str, added: &[IpSetMember], removed: &[IpSetMember]) {
        let name = self.name(id);
        if self.sets.get(&name).is_none_or(|state| state.wanted.is_none()) {
            tracing::error!(set = %name, "changed members of a set that was never defined");
            return;
        }
        removed.iter().for_each(|member| self.desire(&name, member, false));
        added.iter().for_each(|member| self.desire(&name, member, true));
        self.dirty.insert(name);
    }

    fn remove_set(&mut self, id: &str) {
        let name = self.name(id);
        self.refused.retain(|(set, _), _| *set != name);
        let Some(state) = self.sets.get_mut(&name) else { return };
        state.wanted = None;
        state.cover = Cover::default();
        state.members.replace_desired([]);
        if state.actual.is_none() {
            self.sets.remove(&name);
        }
        self.dirty.insert(name);
    }

    fn invalidate(&mut self) {
        self.in_sync = false;
        self.retry_refused();
    }

    fn retry_refused(&mut self) {
        // Refused changes may be possible by now.
        for ((name, _), _) in std::mem::take(&mut self.refused) {
            self.dirty.insert(name);
        }
    }

    fn hold(&mut self, hold: bool) {
        self.held = hold;
    }

    fn apply_updates(&mut self) -> std::result::Result<Applied, ApplyError> {
        let mut reread = !self.in_sync;
        if !self.in_sync {
            self.read()?;
        }
        self.separate.clear();
        self.rebuilt.clear();
        for (name, state) in &self.sets {
            // A set cannot change its type, and rules refer to it: it stays as it is, and is reported.
            if let (Some((kind, _)), Some(actual)) = (state.wanted, state.actual)
                && actual != Some(kind)
            {
                let reason = "a set of another type has this name, and rules may refer to it".to_owned();
                self.refused.insert((name.clone(), None), reason);
            }
        }
        loop {
            let (changes, origins) = self.plan();
            if changes.len() <= 1 {
                self.accept();
                return Ok(Applied::default());
            }
            self.metrics.calls += 1;
            // The transaction may have been carried out even if its answer was lost.
            let outcome = self.kernel.commit(&self.table, &changes).inspect_err(|_| self.in_sync = false);
            let refused = match outcome? {
                Ok(()) => {
                    self.metrics.operations += u64::try_from(changes.len()).unwrap_or(0);
                    self.accept();
                    return Ok(Applied { wrote: true, again_in: None });
                }
                Err(refused) => refused,
            };
            self.metrics.errors += 1;
            if let Some(refusal) = transient(&refused) {
                self.in_sync = false;
                let what = format!("change the sets of table {}", self.table);
                return Err(Error::Refused { what, refusal: refusal.clone() }.into());
            }
            if !reread {
                reread = true;
                self.read()?;
            } else if !self.blame(&origins, &refused) {
                return Err(self.give_up(&refused));
            }
        }
    }

    fn apply_deletions(&mut self) -> std::result::Result<Applied, ApplyError> {
        let mut unwanted: Vec<SetName> = self
            .sets
            .iter()
            .filter(|(_, state)| state.wanted.is_none() && state.actual.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let mut applied = Applied::default();
        while !unwanted.is_empty() {
            let changes: Vec<Change> =
                unwanted.iter().map(|name| Change::DeleteSet(name.text().clone())).collect();
            self.metrics.calls += 1;
            match self.kernel.commit(&self.table, &changes)? {
                Ok(()) => {
                    applied.wrote = true;
                    for name in &unwanted {
                        self.sets.remove(name);
                        self.dirty.remove(name);
                    }
                    break;
                }
                Err(refused) if refused.refused.is_empty() => return Err(self.give_up(&refused)),
                Err(refused) => {
                    // Sets that rules still refer to are retried later; for those that are gone already, nothing is
                    // left to do.
                    let at_fault: BTreeMap<usize, bool> = refused
                        .refused
                        .iter()
                        .map(|(index, refusal)| (*index, refusal.is_missing()))
                        .collect();
                    for (index, name) in unwanted.iter().enumerate() {
                        match at_fault.get(&index) {
                            Some(true) => {
                                self.sets.remove(name);
                            }
                            Some(false) => applied.again_in = Some(RETRY),
                            None => {}
                        }
                    }
                    let mut index = 0;
                    unwanted.retain(|_| {
                        index += 1;
                        !at_fault.contains_key(&(index - 1))
                    });
                }
            }
        }
        Ok(applied)
    }

    fn refused(&self) -> Vec<Refused> {
        super::describe_refused(&self.refused, describe)
    }

    fn faults(&self) -> BTreeMap<SetName, SetFault> {
        super::faults(&self.refused, |name, member| {
            self.sets.get(name).is_some_and(|state| state.members.desired(member).is_some())
        })
    }

    fn metrics(&self) -> Metrics {
        Metrics { sets: self.sets.values().filter(|state| state.wanted.is_some()).count(), ..self.metrics }
    }
}

fn range(net: IpNet) -> Element {
    Element::Range(Key::address(net.network()), Key::address(net.broadcast()))
}

fn describe(element: &Element) -> String {
    let one = |key: &Key| {
        let bytes = key.as_bytes();
        match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes)
                .map(|octets| Ipv4Addr::from(octets).to_string())
                .unwrap_or_default(),
            16 => <[u8; 16]>::try_from(bytes)
                .map(|octets| Ipv6Addr::from(octets).to_string())
                .unwrap_or_default(),
            length => {
                let (address, rest) = bytes.split_at(length.saturating_sub(8));
                let address = match address.len() {
                    4 => <[u8; 4]>::try_from(address).ok().map(|octets| IpAddr::from(Ipv4Addr::from(octets))),
                    _ => {
                        <[u8; 16]>::try_from(address).ok().map(|octets| IpAddr::from(Ipv6Addr::from(octets)))
                    }
                };
                match (address, rest) {
                    (Some(address), [protocol, _, _, _, high, low, ..]) => IpSetMember::IpAndPort {
                        address,
                        protocol: *protocol,
                        port: u16::from_be_bytes([*high, *low]),
                    }
                    .to_string(),
                    _ => format!("{key:?}"),
                }
            }
        }
    };
    match element {
        Element::Single(key) | Element::Verdict(key, _) => one(key),
        Element::Range(first, last) if first == last => one(first),
        Element::Range(first, last) => format!("{}-{}", one(first), one(last)),
    }
}
