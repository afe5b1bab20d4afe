//! The kernel's refusals, as last seen: logged once, and once more when the part is in place.

use messages::Text;
use netfilter::refused::Refused;
use std::collections::BTreeSet;

/// The parts that are not in the kernel as desired.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: BTreeSet<Refused>,
    names: BTreeSet<Text>,
    /// Whether drivers have to be queried.
    pub(super) look: bool,
}

impl Refusals {
    /// Whether there are any refusals.
    pub(super) fn has_any(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The number of refused parts.
    pub(super) fn count(&self) -> usize {
        self.refused.len()
    }

    /// The affected chains, sets and maps.
    pub(super) fn names(&self) -> &BTreeSet<Text> {
        &self.names
    }

    /// Records the present refusals; returns the names that were or are affected, if anything changed.
    pub(super) fn replace(&mut self, refused: BTreeSet<Refused>) -> Option<BTreeSet<Text>> {
        if refused == self.refused {
            return None;
        }
        for one in refused.difference(&self.refused) {
            tracing::error!(refused = %one, "the kernel refused a part of the policy; it is closed instead");
        }
        for one in self.refused.difference(&refused) {
            tracing::info!(was = %one, "a part of the policy that was refused is now in place");
        }
        let names: BTreeSet<Text> = refused.iter().map(|one| one.name.clone()).collect();
        let concerned = self.names.union(&names).cloned().collect();
        (self.refused, self.names) = (refused, names);
        Some(concerned)
    }
}
