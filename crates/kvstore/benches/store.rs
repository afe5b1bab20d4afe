//! Compares the embedded store with etcd: each in a process of its own, on the same disk, durable, measured in turns
//! through gRPC by one client program. Prints a table of medians and ratios; with `KVSTORE_BENCH_REPORT=FILE` also
//! writes it there, as JSON or, if the name ends in `.md`, as Markdown.
//!
//! Words select parts (`one`, `many`, `range`, `fan-out`, `memory`, `pauses`); without any, all are measured. The
//! processor time of server and clients per put is written to standard error: on a busy machine it is more telling than
//! the rate.
//!
//! Puts come from a cheap client ([`client`]), or with `KVSTORE_BENCH_CLIENT=library` from the general one, as
//! everything else does.
//!
//! The disk measured is the one that holds the temporary folder. The clients share the machine with the servers, so
//! processor-bound figures understate both.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

#[path = "store/client.rs"]
mod client;
#[path = "store/pauses.rs"]
mod pauses;

use std::{
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use etcd_api::{Client, etcdserverpb as pb};
use futures::StreamExt as _;
use testkit::{Etcd, Folder, Process, free_port};

const VALUE: usize = 256;
const CLIENTS: usize = 64;
const WATCHERS: usize = 100;
const RANGE_KEYS: usize = 10_000;
const MEMORY_KEYS: usize = 100_000;
const PARTS: [&str; 6] = ["one", "many", "range", "fan-out", "memory", "pauses"];

#[derive(Parser)]
struct Serve {
    #[command(flatten)]
    arguments: kvstore::cli::Arguments,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == "datastore") {
        return kvstore::cli::run(Serve::parse_from(&arguments[1..]).arguments);
    }
    let rounds = std::env::var("KVSTORE_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let seconds =
        std::env::var("KVSTORE_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let words: Vec<&str> =
        arguments[1..].iter().map(String::as_str).filter(|it| !it.starts_with('-')).collect();
    if let Some(word) = words.iter().find(|word| !PARTS.contains(*word)) {
        bail!("there is no part {word:?}, only {}", PARTS.join(", "));
    }
    let wanted = |part: &str| words.is_empty() || words.contains(&part);
    let report = runtime.block_on(measure(rounds, Duration::from_secs_f64(seconds), &wanted))?;
    print!("{}", report.markdown());
    std::io::stdout().flush()?;
    if let Some(path) = std::env::var_os("KVSTORE_BENCH_REPORT") {
        let path = Path::new(&path);
        let markdown = path.extension().is_some_and(|extension| extension == "md");
        std::fs::write(path, if markdown { report.markdown() } else { report.json() })?;
    }
    Ok(())
}

async fn connect(endpoint: &str) -> Result<Client> {
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint.to_owned())?;
    Ok(Client::new(endpoint.connect().await?))
}

fn put(key: String, value: impl Into<bytes::Bytes>) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), value: value.into(), ..pb::PutRequest::default() }
}

/// Connects this many clients, each with a connection of its own unless `KVSTORE_BENCH_CONNECTIONS` sets how many they
/// share.
async fn clients(endpoint: &str, count: usize) -> Result<Vec<Client>> {
    let shared = std::env::var("KVSTORE_BENCH_CONNECTIONS").ok().and_then(|text| text.parse().ok());
    let connections = shared.unwrap_or(count).clamp(1, count);
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..count {
        let client = match clients.get(number % connections) {
            Some(client) => client.clone(),
            None => connect(endpoint).await?,
        };
        clients.push(client);
    }
    Ok(clients)
}

/// Our server, run from this very program.
struct Ours {
    process: Process,
    _folder: Folder,
    endpoint: String,
}

