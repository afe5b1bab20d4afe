//! Policies for proxies inside workloads (`PolicySyncPathPrefix`): each workload with a proxy gets a socket. A proxy
//! that connects there receives information about that workload only.
//!
//! ```text
//! calculation ─► Sender ─► processor (what is known, and who knows it) ─► connections ─► gRPC streams
//! ```
//!
//! A proxy that does not read is cut off when too many messages are queued for it; it then reconnects and receives
//! everything again. The calculation never waits for proxies.

mod convert;
mod processor;
mod server;
mod sockets;
mod wire;

use messages::{ToDataplane, WorkloadEndpointId};
use processor::{Connection, Output, Processor};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How many batches of messages may be queued for a proxy.
const WAITING: usize = 256;

/// Receives the calculation's messages.
#[derive(Clone)]
pub(crate) struct Sender(Hub);

impl Sender {
    /// Processes messages.
    pub(crate) fn tell(&self, messages: &[ToDataplane]) {
        let mut state = self.0.lock();
        for message in messages {
            let output = state.processor.take(message);
            state.send(output);
        }
    }
}

/// The known state, and the queues of the connected proxies.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    processor: Processor,
    queues: BTreeMap<Connection, mpsc::Sender<Vec<wire::ToDataplane>>>,
    last: Connection,
}

impl State {
    fn send(&mut self, output: Vec<(Connection, Output)>) {
        for (connection, output) in output {
            let (messages, is_last) = match output {
                Output::Messages(messages) => (messages, false),
                Output::Last(messages) => (messages, true),
            };
            let Some(queue) = self.queues.get(&connection) else { continue };
            let is_cut_off = !messages.is_empty() && queue.try_send(messages).is_err();
            if is_cut_off {
                tracing::warn!(connection, "a proxy does not read; it has to reconnect");
            }
            if is_last || is_cut_off {
                self.queues.remove(&connection);
            }
        }
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a proxy of this workload; returns its number and its queue.
    pub(crate) fn join(
        &self,
        id: &WorkloadEndpointId,
    ) -> (Connection, mpsc::Receiver<Vec<wire::ToDataplane>>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut state = self.lock();
        state.last += 1;
        let connection = state.last;
        state.queues.insert(connection, sender);
        let output = state.processor.join(id, connection);
        state.send(output);
        (connection, receiver)
    }

    /// Removes a proxy.
    pub(crate) fn leave(&self, id: &WorkloadEndpointId, connection: Connection) {
        let mut state = self.lock();
        state.queues.remove(&connection);
        state.processor.leave(id, connection);
    }
}

/// Starts to serve sockets under this directory.
pub(crate) fn start(prefix: PathBuf) -> (Sender, JoinHandle<()>) {
    let hub = Hub::default();
    tracing::info!(folder = %prefix.display(), "serving policy to the workloads' proxies");
    (Sender(hub.clone()), tokio::spawn(sockets::serve(prefix, hub)))
}

#[cfg(test)]
mod tests {
    use super::{start, wire};
    use messages::{ToDataplane, WorkloadEndpointId};
    use std::path::Path;
    use std::time::Duration;
    use testkit::Folder;
    use tonic::codegen::http::uri::PathAndQuery;
    use tonic::transport::{Channel, Endpoint, Uri};

    async fn connect(socket: &Path) -> Channel {
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(hyper_util::rt::TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        endpoint.connect_with_connector(connector).await.expect("the socket answers")
    }

    fn update(name: &str) -> ToDataplane {
        let id =
            WorkloadEndpointId { orchestrator: "k8s".into(), workload: name.into(), endpoint: "eth0".into() };
        ToDataplane::WorkloadEndpointUpdate(id, Box::default())
    }

    #[tokio::test]
    async fn a_proxy_is_informed_about_its_own_workload() {
        let folder = Folder::new("policysync").unwrap();
        let prefix = folder.path().to_owned();
        let (sender, task) = start(prefix.clone());
        sender.tell(&[update("shop/web"), update("shop/other"), ToDataplane::InSync]);
        std::fs::create_dir_all(prefix.join("mount/uid-1")).unwrap();
        std::fs::create_dir_all(prefix.join("creds")).unwrap();
        let text = r#"{"UID":"uid-1","Workload":"web","Namespace":"shop","ServiceAccount":"default"}"#;
        std::fs::write(prefix.join("creds/uid-1.json"), text).unwrap();
        let socket = prefix.join("mount/uid-1/socket");
        let appears = async {
            while !socket.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), appears).await.expect("a socket");
        let mut client = tonic::client::Grpc::new(connect(&socket).await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<wire::SyncRequest, wire::ToDataplane>::default();
        let path = PathAndQuery::from_static("/felix.PolicySync/Sync");
        let request = tonic::Request::new(wire::SyncRequest {});
        let mut stream = client.server_streaming(request, path, codec).await.unwrap().into_inner();
        let first = stream.message().await.unwrap().unwrap().payload.unwrap();
        let wire::Payload::EndpointUpdate(first) = first else { panic!("{first:?}") };
        assert_eq!(first.id.unwrap().workload_id, "shop/web");
        let second = stream.message().await.unwrap().unwrap().payload.unwrap();
        assert!(matches!(second, wire::Payload::InSync(_)), "{second:?}");
        sender.tell(&[ToDataplane::NamespaceUpdate("shop".into(), [].into())]);
        let third = stream.message().await.unwrap().unwrap().payload.unwrap();
        assert!(matches!(third, wire::Payload::NamespaceUpdate(_)), "{third:?}");

        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<wire::DataplaneStats, wire::ReportResult>::default();
        let path = PathAndQuery::from_static("/felix.PolicySync/Report");
        let answer = client.unary(tonic::Request::new(wire::DataplaneStats {}), path, codec).await.unwrap();
        assert!(!answer.into_inner().successful);

        // Without its file the workload has no socket.
        std::fs::remove_file(prefix.join("creds/uid-1.json")).unwrap();
        let disappears = async {
            while socket.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), disappears).await.expect("no socket");
        task.abort();
    }
}
