//! Opening datastores from configuration.

use crate::stores::config;
use api::{GlobalNetworkSet, GlobalNetworkSetSpec};
use client::{Client, ClientConfig, DatastoreType, OpenError, Purpose, open_backend};
use testkit::{Etcd, EtcdOptions, Folder};

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
async fn a_store_held_by_another_program_is_not_opened() {
    let folder = Folder::new("opening").expect("a folder");
    let config = embedded(&folder);
    // Opened behind the client's back, as another program would; the lock does not distinguish processes.
    let held = kvstore_engine::Store::open(&config.embedded_path, kvstore_engine::Options::default())
        .expect("opening");
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
    // The server has the file open, so this can only have been written through its socket.
    sets(Client::open(&config).await.expect("opening")).await.expect("creating through the server");
    stop.send(()).expect("stopping");
    serving.await.expect("the server ended");

    // The socket no longer answers. A command opens the file itself, and finds what the server wrote.
    let command = Client::open_for(&config, Purpose::Read).await.expect("opening the file");
    command.resource::<GlobalNetworkSetSpec>().get("", "served").await.expect("it was kept");
    drop(command);
    // A component waits for the server, and does not lock it out.
    let component = Client::open(&config).await.expect("opening");
    let error = component.resource::<GlobalNetworkSetSpec>().get("", "served").await.expect_err("it is away");
    assert!(error.is_transient() && error.to_string().contains("tortie datastore"), "{error}");
    let server = kvstore::server::Server::start(kvstore::server::Config::new(&config.embedded_path)).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.expect("starting the server again").serve(async {
        let _ = stopped.await;
    }));
    component.resource::<GlobalNetworkSetSpec>().get("", "served").await.expect("the server is back");
    stop.send(()).expect("stopping");
    serving.await.expect("the server ended");
}

#[tokio::test]
async fn a_component_that_locked_the_server_out_waits_for_it_next_time() {
    let folder = Folder::new("opening").expect("a folder");
    let config = embedded(&folder);
    let held = Client::open(&config).await.expect("opening the files");
    let start = || kvstore::server::Server::start(kvstore::server::Config::new(&config.embedded_path));
    let error = start().await.err().expect("the store is held").to_string();
    assert!(error.contains("in use by process"), "{error}");
    drop(held);
    let again = Client::open(&config).await.expect("opening");
    let outcome = again.resource::<GlobalNetworkSetSpec>().get("", "any").await;
    assert!(outcome.is_err_and(|error| error.is_transient()), "the files were opened again");
    start().await.expect("no client holds the store");
}

#[tokio::test]
async fn only_writing_creates_an_embedded_store() {
    let folder = Folder::new("opening").expect("a folder");
    let config = embedded(&folder);
    let error = match Client::open_for(&config, Purpose::Read).await {
        Err(error @ OpenError::NoStore { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("there is something to read"),
    };
    assert!(error.contains(&config.embedded_path) && error.contains("EMBEDDED_PATH"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "something was created");
    drop(Client::open_for(&config, Purpose::Write).await.expect("making a store"));
    Client::open_for(&config, Purpose::Read).await.expect("reading it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_file_connects_to_etcd_with_certificates() {
    let etcd = Etcd::start_with(EtcdOptions { tls: true, ..EtcdOptions::default() }).expect("starting etcd");
    let authority = etcd.ca_certificate().expect("an authority");
    let (certificate, key) = {
        let pair = etcd.client_certificate().expect("a client certificate");
        (pair.certificate.clone(), pair.key.clone())
    };
    let head = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: etcdv3\n";
    let endpoints = format!("  etcdEndpoints: {}\n", etcd.endpoint());
    let files = format!(
        "  etcdCACertFile: {}\n  etcdCertFile: {}\n  etcdKeyFile: {}\n",
        authority.display(),
        certificate.display(),
        key.display()
    );
    let in_place =
        [("etcdCACert", &authority), ("etcdCert", &certificate), ("etcdKey", &key)].map(|(field, path)| {
            let text = std::fs::read_to_string(path).expect("a certificate").replace('\n', "\n    ");
            format!("  {field}: |\n    {}\n", text.trim_end())
        });

    let folder = Folder::new("opening").expect("a folder");
    let path = folder.path().join("calicoctl.cfg");
    for (name, tls) in [("by-files", files), ("in-place", in_place.concat())] {
        std::fs::write(&path, format!("{head}{endpoints}{tls}")).expect("writing the file");
        let config = ClientConfig::load_from_system(Some(&path)).expect("a valid file");
        let client = Client::open(&config).await.expect("opening");
        let set = GlobalNetworkSet::new("", name, GlobalNetworkSetSpec::default());
        let created = client.resource::<GlobalNetworkSetSpec>().create(set).await;
        created.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let output = etcd.etcdctl(&["get", "--prefix", "--keys-only", "/calico/"]).expect("etcdctl");
    let keys = String::from_utf8(output.stdout).expect("text");
    assert!(
        keys.contains("globalnetworksets/by-files") && keys.contains("globalnetworksets/in-place"),
        "{keys}"
    );

    std::fs::write(&path, format!("{head}{endpoints}")).expect("writing the file");
    let config = ClientConfig::load_from_system(Some(&path)).expect("a valid file");
    let client = Client::open(&config).await.expect("opening connects later");
    client
        .resource::<GlobalNetworkSetSpec>()
        .get("", "by-files")
        .await
        .expect_err("the server is not trusted");
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
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        let error =
            open_backend(&kubernetes).await.map(|_| ()).map_err(message).expect_err("nothing is named");
        for word in ["no datastore is configured", "KUBECONFIG", "ETCD_ENDPOINTS", "EMBEDDED_PATH"] {
            assert!(error.contains(word), "{error}");
        }
    }
    kubernetes.kubernetes.kubeconfig = "/no/such/kubeconfig".into();
    let error = open_backend(&kubernetes).await.map(|_| ()).map_err(message).expect_err("no such file");
    assert!(error.contains("/no/such/kubeconfig"), "{error}");
}
