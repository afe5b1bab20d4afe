//! Profiles that a component writes on a signal, like Calico's components: memory on SIGUSR1
//! (`DebugMemoryProfilePath`), and ten seconds of CPU time on SIGUSR2 (Felix' `DebugCPUProfilePath`). `<timestamp>` in
//! a path becomes the time in UTC.
//!
//! Calico's components write profiles of Go's runtime. This program has no such runtime: it writes texts with what the
//! kernel knows about the process, by mapping and by thread.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long CPU time is measured.
const LENGTH: Duration = Duration::from_secs(10);
const TIMESTAMP: &str = "<timestamp>";

/// Writes dumps on signals for as long as it is polled. An empty path disables its dump.
pub async fn on_signals(memory: String, cpu: String) {
    tokio::join!(
        on(SignalKind::user_defined1(), &memory, async || memory_dump()),
        on(SignalKind::user_defined2(), &cpu, cpu_dump),
    );
}

async fn on(kind: SignalKind, template: &str, dump: impl AsyncFn() -> std::io::Result<String>) {
    // An unhandled signal would end the process. Calico's Felix without a path ends too, but a debugging aid that is
    // turned off is not a reason to exit.
    let mut signal = match signal(kind) {
        Ok(signal) => signal,
        Err(error) => {
            tracing::warn!(%error, "cannot listen for the signal that requests a dump");
            return;
        }
    };
    while signal.recv().await.is_some() {
        if template.is_empty() {
            tracing::info!("a signal requests a dump, but no path for it is set");
            continue;
        }
        let path = path(template, jiff::Timestamp::now());
        match dump().await.and_then(|text| std::fs::write(&path, text)) {
            Ok(()) => tracing::info!(file = %path.display(), "wrote a dump"),
            Err(error) => tracing::error!(%error, file = %path.display(), "cannot write a dump"),
        }
    }
}

fn path(template: &str, now: jiff::Timestamp) -> PathBuf {
    template.replacen(TIMESTAMP, &now.strftime("%Y-%m-%d-%H:%M:%S").to_string(), 1).into()
}

fn memory_dump() -> std::io::Result<String> {
    let mut text = String::new();
    for file in ["status", "smaps_rollup", "smaps"] {
        // Writing to a string does not fail.
        let _ = writeln!(text, "==> /proc/self/{file}");
        text.push_str(&std::fs::read_to_string(Path::new("/proc/self").join(file))?);
    }
    Ok(text)
}

async fn cpu_dump() -> std::io::Result<String> {
    let before = threads()?;
    tokio::time::sleep(LENGTH).await;
    Ok(compare(&before, &threads()?))
}

/// The name of each thread and its CPU time in nanoseconds, by thread number.
type Threads = BTreeMap<u32, (String, u64)>;

fn threads() -> std::io::Result<Threads> {
    let mut found = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let folder = task?.path();
        let number = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        // A thread may end at any time.
        let (Some(number), Ok(name), Ok(times)) = (
            number,
            std::fs::read_to_string(folder.join("comm")),
            std::fs::read_to_string(folder.join("schedstat")),
        ) else {
            continue;
        };
        let time = times.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or_default();
        found.insert(number, (name.trim().to_owned(), time));
    }
    Ok(found)
}

/// Lists the CPU time used between two readings, the busiest thread first.
fn compare(before: &Threads, after: &Threads) -> String {
    let mut used: Vec<(u64, u32, &str)> = after
        .iter()
        .map(|(number, (name, time))| {
            let earlier = before.get(number).map_or(0, |(_, time)| *time);
            (time.saturating_sub(earlier), *number, name.as_str())
        })
        .collect();
    used.sort_by(|one, other| other.cmp(one));
    let mut text = format!("CPU time of {} seconds, by thread\n", LENGTH.as_secs());
    for (time, number, name) in used {
        let _ = writeln!(text, "{:>12.6} s  {number:>8}  {name}", Duration::from_nanos(time).as_secs_f64());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{compare, memory_dump, path, threads};

    #[test]
    fn the_timestamp_in_a_path_is_replaced() {
        let now = "2026-11-16T03:04:05Z".parse().expect("a time");
        assert_eq!(
            path("/tmp/cpu-<timestamp>.txt", now).display().to_string(),
            "/tmp/cpu-2026-11-16-03:04:05.txt"
        );
    }

    #[test]
    fn dumps_show_what_the_kernel_knows() {
        assert!(memory_dump().expect("a dump").contains("VmRSS:"));
        let seen = threads().expect("threads");
        assert!(!seen.is_empty());
        let before = [(1, ("idle".to_owned(), 5)), (2, ("busy".to_owned(), 5))].into();
        let after = [(1, ("idle".to_owned(), 5)), (2, ("busy".to_owned(), 2_000_000_005))].into();
        let lines: Vec<String> = compare(&before, &after).lines().skip(1).map(str::to_owned).collect();
        assert_eq!(lines, ["    2.000000 s         2  busy", "    0.000000 s         1  idle"]);
    }
}
