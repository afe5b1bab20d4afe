//! The connection maps: their size, their fill level, and restarts of Felix that enlarge them.
//!
//! As in Calico, a size that proved too small is doubled in `/var/lib/calico/bpf_ct_map_size`, and the next start
//! copies all connections into maps of that size, while the previous programs continue. The size never shrinks below
//! the configured one.

use api::BPFConntrackGrowth;
use bpf_driver::{Usage, Usages};
use felix_config::Config;
use std::fs;
use std::path::{Path, PathBuf};
use telemetry::{Figure, FigureKind, Metrics};

/// In the directory of the file with the MTU of pods.
const FILE: &str = "bpf_ct_map_size";

/// The file with the size, and the conditions for writing it.
#[derive(Debug)]
pub(super) struct Connections {
    file: PathBuf,
    grows: bool,
    usages: Option<Usages>,
    /// Whether writing was attempted; it is not retried.
    is_asked: bool,
}

impl Connections {
    /// `beside` is a file in the directory of the machine's state.
    pub(super) fn new(config: &Config, beside: &Path) -> Self {
        Self {
            file: beside.with_file_name(FILE),
            grows: config.bpf_map_size_conntrack_scaling == Some(BPFConntrackGrowth::DoubleIfFull),
            usages: None,
            is_asked: false,
        }
    }

    /// The number of entries of a map: the configured one, per processor or in total; more if that was too small.
    pub(super) fn size(&self, config: &Config) -> u32 {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let known =
            if self.grows { fs::read_to_string(&self.file).unwrap_or_default() } else { String::new() };
        size(config.bpf_map_size_conntrack, config.bpf_map_size_per_cpu_conntrack, processors, &known)
    }

    /// Follows the driver's sweeps through the maps, and registers their figures.
    pub(super) fn follow(&mut self, usages: Usages, metrics: &Metrics) {
        let shown = usages.clone();
        metrics.source(move |figures| figures.extend(figures_of(shown.get())));
        self.usages = Some(usages);
    }

    /// The reason why Felix should restart: a map is full, and a larger size was written for the next start.
    pub(super) fn outgrown(&mut self) -> Option<String> {
        let wants = self.usages.as_ref()?.get().iter().filter_map(|usage| usage.wants).max()?;
        if !self.grows || std::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        match write(&self.file, wants) {
            Ok(()) => Some(format!("the connection map is full; the next one will hold {wants} connections")),
            Err(error) => {
                tracing::error!(file = %self.file.display(), %error, "the connection map is full, but its new size cannot be written");
                None
            }
        }
    }
}

fn write(file: &Path, size: u32) -> std::io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    let next = file.with_extension("next");
    fs::write(&next, size.to_string())?;
    fs::rename(next, file)
}

fn size(configured: i64, each: i64, processors: usize, known: &str) -> u32 {
    let each = each.saturating_mul(i64::try_from(processors).unwrap_or(1));
    let configured = u32::try_from(if each > 0 { each } else { configured }).unwrap_or_default();
    let known = known.trim().parse().unwrap_or_default();
    if configured == 0 { 0 } else { configured.max(known) }
}

fn figures_of([v4, v6]: [Usage; 2]) -> [Figure; 5] {
    let one =
        |name, kind, help, value: f64| Figure { name, kind, help, values: vec![(String::new(), value)] };
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let sum = |of: fn(&Usage) -> u64| of(&v4) as f64 + of(&v6) as f64;
    [
        one(
            "felix_bpf_conntrack_sweeps",
            FigureKind::Counter,
            "Number of conntrack table sweeps made so far.",
            sum(|usage| usage.sweeps),
        ),
        one(
            "felix_bpf_conntrack_used",
            FigureKind::Gauge,
            "Number of used entries visited during a conntrack table sweep.",
            sum(|usage| usage.used),
        ),
        one(
            "felix_bpf_conntrack_cleaned",
            FigureKind::Gauge,
            "Number of entries cleaned during a conntrack table sweep.",
            sum(|usage| usage.cleaned),
        ),
        one(
            "felix_bpf_conntrack_sweep_duration",
            FigureKind::Gauge,
            "Conntrack sweep execution time (ns).",
            sum(|usage| usage.nanoseconds),
        ),
        one(
            "felix_bpf_conntrack_fullness",
            FigureKind::Gauge,
            "The fill level of the fullest connection map, from 0 to 1.",
            v4.fullness().max(v6.fullness()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{Connections, figures_of, size};
    use api::BPFConntrackGrowth;
    use bpf_driver::{Usage, Usages};
    use felix_config::Config;
    use felix_config::kinds::NoSurroundings;

    #[test]
    fn a_written_size_applies_if_it_is_larger_than_the_configured() {
        for (configured, each, known, expected) in [
            (1000, 0, "", 1000),
            (1000, 0, "4000\n", 4000),
            (8000, 0, "4000", 8000),
            (1000, 300, "", 1200),
            (1000, 0, "many", 1000),
            (0, 0, "4000", 0),
            (-5, 0, "", 0),
        ] {
            assert_eq!(size(configured, each, 4, known), expected, "{configured} {each} {known:?}");
        }
    }

    #[test]
    fn a_full_map_requests_one_restart_which_finds_the_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { bpf_map_size_conntrack: 1000, ..Config::with_defaults(&NoSurroundings) };
        let mut connections = Connections::new(&config, &folder.path().join("mtu"));
        assert_eq!(connections.outgrown(), None, "no sweep has run yet");
        let usages = Usages::default();
        usages.set(4, Usage { used: 1000, room: 1000, wants: Some(2000), ..Usage::default() });
        connections.usages = Some(usages.clone());
        assert!(connections.outgrown().is_some_and(|reason| reason.contains("2000")));
        assert_eq!(connections.outgrown(), None, "once is enough");
        let next = Connections::new(&config, &folder.path().join("mtu"));
        assert_eq!(next.size(&config), 2000);
        let fixed = Config { bpf_map_size_conntrack_scaling: Some(BPFConntrackGrowth::Disabled), ..config };
        let mut fixed_size = Connections::new(&fixed, &folder.path().join("mtu"));
        fixed_size.usages = Some(usages);
        assert_eq!((fixed_size.size(&fixed), fixed_size.outgrown()), (1000, None));
    }

    #[test]
    fn the_fuller_map_is_the_one_that_counts() {
        let usage = |used| Usage { used, room: 100, ..Usage::default() };
        let figures = figures_of([usage(10), usage(85)]);
        let value = |name: &str| figures.iter().find(|one| one.name == name).map(|one| one.values[0].1);
        assert_eq!(value("felix_bpf_conntrack_used"), Some(95.0));
        assert_eq!(value("felix_bpf_conntrack_fullness"), Some(0.85));
    }
}
