//! Reads the kernel's reports, aggregates them and passes them to the collector. Each reader is a thread.
//!
//! The kernel is never kept waiting: reports for which the collector has no time are dropped and counted. Only the
//! regular reading of the whole connection table waits for the collector, because it can be late without losing
//! anything.

use super::figures::{Counts, GROUPS, Measured, ReaderFigures};
use bpf::layout::judged::Judged;
use flows::collector::{Before, CountedTraffic, Traffic, Tuple};
use netlink::Family;
use netlink::netfilter::conntrack::{
    self, ConnectionEvent, ConnectionEvents, ConnectionTable, Counted, Entry,
};
use netlink::netfilter::nflog::{LoggedPacket, Nflog};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};
use telemetry::Metrics;

/// How long a reader waits before it checks whether it has to end.
const WAIT: Duration = Duration::from_millis(200);
/// How often the kernel's connections are read.
pub(super) const DUMP_INTERVAL: Duration = Duration::from_secs(5);
/// How many connections are passed on at once.
pub(super) const PART: usize = 1024;

/// Packets of one connection that rules of one direction reported.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) tuple: Tuple,
    pub(super) before: Before,
    /// The texts of rules, in the order in which they were first reported.
    pub(super) prefixes: Vec<(String, Traffic)>,
}

/// The kernel's counts of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountedConnection {
    pub(super) tuple: Tuple,
    pub(super) before: Before,
    pub(super) totals: Option<CountedTraffic>,
    pub(super) is_over: bool,
}

/// The output of readers.
#[derive(Debug)]
pub(super) enum Input {
    Packets(Vec<Reported>),
    /// Packets that eBPF programs judged.
    Judged(Vec<Judged>),
    /// Connections that began with a translated destination.
    Translated(Vec<CountedConnection>),
    Ended(Vec<CountedConnection>),
    /// Existing connections, and whether these are the last ones of a reading.
    Counted(Vec<CountedConnection>, bool),
}

/// State shared by all readers.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) collector: SyncSender<Input>,
    pub(super) counts: Arc<Counts>,
    pub(super) metrics: Metrics,
    pub(super) has_ended: Arc<AtomicBool>,
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// Passes an input on if the collector has room for it.
    pub(super) fn offer(&self, input: Input) -> bool {
        match self.collector.try_send(input) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => false,
            Err(TrySendError::Disconnected(_)) => {
                self.has_ended.store(true, Ordering::Relaxed);
                false
            }
        }
    }
}

/// The kernel's sockets, opened.
#[derive(Debug)]
pub(super) struct Sources {
    packets: [Nflog; 2],
    events: ConnectionEvents,
    table: ConnectionTable,
    /// Whether packets are reported with their original destination.
    pub(super) are_complete: bool,
}

impl Sources {
    /// Opens all sockets in this thread's network namespace.
    pub(super) fn open() -> Result<Self, netlink::netfilter::Error> {
        let packets = [Nflog::open(GROUPS[0])?, Nflog::open(GROUPS[1])?];
        // Events of new connections are only needed where packets are reported without their original destination.
        let are_complete = packets.iter().all(Nflog::has_connections);
        let events = ConnectionEvents::open(!are_complete)?;
        Ok(Self { packets, events, table: ConnectionTable::open()?, are_complete })
    }

    /// Starts the threads.
    pub(super) fn start(self, shared: &Shared) -> io::Result<()> {
        for (place, reader) in self.packets.into_iter().enumerate() {
            let shared = shared.clone();
            spawn(&format!("nflog-{}", GROUPS[place]), move || read_packets(reader, place, &shared))?;
        }
        let (events, table) = (self.events, self.table);
        let owned = shared.clone();
        spawn("conntrack-events", move || read_events(events, &owned))?;
        let owned = shared.clone();
        spawn("conntrack-dump", move || read_table(table, &owned))
    }
}

pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn read_packets(mut reader: Nflog, place: usize, shared: &Shared) {
    let figures = &shared.counts.readers[place];
    let mut batch = Batch::default();
    while !shared.is_over() {
        if let Err(error) = reader.wait(WAIT, |packet| batch.add(packet)) {
            tracing::warn!(%error, group = GROUPS[place], "cannot read packets that rules report");
            std::thread::sleep(WAIT);
        }
        let counts = reader.counts();
        for (figure, value) in [
            (&figures.batches, counts.batches),
            (&figures.packets, counts.packets),
            (&figures.overruns, counts.overruns),
            (&figures.lost, counts.lost),
            (&figures.unreadable, counts.unreadable),
        ] {
            figure.store(value, Ordering::Relaxed);
        }
        hand_on(&mut batch, figures, shared);
    }
}

fn hand_on(batch: &mut Batch, figures: &ReaderFigures, shared: &Shared) {
    let (connections, packets) = batch.take();
    if connections.is_empty() {
        return;
    }
    let count = u64::try_from(connections.len()).unwrap_or(u64::MAX);
    figures.created.fetch_add(count, Ordering::Relaxed);
    match shared.offer(Input::Packets(connections)) {
        true => figures.handed_on.fetch_add(count, Ordering::Relaxed),
        false => figures.shed.fetch_add(packets, Ordering::Relaxed),
    };
}

/// Packets by connection.
#[derive(Debug, Default)]
struct Batch {
    places: HashMap<(Tuple, Before), usize>,
    connections: Vec<Reported>,
    packets: u64,
}

impl Batch {
    fn add(&mut self, packet: &LoggedPacket<'_>) {
        self.packets += 1;
        let tuple = tuple(&packet.start.tuple);
        let is_other = |original: &&conntrack::Tuple| {
            (original.dest, original.dest_port) != (tuple.dest, tuple.dest_port)
        };
        let original = packet.original.as_ref().filter(is_other);
        let before = original.map(|original| (original.dest, original.dest_port));
        let place = *self.places.entry((tuple, before)).or_insert_with(|| {
            self.connections.push(Reported { tuple, before, prefixes: Vec::new() });
            self.connections.len() - 1
        });
        let prefixes = &mut self.connections[place].prefixes;
        let known = prefixes.iter_mut().find(|(prefix, _)| prefix == packet.prefix);
        let traffic = match known {
            Some((_, traffic)) => traffic,
            None => {
                prefixes.push((packet.prefix.to_owned(), Traffic::default()));
                let last = prefixes.len() - 1;
                &mut prefixes[last].1
            }
        };
        traffic.packets += 1;
        traffic.bytes += u64::from(packet.start.length);
    }

    /// Returns the content and its number of packets; the batch is empty afterwards.
    fn take(&mut self) -> (Vec<Reported>, u64) {
        self.places.clear();
        (std::mem::take(&mut self.connections), std::mem::take(&mut self.packets))
    }
}

fn tuple(tuple: &conntrack::Tuple) -> Tuple {
    Tuple {
        source: tuple.source,
        dest: tuple.dest,
        protocol: tuple.protocol,
        source_port: tuple.source_port,
        dest_port: tuple.dest_port,
    }
}

fn counted(entry: &Entry, is_gone: bool) -> CountedConnection {
    let traffic = |counted: Counted| Traffic { packets: counted.packets, bytes: counted.bytes };
    CountedConnection {
        tuple: tuple(&entry.as_filtered()),
        before: entry.is_dest_translated().then_some((entry.original.dest, entry.original.dest_port)),
        totals: entry
            .counted
            .map(|(original, reply)| CountedTraffic { original: traffic(original), reply: traffic(reply) }),
        is_over: is_gone || entry.is_over(),
    }
}

