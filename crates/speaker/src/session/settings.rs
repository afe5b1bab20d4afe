//! The settings of a session that its machine needs.

use bgp_wire::{Asn, Family, RouterId};
use std::time::Duration;

/// The settings of a session. A session whose settings change is restarted; see [`super::Session`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Our AS number, as used with this peer.
    pub local_as: Asn,
    /// The peer's AS number.
    pub peer_as: Asn,
    /// Our BGP identifier.
    pub router_id: RouterId,
    /// The offered families.
    pub families: [bool; 2],
    /// Whether only the peer opens connections.
    pub passive: bool,
    /// After this many seconds of silence the peer is gone. 0 means never.
    pub hold_time: u16,
    /// The keepalive interval in seconds; a third of the hold time if absent.
    pub keepalive_time: Option<u16>,
    /// The pause before the first attempt to connect.
    pub connect_delay: Duration,
    /// The timeout of an attempt, and the pause between attempts.
    pub connect_retry: Duration,
    /// The pause after an error; it doubles up to the second value.
    pub error_wait: (Duration, Duration),
    /// After this long without an error the pause is short again.
    pub error_forget: Duration,
    /// Whether a restart of either side keeps routes (RFC 4724): the maximum duration of our restart in seconds, and
    /// how long a restarting peer's routes are kept.
    pub graceful_restart: Option<u16>,
    /// Whether IPv4 routes may have IPv6 next hops.
    pub extended_next_hop: bool,
    /// The maximum number of prefixes that the peer may announce.
    pub prefix_limit: Option<usize>,
}

impl Settings {
    /// BIRD's default hold time.
    pub(crate) const HOLD_TIME: u16 = 240;
    /// BIRD's default restart time.
    pub(crate) const RESTART_TIME: u16 = 120;
    /// Enough for two full Internet tables from a peer; no cluster needs more.
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

    /// Whether the peer is in another AS.
    #[must_use]
    pub(crate) fn is_external(&self) -> bool {
        self.local_as != self.peer_as
    }
}

/// Random numbers for jitter. Seeded from outside, so that a run can be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator; the numbers depend on the seed alone.
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

    /// A random duration between three quarters of the given one and all of it (RFC 4271, 10).
    pub(crate) fn jittered(&mut self, duration: Duration) -> Duration {
        let share = u32::try_from(self.next_u64() >> 40 & 0xff).unwrap_or_default();
        duration * (768 + share) / 1024
    }
}
