//! When each request is due: at once if it is new or has changed, and then periodically.

use api::{CalicoNodeStatus, CalicoNodeStatusSpec};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The requests for this node.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    questions: BTreeMap<String, Question>,
}

#[derive(Debug)]
struct Question {
    spec: CalicoNodeStatusSpec,
    due: Option<Instant>,
}

impl Schedule {
    /// Adds or updates a request. One for another node, or without a period, is removed.
    pub(crate) fn put(&mut self, node_name: &str, question: &CalicoNodeStatus, now: Instant) {
        let name = &question.metadata.name;
        let spec = &question.spec;
        if spec.node != node_name {
            self.remove(name);
            return;
        }
        if spec.update_period_seconds.is_none() {
            tracing::error!(name, "a CalicoNodeStatus without updatePeriodSeconds is not answered");
            self.remove(name);
            return;
        }
        // Our own answer also arrives as a change; only a changed request is a reason to answer.
        if self.questions.get(name).is_none_or(|known| known.spec != *spec) {
            self.questions.insert(name.clone(), Question { spec: spec.clone(), due: Some(now) });
        }
    }

    /// Removes a request.
    pub(crate) fn remove(&mut self, name: &str) {
        self.questions.remove(name);
    }

    /// When the next answer is due; `None` if none is.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.questions.values().filter_map(|question| question.due).min()
    }

    /// Returns the due requests, and schedules when each is due again.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<String> {
        let mut due = Vec::new();
        for (name, question) in &mut self.questions {
            if question.due.is_some_and(|at| at <= now) {
                due.push(name.clone());
                let period = question.spec.update_period_seconds.unwrap_or_default();
                // A period of zero means once.
                question.due = (period > 0).then(|| now + Duration::from_secs(period.into()));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::NodeStatusClass;

    fn question(name: &str, node: &str, period: Option<u32>) -> CalicoNodeStatus {
        let spec = CalicoNodeStatusSpec {
            node: node.to_owned(),
            classes: vec![NodeStatusClass::Agent],
            update_period_seconds: period,
            ..CalicoNodeStatusSpec::default()
        };
        CalicoNodeStatus::new("", name, spec)
    }

    #[test]
    fn a_request_is_answered_at_once_and_periodically() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = Schedule::default();
        schedule.put("n", &question("often", "n", Some(10)), start);
        schedule.put("n", &question("once", "n", Some(0)), start);
        schedule.put("n", &question("other", "m", Some(10)), start);
        schedule.put("n", &question("wrong", "n", None), start);
        assert_eq!(schedule.take_due(start), ["often", "once"]);
        assert_eq!(schedule.next(), Some(after(10)));
        // Our own answer arrives: nothing new.
        schedule.put("n", &question("once", "n", Some(0)), after(1));
        assert_eq!(schedule.take_due(after(9)), Vec::<String>::new());
        assert_eq!(schedule.take_due(after(10)), ["often"]);
        // A different request under the same name.
        schedule.put("n", &question("once", "n", Some(5)), after(11));
        assert_eq!(schedule.take_due(after(11)), ["once"]);
        // Moved to another node, or removed.
        schedule.put("n", &question("once", "m", Some(5)), after(12));
        schedule.remove("often");
        assert_eq!(schedule.next(), None);
    }
}
