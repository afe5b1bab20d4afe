//! Records what nodes lost before their flows arrived here, for readers of flows: a service of our own beside Calico's.
//!
//! Nodes report how much they have lost since they began to count. Readers get the losses of the last hour, which flows
//! cover, and the total. Bounded: a maximum number of nodes, only known kinds, one number per minute.

use crate::services::Services;
use goldmane_api::losses::LossKind;
use goldmane_api::losses::proto::losses_server::Losses;
use goldmane_api::losses::proto::{
    KnownLoss, LossCount, LossReceipt, LossReport, LossesRequest, LossesResult, NodeLosses,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tonic::{Request, Response, Status};

/// The maximum number of nodes.
const MOST_NODES: usize = 10_000;
/// The maximum length of a node's name, as in Kubernetes.
const LONGEST_NAME: usize = 253;
/// How long losses count as recent, and silent nodes are remembered; in seconds.
const RECENT: i64 = 3600;
/// Losses within this many seconds are added up.
const STEP: i64 = 60;

/// Losses of one kind.
#[derive(Debug, Default)]
struct Counted {
    /// Lost before the node's counter restarted.
    before: u64,
    now: u64,
    /// The times and numbers of recent losses; the oldest first.
    added: VecDeque<(i64, u64)>,
}

impl Counted {
    fn add(&mut self, count: u64, time: i64) {
        if count == 0 {
            return;
        }
        let step = time.div_euclid(STEP) * STEP;
        match self.added.back_mut() {
            Some((at, added)) if *at >= step => *added = added.saturating_add(count),
            _ => self.added.push_back((step, count)),
        }
        self.forget(time);
    }

    fn forget(&mut self, time: i64) {
        while self.added.front().is_some_and(|(at, _)| *at <= time - RECENT) {
            self.added.pop_front();
        }
    }

    fn recent(&self, time: i64) -> u64 {
        let recent = self.added.iter().filter(|(at, _)| *at > time - RECENT);
        recent.fold(0, |sum, (_, added)| sum.saturating_add(*added))
    }
}

/// The state of one node.
#[derive(Debug, Default)]
struct Node {
    heard: i64,
    kinds: BTreeMap<LossKind, Counted>,
}

/// The losses of all nodes; time is an input.
#[derive(Debug, Default)]
pub(crate) struct LossBook(BTreeMap<String, Node>);

impl LossBook {
    /// Records a node's losses during the `counting` seconds since it began to count.
    fn report(&mut self, node: &str, counting: i64, losses: &[LossCount], time: i64) {
        if !self.0.contains_key(node) {
            self.0.retain(|_, node| node.heard > time - RECENT);
            if self.0.len() >= MOST_NODES {
                return;
            }
        }
        let is_new = !self.0.contains_key(node);
        let node = self.0.entry(node.to_owned()).or_default();
        node.heard = time;
        for loss in losses {
            let counted = node.kinds.entry(loss.kind()).or_default();
            let more = match loss.count.checked_sub(counted.now) {
                // Losses from before this server was running may be of any age.
                Some(_) if is_new && counting >= RECENT => 0,
                Some(more) => more,
                // The node's counter restarted.
                None => {
                    counted.before = counted.before.saturating_add(counted.now);
                    loss.count
                }
            };
            counted.now = loss.count;
            counted.add(more, time);
        }
    }

    fn list(&self, time: i64) -> Vec<NodeLosses> {
        let heard = self.0.iter().filter(|(_, node)| node.heard > time - RECENT);
        let known = |(kind, counted): (&LossKind, &Counted)| KnownLoss {
            kind: (*kind).into(),
            recent: counted.recent(time),
            total: counted.before.saturating_add(counted.now),
        };
        heard
            .map(|(name, node)| NodeLosses {
                node: name.clone(),
                age: (time - node.heard).max(0),
                losses: node.kinds.iter().map(known).filter(|loss| loss.total > 0).collect(),
            })
            .collect()
    }
}

/// The losses of nodes and of the server itself.
#[derive(Debug, Default)]
pub(crate) struct LossAccounts {
    nodes: Mutex<LossBook>,
    /// The server's own losses, recorded when a reader asks for them.
    own: Mutex<LossBook>,
}

/// The name for the server's own losses: no node has an empty name.
const OWN: &str = "";

impl Services {
    /// The flows that this server itself did not count.
    fn own_losses(&self) -> Vec<LossCount> {
        let (counts, figures) = (self.0.kept().counts, self.0.figures());
        let lost = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let history = self.0.history().map_or(0, |history| lost(&history.figures().lost));
        [
            (LossKind::FlowsOutside, counts.outside),
            (LossKind::FlowsFull, counts.full),
            (LossKind::FlowsUnreadable, figures.unreadable_flows()),
            (LossKind::HistoryLost, history),
        ]
        .map(|(kind, count)| LossCount { kind: kind.into(), count })
        .to_vec()
    }
}

#[tonic::async_trait]
impl Losses for Services {
    async fn report(&self, request: Request<LossReport>) -> Result<Response<LossReceipt>, Status> {
        let LossReport { node, counting, losses } = request.into_inner();
        if node == OWN || node.len() > LONGEST_NAME {
            return Err(Status::invalid_argument("a node has a name of at most 253 characters"));
        }
        let mut book = self.0.losses().nodes.lock().unwrap_or_else(PoisonError::into_inner);
        book.report(&node, counting, &losses, self.0.now());
        Ok(Response::new(LossReceipt {}))
    }

    async fn list(&self, _: Request<LossesRequest>) -> Result<Response<LossesResult>, Status> {
        let (now, own) = (self.0.now(), self.own_losses());
        let accounts = self.0.losses();
        let mut nodes = {
            let mut book = accounts.own.lock().unwrap_or_else(PoisonError::into_inner);
            book.report(OWN, 0, &own, now);
            book.list(now)
        };
        nodes.extend(accounts.nodes.lock().unwrap_or_else(PoisonError::into_inner).list(now));
        let kept = self.0.kept();
        let result =
            LossesResult { nodes, received: self.0.figures().received_flows(), keys: kept.keys as u64 };
        Ok(Response::new(result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(book: &mut LossBook, counting: i64, count: u64, time: i64) {
        let losses = [LossCount { kind: LossKind::PacketsShed.into(), count }];
        book.report("n1", counting, &losses, time);
    }

    /// Recent, and in total.
    fn shed(book: &LossBook, time: i64) -> (u64, u64) {
        let nodes = book.list(time);
        let loss = nodes[0].losses.first().copied().unwrap_or_default();
        (loss.recent, loss.total)
    }

    #[test]
    fn losses_of_the_last_hour_are_recent() {
        let mut book = LossBook::default();
        report(&mut book, 5, 10, 1000);
        report(&mut book, 10, 10, 1005);
        assert_eq!(shed(&book, 1005), (10, 10));
        report(&mut book, 2000, 25, 3000);
        assert_eq!(shed(&book, 3000), (25, 25));
        report(&mut book, 4000, 25, 5000);
        assert_eq!(shed(&book, 5000), (15, 25), "the first ten are old");
        report(&mut book, 6000, 25, 7000);
        assert_eq!(shed(&book, 7000), (0, 25));
    }

    #[test]
    fn a_restarted_collector_counts_from_zero() {
        let mut book = LossBook::default();
        report(&mut book, 5, 10, 1000);
        report(&mut book, 0, 3, 1010);
        assert_eq!(shed(&book, 1010), (13, 13));
        report(&mut book, 5, 4, 1015);
        assert_eq!(shed(&book, 1015), (14, 14));
    }

    #[test]
    fn losses_from_before_the_server_started_are_not_recent() {
        let mut book = LossBook::default();
        report(&mut book, RECENT, 10, 1000);
        report(&mut book, RECENT + 5, 11, 1005);
        assert_eq!(shed(&book, 1005), (1, 11));
    }

    #[test]
    fn silent_nodes_are_forgotten_and_the_number_of_nodes_is_bounded() {
        let mut book = LossBook::default();
        report(&mut book, 5, 10, 1000);
        assert_eq!(book.list(1000 + RECENT - 1)[0].age, RECENT - 1);
        assert!(book.list(1000 + RECENT).is_empty());
        for number in 0..MOST_NODES + 5 {
            book.report(&format!("n{number}"), 0, &[], 9000);
        }
        assert_eq!(book.list(9000).len(), MOST_NODES);
    }

    #[test]
    fn memory_is_bounded_for_one_kind() {
        let mut counted = Counted::default();
        (0..100_000).for_each(|time| counted.add(1, time));
        assert!(counted.added.len() <= usize::try_from(RECENT / STEP).unwrap() + 1);
        assert_eq!(counted.recent(99_999), 3600 + 99_999 % 60 - 59);
    }
}
