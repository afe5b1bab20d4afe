//! When the loop brings the kernel to the desired state: a state machine in one enum with data, and one function from
//! state and event to the next state. Time is part of the events; nothing is carried out here.
//!
//! | | part | messages | news | time is up | held | done | failed |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | waiting for sync | partial¹ | due¹ | | | | | |
//! | partial | | due | | | | | |
//! | idle | partial | due | due | due | | | |
//! | due | partial | | | | held | idle | retry |
//! | held | partial | | | due | | | |
//! | retry | partial | due | due | due | | | |
//!
//! ¹ If the state is complete with it for the first time. An empty field means that the state stays.

use std::time::{Duration, Instant};

/// The first and the longest pause before a retry.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The state of the loop. `failures` counts consecutive failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// The datastore's content is not completely known yet, and nothing is written.
    WaitingForSync,
    /// Only a part of a batch has arrived: the rest comes as messages.
    Partial { failures: u32 },
    /// The kernel is as desired. Drivers or managers may have to check again at `wake`.
    Idle { wake: Option<Instant> },
    /// Something has to be written.
    Due { failures: u32 },
    /// Something has to be written, but there were too many writes in a short time.
    Held { until: Instant, failures: u32 },
    /// Some part could not be written, and is retried.
    Retry { at: Instant, failures: u32 },
}

/// An event or result of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// An incomplete part of a batch. `in_sync`: the state is complete with the rest of the batch.
    Part { in_sync: bool },
    /// All messages that are available now.
    Messages { in_sync: bool },
    /// Something in the kernel or on the host changed.
    News,
    /// This is the time.
    Time(Instant),
    /// Writing is not permitted before this time.
    Held(Instant),
    /// Everything was written; check again at `wake`.
    Done { wake: Option<Instant> },
    /// Something failed at this time.
    Failed { now: Instant, wake: Option<Instant> },
}

impl Pace {
    /// The next state.
    #[must_use]
    pub(super) fn after(self, step: Step) -> Self {
        match (self, step) {
            (Self::WaitingForSync, Step::Part { in_sync: true }) => Self::Partial { failures: 0 },
            (Self::WaitingForSync, Step::Messages { in_sync: true }) => Self::Due { failures: 0 },
            (Self::WaitingForSync, _) => self,
            (_, Step::Part { .. }) => Self::Partial { failures: self.failures() },
            (Self::Partial { failures }, Step::Messages { .. }) => Self::Due { failures },
            (Self::Partial { .. }, _) => self,
            (Self::Due { .. } | Self::Held { .. }, Step::Messages { .. } | Step::News) => self,
            (Self::Idle { .. } | Self::Retry { .. }, Step::Messages { .. } | Step::News) => {
                Self::Due { failures: self.failures() }
            }
            (
                Self::Idle { wake: Some(at) } | Self::Held { until: at, .. } | Self::Retry { at, .. },
                Step::Time(now),
            ) if at <= now => Self::Due { failures: self.failures() },
            (Self::Due { failures }, Step::Held(until)) => Self::Held { until, failures },
            (Self::Due { .. }, Step::Done { wake }) => Self::Idle { wake },
            (Self::Due { failures }, Step::Failed { now, wake }) => {
                let retry = now + pause(failures);
                let at = wake.map_or(retry, |wake| wake.min(retry));
                Self::Retry { at, failures: failures.saturating_add(1) }
            }
            (Self::Due { .. }, Step::Time(_))
            | (
                Self::Idle { .. } | Self::Held { .. } | Self::Retry { .. },
                Step::Time(_) | Step::Held(_) | Step::Done { .. } | Step::Failed { .. },
            ) => self,
        }
    }

    fn failures(self) -> u32 {
        match self {
            Self::WaitingForSync | Self::Idle { .. } => 0,
            Self::Partial { failures }
            | Self::Due { failures }
            | Self::Held { failures, .. }
            | Self::Retry { failures, .. } => failures,
        }
    }

    /// Whether something has to be written now.
    pub(super) fn is_due(self) -> bool {
        matches!(self, Self::Due { .. })
    }

