//! The thread that creates flows from the kernel's reports.

use super::directory::Directory;
use super::figures::{Counts, Measured};
use super::interval::Interval;
use super::programs;
use super::readers::{CountedConnection, Input, Reported};
use super::sinks::Sinks;
use flows::collector::{Before, CollectedFlow, Connections, Traffic, Tuple};
use flows::nflog::Prefix;
use flows::{Action, Direction, Reporter};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use telemetry::{Metrics, Pulse};

/// The maximum number of known connections: the kernel's usual limit.
const MOST_CONNECTIONS: usize = 262_144;
/// The maximum number of remembered translated destinations, for packets that are reported without them.
const MOST_TRANSLATED: usize = 65_536;
/// How often finished flows are closed, and listeners on this node receive flows.
const TICK: Duration = Duration::from_secs(1);
/// The fraction of an interval after which connections are evaluated again.
const SWEEP_SHARE: f64 = 0.8;

/// The collector.
pub(super) struct Collector {
    directory: Arc<Mutex<Directory>>,
    connections: Connections,
    sinks: Sinks,
    counts: Arc<Counts>,
    metrics: Metrics,
    /// The original destinations of connections that have not been reported yet.
    translated: HashMap<Tuple, (IpAddr, u16)>,
    interval: Interval,
    flush_interval: Duration,
    next_tick: Instant,
    next_export: Instant,
    sweep: Sweep,
    is_traced: bool,
}

/// The repeated evaluation of connections after policies changed, while they are read from the kernel.
#[derive(Debug)]
struct Sweep {
    /// The generation that was evaluated last.
    generation: Option<u64>,
    /// The generation that is being evaluated, and since when.
    now: Option<(u64, Instant)>,
    not_before: Instant,
}

impl Collector {
    pub(super) fn new(
        directory: Arc<Mutex<Directory>>,
        sinks: Sinks,
        metrics: &Metrics,
        flush_interval: Duration,
        is_traced: bool,
    ) -> Self {
        let (now, time) = (Instant::now(), seconds());
        Self {
            directory,
            connections: Connections::new(MOST_CONNECTIONS, time),
            counts: Arc::clone(&sinks.counts),
            sinks,
            metrics: metrics.clone(),
            translated: HashMap::new(),
            interval: Interval::new(time),
            flush_interval,
            next_tick: now + TICK,
            next_export: now + flush_interval,
            sweep: Sweep { generation: None, now: None, not_before: now },
            is_traced,
        }
    }

    /// Notes that reports of connections do not agree on their original destinations.
    pub(super) fn cannot_tell_apart(&mut self) {
        self.connections.cannot_tell_apart();
    }

