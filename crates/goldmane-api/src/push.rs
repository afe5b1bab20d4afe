//! Sends a node's flows to a Goldmane: ahead of their receipts, and again after a reconnect.

use crate::SENDER_HEADER;
use crate::connect::{Target, connect};
use crate::convert::from_collected;
use crate::losses::{LossKind, LossSource, tell};
use crate::outbox::Outbox;
use crate::proto::flow_collector_client::FlowCollectorClient;
use crate::proto::{Flow, FlowReceipt, FlowUpdate};
use daemon::{Backoff, Shutdown};
use flows::collector::CollectedFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Streaming};

/// The maximum number of flows kept: five minutes of a busy node.
const MOST: usize = 50_000;
/// How many flows are sent ahead of their receipts.
const WINDOW: usize = 512;
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Counts for figures. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PushFigures(Arc<[AtomicU64; 3]>);

impl PushFigures {
    /// Flows for which a receipt arrived.
    #[must_use]
    pub fn receipts(&self) -> u64 {
        self.0[0].load(Ordering::Relaxed)
    }

    /// Connections that were established.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    /// Flows that were lost for lack of room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0[2].load(Ordering::Relaxed)
    }
}

/// The identity of a sender.
#[derive(Clone)]
pub struct Sender {
    /// The node's name.
    pub node: String,
    /// The node's losses, if it records them.
    pub losses: Option<LossSource>,
}

impl From<String> for Sender {
    fn from(node: String) -> Self {
        Self { node, losses: None }
    }
}

/// Sends flows to a server until the channel closes or shutdown is requested; also reports losses to it.
pub async fn push(
    target: Target,
    sender: impl Into<Sender>,
    mut flows: mpsc::Receiver<Vec<CollectedFlow>>,
    figures: PushFigures,
    shutdown: Shutdown,
) {
    let (sender, began) = (sender.into(), Instant::now());
    let losses = || {
        let mut losses = sender.losses.as_ref().map(|losses| losses()).unwrap_or_default();
        losses.push((LossKind::FlowsDropped, figures.lost()));
        losses
    };
    let mut outbox = Outbox::new(MOST, WINDOW);
    let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        let outcome = async {
            let channel = connect(&target).await?;
            let told = tell(channel.clone(), &sender.node, began, losses);
            tokio::select! {
                outcome = session(channel, &sender.node, &mut flows, &mut outbox, &figures, &mut backoff) => outcome,
                never = told => match never {},
            }
        };
        let outcome = tokio::select! {
            outcome = outcome => outcome,
            () = shutdown.requested() => return,
        };
        match outcome {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "flows cannot be sent; they are kept for the next connection");
            }
        }
        let pause = tokio::time::sleep(backoff.pause());
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => break,
                () = shutdown.requested() => return,
                batch = flows.recv() => match batch {
                    Some(batch) => keep(&mut outbox, &batch, &figures),
                    None => break,
                },
            }
        }
    }
}

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// Runs one connection until no more flows arrive. Returns an error when the connection fails.
async fn session(
    channel: Channel,
    node: &str,
    flows: &mut mpsc::Receiver<Vec<CollectedFlow>>,
    outbox: &mut Outbox<Flow>,
    figures: &PushFigures,
    backoff: &mut Backoff,
) -> Result<(), Problem> {
    let (sender, receiver) = mpsc::channel(WINDOW);
    let updates = futures::stream::unfold(receiver, |mut receiver: mpsc::Receiver<FlowUpdate>| async {
        receiver.recv().await.map(|update| (update, receiver))
    });
    let mut request = Request::new(updates);
    if let Ok(name) = AsciiMetadataValue::try_from(node) {
        request.metadata_mut().insert(SENDER_HEADER, name);
    }
    let mut client = FlowCollectorClient::new(channel);
    let connecting = client.connect(request);
    tokio::pin!(connecting);
    outbox.connected(now());
    // Servers in Go send no headers before the first receipt: flows are sent ahead of the response.
    let mut receipts = None;
    let mut has_more = true;
    loop {
        for flow in outbox.take_next() {
            // The channel has room for all flows without a receipt.
            sender.send(FlowUpdate { flow: Some(flow) }).await?;
        }
        if !has_more && outbox.unsafe_flows() == 0 {
            return Ok(());
        }
        let receipt = async {
            match &mut receipts {
                None => connecting.as_mut().await.map(|answer| Heard::Answer(Box::new(answer))),
                Some(receipts) => Streaming::message(receipts).await.map(Heard::Receipt),
            }
        };
        tokio::select! {
            batch = flows.recv(), if has_more => match batch {
                Some(batch) => keep(outbox, &batch, figures),
                None => has_more = false,
            },
            heard = receipt => match heard? {
                Heard::Answer(answer) => {
                    receipts = Some(answer.into_inner());
                    figures.0[1].fetch_add(1, Ordering::Relaxed);
                }
                Heard::Receipt(Some(FlowReceipt {})) => {
                    outbox.receipt();
                    figures.0[0].fetch_add(1, Ordering::Relaxed);
                    backoff.reset();
                }
                Heard::Receipt(None) => return Err("the server ended the stream".into()),
            },
        }
    }
}

/// A message from the server.
enum Heard {
    /// Response headers: it accepts flows.
    Answer(Box<Response<Streaming<FlowReceipt>>>),
    /// A receipt; `None` at the end of the stream.
    Receipt(Option<FlowReceipt>),
}

fn keep(outbox: &mut Outbox<Flow>, batch: &[CollectedFlow], figures: &PushFigures) {
    let now = now();
    for flow in batch {
        outbox.push(from_collected(flow), now);
    }
    figures.0[2].store(outbox.lost(), Ordering::Relaxed);
}

/// The wall clock's time in seconds since 1970.
#[must_use]
pub fn now() -> i64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(passed.as_secs()).unwrap_or(i64::MAX)
}
