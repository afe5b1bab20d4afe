//! Unary gRPC calls, straight from HTTP: those that the key service receives most. The general library keeps buffers,
//! maps and boxes for streams and compression, which cost more than a put itself. Calls that use compression are passed
//! to it; see [`plain`].
//!
//! It refuses what the library refuses, in the same words.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header::CONTENT_TYPE};
use hyper::body::{Body as HttpBody, Frame, Incoming};
use prost::Message;
use tonic::{Status, body::Body};

/// Length of the flag and the length field before a message.
const PREFIX: usize = 5;
/// The trailer with the status of a call.
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// gRPC's content type.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Whether a request can be answered here.
pub(super) fn plain(request: &Request<Incoming>) -> bool {
    request.headers().get("grpc-encoding").is_none_or(|encoding| encoding == "identity")
}

/// Answers one call. `answer` returns the message encoded by [`encoded`].
pub(super) async fn call<Q, F>(
    request: Request<Incoming>,
    most: usize,
    answer: impl FnOnce(Q) -> F,
) -> Response<Body>
where
    Q: Message + Default,
    F: Future<Output = Result<Bytes, Status>>,
{
    let given = async { decode(message(request.into_body(), most).await?) };
    let answered = match given.await {
        Ok(request) => answer(request).await,
        Err(status) => Err(status),
    };
    match answered {
        Ok(message) => {
            let mut response = Response::new(Body::new(Answer { message: Some(message), ended: false }));
            response.headers_mut().insert(CONTENT_TYPE, GRPC);
            response
        }
        Err(status) => status.into_http(),
    }
}

/// Encodes a message with its prefix.
pub(super) fn encoded(message: &impl Message) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let prefix = u32::try_from(length).map_err(|_| {
        Status::resource_exhausted(format!(
            "Cannot return body with more than 4GB of data but got {length} bytes"
        ))
    })?;
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(prefix);
    message.encode(&mut bytes).map_err(|error| Status::internal(error.to_string()))?;
    Ok(bytes.freeze())
}

fn decode<Q: Message + Default>(message: Bytes) -> Result<Q, Status> {
    Q::decode(message).map_err(|error| Status::internal(error.to_string()))
}

/// Reads the one message of a request, nearly always in one piece.
async fn message(mut body: Incoming, most: usize) -> Result<Bytes, Status> {
    let mut all = Bytes::new();
    let mut pieces = BytesMut::new();
    while !body.is_end_stream() {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Status::from_error(Box::new(error)))?;
        // Trailers of a request have no meaning here.
        let Ok(data) = frame.into_data() else { continue };
        if all.is_empty() && pieces.is_empty() {
            all = data;
        } else {
            if pieces.is_empty() {
                pieces.extend_from_slice(&std::mem::take(&mut all));
            }
            pieces.extend_from_slice(&data);
        }
        let seen = if pieces.is_empty() { &all[..] } else { &pieces[..] };
        check(seen, most)?;
    }
    let mut all = if pieces.is_empty() { all } else { pieces.freeze() };
    if all.is_empty() {
        return Err(Status::internal("Missing request message."));
    }
    let length = all.get(1..PREFIX).map(|mut length| length.get_u32() as usize);
    match length {
        Some(length) if all.len() >= PREFIX + length => {
            all.advance(PREFIX);
            all.truncate(length);
            Ok(all)
        }
        _ => Err(Status::internal("Unexpected EOF decoding stream.")),
    }
}

/// Checks that the bytes received so far can be the beginning of a message. One that is too long is not buffered.
fn check(seen: &[u8], most: usize) -> Result<(), Status> {
    let Some(prefix) = seen.get(..PREFIX) else { return Ok(()) };
    match prefix[0] {
        0 => {}
        1 => {
            return Err(Status::internal(
                "protocol error: received message with compressed-flag but no grpc-encoding was specified",
            ));
        }
        flag => {
            return Err(Status::internal(format!(
                "protocol error: received message with invalid compression flag: {flag} (valid flags are 0 and 1), \
                 while sending request"
            )));
        }
    }
    let length = (&prefix[1..]).get_u32() as usize;
    if length > most {
        return Err(Status::out_of_range(format!(
            "Error, decoded message length too large: found {length} bytes, the limit is: {most} bytes"
        )));
    }
    if seen.len() > PREFIX + length {
        return Err(Status::internal("Unexpected data after the request message."));
    }
    Ok(())
}

/// A message, then the trailer that reports success.
struct Answer {
    message: Option<Bytes>,
    ended: bool,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = HeaderMap::with_capacity(1);
        trailers.insert(STATUS, HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}
