//! The kinds of a feed that the store does not let us follow. For logs (each once), health and status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The step that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// The list.
    List,
    /// The watch; the kind is listed repeatedly instead.
    Watch,
}

/// A missing permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A description of what was refused.
    pub message: String,
    /// Whether the feed waits for it. If not, the kind counts as empty or is listed now and then.
    pub holds_back: bool,
}

/// The refusals of a feed, shared with the code that reports them. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    by_kind: Arc<Mutex<BTreeMap<(String, Step), Refusal>>>,
}

impl Refusals {
    /// The current refusals.
    #[must_use]
    pub fn list(&self) -> Vec<Refusal> {
        self.by_kind.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn set(&self, kind: String, step: Step, message: &str, holds_back: bool) {
        let refusal = Refusal { message: message.to_owned(), holds_back };
        let mut by_kind = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        if by_kind.get(&(kind.clone(), step)) != Some(&refusal) {
            tracing::warn!(kind, error = message, holds_back, "a permission is missing");
            by_kind.insert((kind, step), refusal);
        }
    }

    pub(crate) fn clear(&self, kind: &str, step: Step) {
        let mut by_kind = self.by_kind.lock().unwrap_or_else(PoisonError::into_inner);
        if by_kind.remove(&(kind.to_owned(), step)).is_some() {
            tracing::info!(kind, "the missing permission was granted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_kind_is_refused_on_its_own() {
        let refusals = Refusals::default();
        refusals.set("tiers".into(), Step::List, "no", true);
        refusals.set("tiers".into(), Step::Watch, "neither", false);
        let holds_back: Vec<bool> = refusals.list().iter().map(|refusal| refusal.holds_back).collect();
        assert_eq!(holds_back, [true, false]);
        refusals.clear("tiers", Step::List);
        assert_eq!(refusals.list(), [Refusal { message: "neither".into(), holds_back: false }]);
        refusals.clear("tiers", Step::Watch);
        assert_eq!(refusals.list(), []);
    }
}
