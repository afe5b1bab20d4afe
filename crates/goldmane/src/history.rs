//! History beyond the hour in memory: an optional folder of files, bounded in bytes.
//!
//! Flows of whole minutes are appended to a file per hour, as [`blocks`]. At start, an incomplete block at the end of a
//! file is cut off, and the last hour is read back into memory. When space runs out the oldest file is removed. A full
//! or failing disk never stops anything: a block is retried for as long as its flows are in memory, then counted as
//! lost.
//!
//! Refuses a folder that another process uses.

pub(crate) mod blocks;
mod extending;
mod files;

use crate::aggregator::Aggregator;
use blocks::Block;
use files::Files;
use flows::query::{Filter, ListRequest, Page, Sort, TimeRange, list};
use flows::ring::Row;
use flows::{Ring, Snapshot};
use goldmane_api::borrowed::FlowRef;
use goldmane_api::convert::from_row;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The length of a block in seconds, or of a bucket if that is longer.
const BLOCK: i64 = 60;
/// How many buckets must have passed since the end of a block: most late flows have arrived by then.
const SETTLING: i64 = 2;

/// Counts for figures.
#[derive(Debug, Default)]
pub struct HistoryFigures {
    /// Blocks that were written.
    pub written: AtomicU64,
    /// Writes that failed.
    pub failures: AtomicU64,
    /// Blocks whose flows expired from memory before they could be written.
    pub lost: AtomicU64,
    /// Late flows for which there was no room until they could be written.
    pub lost_flows: AtomicU64,
    /// Pieces of files that could not be read.
    pub damaged: AtomicU64,
    /// Bytes of all files.
    pub bytes: AtomicU64,
}

/// The history in files.
#[derive(Debug)]
pub struct History {
    files: Mutex<Files>,
    figures: HistoryFigures,
    interval: i64,
    has_written: AtomicBool,
}

impl History {
    /// Opens a folder, creating it if necessary.
    ///
    /// # Errors
    /// When the folder cannot be used, or another process uses it.
    pub fn open(folder: &Path, most_bytes: u64, interval: i64) -> io::Result<Self> {
        let (files, damaged) = Files::open(folder, most_bytes)?;
        let figures = HistoryFigures::default();
        figures.damaged.store(damaged, Ordering::Relaxed);
        figures.bytes.store(files.bytes(), Ordering::Relaxed);
        let has_written = AtomicBool::new(false);
        Ok(Self { files: Mutex::new(files), figures, interval: interval.max(1), has_written })
    }

    /// The counts so far.
    #[must_use]
    pub fn figures(&self) -> &HistoryFigures {
        &self.figures
    }

    /// The time before which flows are in files; `None` if there are no files.
    #[must_use]
    pub fn until(&self) -> Option<i64> {
        self.files().until()
    }

    /// Reads the flows in files that begin at or after `since` back into memory.
    pub(crate) fn restore(&self, ring: &mut Ring, since: i64) {
        let mut filling = extending::Filling::new(ring);
        self.read(since, i64::MAX, |flow| filling.add(flow));
    }

    /// The history since a time, in memory: flows older than the recent part are read from files, summed up or as a
    /// series. Key numbers are only valid within this answer.
    pub(crate) fn extended(&self, recent: &Snapshot, range: TimeRange, is_series: bool) -> Snapshot {
        extending::extended(self, recent, range, is_series)
    }

    /// Writes the blocks that have ended, and late flows of earlier blocks. To be called at every turn. Returns false
    /// when something must be retried.
    pub fn write(&self, aggregator: &Aggregator) -> bool {
        let length = (BLOCK / self.interval).max(1) * self.interval;
        let begin = aggregator.snapshot().begin();
        // Only blocks that are completely in memory.
        let oldest = -(-begin).div_euclid(length) * length;
        let complete = (aggregator.now() - SETTLING * self.interval).div_euclid(length) * length;
        let mut start = self.until().unwrap_or(oldest);
        if start < oldest {
            // Time in which no process ran does not count as lost.
            if self.has_written.load(Ordering::Relaxed) {
                let gone = u64::try_from((oldest - start).div_euclid(length)).unwrap_or(0).max(1);
                self.figures.lost.fetch_add(gone, Ordering::Relaxed);
            }
            start = oldest;
        }
        while start < complete {
            let end = start + length;
            let (snapshot, late) = aggregator.seal(end);
            self.figures.lost_flows.fetch_add(late.dropped, Ordering::Relaxed);
            let mut block = Block::new(start, end);
            for row in rows(&snapshot, TimeRange { gte: start, lt: end }) {
                if let Some(flow) = from_row(&row).flow {
                    block.push_flow(&flow);
                }
            }
            for (_, flow) in &late.flows {
                block.push(flow);
            }
            if let Err(error) = self.append(&block) {
                tracing::warn!(%error, "flows cannot be written to the history; trying again");
                self.figures.failures.fetch_add(1, Ordering::Relaxed);
                aggregator.unseal(start, late);
                return false;
            }
            self.has_written.store(true, Ordering::Relaxed);
            start = end;
        }
        true
    }

    fn append(&self, block: &Block) -> io::Result<()> {
        let bytes = block.encode()?;
        let mut files = self.files();
        let outcome = files.append(block.start, block.end, &bytes);
        self.figures.bytes.store(files.bytes(), Ordering::Relaxed);
        if outcome.is_ok() {
            self.figures.written.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Calls `show` for every flow that begins in a range, in the order of writing.
    fn read(&self, since: i64, until: i64, mut show: impl FnMut(&FlowRef<'_>)) {
        // Does not block writers: what is appended in the meantime is newer than the range, or late.
        let paths = self.files().of_range(since, until);
        for path in paths {
            let damage = match std::fs::read(&path) {
                Ok(bytes) => {
                    let outcome = blocks::read(&bytes, |block| {
                        for flow in block.flows().filter_map(|flow| FlowRef::read(flow).ok()) {
                            if (since..until).contains(&flow.start) {
                                show(&flow);
                            }
                        }
                    });
                    outcome.damage
                }
                // The oldest file is removed when space runs out.
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => Some(error),
            };
            if let Some(error) = damage {
                tracing::warn!(%error, path = %path.display(), "a part of the history cannot be read");
                self.figures.damaged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All flows of a range, each summed over the range.
fn rows(snapshot: &Snapshot, range: TimeRange) -> Vec<Row> {
    let request = ListRequest { range, filter: Filter::default(), sort: Sort::Time, page: Page::default() };
    list(snapshot, &request).items
}

#[cfg(test)]
mod tests;