impl Ours {
    fn start() -> Result<Self> {
        let folder = Folder::new("bench")?;
        let endpoint = format!("http://127.0.0.1:{}", free_port()?);
        let arguments = [
            "datastore".to_owned(),
            format!("--data-dir={}", folder.path().join("data").display()),
            format!("--listen-client-urls={endpoint}"),
            "--log-level=warn".to_owned(),
        ];
        let mut process =
            Process::start(&testkit::measured_program()?, &arguments, &folder.path().join("log"))?;
        let address = endpoint.trim_start_matches("http://").to_owned();
        for _ in 0..1000 {
            if std::net::TcpStream::connect(&address).is_ok() {
                return Ok(Self { process, _folder: folder, endpoint });
            }
            process.check_running()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("our server does not listen")
    }
}

/// One row of the table: what, unit, goal, whether more is better, figures of etcd and ours.
struct Line {
    what: String,
    unit: &'static str,
    /// The goal: how many times better than etcd, or a figure.
    goal: String,
    more_is_better: bool,
    etcd: Vec<f64>,
    ours: Vec<f64>,
}

impl Line {
    fn new(what: impl Into<String>, unit: &'static str, goal: f64, more_is_better: bool) -> Self {
        Self::with_goal(what, unit, format!("{goal:.1}x"), more_is_better)
    }

    fn with_goal(
        what: impl Into<String>,
        unit: &'static str,
        goal: impl Into<String>,
        more_is_better: bool,
    ) -> Self {
        let (what, goal) = (what.into(), goal.into());
        Self { what, unit, goal, more_is_better, etcd: Vec::new(), ours: Vec::new() }
    }

    fn add(&mut self, is_etcd: bool, figure: f64) {
        if is_etcd { self.etcd.push(figure) } else { self.ours.push(figure) }
    }

    fn ratio(&self) -> f64 {
        let ratio = median(&self.ours) / median(&self.etcd);
        if self.more_is_better { ratio } else { 1.0 / ratio }
    }
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

struct Report {
    lines: Vec<Line>,
}

impl Report {
    fn markdown(&self) -> String {
        let mut text =
            "| figure | unit | etcd | embedded store | better by | goal |\n|---|---|---|---|---|---|\n"
                .to_owned();
        for line in &self.lines {
            text += &format!(
                "| {} | {} | {:.1} | {:.1} | {:.2}x | {} |\n",
                line.what,
                line.unit,
                median(&line.etcd),
                median(&line.ours),
                line.ratio(),
                line.goal
            );
        }
        if !with_library() {
            text += "\nPuts come from clients that cost little: HTTP/2 by hand, one write for a request.\n";
        }
        text
    }

