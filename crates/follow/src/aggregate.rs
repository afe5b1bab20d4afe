//! Combines many kinds into one feed: one status for all, and updates grouped into larger deliveries.
//!
//! Order is preserved: collected updates are delivered before a status that follows them.

use crate::FeedEvent;
use model::feed::Status;

/// Maximum number of updates per delivery.
pub const LARGEST_DELIVERY: usize = 1000;

/// Collects the results of the kinds.
#[derive(Debug)]
pub struct Aggregate<E> {
    statuses: Vec<Status>,
    status: Option<Status>,
    pending: Vec<E>,
}

impl<E> Aggregate<E> {
    /// Creates an aggregate of this many kinds. The first delivery is the waiting status.
    #[must_use]
    pub fn new(kinds: usize) -> (Self, FeedEvent<E>) {
        let status = Status::WaitForDatastore;
        let aggregate = Self { statuses: vec![status; kinds], status: Some(status), pending: Vec::new() };
        (aggregate, FeedEvent::Status(status))
    }

    /// Adds entries of a kind; returns full deliveries.
    pub fn entries(&mut self, updates: Vec<E>) -> Vec<FeedEvent<E>> {
        let mut full = Vec::new();
        for update in updates {
            if self.pending.capacity() == 0 {
                self.pending.reserve_exact(LARGEST_DELIVERY.min(64));
            }
            self.pending.push(update);
            if self.pending.len() >= LARGEST_DELIVERY {
                full.push(FeedEvent::Entries(std::mem::take(&mut self.pending)));
            }
        }
        full
    }

    /// Records the status of a kind.
    pub fn status(&mut self, kind: usize, status: Status) -> Vec<FeedEvent<E>> {
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
        self.flush().into_iter().chain([FeedEvent::Status(status)]).collect()
    }

    /// Records that the store has been unreachable for too long.
    pub fn away(&mut self, message: String) -> Vec<FeedEvent<E>> {
        self.flush().into_iter().chain([FeedEvent::Away(message)]).collect()
    }

    /// Returns the collected updates; nothing is pending afterwards.
    pub fn flush(&mut self) -> Option<FeedEvent<E>> {
        (!self.pending.is_empty()).then(|| FeedEvent::Entries(std::mem::take(&mut self.pending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::feed::FeedEntry;

    fn update(name: &str) -> FeedEntry {
        FeedEntry::GlobalConfig(name.into(), None)
    }

    #[test]
    fn one_status_out_of_many() {
        use Status::{InSync, ResyncInProgress as Resync, WaitForDatastore as Wait};
        let (mut aggregate, first) = Aggregate::<FeedEntry>::new(2);
        assert_eq!(first, FeedEvent::Status(Wait));
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
            let expected: Vec<FeedEvent> = expected.map(FeedEvent::Status).into_iter().collect();
            assert_eq!(aggregate.status(kind, status), expected, "{kind} {status:?}");
        }
    }

    #[test]
    fn updates_come_before_the_status_that_follows_them() {
        let (mut aggregate, _) = Aggregate::new(1);
        aggregate.status(0, Status::ResyncInProgress);
        assert_eq!(aggregate.entries(vec![update("a"), update("b")]), []);
        let expected =
            [FeedEvent::Entries(vec![update("a"), update("b")]), FeedEvent::Status(Status::InSync)];
        assert_eq!(aggregate.status(0, Status::InSync), expected);
        assert_eq!(aggregate.flush(), None);
        aggregate.entries(vec![update("c")]);
        let expected = [FeedEvent::Entries(vec![update("c")]), FeedEvent::Away("away".into())];
        assert_eq!(aggregate.away("away".into()), expected);
    }

    #[test]
    fn deliveries_are_bounded() {
        let (mut aggregate, _) = Aggregate::new(1);
        let many: Vec<FeedEntry> = (0..2500).map(|number| update(&number.to_string())).collect();
        let mut told = Vec::new();
        let deliveries: Vec<FeedEvent> =
            aggregate.entries(many.clone()).into_iter().chain(aggregate.flush()).collect();
        for delivery in deliveries {
            let FeedEvent::Entries(updates) = delivery else { panic!("{delivery:?}") };
            assert!(updates.len() <= LARGEST_DELIVERY);
            told.extend(updates);
        }
        assert_eq!(told, many);
    }

    #[test]
    fn an_empty_feed_is_in_sync_only_when_its_kind_reports_it() {
        let (mut aggregate, first) = Aggregate::<FeedEntry>::new(0);
        assert_eq!(first, FeedEvent::Status(Status::WaitForDatastore));
        assert_eq!(aggregate.flush(), None);
    }
}
