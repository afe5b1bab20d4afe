//! One reader of a stream: buckets in order, each once it is complete, and late flows.
//!
//! A reader is just a position in the history. A slow reader gets its buckets later, from a later snapshot; it is
//! ended, with an error that says why, only when flows it has not read leave the history. Memory holds one bucket's
//! flows per reader.

use crate::aggregator::Aggregator;
use crate::figures::{Figures, Present};
use flows::query::Filter;
use goldmane_api::convert::from_row;
use goldmane_api::proto::FlowResult;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;
use tonic::Status;

/// The maximum number of results that wait for a reader.
const AHEAD: usize = 128;
/// A bucket is complete when another one has passed since its end.
const SETTLING: i64 = 1;

/// The results of a stream.
pub(crate) type Results = mpsc::Receiver<Result<FlowResult, Status>>;

/// Begins a stream at a time: 0 for now, negative values for that many seconds ago.
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
    // Buckets older than the history are skipped.
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
    /// The first requested bucket.
    from: i64,
    /// The next bucket to send.
    next: i64,
    /// Everything up to this revision was sent, as far as it is in buckets before the next one.
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

    /// Sends what is new; `None` if the stream has ended.
    async fn look(&mut self) -> Option<()> {
        loop {
            for (number, since) in self.work() {
                // No snapshot is held while the reader reads: it would keep everything alive that leaves the history in
                // the meantime.
                let snapshot = self.aggregator.snapshot();
                if since.is_none() && number < snapshot.number(snapshot.begin()) {
                    self.aggregator.figures().stream_fell_behind();
                    let error = "the reader fell behind the history: flows are missing";
                    // The reader may be gone.
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

    /// What to send next: buckets that changed after they were sent, with the revision that the reader already has, and
    /// one new bucket. Flows that change before they are sent may be sent twice.
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
