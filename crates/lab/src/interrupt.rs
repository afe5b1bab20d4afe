//! Interrupts (Ctrl-C, SIGTERM, a terminal that is closed) while a lab is being created: noticed between steps, so that
//! everything created so far is removed before the command ends.
//!
//! None of it starts a thread: without root this process still has to join the lab's namespaces, which the kernel
//! allows only for single-threaded processes.

use anyhow::{Context as _, Result};
use std::future::Future;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The command was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

struct Watch {
    runtime: Runtime,
    signals: Vec<Signal>,
    came: bool,
}

static WATCH: OnceLock<Mutex<Watch>> = OnceLock::new();

/// From now on interrupts do not end this process; [`check`] reports them.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn listen() -> Result<()> {
    listen_to(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])
}

/// From now on the terminal's interrupt does not end this process: the program that this process waits for receives it,
/// too.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn leave_to_child() -> Result<()> {
    listen_to(&[SignalKind::interrupt()])
}

fn listen_to(kinds: &[SignalKind]) -> Result<()> {
    if WATCH.get().is_some() {
        return Ok(());
    }
    let prepare = || -> std::io::Result<Watch> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let guard = runtime.enter();
        let signals = kinds.iter().copied().map(signal).collect::<std::io::Result<Vec<_>>>()?;
        drop(guard);
        Ok(Watch { runtime, signals, came: false })
    };
    let watch = prepare().context("preparing for interrupts")?;
    // A second watch, created concurrently, is simply dropped.
    let _ = WATCH.set(Mutex::new(watch));
    Ok(())
}

/// Whether this process was interrupted since [`listen`].
pub(crate) fn came() -> bool {
    let Some(watch) = WATCH.get() else { return false };
    let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
    let Watch { runtime, signals, came } = &mut *watch;
    // One turn of the runtime, so that it polls its descriptors.
    runtime.block_on(tokio::task::yield_now());
    runtime.block_on(async {
        let mut context = Context::from_waker(Waker::noop());
        for signal in signals {
            let received = std::pin::pin!(signal.recv());
            if let Poll::Ready(Some(())) = received.poll(&mut context) {
                *came = true;
            }
        }
    });
    *came
}

/// # Errors
/// When this process was interrupted since [`listen`].
pub(crate) fn check() -> Result<(), Interrupted> {
    if came() { Err(Interrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{came, listen};
    use rustix::process::{Signal, getpid, kill_process};
    use std::time::{Duration, Instant};

    #[test]
    fn a_signal_is_noticed_and_does_not_end_the_process() {
        listen().unwrap();
        assert!(!came());
        kill_process(getpid(), Signal::HUP).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !came() {
            assert!(Instant::now() < deadline, "the signal did not come");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(came(), "it stays known");
    }
}
