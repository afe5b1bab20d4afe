//! Losses of nodes are visible to readers of flows, and to no other client.

use crate::world::{BEGIN, World, collected, flow};
use daemon::Shutdown;
use goldmane_api::losses::{self, LossKind, LossesResult};
use goldmane_api::proto::flow_collector_server::{FlowCollector, FlowCollectorServer};
use goldmane_api::proto::{FlowReceipt, FlowUpdate};
use goldmane_api::push::{PushFigures, Sender, push};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

async fn asked(world: &World) -> LossesResult {
    losses::ask(world.channel().await).await.unwrap().unwrap()
}

/// (node, kind, losses of the last hour).
fn recent(result: &LossesResult) -> Vec<(String, LossKind, u64)> {
    let of = |node: &losses::proto::NodeLosses| {
        let name = node.node.clone();
        node.losses.iter().map(|loss| (name.clone(), loss.kind(), loss.recent)).collect::<Vec<_>>()
    };
    result.nodes.iter().flat_map(of).collect()
}

#[tokio::test]
async fn a_nodes_losses_are_reported_with_its_flows() {
    let world = World::start().await;
    let shed = Arc::new(AtomicU64::new(7));
    let counted = Arc::clone(&shed);
    let source: losses::LossSource =
        Arc::new(move || vec![(LossKind::PacketsShed, counted.load(Ordering::Relaxed))]);
    let (sender, receiver) = mpsc::channel(1);
    sender.send(vec![collected("a", BEGIN - 15, 1)]).await.unwrap();
    let from = Sender { node: "n1".to_owned(), losses: Some(source) };
    let pushing =
        tokio::spawn(push(world.target(), from, receiver, PushFigures::default(), Shutdown::never()));
    for (count, expected) in [(7, 7), (9, 9)] {
        shed.store(count, Ordering::Relaxed);
        testkit::eventually_async("the node's losses are known", async || {
            recent(&asked(&world).await) == [("n1".to_owned(), LossKind::PacketsShed, expected)]
        })
        .await
        .unwrap();
    }
    assert_eq!(asked(&world).await.received, 1);
    pushing.abort();
    // The node falls silent and is eventually forgotten.
    world.pass(120);
    assert_eq!(asked(&world).await.nodes.iter().find(|node| node.node == "n1").unwrap().age, 120);
    world.pass(3600);
    assert!(recent(&asked(&world).await).is_empty());
}

#[tokio::test]
async fn flows_not_counted_are_the_servers_own_losses() {
    let world = World::start().await;
    assert!(recent(&asked(&world).await).is_empty());
    world.send(vec![flow("a", BEGIN - 100_000, 1), flow("a", BEGIN - 15, 1)]).await;
    let result = asked(&world).await;
    assert_eq!(recent(&result), [(String::new(), LossKind::FlowsOutside, 1)]);
    assert_eq!((result.received, result.keys), (2, 1));
}

#[tokio::test]
async fn reports_without_a_name_are_refused() {
    let world = World::start().await;
    let mut client = losses::proto::losses_client::LossesClient::new(world.channel().await);
    for node in [String::new(), "n".repeat(254)] {
        let report = losses::proto::LossReport { node, ..Default::default() };
        assert_eq!(client.report(report).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}

/// A server with Calico's services only, which sends no headers before the first receipt, as Go's servers do.
struct Plain(mpsc::Sender<FlowUpdate>);

#[tonic::async_trait]
impl FlowCollector for Plain {
    type ConnectStream = ReceiverStream<Result<FlowReceipt, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<FlowUpdate>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (receipts, answer) = mpsc::channel(16);
        let (taken, mut updates) = (self.0.clone(), request.into_inner());
        let take = async move |update: Option<FlowUpdate>| match update {
            Some(update) => {
                taken.send(update).await.is_ok() && receipts.send(Ok(FlowReceipt {})).await.is_ok()
            }
            None => false,
        };
        if take(updates.message().await?).await {
            tokio::spawn(async move { while take(updates.message().await.ok().flatten()).await {} });
        }
        Ok(Response::new(ReceiverStream::new(answer)))
    }
}

#[tokio::test]
async fn a_server_without_the_losses_service_still_gets_flows() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    let (taken, mut updates) = mpsc::channel(16);
    let server = tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(FlowCollectorServer::new(Plain(taken)))
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let target = goldmane_api::connect::Target { address, tls: None };
    let channel = goldmane_api::connect::connect(&target).await.unwrap();
    assert_eq!(losses::ask(channel).await.unwrap(), None);
    let (sender, receiver) = mpsc::channel(1);
    let figures = PushFigures::default();
    let pushing = tokio::spawn(push(target, "n1".to_owned(), receiver, figures.clone(), Shutdown::never()));
    for start in [BEGIN - 30, BEGIN - 15] {
        sender.send(vec![collected("a", start, 1)]).await.unwrap();
        assert_eq!(updates.recv().await.unwrap().flow.unwrap().start_time, start);
    }
    drop(sender);
    pushing.await.unwrap();
    assert_eq!((figures.connections(), figures.receipts()), (1, 2), "one connection for all of them");
    server.abort();
}
