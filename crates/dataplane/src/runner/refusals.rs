//! What the kernel refused, as it was seen last: said once, and once more when it is in place.

use messages::Text;
use netfilter::refused::Refused;
use std::collections::BTreeSet;

/// What is not in the kernel as it should be.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: BTreeSet<Refused>,
    names: BTreeSet<Text>,
    /// Whether drivers have to be asked.
    pub(super) look: bool,
}

impl Refusals {
    /// Whether there is anything.
    pub(super) fn has_any(&self) -> bool {
        !self.refused.is_empty()
    }

    /// How many parts there are.
    pub(super) fn count(&self) -> usize {
        self.refused.len()
    }

    /// The chains, sets and maps that are concerned.
    pub(super) fn names(&self) -> &BTreeSet<Text> {
        &self.names
    }

    /// Takes note of what is refused now; the names that were or are concerned, if anything changed.
    pub(super) fn replace(&mut self, refused: BTreeSet<Refused>) -> Option<BTreeSet<Text>> {
        if refused == self.refused {
            return None;
        }
        for one in refused.difference(&self.refused) {
            tracing::error!(refused = %one, "the kernel does not take a part of the policy; it is closed instead");
        }
        for one in self.refused.difference(&refused) {
            tracing::info!(was = %one, "a part of the policy that was refused is in place");
        }
        let names: BTreeSet<Text> = refused.iter().map(|one| one.name.clone()).collect();
        let concerned = self.names.union(&names).cloned().collect();
        (self.refused, self.names) = (refused, names);
        Some(concerned)
    }
}
