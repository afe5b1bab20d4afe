//! Our Goldmane, and a node that pushes to a socket.

use crate::{NOW, data, run_to};
use daemon::{Shutdown, ShutdownHandle};
use flows_cli::losses::Said;
use flows_cli::source::node::Heard;
use flows_cli::{Flow, json};
use goldmane::for_tests::{Aggregator, AggregatorOptions, Clock, Services, serve};
use goldmane_api::connect::{Target, connect};
use goldmane_api::convert::from_collected;
use goldmane_api::losses::LossKind;
use goldmane_api::proto::FlowUpdate;
use goldmane_api::proto::flow_collector_client::FlowCollectorClient;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use testkit::Authority;
use tls::{ClientAuth, Renewing, TlsFiles};
use tokio::net::TcpListener;

fn recorded() -> Vec<Flow> {
    json::read(&std::fs::read_to_string(data("shop.jsonl")).unwrap()).unwrap()
}

async fn push(address: &str, flows: &[Flow]) {
    let channel = connect(&Target { address: address.to_owned(), tls: None }).await.unwrap();
    let updates: Vec<FlowUpdate> =
        flows.iter().map(|flow| FlowUpdate { flow: Some(from_collected(flow)) }).collect();
    let mut receipts =
        FlowCollectorClient::new(channel).connect(futures::stream::iter(updates)).await.unwrap().into_inner();
    for _ in flows {
        receipts.message().await.unwrap().expect("a receipt for every flow");
    }
}

fn aggregator() -> Arc<Aggregator> {
    let clock: Clock = Arc::new(|| NOW);
    Aggregator::new(AggregatorOptions::default(), clock)
}

/// A server with the recorded flows, some time after them.
async fn goldmane() -> (String, ShutdownHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    let (end, shutdown): (_, Shutdown) = ShutdownHandle::new();
    tokio::spawn(serve(listener, None, Services(aggregator()), shutdown));
    push(&address, &recorded()).await;
    (address, end)
}

#[tokio::test]
async fn a_server_gives_what_a_file_gives() {
    let (address, _end) = goldmane().await;
    let file = data("shop.jsonl");
    for words in [
        &[][..],
        &["--denied"],
        &["--would-deny"],
        &["--from-pod", "shop/web-7d9f-x2k9z", "--port", "5432"],
        &["--not", "--namespace", "load", "--reporter", "dst", "--last", "4"],
        &["--policy", "shop/db"],
        &["--verdict", "passed"],
        &["-o", "json", "--since", "1h"],
        &["top", "--group", "source"],
        &["stats"],
    ] {
        let ask = async |flag: &str, value: &str| {
            let words: Vec<&str> = words.iter().copied().chain([flag, value]).collect();
            let mut out = Vec::new();
            let (outcome, said) = run_to(&words, "", &mut out, None, NOW).await;
            assert_eq!((outcome, said.as_str()), (Ok(()), ""), "{words:?}");
            String::from_utf8(out).unwrap()
        };
        let server = ask("--server", &address).await;
        assert!(!server.is_empty(), "{words:?}");
        assert_eq!(server, ask("--input-file", file.to_str().unwrap()).await, "{words:?}");
    }
}

/// A reader that goes away after some lines.
struct Lines(Vec<u8>, usize);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.iter().filter(|byte| **byte == b'\n').count() >= self.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn following_begins_with_past_flows() {
    let (address, _end) = goldmane().await;
    let mut out = Lines(Vec::new(), 2);
    // Two flows were denied, at the database and at the web server; the reader leaves before the third.
    let words = ["-f", "--since", "30m", "--denied", "--server", &address];
    let (outcome, said) = run_to(&words, "", &mut out, None, NOW).await;
    assert_eq!((outcome, said.as_str()), (Ok(()), ""));
    let text = String::from_utf8(out.0).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.lines().all(|line| line.contains(": DENIED by end of tier default")), "{text}");
}

/// Lines that a test can inspect, and a reader that goes away after some.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<u8>>>, usize);

