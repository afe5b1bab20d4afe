//! Calls as bytes: messages in pieces, with wrong prefixes, too long, compressed. Valid ones are answered by our server
//! and by real etcd alike; invalid ones get a status and leave the connection intact.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use testkit::Etcd;
use tokio::net::TcpStream;

use crate::support::{Server, block_on};

/// Opens a connection; it lives until the last request on it is answered.
async fn connect(endpoint: &str) -> Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(endpoint.trim_start_matches("http://")).await?;
    let (requests, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    Ok(requests)
}

/// Calls a method of the key service with these bytes, this many per frame; returns the status and how many bytes were
/// answered.
async fn call(
    requests: &mut SendRequest<Bytes>,
    method: &str,
    bytes: &[u8],
    piece: usize,
    encoding: Option<&str>,
) -> Result<(String, usize)> {
    let mut request = Request::post(format!("http://x/etcdserverpb.KV/{method}"))
        .header("te", "trailers")
        .header("content-type", "application/grpc");
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let (answer, mut body) = requests.send_request(request.body(())?, false)?;
    for piece in bytes.chunks(piece) {
        // A server may refuse before it has received everything.
        if body.send_data(Bytes::copy_from_slice(piece), false).is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let _ = body.send_data(Bytes::new(), true);
    let (head, mut body) = tokio::time::timeout(Duration::from_secs(20), answer).await??.into_parts();
    let mut length = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        length += data.len();
        body.flow_control().release_capacity(data.len())?;
    }
    let trailers = body.trailers().await?;
    let status = |headers: &HeaderMap| headers.get("grpc-status").cloned();
    let status = trailers.as_ref().and_then(status).or_else(|| status(&head.headers)).context("no status")?;
    Ok((status.to_str()?.to_owned(), length))
}

/// A message with its prefix.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[flag], &length.to_be_bytes()[..], message].concat()
}

/// A put of a key and a value, both shorter than 128 bytes.
fn put(key: &str, value: &str) -> Vec<u8> {
    let field = |tag: u8, text: &str| [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [field(0x0a, key), field(0x12, value)].concat()
}

#[test]
fn messages_may_arrive_in_any_pieces() -> Result<()> {
    let (etcd, ours) = (Etcd::start()?, Server::start(&[])?);
    block_on(async {
        let mut theirs = connect(&etcd.endpoint()).await?;
        let mut ours = connect(&ours.endpoint()).await?;
        let whole = framed(0, &put("/wire/key", &"v".repeat(100)));
        let range = framed(0, b"\x0a\x05/wire\x12\x05/wirf");
        for piece in [1, 2, 5, 6, 7, 50, 1000] {
            for (method, bytes) in
                [("Put", &whole), ("Range", &range), ("DeleteRange", &range), ("Put", &whole)]
            {
                let expected = call(&mut theirs, method, bytes, piece, None).await?;
                let found = call(&mut ours, method, bytes, piece, Some("identity")).await?;
                assert_eq!(
                    (&expected.0, &found.0),
                    (&"0".to_owned(), &"0".to_owned()),
                    "{method} by {piece}"
                );
                assert!(found.1 > 5, "{method} by {piece}");
            }
        }
        // An empty range request has no key, which both report with the same status.
        let empty = framed(0, b"");
        let expected = call(&mut theirs, "Range", &empty, 5, None).await?;
        assert_eq!(call(&mut ours, "Range", &empty, 5, None).await?, expected);
        Ok(())
    })
}

#[test]
fn invalid_messages_are_refused_and_the_connection_survives() -> Result<()> {
    let server = Server::start(&["--max-request-bytes=1000"])?;
    let good = framed(0, &put("/wire/key", "value"));
    let long = framed(0, &vec![0; (512 << 10) + 1001]);
    block_on(async {
        let mut requests = connect(&server.endpoint()).await?;
        for (what, bytes, encoding, status) in [
            ("nothing", &b""[..], None, "13"),
            ("half a prefix", b"\0\0", None, "13"),
            ("half a message", &good[..good.len() - 1], None, "13"),
            ("more than a message", &[&good[..], b"x"].concat(), None, "13"),
            ("compressed with nothing", &framed(1, b"x"), None, "13"),
            ("an unknown flag", &framed(7, b"x"), None, "13"),
            ("no protocol buffer", &framed(0, b"\x0a\x7f"), None, "13"),
            ("too long", &long, None, "11"),
            ("compressed", &framed(1, b"x"), Some("gzip"), "12"),
            ("no such method", &good, Some("none"), "12"),
        ] {
            let method = if what == "no such method" { "Push" } else { "Put" };
            let found = call(&mut requests, method, bytes, 16 << 10, encoding).await;
            assert_eq!(found.with_context(|| what.to_owned())?.0, status, "{what}");
            let after =
                call(&mut requests, "Put", &good, 1000, None).await.with_context(|| what.to_owned())?;
            assert_eq!(after.0, "0", "after {what}");
        }
        Ok(())
    })
}
