//! Every client on every server, as processes on one store. Ours are always included; if `TORTIE_PEER_BIN` names a
//! folder with Calico's own programs (`calico-typha`, and its test client `typha-client`), they take part, and must
//! receive the same.

use crate::captured::stored;
use crate::store::{Keeper, open};
use crate::world::until;
use model::KvPair;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use telemetry::Pulse;
use testkit::{Etcd, Folder, Process};
use typha::for_tests::{SourceOptions, kinds};
use typha_client::{ClientSettings, Discovery, follow_feed};
use typha_wire::SyncerType;

/// An entry that Calico's own client of the store adds, and the store does not contain.
const MADE_UP: &str = "projectcalico-default-allow";

fn peer(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TORTIE_PEER_BIN").filter(|folder| !folder.is_empty())?;
    Some(Path::new(&folder).join(name)).filter(|file| file.is_file())
}

struct Running {
    name: &'static str,
    address: SocketAddr,
    _process: Process,
}

/// Our server, and Calico's if available.
fn servers(etcd: &Etcd, folder: &Folder) -> Vec<Running> {
    let mut programs = vec![("ours", testkit::example("typha").unwrap())];
    programs.extend(peer("calico-typha").map(|program| ("calico-typha", program)));
    programs
        .into_iter()
        .map(|(name, program)| {
            let port = testkit::free_port().unwrap();
            let file = folder.path().join(format!("{name}.cfg"));
            let text = format!(
                "[global]\nDatastoreType = etcdv3\nEtcdEndpoints = {}\nServerHost = 127.0.0.1\nServerPort = {port}\n\
                 LogFilePath = none\nLogSeverityScreen = info\nLogSeverityFile = none\nLogSeveritySys = none\n",
                etcd.endpoint()
            );
            std::fs::write(&file, text).unwrap();
            let arguments = ["-c".to_owned(), file.display().to_string()];
            let process = Process::start(&program, &arguments, &folder.path().join(name)).unwrap();
            Running { name, address: SocketAddr::from(([127, 0, 0, 1], port)), _process: process }
        })
        .collect()
}

/// The entries of a keeper, as paths and values. Versions are left out: Calico's Typha sends none for etcd.
fn entries(keeper: &Keeper) -> BTreeMap<String, String> {
    let known = keeper.entries();
    let encoded = known.values().flat_map(|entry| typha_wire::entries::encode(entry).unwrap());
    let text = |value: Option<Vec<u8>>| String::from_utf8(value.unwrap_or_default()).unwrap();
    encoded.map(|one| (one.path, text(one.value))).filter(|(path, _)| !path.contains(MADE_UP)).collect()
}

/// Waits until Calico's client reports that it is in sync and has received at least `least` entries.
async fn calico_is_told(least: usize, program: &Path, server: &Running, kind: SyncerType, log: &Path) {
    let mut arguments = vec![format!("--server={}", server.address), format!("--type={kind}")];
    arguments.extend(
        ["key-file", "cert-file", "ca-file", "server-cn", "server-uri"].map(|flag| format!("--{flag}=")),
    );
    let _process = Process::start(program, &arguments, log).unwrap();
    let total = |text: &str| {
        let line = text.lines().rfind(|line| line.contains("Updates received")).unwrap_or_default();
        let total = line.split("total=").nth(1).and_then(|rest| rest.split_whitespace().next());
        total.and_then(|total| total.parse::<usize>().ok()).unwrap_or_default()
    };
    let what = format!("Calico's client is in sync with {} for {kind}, with {least} entries", server.name);
    until(&what, || {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        text.contains("status=in-sync") && total(&text) >= least
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_sends_every_client_the_same() {
    let etcd = Etcd::start().unwrap();
    let backend = open(&etcd.endpoint()).await;
    let stored = stored();
    for (key, value, _) in &stored {
        let value = model::decode(key, value.as_bytes()).unwrap();
        backend.apply(&KvPair::new(key.clone(), value)).await.unwrap();
    }
    // Every Typha would do it, in turn, while entries are compared.
    client::Client::new(Arc::clone(&backend)).ensure_initialized("", "typha").await.unwrap();
    let folder = Folder::new("typha-peers").unwrap();
    let servers = servers(&etcd, &folder);
    let options = SourceOptions { kubernetes: false, use_pod_cidr: false };
    let (mut followers, mut directs) = (Vec::new(), Vec::new());
    let mut compared = Vec::new();
    for kind in SyncerType::ALL {
        let (direct, events) = follow::follow(&backend, kinds(kind, options));
        let direct_keeper = Keeper::of(events);
        for server in &servers {
            let settings = ClientSettings::new(kind, "n1", "test", "");
            let discovery = Discovery::Address(server.address.to_string());
            let (follower, events) = follow_feed(discovery, settings, Pulse::new());
            followers.push(follower);
            compared.push((server.name, kind, Keeper::of(events), direct_keeper.clone()));
        }
        directs.push(direct);
    }
    let same = |what: &str| {
        for (server, kind, through, direct) in &compared {
            let (through, direct) = (entries(through), entries(direct));
            for (key, entry) in &direct {
                assert_eq!(through.get(key), Some(entry), "{what}: {server} {kind}: {key}");
            }
            let more: Vec<_> = through.keys().filter(|key| !direct.contains_key(*key)).collect();
            assert!(more.is_empty(), "{what}: {server} {kind}: {more:?}");
        }
    };
    for (server, kind, through, direct) in &compared {
        until(&format!("{server} {kind} is in sync"), || through.is_in_sync() && direct.is_in_sync()).await;
    }
    same("at the start");

    // A change arrives through all of them.
    let (key, ..) = stored.iter().find(|(key, ..)| key.to_string().contains("bad-guys")).unwrap();
    backend.delete(key, None).await.unwrap();
    for (server, kind, through, direct) in compared.iter().filter(|(_, kind, ..)| *kind == SyncerType::Felix)
    {
        let has = |keeper: &Keeper| keeper.entries().keys().any(|key| key.to_string().contains("bad-guys"));
        until(&format!("{server} {kind} reports the deletion"), || !has(through) && !has(direct)).await;
    }
    same("after a deletion");

    let Some(program) = peer("typha-client") else { return };
    for kind in SyncerType::ALL {
        let ours = compared.iter().find(|(server, of, ..)| *server == "ours" && *of == kind);
        let (_, _, through, _) = ours.unwrap();
        for server in &servers {
            let log = folder.path().join(format!("client-{}-{kind}", server.name));
            // A client may also receive entries that came and went before it connected.
            calico_is_told(through.entries().len(), &program, server, kind, &log).await;
        }
    }
}
