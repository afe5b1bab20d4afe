//! Answers as they are sent. Large ones are generated during sending.

use crate::status::Refusal;
use crate::watching::Lines;
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::stream::{self, StreamExt as _};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use std::convert::Infallible;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
/// An answer.
pub(crate) type Answer = Response<Body>;

/// How many bytes are sent at once.
const CHUNK: usize = 64 << 10;

/// An answer with these bytes.
#[must_use]
pub(crate) fn answer(code: StatusCode, content_type: &'static str, bytes: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(bytes.into()).boxed_unsync());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// An answer with this value.
#[must_use]
pub(crate) fn json_answer(code: StatusCode, value: &Value) -> Answer {
    answer(code, "application/json", format!("{value}\n"))
}

/// A refusal as an answer.
#[must_use]
pub(crate) fn refusal(refusal: &Refusal) -> Answer {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_answer(code, &refusal.to_value());
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Adds warnings, which `kubectl` shows to its user.
pub(crate) fn warn(response: &mut Answer, warnings: &[String]) {
    for warning in warnings {
        let text: String =
            warning.chars().filter(|c| c.is_ascii() && !c.is_ascii_control()).take(512).collect();
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// A list: its head, its items separated by commas, and its tail. It is never assembled as a whole.
#[must_use]
pub(crate) fn chunked(
    head: String,
    items: impl Iterator<Item = Bytes> + Send + 'static,
    tail: &'static str,
) -> Answer {
    struct State<I: Iterator> {
        head: Option<String>,
        items: std::iter::Peekable<I>,
        is_first: bool,
        tail: Option<&'static str>,
    }
    let state = State { head: Some(head), items: items.peekable(), is_first: true, tail: Some(tail) };
    let frames = stream::unfold(state, |mut state| async move {
        let mut chunk = BytesMut::with_capacity(CHUNK + 4096);
        if let Some(head) = state.head.take() {
            chunk.put_slice(head.as_bytes());
        }
        while chunk.len() < CHUNK {
            let Some(item) = state.items.next() else { break };
            if !state.is_first {
                chunk.put_u8(b',');
            }
            state.is_first = false;
            chunk.put(item);
        }
        if state.items.peek().is_none()
            && let Some(tail) = state.tail.take()
        {
            chunk.put_slice(tail.as_bytes());
        }
        let frame = Ok::<_, Infallible>(Frame::data(chunk.freeze()));
        (!frame.as_ref().is_ok_and(|frame| frame.data_ref().is_some_and(Bytes::is_empty)))
            .then_some((frame, state))
    });
    streamed(StreamBody::new(frames).boxed_unsync())
}

/// The lines of a watch.
#[must_use]
pub(crate) fn lines(lines: Lines) -> Answer {
    let frames = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
    streamed(StreamBody::new(frames).boxed_unsync())
}

fn streamed(body: Body) -> Answer {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_list_of_any_size_is_complete() {
        for count in [0, 1, 2, 5000] {
            let items = (0..count)
                .map(|n| Bytes::from(format!("{{\"number\":{n},\"text\":\"{}\"}}", "x".repeat(50))));
            let body = chunked("{\"items\":[".into(), items, "]}").into_body();
            let bytes = body.collect().await.unwrap().to_bytes();
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["items"].as_array().unwrap().len(), count);
        }
    }
}
