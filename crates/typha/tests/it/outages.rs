//! Events outside both sides' control: a server that falls silent, clocks that jump, a store that was compacted while
//! unreachable, processes that are killed in the middle of a snapshot.

use crate::store::{Keeper, open};
use crate::world::{Client, Raw, World, hello, input, quick, settings, until};
use datastore::Backend;
use model::KvPair;
use model::feed::Status;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use testkit::{Etcd, Folder, Process, Signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use typha::for_tests::{SourceOptions, follow_store, kinds};
use typha_client::{Discovery, follow_feed};
use typha_wire::outgoing::Outgoing;
use typha_wire::{GoTime, Message, ServerHello, SyncerType};

const OPTIONS: SourceOptions = SourceOptions { kubernetes: false, use_pod_cidr: false };

/// A server that sends nothing any more, as when its machine lost its network: no end, no reset.
#[tokio::test]
async fn the_client_leaves_a_silent_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings();
    settings.read_timeout = Duration::from_millis(300);
    let client = Client::start(listener.local_addr().unwrap(), settings);
    let mut held = Vec::new();
    for _ in 0..3 {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let hello = ServerHello {
            syncer_type: "felix".to_owned(),
            supports_node_resource_updates: true,
            ..ServerHello::default()
        };
        Outgoing::calico().put(&Message::ServerHello(hello), &mut bytes);
        stream.write_all(&bytes).await.unwrap();
        // It stays open but sends nothing more.
        held.push(stream);
    }
    until("health says so", || format!("{:?}", client.pulse).contains("has been silent")).await;
}

/// The clock of a client, or ours, may be anywhere: only a metric depends on it.
#[tokio::test]
async fn clocks_that_jump_end_no_connection() {
    let world = World::start(quick(), None).await;
    world.felix().set_status(Status::InSync);
    let mut client = Raw::connect(world.address).await;
    client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    assert_eq!(client.message().await, "hello felix");
    assert_eq!(client.message().await, "status in-sync");
    let year = Duration::from_secs(365 * 24 * 3600);
    let now = SystemTime::now();
    let times = [now + 100 * year, now - 50 * year, SystemTime::UNIX_EPOCH];
    for time in times.map(GoTime::at).into_iter().chain([GoTime::default()]) {
        client.say(&Message::Pong { ping: time, pong: time }).await;
    }
    world.felix().publish([input("/a", "1")]);
    assert_eq!(client.message().await, "/a=1:1");
    assert_eq!(world.connections(), 1);
}

