//! The nftables driver: one table per family, read once, changed by transactions.
//!
//! All layers (raw, mangle, nat, filter) are in the one table `calico` of a family; chain names are prefixed with the
//! layer's name. No other table is ever read or written. Rules are recognised by the hash in their comment, so a table
//! that Calico's own Felix created is taken over unchanged, and vice versa.
//!
//! It uses netlink and starts no program. It does not manage IP sets, which only have to exist before rules refer to
//! them (see [`crate::ipsets`]).

mod expressions;
mod kernel;
mod layout;
mod plan;
mod state;
mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use expressions::expressions;
pub use kernel::{Kernel, Snapshot};
pub(crate) use write::transient;

use crate::chains::{Chains, Wanted};
use crate::driver::{Applied, ApplyError, DriverFigure, RuleDriver, number, total};
use crate::refused::{Closed, NOT_DEFINED, Part, Refused, SetFaults, undefined_body};
use delta::Retry;
use layout::{FullChainName, FullMapName, base_chains, full_chain, full_map};
use messages::InterfaceName;
use netlink::netfilter::nft;
use plan::{FlowTable, in_kernel};
use rules::nftables::{Family, rule_text};
use rules::tree::{Chain, ChainName, KernelChain, Table, VerdictMap};
use state::{Actual, Body, MapState, short_name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counters of a driver's work, with the names of Felix's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// `felix_nft_calls`: transactions.
    pub calls: u64,
    /// `felix_nft_errors`: transactions that were refused.
    pub errors: u64,
    /// `felix_nft_list_calls`: reads of the table.
    pub list_calls: u64,
    /// `felix_nft_list_errors`: failed reads.
    pub list_errors: u64,
    /// `felix_nft_chains`: wanted chains.
    pub chains: usize,
    /// `felix_nft_rules`: programmed rules.
    pub rules: usize,
    /// `felix_nft_maps`: wanted maps.
    pub maps: usize,
}

/// The driver of one family's table.
#[derive(Debug)]
pub struct Driver<K> {
    kernel: K,
    family: Family,
    table: nft::Table,
    refresh: Option<Duration>,
    read_at: Option<Instant>,
    chains: Chains<Body>,
    maps: BTreeMap<FullMapName, MapState>,
    flow: FlowTable,
    actual: Actual,
    in_sync: bool,
    closed: BTreeMap<FullChainName, Closed>,
    /// Sets that differ from the desired ones.
    faults: SetFaults,
    /// When closed rules and chains are retried.
    retry: Retry,
    /// Chains that drop while the faulty ones are looked for.
    suspects: BTreeSet<FullChainName>,
    refused_entries: BTreeMap<(FullMapName, InterfaceName), String>,
    metrics: Metrics,
    /// Whether base chains are left out while they have no rules.
    only_used_hooks: bool,
}

impl<K: Kernel> Driver<K> {
    /// A driver that wants the base chains of the family and nothing else. `refresh` is how often the table is read
    /// again without a reason; `None` for never.
    pub fn new(kernel: K, family: Family, refresh: Option<Duration>) -> Self {
        let mut chains = Chains::default();
        for (layer, name, base) in base_chains(family) {
            let name = full_chain(layer, name);
            let nothing = Body { layer, rules: Arc::default(), appended_from: 0, base: Some(base) };
            chains.define(name.clone(), nothing);
            chains.reference(&name);
        }
        Self {
            kernel,
            family,
            table: layout::table(family),
            refresh,
            read_at: None,
            chains,
            maps: BTreeMap::new(),
            flow: FlowTable::default(),
            actual: Actual::default(),
            in_sync: false,
            closed: BTreeMap::new(),
            faults: SetFaults::default(),
            retry: Retry::default(),
            suspects: BTreeSet::new(),
            refused_entries: BTreeMap::new(),
            metrics: Metrics::default(),
            only_used_hooks: false,
        }
    }

