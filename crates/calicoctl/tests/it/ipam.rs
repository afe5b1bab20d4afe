//! The commands on address management, on records that Calico wrote.

mod check;
mod fix;
mod kubernetes;
mod release;
mod settings;
mod show;

use crate::harness::Shell;
use std::path::Path;
use testkit::{Etcd, Folder};

const CNI: &str = include_str!("../data/ipam/cni.txt");

/// Records as `etcdctl get` prints them: alternating lines of keys and values.
fn pairs(dump: &str) -> Vec<(&str, &str)> {
    let mut lines = dump.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut pairs = Vec::new();
    while let (Some(key), Some(value)) = (lines.next(), lines.next()) {
        pairs.push((key, value));
    }
    pairs
}

/// An embedded store with these raw records, and a shell on it.
fn embedded_with(records: &[(&str, &str)]) -> Shell {
    let shell = Shell::embedded();
    put(&shell, records);
    shell
}

/// Puts raw records into a shell's embedded store; an empty value deletes.
fn put(shell: &Shell, records: &[(&str, &str)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = kvstore_engine::Store::open(shell.path("data"), kvstore_engine::Options::default())
            .expect("opening the store");
        for (key, value) in records {
            let key = key.as_bytes().to_vec().into();
            if value.is_empty() {
                let delete = kvstore_engine::DeleteRangeRequest { key, ..Default::default() };
                store.delete_range(delete).await.expect("deleting");
            } else {
                let value = value.as_bytes().to_vec().into();
                store
                    .put(kvstore_engine::PutRequest { key, value, ..Default::default() })
                    .await
                    .expect("putting");
            }
        }
    });
}

/// The raw value of a key in a shell's embedded store.
fn get(shell: &Shell, key: &str) -> Option<String> {
    let store = kvstore_engine::Store::open(shell.path("data"), kvstore_engine::Options::default())
        .expect("opening the store");
    let range = kvstore_engine::RangeRequest { key: key.as_bytes().to_vec().into(), ..Default::default() };
    let response = store.range(&range).expect("reading");
    response.kvs.first().map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
}

/// An embedded store with what Calico's plugin left after two pods on one node and one on another.
fn cni() -> Shell {
    embedded_with(&pairs(CNI))
}

/// The records of [`cni`] in a real etcd.
fn cni_in_etcd() -> (Etcd, Shell) {
    let etcd = Etcd::start().expect("starting etcd");
    for (key, value) in pairs(CNI) {
        let output = etcd.etcdctl(&["put", key, value]).expect("etcdctl");
        assert!(output.status.success(), "{output:?}");
    }
    let folder = Folder::new("ipam").expect("a folder");
    let shell = Shell::with(&[("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.endpoint())], folder);
    (etcd, shell)
}

/// Compares text with a file under `tests/golden/ipam`; with UPDATE_EXPECT set, writes the file instead.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ipam").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, text).expect("writing the file");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "differs from {} (set UPDATE_EXPECT to accept)", path.display());
}

const LOCKED: (&str, &str) = (
    "/calico/resources/v3/projectcalico.org/clusterinformations/default",
    r#"{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"2c1dcd0f-0b0b-4d43-8a7a-0b1f6b1f2f10","creationTimestamp":"2026-11-15T19:48:00Z"},"spec":{"clusterGUID":"0123456789abcdef","clusterType":"test","datastoreReady":false}}"#,
);

/// The key of a block of the captured records.
const BLOCK_A: &str = "/calico/ipam/v2/assignment/ipv4/block/172.16.165.136-29";