/// Forwards connections to a server until it is stopped.
async fn carry(listener: TcpListener, to: SocketAddr, open: watch::Receiver<bool>) {
    loop {
        let Ok((mut near, _)) = listener.accept().await else { return };
        let mut state = open.clone();
        tokio::spawn(async move {
            if !*state.borrow_and_update() {
                return;
            }
            let Ok(mut far) = TcpStream::connect(to).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                _ = state.wait_for(|open| !open) => {}
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_compacted_while_unreachable() {
    let etcd = Etcd::start().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let carried = format!("http://{}", listener.local_addr().unwrap());
    let to: SocketAddr = etcd.endpoint().trim_start_matches("http://").parse().unwrap();
    let (gate, is_open) = watch::channel(true);
    tokio::spawn(carry(listener, to, is_open));
    let near = open(&etcd.endpoint()).await;
    put_sets(&near, 0..20, "10.0.0.0/8").await;
    let world = World::start(quick(), None).await;
    let far = open(&carried).await;
    let _source = follow_store(&far, world.felix(), OPTIONS);
    let (_follower, events) =
        follow_feed(Discovery::Address(world.address.to_string()), settings(), telemetry::Pulse::new());
    let keeper = Keeper::of(events);
    until("in sync", || keeper.is_in_sync() && sets(&keeper) == 20).await;
    gate.send_replace(false);
    // Changes, additions and deletions that no watch will ever report.
    put_sets(&near, 5..10, "11.0.0.0/8").await;
    put_sets(&near, 20..30, "10.0.0.0/8").await;
    for number in 0..5 {
        near.delete(&set(number, "").key, None).await.unwrap();
    }
    let answer = etcd.etcdctl(&["get", "/none", "-w", "json"]).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let revision = answer["header"]["revision"].to_string();
    assert!(etcd.etcdctl(&["compact", "--physical", &revision]).unwrap().status.success());
    gate.send_replace(true);
    let (_direct, events) = follow::follow(&near, kinds(SyncerType::Felix, OPTIONS));
    let direct = Keeper::of(events);
    until("what was missed has come", || {
        direct.is_in_sync() && sets(&keeper) == 25 && keeper.entries() == direct.entries()
    })
    .await;
}

fn set(number: usize, net: &str) -> KvPair {
    let object = serde_json::json!({"metadata": {"name": format!("set-{number}")}, "spec": {"nets": [net]}});
    let resource = api::Resource::from_value(api::Kind::GlobalNetworkSet, object).unwrap();
    KvPair::resource(resource)
}

async fn put_sets(backend: &Arc<dyn Backend>, numbers: std::ops::Range<usize>, net: &str) {
    for number in numbers {
        backend.apply(&set(number, net)).await.unwrap();
    }
}

fn sets(keeper: &Keeper) -> usize {
    keeper.entries().keys().filter(|key| matches!(key, model::feed::FeedKey::NetworkSet(_))).count()
}

/// Starts Typha on this store in a process of its own, with additional parameters.
pub(crate) fn process(etcd: &Etcd, folder: &Path, port: u16, more: &str) -> Process {
    let file = folder.join("typha.cfg");
    let text = format!(
        "[global]\nDatastoreType = etcdv3\nEtcdEndpoints = {}\nServerHost = 127.0.0.1\nServerPort = {port}\n\
         LogSeverityScreen = info\nLogSeverityFile = none\nLogSeveritySys = none\n{more}",
        etcd.endpoint()
    );
    std::fs::write(&file, text).unwrap();
    let program = testkit::example("typha").unwrap();
    Process::start(&program, &["-c".to_owned(), file.display().to_string()], &folder.join("log")).unwrap()
}

/// Waits until something listens.
pub(crate) async fn listening(address: SocketAddr) {
    let begin = std::time::Instant::now();
    while TcpStream::connect(address).await.is_err() {
        assert!(begin.elapsed() < crate::world::PATIENCE, "nothing listens at {address}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_killed_in_the_middle_of_a_snapshot() {
    let etcd = Etcd::start().unwrap();
    let backend = open(&etcd.endpoint()).await;
    for number in 0..400 {
        // Long ones, so that a snapshot takes more than one write.
        let nets: Vec<String> = (0..150).map(|last| format!("10.{}.{last}.0/24", number % 256)).collect();
        let object =
            serde_json::json!({"metadata": {"name": format!("set-{number}")}, "spec": {"nets": nets}});
        let resource = api::Resource::from_value(api::Kind::GlobalNetworkSet, object).unwrap();
        backend.apply(&KvPair::resource(resource)).await.unwrap();
    }
    let folder = Folder::new("typha-killed").unwrap();
    let port = testkit::free_port().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut server = process(&etcd, folder.path(), port, "");
    listening(address).await;
    let (_follower, events) =
        follow_feed(Discovery::Address(address.to_string()), settings(), telemetry::Pulse::new());
    let keeper = Keeper::of(events);
    for round in 0..4 {
        // A client as a process, which is killed in the middle; and then the server, wherever it is.
        let arguments = [address.to_string()];
        let program = testkit::example("typha_client").unwrap();
        let client = Process::start(&program, &arguments, &folder.path().join("client")).unwrap();
        tokio::time::sleep(Duration::from_millis(30 * round)).await;
        testkit::signal(client.id(), Signal::KILL).unwrap();
        drop(client);
        server.kill().unwrap();
        server = process(&etcd, folder.path(), port, "");
        listening(address).await;
    }
    let (_direct, events) = follow::follow(&backend, kinds(SyncerType::Felix, OPTIONS));
    let direct = Keeper::of(events);
    until("everything has come in the end", || {
        direct.is_in_sync()
            && keeper.is_in_sync()
            && sets(&keeper) == 400
            && keeper.entries() == direct.entries()
    })
    .await;
    // An orderly end has Calico's exit code.
    testkit::signal(server.id(), Signal::TERM).unwrap();
    let begin = std::time::Instant::now();
    let status = loop {
        if let Some(status) = server.ended().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < crate::world::PATIENCE, "Typha does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(status.code(), Some(1), "{status}");
    // Nothing is withdrawn when the server goes.
    assert_eq!(keeper.entries(), direct.entries());
    let mut rest = [0; 1];
    let refused = TcpStream::connect(address).await;
    assert!(refused.is_err() || refused.unwrap().read(&mut rest).await.is_ok_and(|count| count == 0));
}
