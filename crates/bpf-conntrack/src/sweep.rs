//! What happens to an entry.

use crate::liveness;
use crate::nat::{self, Destinations};
use crate::timeouts::Timeouts;
use bpf::Layout as _;
use bpf::layout::Family;
use bpf::layout::conntrack::{Entry, Key, Tracking, Value, flags::SOURCE_IS_B};
use hashbrown::HashSet;
use std::collections::BTreeMap;

/// A stub is looked after by the entry with the state, which goes with it. Whether that one is still there is asked in one of
/// so many passes: only the kernel's forgetting leaves a stub alone, and a program that meets one deletes it.
const PASSES: u64 = 8;

/// Why an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A stub without the entry that it points to.
    NoReverse,
    /// A side has reset the connection.
    Reset,
    /// Both sides have closed it.
    Closed,
    /// Packets went on after a reset, and then no more.
    AfterReset,
    /// Silence on an established connection.
    Established,
    /// Silence before it was established.
    NotEstablished,
    /// Silence.
    Icmp,
    /// Silence.
    Udp,
    /// Silence.
    Generic,
    /// Service or backend are gone.
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
    /// Nothing.
    Keep,
    /// It is over.
    Delete(Reason),
    /// The flag that has the next packet answered with a reset.
    SendReset,
}

/// What one pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries that were looked at.
    pub entries: u64,
    /// Entries that went, by reason; a stub that went with its flow counts too.
    pub deleted: BTreeMap<Reason, u64>,
    /// Entries that got the flag for a reset.
    pub resets: u64,
    /// Entries that saw a packet while they were judged, and stayed.
    pub revived: u64,
    /// Maglev's flows to backends here.
    pub maglev_local: u64,
    /// Maglev's flows that were sent on to other nodes.
    pub maglev_remote: u64,
}

/// Decides about entries, pass by pass.
#[derive(Clone, Debug)]
pub struct Sweep<F: Family> {
    timeouts: Timeouts,
    /// Workloads that went since the last pass.
    removed: HashSet<F::Address>,
    pass: u64,
}

impl<F: Family> Sweep<F> {
    /// Nothing was swept yet.
    #[must_use]
    pub fn new(timeouts: Timeouts) -> Self {
        Self { timeouts, removed: HashSet::new(), pass: 0 }
    }

    /// TCP connections of these addresses are reset in the next pass.
    pub fn workloads_removed(&mut self, addresses: impl IntoIterator<Item = F::Address>) {
        self.removed.extend(addresses);
    }

    /// A pass over the whole map is done.
    pub fn pass_is_over(&mut self) {
        self.pass = self.pass.wrapping_add(1);
        self.removed.clear();
    }

    /// What to do with an entry at this time; `get` reads another one.
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
        let over = over.or_else(|| if key.protocol == 6 { None } else { nat::stale(nat, key, value, get) });
        match over {
            Some(reason) => Verdict::Delete(reason),
            None if self.wants_reset(key, value) => Verdict::SendReset,
            None => Verdict::Keep,
        }
    }

    fn wants_reset(&self, key: &Key<F>, value: &Value<F>) -> bool {
        key.protocol == 6
            && !self.removed.is_empty()
            && value.flags & crate::flags::SEND_RESET == 0
            && (self.removed.contains(&key.address_a) || self.removed.contains(&key.address_b))
    }

    /// Whether it is a stub's turn to be asked about.
    fn is_due(&self, key: &Key<F>) -> bool {
        let sum: u64 = key.bytes().iter().map(|byte| u64::from(*byte)).sum();
        sum.wrapping_add(self.pass).is_multiple_of(PASSES)
    }
}

/// The key of the stub that leads to an entry with state, if there is one.
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
