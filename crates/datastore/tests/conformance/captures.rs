//! Data that Calico itself wrote into etcd: everything is read, and writing it back gives the same bytes.

use crate::stores::dump;
use anyhow::{Context as _, Result, ensure};
use datastore::Backend;
use datastore::etcd::EtcdBackend;
use datastore::etcd::embedded::EmbeddedTransport;
use datastore::etcd::transport::{Step, Transaction, Transport};
use model::{AffinityType, Key, ListOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::Folder;

/// Keys and values on alternating lines; lines that start with `#` are comments.
fn entries(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    lines.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

async fn check(name: &str, text: &str, least: usize) -> Result<()> {
    let expected = entries(text);
    ensure!(expected.len() >= least, "{name}: only {} entries", expected.len());
    let folder = Folder::new("capture")?;
    let store = kvstore_engine::Store::open(folder.path(), kvstore_engine::Options::default())?;
    let transport: Arc<dyn Transport> = Arc::new(EmbeddedTransport::new(store));
    for (key, value) in &expected {
        let put = Step::Put { key: key.clone().into(), value: value.clone().into(), lease: 0 };
        transport.transact(Transaction { then: vec![put], ..Transaction::default() }).await?;
    }
    let backend = EtcdBackend::new(Arc::clone(&transport));
    let mut written = 0;
    for (path, _) in &expected {
        let key = Key::parse(path).with_context(|| format!("{name}: {path} is not a key"))?;
        let read = backend.get(&key, None).await.with_context(|| path.clone())?;
        backend.update(&read).await.with_context(|| path.clone())?;
        written += 1;
    }
    let before: BTreeMap<String, String> = expected.iter().cloned().collect();
    let after: BTreeMap<String, String> = dump(&*transport).await?.into_iter().collect();
    for (path, value) in &before {
        ensure!(after.get(path) == Some(value), "{name}: {path}\nwas {value}\n is {:?}", after.get(path));
    }
    ensure!(before.len() == after.len(), "{name}: {} entries became {}", before.len(), after.len());
    let listed = list_everything(&backend).await?;
    ensure!(listed == before.len(), "{name}: lists show {listed} of {} entries", before.len());
    eprintln!("captures {name}: {written} entries read and written back unchanged");
    Ok(())
}

/// The number of entries in all lists together, without the profile that is never stored.
async fn list_everything(backend: &EtcdBackend) -> Result<usize> {
    let mut lists: Vec<ListOptions> = api::Kind::ALL
        .iter()
        .filter(|kind| kind.info().stored)
        .map(|kind| ListOptions::resources(*kind))
        .collect();
    lists.extend([
        ListOptions::Block { ip_version: None },
        ListOptions::IpamHandle,
        ListOptions::StatusReports,
        ListOptions::HostEndpointStatus { host: None },
        ListOptions::WorkloadEndpointStatus { host: None },
    ]);
    for affinity_type in [AffinityType::Host, AffinityType::Virtual] {
        lists.push(ListOptions::BlockAffinity {
            host: None,
            affinity_type: Some(affinity_type),
            ip_version: None,
        });
    }
    let mut count = 0;
    for options in lists {
        let listed = backend.list(&options, None).await?;
        ensure!(listed.invalid.is_empty(), "{options}: {:?}", listed.invalid);
        count += listed.items.iter().filter(|item| item.revision != "1").count();
    }
    Ok(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_written_by_calico_round_trips_unchanged() -> Result<()> {
    check("felix", include_str!("../../../testkit/data/felix-etcd.txt"), 20).await?;
    check("cni", include_str!("../../../testkit/data/cni-etcd-after-add.txt"), 10).await
}
