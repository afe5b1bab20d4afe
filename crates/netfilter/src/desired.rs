//! The desired state of a packet filter as a value: the changes under each name since a driver took it last.
//!
//! The whole state is the sum of all changes: each gives the content of a name from now on, whatever it was before.
//! Drivers hold the whole together with the state of the kernel, so it is in memory once. The cost of a change depends
//! only on its own size.

use crate::driver::RuleDriver;
use crate::ipsets::IpSetDriver;
use delta::Changes;
use messages::{InterfaceName, IpSetId, IpSetMember, IpSetType};
use rules::tree::{Chain, ChainName, KernelChain, MapName, Table, VerdictMap};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A desired chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedChain {
    /// The chain.
    pub chain: Chain,
    /// Whether it is programmed even when nothing leads to it.
    pub keep: bool,
}

/// A change to a dispatch map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// The map with all its entries.
    Whole(BTreeMap<InterfaceName, ChainName>),
    /// Some of its entries: interface and chain; `None` removes one.
    Entries(BTreeMap<InterfaceName, Option<ChainName>>),
}

/// A change to a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetChange {
    /// The set with all its members.
    Whole(IpSetType, Vec<IpSetMember>),
    /// Added and removed members.
    Members {
        /// The added members.
        added: BTreeSet<IpSetMember>,
        /// The removed members.
        removed: BTreeSet<IpSetMember>,
    },
    /// The set is no longer wanted.
    Gone,
}

/// Changes to the rules of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleChanges {
    /// Chains by layer and name.
    pub chains: Changes<(Table, ChainName), WantedChain>,
    /// The content of the kernel's own chains.
    pub hooks: BTreeMap<(Table, &'static str), KernelChain>,
    /// Dispatch maps by layer and name.
    pub maps: BTreeMap<(Table, MapName), MapChange>,
    /// The devices that the flow table covers, if they changed.
    pub flow_devices: Option<BTreeSet<InterfaceName>>,
}

impl RuleChanges {
    /// Defines a chain. It is programmed when something leads to it.
    pub fn define(&mut self, layer: Table, chain: Chain) {
        self.define_kept(layer, chain, false);
    }

    /// Defines a chain that may be programmed even when nothing leads to it.
    pub fn define_kept(&mut self, layer: Table, chain: Chain, keep: bool) {
        self.chains.set((layer, chain.name.clone()), Some(WantedChain { chain, keep }));
    }

    /// Defines chains of one layer.
    pub fn define_all(&mut self, layer: Table, chains: impl IntoIterator<Item = Chain>) {
        chains.into_iter().for_each(|chain| self.define(layer, chain));
    }

    /// Removes the definition of a chain.
    pub fn undefine(&mut self, layer: Table, name: ChainName) {
        self.chains.set((layer, name), None);
    }

    /// Sets the content of one of the kernel's own chains.
    pub fn set_hook(&mut self, layer: Table, hook: KernelChain) {
        self.hooks.insert((layer, hook.name), hook);
    }

    /// Defines a dispatch map with all its entries.
    pub fn set_map(&mut self, layer: Table, map: VerdictMap) {
        self.maps.insert((layer, map.name), MapChange::Whole(map.entries));
    }

    /// Sets or, with `None`, removes one entry of a map.
    pub fn set_map_entry(
        &mut self,
        layer: Table,
        map: &str,
        interface: &InterfaceName,
        chain: Option<ChainName>,
    ) {
        let change = self.maps.entry((layer, map.into()));
        match (change.or_insert_with(|| MapChange::Entries(BTreeMap::new())), chain) {
            (MapChange::Whole(entries), Some(chain)) => _ = entries.insert(interface.clone(), chain),
            (MapChange::Whole(entries), None) => _ = entries.remove(interface),
            (MapChange::Entries(entries), chain) => _ = entries.insert(interface.clone(), chain),
        }
    }

    /// Hands all changes over to a driver; no changes are left here.
    pub fn hand_over(&mut self, driver: &mut (impl RuleDriver + ?Sized)) {
        for ((layer, _), hook) in std::mem::take(&mut self.hooks) {
            driver.set_kernel_chain(layer, hook);
        }
        for ((layer, name), wanted) in std::mem::take(&mut self.chains) {
            match wanted {
                Some(WantedChain { chain, keep }) => {
                    driver.update_chain(layer, chain);
                    driver.keep_chain(layer, &name, keep);
                }
                None => driver.remove_chain(layer, &name),
            }
        }
        for ((layer, name), change) in std::mem::take(&mut self.maps) {
            match change {
                MapChange::Whole(entries) => driver.update_map(layer, VerdictMap { name, entries }),
                MapChange::Entries(entries) => {
                    for (interface, chain) in entries {
                        driver.set_map_entry(layer, &name, &interface, chain.as_ref());
                    }
                }
            }
        }
        if let Some(devices) = self.flow_devices.take() {
            driver.set_flow_devices(Some(devices));
        }
    }
}

/// Changes to the sets of one IP version, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetChanges(pub BTreeMap<IpSetId, SetChange>);

impl SetChanges {
    /// Defines a set with all its members.
    pub fn define(&mut self, id: &str, set_type: IpSetType, members: Vec<IpSetMember>) {
        self.0.insert(id.into(), SetChange::Whole(set_type, members));
    }

