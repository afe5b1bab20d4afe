//! A Goldmane over gRPC as the source: a fake server that answers from a list.

use flows::query::{Filter, HintType, Page};
use flows::{FlowKey, Reporter};
use futures::StreamExt as _;
use goldmane_api::connect::Target;
use goldmane_api::convert::encode_key;
use goldmane_api::losses::LossKind;
use goldmane_api::proto;
use goldmane_api::proto::flows_server::{Flows, FlowsServer};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use whisker::for_tests::{Goldmane, HintsQuery, ListQuery, Loss, SortBy, Source, SourceError, StreamQuery};

#[derive(Clone, Default)]
struct Fake {
    flows: Arc<Mutex<Vec<proto::FlowResult>>>,
    lists: Arc<Mutex<Vec<proto::FlowListRequest>>>,
}

#[tonic::async_trait]
impl Flows for Fake {
    async fn list(
        &self,
        request: Request<proto::FlowListRequest>,
    ) -> Result<Response<proto::FlowListResult>, Status> {
        let request = request.into_inner();
        if request.sort_by.iter().any(|sort| sort.sort_by == proto::SortBy::SourceType as i32) {
            return Err(Status::invalid_argument("unsupported sort"));
        }
        let flows = self.flows.lock().unwrap().clone();
        let starts = |result: &proto::FlowResult| result.flow.as_ref().map_or(0, |flow| flow.start_time);
        let (gte, lt) = (request.start_time_gte, request.start_time_lt);
        let is_in = |time: i64| (gte <= 0 || time >= gte) && (lt <= 0 || time < lt);
        let flows = flows.into_iter().filter(|result| is_in(starts(result))).collect();
        self.lists.lock().unwrap().push(request);
        let meta = Some(proto::ListMetadata { total_pages: 5, total_results: 1 });
        Ok(Response::new(proto::FlowListResult { meta, flows }))
    }

    type StreamStream = futures::stream::BoxStream<'static, Result<proto::FlowResult, Status>>;

    async fn stream(
        &self,
        _request: Request<proto::FlowStreamRequest>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        // Like a server in Go: no headers before the first flow.
        while self.flows.lock().unwrap().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let flows = self.flows.lock().unwrap().clone();
        let flows = futures::stream::iter(flows.into_iter().map(Ok));
        let end = futures::stream::once(async { Err(Status::unavailable("gone")) });
        Ok(Response::new(flows.chain(end).boxed()))
    }

    async fn filter_hints(
        &self,
        request: Request<proto::FilterHintsRequest>,
    ) -> Result<Response<proto::FilterHintsResult>, Status> {
        let value = format!("{} {}", request.get_ref().r#type, request.get_ref().page_size);
        let meta = Some(proto::ListMetadata { total_pages: 2, total_results: 2 });
        Ok(Response::new(proto::FilterHintsResult { meta, hints: vec![proto::FilterHint { value }] }))
    }
}

fn result(id: i64, key: &FlowKey, start: i64, packets: i64) -> proto::FlowResult {
    let flow = proto::Flow {
        key: encode_key(key).into(),
        start_time: start,
        end_time: start + 15,
        packets_in: packets,
        ..proto::Flow::default()
    };
    proto::FlowResult { id, flow: Some(flow) }
}

async fn start() -> (Fake, Goldmane) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let fake = Fake::default();
    let server = tonic::transport::Server::builder().add_service(FlowsServer::new(fake.clone()));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (fake, Goldmane::new(Target { address, tls: None }))
}

fn shop_key() -> FlowKey {
    crate::world::key("shop/web-*", "shop/db", 5432, Reporter::Dst, &["0|default|np:shop/db|deny|-1"], &[])
}

#[tokio::test]
async fn lists_hints_and_streams_are_passed_on() {
    let (fake, source) = start().await;
    fake.flows.lock().unwrap().push(result(3, &shop_key(), 600, 4));
    let query = ListQuery { gte: -60, lt: 0, sort: vec![SortBy::DestName], filter: Filter::default() };
    let found = source.list(query).await.unwrap();
    assert_eq!((found.total_pages, found.items[0].id, found.items[0].counters.packets_in), (5, 3, 4));
    assert_eq!(*found.items[0].key, shop_key());
    let asked = fake.lists.lock().unwrap().pop().unwrap();
    assert_eq!((asked.start_time_gte, asked.sort_by[0].sort_by), (-60, 1));
    let page = Page { number: 0, size: 7 };
    let hints = HintsQuery { of: HintType::PolicyTier, filter: Filter::default(), page };
    assert_eq!(source.hints(hints).await.unwrap().items, ["5 7"]);
    let query = StreamQuery { gte: 0, resume: None, filter: Filter::default() };
    let batches: Vec<_> = source.buckets(query).await.unwrap().collect().await;
    assert_eq!(batches.len(), 2);
    let first = batches[0].as_ref().unwrap();
    assert_eq!((first.flows[0].id, first.place.as_str()), (3, "600"), "a bucket that broke off comes again");
    assert!(matches!(&batches[1], Err(SourceError::Away(reason)) if reason.contains("gone")));
    assert!(source.state().await.problem.unwrap().contains("gone"));
    let refused = ListQuery { sort: vec![SortBy::SourceType], ..ListQuery::default() };
    assert!(matches!(source.list(refused).await, Err(SourceError::Refused(_))));
}

