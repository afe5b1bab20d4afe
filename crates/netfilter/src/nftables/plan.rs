//! Computes one transaction from the desired and actual state, as a pure function.
//!
//! The order of changes makes every intermediate state acceptable to the kernel: chains and maps exist before rules
//! refer to them, map entries are removed before the chains they lead to, and removals of unwanted objects come last.

use super::expressions::expressions;
use super::layout::{FullChainName, FullMapName, layer_of};
use super::state::{Actual, Body, ChainState, MapState, entry};
use crate::chains::{Chains, Wanted};
use crate::refused::{Closed, SetFaults, undefined_body};
use delta::Operation;
use messages::InterfaceName;
use netlink::netfilter::nft::{self, Change, Element, Key, KeyType, Set};
use rules::hash::RuleHash;
use rules::nftables::{Family, TABLE_NAME, comment, set_name};
use rules::tree::{Rule, SetName};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The priority of our flow table at the ingress hook.
const FLOW_PRIORITY: i32 = 0;

/// What a change belongs to, so that a refusal can be attributed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The table, or something that makes room.
    Table,
    /// The chain itself.
    Chain(FullChainName),
    /// The rule at this index of those written to the chain.
    Rule(FullChainName, usize),
    /// The map itself.
    Map(FullMapName),
    /// Entries of a map.
    Entries(FullMapName, Vec<InterfaceName>),
    /// The flow table.
    FlowTable,
}

/// The devices that the flow table should cover.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowTable {
    pub(super) devices: Option<BTreeSet<InterfaceName>>,
    pub(super) programmed: BTreeSet<InterfaceName>,
    pub(super) refused: bool,
}

/// The inputs of a plan.
pub(super) struct View<'a> {
    pub(super) family: Family,
    pub(super) chains: &'a Chains<Body>,
    pub(super) maps: &'a BTreeMap<FullMapName, MapState>,
    pub(super) actual: &'a Actual,
    pub(super) closed: &'a BTreeMap<FullChainName, Closed>,
    pub(super) faults: &'a SetFaults,
    pub(super) refused_entries: &'a BTreeMap<(FullMapName, InterfaceName), String>,
    /// Chains that drop until it is known whether they are faulty.
    pub(super) suspects: &'a BTreeSet<FullChainName>,
    pub(super) flow: &'a FlowTable,
    /// Only these chains are changed, and nothing is removed.
    pub(super) only: Option<&'a BTreeSet<FullChainName>>,
    /// One change for each entry of a map, so that a refusal names one entry.
    pub(super) separate_entries: bool,
    /// The hashes of targets that were computed already.
    pub(super) hashed: &'a Hashed,
}

/// The hashes of chains' desired rules. A hash covers all rules before it, so none is computed twice.
pub(super) type Hashed = BTreeMap<FullChainName, Vec<RuleHash>>;

/// The desired state of a chain in the kernel.
pub(super) struct Target<'a> {
    pub(super) body: Cow<'a, Body>,
    pub(super) hashes: Vec<RuleHash>,
}

/// One transaction and the state after it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) changes: Vec<Change>,
    pub(super) origins: Vec<Origin>,
    /// The chains after the transaction; `None` for removed ones.
    pub(super) chains: Vec<(FullChainName, Option<ChainState>)>,
}

impl Plan {
    fn push(&mut self, change: Change, origin: Origin) {
        self.changes.push(change);
        self.origins.push(origin);
    }
}

impl<'a> View<'a> {
    /// Whether an existing chain stays as it is: it is wanted, but cannot be created as desired.
    fn stays(&self, name: &FullChainName) -> bool {
        self.closed.get(name).is_some_and(|closed| closed.absent) && self.chains.wanted(name) != Wanted::No
    }

