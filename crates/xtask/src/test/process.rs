//! Runs a test binary to its end: what it printed, whether it succeeded, how long it worked.
//!
//! One that stands still is ended; a server that a test left behind holds nothing up.

use anyhow::{Context, Result};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a test binary may run, and how long without a word: it prints a line for each test that ends, and no test takes
/// half as long. One that stands still must not take the whole run with it.
pub(super) const PATIENCE: Patience =
    Patience { whole: Duration::from_secs(30 * 60), silent: Duration::from_secs(10 * 60) };

/// Linux counts the time of processes in hundredths of a second, whatever its own clock does.
const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy)]
pub(super) struct Patience {
    whole: Duration,
    silent: Duration,
}

/// A command that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) text: String,
    pub(super) is_success: bool,
    /// What it and the processes that it waited for used of a processor. The rest of its time it waited.
    pub(super) processor: Duration,
}

/// Runs a command to its end, or ends it when its time is up.
///
/// The output goes to a file. With a pipe, a server that a test left behind would hold the pipe open, and the run would
/// wait for that server for ever.
pub(super) fn finish(command: Command, patience: Patience) -> Ended {
    run(command, patience).unwrap_or_else(|error| Ended {
        text: format!("{error:#}\n"),
        is_success: false,
        processor: Duration::ZERO,
    })
}

fn run(mut command: Command, patience: Patience) -> Result<Ended> {
    let mut output = tempfile::tempfile().context("making a file for the output")?;
    command.stdout(output.try_clone()?).stderr(output.try_clone()?);
    let mut child = command.spawn().context("cannot be run")?;
    let begin = Instant::now();
    let (mut length, mut last_word) = (0, begin);
    let mut processor = Duration::ZERO;
    let status = loop {
        // Before it is asked whether it has ended: afterwards the kernel has forgotten it.
        processor = processor_time(child.id()).unwrap_or(processor);
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        let now_long = output.metadata()?.len();
        if now_long > length {
            (length, last_word) = (now_long, Instant::now());
        }
        if begin.elapsed() >= patience.whole || last_word.elapsed() >= patience.silent {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    output.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    output.read_to_end(&mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if status.is_none() {
        let (run, silent) = (begin.elapsed().as_secs(), last_word.elapsed().as_secs());
        text.push_str(&format!("\nended: it had run for {run} s, without a word for {silent} s\n"));
    }
    Ok(Ended { text, is_success: status.is_some_and(|status| status.success()), processor })
}

/// What a process, and those of its children that have ended, used of a processor so far.
fn processor_time(id: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name stands in parentheses and may contain anything; the fields after it are the third and following ones.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<u32>().ok());
    ticks.sum::<Option<u32>>().map(|ticks| TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::{Ended, Patience, finish};
    use std::process::Command;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn patience(whole: u64, silent: u64) -> Patience {
        Patience { whole: Duration::from_millis(whole), silent: Duration::from_millis(silent) }
    }

    #[test]
    fn leftovers_of_a_test_hold_nothing_up_and_a_test_that_hangs_is_ended() {
        let long = patience(60_000, 60_000);
        let Ended { text, is_success, .. } = finish(shell("sleep 600 & echo $!"), long);
        let left_behind = text.trim().to_owned();
        let ended = shell(&format!("kill {left_behind}")).status();
        assert!(is_success && ended.is_ok_and(|status| status.success()), "{text}");
        for (script, patience) in [
            ("echo begun; exec sleep 600", patience(60_000, 300)),
            ("while echo begun; do sleep 0.1; done", patience(500, 60_000)),
        ] {
            let Ended { text, is_success, .. } = finish(shell(script), patience);
            assert!(!is_success && text.starts_with("begun\n") && text.contains("ended: "), "{text}");
        }
        let Ended { text, is_success, .. } = finish(Command::new("/nowhere/at-all"), long);
        assert!(!is_success && text.starts_with("cannot be run"), "{text}");
    }

    #[test]
    fn work_is_told_from_waiting() {
        let long = patience(60_000, 60_000);
        let waited = finish(shell("sleep 0.3"), long);
        let worked = finish(shell("n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done; sleep 0.3"), long);
        assert!(waited.is_success && worked.is_success);
        assert!(worked.processor > waited.processor, "{waited:?} {worked:?}");
    }
}
