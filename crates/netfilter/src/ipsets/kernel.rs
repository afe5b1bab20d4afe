//! Sets of the `ip_set` subsystem, which iptables rules refer to.
//!
//! A set of the right type and size is changed member by member. A set that has to be recreated is filled under another
//! name and swapped in, so that rules never see it half full. Our sets are recognised by their names.

use super::{IpSetDriver, Metrics};
use crate::driver::{Applied, ApplyError};
use crate::refused::{Refused, SetFault};
use delta::{Operation, SetDelta};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use messages::{IpSetMember, IpSetType};
use netlink::netfilter::ipset::{self, Member, SetFound, SetHeader, SetType};
use netlink::netfilter::{Error, Refusal, Result};
use rules::names::ip_set;
use rules::tree::IpVersion;
use rules::tree::SetName;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How soon a set that was in use is retried.
const RETRY: Duration = Duration::from_secs(1);

/// The kernel operations that the driver needs.
pub trait SetKernel {
    /// Returns the names of all sets.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn names(&mut self) -> Result<Vec<String>>;

    /// Reads one set with its members; `None` when no set has this name.
    ///
    /// # Errors
    /// When the kernel cannot be read.
    fn read(&mut self, name: &str) -> Result<Option<SetFound>>;

    /// Creates a set.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn create(&mut self, name: &str, header: &SetHeader) -> Result<()>;

    /// Removes a set.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn destroy(&mut self, name: &str) -> Result<()>;

    /// Exchanges the contents of two sets.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn swap(&mut self, first: &str, second: &str) -> Result<()>;

