//! Connections, as a state machine: verdicts, counters and time in.

use super::aggregate::{Aggregate, CollectedFlow};
use super::world::{End, World};
use crate::key::{Action, Direction, FlowKey, Reporter, Service, Text};
use crate::labels::Labels;
use crate::nflog::Prefix;
use crate::ring::Counters;
use crate::trace::{PolicyHit, Trace};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

/// A connection without news for this many seconds is over.
const AGE: i64 = 10;
/// A connection that ended may still get its verdict for this many seconds: the kernel sends verdicts in batches.
const VERDICT_DELAY: i64 = 2;

/// A connection's addresses, after translation of the destination. For ICMP the ports are the id, and type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// The client's address.
    pub source: IpAddr,
    /// The server's address.
    pub dest: IpAddr,
    /// The IP protocol number.
    pub protocol: u8,
    /// The source's port.
    pub source_port: u16,
    /// The destination's port.
    pub dest_port: u16,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, other: Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// The kernel's counters of a connection since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedTraffic {
    /// From source to destination.
    pub original: Traffic,
    /// From destination to source.
    pub reply: Traffic,
}

/// Connections that could not be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorCounts {
    /// Connections refused because the table was full.
    pub full: u64,
    /// Connections that ended without a verdict.
    pub unexplained: u64,
}

/// The decisions at one end, and the traffic reported for it.
#[derive(Debug, Default)]
struct Side {
    /// Decisions for a packet whose final one has not arrived yet.
    coming: Vec<PolicyHit>,
    /// The key of the flow, once there is a verdict.
    key: Option<FlowKey>,
    pending: Vec<PolicyHit>,
    /// Packets reported by rules that are not in a flow yet.
    logged: Traffic,
    /// The part of the kernel's counters that is already in flows.
    base: CountedTraffic,
    has_started: bool,
    /// The last interval in which the connection was counted as live.
    live_in: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Active,
    /// The kernel reported the end at this time.
    Over(i64),
    /// Its end is in a flow, but the kernel may still list it.
    Finished,
}

#[derive(Debug)]
struct Connection {
    source: End,
    dest: End,
    service: Option<Service>,
    /// The kernel's latest counters.
    totals: Option<CountedTraffic>,
    sides: [Side; 2],
    phase: Phase,
    touched: i64,
}

/// The connections of a node, and the flows of the current interval.
#[derive(Debug)]
pub struct Connections {
    table: Table,
    flows: Aggregate,
    interval: u64,
    began: i64,
}

/// The address and port that the client connected to, if the destination was translated.
pub type Before = Option<(IpAddr, u16)>;

#[derive(Debug)]
struct Table {
    /// A client may use the same port for a connection through a service and one straight to its pod. Only the original
    /// destination tells them apart.
    connections: HashMap<(Tuple, Before), Connection>,
    is_told_apart: bool,
    most: usize,
    counts: CollectorCounts,
}

impl Connections {
    /// Creates an empty table that holds at most `most` connections. The first interval begins now.
    #[must_use]
    pub fn new(most: usize, now: i64) -> Self {
        let counts = CollectorCounts::default();
        let table = Table { connections: HashMap::new(), is_told_apart: true, most, counts };
        Self { table, flows: Aggregate::default(), interval: 0, began: now }
    }

    /// Declares that verdicts and counters disagree on original destinations, so that a tuple stands for one
    /// connection. Must be called before anything is reported.
    pub fn cannot_tell_apart(&mut self) {
        self.table.is_told_apart = false;
    }

    /// Takes in the decisions that rules of one direction reported for packets of a connection, in order. `before` is
    /// the original destination, if it was translated.
    pub fn verdict(
        &mut self,
        world: &dyn World,
        tuple: Tuple,
        before: Before,
        prefixes: &[(Prefix, Traffic)],
        now: i64,
    ) {
        let Some(connection) = self.table.connection(world, tuple, before, now) else { return };
        if connection.phase == Phase::Finished {
            // The same addresses and ports again: a new connection.
            *connection = match Connection::new(world, tuple, before, now) {
                Some(fresh) => fresh,
                None => return,
            };
        }
        for (prefix, traffic) in prefixes {
            let reporter = match prefix.direction {
                Direction::Egress => Reporter::Src,
                Direction::Ingress => Reporter::Dst,
            };
            let local = if reporter == Reporter::Src { &connection.source } else { &connection.dest };
            let Some(hit) = world.decision(prefix, local) else { continue };
            let action = hit.action;
            let side = &mut connection.sides[place(reporter)];
            side.coming.push(hit);
            if action == Action::Pass {
                continue;
            }
            // The packet's final decision: a verdict, which replaces an earlier one as a whole.
            let enforced = renumbered(std::mem::take(&mut side.coming), false);
            let is_same = side.key.as_ref().is_some_and(|key| key.trace.enforced == enforced);
            if !is_same {
                connection.report(reporter, self.interval, false, &mut self.flows);
                connection.sides[place(reporter)].key =
                    Some(connection.key(tuple, reporter, action, enforced));
            }
            connection.sides[place(reporter)].logged.add(*traffic);
        }
    }

