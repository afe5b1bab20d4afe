//! Typha as a process: its effect on its store, and the effects of its parameters and signals.

use crate::outages::{listening, process};
use crate::store::open;
use crate::world::{Raw, hello, until};
use api::ClusterInformationSpec;
use std::net::SocketAddr;
use std::path::Path;
use testkit::{Etcd, Folder, Process, Signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use typha_wire::Message;

struct World {
    etcd: Etcd,
    folder: Folder,
    process: Process,
    address: SocketAddr,
}

impl World {
    async fn start(parameters: impl FnOnce(&Path) -> String) -> Self {
        let (etcd, folder) = (Etcd::start().unwrap(), Folder::new("typha-process").unwrap());
        let port = testkit::free_port().unwrap();
        let process = process(&etcd, folder.path(), port, &parameters(folder.path()));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        listening(address).await;
        Self { etcd, folder, process, address }
    }

    fn files(&self, prefix: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap().map(Result::unwrap);
        let dumps = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
        dumps.map(|entry| std::fs::read_to_string(entry.path()).unwrap()).collect()
    }
}

/// Calico's agents wait until the datastore is initialised. In a new cluster Typha may have to do that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_datastore_is_initialised() {
    let world = World::start(|_| String::new()).await;
    let client = client::Client::new(open(&world.etcd.endpoint()).await);
    loop {
        match client.resource::<ClusterInformationSpec>().get("", "default").await {
            Ok(found) => {
                assert_eq!(found.spec.datastore_ready, Some(true));
                assert_eq!(found.spec.cluster_type, "typha");
                break;
            }
            Err(error) => assert!(error.is_does_not_exist(), "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// `MaxConnectionsUpperLimit` also applies to a Typha that is alone and does not look for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_upper_limit_are_closed_without_rebalancing() {
    let world =
        World::start(|_| "MaxConnectionsUpperLimit = 2\nConnectionDropIntervalSecs = 0.05\n".to_owned())
            .await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let mut client = Raw::connect(world.address).await;
        client.say(&Message::ClientHello(hello("felix", false, &[]))).await;
        assert_eq!(client.message().await, "hello felix");
        clients.spawn(async move { while client.get().await != crate::world::Got::End {} });
    }
    for _ in 0..3 {
        clients.join_next().await.unwrap().unwrap();
    }
    assert_eq!(clients.len(), 2);
}

async fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_of_the_process_are_served_unless_they_are_turned_off() {
    for is_on in [true, false] {
        let port = testkit::free_port().unwrap();
        let _world = World::start(|_| {
            format!(
                "PrometheusMetricsEnabled = true\nPrometheusMetricsHost = 127.0.0.1\nPrometheusMetricsPort = {port}\n\
                 PrometheusProcessMetricsEnabled = {is_on}\n"
            )
        })
        .await;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        listening(address).await;
        let page = page(address, "/metrics").await;
        assert!(page.contains("\ntypha_connections_accepted "), "{page}");
        assert_eq!(page.contains("\nprocess_resident_memory_bytes "), is_on, "{page}");
    }
}

/// Each feed is a part of readiness.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_reports_the_state_of_the_feeds() {
    let port = testkit::free_port().unwrap();
    let mut world =
        World::start(|_| format!("HealthEnabled = true\nHealthHost = 127.0.0.1\nHealthPort = {port}\n"))
            .await;
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    listening(address).await;
    let mut ready = String::new();
    while !ready.starts_with("HTTP/1.1 20") {
        world.process.check_running().unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        ready = page(address, "/readiness").await;
    }
    for feed in ["felix", "bgp", "tunnel-ip-allocation", "node-status"] {
        assert!(ready.contains(&format!("{feed}-cache")), "{ready}");
    }
    assert!(page(address, "/liveness").await.starts_with("HTTP/1.1 20"));
}

/// SIGUSR1 asks Calico's Typha for a profile. It ends nothing, and writes the profile if a path is configured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigusr1_writes_a_memory_profile_and_ends_nothing() {
    let with_path =
        |folder: &Path| format!("DebugMemoryProfilePath = {}\n", folder.join("memory-<timestamp>").display());
    let mut world = World::start(with_path).await;
    testkit::signal(world.process.id(), Signal::USR1).unwrap();
    until("the dump is there", || world.files("memory-2").iter().any(|text| text.contains("VmRSS:"))).await;
    world.process.check_running().unwrap();

    let mut silent = World::start(|_| String::new()).await;
    testkit::signal(silent.process.id(), Signal::USR1).unwrap();
    until("the log says so", || silent.files("log").concat().contains("no path for it is set")).await;
    silent.process.check_running().unwrap();
}
