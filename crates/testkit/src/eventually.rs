//! Waits for conditions by polling. The deadline only ends a test that would never end.

use anyhow::{Error, Result, anyhow};
use std::time::{Duration, Instant};

/// The longest time that a test waits for one condition, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two polls.
const PAUSE: Duration = Duration::from_millis(20);

/// The result of one poll: the awaited value, or the reason why it is not available yet.
pub trait Look {
    /// The awaited value.
    type Found;

    /// # Errors
    /// The reason why it is not available yet.
    fn found(self) -> Result<Self::Found>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<()> {
        if self { Ok(()) } else { Err(Error::msg("it does not hold")) }
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T> {
        self.ok_or_else(|| Error::msg("it does not exist yet"))
    }
}

/// A poll that failed may succeed the next time.
impl<L: Look> Look for Result<L> {
    type Found = L::Found;

    fn found(self) -> Result<L::Found> {
        self?.found()
    }
}

/// Polls until there is a value.
///
/// # Errors
/// The result of the last poll, after [`PATIENCE`].
pub fn eventually<L: Look>(what: &str, mut look: impl FnMut() -> L) -> Result<L::Found> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match judge(what, look(), deadline) {
            Some(outcome) => return outcome,
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Polls an async function until there is a value.
///
/// # Errors
/// The result of the last poll, after [`PATIENCE`].
pub async fn eventually_async<L: Look>(what: &str, mut look: impl AsyncFnMut() -> L) -> Result<L::Found> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match judge(what, look().await, deadline) {
            Some(outcome) => return outcome,
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn judge<L: Look>(what: &str, look: L, deadline: Instant) -> Option<Result<L::Found>> {
    match look.found() {
        Ok(found) => Some(Ok(found)),
        Err(_) if Instant::now() < deadline => None,
        Err(reason) => Some(Err(anyhow!("{what}: not within {} s: {reason:#}", PATIENCE.as_secs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_polls_again_and_reports_the_last_reason() -> Result<()> {
        let mut looks = 0;
        let found = eventually("three looks", || {
            looks += 1;
            (looks == 3).then_some(looks)
        })?;
        assert_eq!(found, 3);
        let refused: Result<bool> = Err(anyhow!("the server is away"));
        let outcome = judge("a server", refused, Instant::now());
        let error = outcome.and_then(Result::err).map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("a server: not within 120 s: the server is away"));
        assert!(judge("a moment", false, Instant::now() + PATIENCE).is_none());
        Ok(())
    }
}
