//! The JSON gateway and the plain pages, on our server and on real etcd: the same requests, the same status and JSON,
//! apart from what names the server.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use anyhow::{Context, Result};
use testkit::Etcd;

use crate::support::Server;

/// Status line and body.
fn request(endpoint: &str, method: &str, path: &str, body: &str) -> Result<(String, String)> {
    let address = endpoint.strip_prefix("http://").context("not http")?;
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "{method} {path} HTTP/1.0\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
    let status = head.lines().next().unwrap_or_default().split_once(' ').unwrap_or_default().1;
    Ok((status.to_owned(), body.to_owned()))
}

/// Removes the header, which names the server.
fn neutral(text: &str) -> String {
    match (text.find("\"header\":{"), text.find('}')) {
        (Some(start), Some(end)) if start < end => format!("{}{}", &text[..start], &text[end + 1..]),
        _ => text.to_owned(),
    }
}

const SAME: &[(&str, &str, &str)] = &[
    ("POST", "/v3/kv/put", r#"{"key":"Zm9v","value":"YmFy"}"#),
    ("POST", "/v3/kv/put", r#"{"key":"Zm9v","value":"YmF6","prev_kv":true}"#),
    ("POST", "/v3beta/kv/put", r#"{"key":"Zm9vMg==","value":""}"#),
    ("POST", "/v3/kv/range", r#"{"key":"Zm9v"}"#),
    (
        "POST",
        "/v3/kv/range",
        r#"{"key":"Zm9v","range_end":"Zm9w","limit":"1","sort_order":"DESCEND","sort_target":"MOD"}"#,
    ),
    ("POST", "/v3/kv/range", r#"{"key":"Zm9v","range_end":"Zm9w","limit":1,"sortOrder":2}"#),
    ("POST", "/v3/kv/range", r#"{"key":"Zm9v","range_end":"AA==","count_only":true}"#),
    ("POST", "/v3/kv/range", r#"{"key":"Zm9v","revision":"2"}"#),
    ("POST", "/v3/kv/range", r#"{"key":"Zm9v","unknown":"ignored"}"#),
    ("POST", "/v3/kv/range", r#"{"key":"Zm9v","revision":"99"}"#),
    ("POST", "/v3/kv/range", "{}"),
    ("POST", "/v3/kv/range", ""),
    (
        "POST",
        "/v3/kv/txn",
        r#"{"compare":[{"result":"EQUAL","target":"VERSION","key":"Zm9v","version":"2"}],"success":[{"requestPut":{"key":"Zm9v","value":"MQ=="}},{"request_range":{"key":"Zm9v"}}],"failure":[]}"#,
    ),
    (
        "POST",
        "/v3/kv/txn",
        r#"{"compare":[{"target":"VALUE","key":"Zm9v","value":"eA=="}],"success":[],"failure":[{"request_delete_range":{"key":"Zm9vMg==","prev_kv":true}}]}"#,
    ),
    ("POST", "/v3/kv/txn", r#"{"success":[{"requestPut":{"key":"YQ=="}},{"requestPut":{"key":"YQ=="}}]}"#),
    ("POST", "/v3/kv/deleterange", r#"{"key":"Zm9v","prev_kv":true}"#),
    ("POST", "/v3/kv/deleterange", r#"{"key":"Zm9v"}"#),
    ("POST", "/v3/kv/compaction", r#"{"revision":"3"}"#),
    ("POST", "/v3/kv/compaction", r#"{"revision":"3"}"#),
    ("POST", "/v3/kv/range", r#"{"key":"Zm9v","revision":"2"}"#),
    ("POST", "/v3/lease/grant", r#"{"ID":"77","TTL":"100"}"#),
    ("POST", "/v3/lease/grant", r#"{"ID":"77","TTL":"100"}"#),
    ("POST", "/v3/kv/put", r#"{"key":"bGVhc2Vk","lease":"77"}"#),
    ("POST", "/v3/lease/keepalive", r#"{"ID":"77"}"#),
    ("POST", "/v3/lease/keepalive", r#"{"ID":"78"}"#),
    ("POST", "/v3/lease/leases", "{}"),
    ("POST", "/v3/lease/revoke", r#"{"ID":"77"}"#),
    ("POST", "/v3/kv/lease/revoke", r#"{"ID":"77"}"#),
    ("POST", "/v3/lease/timetolive", r#"{"ID":"77"}"#),
    ("POST", "/v3/maintenance/alarm", "{}"),
    ("POST", "/v3/maintenance/defragment", "{}"),
    ("POST", "/v3/auth/authenticate", r#"{"name":"x","password":"y"}"#),
    ("POST", "/v3/nothing", "{}"),
    ("GET", "/v3/kv/range", ""),
    ("GET", "/health", ""),
];

#[test]
fn the_gateway_answers_like_etcds() -> Result<()> {
    let etcd = Etcd::start()?;
    let server = Server::start(&[])?;
    for (method, path, body) in SAME {
        let (their_status, theirs) = request(&etcd.endpoint(), method, path, body)?;
        let (our_status, ours) = request(&server.endpoint(), method, path, body)?;
        assert_eq!((our_status, neutral(&ours)), (their_status, neutral(&theirs)), "{method} {path} {body}");
    }
    // The JSON library words these errors; only the fact of the refusal and its code are the same.
    for body in
        ["zz", r#"{"key":1}"#, r#"{"key":"!"}"#, r#"{"key":"Zm9v","limit":"x"}"#, "[]", r#"{"key":"Zm9v""#]
    {
        let theirs = request(&etcd.endpoint(), "POST", "/v3/kv/range", body)?;
        let ours = request(&server.endpoint(), "POST", "/v3/kv/range", body)?;
        assert_eq!(ours.0, theirs.0, "{body}");
        assert!(ours.1.ends_with(r#","code":3}"#) && theirs.1.ends_with(r#","code":3}"#), "{ours:?}");
    }
    Ok(())
}

#[test]
fn watching_by_json_streams_lines() -> Result<()> {
    let server = Server::start(&[])?;
    let endpoint = server.endpoint();
    let mut stream = TcpStream::connect(endpoint.strip_prefix("http://").context("not http")?)?;
    // The body stays open: a second watch is created after the first has answered.
    let first = r#"{"create_request":{"key":"YQ==","start_revision":"1"}}"#;
    let second = r#"{"create_request":{"key":"Yg==","watch_id":"7"}}"#;
    write!(
        stream,
        "POST /v3/watch HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{first}",
        first.len() + second.len() + 1
    )?;
    let mut lines = BufReader::new(stream.try_clone()?)
        .lines()
        .map_while(Result::ok)
        .filter(|line| line.starts_with('{'));
    let mut next = || lines.next().context("the stream ended");
    assert!(next()?.contains(r#""created":true"#));
    stream.write_all(&second.as_bytes()[..10])?;
    stream.write_all(&second.as_bytes()[10..])?;
    let created = next()?;
    assert!(created.contains(r#""watch_id":"7""#) && created.contains(r#""created":true"#), "{created}");
    request(&endpoint, "POST", "/v3/kv/put", r#"{"key":"Yg==","value":"MQ=="}"#)?;
    let event = next()?;
    assert!(event.contains(r#""watch_id":"7","events":[{"kv":{"key":"Yg==""#), "{event}");
    Ok(())
}

#[test]
fn pages_report_the_state_of_the_store() -> Result<()> {
    let server = Server::start(&[])?;
    request(&server.endpoint(), "POST", "/v3/kv/put", r#"{"key":"Zm9v"}"#)?;
    let (status, metrics) = request(&server.endpoint(), "GET", "/metrics", "")?;
    assert_eq!(status, "200 OK");
    for line in [
        "etcd_server_has_leader 1",
        "etcd_mvcc_put_total 1",
        "etcd_debugging_mvcc_keys_total 1",
        "# TYPE etcd_mvcc_db_total_size_in_bytes gauge",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} is not in:\n{metrics}");
    }
    let (_, version) = request(&server.endpoint(), "GET", "/version", "")?;
    assert_eq!(version, format!(r#"{{"etcdserver":"{}","etcdcluster":"3.5.0"}}"#, kvstore::server::VERSION));
    let (_, status) = request(&server.endpoint(), "POST", "/v3/maintenance/status", "{}")?;
    assert!(status.contains(r#""version":"3.5."#) && status.contains("\"dbSize\":\""), "{status}");
    let (_, snapshot) = request(&server.endpoint(), "POST", "/v3/maintenance/snapshot", "{}")?;
    assert!(snapshot.starts_with(r#"{"result":{"header""#) && snapshot.contains("\"blob\""));
    Ok(())
}
