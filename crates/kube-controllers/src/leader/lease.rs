//! Decisions about a lease, as functions of what was seen and of the time. Does no requests and reads no clock.
//!
//! Clocks of different machines are never compared; what counts is for how long we have seen a lease unchanged. A
//! holder counts from the moment before it sent the renewal, the others from the moment after they saw it: so the
//! holder always stops first.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease is valid after its renewal.
    pub duration: Duration,
    /// The time without a renewal after which the holder gives up, regardless of the number of attempts. Shorter than
    /// `duration`: the rest is for work in progress.
    pub renew_deadline: Duration,
    /// How often the lease is checked.
    pub pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(15), renew_deadline: seconds(10), pause: seconds(2) }
    }
}

/// The fields of a lease that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    pub(super) holder_identity: Option<String>,
    pub(super) lease_duration_seconds: Option<u64>,
    pub(super) acquire_time: Option<String>,
    pub(super) renew_time: Option<String>,
    pub(super) lease_transitions: Option<u64>,
}

/// The state of a lease that we saw, and since when it has been unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(super) spec: LeaseSpec,
    pub(super) since: Instant,
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// We hold it: renew it.
    Renew,
    /// It has no holder any more: take it.
    Take,
    /// Another instance holds it: wait.
    Wait,
}

/// Decides about an observed lease.
#[must_use]
pub(crate) fn decide(observed: &Observed, identity: &str, now: Instant) -> Decision {
    match observed.spec.holder_identity.as_deref() {
        Some(holder) if holder == identity => Decision::Renew,
        None | Some("") => Decision::Take,
        Some(_) => {
            let holds = observed.spec.lease_duration_seconds.map(Duration::from_secs);
            let holds = holds.unwrap_or_else(|| Timing::default().duration);
            if now.saturating_duration_since(observed.since) > holds {
                Decision::Take
            } else {
                Decision::Wait
            }
        }
    }
}

/// How long the holder may continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// When the attempt began that last renewed the lease.
    renewed: Instant,
    timing: Timing,
}

impl Tenure {
    /// Starts when the lease is taken by an attempt that began at this time.
    #[must_use]
    pub(crate) fn new(begun: Instant, timing: Timing) -> Self {
        Self { renewed: begun, timing }
    }

    /// Records a renewal by an attempt that began at this time.
    pub(crate) fn renewed(&mut self, begun: Instant) {
        self.renewed = self.renewed.max(begun);
    }

    /// When attempts to renew it end.
    #[must_use]
    pub(crate) fn deadline(&self) -> Instant {
        self.renewed + self.timing.renew_deadline
    }

    /// When all work must have ended: others may begin soon after.
    #[must_use]
    pub(crate) fn end(&self) -> Instant {
        // Halfway between giving up and the earliest moment at which another instance may take over.
        let rest = self.timing.duration.saturating_sub(self.timing.renew_deadline);
        self.deadline() + rest / 2
    }

    /// When to try again; `None` if the deadline has passed.
    #[must_use]
    pub(crate) fn next_attempt(&self, now: Instant) -> Option<Instant> {
        (now < self.deadline()).then(|| (now + self.timing.pause).min(self.deadline()))
    }
}

/// The lease after we took or renewed it.
pub(super) fn held(before: &LeaseSpec, identity: &str, time: &str, timing: &Timing) -> LeaseSpec {
    let is_ours = before.holder_identity.as_deref() == Some(identity);
    let transitions = before.lease_transitions.unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(timing.duration.as_secs()),
        acquire_time: if is_ours { before.acquire_time.clone() } else { Some(time.to_owned()) },
        renew_time: Some(time.to_owned()),
        lease_transitions: Some(if is_ours { transitions } else { transitions + 1 }),
    }
}

/// The lease after we released it.
pub(super) fn given_back(before: &LeaseSpec) -> LeaseSpec {
    LeaseSpec { holder_identity: Some(String::new()), lease_duration_seconds: Some(1), ..before.clone() }
}
