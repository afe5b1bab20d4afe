//! Servers as processes, ours next to Calico's.

use crate::servers::Server;
use crate::wire::{Sender, Stream, send_all};
use crate::world::{Flows, INTERVAL};
use anyhow::{Context as _, Result, ensure};
use goldmane_api::proto::flow_collector_client::FlowCollectorClient;
use goldmane_api::proto::flows_client::FlowsClient;
use goldmane_api::proto::statistics_client::StatisticsClient;
use goldmane_api::proto::{
    FilterHintsRequest, FilterType, FlowListRequest, StatisticType, StatisticsGroupBy, StatisticsRequest,
};
use goldmane_api::push::now;
use std::time::{Duration, Instant};
use testkit::Report;
use tonic::transport::Channel;

/// The number of connections.
const CONNECTIONS: usize = 4;
/// The number of buckets sent together.
const PART: i64 = 10;
/// The number of buckets filled: the oldest of the hour are left out, because time passes during the measurement.
const BUCKETS: i64 = 230;
/// The number of flows sent one at a time.
const SINGLE: usize = 5000;
/// How often each query is repeated.
const TIMES: usize = 15;
/// How long servers are fed in real time, until they forget what they remember for reconnects.
const SETTLING: Duration = Duration::from_secs(720);

/// The measurements of one server.
#[derive(Default)]
struct Figures {
    /// Flows per second of elapsed time, and per second of processor time.
    rate: f64,
    processor_rate: f64,
    memory: f64,
    /// Flows per second when sent one at a time.
    single: f64,
    /// Median times of queries in milliseconds.
    questions: Vec<(&'static str, f64)>,
}

/// Our server, and Calico's if available.
async fn servers() -> Result<Vec<Server>> {
    let mut servers = vec![Server::ours().await?];
    servers.extend(Server::calicos().await?);
    Ok(servers)
}

/// Fills an hour on one server after another, and queries it.
pub(crate) async fn measure(keys: usize, report: &mut Report) -> Result<()> {
    let flows = Flows::new(keys);
    let mut all = Vec::new();
    for server in servers().await? {
        let found = figures(&server, &flows).await?;
        println!(
            "{}: {:.0} flows/s, {:.0} per second of its processor time",
            server.name, found.rate, found.processor_rate
        );
        all.push(found);
    }
    let theirs = all.get(1);
    let of = |value: fn(&Figures) -> f64| (value(&all[0]), theirs.map(value));
    let mut row = |what: String, (ours, theirs): (f64, Option<f64>), unit: &str, goal: &str| {
        let digits = usize::from(ours < 1000.0 && !unit.is_empty());
        let compared = theirs.map_or("-".to_owned(), |theirs| format!("Calico: {theirs:.digits$}{unit}"));
        let ratio = theirs.map_or("-".to_owned(), |theirs| format!("{:.2}", ours / theirs));
        report.row(&what, &format!("{ours:.digits$}{unit}"), &compared, &ratio, goal);
    };
    row(format!("flows per second, {keys} keys, an hour at once"), of(|one| one.rate), "", "at least 5");
    row(
        format!("flows per second of the server's processor time, {keys} keys"),
        of(|one| one.processor_rate),
        "",
        "at least 5",
    );
    row(format!("flows per second, {keys} keys, one at a time"), of(|one| one.single), "", "");
    row(
        format!("memory of the process right after that, {keys} keys"),
        of(|one| one.memory),
        " MB",
        "at most 0.25",
    );
    for (place, (name, time)) in all[0].questions.iter().enumerate() {
        let theirs = theirs.and_then(|theirs| theirs.questions.get(place)).map(|(_, time)| *time);
        row(format!("{name}, {keys} keys: p50"), (*time, theirs), " ms", "");
    }
    Ok(())
}

/// The start of the current bucket.
fn bucket() -> i64 {
    now().div_euclid(INTERVAL) * INTERVAL
}

/// Fills the hour before now. Returns the number of flows, the time it took, and the server's processor time.
async fn fill(server: &Server, flows: &Flows, senders: &mut [Sender]) -> Result<(usize, f64, f64)> {
    let (end, mut count, mut time, before) = (bucket(), 0, 0.0, server.processor()?);
    for part in (0..BUCKETS).step_by(usize::try_from(PART)?) {
        // Connections fill different buckets, as nodes send different flows.
        let starts = (part..(part + PART).min(BUCKETS)).map(|number| end - (BUCKETS - number) * INTERVAL);
        let starts: Vec<i64> = starts.collect();
        let mut streams = Vec::new();
        for mine in starts.chunks(starts.len().div_ceil(senders.len())) {
            streams.push(Stream::of(flows, mine.iter().copied()));
        }
        count += streams.iter().map(Stream::flows).sum::<usize>();
        let begin = Instant::now();
        send_all(senders, streams).await?;
        time += begin.elapsed().as_secs_f64();
    }
    Ok((count, time, server.processor()? - before))
}

async fn connections(server: &Server) -> Result<Vec<Sender>> {
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        senders.push(Sender::connect(server).await?);
    }
    Ok(senders)
}

