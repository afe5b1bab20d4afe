//! A cheap client for puts: HTTP/2 with hand-built messages, one task per connection and its requests, one write per
//! request. Clients share the machine with the measured server; with a general library they use more of it than the
//! server does, and the figure says more about them. It supports no retries, no second server and no other call.

use std::{future::Future, pin::pin, task::Poll};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{Connection, ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use prost::Message;
use tokio::net::TcpStream;

#[derive(Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// One connection.
pub(crate) struct Client {
    requests: SendRequest<Bytes>,
    connection: Connection<TcpStream, Bytes>,
    request: Request<()>,
}

impl Client {
    /// Connects to `endpoint`, a plain `http://` address.
    pub(crate) async fn connect(endpoint: &str) -> Result<Self> {
        let stream = TcpStream::connect(endpoint.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        let (requests, connection) = h2::client::handshake(stream).await?;
        let request = Request::post(format!("{endpoint}/etcdserverpb.KV/Put"))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())?;
        Ok(Self { requests, connection, request })
    }

    /// Puts one key and waits for the answer.
    pub(crate) async fn put(&mut self, key: String, value: Bytes) -> Result<()> {
        let put = PutRequest { key: key.into(), value };
        let length = put.encoded_len();
        let mut message = BytesMut::with_capacity(5 + length);
        message.put_u8(0);
        message.put_u32(u32::try_from(length)?);
        put.encode(&mut message)?;
        let (answer, mut body) = self.requests.send_request(self.request.clone(), false)?;
        body.send_data(message.freeze(), true)?;
        let mut answered = pin!(answered(answer));
        let connection = &mut self.connection;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(ended) = pin!(&mut *connection).poll(cx) {
                return Poll::Ready(match ended {
                    Ok(()) => Err(anyhow::anyhow!("the server has hung up")),
                    Err(error) => Err(error.into()),
                });
            }
            answered.as_mut().poll(cx)
        })
        .await
    }
}

async fn answered(answer: ResponseFuture) -> Result<()> {
    let (head, mut body) = answer.await?.into_parts();
    ensure!(head.status.is_success(), "{}", head.status);
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        bytes += data.len();
        body.flow_control().release_capacity(data.len())?;
    }
    let trailers = body.trailers().await?;
    let status = |headers: &HeaderMap| headers.get("grpc-status").cloned();
    let status = trailers.as_ref().and_then(status).or_else(|| status(&head.headers)).context("no status")?;
    if status != "0" || bytes == 0 {
        bail!("the put failed: {status:?}, {bytes} bytes");
    }
    Ok(())
}
