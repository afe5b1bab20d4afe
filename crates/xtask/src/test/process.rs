//! Runs a test binary to its end: its output, whether it succeeded, how long it worked.
//!
//! A binary that hangs is killed; a server that a test left behind delays nothing.

use anyhow::{Context, Result};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a test binary may run, and how long without output: it prints a line for each test that ends, and no test
/// takes half as long. A binary that hangs must not block the whole run.
pub(super) const PATIENCE: Patience =
    Patience { whole: Duration::from_secs(30 * 60), silent: Duration::from_secs(10 * 60) };

/// Linux reports the time of processes in hundredths of a second, regardless of its own tick rate.
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
    /// The processor time of the command and of the processes that it waited for. The rest of the time it waited.
    pub(super) processor: Duration,
}

/// Runs a command to its end, or kills it when its time is up.
///
/// The output goes to a file. With a pipe, a server that a test left behind would hold the pipe open, and the run would
/// wait for that server forever.
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
        // Read this before checking whether it has ended: afterwards the kernel has discarded it.
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
        text.push_str(&format!("\nended: it had run for {run} s, without output for {silent} s\n"));
    }
    Ok(Ended { text, is_success: status.is_some_and(|status| status.success()), processor })
}

/// The processor time of a process, and of those of its children that have ended.
fn processor_time(id: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses and may contain anything; the fields after it are the third and following ones.
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
    fn leftover_processes_cause_no_delay_and_hanging_tests_are_killed() {
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
    fn work_is_distinguished_from_waiting() {
        let long = patience(60_000, 60_000);
        let waited = finish(shell("sleep 0.3"), long);
        let worked = finish(shell("n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done; sleep 0.3"), long);
        assert!(waited.is_success && worked.is_success);
        assert!(worked.processor > waited.processor, "{waited:?} {worked:?}");
    }
}