async fn figures(server: &Server, flows: &Flows) -> Result<Figures> {
    let mut senders = connections(server).await?;
    let (count, time, processor) = fill(server, flows, &mut senders).await?;
    let memory = server.memory()?;
    let channel = server.channel().await?;
    let questions = questions(server, channel.clone(), flows.len()).await?;
    let single = single(channel, flows).await?;
    Ok(Figures {
        rate: count as f64 / time,
        processor_rate: count as f64 / processor.max(0.01),
        memory,
        single,
        questions,
    })
}

async fn questions(server: &Server, channel: Channel, keys: usize) -> Result<Vec<(&'static str, f64)>> {
    let mut client = FlowsClient::new(channel.clone()).max_decoding_message_size(256 << 20);
    let mut statistics = StatisticsClient::new(channel);
    let all = client.list(FlowListRequest::default()).await?.into_inner();
    ensure!(all.flows.len() == keys, "{} has {} of {keys} keys", server.name, all.flows.len());
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..TIMES {
        let begin = Instant::now();
        let page = FlowListRequest { page_size: 100, ..FlowListRequest::default() };
        ensure!(client.list(page).await?.into_inner().flows.len() == 100, "a page of flows");
        times[0].push(begin.elapsed().as_secs_f64() * 1e3);
        let begin = Instant::now();
        let request = FilterHintsRequest {
            r#type: FilterType::SourceName.into(),
            page_size: 100,
            ..FilterHintsRequest::default()
        };
        ensure!(!client.filter_hints(request).await?.into_inner().hints.is_empty(), "hints");
        times[1].push(begin.elapsed().as_secs_f64() * 1e3);
        let begin = Instant::now();
        let request = StatisticsRequest {
            start_time_gte: -3000,
            r#type: StatisticType::PacketCount.into(),
            group_by: StatisticsGroupBy::PolicyRule.into(),
            time_series: true,
            ..StatisticsRequest::default()
        };
        let mut found = statistics.list(request).await?.into_inner();
        let mut count = 0;
        while found.message().await?.is_some() {
            count += 1;
        }
        ensure!(count > 100, "{} has statistics of {count} rules", server.name);
        times[2].push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let names = [
        "a page of 100 flows of the hour, by time",
        "a page of 100 hints of names",
        "statistics of all rules over 50 minutes, as series",
    ];
    Ok(names.into_iter().zip(times.map(testkit::median)).collect())
}

/// Sends flows one at a time, each after the previous one's receipt, as Calico's nodes do.
async fn single(channel: Channel, flows: &Flows) -> Result<f64> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut updates = flows.of(bucket()).take(SINGLE + 1);
    // Calico's server sends no headers before the first receipt.
    sender.send(updates.next().context("a flow")?).await?;
    let mut receipts = FlowCollectorClient::new(channel).connect(stream).await?.into_inner();
    ensure!(receipts.message().await?.is_some(), "a receipt for every flow");
    let updates: Vec<_> = updates.collect();
    let (count, begin) = (updates.len(), Instant::now());
    for update in updates {
        sender.send(update).await?;
        ensure!(receipts.message().await?.is_some(), "a receipt for every flow");
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

/// The memory of servers that have been fed in real time after a whole hour at once.
pub(crate) async fn settled(report: &mut Report) -> Result<()> {
    let flows = Flows::new(10_000);
    let servers = servers().await?;
    let mut senders = Vec::new();
    for server in &servers {
        let mut mine = connections(server).await?;
        fill(server, &flows, &mut mine).await?;
        senders.push(mine);
    }
    let (begin, mut next) = (Instant::now(), bucket());
    while begin.elapsed() < SETTLING {
        while next <= bucket() - INTERVAL {
            for mine in &mut senders {
                send_all(mine, vec![Stream::of(&flows, [next])]).await?;
            }
            next += INTERVAL;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let ours = servers[0].memory()?;
    let theirs = servers.get(1).map(Server::memory).transpose()?;
    report.row(
        "memory of the process, 10000 keys, after an hour and twelve minutes of real time",
        &format!("{ours:.1} MB"),
        &theirs.map_or("-".to_owned(), |theirs| format!("Calico: {theirs:.1} MB")),
        &theirs.map_or("-".to_owned(), |theirs| format!("{:.2}", ours / theirs)),
        "at most 0.25",
    );
    Ok(())
}
