//! List and watch as clients use them, against a random history written by another client: every change once and in
//! order, across restarts of our server.

use crate::world::{World, open_app};
use anyhow::{Context as _, Result};
use daemon::ShutdownHandle;
use serde_json::Value;
use std::collections::BTreeMap;

const OPERATIONS: u64 = 300;
const NAMES: u64 = 6;

/// What happened to one object: the revisions of its versions, and `gone` between them.
type History = BTreeMap<String, Vec<String>>;

/// Numbers that look random but are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Writes a random history and returns it.
async fn write(client: client::Client) -> Result<History> {
    let sets = client.resource::<api::GlobalNetworkSetSpec>();
    let (mut dice, mut history) = (Dice(7), History::new());
    for number in 0..OPERATIONS {
        let name = format!("set-{}", dice.roll(NAMES));
        let past = history.entry(name.clone()).or_default();
        let is_there = past.last().is_some_and(|last| last != "gone");
        let entry = match (is_there, dice.roll(3)) {
            (false, _) => {
                let mut set = api::Object::new("", &name, api::GlobalNetworkSetSpec::default());
                set.metadata.labels.insert("seen".into(), "yes".into());
                sets.create(set).await?.metadata.resource_version
            }
            (true, 0) => {
                client
                    .delete_any(api::Kind::GlobalNetworkSet, "", &name, &client::DeleteOptions::default())
                    .await?;
                "gone".to_owned()
            }
            (true, _) => {
                let change = |set: &mut api::GlobalNetworkSet| {
                    set.metadata.annotations.insert("number".into(), number.to_string());
                    true
                };
                sets.update_with_retry("", &name, change).await?.metadata.resource_version
            }
        };
        past.push(entry);
    }
    Ok(history)
}

/// Follows until it has seen this many changes, with a new server after every few of them.
async fn follow(world: &mut World, mut at: String, wanted: usize) -> Result<History> {
    let mut history = History::new();
    let mut handles = Vec::new();
    let mut seen = 0;
    while seen < wanted {
        let mut watch = world.watch(&format!("globalnetworksets?watch=1&resourceVersion={at}")).await?;
        for _ in 0..40 {
            if seen == wanted {
                break;
            }
            let event = watch.next().await?.context("the watch ended")?;
            let text =
                |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let (name, revision) = (text("/object/metadata/name"), text("/object/metadata/resourceVersion"));
            assert!(revision.parse::<u64>()? > at.parse::<u64>()?, "revisions grow: {event} after {at}");
            let past = history.entry(name).or_default();
            let is_there = past.last().is_some_and(|last| last != "gone");
            match event["type"].as_str() {
                Some("ADDED") => assert!(!is_there, "{event}"),
                Some("MODIFIED" | "DELETED") => assert!(is_there, "{event}"),
                _ => anyhow::bail!("{event}"),
            }
            past.push(if event["type"] == "DELETED" { "gone".to_owned() } else { revision.clone() });
            at = revision;
            seen += 1;
        }
        drop(watch);
        let (handle, shutdown) = ShutdownHandle::new();
        handles.push(handle);
        world.app = open_app(&world.etcd, shutdown).await?;
    }
    Ok(history)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_once_and_in_order_across_new_servers() -> Result<()> {
    let mut world = World::start().await?;
    let (_, listed) = world.ask("GET", "globalnetworksets", "").await?;
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(0));
    let begin = listed["metadata"]["resourceVersion"].as_str().context("a revision")?.to_owned();
    let writer = tokio::spawn(write(crate::world::client(&world.etcd).await?));
    let followed = follow(&mut world, begin, usize::try_from(OPERATIONS)?).await?;
    assert_eq!(followed, writer.await??);
    Ok(())
}
