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

/// A connection that nothing is heard of for so many seconds is over.
const AGE: i64 = 10;
/// A connection that ended may still get its verdict for so many seconds: the kernel sends those in batches.
const VERDICT_DELAY: i64 = 2;

/// A connection, by its addresses after translation of the destination. For ICMP the ports are the id, and type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub dest: IpAddr,
    /// The number of its protocol.
    pub protocol: u8,
    /// The source's port.
    pub source_port: u16,
    /// The destination's port.
    pub dest_port: u16,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many packets.
    pub packets: u64,
    /// How many bytes they had.
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

/// What the kernel counted of a connection since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedTraffic {
    /// From the source.
    pub original: Traffic,
    /// Back to it.
    pub reply: Traffic,
}

/// What could not be reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorCounts {
    /// Connections for which there was no room.
    pub full: u64,
    /// Connections that ended without a verdict.
    pub unexplained: u64,
}

/// What was decided at one end, and what was reported of it.
#[derive(Debug, Default)]
struct Side {
    /// Decisions of a packet whose last one has not come yet.
    coming: Vec<PolicyHit>,
    /// The key of the flow, once there is a verdict.
    key: Option<FlowKey>,
    pending: Vec<PolicyHit>,
    /// Reported packets that are not in a flow yet.
    logged: Traffic,
    /// What of the kernel's counters is in flows.
    base: CountedTraffic,
    has_started: bool,
    /// The last interval in which the connection was counted as live.
    live_in: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Active,
    /// The kernel said so, at that time.
    Over(i64),
    /// Its end is in a flow; the kernel may still list it.
    Finished,
}

#[derive(Debug)]
struct Connection {
    source: End,
    dest: End,
    service: Option<Service>,
    /// The kernel's counters.
    totals: Option<CountedTraffic>,
    sides: [Side; 2],
    phase: Phase,
    touched: i64,
}

/// The connections of a node, and the flows of the present interval.
#[derive(Debug)]
pub struct Connections {
    table: Table,
    flows: Aggregate,
    interval: u64,
    began: i64,
}

/// Where a connection was made to, if that was translated.
pub type Before = Option<(IpAddr, u16)>;

#[derive(Debug)]
struct Table {
    /// A client may have a connection by a service and one straight to its pod from the same port. Only where they were made
    /// to tells them apart.
    connections: HashMap<(Tuple, Before), Connection>,
    is_told_apart: bool,
    most: usize,
    counts: CollectorCounts,
}

impl Connections {
    /// No connections; the first interval begins now.
    #[must_use]
    pub fn new(most: usize, now: i64) -> Self {
        let counts = CollectorCounts::default();
        let table = Table { connections: HashMap::new(), is_told_apart: true, most, counts };
        Self { table, flows: Aggregate::default(), interval: 0, began: now }
    }

    /// Verdicts and counters do not agree on where connections were made to: one of a tuple is all that can be known. To be said
    /// before anything is reported.
    pub fn cannot_tell_apart(&mut self) {
        self.table.is_told_apart = false;
    }

    /// Packets of a connection were reported by rules of one direction, in this order. `before` is where the connection was
    /// made to, if that was translated.
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
            // The same addresses and ports again: another connection.
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
            // The packet's last decision: a verdict, which replaces an earlier one as a whole.
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

    /// The kernel counted this much of a connection so far; perhaps it is over.
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

    /// What would be decided with staged policies, as worked out for one end.
    pub fn pending(&mut self, tuple: Tuple, before: Before, reporter: Reporter, hits: Vec<PolicyHit>) {
        let key = self.table.key(tuple, before);
        if let Some(connection) = self.table.connections.get_mut(&key) {
            connection.sides[place(reporter)].pending = renumbered(hits, true);
        }
    }

    /// Ends what is over or old. To be called every second or so.
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

    /// Ends the interval: its flows.
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

    /// How many connections are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.connections.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.connections.is_empty()
    }

    /// What could not be reported so far.
    #[must_use]
    pub fn counts(&self) -> CollectorCounts {
        self.table.counts
    }
}

impl Table {
    fn key(&self, tuple: Tuple, before: Before) -> (Tuple, Before) {
        (tuple, before.filter(|_| self.is_told_apart))
    }

    /// The connection, which is made if one end is here and there is room.
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

/// Decisions with their places; staged ones only where they belong.
fn renumbered(hits: Vec<PolicyHit>, with_staged: bool) -> Vec<PolicyHit> {
    let is_staged = |hit: &PolicyHit| hit.policy().is_some_and(|policy| policy.kind.is_staged());
    let wanted = hits.into_iter().filter(|hit| with_staged || !is_staged(hit));
    wanted.zip(0..).map(|(hit, index)| PolicyHit { index, ..hit }).collect()
}

impl Connection {
    fn new(world: &dyn World, tuple: Tuple, before: Before, now: i64) -> Option<Self> {
        let end = |address: IpAddr, namespace: &str| {
            let mut end = world.end(address, namespace).unwrap_or_else(End::network);
            // Calico's own labels say nothing about a workload.
            let is_calicos = |label: &&Text| label.starts_with(CALICOS_LABELS);
            if end.labels.texts().iter().any(|label| is_calicos(&label)) {
                end.labels = end.labels.texts().iter().filter(|label| !is_calicos(label)).collect::<Labels>();
            }
            end
        };
        // Which network set an address is of depends on the namespace of the other end.
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

    /// Puts what happened at one end since the last time into its flow.
    fn report(&mut self, reporter: Reporter, interval: u64, has_ended: bool, flows: &mut Aggregate) {
        let is_alive = self.totals.is_some();
        let side = &mut self.sides[place(reporter)];
        let Some(key) = &side.key else { return };
        let logged = std::mem::take(&mut side.logged);
        let (original, reply) = match self.totals {
            // The kernel counts every packet of what it lets through, those that were reported included.
            Some(totals) if key.action == Action::Allow => {
                let more = (totals.original.since(side.base.original), totals.reply.since(side.base.reply));
                side.base = totals;
                more
            }
            _ => {
                if key.action == Action::Allow {
                    // The kernel counts them later; they are not counted twice.
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

    /// Reports the end of the connection; false if nothing was ever decided about it.
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

    /// Another connection with the same addresses and ports, about which the same was decided.
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

/// What the keys of Calico's own labels begin with.
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
