//! Opening datastores from configuration.

use crate::stores::config;
use api::{GlobalNetworkSet, GlobalNetworkSetSpec};
use client::{Client, ClientConfig, DatastoreType, OpenError, open_backend};
use testkit::Folder;

fn embedded(folder: &Folder) -> ClientConfig {
    let mut config = config(DatastoreType::Embedded);
    config.embedded_path = folder.path().join("data").display().to_string();
    config
}

#[tokio::test]
async fn an_embedded_store_is_shared_within_the_process_and_kept() {
    let folder = Folder::new("opening").expect("a folder");
    let config = embedded(&folder);
    let first = Client::open(&config).await.expect("opening");
    let second = Client::open(&config).await.expect("opening again");
    let set = GlobalNetworkSet::new("", "shared", GlobalNetworkSetSpec::default());
    first.resource::<GlobalNetworkSetSpec>().create(set).await.expect("creating");
    second.resource::<GlobalNetworkSetSpec>().get("", "shared").await.expect("the other client sees it");
    drop((first, second));
    let later = Client::open(&config).await.expect("opening later");
    later.resource::<GlobalNetworkSetSpec>().get("", "shared").await.expect("it was kept");
}

#[tokio::test]
async fn a_store_that_somebody_holds_is_not_taken() {
    let folder = Folder::new("opening").expect("a folder");
    let config = embedded(&folder);
    // Opened behind the client's back, as another program would; the lock does not tell who is in which process.
    let held = kvstore::Store::open(&config.embedded_path, kvstore::Options::default()).expect("opening");
    let error = match open_backend(&config).await {
        Err(error @ OpenError::InUse { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the store was opened twice"),
    };
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    assert!(error.contains("tortie datastore --data-dir"), "{error}");
    drop(held);
    open_backend(&config).await.expect("free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_served_store_is_used_through_its_socket() {
    let folder = Folder::new("opening").expect("a folder");
    let config = embedded(&folder);
    let server = kvstore::server::Server::start(kvstore::server::Config::new(&config.embedded_path)).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.expect("starting a server").serve(async {
        let _ = stopped.await;
    }));
    let sets = |client: Client| async move {
        let set = GlobalNetworkSet::new("", "served", GlobalNetworkSetSpec::default());
        client.resource::<GlobalNetworkSetSpec>().create(set).await
    };
    // The server holds the file, so only its socket can have taken this.
    sets(Client::open(&config).await.expect("opening")).await.expect("creating through the server");
    stop.send(()).expect("stopping");
    serving.await.expect("the server ended");

    // Nobody answers on the socket any more: the file itself is opened, and has what the server wrote.
    let client = Client::open(&config).await.expect("opening the file");
    client.resource::<GlobalNetworkSetSpec>().get("", "served").await.expect("it was kept");
}

#[tokio::test]
async fn settings_that_contradict_themselves_are_refused() {
    let mut etcd = config(DatastoreType::EtcdV3);
    let message = |error: OpenError| error.to_string();
    let error = open_backend(&etcd).await.map(|_| ()).map_err(message).expect_err("no endpoints");
    assert!(
        error.starts_with("cannot open the etcdv3 datastore: ") && error.contains("no etcd endpoints"),
        "{error}"
    );
    etcd.etcd.endpoints = "http://127.0.0.1:1".into();
    etcd.etcd.ca_cert_file = "/no/such/ca.pem".into();
    let error = open_backend(&etcd).await.map(|_| ()).map_err(message).expect_err("no such file");
    assert!(error.contains("/no/such/ca.pem"), "{error}");
    let mut kubernetes = config(DatastoreType::Kubernetes);
    kubernetes.kubernetes.kubeconfig = "/no/such/kubeconfig".into();
    let error = open_backend(&kubernetes).await.map(|_| ()).map_err(message).expect_err("no such file");
    assert!(error.contains("/no/such/kubeconfig"), "{error}");
}