    /// The desired chain of this name; `None` for no chain.
    pub(super) fn target(&self, name: &FullChainName) -> Option<Target<'a>> {
        let closed = self.closed.get(name);
        if closed.is_some_and(|closed| closed.absent) {
            return None;
        }
        let body = match self.chains.wanted(name) {
            Wanted::No => return None,
            Wanted::Defined(body) => Cow::Borrowed(body),
            Wanted::Undefined => {
                let layer = layer_of(name);
                let rules = undefined_body(layer);
                Cow::Owned(Body { layer, appended_from: rules.len(), rules: rules.into(), base: None })
            }
        };
        let fault = self.faults.first(body.layer, &body.rules, in_kernel);
        let body = match closed {
            _ if self.suspects.contains(name) => {
                let rules = undefined_body(body.layer);
                Cow::Owned(Body { appended_from: rules.len(), rules: rules.into(), ..body.into_owned() })
            }
            None if fault.is_none() => body,
            closed => {
                let closed = closed.cloned().unwrap_or_default();
                let closed = fault.map_or(closed.clone(), |(index, _)| closed.cut_from(index));
                let rules = closed.body(&body.rules);
                Cow::Owned(Body { appended_from: rules.len(), rules: rules.into(), ..body.into_owned() })
            }
        };
        let known = self.hashed.get(name).cloned();
        let hashes = known.unwrap_or_else(|| body.hashes(self.family, name));
        Some(Target { body, hashes })
    }

    /// The chains that may have to be changed.
    fn candidates(&self) -> impl Iterator<Item = &'a FullChainName> {
        self.only.unwrap_or(self.chains.dirty()).iter()
    }

    /// The chains to rewrite because a map has to be recreated. Another program created such a map, and with it rules
    /// that we do not know, so these are all chains. None when only some chains are planned: an emptied chain must be filled in
    /// the same transaction.
    fn users_of_wrong_maps(&self) -> BTreeSet<FullChainName> {
        let is_wrong = self.only.is_none() && self.maps.values().any(|map| map.exists && map.wrong);
        if is_wrong { self.actual.chains.keys().cloned().collect() } else { BTreeSet::new() }
    }

    /// The transaction that brings the table to its desired state; empty if it is already there.
    pub(super) fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        self.add_flow_table(&mut plan);
        let forced = self.users_of_wrong_maps();
        for name in &forced {
            plan.push(Change::FlushChain(name.text().clone()), Origin::Chain(name.clone()));
        }
        self.add_maps(&mut plan);

        let mut writes: Vec<(&FullChainName, Target<'_>)> = Vec::new();
        let mut removals: Vec<&FullChainName> = Vec::new();
        let candidates: BTreeSet<&FullChainName> = self.candidates().chain(&forced).collect();
        for name in candidates {
            match (self.target(name), self.actual.chains.get(name)) {
                (None, None) => {}
                (None, Some(_)) if self.only.is_some() || self.stays(name) => {}
                (None, Some(_)) => removals.push(name),
                (Some(target), actual) => {
                    if !forced.contains(name) && actual.is_some_and(|actual| is_same(actual, &target)) {
                        continue;
                    }
                    self.add_chain(name, &target, actual, &mut plan);
                    writes.push((name, target));
                }
            }
        }
        if self.only.is_none() {
            self.remove_entries(&mut plan);
        }
        if self.actual.chains.keys().any(|name| self.stays(name)) {
            // A chain that stays as it is may lead to any of them.
            removals.clear();
        }
        for name in &removals {
            plan.push(Change::FlushChain(name.text().clone()), Origin::Chain((*name).clone()));
        }
        for (name, target) in writes {
            let known = self
                .actual
                .chains
                .get(name)
                .filter(|actual| !forced.contains(name) && actual.is_at(target.body.base.as_ref()));
            self.write_rules(name, &target, known, &mut plan);
            let state = ChainState {
                hashes: target.hashes.iter().copied().map(Some).collect(),
                handles: None,
                base: target
                    .body
                    .base
                    .map(|base| Box::new((base.hook.number(), base.priority, base.kind.as_str().to_owned()))),
            };
            plan.chains.push((name.clone(), Some(state)));
        }
        if self.only.is_none() {
            self.add_entries(&mut plan);
            for name in removals {
                plan.push(Change::DeleteChain(name.text().clone()), Origin::Chain(name.clone()));
                plan.chains.push((name.clone(), None));
            }
            self.remove_rest(&mut plan);
        }
        if !plan.changes.is_empty() {
            plan.changes.insert(0, Change::AddTable);
            plan.origins.insert(0, Origin::Table);
        }
        plan
    }

    fn add_flow_table(&self, plan: &mut Plan) {
        let Some(devices) = self.flow.devices.as_ref().filter(|_| !self.flow.refused) else { return };
        if self.actual.flow_table && *devices == self.flow.programmed {
            return;
        }
        let new = texts(devices.difference(&self.flow.programmed));
        let change = Change::AddFlowTable { name: TABLE_NAME.into(), priority: FLOW_PRIORITY, devices: new };
        plan.push(change, Origin::FlowTable);
        let gone = texts(self.flow.programmed.difference(devices));
        if !gone.is_empty() {
            let change =
                Change::DeleteFlowDevices { name: TABLE_NAME.into(), priority: FLOW_PRIORITY, devices: gone };
            plan.push(change, Origin::FlowTable);
        }
    }

    fn add_maps(&self, plan: &mut Plan) {
        for (name, map) in self.maps.iter().filter(|(_, map)| map.wanted) {
            let replace = map.exists && map.wrong && self.only.is_none();
            if replace {
                plan.push(Change::DeleteSet(name.text().clone()), Origin::Map(name.clone()));
            }
            if !map.exists || replace {
                let set = Set {
                    name: name.text().clone(),
                    key: KeyType::InterfaceName,
                    interval: false,
                    verdicts: true,
                };
                plan.push(Change::AddSet(set), Origin::Map(name.clone()));
            }
        }
    }

    fn add_chain(
        &self,
        name: &FullChainName,
        target: &Target<'_>,
        actual: Option<&ChainState>,
        plan: &mut Plan,
    ) {
        let base = target.body.base;
        match actual {
            Some(actual) if actual.is_at(base.as_ref()) => return,
            // Attached elsewhere: a chain cannot be moved, only recreated.
            Some(_) => {
                plan.push(Change::FlushChain(name.text().clone()), Origin::Chain(name.clone()));
                plan.push(Change::DeleteChain(name.text().clone()), Origin::Chain(name.clone()));
            }
            None => {}
        }
        plan.push(Change::AddChain { name: name.text().clone(), base }, Origin::Chain(name.clone()));
    }

    /// Keeps the rules that are right already, which are always the first ones, and writes the others.
    fn write_rules(
        &self,
        name: &FullChainName,
        target: &Target<'_>,
        known: Option<&ChainState>,
        plan: &mut Plan,
    ) {
        let mut kept = 0;
        if let Some(known) = known {
            let same =
                known.hashes.iter().zip(&target.hashes).take_while(|(is, wanted)| **is == Some(**wanted));
            kept = same.count();
            if kept < known.hashes.len() {
                match &known.handles {
                    Some(handles) if kept > 0 => {
                        for handle in handles.iter().skip(kept) {
                            let change = Change::DeleteRule { chain: name.text().clone(), handle: *handle };
                            plan.push(change, Origin::Chain(name.clone()));
                        }
                    }
                    _ => {
                        kept = 0;
                        plan.push(Change::FlushChain(name.text().clone()), Origin::Chain(name.clone()));
                    }
                }
            }
        }
        for (place, (rule, hash)) in target.body.rules.iter().zip(&target.hashes).enumerate().skip(kept) {
            let change = Change::AppendRule(self.rule(name, target, rule, *hash));
            plan.push(change, Origin::Rule(name.clone(), place));
        }
    }

    fn rule(&self, chain: &FullChainName, target: &Target<'_>, rule: &Rule, hash: RuleHash) -> nft::Rule {
        nft::Rule {
            chain: chain.text().clone(),
            expressions: expressions(target.body.layer, self.family, rule),
            comment: comment(rule, hash).into(),
        }
    }

    fn remove_entries(&self, plan: &mut Plan) {
        for (name, map) in self.maps.iter().filter(|(_, map)| map.exists) {
            if !map.wanted {
                plan.push(Change::FlushSet(name.text().clone()), Origin::Map(name.clone()));
            }
            if !map.wanted || map.wrong {
                continue;
            }
            let mut gone = Vec::new();
            for operation in map.entries.pending() {
                if let Operation::Remove(interface, _) | Operation::Replace(interface, ..) = operation {
                    gone.extend(
                        Key::interface(interface).map(|key| (interface.clone(), Element::Single(key))),
                    );
                }
            }
            self.push_entries(name, &gone, plan, |set, elements| Change::DeleteElements { set, elements });
        }
    }

    fn add_entries(&self, plan: &mut Plan) {
        for (name, map) in self.maps.iter().filter(|(_, map)| map.wanted) {
            let mut added = Vec::new();
            for operation in map.entries.pending() {
                let (Operation::Create(interface, chain) | Operation::Replace(interface, chain, _)) =
                    operation
                else {
                    continue;
                };
                if !self.refused_entries.contains_key(&(name.clone(), interface.clone())) {
                    added.extend(entry(interface, chain).map(|element| (interface.clone(), element)));
                }
            }
            self.push_entries(name, &added, plan, |set, elements| Change::AddElements { set, elements });
        }
    }

    fn push_entries(
        &self,
        map: &FullMapName,
        entries: &[(InterfaceName, Element)],
        plan: &mut Plan,
        change: impl Fn(Arc<str>, Vec<Element>) -> Change,
    ) {
        let size = if self.separate_entries { 1 } else { usize::MAX };
        for part in entries.chunks(size.min(entries.len().max(1))) {
            let (names, elements) = part.iter().cloned().unzip();
            plan.push(change(map.text().clone(), elements), Origin::Entries(map.clone(), names));
        }
    }

    fn remove_rest(&self, plan: &mut Plan) {
        for (name, _) in self.maps.iter().filter(|(_, map)| map.exists && !map.wanted) {
            plan.push(Change::DeleteSet(name.text().clone()), Origin::Map(name.clone()));
        }
        if self.actual.flow_table && self.flow.devices.is_none() {
            plan.push(Change::DeleteFlowTable(TABLE_NAME.into()), Origin::FlowTable);
        }
    }
}

fn texts<'a>(devices: impl Iterator<Item = &'a InterfaceName>) -> Vec<Arc<str>> {
    devices.map(|device| device.text().clone()).collect()
}

/// The kernel's name for a set that a rule refers to.
pub(super) fn in_kernel(set: &SetName) -> SetName {
    set_name(set).into()
}

fn is_same(actual: &ChainState, target: &Target<'_>) -> bool {
    actual.is_at(target.body.base.as_ref())
        && actual.hashes.len() == target.hashes.len()
        && actual.hashes.iter().zip(&target.hashes).all(|(is, wanted)| *is == Some(*wanted))
}
