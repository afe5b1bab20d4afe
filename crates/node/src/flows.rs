//! `flows`: shows the node's flows as they arrive. Felix looks for the socket that this creates
//! (`FlowLogsLocalReporter`), and sends its flows to it every second.
//!
//! Only one at a time: a second one takes the socket over, as in Calico. No flows are kept.

use daemon::Shutdown;
use flows::{EndpointType, FlowKey, PolicyHit};
use goldmane_api::convert::{counters, decode_key};
use goldmane_api::proto::flow_collector_server::{FlowCollector, FlowCollectorServer};
use goldmane_api::proto::{Flow, FlowReceipt, FlowUpdate};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

/// How many flows may be queued for display.
const WAITING: usize = 1024;
/// Only root has access to the folder and the socket in it.
const FOLDER_MODE: u32 = 0o700;
const SOCKET_MODE: u32 = 0o600;

/// Why flows could not be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FlowsError {
    /// The requested number is zero.
    #[error("-n must be the number of flows to show, or negative to watch")]
    None,
    /// The socket cannot be created.
    #[error("cannot listen on {path}: {source}")]
    Listen {
        /// The path of the socket.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The flows cannot be printed.
    #[error("cannot print: {0}")]
    Print(io::Error),
}

/// Shows this many flows, or all until the shutdown if the number is negative.
///
/// # Errors
/// When the number is zero, the socket cannot be created, or printing fails.
pub(crate) async fn show(
    path: &Path,
    count: i64,
    out: &mut impl Write,
    shutdown: Shutdown,
) -> Result<(), FlowsError> {
    if count == 0 {
        return Err(FlowsError::None);
    }
    let failed = |source| FlowsError::Listen { path: path.display().to_string(), source };
    let (socket, listener) = Socket::open(path).map_err(failed)?;
    let listener = UnixListenerStream::new(listener);
    let (sender, mut flows) = mpsc::channel(WAITING);
    let serving = tonic::transport::Server::builder()
        .add_service(FlowCollectorServer::new(Receiver(sender)))
        .serve_with_incoming(listener);
    tokio::pin!(serving);
    let mut left = u64::try_from(count).ok();
    while left != Some(0) {
        let flow = tokio::select! {
            Some(flow) = flows.recv() => flow,
            _ = &mut serving => break,
            () = shutdown.requested() => break,
        };
        let Some(text) = text(&flow) else { continue };
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(FlowsError::Print)?;
        left = left.map(|left| left - 1);
    }
    drop(socket);
    Ok(())
}

/// The socket's file, which is removed on drop.
struct Socket<'a>(&'a Path);

impl<'a> Socket<'a> {
    fn open(path: &'a Path) -> io::Result<(Self, UnixListener)> {
        if let Some(folder) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
        }
        // Felix sends to only one socket, so the newest command gets the flows.
        let listener = daemon::sockets::take_over(path, SOCKET_MODE)?;
        Ok((Self(path), listener))
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

/// Receives flows and acknowledges them.
struct Receiver(mpsc::Sender<Flow>);

#[tonic::async_trait]
impl FlowCollector for Receiver {
    type ConnectStream = ReceiverStream<Result<FlowReceipt, Status>>;

    async fn connect(
        &self,
        request: Request<Streaming<FlowUpdate>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (receipts, answer) = mpsc::channel(WAITING);
        let flows = self.0.clone();
        let mut updates = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(update)) = updates.message().await {
                if let Some(flow) = update.flow
                    && flows.send(flow).await.is_err()
                {
                    return;
                }
                if receipts.send(Ok(FlowReceipt {})).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answer)))
    }
}

/// Formats a flow; `None` if it is incomplete.
fn text(flow: &Flow) -> Option<String> {
    let key = decode_key(&flow.key).ok()?;
    let time = jiff::Timestamp::from_second(flow.start_time).ok()?;
    Some(worded(flow, &key, &time.to_string()))
}

