//! Chains that one manager publishes as a whole: those that are no longer published are removed.

use crate::desired::Desired;
use rules::tree::ChainName;
use rules::tree::{Chain, Table};
use std::collections::BTreeSet;

/// The chains that a manager published.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChainSet {
    names: BTreeSet<(Table, ChainName)>,
}

impl ChainSet {
    /// Publishes these chains in all IP versions, and no others.
    pub(crate) fn publish(&mut self, desired: &mut Desired, chains: Vec<(Table, Chain)>) {
        let names: BTreeSet<(Table, ChainName)> =
            chains.iter().map(|(layer, chain)| (*layer, chain.name.clone())).collect();
        for (layer, chain) in chains {
            desired.define(layer, &chain);
        }
        for (layer, name) in self.names.difference(&names) {
            desired.undefine(*layer, name);
        }
        self.names = names;
    }
}
