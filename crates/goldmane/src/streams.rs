//! One reader of a stream: buckets in their order, each when it is complete, and flows that came late.
//!
//! A reader has a place in the history and nothing else. One that is slow takes its buckets later, from a later snapshot; only
//! when what it has not read leaves the history is it ended, with an error that says so. In memory is one bucket's flows.

use crate::aggregator::Aggregator;
use crate::figures::{Figures, Present};
use flows::query::Filter;
use goldmane_api::convert::from_row;
use goldmane_api::proto::FlowResult;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tonic::Status;

/// How many results wait for a reader at most.
const AHEAD: usize = 128;
/// A bucket is complete when another one has passed since its end.
const SETTLING: i64 = 1;

/// What a stream gives.
pub(crate) type Results = mpsc::Receiver<Result<FlowResult, Status>>;

/// Begins a stream from a time: 0 for now, below zero for so many seconds ago.
///
/// # Errors
/// When there are too many streams.
pub(crate) fn begin(aggregator: &Arc<Aggregator>, start: i64, filter: Filter) -> Result<Results, Status> {
    let present = Figures::stream(aggregator)
        .ok_or_else(|| Status::resource_exhausted("max number of streams reached, try again later"))?;
    let snapshot = aggregator.snapshot();
    let now = aggregator.now();
    let from = match start {
        0 => snapshot.number(now) - SETTLING,
        ..0 => snapshot.number(now.saturating_add(start)),
        _ => snapshot.number(start),
    };
    // What is older than the history is not waited for.
    let from = from.max(snapshot.number(snapshot.begin()));
    let (sender, receiver) = mpsc::channel(AHEAD);
    let reader = Reader {
        aggregator: Arc::clone(aggregator),
        filter,
        from,
        next: from,
        revision: snapshot.revision(),
        sender,
        _present: present,
    };
    tokio::spawn(reader.run());
    Ok(receiver)
}

struct Reader {
    aggregator: Arc<Aggregator>,
    filter: Filter,
    /// The first bucket that is wanted.
    from: i64,
    /// The next bucket to send.
    next: i64,
    /// Everything until this change was sent, as far as it is in buckets before the next one.
    revision: u64,
    sender: mpsc::Sender<Result<FlowResult, Status>>,
    _present: Present,
}

impl Reader {
    async fn run(mut self) {
        let mut turns = self.aggregator.turns();
        let began = Instant::now();
        if self.look().await.is_none() {
            return;
        }
        self.aggregator.figures().backfilled(began.elapsed());
        loop {
            tokio::select! {
                () = self.sender.closed() => return,
                turned = turns.changed() => if turned.is_err() {
                    return;
                },
            }
            if self.look().await.is_none() {
                return;
            }
        }
    }

    /// Sends what is new; nothing if that is the end.
    async fn look(&mut self) -> Option<()> {
        loop {
            for (number, since) in self.work() {
                // No snapshot is held while the reader reads: it would keep all that leaves the history meanwhile.
                let snapshot = self.aggregator.snapshot();
                if since.is_none() && number < snapshot.number(snapshot.begin()) {
                    self.aggregator.figures().stream_fell_behind();
                    let error = "the reader is behind by more than the history: flows are missing";
                    // Nobody may be there to read it.
                    let _ = self.sender.send(Err(Status::data_loss(error))).await;
                    return None;
                }
                let rows = snapshot.bucket(number, since, &|key| self.filter.passes(key));
                drop(snapshot);
                for row in rows {
                    self.sender.send(Ok(from_row(&row))).await.ok()?;
                }
            }
            if self.next >= self.complete() {
                return Some(());
            }
        }
    }

    /// What is to be sent next: buckets that changed after they were sent, with the changes that are known already, and one
    /// bucket that was not sent. What changes until it is sent may come twice.
    fn work(&mut self) -> Vec<(i64, Option<u64>)> {
        let snapshot = self.aggregator.snapshot();
        let (from, next, since) = (self.from, self.next, self.revision);
        let late = snapshot.changed(since).filter(|number| (from..next).contains(number));
        let mut work: Vec<_> = late.map(|number| (number, Some(since))).collect();
        self.revision = snapshot.revision();
        if next < self.complete() {
            work.push((next, None));
            self.next += 1;
        }
        work
    }

    /// The buckets before this one are complete.
    fn complete(&self) -> i64 {
        let interval = self.aggregator.options().ring.interval.max(1);
        self.aggregator.now().div_euclid(interval) - SETTLING
    }
}
