//! Compares our records with those of Calico's plugin for the same pods, byte by byte. Times and sequence numbers
//! differ from run to run, and the start of a block search is our own; everything else must be equal.

use crate::fixtures::{node, pool};
use datastore::Backend;
use datastore::etcd::EtcdBackend;
use ipam::{AutoAssign, IntendedUse, Ipam};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::Folder;

const AFTER_ADD: &str = include_str!("../../../testkit/data/cni-etcd-after-add.txt");
const AFTER_DEL: &str = include_str!("../../../testkit/data/cni-etcd-after-del.txt");

/// Keys and values with everything masked that may differ.
fn masked(text: &str) -> Vec<String> {
    let mut blocks: BTreeMap<String, String> = BTreeMap::new();
    // Each node has one block: the node's name identifies it.
    for line in text.lines().filter(|line| line.contains("\"affinity\":\"host:")) {
        let after =
            |start: &str| line.split(start).nth(1).and_then(|rest| rest.split('"').next()).expect("a field");
        blocks.insert(after("\"cidr\":\"").to_owned(), after("\"affinity\":\"host:").to_owned());
    }
    // Keys and values alternate; a capture contains more than address management.
    let entries: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let entries = entries.chunks(2).filter(|entry| entry[0].starts_with("/calico/ipam/"));
    let mut lines: Vec<String> = entries.flatten().map(|line| (*line).to_owned()).collect();
    for line in &mut lines {
        for (cidr, node) in &blocks {
            *line = line.replace(cidr, &format!("BLOCK-OF-{node}"));
            *line = line.replace(&cidr.replace('/', "-"), &format!("BLOCK-OF-{node}"));
        }
        for start in ["\"affinity_claim_time\":\"", "\"timestamp\":\""] {
            mask(line, start, '"');
        }
        mask(line, "\"sequenceNumber\":", ',');
        mask(line, "\"sequenceNumberForAllocation\":{", '}');
    }
    let mut entries: Vec<String> = lines.chunks(2).map(|entry| entry.join(" ")).collect();
    entries.sort();
    entries
}

/// Masks the text between `start` and `end`; of sequence numbers the offset stays.
fn mask(line: &mut String, start: &str, end: char) {
    let mut place = 0;
    while let Some(found) = line[place..].find(start) {
        let from = place + found + start.len();
        let to = from + line[from..].find(end).expect("an end");
        let shown = if start.ends_with('{') {
            line[from..to]
                .split(',')
                .map(|pair| pair.split(':').next().expect("an ordinal"))
                .collect::<Vec<_>>()
                .join(",")
        } else {
            "MASKED".to_owned()
        };
        line.replace_range(from..to, &shown);
        place = from;
    }
}

fn add(node: &str, container: &str) -> AutoAssign {
    let mut request = AutoAssign::new(node, IntendedUse::Workload);
    request.handle = Some(format!("k8s-pod-network.{container}").into());
    request.num4 = 1;
    let timestamp = "2026-11-15 19:48:31.565963652 +0000 UTC".to_owned();
    request.attributes = [("node".to_owned(), node.to_owned()), ("timestamp".to_owned(), timestamp)].into();
    request
}

fn stored(store: &kvstore_engine::Store) -> String {
    let range = kvstore_engine::RangeRequest {
        key: b"/calico/ipam/".to_vec().into(),
        range_end: b"/calico/ipam0".to_vec().into(),
        ..Default::default()
    };
    let found = store.range(&range).expect("reading");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    found.kvs.iter().map(|entry| format!("{}\n{}\n", text(&entry.key), text(&entry.value))).collect()
}

#[tokio::test]
async fn records_equal_calicos_for_the_same_pods() {
    let folder = Folder::new("ipam-captured").expect("a folder");
    let store = kvstore_engine::Store::open(folder.path().join("data"), kvstore_engine::Options::default())
        .expect("opening");
    let backend: Arc<dyn Backend> = Arc::new(EtcdBackend::embedded(Arc::clone(&store)));
    let entries = [
        pool("default-ipv4-ippool", r#"{"cidr":"172.16.0.0/16","blockSize":29}"#),
        node("node-a", &[]),
        node("node-b", &[]),
    ];
    for entry in &entries {
        backend.create(entry).await.expect("creating");
    }
    for (node, container) in [("node-a", "c1"), ("node-a", "c2"), ("node-b", "c3")] {
        // Each ADD is a separate process.
        let assigned =
            Ipam::new(Arc::clone(&backend)).auto_assign(&add(node, container)).await.expect("an address");
        assert_eq!(assigned.ipv4[0].prefix_len(), 29);
    }
    assert_eq!(masked(&stored(&store)), masked(AFTER_ADD));
    let text = stored(&store);
    let text = text.lines().find(|line| line.contains("host:node-a")).expect("the block of node-a");
    let number = |start: &str| -> u64 {
        let rest = text.split(start).nth(1).expect("a number");
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    };
    assert_eq!(number("\"sequenceNumberForAllocation\":{\"0\":") + 2, number("\"sequenceNumber\":"));

    Ipam::new(Arc::clone(&backend)).release_by_handle(&"k8s-pod-network.c1".into()).await.expect("releasing");
    assert_eq!(masked(&stored(&store)), masked(AFTER_DEL));
}