fn worded(flow: &Flow, key: &FlowKey, time: &str) -> String {
    let kind = |kind: EndpointType| match kind {
        EndpointType::Workload => "wep",
        EndpointType::Host => "hep",
        EndpointType::NetworkSet => "ns",
        EndpointType::Network => "net",
        EndpointType::Unspecified => "unknown",
    };
    let (source, dest, service) = (&key.source, &key.dest, &key.service);
    let counters = counters(flow);
    let mut text = format!(
        "- Time={time} Reporter={} Action={}\n  \
           Src={{{}({}/{})}} Dst={{{}({}/{}) Svc:{}/{}}} Proto={{{}({}) Svc:{}/{}}}\n  \
           Counts={{Ingress: {}Pkts/{}Bytes Egress:{}Pkts/{}Bytes}} \
           Connections={{Started:{} Completed:{} Live:{}}}\n",
        key.reporter.as_str(),
        key.action.as_str(),
        kind(source.kind),
        source.namespace,
        source.name,
        kind(dest.kind),
        dest.namespace,
        dest.name,
        service.namespace,
        service.name,
        key.protocol,
        key.dest_port,
        service.port_name,
        service.port,
        counters.packets_in,
        counters.bytes_in,
        counters.packets_out,
        counters.bytes_out,
        counters.started,
        counters.completed,
        counters.live,
    );
    let mut list = |title: &str, hits: &[PolicyHit]| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {title}:");
        for hit in hits {
            let _ = writeln!(text, "  - {hit}");
        }
    };
    list("Enforced", &key.trace.enforced);
    list("Pending", &key.trace.pending);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use flows::collector::CollectedFlow;
    use flows::{Action, Counters, Labels, Peer, Reporter, Service, Trace};
    use goldmane_api::connect::Target;
    use goldmane_api::push::{PushFigures, push};
    use std::sync::Arc;

    fn flow(port: i64) -> CollectedFlow {
        let peer = |kind, name: &str| Peer { kind, namespace: "shop".into(), name: name.into() };
        CollectedFlow {
            key: FlowKey {
                source: peer(EndpointType::Workload, "web-*"),
                dest: peer(EndpointType::Host, "n1"),
                dest_port: port,
                service: Service { namespace: "-".into(), name: "-".into(), port_name: "-".into(), port: 0 },
                protocol: "tcp".into(),
                reporter: Reporter::Src,
                action: Action::Deny,
                trace: Arc::new(Trace {
                    enforced: vec!["0|default|gnp:no|deny|1".parse().unwrap()],
                    pending: vec![],
                }),
            },
            start: 1_000_000_000,
            end: 1_000_000_015,
            source_labels: Labels::default(),
            dest_labels: Labels::default(),
            counters: Counters { packets_out: 3, bytes_out: 180, started: 1, live: 1, ..Counters::default() },
        }
    }

    #[tokio::test]
    async fn flows_are_shown_as_they_arrive_up_to_the_number() {
        let folder = testkit::Folder::new("flows").unwrap();
        let socket = folder.path().join("below/flows.sock");
        let mut out = Vec::new();
        let (sender, receiver) = mpsc::channel(4);
        sender.send(vec![flow(80), flow(81), flow(82)]).await.unwrap();
        let target = Target { address: format!("unix://{}", socket.display()), tls: None };
        let sending =
            tokio::spawn(push(target, "n1".to_owned(), receiver, PushFigures::default(), Shutdown::never()));
        show(&socket, 2, &mut out, Shutdown::never()).await.unwrap();
        sending.abort();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            [80, 81]
                .map(|port| format!(
                    "- Time=2001-09-09T01:46:40Z Reporter=Src Action=Deny\n  \
                       Src={{wep(shop/web-*)}} Dst={{hep(shop/n1) Svc:-/-}} Proto={{tcp({port}) Svc:-/0}}\n  \
                       Counts={{Ingress: 0Pkts/0Bytes Egress:3Pkts/180Bytes}} \
                       Connections={{Started:1 Completed:0 Live:1}}\n  \
                       Enforced:\n  - 0|default|gnp:no|deny|1\n  Pending:\n"
                ))
                .concat()
        );
        assert!(!socket.exists(), "the socket is removed");
    }

    #[tokio::test]
    async fn a_number_of_zero_is_an_error() {
        let error = show(Path::new("/nowhere"), 0, &mut Vec::new(), Shutdown::never()).await.unwrap_err();
        assert!(error.to_string().contains("-n"), "{error}");
    }
}
