//! The destinations of flows: a Goldmane, and a listener on this node.
//!
//! Sinks have queues of their own; the collector never waits for one, and flows that do not fit are counted.

use super::figures::Counts;
use daemon::{Shutdown, ShutdownHandle};
use flows::collector::CollectedFlow;
use goldmane_api::connect::Target;
use goldmane_api::losses::LossSource;
use goldmane_api::push::{PushFigures, Sender, push};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use telemetry::{Figure, FigureKind, Metrics};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many intervals may be queued for a sink.
const WAITING: usize = 64;
/// How often a listener on this node is looked for.
const LOOK: Duration = Duration::from_millis(500);

type Queue = mpsc::Sender<Vec<CollectedFlow>>;

/// The sinks.
#[derive(Debug, Default)]
pub(super) struct Sinks {
    goldmane: Option<Queue>,
    /// The current listener on this node.
    local: Arc<Mutex<Option<Queue>>>,
    pub(super) counts: Arc<Counts>,
}

impl Sinks {
    /// Starts the tasks that send.
    pub(super) fn start(
        host: &str,
        target: Option<Target>,
        socket: Option<PathBuf>,
        counts: &Arc<Counts>,
        metrics: &Metrics,
    ) -> (Self, Vec<JoinHandle<()>>) {
        let mut sinks = Self { counts: Arc::clone(counts), ..Self::default() };
        let mut tasks = Vec::new();
        let lost: LossSource = {
            let counts = Arc::clone(counts);
            Arc::new(move || counts.losses())
        };
        let from = Sender { node: host.to_owned(), losses: Some(lost) };
        if let Some(target) = target {
            let (sender, receiver) = mpsc::channel(WAITING);
            sinks.goldmane = Some(sender);
            let figures = PushFigures::default();
            show(&figures, metrics);
            tasks.push(tokio::spawn(push(target, from.clone(), receiver, figures, Shutdown::never())));
        }
        if let Some(socket) = socket {
            tasks.push(tokio::spawn(look_for(socket, from, Arc::clone(&sinks.local))));
        }
        (sinks, tasks)
    }

    /// Whether there is a listener on this node, which receives flows at once.
    pub(super) fn has_listener(&self) -> bool {
        self.local.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether flows of whole intervals are sent.
    pub(super) fn has_goldmane(&self) -> bool {
        self.goldmane.is_some()
    }

    /// Passes flows to the listener on this node.
    pub(super) fn show(&self, flows: &[CollectedFlow]) {
        let local = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = local.as_ref() {
            self.put(queue, flows.to_vec());
        }
    }

    /// Sends the flows of a whole interval.
    pub(super) fn send(&self, flows: Vec<CollectedFlow>) {
        if let Some(queue) = &self.goldmane {
            self.put(queue, flows);
        }
    }

    fn put(&self, queue: &Queue, flows: Vec<CollectedFlow>) {
        if flows.is_empty() {
            return;
        }
        let count = u64::try_from(flows.len()).unwrap_or(u64::MAX);
        match queue.try_send(flows) {
            Ok(()) => self.counts.exported.fetch_add(count, Ordering::Relaxed),
            Err(_) => self.counts.unsent.fetch_add(count, Ordering::Relaxed),
        };
    }
}

fn show(figures: &PushFigures, metrics: &Metrics) {
    let figures = figures.clone();
    metrics.source(move |page| {
        let counter = FigureKind::Counter;
        let mut add = |name, kind, help, count: u64| {
            #[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
            let value = count as f64;
            page.push(Figure { name, kind, help, values: vec![(String::new(), value)] });
        };
        add(
            "felix_goldmane_connections",
            counter,
            "Number of connections established to Goldmane.",
            figures.connections(),
        );
        add(
            "felix_goldmane_flows_received",
            counter,
            "Number of flows that Goldmane has received.",
            figures.receipts(),
        );
        add(
            "felix_goldmane_flows_lost",
            counter,
            "Number of flows that were dropped while Goldmane was away.",
            figures.lost(),
        );
    });
}

/// Sends to the listener on the socket, for as long as the socket exists.
async fn look_for(socket: PathBuf, from: Sender, local: Arc<Mutex<Option<Queue>>>) {
    loop {
        if !socket.exists() {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let target = Target { address: format!("unix://{}", socket.display()), tls: None };
        let (sender, receiver) = mpsc::channel(WAITING);
        let (end, ended) = ShutdownHandle::new();
        *local.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        let sending = push(target, from.clone(), receiver, PushFigures::default(), ended);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                () = &mut sending => break,
                () = tokio::time::sleep(LOOK) => {}
            }
            if !socket.exists() {
                end.request();
            }
        }
        *local.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