    /// Adds members; returns the refused ones.
    ///
    /// # Errors
    /// When the socket fails.
    fn add(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>>;

    /// Removes members; returns the refused ones.
    ///
    /// # Errors
    /// When the socket fails.
    fn delete(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>>;
}

impl SetKernel for ipset::Client {
    fn names(&mut self) -> Result<Vec<String>> {
        ipset::Client::names(self)
    }

    fn read(&mut self, name: &str) -> Result<Option<SetFound>> {
        ipset::Client::read(self, name)
    }

    fn create(&mut self, name: &str, header: &SetHeader) -> Result<()> {
        ipset::Client::create(self, name, header)
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        ipset::Client::destroy(self, name)
    }

    fn swap(&mut self, first: &str, second: &str) -> Result<()> {
        ipset::Client::swap(self, first, second)
    }

    fn add(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        ipset::Client::add(self, name, members)
    }

    fn delete(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        ipset::Client::delete(self, name, members)
    }
}

/// One set: its desired and actual properties, and the desired and actual members.
#[derive(Debug, Default)]
struct State {
    wanted: Option<SetHeader>,
    /// Whether it exists, and with which header; `Some(None)` for a type that we never create.
    actual: Option<Option<SetHeader>>,
    members: SetDelta<Member>,
    /// Whether a network of length 0 is wanted, which no set can hold as it is.
    whole: bool,
    /// The halves of that network that are wanted by themselves.
    halves: BTreeSet<Member>,
}

/// The driver of one IP version's sets in the kernel.
#[derive(Debug)]
pub struct KernelSets<K> {
    kernel: K,
    version: IpVersion,
    max_elements: u32,
    sets: BTreeMap<SetName, State>,
    dirty: BTreeSet<SetName>,
    in_sync: bool,
    held: bool,
    next_temporary: u64,
    refused: super::RefusedMembers<Member>,
    metrics: Metrics,
}

impl<K: SetKernel> KernelSets<K> {
    /// A driver that wants no sets. `max_elements` is the maximum number of members of a set.
    pub fn new(kernel: K, version: IpVersion, max_elements: u32) -> Self {
        Self {
            kernel,
            version,
            max_elements,
            sets: BTreeMap::new(),
            dirty: BTreeSet::new(),
            in_sync: false,
            held: false,
            next_temporary: 0,
            refused: BTreeMap::new(),
            metrics: Metrics::default(),
        }
    }

    /// The underlying kernel.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    fn is_v6(&self) -> bool {
        self.version == IpVersion::V6
    }

    /// Whether a set of this name is ours and of this version, by the current or a former naming.
    fn owns(&self, name: &str) -> bool {
        let prefixes: &[&str] = match self.version {
            IpVersion::V4 => &["cali4", "felix-4", "felix-masq-ipam-pools", "felix-all-ipam-pools"],
            IpVersion::V6 => &["cali6", "felix-6"],
        };
        prefixes.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Records a desired member in the form that the kernel can hold: a network of length 0 becomes its two halves.
    fn desire(&mut self, name: &SetName, member: &IpSetMember, present: bool) {
        if member.is_ipv6() != self.is_v6() {
            return;
        }
        let version_is_v6 = self.is_v6();
        let Some(state) = self.sets.get_mut(name) else { return };
        let Some(header) = state.wanted else { return };
        let Some(member) = convert(header.set_type, member) else {
            tracing::warn!(set = %name, %member, "a member does not fit the set's type");
            return;
        };
        let halves = halves(version_is_v6);
        let touched = match member {
            Member::Net(net) if net.prefix_len() == 0 => {
                state.whole = present;
                halves.to_vec()
            }
            member if halves.contains(&member) => {
                if present {
                    state.halves.insert(member)
                } else {
                    state.halves.remove(&member)
                };
                vec![member]
            }
            member => {
                if present {
                    state.members.set_desired(member, ());
                } else {
                    state.members.remove_desired(&member);
                }
                return;
            }
        };
        for half in touched {
            if state.whole || state.halves.contains(&half) {
                state.members.set_desired(half, ());
            } else {
                state.members.remove_desired(&half);
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        let names: BTreeSet<SetName> =
            self.kernel.names()?.into_iter().filter(|name| self.owns(name)).map(SetName::from).collect();
        for (name, state) in &mut self.sets {
            if !names.contains(name) && state.actual.is_some() {
                state.actual = None;
                state.members.replace_actual([]);
                self.dirty.insert(name.clone());
            }
        }
        for name in names {
            let Some(found) = self.kernel.read(&name)? else { continue };
            let state = self.sets.entry(name.clone()).or_default();
            state.actual = Some(found.header);
            state.members.replace_actual(found.members.into_iter().map(|member| (member, ())));
            if state.wanted.is_none() || state.actual != Some(state.wanted) || !state.members.is_in_sync() {
                self.dirty.insert(name);
            }
        }
        self.sets.retain(|_, state| state.wanted.is_some() || state.actual.is_some());
        self.in_sync = true;
        Ok(())
    }

    /// Brings one set to its desired state; returns whether anything was written.
    fn write(&mut self, name: &SetName) -> Result<bool> {
        self.refused.retain(|(set, _), _| set != name);
        let Some(state) = self.sets.get(name) else { return Ok(false) };
        let Some(header) = state.wanted else { return Ok(false) };
        match state.actual {
            None => self.create_filled(name, name, &header)?,
            Some(Some(actual)) if actual == header => return self.update(name),
            Some(_) => {
                let temporary = self.temporary_name();
                self.create_filled(name, &temporary, &header)?;
                let swapped = self.kernel.swap(name, &temporary);
                // After a swap this is the old set, otherwise the unused new one.
                if let Err(error) = self.kernel.destroy(&temporary) {
                    tracing::warn!(set = %temporary, %error, "a set that is no longer used remains for now");
                    let state = self.sets.entry(temporary.as_str().into()).or_default();
                    state.actual = Some(Some(header));
                }
                swapped?;
                self.metrics.operations += 2;
            }
        }
        if let Some(state) = self.sets.get_mut(name) {
            state.actual = Some(Some(header));
            let refused = &self.refused;
            let held: Vec<Member> = state
                .members
                .all_desired()
                .map(|(member, ())| *member)
                .filter(|member| !refused.contains_key(&(name.clone(), Some(*member))))
                .collect();
            state.members.replace_actual(held.into_iter().map(|member| (member, ())));
        }
        Ok(true)
    }

    /// Creates a set under `as_name` with all desired members of `name`.
    fn create_filled(&mut self, name: &SetName, as_name: &str, header: &SetHeader) -> Result<()> {
        self.kernel.create(as_name, header)?;
        self.metrics.operations += 1;
        let members: Vec<Member> = self
            .sets
            .get(name)
            .into_iter()
            .flat_map(|state| state.members.all_desired())
            .map(|(one, ())| *one)
            .collect();
        let refused = if members.is_empty() { Vec::new() } else { self.kernel.add(as_name, &members)? };
        no_passing(as_name, &refused)?;
        self.metrics.operations += u64::try_from(members.len()).unwrap_or(0);
        self.note_refused(name, refused);
        Ok(())
    }

    /// Changes the members of a set whose type and size are right.
    fn update(&mut self, name: &SetName) -> Result<bool> {
        let Some(state) = self.sets.get(name) else { return Ok(false) };
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for operation in state.members.pending() {
            match operation {
                Operation::Create(member, ()) => added.push(*member),
                Operation::Remove(member, ()) => removed.push(*member),
                Operation::Replace(..) => {}
            }
        }
        if added.is_empty() && removed.is_empty() {
            return Ok(false);
        }
        self.metrics.operations += u64::try_from(added.len() + removed.len()).unwrap_or(0);
        // Additions come first: a member that is replaced by a wider one is matched all the time.
        let mut refused = if added.is_empty() { Vec::new() } else { self.kernel.add(name, &added)? };
        no_passing(name, &refused)?;
        let not_removed = if removed.is_empty() { Vec::new() } else { self.kernel.delete(name, &removed)? };
        no_passing(name, &not_removed)?;
        let again: Vec<Member> = refused
            .iter()
            .filter(|(_, refusal)| refusal.code == ipset::ERROR_FULL && !removed.is_empty())
            .map(|(member, _)| *member)
            .collect();
        if !again.is_empty() {
            // There was no room before others were removed.
            refused.retain(|(member, _)| !again.contains(member));
            refused.extend(self.kernel.add(name, &again)?);
            no_passing(name, &refused)?;
        }
        if let Some(state) = self.sets.get_mut(name) {
            added
                .iter()
                .filter(|one| !refused.iter().any(|(other, _)| other == *one))
                .for_each(|one| state.members.accept(one));
            removed
                .iter()
                .filter(|one| !not_removed.iter().any(|(other, _)| other == *one))
                .for_each(|one| state.members.accept(one));
        }
        refused.extend(not_removed);
        self.note_refused(name, refused);
        Ok(true)
    }

    fn note_refused(&mut self, name: &SetName, refused: Vec<(Member, Refusal)>) {
        for (member, refusal) in refused {
            tracing::warn!(set = %name, member = %describe(&member), %refusal, "the kernel refused a member");
            self.refused.insert((name.clone(), Some(member)), refusal.to_string());
        }
    }

    fn temporary_name(&mut self) -> String {
        loop {
            let name = format!("cali{}t{}", self.version, self.next_temporary);
            self.next_temporary += 1;
            if !self.sets.contains_key(name.as_str()) {
                return name;
            }
        }
    }
}

impl<K: SetKernel> IpSetDriver for KernelSets<K> {
    fn update_set(&mut self, id: &str, set_type: IpSetType, members: &[IpSetMember]) {
        let name = ip_set(self.version, id);
        let set_type = match set_type {
            IpSetType::Ip => SetType::HashIp,
            IpSetType::Net => SetType::HashNet,
            IpSetType::IpAndPort => SetType::HashIpPort,
        };
        let family = if self.is_v6() { netlink::Family::V6 } else { netlink::Family::V4 };
        let state = self.sets.entry(name.clone()).or_default();
        state.wanted = Some(SetHeader { set_type, family, max_elements: self.max_elements });
        state.whole = false;
        state.halves.clear();
        state.members.replace_desired([]);
        for member in members {
            self.desire(&name, member, true);
        }
        self.dirty.insert(name);
    }

    fn update_members(&mut self, id: &str, added: &[IpSetMember], removed: &[IpSetMember]) {
        let name = ip_set(self.version, id);
        if self.sets.get(&name).is_none_or(|state| state.wanted.is_none()) {
            tracing::error!(set = %name, "changed members of a set that was never defined");
            return;
        }
        removed.iter().for_each(|member| self.desire(&name, member, false));
        added.iter().for_each(|member| self.desire(&name, member, true));
        self.dirty.insert(name);
    }

    fn remove_set(&mut self, id: &str) {
        let name = ip_set(self.version, id);
        self.refused.retain(|(set, _), _| *set != name);
        let Some(state) = self.sets.get_mut(&name) else { return };
        state.wanted = None;
        state.members.replace_desired([]);
        if state.actual.is_none() {
            self.sets.remove(&name);
        }
        self.dirty.insert(name);
    }

    fn invalidate(&mut self) {
        self.in_sync = false;
    }

    fn retry_refused(&mut self) {
        self.dirty.extend(self.refused.keys().map(|(name, _)| name.clone()));
    }

    fn hold(&mut self, hold: bool) {
        self.held = hold;
    }

    fn apply_updates(&mut self) -> std::result::Result<Applied, ApplyError> {
        if !self.in_sync {
            self.read()?;
        }
        let mut wrote = false;
        let mut dirty = std::mem::take(&mut self.dirty);
        while let Some(name) = dirty.pop_first() {
            if self.held && self.sets.get(&name).is_some_and(|state| state.actual.is_some()) {
                self.dirty.insert(name);
                continue;
            }
            match self.write(&name) {
                Ok(changed) => {
                    wrote |= changed;
                    self.metrics.calls += u64::from(changed);
                    if self.sets.get(&name).is_some_and(|state| state.wanted.is_none()) {
                        self.dirty.insert(name);
                    }
                }
                Err(Error::Refused { what, refusal }) if !refusal.is_passing() => {
                    // One set does not stop the others; it is read again before the next attempt.
                    tracing::warn!(set = %name, what, %refusal, "the kernel refused a set");
                    self.metrics.errors += 1;
                    self.refused.insert((name.clone(), None), refusal.to_string());
                    self.dirty.insert(name);
                    self.in_sync = false;
                }
                Err(error) => {
                    self.metrics.errors += 1;
                    self.dirty.insert(name);
                    self.dirty.append(&mut dirty);
                    self.in_sync = false;
                    return Err(error.into());
                }
            }
        }
        let again_in = (!self.in_sync).then_some(RETRY);
        Ok(Applied { wrote, again_in })
    }

    fn apply_deletions(&mut self) -> std::result::Result<Applied, ApplyError> {
        let unwanted: Vec<SetName> = self
            .sets
            .iter()
            .filter(|(_, state)| state.wanted.is_none() && state.actual.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let mut applied = Applied::default();
        for name in unwanted {
            match self.kernel.destroy(&name) {
                Err(Error::Refused { refusal, .. }) if refusal.is_busy() => {
                    tracing::debug!(set = %name, "the set is still in use");
                    applied.again_in = Some(RETRY);
                    continue;
                }
                Err(Error::Refused { refusal, .. }) if refusal.is_missing() => {}
                outcome => outcome?,
            }
            applied.wrote = true;
            self.metrics.operations += 1;
            self.sets.remove(&name);
            self.dirty.remove(&name);
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

/// A transient refusal is not the fault of a member: the set is read and written again.
fn no_passing(name: &str, refused: &[(Member, Refusal)]) -> Result<()> {
    match refused.iter().find(|(_, refusal)| refusal.is_passing()) {
        None => Ok(()),
        Some((_, refusal)) => {
            let what = format!("change the members of set {name}");
            Err(Error::Refused { what, refusal: refusal.clone() })
        }
    }
}

/// The two halves of a network of length 0.
fn halves(v6: bool) -> [Member; 2] {
    if v6 {
        let half = |first: u16| Ipv6Net::new_assert([first, 0, 0, 0, 0, 0, 0, 0].into(), 1);
        return [0, 0x8000].map(|first| Member::Net(IpNet::V6(half(first))));
    }
    [0, 128].map(|first| Member::Net(IpNet::V4(Ipv4Net::new_assert([first, 0, 0, 0].into(), 1))))
}

/// A member in the form of the set's type; `None` if it does not fit.
fn convert(set_type: SetType, member: &IpSetMember) -> Option<Member> {
    Some(match (set_type, member) {
        (SetType::HashIp, IpSetMember::Ip(address)) => Member::Address(*address),
        (SetType::HashIp, IpSetMember::Net(net)) if net.prefix_len() == net.max_prefix_len() => {
            Member::Address(net.addr())
        }
        (SetType::HashNet, IpSetMember::Net(net)) => Member::Net(net.trunc()),
        (SetType::HashNet, IpSetMember::Ip(address)) => Member::Net(IpNet::from(*address)),
        (SetType::HashIpPort, IpSetMember::IpAndPort { address, protocol, port }) => {
            Member::AddressPort(*address, *protocol, *port)
        }
        _ => return None,
    })
}

fn describe(member: &Member) -> String {
    match *member {
        Member::Address(address) => IpSetMember::Ip(address),
        Member::Net(net) => IpSetMember::Net(net),
        Member::AddressPort(address, protocol, port) => IpSetMember::IpAndPort { address, protocol, port },
    }
    .to_string()
}
