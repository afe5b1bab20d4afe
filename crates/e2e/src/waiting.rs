//! Waiting for asynchronous changes. A check costs a process or two, so checks are rarer than those of
//! `testkit::eventually`; the deadline only ends a run that would never end.

use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// The maximum wait for one thing, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(300);

/// Repeats a check until it succeeds; after [`PATIENCE`], returns the reason of its last failure.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(reason) if Instant::now() >= deadline => {
                return Err(reason).with_context(|| format!("{what}: not within {} s", PATIENCE.as_secs()));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
