//! Concurrency on real servers: 32 writers, as many processes as hosts, on etcd, the embedded store and Kubernetes.

use crate::fixtures::{node, pool, records, request};
use datastore::Backend;
use datastore::etcd::{EtcdBackend, EtcdConfig};
use datastore::kubernetes::{KubernetesBackend, KubernetesConfig};
use ipam::{Ipam, Release};
use ipam_core::{Block, structure};
use model::{HandleId, Key, KvPair, ListOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use testkit::{ApiServer, Etcd, Folder};

const HOSTS: usize = 8;
const WRITERS_PER_HOST: usize = 4;

/// All stored entries of address management.
async fn dump(backend: &dyn Backend) -> BTreeMap<Key, KvPair> {
    let mut entries = BTreeMap::new();
    let lists = [
        ListOptions::Block { ip_version: None },
        ListOptions::BlockAffinity { host: None, affinity_type: None, ip_version: None },
        ListOptions::IpamHandle,
    ];
    for list in lists {
        let found = backend.list(&list, None).await.expect("listing");
        assert_eq!(found.invalid, [], "unreadable entries");
        entries.extend(found.items.into_iter().map(|entry| (entry.key.clone(), entry)));
    }
    entries
}

async fn check(backend: &dyn Backend, held: &BTreeMap<IpAddr, HandleId>) {
    let records = records(&dump(backend).await);
    let repairs: Vec<String> = records.repairs().iter().map(ToString::to_string).collect();
    assert_eq!(repairs, Vec::<String>::new());
    let mut seen = BTreeMap::new();
    for block in records.blocks.values() {
        assert_eq!(structure::problem(block, jiff::Timestamp::now()), None);
        for allocation in Block::new(block).allocations() {
            seen.insert(allocation.address, allocation.handle_id().unwrap_or_default().into());
        }
    }
    assert_eq!(seen, *held);
}

/// Runs 32 writers that take addresses under their own handles, and release every other one, by handle or by address.
async fn contend(backend: Arc<dyn Backend>, rounds: usize) {
    let mut writers = tokio::task::JoinSet::new();
    for host in 0..HOSTS {
        // Two writers of each host share one long-lived process; the others have one each.
        let together = Ipam::warm(Arc::clone(&backend), &format!("node-{host}"));
        for writer in 0..WRITERS_PER_HOST {
            let ipam = if writer < 2 { together.clone() } else { Ipam::new(Arc::clone(&backend)) };
            writers.spawn(async move {
                let mut held = Vec::new();
                for round in 0..rounds {
                    let handle = HandleId::from(format!("net.h{host}-w{writer}-r{round}"));
                    let wanted = request(&format!("node-{host}"), &handle, 1 + round % 2);
                    let assigned = ipam.auto_assign(&wanted).await.expect("addresses");
                    assert_eq!(assigned.shortfalls, []);
                    let addresses: Vec<IpAddr> = assigned.addresses().collect();
                    match round % 4 {
                        1 => ipam.release_by_handle(&handle).await.expect("releasing"),
                        3 => {
                            let releases: Vec<Release> = addresses.iter().copied().map(Release::of).collect();
                            let outcome = ipam.release_ips(&releases).await.expect("releasing");
                            assert!(
                                outcome.failure.is_none() && outcome.unallocated.is_empty(),
                                "{outcome:?}"
                            );
                        }
                        _ => held.extend(addresses.into_iter().map(|address| (address, handle.clone()))),
                    }
                }
                held
            });
        }
    }
    let mut held = BTreeMap::new();
    let mut handles = BTreeSet::new();
    while let Some(outcome) = writers.join_next().await {
        for (address, handle) in outcome.expect("a writer") {
            handles.insert(handle.clone());
            assert_eq!(held.insert(address, handle.clone()), None, "{address} was given to {handle} too");
        }
    }
    check(backend.as_ref(), &held).await;
    let ipam = Ipam::new(Arc::clone(&backend));
    for handle in handles {
        ipam.release_by_handle(&handle).await.expect("releasing");
    }
    check(backend.as_ref(), &BTreeMap::new()).await;
    for host in 0..HOSTS {
        ipam.remove_ipam_host(&format!("node-{host}")).await.expect("removing");
    }
    let left = dump(backend.as_ref()).await;
    assert!(left.is_empty(), "{:?}", left.keys());
}

/// A pool too small to give every writer a first block of its own, so that hosts meet.
fn small_pool() -> KvPair {
    pool("crowded", r#"{"cidr":"10.0.0.0/23","blockSize":28}"#)
}

async fn prepare(backend: &dyn Backend) {
    backend.create(&small_pool()).await.expect("creating");
    for host in 0..HOSTS {
        backend.create(&node(&format!("node-{host}"), &[])).await.expect("creating");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_writers_on_etcd() {
    let etcd = tokio::task::spawn_blocking(Etcd::start).await.expect("a thread").expect("starting etcd");
    let backend =
        EtcdBackend::connect(&EtcdConfig::for_endpoints(&etcd.endpoint())).await.expect("connecting");
    let backend: Arc<dyn Backend> = Arc::new(backend);
    prepare(backend.as_ref()).await;
    contend(backend, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_writers_on_the_embedded_store() {
    let folder = Folder::new("ipam-contention").expect("a folder");
    let store = kvstore_engine::Store::open(folder.path().join("data"), kvstore_engine::Options::default())
        .expect("opening");
    let backend: Arc<dyn Backend> = Arc::new(EtcdBackend::embedded(store));
    prepare(backend.as_ref()).await;
    contend(backend, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_writers_on_kubernetes() {
    let servers = tokio::task::spawn_blocking(|| {
        let etcd = Etcd::start().expect("starting etcd");
        let api_server = ApiServer::start(&etcd.endpoint()).expect("starting kube-apiserver");
        for host in 0..HOSTS {
            let node = format!(r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"node-{host}"}}}}"#);
            api_server.kubectl_with_input(&["create", "-f", "-"], &node).expect("creating a node");
        }
        (etcd, api_server)
    });
    let (_etcd, api_server) = servers.await.expect("a thread");
    let config = KubernetesConfig::from_file(api_server.kubeconfig());
    let backend = KubernetesBackend::connect(&config).await.expect("connecting");
    backend.install().await.expect("installing the CRDs");
    let backend: Arc<dyn Backend> = Arc::new(backend);
    backend.create(&small_pool()).await.expect("creating");
    contend(Arc::clone(&backend), 4).await;
    upgrade(&api_server, &backend).await;
}

/// Claims of very old releases have no labels, so listing by labels misses them.
async fn upgrade(api_server: &ApiServer, backend: &Arc<dyn Backend>) {
    for host in ["old", "other"] {
        let claim = format!(
            r#"{{"apiVersion":"crd.projectcalico.org/v1","kind":"BlockAffinity","metadata":{{"name":"{host}-10-0-0-0-28"}},
                "spec":{{"cidr":"10.0.0.0/28","deleted":"false","node":"{host}","state":"confirmed"}}}}"#
        );
        api_server.kubectl_with_input(&["create", "-f", "-"], &claim).expect("creating a claim");
    }
    let claims = async |host: &str| {
        let list = ListOptions::BlockAffinity {
            host: Some(host.to_owned()),
            affinity_type: Some(model::AffinityType::Host),
            ip_version: Some(model::IpVersion::V4),
        };
        backend.list(&list, None).await.expect("listing").items.len()
    };
    assert_eq!(claims("old").await, 0);
    Ipam::new(Arc::clone(backend)).upgrade_host("old").await.expect("upgrading");
    assert_eq!((claims("old").await, claims("other").await), (1, 0), "each node sees to its own");
}