impl Shown {
    fn lines(&self) -> Vec<String> {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
    }
}

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.lines().len() >= self.1 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn following_survives_a_server_outage_without_repeating_flows() {
    let aggregator = aggregator();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = format!("localhost:{port}");
    let start = |listener| {
        let (end, shutdown): (_, Shutdown) = ShutdownHandle::new();
        let services = Services(Arc::clone(&aggregator));
        // The handle that stops the server is kept as long as it runs.
        tokio::spawn(async move {
            let _end = end;
            serve(listener, None, services, shutdown).await;
        })
    };
    let server = start(listener);
    let flows = recorded();
    push(&address, &flows).await;
    let denied = |flow: &&Flow| flow.key.action == flows::Action::Deny;
    let before = flows.iter().filter(denied).count();
    let mut shown = Shown(Arc::default(), before + 1);
    let looked = shown.clone();
    let words = ["-f", "--since", "30m", "--denied", "--server", &address];
    let following = run_to(&words, "", &mut shown, None, NOW);
    let restarting = async {
        testkit::eventually_async("all flows are shown", async || looked.lines().len() == before)
            .await
            .unwrap();
        server.abort();
        let _ = server.await;
        let newest = flows.iter().map(|flow| flow.start).max().unwrap();
        let again = flows.iter().find(denied).unwrap();
        let listener = testkit::eventually_async("the port is free again", async || {
            TcpListener::bind(("127.0.0.1", port)).await.ok()
        })
        .await
        .unwrap();
        start(listener);
        let later = |seconds| Flow { start: newest + seconds, end: newest + seconds + 15, ..again.clone() };
        push(&address, &[later(15), later(30)]).await;
    };
    let ((outcome, said), ()) = tokio::join!(following, restarting);
    assert_eq!(outcome, Ok(()));
    assert!(said.starts_with("Warning: ") && said.contains("trying again"), "{said}");
    let lines = looked.lines();
    let different: std::collections::BTreeSet<_> = lines.iter().collect();
    assert_eq!((lines.len(), different.len()), (before + 1, before + 1), "{lines:#?}");
}

#[tokio::test]
async fn ranges_end_at_the_requested_time() {
    let (address, _end) = goldmane().await;
    let newest = recorded().iter().map(|flow| flow.start).max().unwrap();
    let oldest = recorded().iter().map(|flow| flow.start).min().unwrap();
    assert!(oldest < newest, "the recording has several times");
    let ask = async |words: &[&str]| {
        let words: Vec<&str> = words.iter().copied().chain(["--server", &address]).collect();
        let mut out = Vec::new();
        let (outcome, _) = run_to(&words, "", &mut out, None, NOW).await;
        outcome.map(|()| String::from_utf8(out).unwrap().lines().count())
    };
    let all = ask(&["--since", "1h"]).await.unwrap();
    let ago = format!("{}s", NOW - newest);
    let before = ask(&["--since", "1h", "--until", &ago]).await.unwrap();
    let since = ask(&["--since", &ago]).await.unwrap();
    assert!(before > 0 && since > 0, "{before} and {since} of {all}");
    assert_eq!(ask(&["--until", "59m", "--since", "1h"]).await.unwrap(), 0);
    assert_eq!(
        ask(&["-f", "--until", "1m"]).await.unwrap_err().message,
        "--follow has no end: leave --until out"
    );
    assert!(ask(&["--since", "1m", "--until", "1h"]).await.unwrap_err().message.contains("InvalidArgument"));
}

#[tokio::test]
async fn client_certificates_are_sent_to_servers_that_require_them() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path()).unwrap();
    let own = authority.sign_for("server", "goldmane", &[], &["goldmane.calico-system.svc"]).unwrap();
    let client = authority.sign("client", "me", &[]).unwrap();
    let certificates = Renewing::new(TlsFiles {
        certificate: own.certificate,
        key: own.key,
        authorities: authority.certificate.clone(),
        client_auth: ClientAuth::RequireAndVerify,
        protocols: &["h2"],
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port());
    let (_end, shutdown): (_, Shutdown) = ShutdownHandle::new();
    tokio::spawn(serve(listener, Some(certificates), Services(aggregator()), shutdown));
    let path = |path: &std::path::Path| path.display().to_string();
    let files = [path(&authority.certificate), path(&client.certificate), path(&client.key)];
    let with = ["--tls-ca", &files[0], "--tls-cert", &files[1], "--tls-key", &files[2]];
    let ask = async |more: &[&str]| {
        let words: Vec<&str> = ["--server", &address].iter().chain(more).copied().collect();
        run_to(&words, "", &mut Vec::new(), None, NOW).await.0
    };
    assert_eq!(ask(&with).await, Ok(()));
    let named = |name| [&with[..], &["--tls-server-name", name]].concat();
    assert_eq!(ask(&named("goldmane.calico-system.svc")).await, Ok(()));
    assert!(ask(&named("elsewhere.svc")).await.unwrap_err().message.contains("cannot connect"));
    assert!(ask(&[]).await.is_err(), "in the clear");
}

