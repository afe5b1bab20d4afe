//! Chains that one manager publishes as a whole: what was published before and is not any more is taken back.

use super::Plane;
use messages::Text;
use rules::tree::{Chain, Table};
use std::collections::BTreeSet;

/// The chains that a manager published.
#[derive(Clone, Debug, Default)]
pub struct ChainSet {
    names: BTreeSet<(Table, Text)>,
}

impl ChainSet {
    /// Publishes these chains in all planes, and no others.
    pub fn publish(&mut self, planes: &mut [Plane], chains: Vec<(Table, Chain)>) {
        let names: BTreeSet<(Table, Text)> =
            chains.iter().map(|(layer, chain)| (*layer, chain.name.clone())).collect();
        for (layer, chain) in chains {
            // The last plane takes the chain itself.
            if let Some((last, others)) = planes.split_last_mut() {
                for plane in others {
                    plane.rules.update_chain(layer, chain.clone());
                }
                last.rules.update_chain(layer, chain);
            }
        }
        for (layer, name) in self.names.difference(&names) {
            planes.iter_mut().for_each(|plane| plane.rules.remove_chain(*layer, name));
        }
        self.names = names;
    }

    /// The names of what is published.
    pub fn names(&self) -> impl Iterator<Item = &(Table, Text)> {
        self.names.iter()
    }
}
