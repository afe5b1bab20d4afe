//! Many kinds, one feed: one status out of all, and updates grouped into larger deliveries.
//!
//! Nothing overtakes anything: what was collected is delivered before a status that follows it.

use model::feed::{Status, Update};

/// How many updates one delivery has at most.
pub const LARGEST_DELIVERY: usize = 1000;

/// Something to hand to the sink.
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// Entries that came, changed or went.
    Updates(Vec<Update>),
    /// How far the feed has come.
    Status(Status),
    /// The store has been away for too long.
    Failed(String),
}

/// Collects what the kinds have to say.
#[derive(Debug)]
pub struct Aggregate {
    statuses: Vec<Status>,
    status: Option<Status>,
    pending: Vec<Update>,
}

impl Aggregate {
    /// For so many kinds. The first delivery is that the feed waits.
    #[must_use]
    pub fn new(kinds: usize) -> (Self, Delivery) {
        let status = Status::WaitForDatastore;
        let aggregate = Self { statuses: vec![status; kinds], status: Some(status), pending: Vec::new() };
        (aggregate, Delivery::Status(status))
    }

    /// Takes over updates of a kind; returns full deliveries.
    pub fn updates(&mut self, updates: Vec<Update>) -> Vec<Delivery> {
        let mut full = Vec::new();
        for update in updates {
            if self.pending.capacity() == 0 {
                self.pending.reserve_exact(LARGEST_DELIVERY.min(64));
            }
            self.pending.push(update);
            if self.pending.len() >= LARGEST_DELIVERY {
                full.push(Delivery::Updates(std::mem::take(&mut self.pending)));
            }
        }
        full
    }

    /// Takes over the status of a kind.
    pub fn status(&mut self, kind: usize, status: Status) -> Vec<Delivery> {
        if let Some(known) = self.statuses.get_mut(kind) {
            *known = status;
        }
        let all = |wanted: Status| self.statuses.iter().all(|status| *status == wanted);
        let status = if all(Status::InSync) {
            Status::InSync
        } else if all(Status::WaitForDatastore) {
            Status::WaitForDatastore
        } else {
            Status::ResyncInProgress
        };
        if self.status == Some(status) {
            return Vec::new();
        }
        self.status = Some(status);
        self.flush().into_iter().chain([Delivery::Status(status)]).collect()
    }

    /// Takes over the news that the store has been away for too long.
    pub fn failed(&mut self, message: String) -> Vec<Delivery> {
        self.flush().into_iter().chain([Delivery::Failed(message)]).collect()
    }

    /// What was collected: nothing more is waiting.
    pub fn flush(&mut self) -> Option<Delivery> {
        (!self.pending.is_empty()).then(|| Delivery::Updates(std::mem::take(&mut self.pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::feed::Change;
    use model::{Key, V1Key};

    fn update(name: &str) -> Update {
        let key = Key::V1(V1Key::GlobalConfig { name: name.into() });
        Update { key, value: None, revision: String::new(), change: Change::Deleted }
    }

    #[test]
    fn one_status_out_of_many() {
        use Status::{InSync, ResyncInProgress as Resync, WaitForDatastore as Wait};
        let (mut aggregate, first) = Aggregate::new(2);
        assert_eq!(first, Delivery::Status(Wait));
        for (kind, status, expected) in [
            (0, Wait, None),
            (0, Resync, Some(Resync)),
            (0, InSync, None),
            (1, Resync, None),
            (1, InSync, Some(InSync)),
            (1, Resync, Some(Resync)),
            (1, Wait, None),
            (0, Wait, Some(Wait)),
            (0, Resync, Some(Resync)),
            (1, Resync, None),
            (1, InSync, None),
            (0, InSync, Some(InSync)),
        ] {
            let expected: Vec<Delivery> = expected.map(Delivery::Status).into_iter().collect();
            assert_eq!(aggregate.status(kind, status), expected, "{kind} {status:?}");
        }
    }

    #[test]
    fn updates_come_before_the_status_that_follows_them() {
        let (mut aggregate, _) = Aggregate::new(1);
        aggregate.status(0, Status::ResyncInProgress);
        assert_eq!(aggregate.updates(vec![update("a"), update("b")]), []);
        let expected = [Delivery::Updates(vec![update("a"), update("b")]), Delivery::Status(Status::InSync)];
        assert_eq!(aggregate.status(0, Status::InSync), expected);
        assert_eq!(aggregate.flush(), None);
        aggregate.updates(vec![update("c")]);
        let expected = [Delivery::Updates(vec![update("c")]), Delivery::Failed("away".into())];
        assert_eq!(aggregate.failed("away".into()), expected);
    }

    #[test]
    fn deliveries_are_bounded() {
        let (mut aggregate, _) = Aggregate::new(1);
        let many: Vec<Update> = (0..2500).map(|number| update(&number.to_string())).collect();
        let mut told = Vec::new();
        let deliveries: Vec<Delivery> =
            aggregate.updates(many.clone()).into_iter().chain(aggregate.flush()).collect();
        for delivery in deliveries {
            let Delivery::Updates(updates) = delivery else { panic!("{delivery:?}") };
            assert!(updates.len() <= LARGEST_DELIVERY);
            told.extend(updates);
        }
        assert_eq!(told, many);
    }

    #[test]
    fn a_feed_of_nothing_is_in_sync_only_when_somebody_says_so() {
        let (mut aggregate, first) = Aggregate::new(0);
        assert_eq!(first, Delivery::Status(Status::WaitForDatastore));
        assert_eq!(aggregate.flush(), None);
    }
}
