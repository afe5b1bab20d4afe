//! A server whose clock the test controls, and flows to send to it.

use bytes::Bytes;
use daemon::{Shutdown, ShutdownHandle};
use flows::collector::CollectedFlow;
use flows::{Action, Counters, EndpointType, FlowKey, Labels, Peer, Reporter, Trace};
use goldmane::for_tests::{Aggregator, AggregatorOptions, Clock, Services, serve};
use goldmane_api::connect::{Target, connect};
use goldmane_api::convert::decode_key;
use goldmane_api::proto::flow_collector_client::FlowCollectorClient;
use goldmane_api::proto::flows_client::FlowsClient;
use goldmane_api::proto::{Flow, FlowResult, FlowUpdate};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tls::Renewing;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

pub(crate) const BEGIN: i64 = 1_700_000_010;

pub(crate) struct World {
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) address: String,
    time: Arc<AtomicI64>,
    end: ShutdownHandle,
    server: JoinHandle<()>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(AggregatorOptions::default(), None).await
    }

    pub(crate) async fn start_with(options: AggregatorOptions, certificates: Option<Renewing>) -> Self {
        let time = Arc::new(AtomicI64::new(BEGIN));
        let clock: Clock = {
            let time = Arc::clone(&time);
            Arc::new(move || time.load(Ordering::Relaxed))
        };
        let aggregator = Aggregator::new(options, clock);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(aggregator, listener, certificates, time)
    }

    fn serve(
        aggregator: Arc<Aggregator>,
        listener: TcpListener,
        certificates: Option<Renewing>,
        time: Arc<AtomicI64>,
    ) -> Self {
        let address = format!("localhost:{}", listener.local_addr().unwrap().port());
        let (end, shutdown): (_, Shutdown) = ShutdownHandle::new();
        let services = Services(Arc::clone(&aggregator));
        let server = tokio::spawn(serve(listener, certificates, services, shutdown));
        Self { aggregator, address, time, end, server }
    }

    /// Ends every connection and serves again at the same address, keeping the memory or starting with an empty one.
    pub(crate) async fn restart(self, keeps_memory: bool) -> Self {
        self.server.abort();
        let _ = self.server.await;
        drop(self.end);
        let port = self.address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
        let listener = testkit::eventually_async("the port is free again", async || {
            TcpListener::bind(("127.0.0.1", port)).await.ok()
        })
        .await
        .unwrap();
        let time = Arc::clone(&self.time);
        let aggregator = match keeps_memory {
            true => self.aggregator,
            false => {
                let time = Arc::clone(&time);
                Aggregator::new(AggregatorOptions::default(), Arc::new(move || time.load(Ordering::Relaxed)))
            }
        };
        Self::serve(aggregator, listener, None, time)
    }

    /// Lets time pass.
    pub(crate) fn pass(&self, seconds: i64) {
        self.time.fetch_add(seconds, Ordering::Relaxed);
        self.aggregator.turn();
    }

    pub(crate) fn now(&self) -> i64 {
        self.time.load(Ordering::Relaxed)
    }

    pub(crate) fn target(&self) -> Target {
        Target { address: self.address.clone(), tls: None }
    }

    pub(crate) async fn channel(&self) -> Channel {
        connect(&self.target()).await.unwrap()
    }

    pub(crate) async fn reader(&self) -> FlowsClient<Channel> {
        FlowsClient::new(self.channel().await)
    }

    /// Sends flows and waits for their receipts.
    pub(crate) async fn send(&self, flows: Vec<Flow>) {
        send(self.channel().await, flows).await;
    }
}

pub(crate) async fn send(channel: Channel, flows: Vec<Flow>) {
    let count = flows.len();
    let updates = futures::stream::iter(flows.into_iter().map(|flow| FlowUpdate { flow: Some(flow) }));
    let mut receipts = FlowCollectorClient::new(channel).connect(updates).await.unwrap().into_inner();
    for _ in 0..count {
        receipts.message().await.unwrap().expect("a receipt for every flow");
    }
    assert!(receipts.message().await.unwrap().is_none());
}

pub(crate) fn key(source: &str, enforced: &[&str]) -> FlowKey {
    let peer =
        |name: &str| Peer { kind: EndpointType::Workload, namespace: "shop".into(), name: name.into() };
    let enforced: Vec<flows::PolicyHit> = enforced.iter().map(|text| text.parse().unwrap()).collect();
    FlowKey {
        source: peer(source),
        dest: peer("web-*"),
        dest_port: 80,
        protocol: "tcp".into(),
        reporter: Reporter::Src,
        action: enforced.last().map_or(Action::Allow, |hit| hit.action),
        trace: Arc::new(Trace { pending: enforced.clone(), enforced }),
        ..FlowKey::default()
    }
}

pub(crate) fn collected(source: &str, start: i64, packets: u64) -> CollectedFlow {
    let counters =
        Counters { packets_out: packets, bytes_out: packets * 100, live: 1, ..Counters::default() };
    CollectedFlow {
        key: key(source, &["0|default|np:shop/web|allow|1"]),
        start,
        end: start + 15,
        source_labels: ["app=client"].iter().collect(),
        dest_labels: Labels::default(),
        counters,
    }
}

pub(crate) fn flow(source: &str, start: i64, packets: u64) -> Flow {
    goldmane_api::convert::from_collected(&collected(source, start, packets))
}

/// (source, start relative to the beginning, packets).
pub(crate) fn shown(result: &FlowResult) -> (String, i64, i64) {
    let flow = result.flow.as_ref().unwrap();
    let key = decode_key(&Bytes::clone(&flow.key)).unwrap();
    (key.source.name.to_string(), flow.start_time - BEGIN, flow.packets_out)
}