    /// Leaves base chains out for as long as they have no rules, because each of them costs every packet time.
    #[must_use]
    pub fn with_only_used_hooks(mut self) -> Self {
        for (layer, name, _) in base_chains(self.family) {
            self.chains.dereference(&full_chain(layer, name));
        }
        self.only_used_hooks = true;
        self
    }

    /// The table of this driver.
    #[must_use]
    pub fn table(&self) -> &nft::Table {
        &self.table
    }

    /// The underlying kernel.
    pub fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// The counters of the driver's work so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let maps = self.maps.values().filter(|map| map.wanted).count();
        Metrics { chains: self.chains.count(), rules: self.actual.rules, maps, ..self.metrics }
    }

    /// Empties the chains through which packets enter the table; returns whether there was anything in them. Call it
    /// some time before [`Driver::remove_table`]: a packet that is passing through the rules when the kernel removes
    /// the table would look up maps whose entries are gone already, and be dropped at the end of a dispatch.
    ///
    /// # Errors
    /// When the kernel refuses. A missing table is not an error.
    pub fn detach_table(&mut self) -> Result<bool, ApplyError> {
        self.in_sync = false;
        let snapshot = self.kernel.read(&self.table)?;
        let has_rules = |name: &str| snapshot.rules.iter().any(|rule| *rule.chain == *name);
        let base = snapshot.chains.iter().filter(|chain| chain.base.is_some() && has_rules(&chain.name));
        let changes: Vec<nft::Change> =
            base.map(|chain| nft::Change::FlushChain(chain.name.as_str().into())).collect();
        if changes.is_empty() {
            return Ok(false);
        }
        match self.kernel.commit(&self.table, &changes)? {
            Ok(()) => Ok(true),
            Err(refused) if refused.refused.iter().all(|(_, refusal)| refusal.is_missing()) => Ok(true),
            Err(refused) => Err(self.give_up(&refused)),
        }
    }

    /// Removes the whole table, at the end of its use or when another backend takes over.
    ///
    /// # Errors
    /// When the kernel refuses. A missing table is not an error.
    pub fn remove_table(&mut self) -> Result<(), ApplyError> {
        self.in_sync = false;
        match self.kernel.commit(&self.table, &[nft::Change::DeleteTable])? {
            Ok(()) => Ok(()),
            Err(refused) if refused.refused.iter().all(|(_, refusal)| refusal.is_missing()) => Ok(()),
            Err(refused) => Err(self.give_up(&refused)),
        }
    }

    fn read(&mut self, now: Instant) -> Result<(), ApplyError> {
        self.metrics.list_calls += 1;
        let snapshot = self.kernel.read(&self.table).inspect_err(|_| self.metrics.list_errors += 1)?;
        let flow_table = rules::nftables::TABLE_NAME;
        let actual = Actual::from_snapshot(&snapshot, flow_table, &mut self.maps);
        if !actual.flow_table || self.read_at.is_none() {
            self.flow.programmed.clear();
        }
        let names: BTreeSet<&FullChainName> = self.actual.chains.keys().chain(actual.chains.keys()).collect();
        for name in names {
            let (before, now) = (self.actual.chains.get(name), actual.chains.get(name));
            if before.map(|chain| (&chain.hashes, &chain.base))
                != now.map(|chain| (&chain.hashes, &chain.base))
            {
                if self.read_at.is_some() {
                    tracing::info!(table = %self.table, chain = %name, "another program changed a chain");
                }
                self.chains.mark(name.clone());
            }
        }
        self.actual = actual;
        self.read_at = Some(now);
        self.in_sync = true;
        Ok(())
    }
}

impl<K: Kernel> RuleDriver for Driver<K> {
    fn update_chain(&mut self, layer: Table, chain: Chain) {
        let name = full_chain(layer, &chain.name);
        if self.chains.definition(&name).is_some_and(|body| body.rules == chain.rules) {
            return;
        }
        self.closed.remove(&name);
        let body = Body { layer, appended_from: chain.rules.len(), rules: chain.rules, base: None };
        self.chains.define(name, body);
    }

    fn keep_chain(&mut self, layer: Table, name: &ChainName, keep: bool) {
        self.chains.keep(&full_chain(layer, name), keep);
    }

