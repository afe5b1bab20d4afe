//! A cheap client: it sends bytes that were encoded in advance, and only counts receipts.

use crate::servers::Server;
use crate::world::Flows;
use anyhow::{Context as _, Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use std::convert::Infallible;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// The size of the pieces handed to the connection, in bytes.
const PIECE: usize = 64 * 1024;
/// How many flows are sent ahead of their receipts on a connection, as our nodes do. Calico's server sends each receipt
/// in its own frame, and a client ends the connection when too many small frames wait to be read.
const AHEAD: usize = 512;
/// The size of a receipt: the header of an empty message.
const RECEIPT: usize = 5;

/// Flows as the bytes of a stream.
#[derive(Clone, Default)]
pub(crate) struct Stream {
    /// Bytes, and the number of flows in them.
    pieces: Vec<(Bytes, usize)>,
    flows: usize,
}

impl Stream {
    /// Encodes the flows of these buckets.
    pub(crate) fn of(flows: &Flows, starts: impl IntoIterator<Item = i64>) -> Self {
        let (mut stream, mut piece, mut count) = (Self::default(), BytesMut::with_capacity(PIECE), 0);
        for update in starts.into_iter().flat_map(|start| flows.of(start)) {
            let length = update.encoded_len();
            if piece.len() + length + RECEIPT > PIECE {
                stream.pieces.push((piece.split().freeze(), std::mem::take(&mut count)));
                piece.reserve(PIECE);
            }
            piece.put_u8(0);
            piece.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
            // Cannot fail: the buffer grows.
            let _ = update.encode(&mut piece);
            stream.flows += 1;
            count += 1;
        }
        stream.pieces.push((piece.freeze(), count));
        stream
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows
    }
}

/// A connection that sends flows.
pub(crate) struct Sender {
    pieces: tokio::sync::mpsc::UnboundedSender<Bytes>,
    /// Go's servers send headers with the first receipt, not before.
    answer: Option<JoinHandle<hyper::Result<Response<Incoming>>>>,
    receipts: Option<Incoming>,
    /// Bytes of a partly received receipt.
    rest: usize,
}

impl Sender {
    pub(crate) async fn connect(server: &Server) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
        stream.set_nodelay(true)?;
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(1 << 20).initial_connection_window_size(1 << 20);
        let (mut requests, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let (pieces, receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let frames = futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|piece| (Ok::<_, Infallible>(Frame::data(piece)), receiver))
        });
        let request = Request::post(format!("http://{}/goldmane.FlowCollector/Connect", server.address()))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(frames.boxed()))?;
        let answer = tokio::spawn(async move { requests.send_request(request).await });
        Ok(Self { pieces, answer: Some(answer), receipts: None, rest: 0 })
    }

    /// Sends flows and waits for all receipts.
    pub(crate) async fn send(&mut self, stream: Stream) -> Result<()> {
        let (mut pieces, mut sent) = (stream.pieces.into_iter(), 0);
        loop {
            while sent < self.rest / RECEIPT + AHEAD
                && let Some((piece, count)) = pieces.next()
            {
                self.pieces.send(piece).context("the connection has ended")?;
                sent += count;
            }
            if self.rest >= stream.flows * RECEIPT {
                self.rest -= stream.flows * RECEIPT;
                return Ok(());
            }
            if let Some(answer) = self.answer.take() {
                let response = answer.await??;
                ensure!(response.status().is_success(), "{response:?}");
                self.receipts = Some(response.into_body());
            }
            let receipts = self.receipts.as_mut().context("the connection has ended")?;
            let frame = receipts.frame().await.context("a receipt for every flow")??;
            self.rest += frame.data_ref().map_or(0, Bytes::len);
        }
    }
}

/// Sends each stream over its own connection, all at once.
pub(crate) async fn send_all(senders: &mut [Sender], streams: Vec<Stream>) -> Result<()> {
    let sending = senders.iter_mut().zip(streams).map(|(sender, stream)| sender.send(stream));
    futures::future::try_join_all(sending).await.map(drop)
}
