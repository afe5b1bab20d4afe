//! Chains of groups of policies, shared by all endpoints that have the group: defined with the first, taken back with the
//! last.

use crate::desired::Desired;
use messages::Text;
use rules::tree::Table;
use rules::{Renderer, TierGroups};
use std::collections::BTreeMap;

/// The layers in which policy is enforced.
const LAYERS: [Table; 3] = [Table::Raw, Table::Mangle, Table::Filter];

/// Which interface has which groups.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    users: BTreeMap<Text, usize>,
    by_interface: BTreeMap<Text, Vec<Text>>,
}

impl Groups {
    /// Says which groups an interface has.
    pub(crate) fn set<'a>(
        &mut self,
        interface: &Text,
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
            names.push(chain.name.clone());
            let users = self.users.entry(chain.name.clone()).or_default();
            *users += 1;
            if *users == 1 {
                LAYERS.iter().for_each(|layer| desired.define(*layer, &chain));
            }
        }
        let old = match names.is_empty() {
            true => self.by_interface.remove(interface),
            false => self.by_interface.insert(interface.clone(), names),
        };
        for name in old.into_iter().flatten() {
            let Some(users) = self.users.get_mut(&name) else { continue };
            *users -= 1;
            if *users == 0 {
                self.users.remove(&name);
                LAYERS.iter().for_each(|layer| desired.undefine(*layer, &name));
            }
        }
    }

    /// The chains of an interface's groups.
    pub(crate) fn of(&self, interface: &str) -> impl Iterator<Item = &Text> {
        self.by_interface.get(interface).into_iter().flatten()
    }
}
