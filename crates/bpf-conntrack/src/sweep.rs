//! Decides what happens to an entry.

use crate::liveness;
use crate::nat::{self, Destinations};
use crate::timeouts::Timeouts;
use bpf::Layout as _;
use bpf::layout::Family;
use bpf::layout::conntrack::{Entry, Key, Tracking, Value, flags, flags::SOURCE_IS_B};
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// A stub is removed together with its entry with state. Only in one of this many passes is it checked that the entry
/// still exists: only the kernel's eviction leaves a stub behind, and a program that finds such a stub deletes it.
const PASSES: u64 = 32;

/// Why an entry is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A stub without the entry that it points to.
    NoReverse,
    /// A side has reset the connection.
    Reset,
    /// Both sides have closed it.
    Closed,
    /// Packets continued after a reset, and then ceased.
    AfterReset,
    /// An established connection is idle.
    Established,
    /// A connection that was not established is idle.
    NotEstablished,
    /// An ICMP flow is idle.
    Icmp,
    /// A UDP flow is idle.
    Udp,
    /// A flow of another protocol is idle.
    Generic,
    /// The service or backend is gone.
    StaleNat,
}

impl Reason {
    /// The label of Calico's counter `felix_bpf_conntrack_expired_total`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NoReverse => "no reverse for forward",
            Self::Reset => "RST seen",
            Self::Closed => "FINs seen",
            Self::AfterReset => "no traffic on conn with RST with residual traffic for too long",
            Self::Established => "no traffic on established flow for too long",
            Self::NotEstablished => "no traffic on pre-established flow for too long",
            Self::Icmp => "no traffic on ICMP flow for too long",
            Self::Udp => "no traffic on UDP flow for too long",
            Self::Generic => "no traffic on generic IP flow for too long",
            Self::StaleNat => "stale NAT",
        }
    }
}

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is kept.
    Keep,
    /// It has ended.
    Delete(Reason),
    /// It gets the flag that makes the next packet be answered with a reset.
    SendReset,
}

/// The outcome of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries that were checked.
    pub entries: u64,
    /// Deleted entries by reason, including stubs deleted with their flow.
    pub deleted: BTreeMap<Reason, u64>,
    /// Entries that were flagged for a reset.
    pub resets: u64,
    /// Entries that saw a packet while they were judged, and were kept.
    pub revived: u64,
    /// Maglev flows to backends on this node.
    pub maglev_local: u64,
    /// Maglev flows forwarded to other nodes.
    pub maglev_remote: u64,
    /// Connections that count towards limits, by the workload's device and whether they are to it.
    pub limited: BTreeMap<(u32, bool), u32>,
}

/// Decides about entries, pass by pass.
#[derive(Clone, Debug)]
pub struct Sweep<F: Family> {
    timeouts: Timeouts,
    /// Workloads removed since the last pass.
    removed: HashSet<F::Address>,
    pass: u64,
    /// The generations of services in the last two passes: a program may write an entry by the old state just after a
    /// change.
    generations: [Option<u64>; 2],
    /// Whether entries are compared with services in this pass.
    checks_nat: bool,
}