    /// Takes in the kernel's counters of a connection, and whether it is over.
    pub fn counted(
        &mut self,
        world: &dyn World,
        tuple: Tuple,
        before: Before,
        totals: CountedTraffic,
        is_over: bool,
        now: i64,
    ) {
        let Some(connection) = self.table.connection(world, tuple, before, now) else { return };
        let is_another = connection.totals.is_some_and(|known| {
            totals.original.packets < known.original.packets || totals.reply.packets < known.reply.packets
        });
        if is_another {
            connection.finish(self.interval, &mut self.flows);
            connection.begin_again();
        }
        if connection.phase == Phase::Finished {
            return;
        }
        connection.totals = Some(totals);
        if is_over && connection.phase == Phase::Active {
            connection.phase = Phase::Over(now);
        }
    }

    /// Sets what staged policies would decide about a connection, as evaluated for one end.
    pub fn pending(&mut self, tuple: Tuple, before: Before, reporter: Reporter, hits: Vec<PolicyHit>) {
        let key = self.table.key(tuple, before);
        if let Some(connection) = self.table.connections.get_mut(&key) {
            connection.sides[place(reporter)].pending = renumbered(hits, true);
        }
    }

    /// Ends connections that are over or old. To be called about once per second.
    pub fn tick(&mut self, now: i64) {
        let (interval, flows, counts) = (self.interval, &mut self.flows, &mut self.table.counts);
        self.table.connections.retain(|_, connection| {
            let is_old = now - connection.touched >= AGE;
            let is_over = matches!(connection.phase, Phase::Over(since) if now - since >= VERDICT_DELAY);
            if (is_old || is_over) && connection.phase != Phase::Finished {
                let is_explained = connection.finish(interval, flows);
                counts.unexplained += u64::from(!is_explained);
            }
            !is_old
        });
    }

    /// Ends the interval and returns its flows.
    pub fn flush(&mut self, now: i64) -> Vec<CollectedFlow> {
        self.tick(now);
        for connection in self.table.connections.values_mut() {
            if connection.phase != Phase::Finished {
                for reporter in [Reporter::Src, Reporter::Dst] {
                    connection.report(reporter, self.interval, false, &mut self.flows);
                }
            }
        }
        self.interval += 1;
        let began = std::mem::replace(&mut self.began, now);
        self.flows.take(began, now)
    }

    /// The number of known connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.connections.len()
    }

    /// Whether no connections are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.connections.is_empty()
    }

    /// The connections that could not be reported so far.
    #[must_use]
    pub fn counts(&self) -> CollectorCounts {
        self.table.counts
    }
}

impl Table {
    fn key(&self, tuple: Tuple, before: Before) -> (Tuple, Before) {
        (tuple, before.filter(|_| self.is_told_apart))
    }

    /// Finds the connection, or creates it if one of its ends is on this node and there is room.
    fn connection(
        &mut self,
        world: &dyn World,
        tuple: Tuple,
        before: Before,
        now: i64,
    ) -> Option<&mut Connection> {
        let is_full = self.connections.len() >= self.most;
        let connection = match self.connections.entry(self.key(tuple, before)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let fresh = Connection::new(world, tuple, before, now)?;
                if is_full {
                    self.counts.full += 1;
                    return None;
                }
                place.insert(fresh)
            }
        };
        connection.touched = connection.touched.max(now);
        Some(connection)
    }
}

fn place(reporter: Reporter) -> usize {
    usize::from(reporter == Reporter::Dst)
}

/// Numbers decisions in order, without staged ones unless `with_staged`.
fn renumbered(hits: Vec<PolicyHit>, with_staged: bool) -> Vec<PolicyHit> {
    let is_staged = |hit: &PolicyHit| hit.policy().is_some_and(|policy| policy.kind.is_staged());
    let wanted = hits.into_iter().filter(|hit| with_staged || !is_staged(hit));
    wanted.zip(0..).map(|(hit, index)| PolicyHit { index, ..hit }).collect()
}

