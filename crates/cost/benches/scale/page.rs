//! The tables and pictures of `docs/scale.md`.

use crate::lines::{Line, chart};
use crate::run::Figures;
use std::fmt::Write as _;

/// A row: its name, and the format of a size's figure.
type Row = (&'static str, fn(&Figures) -> String);

const MIB: f64 = 1024.0 * 1024.0;
/// How many nodes one Typha serves, by Calico's own advice.
const NODES_OF_TYPHA: usize = 200;

const TYPHA: [Row; 7] = [
    ("entries", |it| format!("{:.0}", it.entries)),
    ("memory of the entries", |it| format!("{:.1} MiB", it.hub_bytes / MIB)),
    ("snapshot, as it is sent (before compression)", |it| {
        format!("{:.1} MiB ({:.1} MiB)", it.compressed / MIB, it.raw / MIB)
    }),
    ("to make the snapshot, once for all clients", |it| format!("{:.0} ms", it.snapshot_seconds * 1e3)),
    ("changes: reading, encoding, compressing", |it| format!("{:.2} % of a core", it.hub_seconds * 100.0)),
    ("changes: for each client, in writes", |it| format!("{:.3} % of a core", it.client_seconds * 100.0)),
    ("changes: with 200 clients", |it| {
        format!("{:.1} % of a core", (it.hub_seconds + it.client_seconds * NODES_OF_TYPHA as f64) * 100.0)
    }),
];

const NODE: [Row; 6] = [
    ("joins: first byte to last message for the dataplane", |it| format!("{:.2} s", it.join_seconds)),
    ("joins: messages for the dataplane", |it| format!("{:.0}", it.join_messages)),
    ("memory of reader and graph", |it| format!("{:.1} MiB", it.node_bytes / MIB)),
    ("changes: network", |it| {
        format!("{:.1} kB/s in {:.0} messages", it.client_bytes / 1e3, it.client_messages)
    }),
    ("changes: processor", |it| format!("{:.2} % of a core", it.node_seconds * 100.0)),
    ("changes: messages for the dataplane", |it| format!("{:.1}/s", it.node_messages)),
];

const STORE: [Row; 2] = [
    ("Typhas, one for 200 nodes", |it| typhas(it).to_string()),
    ("snapshots sent when every node starts again", |it| {
        format!(
            "{:.2} GiB, {:.0} MiB by each Typha",
            it.compressed * it.nodes as f64 / MIB / 1024.0,
            it.compressed * it.nodes as f64 / MIB / typhas(it) as f64
        )
    }),
];

fn typhas(it: &Figures) -> usize {
    it.nodes.div_ceil(NODES_OF_TYPHA)
}

/// The tables.
pub(crate) fn page(all: &[Figures]) -> String {
    let mut text = String::new();
    for (title, rows) in [("A Typha", &TYPHA[..]), ("A node", &NODE), ("The whole", &STORE)] {
        let _ = writeln!(text, "### {title}\n");
        let heads: String =
            all.iter().fold(String::new(), |text, it| text + &format!(" {} nodes |", it.nodes));
        let _ = writeln!(text, "| |{heads}\n| --- |{}", " ---: |".repeat(all.len()));
        let pods = all
            .iter()
            .fold(String::new(), |text, it| text + &format!(" {:.0} / {:.0} |", it.pods, it.policies));
        if title == "A Typha" {
            let _ = writeln!(text, "| pods / policies |{pods}");
        }
        for (name, figure) in rows {
            let cells = all.iter().fold(String::new(), |text, it| text + &format!(" {} |", figure(it)));
            let _ = writeln!(text, "| {name} |{cells}");
        }
        text.push('\n');
    }
    text
}

/// The pictures by their names.
pub(crate) fn pictures(all: &[Figures]) -> [(&'static str, String); 2] {
    let line = |name: &'static str, figure: fn(&Figures) -> f64| Line {
        name,
        points: all.iter().map(|it| (it.nodes as f64, figure(it))).collect(),
    };
    let memory = [
        line("Typha: entries", |it| it.hub_bytes / MIB),
        line("node: reader and graph", |it| it.node_bytes / MIB),
        line("snapshot as sent", |it| it.compressed / MIB),
    ];
    let work = [
        line("Typha: each change once", |it| it.hub_seconds * 100.0),
        line("Typha: 200 clients", |it| it.client_seconds * 200.0 * 100.0),
        line("node", |it| it.node_seconds * 100.0),
    ];
    [
        ("scale-memory.svg", chart("Memory and snapshot, MiB, by nodes", &memory)),
        ("scale-work.svg", chart("100 pods/s and 10 edits/s: per cent of a core, by nodes", &work)),
    ]
}
