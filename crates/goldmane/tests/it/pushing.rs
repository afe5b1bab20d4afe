//! Sending flows: each counts once, across reconnects, with and without TLS.

use crate::world::{BEGIN, World, collected, flow, send, shown};
use daemon::Shutdown;
use goldmane::for_tests::AggregatorOptions;
use goldmane_api::connect::{Target, TlsPaths, connect};
use goldmane_api::proto::{FlowListRequest, FlowListResult};
use goldmane_api::push::{PushFigures, push};
use testkit::{Authority, Folder, KeyAndCertificate};
use tls::{ClientAuth, Renewing, TlsFiles};
use tokio::sync::mpsc;

async fn list(world: &World) -> FlowListResult {
    world.reader().await.list(FlowListRequest::default()).await.unwrap().into_inner()
}

/// Packets by source.
async fn packets(world: &World) -> Vec<(String, i64)> {
    let mut rows: Vec<_> = list(world).await.flows.iter().map(|row| (shown(row).0, shown(row).2)).collect();
    rows.sort();
    rows
}

#[tokio::test]
async fn flows_resent_over_another_connection_count_once() {
    let world = World::start().await;
    let flows = || vec![flow("a", BEGIN - 15, 1), flow("b", BEGIN - 15, 2)];
    world.send(flows()).await;
    world.send(flows()).await;
    world.send(vec![flow("a", BEGIN - 30, 4)]).await;
    assert_eq!(packets(&world).await, [("a".to_owned(), 5), ("b".to_owned(), 2)]);
}

#[tokio::test]
async fn a_node_sends_through_restarts_of_the_server() {
    let mut world = World::start().await;
    let (sender, receiver) = mpsc::channel(10);
    let figures = PushFigures::default();
    let pushing =
        tokio::spawn(push(world.target(), "node-1".to_owned(), receiver, figures.clone(), Shutdown::never()));
    let names: Vec<String> = (0..700).map(|number| format!("pod-{number:03}")).collect();
    let batch = |start: i64, packets: u64| -> Vec<_> {
        names.iter().map(|name| collected(name, start, packets)).collect()
    };
    let arrived = async |world: &World, packets_each: i64| {
        testkit::eventually_async("all flows arrive", async || {
            let expected: Vec<_> = names.iter().map(|name| (name.clone(), packets_each)).collect();
            packets(world).await == expected
        })
        .await
        .unwrap();
    };
    sender.send(batch(BEGIN - 30, 1)).await.unwrap();
    arrived(&world, 1).await;
    // The connection breaks, but the server still has the flows.
    world = world.restart(true).await;
    sender.send(batch(BEGIN - 15, 2)).await.unwrap();
    arrived(&world, 3).await;
    // A new server knows nothing: the last minutes are sent to it.
    world = world.restart(false).await;
    arrived(&world, 3).await;
    drop(sender);
    pushing.await.unwrap();
    assert!(figures.connections() >= 3 && figures.lost() == 0, "{figures:?}");
    assert!(figures.receipts() >= 1400);
}

#[tokio::test]
async fn senders_behind_one_address_are_distinguished_by_name() {
    let world = World::start().await;
    let mut pushing = Vec::new();
    for node in ["node-1", "node-2"] {
        let (sender, receiver) = mpsc::channel(1);
        sender.send(vec![collected("a", BEGIN - 15, 1)]).await.unwrap();
        drop(sender);
        let figures = PushFigures::default();
        pushing.push(push(world.target(), node.to_owned(), receiver, figures, Shutdown::never()));
    }
    // Each sender finishes when its flows have receipts.
    futures::future::join_all(pushing).await;
    assert_eq!(packets(&world).await, [("a".to_owned(), 2)]);
}

#[tokio::test]
async fn only_clients_of_the_authority_are_served_and_files_are_reloaded() {
    let folder = Folder::new("goldmane").unwrap();
    let authority = Authority::new(folder.path()).unwrap();
    let server = authority.sign("server", "localhost", &[]).unwrap();
    let files = TlsFiles {
        certificate: server.certificate.clone(),
        key: server.key.clone(),
        authorities: authority.certificate.clone(),
        client_auth: ClientAuth::RequireAndVerify,
        protocols: &["h2"],
    };
    let world = World::start_with(AggregatorOptions::default(), Some(Renewing::new(files))).await;
    let target = |authority: &Authority, own: &KeyAndCertificate| Target {
        address: world.address.clone(),
        tls: Some(TlsPaths {
            authority: authority.certificate.clone(),
            certificate: own.certificate.clone(),
            key: own.key.clone(),
        }),
    };
    let node = authority.sign("node", "node-1", &[]).unwrap();
    send(connect(&target(&authority, &node)).await.unwrap(), vec![flow("a", BEGIN - 15, 1)]).await;
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let other = Authority::new(&elsewhere).unwrap();
    let stranger = other.sign("node", "node-1", &[]).unwrap();
    let ask = async |target: Target| -> Result<usize, String> {
        let channel = connect(&target).await.map_err(|error| error.to_string())?;
        let mut client = goldmane_api::proto::flows_client::FlowsClient::new(channel);
        let result = client.list(FlowListRequest::default()).await.map_err(|status| status.to_string())?;
        Ok(result.into_inner().flows.len())
    };
    assert_eq!(ask(target(&authority, &node)).await, Ok(1));
    assert!(ask(target(&authority, &stranger)).await.is_err(), "not of the authority");
    assert!(ask(world.target()).await.is_err(), "in the clear");
    // The server and its clients switch to another authority without a restart.
    let moved = other.sign("server", "localhost", &[]).unwrap();
    std::fs::copy(&other.certificate, &authority.certificate).unwrap();
    std::fs::copy(&moved.key, &server.key).unwrap();
    std::fs::copy(&moved.certificate, &server.certificate).unwrap();
    assert_eq!(ask(target(&other, &stranger)).await, Ok(1));
    assert!(ask(target(&other, &node)).await.is_err());
}
