//! Chains of policy groups, shared by all endpoints that have the group: defined for the first endpoint, removed with
//! the last.

use crate::desired::Desired;
use messages::InterfaceName;
use rules::tree::ChainName;
use rules::tree::Table;
use rules::{Direction, PolicySequence, Renderer, TierGroups};
use std::collections::{BTreeMap, BTreeSet};

/// The layers in which policy is enforced.
const LAYERS: [Table; 3] = [Table::Raw, Table::Mangle, Table::Filter];

/// The groups of each interface, or the compiled lists of policies in their place.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    users: BTreeMap<ChainName, usize>,
    by_interface: BTreeMap<InterfaceName, Vec<ChainName>>,
    sequences: BTreeMap<ChainName, PolicySequence>,
    changed_sequences: BTreeSet<ChainName>,
}

impl Groups {
    /// Sets the groups of an interface.
    pub(crate) fn set<'a>(
        &mut self,
        interface: &InterfaceName,
        tiers: impl IntoIterator<Item = &'a TierGroups>,
        renderer: &Renderer,
        desired: &mut Desired,
    ) {
        let mut names = Vec::new();
        for group in tiers.into_iter().flat_map(|tier| tier.ingress.iter().chain(&tier.egress)) {
            if group.is_inlined() {
                continue;
            }
            let chain = renderer.group_chain(group);
            if self.is_first_user(&chain.name) {
                LAYERS.iter().for_each(|layer| desired.define(*layer, &chain));
            }
            names.push(chain.name);
        }
        self.replace(interface, names, desired);
    }

    /// Sets the lists of policies of an interface, where policies are compiled.
    pub(crate) fn set_compiled(
        &mut self,
        interface: &InterfaceName,
        tiers: &[TierGroups],
        desired: &mut Desired,
    ) {
        let mut names = Vec::new();
        for sequence in tiers.iter().flat_map(|tier| {
            [Direction::Inbound, Direction::Outbound].into_iter().filter_map(|way| tier.sequence(way))
        }) {
            let name = sequence.chain_name();
            if self.is_first_user(&name) {
                self.sequences.insert(name.clone(), sequence);
                self.changed_sequences.insert(name.clone());
            }
            names.push(name);
        }
        self.replace(interface, names, desired);
    }

    fn is_first_user(&mut self, name: &ChainName) -> bool {
        let users = self.users.entry(name.clone()).or_default();
        *users += 1;
        *users == 1
    }

    /// Replaces the chains that the interface used before.
    fn replace(&mut self, interface: &InterfaceName, names: Vec<ChainName>, desired: &mut Desired) {
        let old = match names.is_empty() {
            true => self.by_interface.remove(interface),
            false => self.by_interface.insert(interface.clone(), names),
        };
        for name in old.into_iter().flatten() {
            let Some(users) = self.users.get_mut(&name) else { continue };
            *users -= 1;
            if *users > 0 {
                continue;
            }
            self.users.remove(&name);
            if self.sequences.remove(&name).is_some() {
                self.changed_sequences.insert(name);
            } else {
                LAYERS.iter().for_each(|layer| desired.undefine(*layer, &name));
            }
        }
    }

    /// The chains of an interface's groups and lists.
    pub(crate) fn of(&self, interface: &str) -> impl Iterator<Item = &ChainName> {
        self.by_interface.get(interface).into_iter().flatten()
    }

    /// The list of policies of a chain.
    pub(crate) fn sequence(&self, name: &str) -> Option<&PolicySequence> {
        self.sequences.get(name)
    }

    /// The lists that were added or removed since the last call.
    pub(crate) fn take_changed_sequences(&mut self) -> BTreeSet<ChainName> {
        std::mem::take(&mut self.changed_sequences)
    }
}
