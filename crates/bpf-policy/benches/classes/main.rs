//! Counts the classes, rows and bytes of clusters: a thousand random ones, realistic and hostile ones, and the shapes
//! of the benchmark of `calc`. The numbers behind the choice of tables are in `docs/ebpf.md`; this reproduces them.
//!
//! `cargo bench -p bpf-policy --bench classes`; `-- random`, `-- shapes` or `-- hostile` for one part. It only counts,
//! so `cargo test -p bpf-policy --bench classes` without optimisation gives the same numbers, just slower.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

mod clusters;
mod kernel_memory;
#[expect(dead_code, reason = "the benchmark of calc uses the rest")]
#[path = "../../../calc/benches/calc/shapes.rs"]
mod shapes;

use bpf_policy::Policies;
use calc::network::NetworkSettings;
use calc::{CalcGraph, GraphConfig};
use clusters::Family;
use kernel_memory::Bytes;
use model::feed::{FeedEntry, Status};
use shapes::{LOCAL, Shape};
use std::time::Instant;

/// The number of random clusters per family.
const RANDOM: u64 = 200;

/// The size of a cluster's tables on one node.
struct Count {
    endpoints: usize,
    lists: usize,
    rules: usize,
    largest: usize,
    addresses: usize,
    classes: usize,
    rows: usize,
    bytes: Bytes,
    seconds: f64,
}

fn main() {
    let only = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let wanted = |what: &str| only.as_deref().is_none_or(|only| only == what);
    println!(
        "| cluster | local endpoints | lists | rules, all lists (largest) | addresses and networks | classes | rows | MB | MB, short rows | s |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    if wanted("random") {
        for family in Family::ALL {
            random(family);
        }
    }
    if wanted("shapes") {
        for shape in [Shape::network_sets(), Shape::customers(), Shape::tags()] {
            println!("{}", count(shape.updates()).row(shape.name));
        }
        let updates = Box::new(shapes::many_selectors_and_parents());
        println!("{}", count(updates).row("10,000 selectors on one label, 100,000 endpoints"));
    }
    if wanted("hostile") {
        for (name, updates) in clusters::hostile() {
            println!("{}", count(updates).row(name));
        }
    }
}

fn random(family: Family) {
    let mut counts: Vec<Count> = (0..RANDOM).map(|seed| count(family.cluster(seed))).collect();
    counts.sort_by_key(|count| count.bytes.whole);
    for (name, share) in [("median", 50), ("99 of 100", 99), ("largest", 100)] {
        let place = (counts.len() * share / 100).clamp(1, counts.len()) - 1;
        println!("{}", counts[place].row(&format!("{RANDOM} × {}: {name}", family.name())));
    }
}

fn count(updates: Box<dyn Iterator<Item = FeedEntry>>) -> Count {
    let network = NetworkSettings { without_routes: true, without_vteps: true, ..NetworkSettings::default() };
    let mut graph = CalcGraph::new(GraphConfig { host: LOCAL.into(), network, ..GraphConfig::default() });
    for mut update in updates {
        if let FeedEntry::WorkloadEndpoint(_, Some(endpoint)) = &mut update {
            endpoint.state = "active".to_owned();
        }
        graph.on_entry(update);
    }
    graph.on_status(Status::InSync);
    let mut messages = Vec::new();
    graph.flush(&mut messages);
    drop(graph);
    let mut policies = Policies::default();
    let start = Instant::now();
    messages.drain(..).for_each(|message| policies.update(&message));
    policies.flush();
    let seconds = start.elapsed().as_secs_f64();
    assert_eq!(policies.problems().count(), 0, "no list is too large");
    let tables = policies.tables();
    assert!(!tables.endpoints.is_empty(), "the cluster has local endpoints");
    let largest = tables.rules.iter().map(|(key, _)| key.rule as usize + 1).max().unwrap_or_default();
    Count {
        endpoints: tables.endpoints.len(),
        lists: policies.lists(),
        rules: tables.rules.len(),
        largest,
        addresses: tables.addresses.len() + tables.nets.len() + tables.pairs.len(),
        classes: policies.classes(),
        rows: tables.rows.len(),
        bytes: Bytes::of(tables),
        seconds,
    }
}

impl Count {
    fn row(&self, name: &str) -> String {
        let mega = |bytes: usize| bytes as f64 / 1e6;
        format!(
            "| {name} | {} | {} | {} ({}) | {} | {} | {} | {:.1} | {:.1} | {:.2} |",
            self.endpoints,
            self.lists,
            self.rules,
            self.largest,
            self.addresses,
            self.classes,
            self.rows,
            mega(self.bytes.whole),
            mega(self.bytes.short_rows),
            self.seconds
        )
    }
}
