//! What a session is configured with, as far as its machine needs it.

use bgp_wire::{Asn, Family, RouterId};
use std::time::Duration;

/// The settings of a session. A session whose settings change begins again; see [`super::Session`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Our system, towards this peer.
    pub local_as: Asn,
    /// The peer's system.
    pub peer_as: Asn,
    /// Our identifier.
    pub router_id: RouterId,
    /// Which families are offered.
    pub families: [bool; 2],
    /// Whether only the peer connects.
    pub passive: bool,
    /// After so much silence the peer counts as gone. 0 means never.
    pub hold_time: u16,
    /// The pause between signs of life; a third of the hold time when absent.
    pub keepalive_time: Option<u16>,
    /// The pause before the first attempt to connect.
    pub connect_delay: Duration,
    /// How long an attempt may take, and the pause between attempts.
    pub connect_retry: Duration,
    /// The pause after an error; it doubles up to the second.
    pub error_wait: (Duration, Duration),
    /// After so long without an error the pause is short again.
    pub error_forget: Duration,
    /// Whether a restart of either side keeps routes (RFC 4724); how many seconds ours takes at most, and how long a
    /// restarting peer's routes are kept.
    pub graceful_restart: Option<u16>,
    /// Whether IPv4 routes may have IPv6 next hops.
    pub extended_next_hop: bool,
    /// How many prefixes the peer may announce.
    pub prefix_limit: Option<usize>,
}

impl Settings {
    /// BIRD's hold time.
    pub(crate) const HOLD_TIME: u16 = 240;
    /// BIRD's restart time.
    pub(crate) const RESTART_TIME: u16 = 120;
    /// Of this many prefixes a peer can announce two full Internet tables; no cluster needs more.
    pub(crate) const PREFIX_LIMIT: usize = 2_000_000;

    /// The settings of Calico's BIRD for a peer.
    #[must_use]
    pub(crate) fn new(local_as: Asn, peer_as: Asn, router_id: RouterId, family: Family) -> Self {
        let mut families = [false; 2];
        families[family.index()] = true;
        Self {
            local_as,
            peer_as,
            router_id,
            families,
            passive: false,
            hold_time: Self::HOLD_TIME,
            keepalive_time: None,
            connect_delay: Duration::from_secs(2),
            connect_retry: Duration::from_secs(5),
            error_wait: (Duration::from_secs(5), Duration::from_secs(30)),
            error_forget: Duration::from_mins(5),
            graceful_restart: Some(Self::RESTART_TIME),
            extended_next_hop: false,
            prefix_limit: Some(Self::PREFIX_LIMIT),
        }
    }

    /// Whether the peer is of another system.
    #[must_use]
    pub(crate) fn is_external(&self) -> bool {
        self.local_as != self.peer_as
    }
}

/// Random numbers for jitter. Seeded from outside, so that a run can be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Numbers that depend on the seed alone.
    #[must_use]
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number (xorshift64*).
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A duration between three quarters of it and all of it (RFC 4271, 10).
    pub(crate) fn jittered(&mut self, duration: Duration) -> Duration {
        let share = u32::try_from(self.next_u64() >> 40 & 0xff).unwrap_or_default();
        duration * (768 + share) / 1024
    }
}