    fn remove_chain(&mut self, layer: Table, name: &ChainName) {
        let name = full_chain(layer, name);
        self.closed.remove(&name);
        self.chains.undefine(&name);
    }

    fn set_kernel_chain(&mut self, layer: Table, chain: KernelChain) {
        let name = full_chain(layer, chain.name);
        let Some(base) = self.chains.definition(&name).and_then(|body| body.base) else {
            tracing::error!(table = %self.table, chain = chain.name, "there is no such base chain");
            return;
        };
        self.closed.remove(&name);
        let appended_from = chain.inserted.len();
        let mut rules = chain.inserted;
        rules.extend(chain.appended);
        let is_used = !rules.is_empty();
        let body = Body { layer, rules: rules.into(), appended_from, base: Some(base) };
        self.chains.define(name.clone(), body);
        if self.only_used_hooks {
            self.chains.keep(&name, is_used);
        }
    }

    fn update_map(&mut self, layer: Table, map: VerdictMap) {
        let name = full_map(layer, &map.name);
        let present: Vec<InterfaceName> = self
            .maps
            .get(&name)
            .into_iter()
            .flat_map(|map| map.entries.all_desired())
            .map(|(interface, _)| interface.clone())
            .filter(|interface| !map.entries.contains_key(interface))
            .collect();
        self.maps.entry(name).or_default().wanted = true;
        for (interface, chain) in &map.entries {
            self.set_map_entry(layer, &map.name, interface, Some(chain));
        }
        for interface in present {
            self.set_map_entry(layer, &map.name, &interface, None);
        }
    }

    fn set_map_entry(
        &mut self,
        layer: Table,
        map: &str,
        interface: &InterfaceName,
        chain: Option<&ChainName>,
    ) {
        let name = full_map(layer, map);
        let chain = chain.map(|chain| full_chain(layer, chain));
        let state = self.maps.entry(name.clone()).or_default();
        state.wanted = true;
        let before = state.entries.desired(interface).cloned();
        if before == chain {
            return;
        }
        match &chain {
            Some(chain) => state.entries.set_desired(interface.clone(), chain.clone()),
            None => {
                state.entries.remove_desired(interface);
            }
        }
        let key = (name, interface.clone());
        self.refused_entries.remove(&key);
        if chain.is_some() && nft::Key::interface(interface).is_none() {
            self.refused_entries.insert(key, "no interface can have this name".to_owned());
        }
        // The new reference first, so that a chain that stays does not count as gone.
        if let Some(chain) = &chain {
            self.chains.reference(chain);
        }
        if let Some(before) = &before {
            self.chains.dereference(before);
        }
    }

    fn remove_map(&mut self, layer: Table, name: &str) {
        let name = full_map(layer, name);
        let Some(state) = self.maps.get_mut(&name) else { return };
        state.wanted = false;
        let entries: Vec<(InterfaceName, FullChainName)> = state
            .entries
            .all_desired()
            .map(|(interface, chain)| (interface.clone(), chain.clone()))
            .collect();
        state.entries.replace_desired([]);
        if !state.exists {
            self.maps.remove(&name);
        }
        for (interface, chain) in entries {
            self.refused_entries.remove(&(name.clone(), interface));
            self.chains.dereference(&chain);
        }
    }

    fn invalidate(&mut self) {
        self.in_sync = false;
    }

    fn set_faults(&mut self, faults: &SetFaults) {
        if self.faults == *faults {
            return;
        }
        let before = std::mem::replace(&mut self.faults, faults.clone());
        let now = &self.faults;
        let concerned =
            |body: &Body| before.concern(&body.rules, in_kernel) || now.concern(&body.rules, in_kernel);
        let wanted = self.chains.all_wanted().filter(|(_, body)| concerned(body));
        let changed: Vec<FullChainName> = wanted.map(|(name, _)| name.clone()).collect();
        changed.into_iter().for_each(|name| self.chains.mark(name));
    }

