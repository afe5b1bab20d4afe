//! Whether a component is alive and ready, and the table that reports it.
//!
//! Parts that run a loop have a [`Pulse`]: it records since when the loop has been busy with one piece of work. A loop
//! that waits for work is alive; a loop that has worked on the same piece for longer than its limit is not. So no part
//! has to report periodically, and an idle component stays idle.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The health of one part of the component. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pulse {
    inner: Arc<PulseState>,
}

#[derive(Debug)]
struct PulseState {
    begin: Instant,
    /// Milliseconds after `begin`, plus one, when the current piece of work began; 0 when idle.
    busy_since: AtomicU64,
    state: Mutex<Reported>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Reported {
    ready: bool,
    detail: String,
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}

impl Pulse {
    /// A part that is not ready and not busy.
    #[must_use]
    pub fn new() -> Self {
        let state = PulseState {
            begin: Instant::now(),
            busy_since: AtomicU64::new(0),
            state: Mutex::new(Reported::default()),
        };
        Self { inner: Arc::new(state) }
    }

    /// Marks the start of a piece of work.
    pub fn busy(&self) {
        let passed = u64::try_from(self.inner.begin.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
        self.inner.busy_since.store(passed + 1, Ordering::Relaxed);
    }

    /// Marks the end of a piece of work.
    pub fn idle(&self) {
        self.inner.busy_since.store(0, Ordering::Relaxed);
    }

    /// Reports whether the part is ready, with details.
    pub fn report(&self, ready: bool, detail: impl Into<String>) {
        *self.inner.state.lock().unwrap_or_else(PoisonError::into_inner) =
            Reported { ready, detail: detail.into() };
    }

    fn busy_for(&self, now: Instant) -> Duration {
        match self.inner.busy_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => now
                .saturating_duration_since(self.inner.begin)
                .saturating_sub(Duration::from_millis(since - 1)),
        }
    }

    fn reported(&self) -> Reported {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What health checks of one part.
#[derive(Clone, Debug)]
struct Part {
    pulse: Pulse,
    reports_liveness: bool,
    reports_readiness: bool,
    timeout: Duration,
}

/// The health of all parts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, Part>>>,
    overrides: Arc<Mutex<BTreeMap<String, Duration>>>,
}

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Whether all parts are alive.
    pub live: bool,
    /// Whether all parts are ready.
    pub ready: bool,
    /// The table.
    pub detail: String,
}

impl Health {
    /// Adds a part. With a timeout of zero, it never times out.
    pub fn register(
        &self,
        name: &'static str,
        pulse: &Pulse,
        liveness: bool,
        readiness: bool,
        timeout: Duration,
    ) {
        let part =
            Part { pulse: pulse.clone(), reports_liveness: liveness, reports_readiness: readiness, timeout };
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(name, part);
    }

    /// Sets other timeouts for some parts, by name.
    pub fn set_overrides(&self, overrides: BTreeMap<String, Duration>) {
        *self.overrides.lock().unwrap_or_else(PoisonError::into_inner) = overrides;
    }

    /// The state of all parts. Without parts, the component is alive and ready.
    #[must_use]
    pub fn summary(&self, now: Instant) -> Summary {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let overrides = self.overrides.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut live, mut ready) = (true, true);
        let mut rows = vec![["COMPONENT", "TIMEOUT", "LIVENESS", "READINESS", "DETAIL"].map(str::to_owned)];
        for (name, part) in parts.iter() {
            let changed = overrides.get(*name).copied();
            let timeout = changed.unwrap_or(part.timeout);
            let timed_out = !timeout.is_zero() && part.pulse.busy_for(now) > timeout;
            let reported = part.pulse.reported();
            let liveness = match (part.reports_liveness, timed_out) {
                (false, _) => "-",
                (true, true) => "timed out",
                (true, false) => "reporting live",
            };
            let readiness = match (part.reports_readiness, timed_out, reported.ready) {
                (false, ..) => "-",
                (true, true, _) => "timed out",
                (true, false, true) => "reporting ready",
                (true, false, false) => "reporting non-ready",
            };
            live &= !(part.reports_liveness && timed_out);
            ready &= !part.reports_readiness || (reported.ready && !timed_out);
            let mut shown =
                if timeout.is_zero() { "-".to_owned() } else { api::scalars::go_duration(timeout) };
            if changed.is_some() {
                shown.push_str(" (override)");
            }
            rows.push([
                (*name).to_owned(),
                shown,
                liveness.to_owned(),
                readiness.to_owned(),
                reported.detail,
            ]);
        }
        Summary { live, ready, detail: table(&rows) }
    }
}

/// The rows in a frame, the first as the heading.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let rule: String = widths.iter().fold(String::from("+"), |mut rule, width| {
        rule.push_str(&"-".repeat(width + 2));
        rule.push('+');
        rule
    });
    let mut text = format!("{rule}\n");
    for (index, row) in rows.iter().enumerate() {
        text.push('|');
        for (width, cell) in widths.iter().zip(row) {
            // Writing into a string cannot fail.
            let _ = write!(text, " {cell:<width$} |");
        }
        text.push('\n');
        if index == 0 || index + 1 == rows.len() {
            text.push_str(&rule);
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_loop_is_not_live() {
        let health = Health::default();
        let (graph, startup) = (Pulse::new(), Pulse::new());
        health.register("CalculationGraph", &graph, true, true, Duration::from_secs(30));
        health.register("FelixStartup", &startup, true, true, Duration::ZERO);
        let now = Instant::now();
        let first = health.summary(now);
        assert!(first.live && !first.ready);
        graph.report(true, "");
        startup.report(true, "");
        graph.busy();
        assert!(health.summary(now).ready, "busy, but not for long");
        let late = health.summary(now + Duration::from_secs(31));
        assert!(!late.live && !late.ready);
        graph.idle();
        let summary = health.summary(now + Duration::from_secs(31));
        assert!(summary.live && summary.ready, "waiting for work is being alive");
        let expected = "\
+------------------+---------+----------------+-----------------+--------+
| COMPONENT        | TIMEOUT | LIVENESS       | READINESS       | DETAIL |
+------------------+---------+----------------+-----------------+--------+
| CalculationGraph | 30s     | reporting live | reporting ready |        |
| FelixStartup     | -       | reporting live | reporting ready |        |
+------------------+---------+----------------+-----------------+--------+";
        assert_eq!(summary.detail, expected);
        health.set_overrides([("CalculationGraph".to_owned(), Duration::from_secs(60))].into());
        graph.busy();
        assert!(health.summary(now + Duration::from_secs(31)).live);
        assert!(health.summary(now).detail.contains("1m0s (override)"));
    }
}