impl Connection {
    fn new(world: &dyn World, tuple: Tuple, before: Before, now: i64) -> Option<Self> {
        let end = |address: IpAddr, namespace: &str| {
            let mut end = world.end(address, namespace).unwrap_or_else(End::network);
            // Calico's own labels do not describe a workload.
            let is_calicos = |label: &&Text| label.starts_with(CALICOS_LABELS);
            if end.labels.texts().iter().any(|label| is_calicos(&label)) {
                end.labels = end.labels.texts().iter().filter(|label| !is_calicos(label)).collect::<Labels>();
            }
            end
        };
        // Which network set contains an address depends on the namespace of the other end.
        let dest_namespace = world.end(tuple.dest, "").map(|end| end.namespace().to_owned());
        let source = end(tuple.source, &dest_namespace.unwrap_or_default());
        let dest = end(tuple.dest, source.namespace());
        if !source.is_local && !dest.is_local {
            return None;
        }
        let service = before.and_then(|(address, port)| world.service(address, port, tuple.protocol));
        Some(Self {
            source,
            dest,
            service,
            totals: None,
            sides: Default::default(),
            phase: Phase::Active,
            touched: now,
        })
    }

    fn key(&self, tuple: Tuple, reporter: Reporter, action: Action, enforced: Vec<PolicyHit>) -> FlowKey {
        let none = || Text::from("-");
        FlowKey {
            source: self.source.peer(tuple.source),
            dest: self.dest.peer(tuple.dest),
            dest_port: i64::from(tuple.dest_port),
            service: self.service.clone().unwrap_or_else(|| Service {
                namespace: none(),
                name: none(),
                port_name: none(),
                port: 0,
            }),
            protocol: protocol(tuple.protocol),
            reporter,
            action,
            trace: Arc::new(Trace { enforced, pending: Vec::new() }),
        }
    }

    /// Adds what happened at one end since the last report to its flow.
    fn report(&mut self, reporter: Reporter, interval: u64, has_ended: bool, flows: &mut Aggregate) {
        let is_alive = self.totals.is_some();
        let side = &mut self.sides[place(reporter)];
        let Some(key) = &side.key else { return };
        let logged = std::mem::take(&mut side.logged);
        let (original, reply) = match self.totals {
            // The kernel counts every packet that it lets through, including the reported ones.
            Some(totals) if key.action == Action::Allow => {
                let more = (totals.original.since(side.base.original), totals.reply.since(side.base.reply));
                side.base = totals;
                more
            }
            _ => {
                if key.action == Action::Allow {
                    // The kernel counts them later; this avoids counting them twice.
                    side.base.original.add(logged);
                }
                (logged, Traffic::default())
            }
        };
        let nothing = Traffic::default();
        let has_news = original != nothing || reply != nothing || has_ended;
        if !has_news && (!is_alive || side.live_in == Some(interval)) {
            return;
        }
        let (incoming, outgoing) = match reporter {
            Reporter::Src => (reply, original),
            Reporter::Dst | Reporter::Unspecified => (original, reply),
        };
        let counters = Counters {
            packets_in: incoming.packets,
            packets_out: outgoing.packets,
            bytes_in: incoming.bytes,
            bytes_out: outgoing.bytes,
            started: u64::from(!side.has_started),
            completed: u64::from(has_ended),
            live: u64::from(side.live_in != Some(interval)),
        };
        side.has_started = true;
        side.live_in = Some(interval);
        flows.add(key, (&self.source.labels, &self.dest.labels), &counters, &side.pending);
    }

    /// Reports the end of the connection; false if no verdict ever arrived.
    fn finish(&mut self, interval: u64, flows: &mut Aggregate) -> bool {
        if self.phase == Phase::Finished {
            return true;
        }
        for reporter in [Reporter::Src, Reporter::Dst] {
            self.report(reporter, interval, true, flows);
        }
        self.phase = Phase::Finished;
        self.sides.iter().any(|side| side.key.is_some())
    }

    /// Starts over for a new connection with the same addresses, ports and decisions.
    fn begin_again(&mut self) {
        self.phase = Phase::Active;
        self.totals = None;
        for side in &mut self.sides {
            *side = Side {
                coming: std::mem::take(&mut side.coming),
                key: side.key.take(),
                pending: std::mem::take(&mut side.pending),
                live_in: side.live_in,
                ..Side::default()
            };
        }
    }
}

/// The prefix of the keys of Calico's own labels.
const CALICOS_LABELS: &str = api::words::OWN_PREFIX;

fn protocol(number: u8) -> Text {
    Text::from(match number {
        1 => "icmp",
        4 => "ipip",
        6 => "tcp",
        17 => "udp",
        50 => "esp",
        58 => "icmp6",
        132 => "sctp",
        other => return other.to_string().into(),
    })
}
