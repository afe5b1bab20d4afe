//! List and watch through kube-apiserver as an informer does, while our server, kube-apiserver and etcd are restarted:
//! every change once and in order, or an honest `410` and a new list.

use crate::aggregated::Cluster;
use anyhow::{Context as _, Result, bail, ensure};
use client::Client;
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happened to one object: the revisions of its versions, and `gone` between them.
type History = BTreeMap<String, Vec<String>>;

const GONE: &str = "gone";

fn is_there(past: &[String]) -> bool {
    past.last().is_some_and(|last| last != GONE)
}

/// Writes a few changes directly to the datastore, bypassing our server.
async fn write(client: &Client, history: &mut History, round: usize) -> Result<()> {
    let sets = client.resource::<api::GlobalNetworkSetSpec>();
    for number in 0..5 {
        let name = format!("restart-{}", (round + number) % 3);
        let past = history.entry(name.clone()).or_default();
        let revision = match (is_there(past), number % 3) {
            (false, _) => {
                let set = api::Object::new("", &name, api::GlobalNetworkSetSpec::default());
                sets.create(set).await?.metadata.resource_version
            }
            (true, 0) => {
                let options = client::DeleteOptions::default();
                client.delete_any(api::Kind::GlobalNetworkSet, "", &name, &options).await?;
                GONE.to_owned()
            }
            (true, _) => {
                let change = |set: &mut api::GlobalNetworkSet| {
                    set.metadata.annotations.insert("change".into(), format!("{round}-{number}"));
                    true
                };
                sets.update_with_retry("", &name, change).await?.metadata.resource_version
            }
        };
        past.push(revision);
    }
    Ok(())
}

/// What an informer has seen.
#[derive(Default)]
struct Seen {
    history: History,
    /// How often the informer had to list again.
    lists: usize,
    fault: Option<String>,
}

impl Seen {
    fn saw(&mut self, word: &str, name: &str, revision: String) {
        let past = self.history.entry(name.to_owned()).or_default();
        let fits = match word {
            "ADDED" => !is_there(past),
            _ => is_there(past),
        };
        if !fits || past.contains(&revision) {
            self.fault.get_or_insert(format!("{word} {name} at {revision} after {past:?}"));
        }
        past.push(if word == "DELETED" { GONE.to_owned() } else { revision });
    }
}

/// Lists, then watches from there forever.
async fn inform(sets: Api<DynamicObject>, seen: Arc<Mutex<Seen>>) {
    let pause = || tokio::time::sleep(Duration::from_millis(50));
    let told = |object: &DynamicObject| {
        let metadata = &object.metadata;
        (metadata.name.clone().unwrap_or_default(), metadata.resource_version.clone().unwrap_or_default())
    };
    loop {
        let Ok(listed) = sets.list(&ListParams::default()).await else {
            pause().await;
            continue;
        };
        let mut at = listed.metadata.resource_version.clone().unwrap_or_default();
        {
            let mut seen = seen.lock().expect("seen");
            seen.lists += 1;
            seen.history = listed.items.iter().map(told).map(|(name, at)| (name, vec![at])).collect();
        }
        'resumed: loop {
            let Ok(events) = sets.watch(&WatchParams::default(), &at).await else {
                pause().await;
                continue;
            };
            let mut events = events.boxed();
            while let Some(event) = events.next().await {
                let (word, object) = match event {
                    Ok(WatchEvent::Added(object)) => ("ADDED", object),
                    Ok(WatchEvent::Modified(object)) => ("MODIFIED", object),
                    Ok(WatchEvent::Deleted(object)) => ("DELETED", object),
                    Ok(WatchEvent::Bookmark(mark)) => {
                        at = mark.metadata.resource_version;
                        continue;
                    }
                    Ok(WatchEvent::Error(status)) if status.code == 410 => break 'resumed,
                    Ok(WatchEvent::Error(_)) | Err(_) => break,
                };
                let (name, revision) = told(&object);
                at.clone_from(&revision);
                seen.lock().expect("seen").saw(word, &name, revision);
            }
            pause().await;
        }
    }
}

/// Whether the informer saw what was written; after a new list only the last versions can match.
fn is_whole(seen: &Seen, written: &History) -> bool {
    let last = |history: &History| -> BTreeMap<String, String> {
        let objects = history.iter().filter(|(_, past)| is_there(past));
        objects.filter_map(|(name, past)| Some((name.clone(), past.last()?.clone()))).collect()
    };
    if seen.lists == 1 { seen.history == *written } else { last(&seen.history) == last(written) }
}

/// Restarts everything, one after the other, while an informer and a writer run.
pub(crate) fn every_change_once(c: &mut Cluster) -> Result<()> {
    let config = client::ClientConfig::load(None, &c.variables())?;
    let client = c.runtime.block_on(Client::open(&config))?;
    let kubeconfig = kube::config::Kubeconfig::read_from(c.kube.kubeconfig())?;
    let sets = c.runtime.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let resource = kube::core::ApiResource {
            group: "projectcalico.org".into(),
            version: "v3".into(),
            api_version: "projectcalico.org/v3".into(),
            kind: "GlobalNetworkSet".into(),
            plural: "globalnetworksets".into(),
        };
        anyhow::Ok(Api::<DynamicObject>::all_with(kube::Client::try_from(config)?, &resource))
    })?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let informer = c.runtime.spawn(inform(sets, Arc::clone(&seen)));
    testkit::eventually("the informer has listed", || Ok(seen.lock().expect("seen").lists == 1))?;
    let mut written = History::new();
    let mut round = 0;
    let mut write = |c: &Cluster| {
        round += 1;
        c.runtime.block_on(write(&client, &mut written, round))
    };
    write(c)?;
    c.end()?;
    // Other APIs keep working, and the store changes while ours is down.
    let others = c.run(&["get", "namespaces", "-o", "name"])?;
    ensure!(others.contains("namespace/shop"), "other APIs stopped: {others}");
    write(c)?;
    c.serve()?;
    c.wait()?;
    write(c)?;
    c.kube.kill();
    if !c.is_on_kubernetes() {
        write(c)?;
    }
    c.kube.restart()?;
    c.wait()?;
    write(c)?;
    c.etcd.kill();
    c.etcd.restart()?;
    c.wait()?;
    write(c)?;
    let mut state = String::new();
    let outcome = testkit::eventually("the informer has seen everything", || {
        let seen = seen.lock().expect("seen");
        state = format!("{} lists, seen {:?}, written {written:?}", seen.lists, seen.history);
        if let Some(fault) = &seen.fault {
            bail!("{fault}");
        }
        Ok(is_whole(&seen, &written))
    });
    informer.abort();
    outcome.with_context(|| state)?;
    c.run(&["delete", "globalnetworksets", "--all", "--timeout=60s"])?;
    Ok(())
}