    /// Works until all senders are gone or the end is requested.
    pub(super) fn run(mut self, inputs: &Receiver<Input>, has_ended: &AtomicBool, pulse: &Pulse) {
        while !has_ended.load(Ordering::Relaxed) {
            let wait = self.next_tick.saturating_duration_since(Instant::now());
            let input = inputs.recv_timeout(wait);
            pulse.busy();
            match input {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= self.next_tick {
                self.tick();
            }
            pulse.idle();
        }
    }

    fn take(&mut self, input: Input) {
        let directory = Arc::clone(&self.directory);
        let mut directory = lock(&directory);
        let now = seconds();
        match input {
            Input::Packets(connections) => {
                for connection in connections {
                    self.reported(&mut directory, &connection, now);
                }
            }
            Input::Judged(packets) => {
                for packet in &packets {
                    if let Some(connection) = programs::reported(packet, &directory) {
                        self.reported(&mut directory, &connection, now);
                    }
                }
            }
            Input::Translated(connections) => {
                if self.translated.len() >= MOST_TRANSLATED {
                    self.translated.clear();
                }
                for connection in connections {
                    self.translated.extend(connection.before.map(|before| (connection.tuple, before)));
                }
            }
            Input::Ended(connections) => {
                for connection in connections {
                    self.counted(&mut directory, &connection, now);
                    self.translated.remove(&connection.tuple);
                }
            }
            Input::Counted(connections, is_last) => {
                self.begin_sweep(&directory);
                for connection in connections {
                    self.counted(&mut directory, &connection, now);
                    if self.sweep.now.is_some() {
                        for reporter in [Reporter::Src, Reporter::Dst] {
                            let counts = Arc::clone(&self.counts);
                            self.evaluate(
                                &mut directory,
                                connection.tuple,
                                connection.before,
                                reporter,
                                &counts.evaluated_again,
                            );
                        }
                    }
                }
                if is_last {
                    self.end_sweep();
                }
            }
        }
    }

    fn reported(&mut self, directory: &mut Directory, connection: &Reported, now: i64) {
        let resolve = |(text, traffic): &(String, Traffic)| Some((directory.prefix(text)?, *traffic));
        let prefixes: Vec<(Prefix, Traffic)> = connection.prefixes.iter().filter_map(resolve).collect();
        let before: Before = connection.before.or_else(|| self.translated.get(&connection.tuple).copied());
        if self.is_traced {
            tracing::debug!(?connection, ?before, "packets that rules reported");
        }
        self.connections.verdict(&directory.names, connection.tuple, before, &prefixes, now);
        let has = |direction| prefixes.iter().any(|(prefix, _)| prefix.direction == direction);
        let counts = Arc::clone(&self.counts);
        for (direction, reporter) in [(Direction::Egress, Reporter::Src), (Direction::Ingress, Reporter::Dst)]
        {
            if has(direction) {
                self.evaluate(directory, connection.tuple, before, reporter, &counts.evaluated_first);
            }
        }
    }

    fn counted(&mut self, directory: &mut Directory, connection: &CountedConnection, now: i64) {
        // Connections that began before the kernel counted have no figures.
        let Some(totals) = connection.totals else { return };
        let (tuple, before) = (connection.tuple, connection.before);
        self.connections.counted(&directory.names, tuple, before, totals, connection.is_over, now);
    }

    fn evaluate(
        &mut self,
        directory: &mut Directory,
        tuple: Tuple,
        before: Before,
        reporter: Reporter,
        count: &AtomicU64,
    ) {
        if let Some(hits) = directory.pending(&tuple, reporter) {
            count.fetch_add(1, Ordering::Relaxed);
            self.connections.pending(tuple, before, reporter, hits.to_vec());
        }
    }

    /// If policies have changed, starts to evaluate connections again while they are read.
    fn begin_sweep(&mut self, directory: &Directory) {
        let Some(generation) = directory.generation() else { return };
        let is_due = self.sweep.generation != Some(generation) && Instant::now() >= self.sweep.not_before;
        if self.sweep.now.is_none() && is_due {
            self.sweep.now = Some((generation, Instant::now()));
        }
    }

    fn end_sweep(&mut self) {
        let Some((generation, begin)) = self.sweep.now.take() else { return };
        self.sweep.generation = Some(generation);
        self.sweep.not_before = begin + self.flush_interval.mul_f64(SWEEP_SHARE);
        self.counts.sweeps.fetch_add(1, Ordering::Relaxed);
        Measured::Sweep.note(&self.metrics, begin.elapsed());
    }

    fn tick(&mut self) {
        let (begin, now) = (Instant::now(), seconds());
        self.next_tick = begin + TICK;
        {
            let mut directory = lock(&self.directory);
            directory.tick(now);
            self.counts.set_sizes(directory.sizes());
        }
        self.connections.tick(now);
        if self.sinks.has_listener() {
            let flows = self.connections.flush(now);
            self.sinks.show(&flows);
            self.keep(flows);
        }
        if begin >= self.next_export {
            self.next_export = begin + self.flush_interval;
            let flows = self.connections.flush(now);
            self.keep(flows);
            let flows = self.interval.take(now);
            let is_allowed = |flow: &&CollectedFlow| flow.key.action == Action::Allow;
            let allowed = flows.iter().filter(is_allowed).count();
            set(&self.counts.allowed, allowed);
            set(&self.counts.denied, flows.len() - allowed);
            self.sinks.send(flows);
            Measured::Flush.note(&self.metrics, begin.elapsed());
        }
        set(&self.counts.connections, self.connections.len());
        let counts = self.connections.counts();
        self.counts.full.store(counts.full, Ordering::Relaxed);
        self.counts.unexplained.store(counts.unexplained, Ordering::Relaxed);
    }

    /// Keeps flows until the end of the interval, if they are sent then.
    fn keep(&mut self, flows: Vec<CollectedFlow>) {
        if self.sinks.has_goldmane() {
            self.interval.add(flows);
        }
    }
}

fn set(count: &AtomicU64, value: usize) {
    count.store(u64::try_from(value).unwrap_or(u64::MAX), Ordering::Relaxed);
}

pub(super) fn lock(directory: &Mutex<Directory>) -> MutexGuard<'_, Directory> {
    directory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The current time in seconds since 1970.
fn seconds() -> i64 {
    goldmane_api::push::now()
}
