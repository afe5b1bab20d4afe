//! Figures of the kernel about this process, with the names that Prometheus' client libraries use
//! (`PrometheusProcessMetricsEnabled`).

use crate::{Figure, FigureKind, Metrics};
use std::path::Path;

/// The unit of time in `/proc`: the same on every architecture that we support on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds the figures to the component's.
pub fn watch(metrics: &Metrics) {
    metrics.source(|figures| figures.extend(of_process(Path::new("/proc")).unwrap_or_default()));
}

fn of_process(proc: &Path) -> Option<Vec<Figure>> {
    let read = |name: &str| std::fs::read_to_string(proc.join(name)).ok();
    let figure = |name, kind, help, value| Figure { name, kind, help, values: vec![(String::new(), value)] };
    let stat = read("self/stat")?;
    // The name may contain anything but ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<f64> = rest.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
    let (user, system, start) = (fields.get(11)?, fields.get(12)?, fields.get(19)?);
    let booted = line(&read("stat")?, "btime")?;
    let status = read("self/status")?;
    let kib = |name: &str| line(&status, name).map(|kib| kib * 1024.0);
    let descriptors = std::fs::read_dir(proc.join("self/fd")).ok()?.count();
    let limit = read("self/limits")?;
    let limit = limit.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    Some(vec![
        figure(
            "process_cpu_seconds_total",
            FigureKind::Counter,
            "Total user and system CPU time spent in seconds.",
            (user + system) / TICKS_PER_SECOND,
        ),
        figure(
            "process_start_time_seconds",
            FigureKind::Gauge,
            "Start time of the process since unix epoch in seconds.",
            booted + start / TICKS_PER_SECOND,
        ),
        figure(
            "process_resident_memory_bytes",
            FigureKind::Gauge,
            "Resident memory size in bytes.",
            kib("VmRSS:")?,
        ),
        figure(
            "process_virtual_memory_bytes",
            FigureKind::Gauge,
            "Virtual memory size in bytes.",
            kib("VmSize:")?,
        ),
        figure(
            "process_open_fds",
            FigureKind::Gauge,
            "Number of open file descriptors.",
            u32::try_from(descriptors).map_or(f64::MAX, f64::from),
        ),
        figure(
            "process_max_fds",
            FigureKind::Gauge,
            "Maximum number of open file descriptors.",
            limit.split_whitespace().next()?.parse().unwrap_or(f64::INFINITY),
        ),
    ])
}

/// The number after a word at the start of a line.
fn line(text: &str, word: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_this_process_are_read() {
        let figures = of_process(Path::new("/proc")).expect("Linux");
        let value = |name: &str| figures.iter().find(|figure| figure.name == name).expect(name).values[0].1;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value("process_start_time_seconds");
        assert!((-5.0..86_400.0).contains(&age), "{age}");
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
    }
}
