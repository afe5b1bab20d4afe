//! A component's figures with the names that existing dashboards use.
//!
//! Written by hand: the usual crate adds `_total` to the name of every counter, and Calico's have been without it for
//! ten years. Figures are read on request; only what cannot be read later is counted in advance.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// It goes up and down.
    Gauge,
    /// It only increases.
    Counter,
    /// A sum and a count of measurements; no quantiles.
    Summary,
}

/// A figure: name, kind, meaning, and its values by labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name, with the component's prefix.
    pub name: &'static str,
    /// The kind.
    pub kind: FigureKind,
    /// Its meaning.
    pub help: &'static str,
    /// Labels as they appear in braces (empty for none), and the value.
    pub values: Vec<(String, f64)>,
}

/// A function that adds figures on request.
type Source = Box<dyn Fn(&mut Vec<Figure>) + Send + Sync>;

/// A counted figure: its kind, its meaning, its value or sum, and the number of measurements.
type Event = (FigureKind, &'static str, f64, u64);

/// All figures of this process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    sources: Arc<Mutex<Vec<Source>>>,
    events: Arc<Mutex<BTreeMap<&'static str, Event>>>,
}

impl Metrics {
    /// Adds a source of figures.
    pub fn source(&self, source: impl Fn(&mut Vec<Figure>) + Send + Sync + 'static) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(source));
    }

    /// Adds to a counter.
    pub fn count(&self, name: &'static str, help: &'static str, more: f64) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.entry(name).or_insert((FigureKind::Counter, help, 0.0, 0)).2 += more;
    }

    /// Sets a gauge.
    pub fn set(&self, name: &'static str, help: &'static str, value: f64) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.insert(name, (FigureKind::Gauge, help, value, 0));
    }

    /// Adds a measurement to a summary.
    pub fn observe(&self, name: &'static str, help: &'static str, value: f64) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = events.entry(name).or_insert((FigureKind::Summary, help, 0.0, 0));
        entry.2 += value;
        entry.3 += 1;
    }

    /// The page that Prometheus reads, in order of names.
    #[must_use]
    pub fn page(&self) -> String {
        let mut figures = Vec::new();
        for source in self.sources.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            source(&mut figures);
        }
        figures.sort_by_key(|figure| figure.name);
        let mut lines: BTreeMap<&str, String> = BTreeMap::new();
        for figure in &figures {
            let mut text = head(figure.name, figure.kind, figure.help);
            for (labels, value) in &figure.values {
                // Writing into a string cannot fail.
                let _ = match labels.is_empty() {
                    true => writeln!(text, "{} {value}", figure.name),
                    false => writeln!(text, "{}{{{labels}}} {value}", figure.name),
                };
            }
            lines.insert(figure.name, text);
        }
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, (kind, help, value, count)) in events.iter() {
            let mut text = head(name, *kind, help);
            let _ = match kind {
                FigureKind::Summary => write!(text, "{name}_sum {value}\n{name}_count {count}\n"),
                FigureKind::Gauge | FigureKind::Counter => writeln!(text, "{name} {value}"),
            };
            lines.insert(name, text);
        }
        lines.into_values().collect()
    }
}

fn head(name: &str, kind: FigureKind, help: &str) -> String {
    let kind = match kind {
        FigureKind::Gauge => "gauge",
        FigureKind::Counter => "counter",
        FigureKind::Summary => "summary",
    };
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_established_names() {
        let metrics = Metrics::default();
        metrics.count("felix_resyncs_started", "Resyncs.", 1.0);
        metrics.count("felix_resyncs_started", "Resyncs.", 1.0);
        metrics.observe("felix_calc_graph_update_time_seconds", "Seconds.", 0.5);
        metrics.set("felix_resync_state", "State.", 3.0);
        metrics.source(|figures| {
            figures.push(Figure {
                name: "felix_ipsets_calico",
                kind: FigureKind::Gauge,
                help: "Sets.",
                values: vec![
                    ("ip_version=\"inet\"".to_owned(), 2.0),
                    ("ip_version=\"inet6\"".to_owned(), 0.0),
                ],
            });
        });
        let expected = "\
# HELP felix_calc_graph_update_time_seconds Seconds.
# TYPE felix_calc_graph_update_time_seconds summary
felix_calc_graph_update_time_seconds_sum 0.5
felix_calc_graph_update_time_seconds_count 1
# HELP felix_ipsets_calico Sets.
# TYPE felix_ipsets_calico gauge
felix_ipsets_calico{ip_version=\"inet\"} 2
felix_ipsets_calico{ip_version=\"inet6\"} 0
# HELP felix_resync_state State.
# TYPE felix_resync_state gauge
felix_resync_state 3
# HELP felix_resyncs_started Resyncs.
# TYPE felix_resyncs_started counter
felix_resyncs_started 2
";
        assert_eq!(metrics.page(), expected);
    }
}