    /// Changes the members of a set that was defined.
    pub fn change(&mut self, id: &str, new: &[IpSetMember], old: &[IpSetMember]) {
        let nothing = || SetChange::Members { added: BTreeSet::new(), removed: BTreeSet::new() };
        match self.0.entry(id.into()).or_insert_with(nothing) {
            SetChange::Whole(_, members) => {
                members.retain(|member| !old.contains(member) && !new.contains(member));
                members.extend(new);
            }
            SetChange::Members { added, removed } => {
                for member in old {
                    added.remove(member);
                    removed.insert(*member);
                }
                for member in new {
                    removed.remove(member);
                    added.insert(*member);
                }
            }
            SetChange::Gone => tracing::error!(set = id, "changed members of a set that is not wanted"),
        }
    }

    /// Removes a set.
    pub fn remove(&mut self, id: &str) {
        self.0.insert(id.into(), SetChange::Gone);
    }

    /// Hands all changes over to a driver; no changes are left here.
    pub fn hand_over(&mut self, driver: &mut (impl IpSetDriver + ?Sized)) {
        for (id, change) in std::mem::take(&mut self.0) {
            match change {
                SetChange::Whole(set_type, members) => driver.update_set(&id, set_type, &members),
                SetChange::Members { added, removed } => {
                    let [added, removed] = [added, removed].map(|one| one.into_iter().collect::<Vec<_>>());
                    driver.update_members(&id, &added, &removed);
                }
                SetChange::Gone => driver.remove_set(&id),
            }
        }
    }
}

/// One line for each change, for logs and tests.
impl fmt::Display for RuleChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (layer, hook) in self.hooks.keys() {
            writeln!(f, "+{layer} {hook}")?;
        }
        for ((layer, name), wanted) in self.chains.iter() {
            match wanted {
                Some(WantedChain { keep: false, .. }) => writeln!(f, "+{layer} {name}")?,
                Some(WantedChain { keep: true, .. }) => writeln!(f, "+{layer} {name} (kept)")?,
                None => writeln!(f, "-{layer} {name}")?,
            }
        }
        for ((layer, name), change) in &self.maps {
            match change {
                MapChange::Whole(entries) => {
                    let entries: Vec<&str> = entries.keys().map(|one| &**one).collect();
                    writeln!(f, "+{layer} map {name}: {}", entries.join(" "))?;
                }
                MapChange::Entries(entries) => {
                    for (interface, chain) in entries {
                        let sign = if chain.is_some() { '+' } else { '-' };
                        writeln!(f, "{sign}{layer} map {name}: {interface}")?;
                    }
                }
            }
        }
        match &self.flow_devices {
            Some(devices) => writeln!(f, "+flow table: {}", devices.len()),
            None => Ok(()),
        }
    }
}

/// One line for each change, for logs and tests.
impl fmt::Display for SetChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, change) in &self.0 {
            match change {
                SetChange::Whole(_, members) => writeln!(f, "+set {id}: {} members", members.len())?,
                SetChange::Members { added, removed } => {
                    writeln!(f, "+set {id}: +{} -{} members", added.len(), removed.len())?;
                }
                SetChange::Gone => writeln!(f, "-set {id}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MapChange, RuleChanges, SetChange, SetChanges};
    use messages::{IpSetMember, IpSetType};
    use rules::tree::{Chain, Table, VerdictMap};
    use std::collections::BTreeMap;

    fn member(last: u8) -> IpSetMember {
        IpSetMember::Ip([10, 0, 0, last].into())
    }

    #[test]
    fn the_last_change_of_each_name_wins() {
        let mut changes = RuleChanges::default();
        changes.define(Table::Filter, Chain::new("a", vec![]));
        changes.undefine(Table::Filter, "a".into());
        changes.undefine(Table::Raw, "b".into());
        changes.define_kept(Table::Raw, Chain::new("b", vec![]), true);
        changes.set_map_entry(Table::Filter, "m", &"x".into(), Some("c".into()));
        changes.set_map_entry(Table::Filter, "m", &"x".into(), None);
        assert_eq!(changes.to_string(), "+raw b (kept)\n-filter a\n-filter map m: x\n");
        let entries = BTreeMap::from([("y".into(), "c".into())]);
        changes.set_map(Table::Filter, VerdictMap { name: "m".into(), entries });
        changes.set_map_entry(Table::Filter, "m", &"z".into(), Some("d".into()));
        let expected = BTreeMap::from([("y".into(), "c".into()), ("z".into(), "d".into())]);
        assert_eq!(changes.maps[&(Table::Filter, "m".into())], MapChange::Whole(expected));
    }

    #[test]
    fn member_changes_are_combined() {
        let mut sets = SetChanges::default();
        sets.change("s", &[member(1), member(2)], &[]);
        sets.change("s", &[member(3)], &[member(1)]);
        let expected =
            SetChange::Members { added: [member(2), member(3)].into(), removed: [member(1)].into() };
        assert_eq!(sets.0["s"], expected);
        sets.define("s", IpSetType::Ip, vec![member(7)]);
        sets.change("s", &[member(7), member(8)], &[]);
        sets.change("s", &[], &[member(7)]);
        assert_eq!(sets.0["s"], SetChange::Whole(IpSetType::Ip, vec![member(8)]));
        sets.remove("s");
        assert_eq!(sets.to_string(), "-set s\n");
    }
}
