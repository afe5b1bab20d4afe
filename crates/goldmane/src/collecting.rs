//! Receives the flows of one sender, from the bytes of its stream to receipts: `FlowCollector.Connect`.
//!
//! Written by hand, because receiving flows is nearly all that a server of them does: flows are counted in place in the
//! frames that arrived, under one lock for all available frames, and receipts are sent as one run of zeroes. Compressed
//! messages are refused, as servers without compression do. A message that is not a flow is counted as unreadable and
//! gets its receipt; bytes that are not even a message end the stream.

use crate::aggregator::Aggregator;
use crate::figures::{Figures, Present};
use bytes::Bytes;
use goldmane_api::SENDER_HEADER;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::{Code, Status};

/// The path that senders connect to.
pub(crate) const PATH: &str = "/goldmane.FlowCollector/Connect";
/// The length of the header before each message: a compression flag and the message's length.
const HEADER: usize = 5;
/// The maximum length of a message, as in other gRPC servers.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// How many frames are processed before receipts are sent, so that one sender does not block others.
const MOST_FRAMES: usize = 64;
/// A receipt is an empty message: a header of zeroes.
static ZEROES: [u8; 1024 * HEADER] = [0; 1024 * HEADER];

/// The name of a sender: what it calls itself, or else its address. Ports change with every connection and identify
/// nothing.
pub(crate) fn sender(headers: &HeaderMap, remote: IpAddr) -> Arc<str> {
    let named = headers.get(SENDER_HEADER).and_then(|name| name.to_str().ok());
    match named.filter(|name| !name.is_empty()) {
        Some(name) => Arc::from(name),
        None => remote.to_string().into(),
    }
}

/// Answers a sender with a receipt per flow, in order.
pub(crate) fn receipts<B>(
    aggregator: Arc<Aggregator>,
    sender: Arc<str>,
    request: Request<B>,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let encoding = request.headers().get("grpc-encoding").filter(|encoding| *encoding != "identity");
    if encoding.is_some() {
        return Status::unimplemented("compressed messages are not supported").into_http();
    }
    tracing::info!(%sender, "a sender of flows connected");
    let present = Figures::client(&aggregator);
    let body = Receipts {
        updates: request.into_body(),
        messages: Messages::default(),
        aggregator,
        sender,
        end: None,
        is_over: false,
        _present: present,
    };
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

struct Receipts<B> {
    updates: B,
    messages: Messages,
    aggregator: Arc<Aggregator>,
    sender: Arc<str>,
    /// How the stream ends once the receipts have been sent.
    end: Option<Status>,
    is_over: bool,
    _present: Present,
}

impl<B> Receipts<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    /// Counts the flows of the next frame. Returns their number.
    fn poll_flows(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let frame = match std::task::ready!(Pin::new(&mut self.updates).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                self.end = Some(Status::unavailable(error.to_string()));
                return Poll::Ready(0);
            }
            None => {
                self.end = Some(self.messages.end());
                return Poll::Ready(0);
            }
        };
        let Ok(data) = frame.into_data() else { return Poll::Ready(0) };
        let messages = &mut self.messages;
        let outcome = self
            .aggregator
            .ingest(&self.sender, |counting| messages.take(&data, |message| counting.update(message)));
        let (count, problem) = outcome;
        self.end = problem;
        Poll::Ready(count)
    }
}