fn read_events(mut events: ConnectionEvents, shared: &Shared) {
    while !shared.is_over() {
        let (mut ended, mut translated) = (Vec::new(), Vec::new());
        let outcome = events.wait(WAIT, |event| match event {
            ConnectionEvent::Gone(entry) => ended.push(counted(&entry, true)),
            ConnectionEvent::New(entry) if entry.is_dest_translated() => {
                translated.push(counted(&entry, false));
            }
            ConnectionEvent::New(_) => {}
        });
        if let Err(error) = outcome {
            tracing::warn!(%error, "cannot receive ends of connections");
            std::thread::sleep(WAIT);
        }
        shared.counts.events_lost.store(events.lost(), Ordering::Relaxed);
        for (connections, input) in
            [(translated, Input::Translated as fn(_) -> Input), (ended, Input::Ended as fn(_) -> Input)]
        {
            let count = u64::try_from(connections.len()).unwrap_or(u64::MAX);
            if count > 0 && !shared.offer(input(connections)) {
                shared.counts.events_shed.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

fn read_table(mut table: ConnectionTable, shared: &Shared) {
    let mut next = Instant::now();
    while !shared.is_over() {
        let now = Instant::now();
        if now < next {
            std::thread::sleep(WAIT.min(next - now));
            continue;
        }
        next = now + DUMP_INTERVAL;
        for family in [Family::V4, Family::V6] {
            let mut part = Vec::with_capacity(PART);
            let outcome = table.read(family, |entry| {
                part.push(counted(&entry, false));
                if part.len() >= PART {
                    send(
                        Input::Counted(std::mem::replace(&mut part, Vec::with_capacity(PART)), false),
                        shared,
                    );
                }
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, %family, "cannot read connections");
            }
            send(Input::Counted(part, family == Family::V6), shared);
        }
        Measured::Dump.note(&shared.metrics, now.elapsed());
    }
}

/// Passes an input on, and waits for the collector if necessary.
pub(super) fn send(input: Input, shared: &Shared) {
    if shared.collector.send(input).is_err() {
        shared.has_ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink::netfilter::packet::PacketStart;

    fn packet(port: u16, service: Option<&str>) -> (PacketStart, Option<conntrack::Tuple>) {
        let tuple = conntrack::Tuple {
            source: "10.0.0.1".parse().unwrap(),
            dest: "10.0.0.2".parse().unwrap(),
            protocol: 6,
            source_port: 40_000,
            dest_port: port,
        };
        let original = service.map(|service| conntrack::Tuple { dest: service.parse().unwrap(), ..tuple });
        (PacketStart { tuple, length: 60 }, original)
    }

    #[test]
    fn packets_are_aggregated_by_connection_in_the_order_of_their_rules() {
        let mut batch = Batch::default();
        for (prefix, port, service) in [
            ("PPI0|gnp/a", 80, Some("10.96.0.1")),
            ("API0|gnp/b", 80, Some("10.96.0.1")),
            ("DPI|default", 81, Some("10.0.0.2")),
            ("DPI|default", 81, None),
            ("DPI|default", 80, None),
        ] {
            let (start, original) = packet(port, service);
            batch.add(&LoggedPacket { prefix, start, original });
        }
        let (connections, packets) = batch.take();
        assert_eq!((connections.len(), packets), (3, 5));
        let once = Traffic { packets: 1, bytes: 60 };
        assert_eq!(
            connections[0].prefixes,
            [("PPI0|gnp/a".to_owned(), once), ("API0|gnp/b".to_owned(), once)]
        );
        assert_eq!(connections[0].before, Some(("10.96.0.1".parse().unwrap(), 80)));
        let twice = Traffic { packets: 2, bytes: 120 };
        assert_eq!(connections[1].prefixes, [("DPI|default".to_owned(), twice)]);
        assert_eq!(connections[1].before, None, "made to where it went");
        assert_eq!(
            (connections[2].tuple, connections[2].before),
            (connections[0].tuple, None),
            "from the same port"
        );
        assert_eq!(batch.take(), (vec![], 0));
    }

    #[test]
    fn inputs_for_a_busy_collector_are_counted() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let shared = Shared {
            collector: sender,
            counts: Arc::default(),
            metrics: Metrics::default(),
            has_ended: Arc::default(),
        };
        let mut batch = Batch::default();
        let figures = &shared.counts.readers[0];
        for _ in 0..3 {
            for port in [80, 81] {
                let (start, original) = packet(port, None);
                batch.add(&LoggedPacket { prefix: "DPI|default", start, original });
            }
            hand_on(&mut batch, figures, &shared);
        }
        assert_eq!(figures.created.load(Ordering::Relaxed), 6);
        assert_eq!(figures.handed_on.load(Ordering::Relaxed), 2);
        assert_eq!(figures.shed.load(Ordering::Relaxed), 4);
        assert!(!shared.is_over());
        drop(receiver);
        let (start, original) = packet(80, None);
        batch.add(&LoggedPacket { prefix: "DPI|default", start, original });
        hand_on(&mut batch, figures, &shared);
        assert!(shared.is_over(), "the collector is gone");
    }
}