#[tokio::test]
async fn an_unreachable_server_is_reported() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (outcome, _) = run_to(&["--server", &free.to_string()], "", &mut Vec::new(), None, NOW).await;
    let message = outcome.unwrap_err().message;
    assert!(message.contains("cannot connect to") && message.contains(&free.to_string()), "{message}");
}

#[tokio::test]
async fn a_node_pushes_to_any_listener() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("flows/flows.sock");
    let flag = format!("--node={}", socket.display());
    let mut out = Vec::new();
    let flows = recorded();
    let words = ["--denied", "--last", "2", flag.as_str()];
    let watching = run_to(&words, "", &mut out, None, NOW);
    let pushing = async {
        let address = format!("unix://{}", socket.display());
        testkit::eventually_async("the command listens", async || {
            connect(&Target { address: address.clone(), tls: None }).await.ok()
        })
        .await
        .unwrap();
        push_some(&address, &flows).await;
    };
    let ((outcome, said), ()) = tokio::join!(watching, pushing);
    assert_eq!((outcome, said.as_str()), (Ok(()), ""));
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("shop/debug -> shop/db-0:5432 tcp: DENIED"), "{text}");
    assert!(!socket.exists(), "the socket goes with its listener");
}

/// Pushes until there is no listener left.
async fn push_some(address: &str, flows: &[Flow]) {
    let channel = connect(&Target { address: address.to_owned(), tls: None }).await.unwrap();
    let updates: Vec<FlowUpdate> =
        flows.iter().map(|flow| FlowUpdate { flow: Some(from_collected(flow)) }).collect();
    let receipts = FlowCollectorClient::new(channel).connect(futures::stream::iter(updates)).await;
    if let Ok(receipts) = receipts {
        let mut receipts = receipts.into_inner();
        while let Ok(Some(_)) = receipts.message().await {}
    }
}

/// A node that sends these flows, and reports that it lost packets.
async fn losing_node(address: String, flows: Vec<Flow>) -> (tokio::task::JoinHandle<()>, Sending) {
    let losses: goldmane_api::losses::LossSource = Arc::new(|| vec![(LossKind::PacketsLost, 12)]);
    let from = goldmane_api::push::Sender { node: "n1".to_owned(), losses: Some(losses) };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(flows).await.unwrap();
    let target = Target { address, tls: None };
    let figures = goldmane_api::push::PushFigures::default();
    let pushing = goldmane_api::push::push(target, from, receiver, figures, Shutdown::never());
    (tokio::spawn(pushing), sender)
}

type Sending = tokio::sync::mpsc::Sender<Vec<Flow>>;

const LOST: &str = "Warning: node n1 lost, in the last hour: 12 reported packets that were not read in time";

#[tokio::test]
async fn losses_on_nodes_are_reported_beside_the_flows() {
    let (address, _end) = goldmane().await;
    let (_, _, said) = crate::run(&["--server", &address], "", None).await;
    assert!(!said.contains("lost"), "{said}");
    let (node, _sending) = losing_node(address.clone(), recorded()).await;
    testkit::eventually_async("the loss is said", async || {
        let (outcome, shown, said) = crate::run(&["--server", &address], "", None).await;
        outcome.unwrap();
        assert!(!shown.contains("lost"), "not among the flows");
        said.lines().any(|line| line == LOST)
    })
    .await
    .unwrap();
    node.abort();
}

#[tokio::test]
async fn a_watched_node_reports_its_losses() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("flows.sock");
    let mut listening = flows_cli::source::node::listen(&socket).await.unwrap();
    let (node, _sending) = losing_node(format!("unix://{}", socket.display()), recorded()).await;
    let heard = async {
        loop {
            if let Heard::Lost(known) = listening.next().await.unwrap() {
                return Said::default().lines(&known);
            }
        }
    };
    let lines = tokio::time::timeout(std::time::Duration::from_secs(60), heard).await.unwrap();
    assert_eq!(lines.iter().map(|line| format!("Warning: {line}")).collect::<Vec<_>>(), [LOST]);
    node.abort();
}