impl<B> HttpBody for Receipts<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        let (mut count, mut frames) = (0, 0);
        while this.end.is_none() && frames < MOST_FRAMES {
            match this.poll_flows(context) {
                Poll::Ready(more) => count += more,
                Poll::Pending if count == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
            frames += 1;
        }
        if count > 0 {
            return Poll::Ready(Some(Ok(Frame::data(zeroes(count * HEADER)))));
        }
        let Some(end) = this.end.take() else {
            // Many frames without a complete message: yield to other tasks.
            context.waker().wake_by_ref();
            return Poll::Pending;
        };
        this.is_over = true;
        if end.code() != Code::Ok {
            tracing::info!(sender = %this.sender, end = %end.message(), "a sender's stream ended");
        }
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(end.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

fn zeroes(length: usize) -> Bytes {
    match ZEROES.get(..length) {
        Some(zeroes) => Bytes::from_static(zeroes),
        None => vec![0; length].into(),
    }
}

/// Splits a stream of bytes into messages; frames may cut it anywhere.
#[derive(Debug, Default)]
struct Messages {
    /// The beginning of a message whose end has not arrived.
    begun: Vec<u8>,
}

impl Messages {
    /// Calls `show` for every message that ends in these bytes. Returns the number of messages, and the reason if the
    /// stream must end.
    fn take(&mut self, mut data: &[u8], mut show: impl FnMut(&[u8])) -> (usize, Option<Status>) {
        let mut count = 0;
        while !self.begun.is_empty() {
            // First the header, then as many bytes as it announces.
            let wanted = match length(&self.begun) {
                Ok(wanted) => wanted.unwrap_or(HEADER),
                Err(problem) => return (count, Some(problem)),
            };
            let missing = wanted - self.begun.len();
            let Some((more, rest)) = data.split_at_checked(missing) else {
                self.begun.extend_from_slice(data);
                return (count, None);
            };
            self.begun.extend_from_slice(more);
            data = rest;
            if matches!(length(&self.begun), Ok(Some(whole)) if whole == self.begun.len()) {
                show(&self.begun[HEADER..]);
                self.begun.clear();
                count += 1;
            }
        }
        loop {
            match length(data) {
                Ok(Some(whole)) if whole <= data.len() => {
                    show(&data[HEADER..whole]);
                    data = &data[whole..];
                    count += 1;
                }
                Ok(_) => {
                    self.begun.extend_from_slice(data);
                    return (count, None);
                }
                Err(problem) => return (count, Some(problem)),
            }
        }
    }

    /// The stream's status when no more bytes arrive.
    fn end(&self) -> Status {
        match self.begun.is_empty() {
            true => Status::ok(""),
            false => Status::internal("the stream ended within a message"),
        }
    }
}

/// The length of a message including its header, if the header is complete.
fn length(bytes: &[u8]) -> Result<Option<usize>, Status> {
    let Some(([is_compressed, length @ ..], _)) = bytes.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    if *is_compressed != 0 {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    match usize::try_from(u32::from_be_bytes(*length)) {
        Ok(length) if length <= MOST_BYTES => Ok(Some(HEADER + length)),
        _ => Err(Status::out_of_range("the message is too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap();
        [&[0][..], &length.to_be_bytes(), message].concat()
    }

    proptest! {
        #[test]
        fn messages_are_the_same_however_they_are_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            cuts in prop::collection::vec(1..30_usize, 1..20),
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| frame(message)).collect();
            let (mut reader, mut found, mut count) = (Messages::default(), Vec::new(), 0);
            let (mut rest, mut cuts) = (&*bytes, cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                let (more, problem) = reader.take(piece, |message| found.push(message.to_vec()));
                prop_assert!(problem.is_none());
                count += more;
                rest = behind;
            }
            prop_assert_eq!(count, messages.len());
            prop_assert_eq!(found, messages);
            prop_assert_eq!(reader.end().code(), Code::Ok);
        }
    }

    #[test]
    fn bytes_that_are_not_a_message_end_the_stream() {
        for (bytes, code) in
            [(&[1, 0, 0, 0, 0][..], Code::Unimplemented), (&[0, 0xff, 0, 0, 0], Code::OutOfRange)]
        {
            // After a message that counts; complete, and cut within the header.
            let whole = [&frame(b"x")[..], bytes].concat();
            let (count, problem) = Messages::default().take(&whole, |_| ());
            assert_eq!((count, problem.map(|problem| problem.code())), (1, Some(code)));
            let mut reader = Messages::default();
            assert!(reader.take(&whole[..8], |_| ()).1.is_none());
            let (_, problem) = reader.take(&whole[8..], |_| ());
            let last = problem.or_else(|| reader.take(b"y", |_| ()).1);
            assert_eq!(last.map(|problem| problem.code()), Some(code));
        }
        let mut reader = Messages::default();
        assert!(reader.take(&[0, 0, 0], |_| ()).1.is_none());
        assert_eq!(reader.end().code(), Code::Internal);
        assert_eq!((zeroes(10).len(), zeroes(100_000).len()), (10, 100_000));
    }
}
