//! Runs our programs and Calico's against each other: not a measurement, and run only on request.
//!
//! ```text
//! TORTIE_PEER_BIN=/path/to/folder cargo bench -p flows-cli --bench compare -- compare
//! ```
//!
//! The folder contains Calico's `calico-goldmane`, `whisker-backend` and `goldmane-flowgen` (its load generator, with
//! the client that its nodes push with). Fails when one of them is missing, or when anything differs.

#![expect(clippy::print_stdout, reason = "what was seen is this program's output")]

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args as _, Command, FromArgMatches as _};
use daemon::{Shutdown, ShutdownHandle};
use flows::collector::CollectedFlow;
use flows_cli::{Flow, FlowsArgs, Shell, json};
use goldmane::for_tests::{Aggregator, AggregatorOptions, Services, serve};
use goldmane_api::connect::{Target, connect};
use goldmane_api::push::{PushFigures, now, push};
use prost::Message as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Authority, Folder, Process};
use tls::{ClientAuth, Renewing, TlsFiles};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const INTERVAL: i64 = 15;
/// Calico's server starts with the next bucket, and its load generator with 250 connections.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    if !std::env::args().any(|word| word == "compare") {
        println!("nothing is measured here; the word `compare` runs Calico's programs of TORTIE_PEER_BIN");
        return ExitCode::SUCCESS;
    }
    let outcome =
        tokio::runtime::Runtime::new().context("a runtime").and_then(|runtime| runtime.block_on(compare()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn compare() -> Result<()> {
    our_node_and_tool_with_calicos_server().await?;
    calicos_nodes_with_our_server().await?;
    calicos_page_with_our_server().await
}

fn peer(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("TORTIE_PEER_BIN").context("TORTIE_PEER_BIN must name a folder")?;
    let path = Path::new(&folder).join(name);
    ensure!(path.is_file(), "{} not found", path.display());
    Ok(path)
}

/// Starts one of Calico's programs with these variables.
fn start(name: &str, variables: &[(&str, String)], log: &Path) -> Result<Process> {
    let mut arguments: Vec<String> =
        variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    arguments.push(peer(name)?.display().to_string());
    Process::start(Path::new("/usr/bin/env"), &arguments, log)
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if begin.elapsed() > PATIENCE {
            bail!("{what}: not within {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Runs `calicoctl flows` with these arguments.
async fn flows(words: &[&str]) -> Result<String> {
    let name = "flows";
    let command = FlowsArgs::augment_args(Command::new(name));
    let matches = command.try_get_matches_from(std::iter::once(name).chain(words.iter().copied()))?;
    let args = FlowsArgs::from_arg_matches(&matches)?;
    let (mut out, mut said) = (Vec::new(), String::new());
    let mut warn = |text: &str| said.push_str(text);
    let mut shell = Shell {
        stdin: &mut std::io::empty(),
        stdout: &mut out,
        warn: &mut warn,
        variable: &|_| None,
        colours: false,
        now: now(),
    };
    let outcome = flows_cli::run(&args, &mut shell, None).await;
    ensure!(outcome.is_ok(), "{words:?}: {outcome:?} {said}");
    Ok(String::from_utf8(out)?)
}

/// The recorded flows, as if they were a few minutes old.
fn recorded() -> Result<Vec<Flow>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/shop.jsonl");
    let flows = json::read(&std::fs::read_to_string(file)?).map_err(|error| anyhow::anyhow!("{error}"))?;
    let newest = flows.iter().map(|flow| flow.start).max().unwrap_or_default();
    let moved = (now() - 300).div_euclid(INTERVAL) * INTERVAL - newest;
    let flow = |flow: Flow| Flow { start: flow.start + moved, end: flow.end + moved, ..flow };
    Ok(flows.into_iter().map(flow).collect())
}

/// One of our servers.
struct Ours {
    address: String,
    aggregator: Arc<Aggregator>,
    _end: ShutdownHandle,
}

async fn ours(certificates: Option<Renewing>) -> Result<Ours> {
    let aggregator = Aggregator::new(AggregatorOptions::default(), Arc::new(now));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("localhost:{}", listener.local_addr()?.port());
    let (end, shutdown): (_, Shutdown) = ShutdownHandle::new();
    tokio::spawn(serve(listener, certificates, Services(Arc::clone(&aggregator)), shutdown));
    Ok(Ours { address, aggregator, _end: end })
}

/// The queries that are sent to both servers.
const QUESTIONS: [&[&str]; 8] = [
    &["--since", "1h"],
    &["--since", "1h", "-o", "json"],
    &["--since", "1h", "--denied"],
    &["--since", "1h", "--would-deny"],
    &["--since", "1h", "--from-namespace", "shop", "--port", "5432"],
    &["--since", "1h", "--verdict", "allowed", "--to-pod", "shop/db-0"],
    &["top", "--group", "pair"],
    &["stats"],
];

/// Sends every query to both servers; returns the number of lines in the answers.
async fn ask_both(theirs: &str, ours: &str) -> Result<usize> {
    let mut lines = 0;
    for words in QUESTIONS {
        let mut last = (String::new(), String::new());
        // Calico's server includes a flow some time after its receipt.
        let outcome = until("both show the same", async || {
            let ask = async |address: &str| flows(&[words, &["--server", address]].concat()).await;
            let said = |answer: Result<String>| answer.unwrap_or_else(|error| format!("{error:#}"));
            last = (said(ask(theirs).await), said(ask(ours).await));
            (last.0 == last.1 && !last.0.is_empty()).then_some(())
        });
        if outcome.await.is_err() {
            bail!("{words:?}\nCalico's:\n{}\nours:\n{}", last.0, last.1);
        }
        lines += last.0.lines().count();
    }
    Ok(lines)
}

/// Flows sent by Felix's client, as `calicoctl flows` shows them: the same from both servers, and once after the server
/// was away.
async fn our_node_and_tool_with_calicos_server() -> Result<()> {
    let folder = Folder::new("compare")?;
    let (port, log) = (testkit::free_port()?, folder.path().join("log"));
    let variables = [("PORT", port.to_string()), ("HEALTH_ENABLED", "false".to_owned())];
    let calicos = start("calico-goldmane", &variables, &log)?;
    let theirs = format!("localhost:{port}");
    let target = Target { address: theirs.clone(), tls: None };
    until("Calico's server answers", async || connect(&target).await.ok()).await?;
    let ours = ours(None).await?;
    let flows_now = recorded()?;
    let mut pushing = Vec::new();
    for address in [&theirs, &ours.address] {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Vec<CollectedFlow>>(8);
        let (end, ended): (_, Shutdown) = ShutdownHandle::new();
        let (target, figures) = (Target { address: address.clone(), tls: None }, PushFigures::default());
        tokio::spawn(push(target, "n1".to_owned(), receiver, figures.clone(), ended));
        sender.send(flows_now.clone()).await?;
        pushing.push((sender, figures, end));
    }
    for (_, figures, _) in &pushing {
        let count = flows_now.len() as u64;
        until("every flow has its receipt", async || (figures.receipts() >= count).then_some(())).await?;
    }
    let lines = ask_both(&theirs, &ours.address).await?;
    println!("calicoctl flows: {lines} lines are the same from Calico's Goldmane and from ours");
    // Calico's server is a new instance now: the node sends its last minutes again.
    drop(calicos);
    let _calicos = start("calico-goldmane", &variables, &log)?;
    until("Calico's server answers again", async || connect(&target).await.ok()).await?;
    until("the node has come back", async || (pushing[0].1.connections() >= 2).then_some(())).await?;
    let lines = ask_both(&theirs, &ours.address).await?;
    println!("after a restart of Calico's Goldmane our node has sent all of them again: {lines} lines");
    Ok(())
}

/// Calico's load generator simulates 250 nodes with the client of its Felix.
async fn calicos_nodes_with_our_server() -> Result<()> {
    let folder = Folder::new("compare")?;
    let ours = ours(None).await?;
    let variables = [("SERVER", ours.address.clone())];
    let generator = start("goldmane-flowgen", &variables, &folder.path().join("log"))?;
    let kept = until("Calico's nodes push to our server", async || {
        let kept = ours.aggregator.kept();
        (kept.counts.added > 300).then_some(kept)
    })
    .await
    .with_context(|| generator.log_tail())?;
    ensure!(kept.keys > 100, "{kept:?}");
    let shown = flows(&["--since", "1h", "--last", "5", "--server", &ours.address]).await?;
    ensure!(shown.lines().count() == 5, "{shown}");
    println!("{} flows with {} keys came from the client of Calico's nodes", kept.counts.added, kept.keys);
    Ok(())
}

/// The back-end of Calico's page queries our server, with TLS authentication of both sides.
async fn calicos_page_with_our_server() -> Result<()> {
    let folder = Folder::new("compare")?;
    let authority = Authority::new(folder.path())?;
    let own = authority.sign("server", "goldmane", &[])?;
    let page = authority.sign("page", "whisker-backend", &[])?;
    let path = |path: &Path| path.display().to_string();
    let certificates = Renewing::new(TlsFiles {
        certificate: own.certificate,
        key: own.key,
        authorities: authority.certificate.clone(),
        client_auth: ClientAuth::RequireAndVerify,
        protocols: &["h2"],
    });
    let ours = ours(Some(certificates)).await?;
    let flows_now = recorded()?;
    ours.aggregator.ingest(&Arc::from("n1"), |counting| {
        for flow in &flows_now {
            let flow = Some(goldmane_api::convert::from_collected(flow));
            counting.update(&goldmane_api::proto::FlowUpdate { flow }.encode_to_vec());
        }
    });
    let port = testkit::free_port()?;
    let variables = [
        ("HOST", "127.0.0.1".to_owned()),
        ("PORT", port.to_string()),
        ("GOLDMANE_HOST", ours.address.clone()),
        ("CA_CERT_PATH", path(&authority.certificate)),
        ("TLS_CERT_PATH", path(&page.certificate)),
        ("TLS_KEY_PATH", path(&page.key)),
        ("SERVER_TLS_CERT_PATH", path(&page.certificate)),
        ("SERVER_TLS_KEY_PATH", path(&page.key)),
    ];
    let backend = start("whisker-backend", &variables, &folder.path().join("log"))?;
    let ask = async |question: &str| get(port, &authority.certificate, question).await;
    let all = until("Calico's whisker-backend answers", async || {
        ask("/flows?startTimeGte=-3600").await.ok().filter(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await
    .with_context(|| backend.log_tail())?;
    let all = items(&all)?;
    let keys: BTreeSet<_> = flows_now.iter().map(|flow| &flow.key).collect();
    ensure!(all.len() == keys.len(), "{} of {} flows: {all:#?}", all.len(), keys.len());
    let filter = "%7B%22actions%22%3A%5B%22Deny%22%5D%7D";
    let denied = items(&ask(&format!("/flows?startTimeGte=-3600&filters={filter}")).await?)?;
    ensure!(!denied.is_empty() && denied.iter().all(|flow| flow["action"] == "Deny"), "{denied:#?}");
    let hints = items(&ask("/flows-filter-hints?type=SourceNamespace").await?)?;
    ensure!(hints.iter().any(|hint| hint["value"] == "shop"), "{hints:#?}");
    println!(
        "Calico's whisker-backend shows {} flows of our Goldmane, {} of them denied, and {} hints",
        all.len(),
        denied.len(),
        hints.len()
    );
    Ok(())
}

/// The items of an answer, whose document is sent in one chunk or unchunked.
fn items(answer: &str) -> Result<Vec<serde_json::Value>> {
    let body = answer.split_once("\r\n\r\n").context("a body")?.1;
    let (begin, end) = (body.find('{').context("a document")?, body.rfind('}').context("a document")?);
    let value: serde_json::Value = serde_json::from_str(&body[begin..=end])?;
    Ok(value["items"].as_array().cloned().unwrap_or_default())
}

/// Sends one query over TLS.
async fn get(port: u16, authority: &Path, question: &str) -> Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    let pem = std::fs::read(authority)?;
    for certificate in rustls::pki_types::pem::PemObject::pem_slice_iter(&pem) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect("localhost".try_into()?, stream).await?;
    let request = format!("GET {question} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    // Go closes the connection without a TLS close notification.
    let _ = stream.read_to_end(&mut answer).await;
    Ok(String::from_utf8(answer)?)
}