    fn retry_refused(&mut self) {
        for (name, _) in std::mem::take(&mut self.closed) {
            self.chains.mark(name);
        }
        // Names that no kernel would accept stay refused.
        self.refused_entries.retain(|(_, interface), _| nft::Key::interface(interface).is_none());
        self.flow.refused = false;
    }

    fn apply(&mut self, now: Instant) -> Result<Applied, ApplyError> {
        let age = self.read_at.map(|at| now.saturating_duration_since(at));
        if let (Some(refresh), Some(age)) = (self.refresh, age)
            && age >= refresh
        {
            self.in_sync = false;
            self.retry_refused();
        }
        if self.retry.is_due(now) {
            self.retry_refused();
        }
        if !self.in_sync {
            self.read(now)?;
        }
        let wrote = self.write(now)?;
        let impossible =
            |(_, interface): &(FullMapName, InterfaceName)| nft::Key::interface(interface).is_none();
        let is_refused = !self.closed.is_empty()
            || self.flow.refused
            || self.refused_entries.keys().any(|entry| !impossible(entry));
        self.retry.note(is_refused, now);
        let refresh = self.refresh.zip(self.read_at).map(|(refresh, at)| at + refresh);
        let again_in =
            refresh.into_iter().chain(self.retry.due()).min().map(|at| at.saturating_duration_since(now));
        Ok(Applied { wrote, again_in })
    }

    fn refused(&self) -> Vec<Refused> {
        let mut all = Vec::new();
        for (name, closed) in &self.closed {
            let (layer, short) = short_name(name);
            let rules = match self.chains.wanted(name) {
                Wanted::Defined(body) => body.rules.clone(),
                Wanted::Undefined => undefined_body(layer).into(),
                Wanted::No => continue,
            };
            for (index, reason) in &closed.reasons {
                let part = index.and_then(|index| {
                    Some(Part::Rule(index, rule_text(layer, self.family, rules.get(index)?)))
                });
                all.push(Refused { layer: Some(layer), name: short.clone(), part, reason: reason.clone() });
            }
        }
        if !self.faults.sets.is_empty() {
            for (name, body) in self.chains.all_wanted() {
                let Some((index, set)) = self.faults.first(body.layer, &body.rules, in_kernel) else {
                    continue;
                };
                let text = |rule| Part::Rule(index, rule_text(body.layer, self.family, rule));
                let (layer, name) = short_name(name);
                let (part, reason) = (body.rules.get(index).map(text), SetFaults::reason(&set));
                all.push(Refused { layer: Some(layer), name, part, reason });
            }
        }
        for name in self.chains.undefined() {
            let (layer, name) = short_name(name);
            let reason = NOT_DEFINED.to_owned();
            all.push(Refused { layer: Some(layer), name, part: None, reason });
        }
        for ((map, interface), reason) in &self.refused_entries {
            let (layer, name) = short_name(map);
            let part = Some(Part::Entry(interface.to_string()));
            all.push(Refused { layer: Some(layer), name, part, reason: reason.clone() });
        }
        all.sort();
        all
    }

    fn set_flow_devices(&mut self, devices: Option<BTreeSet<InterfaceName>>) {
        self.flow.devices = devices;
        self.flow.refused = false;
    }

    fn figures(&self) -> Vec<DriverFigure> {
        let metrics = self.metrics();
        let version = match self.table().family {
            nft::Family::Ip => "4",
            nft::Family::Ip6 => "6",
            nft::Family::Arp => "arp",
        };
        let labels = format!("ip_version=\"{version}\"");
        vec![
            ("felix_nft_chains", labels.clone(), number(metrics.chains)),
            ("felix_nft_rules", labels.clone(), number(metrics.rules)),
            ("felix_nft_maps", labels, number(metrics.maps)),
            ("felix_nft_calls", String::new(), total(metrics.calls)),
            ("felix_nft_errors", String::new(), total(metrics.errors)),
            ("felix_nft_list_calls", String::new(), total(metrics.list_calls)),
            ("felix_nft_list_errors", String::new(), total(metrics.list_errors)),
        ]
    }
}
