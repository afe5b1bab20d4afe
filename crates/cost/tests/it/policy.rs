//! The cost of a change in the cluster on its way to the dataplane of one node.

use crate::counted::Counts;
use cost::{Cluster, Hub, Member};
use model::feed::FeedEntry;
use selector::Selector;
use std::collections::BTreeMap;
use std::time::Instant;

const TYPICAL: &str = "projectcalico.org/namespace == 'shop' && app in {'web', 'api'} && !has(maintenance)";

pub(crate) fn selectors(counts: &mut Counts) {
    let selector = counts.allocations("parse a selector", || Selector::parse(TYPICAL).unwrap());
    let labels: BTreeMap<String, String> =
        [("app", "web"), ("projectcalico.org/namespace", "shop")].map(|(a, b)| (a.into(), b.into())).into();
    let matched = counts.allocations("evaluate a selector", || selector.evaluate(&labels));
    assert!(matched);
}

pub(crate) fn cluster(counts: &mut Counts) {
    let now = Instant::now();
    let cluster = Cluster { nodes: 20, pods_of_node: 50, pods_a_second: 20, edits_a_second: 4 };
    let entries: Vec<FeedEntry> = cluster.start().collect();
    let mut hub = Hub::new(now);
    counts.allocations("Typha takes a cluster of 1,000 pods", || hub.publish(&entries, now));
    hub.in_sync(now);
    let snapshot = counts.allocations("Typha makes a snapshot", || hub.snapshot(now));
    counts.add("snapshot: bytes before compression", snapshot.raw_bytes);
    counts.add("snapshot: bytes sent", snapshot.bytes());
    let mut member = Member::new(&Cluster::node_name(3)).unwrap();
    let mut told = 0;
    counts.allocations("a node joins", || {
        snapshot.pieces.iter().for_each(|piece| member.read(piece).unwrap());
        member.in_sync(|_| told += 1);
    });
    counts.add("a node joins: messages to the dataplane", told);
    let updates: Vec<FeedEntry> = (0..10).flat_map(|second| cluster.second(second)).collect();
    let messages = counts.allocations("Typha takes 440 changes", || {
        updates.chunks(2).flat_map(|some| hub.publish(some, now)).collect::<Vec<_>>()
    });
    counts.add("440 changes: bytes to each client", messages.iter().map(Vec::len).sum());
    let mut told = 0;
    counts.allocations("a node takes 440 changes", || {
        for message in &messages {
            member.read(message).unwrap();
            member.flush(|_| told += 1);
        }
    });
    counts.add("a node takes 440 changes: messages to the dataplane", told);
}