    /// When the next time event may be due; `None` if not before another event.
    pub(super) fn wake_at(self, now: Instant) -> Option<Instant> {
        match self {
            Self::WaitingForSync | Self::Partial { .. } => None,
            Self::Idle { wake } => wake,
            Self::Due { .. } => Some(now),
            Self::Held { until: at, .. } | Self::Retry { at, .. } => Some(at),
        }
    }
}

/// The pause before the next attempt after this many failures.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_PAUSE, Pace, Step, pause};
    use std::time::{Duration, Instant};

    const TENTH: Duration = Duration::from_millis(100);

    #[test]
    fn every_step_of_every_state() {
        let now = Instant::now();
        let later = now + 5 * TENTH;
        let (waiting, partial, idle) =
            (Pace::WaitingForSync, Pace::Partial { failures: 2 }, Pace::Idle { wake: Some(later) });
        let (due, held) = (Pace::Due { failures: 2 }, Pace::Held { until: later, failures: 2 });
        let retry = Pace::Retry { at: later, failures: 2 };
        let steps = [
            Step::Part { in_sync: false },
            Step::Part { in_sync: true },
            Step::Messages { in_sync: false },
            Step::Messages { in_sync: true },
            Step::News,
            Step::Time(now),
            Step::Time(later),
            Step::Held(later),
            Step::Done { wake: None },
            Step::Failed { now, wake: None },
            Step::Failed { now, wake: Some(now + TENTH) },
        ];
        let (due0, partial0) = (Pace::Due { failures: 0 }, Pace::Partial { failures: 0 });
        let again = |at: Instant| Pace::Retry { at, failures: 3 };
        let table = [
            (
                waiting,
                [
                    waiting, partial0, waiting, due0, waiting, waiting, waiting, waiting, waiting, waiting,
                    waiting,
                ],
            ),
            (
                partial,
                [partial, partial, due, due, partial, partial, partial, partial, partial, partial, partial],
            ),
            (idle, [partial0, partial0, due0, due0, due0, idle, due0, idle, idle, idle, idle]),
            (
                due,
                [
                    partial,
                    partial,
                    due,
                    due,
                    due,
                    due,
                    due,
                    held,
                    Pace::Idle { wake: None },
                    again(now + 4 * TENTH),
                    again(now + TENTH),
                ],
            ),
            (held, [partial, partial, held, held, held, held, due, held, held, held, held]),
            (retry, [partial, partial, due, due, due, retry, due, retry, retry, retry, retry]),
        ];
        for (from, expected) in table {
            for (step, expected) in steps.into_iter().zip(expected) {
                assert_eq!(from.after(step), expected, "{from:?} {step:?}");
            }
        }
        assert_eq!(Pace::Idle { wake: None }.after(Step::Time(later)), Pace::Idle { wake: None });
    }

    #[test]
    fn it_sleeps_where_only_messages_help() {
        let now = Instant::now();
        for (pace, expected) in [
            (Pace::WaitingForSync, None),
            (Pace::Partial { failures: 1 }, None),
            (Pace::Idle { wake: None }, None),
            (Pace::Idle { wake: Some(now + TENTH) }, Some(now + TENTH)),
            (Pace::Due { failures: 0 }, Some(now)),
            (Pace::Held { until: now + TENTH, failures: 0 }, Some(now + TENTH)),
            (Pace::Retry { at: now + TENTH, failures: 0 }, Some(now + TENTH)),
        ] {
            assert_eq!(pace.wake_at(now), expected, "{pace:?}");
        }
    }

    #[test]
    fn pauses_grow_and_are_forgotten() {
        assert_eq!((pause(0), pause(1)), (TENTH, 2 * TENTH));
        assert_eq!((0..50).map(pause).max(), Some(LONGEST_PAUSE));
        let now = Instant::now();
        let failed = Pace::Due { failures: 7 }.after(Step::Failed { now, wake: None });
        let tried = failed.after(Step::News).after(Step::Done { wake: None });
        assert_eq!(tried.after(Step::News), Pace::Due { failures: 0 });
    }
}