#[tokio::test]
async fn flows_of_the_current_bucket_are_seen_as_they_arrive() {
    let (fake, source) = start().await;
    let bucket = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        i64::try_from(now).unwrap().div_euclid(15) * 15
    };
    fake.flows
        .lock()
        .unwrap()
        .extend([result(1, &shop_key(), bucket() - 300, 1), result(2, &shop_key(), bucket(), 1)]);
    let query = StreamQuery { gte: -600, resume: None, filter: Filter::default() };
    let mut batches = source.live(query).await.unwrap();
    let first = batches.next().await.unwrap().unwrap();
    let ids: Vec<u64> = first.flows.iter().map(|flow| flow.id).collect();
    assert_eq!(ids, [1, 2], "what is past comes as one, then what may change");
    fake.flows.lock().unwrap()[1] = result(2, &shop_key(), bucket(), 9);
    let next = batches.next().await.unwrap().unwrap();
    assert_eq!((next.flows.len(), next.flows[0].counters.packets_in), (1, 9));
    assert!(first.is_fresh && !next.is_fresh);
    // A reader that reconnects resumes as long as the connection to the server is the same.
    for (place, is_fresh, flows) in [(next.place.clone(), false, 1), (format!("1{}", next.place), true, 2)] {
        let query = StreamQuery { gte: -600, resume: Some(place), filter: Filter::default() };
        let again = source.live(query).await.unwrap().next().await.unwrap().unwrap();
        assert_eq!((again.is_fresh, again.flows.len()), (is_fresh, flows));
    }
}

#[tokio::test]
async fn a_stream_begins_before_its_first_flow() {
    let (fake, source) = start().await;
    let query = StreamQuery { gte: 0, resume: None, filter: Filter::default() };
    let mut batches = source.buckets(query).await.unwrap();
    fake.flows.lock().unwrap().push(result(1, &shop_key(), 1_800_000_000, 4));
    assert_eq!(batches.next().await.unwrap().unwrap().flows[0].counters.packets_in, 4);
    assert!(batches.next().await.unwrap().is_err(), "and breaks off with it");
    // Calico's servers keep no record of losses.
    let state = source.state().await;
    assert_eq!((state.losses, state.nodes), (vec![], None));
}

#[tokio::test]
async fn an_unreachable_server_is_shown_as_a_problem() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let source = Goldmane::new(Target { address, tls: None });
    assert!(matches!(source.list(ListQuery::default()).await, Err(SourceError::Away(_))));
    let state = source.state().await;
    assert!(state.problem.unwrap().contains("cannot connect"), "and the page says so");
    assert_eq!(state.newest, None);
}

#[tokio::test]
async fn our_own_goldmane_is_a_source() {
    let port = testkit::free_port().unwrap();
    let (handle, shutdown) = daemon::ShutdownHandle::new();
    let environment = daemon::Variables::new([
        ("PORT".to_owned(), port.to_string()),
        ("HEALTH_ENABLED".to_owned(), "false".to_owned()),
    ]);
    let end = shutdown.clone();
    let server = tokio::spawn(async move { goldmane::for_tests::run(&environment, |_| (), end).await });
    let target = Target { address: format!("127.0.0.1:{port}"), tls: None };
    let source = Goldmane::new(target.clone());
    let query = StreamQuery { gte: -60, resume: None, filter: Filter::default() };
    let mut live =
        testkit::eventually_async("a stream", async || source.live(query.clone()).await.ok()).await.unwrap();
    assert_eq!(live.next().await.unwrap().unwrap().flows.len(), 0);
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let figures = goldmane_api::push::PushFigures::default();
    let losses: goldmane_api::losses::LossSource = Arc::new(|| vec![(LossKind::PacketsShed, 5)]);
    let node = goldmane_api::push::Sender { node: "node1".to_owned(), losses: Some(losses) };
    tokio::spawn(goldmane_api::push::push(target, node, receiver, figures, shutdown));
    let now = goldmane_api::push::now();
    let flow = flows::collector::CollectedFlow {
        key: shop_key(),
        start: now,
        end: now,
        source_labels: flows::Labels::default(),
        dest_labels: flows::Labels::default(),
        counters: crate::world::counters(3),
    };
    sender.send(vec![flow]).await.unwrap();
    let seen = live.next().await.unwrap().unwrap();
    assert_eq!((&*seen.flows[0].key, seen.flows[0].counters.packets_in), (&shop_key(), 3));
    let listed = source.list(ListQuery { gte: -60, ..ListQuery::default() }).await.unwrap();
    assert_eq!((listed.items.len(), listed.items[0].id), (1, seen.flows[0].id));
    // The node's losses are on the page.
    let state = testkit::eventually_async("the node's losses", async || {
        Some(source.state().await).filter(|state| !state.losses.is_empty())
    })
    .await
    .unwrap();
    let lost = Loss { node: "node1".to_owned(), what: LossKind::PacketsShed.words(), count: 5 };
    assert_eq!((state.losses, state.nodes, state.silent), (vec![lost], Some(1), vec![]));
    assert_eq!((state.received, state.keys), (Some(1), Some(1)));
    handle.request();
    server.await.unwrap().unwrap();
}
