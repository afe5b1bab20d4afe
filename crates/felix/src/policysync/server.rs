//! The gRPC service `felix.PolicySync` for one workload: a stream of messages, and reports that are not processed yet.

use super::{Hub, wire};
use messages::WorkloadEndpointId;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status};

/// The service on the socket of one workload.
#[derive(Clone)]
pub(crate) struct PolicySync {
    hub: Hub,
    endpoint: WorkloadEndpointId,
}

impl PolicySync {
    pub(crate) fn new(hub: Hub, endpoint: WorkloadEndpointId) -> Self {
        Self { hub, endpoint }
    }
}

impl NamedService for PolicySync {
    const NAME: &'static str = "felix.PolicySync";
}

impl Service<http::Request<Body>> for PolicySync {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::default();
            Ok(match request.uri().path() {
                "/felix.PolicySync/Sync" => Grpc::new(codec).server_streaming(Stream(service), request).await,
                "/felix.PolicySync/Report" => {
                    let codec = tonic_prost::ProstCodec::default();
                    Grpc::new(codec).unary(Report, request).await
                }
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}

struct Stream(PolicySync);

impl ServerStreamingService<wire::SyncRequest> for Stream {
    type Response = wire::ToDataplane;
    type ResponseStream = Messages;
    type Future = BoxFuture<Response<Messages>, Status>;

    fn call(&mut self, _: Request<wire::SyncRequest>) -> Self::Future {
        let PolicySync { hub, endpoint } = self.0.clone();
        Box::pin(async move {
            let (connection, receiver) = hub.join(&endpoint);
            tracing::info!(?endpoint, connection, "a proxy follows the policies of its workload");
            Ok(Response::new(Messages {
                receiver,
                waiting: Vec::new().into_iter(),
                _leave: Leave { hub, endpoint, connection },
            }))
        })
    }
}

/// Reports that the proxy is gone, for whatever reason.
struct Leave {
    hub: Hub,
    endpoint: WorkloadEndpointId,
    connection: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.hub.leave(&self.endpoint, self.connection);
    }
}

/// The messages for one proxy, one at a time.
pub(crate) struct Messages {
    receiver: mpsc::Receiver<Vec<wire::ToDataplane>>,
    waiting: std::vec::IntoIter<wire::ToDataplane>,
    _leave: Leave,
}

impl tokio_stream::Stream for Messages {
    type Item = Result<wire::ToDataplane, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(message) = self.waiting.next() {
                return Poll::Ready(Some(Ok(message)));
            }
            match self.receiver.poll_recv(context) {
                Poll::Ready(Some(more)) => self.waiting = more.into_iter(),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

struct Report;

impl UnaryService<wire::DataplaneStats> for Report {
    type Response = wire::ReportResult;
    type Future = Ready<Result<Response<wire::ReportResult>, Status>>;

    fn call(&mut self, _: Request<wire::DataplaneStats>) -> Self::Future {
        // As in Calico when no component collects flows.
        ready(Ok(Response::new(wire::ReportResult { successful: false })))
    }
}