impl<F: Family> Sweep<F> {
    /// Creates a sweep before the first pass.
    #[must_use]
    pub fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, removed: HashSet::new(), pass: 0, generations: [None; 2], checks_nat: true }
    }

    /// Resets TCP connections of these addresses in the next pass.
    pub fn workloads_removed(&mut self, addresses: impl IntoIterator<Item = F::Address>) {
        self.removed.extend(addresses);
    }

    /// Begins a pass over the whole map.
    pub(crate) fn pass_begins(&mut self, generation: u64) {
        self.checks_nat = self.generations != [Some(generation); 2];
        self.generations = [self.generations[1], Some(generation)];
    }

    /// Aborts a pass: the entries it did not see were not compared.
    pub(crate) fn pass_was_left(&mut self) {
        self.generations = [None; 2];
    }

    /// Completes a pass over the whole map.
    pub(crate) fn pass_is_over(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        self.removed.clear();
    }

    /// Decides about an entry at this time; `get` reads another entry.
    pub fn decide(
        &self,
        now: u64,
        key: &Key<F>,
        value: &Value<F>,
        nat: &impl Destinations<F>,
        get: impl Fn(&Key<F>) -> Option<Value<F>>,
    ) -> Verdict {
        let ended = |value: &Value<F>, tracking: &Tracking<F>| {
            let age = now.saturating_sub(value.last_seen);
            liveness::ended(&self.timeouts, key.protocol, age, value.rst_seen, value.flags, tracking)
        };
        let over = match &value.entry {
            Entry::Normal(tracking) | Entry::Reverse(tracking) => ended(value, tracking),
            Entry::Forward(reverse, _) if self.is_due(key) => match get(reverse) {
                None => Some(Reason::NoReverse),
                Some(other) => match &other.entry {
                    Entry::Normal(tracking) | Entry::Reverse(tracking) => ended(&other, tracking),
                    _ => None,
                },
            },
            Entry::Forward(..) | Entry::Unknown(_) => None,
        };
        let asks = self.checks_nat && key.protocol != 6;
        let over = over.or_else(|| if asks { nat::stale(nat, key, value, get) } else { None });
        match over {
            Some(reason) => Verdict::Delete(reason),
            None if self.wants_reset(key, value) => Verdict::SendReset,
            None => Verdict::Keep,
        }
    }

    /// Whether the first bytes of an entry suffice to keep it: they do for most, and decoding the rest takes longer
    /// than this.
    pub(crate) fn is_plainly_live(&self, now: u64, key: &[u8], value: &[u8]) -> bool {
        let Some(glance) = Glance::new(key, value) else { return false };
        let is_tcp = glance.protocol == 6;
        if is_tcp && !self.removed.is_empty() || !is_tcp && self.checks_nat {
            return false;
        }
        let times = &self.timeouts;
        let soonest = match glance.protocol {
            6 => times
                .tcp_syn_sent
                .min(times.tcp_established)
                .min(times.tcp_fins_seen)
                .min(times.tcp_reset_seen),
            1 | 58 => times.icmp,
            17 => times.udp,
            _ => times.generic,
        };
        match glance.kind {
            0 | 2 => now.saturating_sub(glance.last_seen) <= soonest.min(liveness::AFTER_RESET),
            1 => !self.is_turn(key),
            _ => false,
        }
    }

    fn wants_reset(&self, key: &Key<F>, value: &Value<F>) -> bool {
        key.protocol == 6
            && !self.removed.is_empty()
            && value.flags & flags::SEND_RESET == 0
            && (self.removed.contains(&key.address_a) || self.removed.contains(&key.address_b))
    }

    /// Whether a stub is due to be checked in this pass.
    fn is_due(&self, key: &Key<F>) -> bool {
        self.is_turn(&key.bytes())
    }

    fn is_turn(&self, key: &[u8]) -> bool {
        let sum: u64 = key.iter().map(|byte| u64::from(*byte)).sum();
        sum.wrapping_add(self.pass).is_multiple_of(PASSES)
    }
}

/// The first bytes of an entry; `bpf::layout::conntrack` describes the rest.
pub(crate) struct Glance {
    protocol: u32,
    last_seen: u64,
    kind: u8,
    pub(crate) has_maglev: bool,
    pub(crate) has_limits: bool,
}

impl Glance {
    pub(crate) fn new(key: &[u8], value: &[u8]) -> Option<Self> {
        let (protocol, _) = key.split_first_chunk()?;
        let (last_seen, rest) = value.get(8..)?.split_first_chunk()?;
        let [kind, _, third, ..] = rest else { return None };
        Some(Self {
            protocol: u32::from_ne_bytes(*protocol),
            last_seen: u64::from_ne_bytes(*last_seen),
            kind: *kind,
            has_maglev: third & 1 == 1,
            has_limits: u32::from(*third) << 16 & (flags::LIMIT_INGRESS | flags::LIMIT_EGRESS) != 0,
        })
    }
}

/// The key of the stub that refers to an entry with state, if there is one.
pub(crate) fn stub<F: Family>(key: &Key<F>, value: &Value<F>) -> Option<Key<F>> {
    let Entry::Reverse(tracking) = &value.entry else { return None };
    let (address, port) = if value.flags & SOURCE_IS_B == 0 {
        (key.address_a, key.port_a)
    } else {
        (key.address_b, key.port_b)
    };
    let was = |changed: bool, before, now| if changed { before } else { now };
    let source = (
        was(tracking.original_source != F::Address::default(), tracking.original_source, address),
        if tracking.original_source_port == 0 { port } else { tracking.original_source_port },
    );
    let service = (tracking.original_address, tracking.original_port);
    Some(Key::new(u8::try_from(key.protocol).ok()?, source, service).0)
}

#[cfg(test)]
mod tests;
