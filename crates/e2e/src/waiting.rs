//! Waiting for something that happens by itself. A look costs a process or two, so looks are rarer than those of
//! `testkit::eventually`; the deadline only ends a run that would never end.

use anyhow::{Context, Result};
use std::time::{Duration, Instant};

/// No run waits longer for one thing, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(300);

/// Looks until it is there; after [`PATIENCE`], why it was not at the last look.
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
