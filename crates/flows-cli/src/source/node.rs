//! The flows of this node, from the socket that Felix looks for. Felix connects to any process that listens there.

use crate::flow::{self, Flow};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use goldmane_api::losses::LossesResult;
use goldmane_api::losses::proto::losses_server::{Losses, LossesServer};
use goldmane_api::losses::proto::{KnownLoss, LossReceipt, LossReport, LossesRequest, NodeLosses};
use goldmane_api::proto::flow_collector_server::{FlowCollector, FlowCollectorServer};
use goldmane_api::proto::{FlowReceipt, FlowUpdate};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// How many flows may wait to be printed before the node has to wait.
const WAITING: usize = 1000;

/// A message from a node.
#[derive(Debug)]
pub enum Heard {
    /// A flow.
    Flow(Box<Flow>),
    /// The losses so far.
    Lost(LossesResult),
}

/// A listener. The socket is removed when this is dropped.
#[derive(Debug)]
pub struct Listening {
    heard: mpsc::Receiver<Heard>,
    path: PathBuf,
    server: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.server.abort();
        // If this fails, the next listener removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[derive(Clone)]
struct Collector(mpsc::Sender<Heard>);

const NOBODY: &str = "the watcher has disconnected";

#[tonic::async_trait]
impl FlowCollector for Collector {
    type ConnectStream = BoxStream<'static, Result<FlowReceipt, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<FlowUpdate>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let heard = self.0.clone();
        let receipts = request.into_inner().then(move |update| {
            let heard = heard.clone();
            async move {
                if let Some(message) = update?.flow
                    && let Ok(flow) = flow::from_message(&message)
                {
                    let flow = Heard::Flow(Box::new(flow));
                    heard.send(flow).await.map_err(|_| Status::unavailable(NOBODY))?;
                }
                Ok(FlowReceipt {})
            }
        });
        Ok(Response::new(receipts.boxed()))
    }
}

#[tonic::async_trait]
impl Losses for Collector {
    async fn report(&self, request: Request<LossReport>) -> Result<Response<LossReceipt>, Status> {
        let LossReport { node, losses, .. } = request.into_inner();
        let known = |loss: &goldmane_api::losses::proto::LossCount| KnownLoss {
            kind: loss.kind,
            recent: loss.count,
            total: loss.count,
        };
        let node = NodeLosses { node, age: 0, losses: losses.iter().map(known).collect() };
        let lost = Heard::Lost(LossesResult { nodes: vec![node], ..LossesResult::default() });
        self.0.send(lost).await.map_err(|_| Status::unavailable(NOBODY))?;
        Ok(Response::new(LossReceipt {}))
    }

    async fn list(&self, _: Request<LossesRequest>) -> Result<Response<LossesResult>, Status> {
        Err(Status::unimplemented("a watcher of a node keeps no loss counts"))
    }
}

/// Listens on a socket, which it creates. A socket without a listener is replaced.
///
/// # Errors
/// When another process listens there, or the socket cannot be created.
pub async fn listen(path: &Path) -> Result<Listening, String> {
    let failed = |error: std::io::Error| format!("cannot listen at {}: {error}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    let listener = daemon::sockets::listen(path, 0o600).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            format!("cannot listen at {}: another command is already watching this node", path.display())
        }
        _ => failed(error),
    })?;
    let (sender, heard) = mpsc::channel(WAITING);
    let collector = Collector(sender);
    let serving = tonic::transport::Server::builder()
        .add_service(FlowCollectorServer::new(collector.clone()))
        .add_service(LossesServer::new(collector))
        .serve_with_incoming(UnixListenerStream::new(listener));
    let server = tokio::spawn(async move {
        // It ends only with the listener.
        let _ = serving.await;
    });
    Ok(Listening { heard, path: path.to_owned(), server })
}

impl Listening {
    /// The next message from the node.
    pub async fn next(&mut self) -> Option<Heard> {
        self.heard.recv().await
    }
}