    fn json(&self) -> String {
        let lines: Vec<serde_json::Value> = self
            .lines
            .iter()
            .map(|line| {
                serde_json::json!({
                    "figure": line.what, "unit": line.unit, "goal": line.goal, "ratio": line.ratio(),
                    "etcd": line.etcd, "ours": line.ours,
                })
            })
            .collect();
        serde_json::json!({ "store": lines }).to_string() + "\n"
    }
}

async fn measure(rounds: usize, time: Duration, wanted: &dyn Fn(&str) -> bool) -> Result<Report> {
    let mut etcd = Etcd::start()?;
    let mut ours = Ours::start()?;
    let (theirs_at, ours_at) = (etcd.endpoint(), ours.endpoint.clone());
    let servers = [etcd.process()?.id(), ours.process.id()];
    let mut one = Line::new("puts, 1 client", "puts/s", 1.0, true);
    let mut many = Line::new(format!("puts, {CLIENTS} clients"), "puts/s", 4.0, true);
    let mut range = Line::new(format!("range of {RANGE_KEYS} keys"), "ms", 2.0, false);
    let mut fan_out = Line::new(format!("watch fan-out to {WATCHERS} watchers"), "events/s", 2.0, true);
    let mut memory = Line::new(format!("resident memory after {MEMORY_KEYS} keys"), "MiB", 4.0, false);
    if wanted("range") {
        for endpoint in [&theirs_at, &ours_at] {
            fill(endpoint, "range", RANGE_KEYS).await?;
        }
    }
    for _ in 0..rounds {
        for part in PARTS.into_iter().filter(|part| wanted(part)) {
            for (endpoint, server) in [&theirs_at, &ours_at].into_iter().zip(servers) {
                let is_etcd = server == servers[0];
                let name = if is_etcd { "etcd" } else { "ours" };
                match part {
                    "one" => one.add(is_etcd, told(name, server, 1, puts(endpoint, 1, time)).await?),
                    "many" => {
                        let figure = told(name, server, CLIENTS, puts(endpoint, CLIENTS, time)).await?;
                        many.add(is_etcd, figure);
                    }
                    "range" => range.add(is_etcd, ranges(endpoint, time).await?),
                    "fan-out" => fan_out.add(is_etcd, watches(endpoint, time).await?),
                    _ => {}
                }
            }
        }
        etcd.process()?.check_running()?;
        ours.process.check_running()?;
    }
    drop((etcd, ours));
    if wanted("memory") {
        // Fresh servers without a history.
        let mut etcd = Etcd::start()?;
        fill(&etcd.endpoint(), "memory", MEMORY_KEYS).await?;
        memory.etcd.push(mebibytes(etcd.process()?)?);
        drop(etcd);
        let ours = Ours::start()?;
        fill(&ours.endpoint, "memory", MEMORY_KEYS).await?;
        memory.ours.push(mebibytes(&ours.process)?);
    }
    let mut pauses = pauses::Pauses::new();
    if wanted("pauses") {
        for _ in 0..rounds.min(3) {
            let etcd = Etcd::start()?;
            pauses.measure(&etcd.endpoint(), true).await?;
            drop(etcd);
            let ours = Ours::start()?;
            pauses.measure(&ours.endpoint, false).await?;
        }
    }
    let mut lines = vec![one, many, range, fan_out, memory];
    lines.extend(pauses.into_lines());
    lines.retain(|line| !line.ours.is_empty());
    Ok(Report { lines })
}

/// Measures puts, and prints the processor time spent on each.
async fn told(
    name: &str,
    server: u32,
    clients: usize,
    puts: impl Future<Output = Result<(u32, f64)>>,
) -> Result<f64> {
    let processes = [server, std::process::id()];
    let before = processes.map(processor_seconds);
    let (count, seconds) = puts.await?;
    let after = processes.map(processor_seconds);
    let each = |process: usize| match (&before[process], &after[process]) {
        (Ok(before), Ok(after)) => (after - before) * 1e6 / f64::from(count),
        _ => f64::NAN,
    };
    let rate = f64::from(count) / seconds;
    eprintln!(
        "{clients} clients, {name}: {rate:.0} puts/s; per put {:.0} µs in the server, {:.0} µs here",
        each(0),
        each(1)
    );
    Ok(rate)
}

/// Processor time that a process has used, in user and kernel mode.
fn processor_seconds(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name before the closing bracket may contain anything.
    let (_, rest) = stat.rsplit_once(')').context("no name")?;
    let field =
        |at: usize| rest.split_whitespace().nth(at).context("too short")?.parse::<f64>().context("no number");
    // Ticks are hundredths of a second on every Linux that reports them here.
    Ok((field(11)? + field(12)?) / 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "resident memory is far below 2^52 KiB")]
fn mebibytes(process: &Process) -> Result<f64> {
    Ok(process.resident_kib()? as f64 / 1024.0)
}

fn value() -> Vec<u8> {
    vec![b'v'; VALUE]
}

/// Writes `count` keys with as many clients as the parallel measurement uses.
async fn fill(endpoint: &str, prefix: &str, count: usize) -> Result<()> {
    let tasks = (0..CLIENTS).map(|client| {
        let (endpoint, prefix) = (endpoint.to_owned(), prefix.to_owned());
        tokio::spawn(async move {
            let mut connection = connect(&endpoint).await?;
            for number in (client..count).step_by(CLIENTS) {
                connection.kv.put(put(format!("/{prefix}/{number:08}"), value())).await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    Ok(())
}

/// Whether the general client does the puts.
fn with_library() -> bool {
    std::env::var("KVSTORE_BENCH_CLIENT").is_ok_and(|client| client == "library")
}

/// The client that does the puts.
enum Putter {
    Lean(Box<client::Client>),
    Library(Box<Client>),
}

impl Putter {
    async fn put(&mut self, key: String, value: &bytes::Bytes) -> Result<()> {
        match self {
            Self::Lean(client) => client.put(key, value.clone()).await,
            Self::Library(client) => Ok(client.kv.put(put(key, value.clone())).await.map(drop)?),
        }
    }
}

/// Counts the puts of this many clients, each waiting for its answer before the next put, and the seconds they took.
async fn puts(endpoint: &str, clients: usize, time: Duration) -> Result<(u32, f64)> {
    let mut connections = Vec::new();
    if with_library() {
        let clients = self::clients(endpoint, clients).await?;
        connections.extend(clients.into_iter().map(Box::new).map(Putter::Library));
    } else {
        for _ in 0..clients {
            connections.push(Putter::Lean(Box::new(client::Client::connect(endpoint).await?)));
        }
    }
    let value = bytes::Bytes::from(value());
    let mut tasks = Vec::new();
    for (client, mut connection) in connections.into_iter().enumerate() {
        let value = value.clone();
        tasks.push(move |until: Instant| async move {
            let mut done = 0_u32;
            while Instant::now() < until {
                connection.put(format!("/puts/{client:03}/{:06}", done % 1000), &value).await?;
                done += 1;
            }
            anyhow::Ok(done)
        });
    }
    let start = Instant::now();
    let running: Vec<_> = tasks.into_iter().map(|task| tokio::spawn(task(start + time))).collect();
    let mut done = 0;
    for task in running {
        done += task.await??;
    }
    Ok((done, start.elapsed().as_secs_f64()))
}

/// The median time of a range over all keys of the prefix, in milliseconds, over the ranges that fit into `time`.
async fn ranges(endpoint: &str, time: Duration) -> Result<f64> {
    let mut connection = connect(endpoint).await?;
    let (key, range_end) = kvstore_engine::prefix_range("/range/".into());
    let request = pb::RangeRequest { key, range_end, ..pb::RangeRequest::default() };
    let start = Instant::now();
    let mut each = Vec::new();
    while start.elapsed() < time {
        let begun = Instant::now();
        let answer = connection.kv.range(request.clone()).await?.into_inner();
        each.push(begun.elapsed().as_secs_f64() * 1000.0);
        if answer.kvs.len() != RANGE_KEYS {
            bail!("{} keys instead of {RANGE_KEYS}", answer.kvs.len());
        }
    }
    Ok(median(&each))
}

/// Events per second over all watchers, while a few clients write the watched keys as fast as they can.
async fn watches(endpoint: &str, time: Duration) -> Result<f64> {
    const WRITERS: usize = 8;
    let mut streams = Vec::new();
    for mut connection in clients(endpoint, WATCHERS).await? {
        let (key, range_end) = kvstore_engine::prefix_range("/watched/".into());
        let create = pb::WatchCreateRequest { key, range_end, ..pb::WatchCreateRequest::default() };
        let union = pb::watch_request::RequestUnion::CreateRequest(create);
        let first = pb::WatchRequest { request_union: Some(union) };
        // Keep the stream of requests open: the watch ends with it.
        let requests = futures::stream::iter([first]).chain(futures::stream::pending());
        streams.push(connection.watch.watch(requests).await?.into_inner());
    }
    let start = Instant::now();
    let until = start + time;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let endpoint = endpoint.to_owned();
            tokio::spawn(async move {
                let mut connection = connect(&endpoint).await?;
                let mut last = 0;
                while Instant::now() < until {
                    let answer = connection.kv.put(put(format!("/watched/{writer}"), value())).await?;
                    last = answer.into_inner().header.context("no header")?.revision;
                }
                anyhow::Ok(last)
            })
        })
        .collect();
    let (last, told) = tokio::sync::watch::channel(i64::MAX);
    let readers: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            let told = told.clone();
            tokio::spawn(async move {
                let mut events = 0_u32;
                let mut seen = 0;
                // The last revision is known only when the writers are done; an idle stream is asked again then.
                while seen < *told.borrow() {
                    let Ok(message) = tokio::time::timeout(Duration::from_millis(20), stream.message()).await
                    else {
                        continue;
                    };
                    let message = message?.context("the watch ended")?;
                    for event in message.decoded_events()? {
                        events += 1;
                        seen = event.kv.context("no key")?.mod_revision;
                    }
                }
                anyhow::Ok(events)
            })
        })
        .collect();
    let mut newest = 0;
    for writer in writers {
        newest = newest.max(writer.await??);
    }
    last.send(newest)?;
    let mut events = 0;
    for reader in readers {
        events += reader.await??;
    }
    Ok(f64::from(events) / start.elapsed().as_secs_f64())
}
