//! Our server on the store that Calico's Typha used: the same entries result, byte for byte.
//!
//! `store.jsonl` is that store; the output of Calico's Typha is among the recorded streams.

use crate::world::{Raw, World, hello, quick};
use follow::processor::Outputs;
use model::convert::Faults;
use model::feed::{FeedEntry, Status};
use model::{Key, ListOptions};
use std::collections::BTreeMap;
use typha::for_tests::{SourceOptions, inputs, kinds};
use typha_wire::{Incoming, Message, SyncerType};

/// Entries that the store's client adds and the store does not contain.
const MADE_UP: &str = "projectcalico-default-allow";

type Entries = BTreeMap<String, String>;

pub(crate) fn stored() -> Vec<(Key, String, String)> {
    include_str!("../data/store.jsonl")
        .lines()
        .filter_map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            let key = Key::parse(entry["key"].as_str().unwrap())?;
            Some((key, entry["value"].as_str().unwrap().to_owned(), entry["mod_revision"].to_string()))
        })
        .collect()
}

fn belongs(list: &ListOptions, key: &Key) -> bool {
    match (list, key) {
        (ListOptions::Resource { kind, .. }, Key::Resource(key)) => *kind == key.kind,
        (ListOptions::Block { .. }, Key::Block { .. })
        | (ListOptions::BlockAffinity { .. }, Key::BlockAffinity(_)) => true,
        _ => false,
    }
}

/// The entries of a feed of the store.
fn updates(kind: SyncerType) -> Vec<FeedEntry> {
    let options = SourceOptions { kubernetes: false, use_pod_cidr: false };
    let mut updates = Vec::new();
    for mut followed in kinds(kind, options) {
        let mut outputs = Outputs::default();
        for (key, value, revision) in stored().into_iter().filter(|(key, ..)| belongs(&followed.list, key)) {
            let value = model::value::decode(&key, value.as_bytes()).unwrap();
            followed.processor.process(&key, value, &revision, &mut outputs);
        }
        assert!(outputs.faults.is_empty(), "{:?}", outputs.faults);
        updates.extend(outputs.entries.into_iter().map(|output| output.entry));
    }
    updates
}

/// Normalises selectors: feeds carry them parsed, and Calico sends them as they were joined. Everything else is kept
/// literally.
fn normal(value: &str) -> String {
    const NAMES: [&str; 5] = [
        "\"selector\":",
        "\"src_selector\":",
        "\"dst_selector\":",
        "\"!src_selector\":",
        "\"!dst_selector\":",
    ];
    let mut out = String::new();
    let mut rest = value;
    while let Some((start, name)) = NAMES
        .iter()
        .filter_map(|name| rest.find(name).map(|place| (place, name)))
        .min_by_key(|(place, _)| *place)
    {
        let (before, after) = rest.split_at(start + name.len());
        out.push_str(before);
        let mut texts = serde_json::Deserializer::from_str(after).into_iter::<String>();
        let text = texts.next().unwrap().unwrap();
        rest = &after[texts.byte_offset()..];
        let canonical = selector::Selector::parse(&text).unwrap().canonical().to_owned();
        out.push_str(&serde_json::to_string(&canonical).unwrap().replace('&', "\\u0026"));
    }
    out + rest
}

fn collect(entries: &mut Entries, message: Message<'_>) {
    if let Message::Kvs(updates) = message {
        for update in updates {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            if let Some(value) = update.value {
                entries.insert(text(update.key), normal(&text(value)));
            }
        }
    }
}

/// The entries that Calico's Typha sent in a snapshot.
fn captured(name: &str) -> Entries {
    let all: &[u8] = include_bytes!("../../../typha-wire/tests/data/streams.bin");
    let place = include_str!("../../../typha-wire/tests/data/streams.txt")
        .lines()
        .find(|line| line.starts_with(&format!("{name}.s2c ")))
        .unwrap();
    let numbers: Vec<usize> = place.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
    let mut incoming = Incoming::new(16 << 20);
    incoming.push(&all[numbers[0]..numbers[0] + numbers[1]]);
    let mut entries = Entries::new();
    while incoming.next(|message| collect(&mut entries, message)).unwrap().is_some() {}
    entries.retain(|path, _| !path.contains(MADE_UP));
    entries
}

#[tokio::test]
async fn every_value_equals_calicos() {
    for (kind, name) in [
        (SyncerType::Felix, "02-felix-plain"),
        (SyncerType::Bgp, "04-bgp-plain"),
        (SyncerType::TunnelIpAllocation, "06-tunnel-ip-allocation-plain"),
        (SyncerType::NodeStatus, "08-node-status-plain"),
    ] {
        let expected = captured(name);
        assert!(!expected.is_empty());
        let world = World::start(quick(), None).await;
        let feed = world.feeds.iter().find(|feed| feed.kind() == kind).unwrap();
        feed.publish(inputs(&updates(kind)));
        feed.set_status(Status::InSync);
        let mut client = Raw::connect(world.address).await;
        client.say(&Message::ClientHello(hello(kind.as_str(), false, &[]))).await;
        let mut entries = Entries::new();
        loop {
            let done = client.incoming.next(|message| {
                let done = matches!(message, Message::SyncStatus(_));
                collect(&mut entries, message);
                done
            });
            match done.unwrap() {
                Some(true) => break,
                Some(false) => {}
                None => client.read().await,
            }
        }
        let differing: Vec<_> = expected
            .iter()
            .filter(|(path, value)| entries.get(*path) != Some(value))
            .map(|(path, value)| format!("{path}\n  calico {value:?}\n  ours   {:?}", entries.get(path)))
            .collect();
        assert!(differing.is_empty(), "{kind}: {} differ:\n{}", differing.len(), differing.join("\n"));
        let more: Vec<_> = entries.keys().filter(|path| !expected.contains_key(*path)).collect();
        assert!(more.is_empty(), "{kind}: {more:?}");
    }
}

/// The output of Calico's Typha is read, and writing what was read gives the same bytes.
#[test]
fn calicos_values_round_trip() {
    let mut read = 0;
    for name in [
        "02-felix-plain",
        "04-bgp-plain",
        "06-tunnel-ip-allocation-plain",
        "08-node-status-plain",
        "36-many-plain",
    ] {
        for (path, value) in captured(name) {
            let entry = typha_wire::entries::entry(&path, value.as_bytes(), "", &mut Faults::new()).unwrap();
            let Some(entry) = entry else {
                assert!(path.ends_with("/labels"), "{path}");
                continue;
            };
            let again = typha_wire::entries::encode(&entry).unwrap().pop().unwrap();
            assert_eq!(
                (again.path, normal(&String::from_utf8(again.value.unwrap()).unwrap())),
                (path, value)
            );
            read += 1;
        }
    }
    assert!(read > 300, "{read}");
}
