//! What is decided about a lease, as functions of what was seen and of the time. No requests, no clock.
//!
//! Clocks of different machines are never compared, only how long a lease has not changed before our own eyes. A holder counts
//! from the moment before it sent the renewal, the others from the moment after they saw it: so the holder always stops first.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease holds after it was renewed.
    pub duration: Duration,
    /// After how long without a renewal the holder gives up, however many attempts it made. Shorter than `duration`: the rest
    /// is for work that is under way.
    pub renew_deadline: Duration,
    /// How often the lease is looked at.
    pub pause: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { duration: seconds(15), renew_deadline: seconds(10), pause: seconds(2) }
    }
}

/// A lease, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    pub(super) holder_identity: Option<String>,
    pub(super) lease_duration_seconds: Option<u64>,
    pub(super) acquire_time: Option<String>,
    pub(super) renew_time: Option<String>,
    pub(super) lease_transitions: Option<u64>,
}

/// What we saw of a lease, and since when it has been like that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(super) spec: LeaseSpec,
    pub(super) since: Instant,
}

/// What to do about the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is ours: renew it.
    Renew,
    /// Nobody holds it any more: take it.
    Take,
    /// Another holds it.
    Wait,
}

/// Decides about a lease that was seen.
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

/// How long the holder may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// When the attempt began that renewed the lease last.
    renewed: Instant,
    timing: Timing,
}

impl Tenure {
    /// The lease was taken by an attempt that began at this time.
    #[must_use]
    pub(crate) fn new(begun: Instant, timing: Timing) -> Self {
        Self { renewed: begun, timing }
    }

    /// It was renewed by an attempt that began at this time.
    pub(crate) fn renewed(&mut self, begun: Instant) {
        self.renewed = self.renewed.max(begun);
    }

    /// When all attempts to renew it end.
    #[must_use]
    pub(crate) fn deadline(&self) -> Instant {
        self.renewed + self.timing.renew_deadline
    }

    /// When the last work must be over: others may begin soon after.
    #[must_use]
    pub(crate) fn end(&self) -> Instant {
        // Halfway between giving up and the first moment at which another may take over.
        let rest = self.timing.duration.saturating_sub(self.timing.renew_deadline);
        self.deadline() + rest / 2
    }

    /// When to try again; nothing when it is over.
    #[must_use]
    pub(crate) fn next_attempt(&self, now: Instant) -> Option<Instant> {
        (now < self.deadline()).then(|| (now + self.timing.pause).min(self.deadline()))
    }
}

/// The lease as it is after we took or renewed it.
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

/// The lease as it is after we gave it back.
pub(super) fn given_back(before: &LeaseSpec) -> LeaseSpec {
    LeaseSpec { holder_identity: Some(String::new()), lease_duration_seconds: Some(1), ..before.clone() }
}
