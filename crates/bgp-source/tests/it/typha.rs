//! The source with a Typha: nothing is published before it has sent everything, and claims of other nodes are ignored.

use super::{Site, etcd_variables, node};
use anyhow::Result;
use bgp_source::Latest;
use client::Client;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use testkit::{Etcd, Folder};
use tokio::net::TcpListener;
use typha::for_tests::{
    ConnectionFigures, Feed, FeedOptions, Server, ServerParts, ServerSettings, Source, SourceOptions,
    follow_store,
};
use typha_client::state_file;
use typha_wire::SyncerType;

async fn start(client: &Client, address: SocketAddr, run: u64) -> Result<(Server, Source)> {
    let listener = TcpListener::bind(address).await?;
    let feed = Feed::new(SyncerType::Bgp, run, FeedOptions::default());
    let options = SourceOptions { kubernetes: false, use_pod_cidr: false };
    let source = follow_store(client.backend(), &feed, options);
    let parts = ServerParts {
        feeds: vec![feed],
        settings: ServerSettings::default(),
        version: String::new(),
        tls: None,
        figures: Arc::new(ConnectionFigures::default()),
    };
    Ok((Server::start(listener, parts), source))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_through_typha() -> Result<()> {
    let (etcd, folder) = (Etcd::start()?, Folder::new("source")?);
    let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()?));
    let named = [("CONFD_TYPHAADDR", address.to_string())];
    let site = Site::start(&etcd_variables(&etcd, &folder).with(named)).await?;
    site.create("Node", "n1", &node(1)).await?;
    site.create("Node", "n2", &node(2)).await?;
    for (host, cidr) in [("n1", "10.66.1.0/26"), ("n2", "10.66.2.0/26")] {
        let key = model::Key::BlockAffinity(model::BlockAffinityKey {
            cidr: cidr.parse()?,
            host: host.to_owned(),
            affinity_type: model::AffinityType::Host,
        });
        let affinity = serde_json::from_value(json!({"state": "confirmed"}))?;
        site.client.backend().create(&model::KvPair::new(key, model::Value::BlockAffinity(affinity))).await?;
    }
    testkit::eventually_async("it waits", async || {
        state_file::read(folder.path(), SyncerType::Bgp)
            .is_some_and(|reason| reason.contains("no connection"))
    })
    .await?;
    assert_eq!(*site.source.latest().borrow(), Latest::Waiting, "the datastore is not followed instead");
    let typha = start(&site.client, address, 1).await?;
    let intent = site.intent("the block of this node", |intent| !intent.v4.export.blocks.is_empty()).await?;
    assert_eq!((intent.v4.export.blocks.len(), intent.sessions().count()), (1, 1));
    assert_eq!(state_file::read(folder.path(), SyncerType::Bgp), None);
    // It disappears and returns: known objects are kept, and changes in the meantime are reported.
    drop(typha);
    testkit::eventually_async("it says so", async || {
        state_file::read(folder.path(), SyncerType::Bgp).is_some()
    })
    .await?;
    site.create("Node", "n3", &node(3)).await?;
    assert_eq!(site.intent("what was known", |_| true).await?.sessions().count(), 1);
    let _typha =
        testkit::eventually_async("the port is free", async || start(&site.client, address, 2).await.ok())
            .await?;
    site.intent("the new node", |intent| intent.sessions().count() == 2).await?;
    Ok(())
}
