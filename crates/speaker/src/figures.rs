//! Figures for Prometheus.

use crate::engine::{PeerStatus, Summary};
use crate::session::StateName;
use crate::shell::Handle;
use telemetry::{Figure, FigureKind, Metrics};

/// The value of a figure for a session.
type Value = fn(&PeerStatus) -> f64;

fn number(count: u64) -> f64 {
    count as f64
}

fn sum(peer: &PeerStatus, part: impl Fn(&rib::Counts) -> usize) -> f64 {
    number(peer.counts.iter().map(|counts| part(counts) as u64).sum())
}

/// The name, kind, help and value of each figure of a session.
const FIGURES: [(&str, FigureKind, &str, Value); 11] = [
    ("bgp_session_established", FigureKind::Gauge, "Whether the session is established.", |peer| {
        f64::from(u8::from(peer.state == StateName::Established))
    }),
    ("bgp_session_establishments", FigureKind::Counter, "How often the session came up.", |peer| {
        number(peer.tally.established)
    }),
    ("bgp_bfd_up", FigureKind::Gauge, "Whether BFD sees the peer; 0 also if BFD is off.", |peer| {
        f64::from(u8::from(peer.seen == Some(true)))
    }),
    ("bgp_routes_imported", FigureKind::Gauge, "Routes of the peer in the table.", |peer| {
        sum(peer, |counts| counts.imported)
    }),
    (
        "bgp_routes_preferred",
        FigureKind::Gauge,
        "Routes of the peer that are the best for their prefix.",
        |peer| sum(peer, |counts| counts.preferred),
    ),
    ("bgp_routes_exported", FigureKind::Gauge, "Routes announced to the peer.", |peer| {
        sum(peer, |counts| counts.exported)
    }),
    ("bgp_routes_waiting", FigureKind::Gauge, "Changed routes waiting to be sent.", |peer| {
        number(peer.waiting as u64)
    }),
    ("bgp_messages_received", FigureKind::Counter, "Messages received.", |peer| number(peer.tally.received)),
    ("bgp_malformed_attributes", FigureKind::Counter, "Malformed attributes received.", |peer| {
        number(peer.tally.faults)
    }),
    ("bgp_bytes_received", FigureKind::Counter, "Bytes received.", |peer| number(peer.tally.bytes_received)),
    ("bgp_bytes_sent", FigureKind::Counter, "Bytes sent.", |peer| number(peer.tally.bytes_sent)),
];

/// Offers the figures of a speaker for as long as it runs. The speaker is queried on each scrape.
pub(crate) fn offer(handle: &Handle, metrics: &Metrics) {
    let handle = handle.clone();
    metrics.source(move |figures| {
        if let Some(summary) = handle.ask(|engine, _| engine.summary()) {
            figures.extend(of(&summary));
        }
    });
}

/// The figures of all sessions.
#[must_use]
pub(crate) fn of(summary: &Summary) -> Vec<Figure> {
    let figures = FIGURES.into_iter().map(|(name, kind, help, value)| {
        let values = summary
            .peers
            .iter()
            .map(|peer| (format!("session=\"{}\",peer=\"{}\"", peer.intent.name, peer.remote), value(peer)));
        Figure { name, kind, help, values: values.collect() }
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::mesh;
    use std::time::Duration;

    #[test]
    fn every_session_has_its_figures() {
        let mut simulation = mesh(2);
        simulation.run_for(Duration::from_mins(1));
        let figures = of(&simulation.nodes[0].engine.summary());
        let value = |name: &str| {
            let figure = figures.iter().find(|figure| figure.name == name).expect("a figure");
            figure.values.clone()
        };
        let labels = "session=\"Mesh_10_0_0_2\",peer=\"10.0.0.2\"".to_owned();
        assert_eq!(value("bgp_session_established"), [(labels.clone(), 1.0)]);
        assert_eq!(value("bgp_routes_imported"), [(labels.clone(), 1.0)]);
        assert_eq!(value("bgp_routes_exported"), [(labels, 1.0)]);
    }
}
