//! Runs one script of requests against real etcd and our server; every answer is recorded as text and the two records
//! must be equal. Only what names the server is left out.

use std::fmt::{Debug, Write as _};

use anyhow::{Context, Result};
use bytes::Bytes;
use etcd_api::{
    Client,
    etcdserverpb::{
        self as pb, Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
        WatchCreateRequest, WatchRequest, WatchResponse,
        compare::{CompareResult, CompareTarget, TargetUnion},
        range_request::{SortOrder, SortTarget},
        request_op, response_op,
        watch_create_request::FilterType,
        watch_request::RequestUnion,
    },
    mvccpb::{Event, KeyValue, event::EventType},
};
use futures::StreamExt as _;
use testkit::Etcd;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

use crate::support::{Server, block_on, connect};

#[derive(Default)]
struct Journal {
    text: String,
}

impl Journal {
    fn note(&mut self, what: &str, answer: impl Debug) {
        let _ = writeln!(self.text, "{what}: {answer:?}");
    }

    /// Records an answer, or the code and text of its refusal.
    fn take<T>(
        &mut self,
        what: &str,
        answer: Result<Response<T>, Status>,
        describe: impl FnOnce(T) -> String,
    ) {
        let text = match answer {
            Ok(answer) => describe(answer.into_inner()),
            Err(status) => format!("refused: {:?} {:?}", status.code(), status.message()),
        };
        let _ = writeln!(self.text, "{what}: {text}");
    }
}

// ---- Requests

fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), ..PutRequest::default() }
}

fn get(key: &'static str) -> RangeRequest {
    RangeRequest { key: key.into(), ..RangeRequest::default() }
}

fn get_prefix(prefix: &'static str) -> RangeRequest {
    let (key, range_end) = kvstore_engine::prefix_range(prefix.into());
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

fn delete(key: &'static str) -> DeleteRangeRequest {
    DeleteRangeRequest { key: key.into(), ..DeleteRangeRequest::default() }
}

fn step(request: impl Into<Step>) -> RequestOp {
    RequestOp { request: Some(request.into().0) }
}

/// Lets every kind of request be a step of a transaction.
struct Step(request_op::Request);

impl From<PutRequest> for Step {
    fn from(request: PutRequest) -> Self {
        Self(request_op::Request::RequestPut(request))
    }
}

impl From<RangeRequest> for Step {
    fn from(request: RangeRequest) -> Self {
        Self(request_op::Request::RequestRange(request))
    }
}

impl From<DeleteRangeRequest> for Step {
    fn from(request: DeleteRangeRequest) -> Self {
        Self(request_op::Request::RequestDeleteRange(request))
    }
}

impl From<TxnRequest> for Step {
    fn from(request: TxnRequest) -> Self {
        Self(request_op::Request::RequestTxn(request))
    }
}

fn compare(key: &'static str, result: CompareResult, with: TargetUnion) -> Compare {
    let target = match with {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        key: key.into(),
        range_end: Bytes::new(),
        target: target.into(),
        result: result.into(),
        target_union: Some(with),
    }
}

fn when(compare: Vec<Compare>, success: Vec<RequestOp>, failure: Vec<RequestOp>) -> TxnRequest {
    TxnRequest { compare, success, failure }
}

// ---- Answers

fn revision(header: Option<&pb::ResponseHeader>) -> Option<i64> {
    header.map(|header| header.revision)
}

fn kv(kv: &KeyValue) -> String {
    let (key, value) = (String::from_utf8_lossy(&kv.key), String::from_utf8_lossy(&kv.value));
    let numbers = (kv.create_revision, kv.mod_revision, kv.version, kv.lease);
    // Long values are shown by their length.
    if value.len() > 40 {
        format!("{key}=({} bytes){numbers:?}", value.len())
    } else {
        format!("{key}={value}{numbers:?}")
    }
}

fn kvs(all: &[KeyValue]) -> Vec<String> {
    all.iter().map(kv).collect()
}

fn got(answer: &pb::RangeResponse) -> String {
    let revision = revision(answer.header.as_ref());
    format!("{revision:?} {:?} more={} count={}", kvs(&answer.kvs), answer.more, answer.count)
}

fn written(answer: &pb::PutResponse) -> String {
    format!("{:?} {:?}", revision(answer.header.as_ref()), answer.prev_kv.as_ref().map(kv))
}

fn deleted(answer: &pb::DeleteRangeResponse) -> String {
    format!("{:?} {} {:?}", revision(answer.header.as_ref()), answer.deleted, kvs(&answer.prev_kvs))
}

fn done(answer: &pb::TxnResponse) -> String {
    use response_op::Response;
    let parts: Vec<String> = answer
        .responses
        .iter()
        .map(|response| match &response.response {
            Some(Response::ResponsePut(it)) => written(it),
            Some(Response::ResponseRange(it)) => got(it),
            Some(Response::ResponseDeleteRange(it)) => deleted(it),
            Some(Response::ResponseTxn(it)) => done(it),
            None => "nothing".to_owned(),
        })
        .collect();
    format!("{:?} {} {parts:?}", revision(answer.header.as_ref()), answer.succeeded)
}

fn told(event: &Event) -> String {
    let kind = match event.r#type() {
        EventType::Put => "put",
        EventType::Delete => "delete",
    };
    format!("{kind} {:?} before {:?}", event.kv.as_ref().map(kv), event.prev_kv.as_ref().map(kv))
}

fn watched(answer: &WatchResponse) -> Result<String> {
    let events: Vec<String> = answer.decoded_events()?.iter().map(told).collect();
    let flags = (answer.watch_id, answer.created, answer.canceled, answer.compact_revision);
    Ok(format!("{flags:?} {:?} {events:?}", answer.cancel_reason))
}

// ---- The script

async fn keys(client: &mut Client, journal: &mut Journal) {
    let store = &mut client.kv;
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("ab", "4"), ("c", "5"), ("a", "6")] {
        journal.take("put", store.put(put(key, value)).await, |it| written(&it));
    }
    let puts = [
        ("prev", PutRequest { prev_kv: true, ..put("a", "7") }),
        ("ignore value", PutRequest { ignore_value: true, ..put("a", "") }),
        ("ignore value", PutRequest { ignore_value: true, ..put("a", "x") }),
        ("ignore value", PutRequest { ignore_value: true, ..put("zz", "") }),
        ("ignore lease", PutRequest { ignore_lease: true, ..put("a", "8") }),
        ("ignore lease", PutRequest { ignore_lease: true, lease: 5, ..put("a", "8") }),
        ("ignore lease", PutRequest { ignore_lease: true, ..put("zz", "8") }),
        ("no lease", PutRequest { lease: 5, ..put("a", "8") }),
        ("empty key", put("", "8")),
        ("empty value", put("empty", "")),
    ];
    for (what, request) in puts {
        journal.take(what, store.put(request).await, |it| written(&it));
    }

    let all = || get_prefix("");
    let to = |end: &'static str| RangeRequest { range_end: end.into(), ..get("a") };
    let ranges = [
        ("all", all()),
        ("prefix", get_prefix("a")),
        ("from", to("\0")),
        ("range", to("b")),
        ("empty range", to("a")),
        ("backward range", to("A")),
        ("limit", RangeRequest { limit: 2, ..all() }),
        ("large limit", RangeRequest { limit: 100, ..all() }),
        ("negative limit", RangeRequest { limit: -1, ..all() }),
        ("keys", RangeRequest { keys_only: true, ..all() }),
        ("count", RangeRequest { count_only: true, ..all() }),
        ("count of a limit", RangeRequest { count_only: true, limit: 1, ..all() }),
        ("serializable", RangeRequest { serializable: true, ..all() }),
        ("revision", RangeRequest { revision: 4, ..all() }),
        ("revision and limit", RangeRequest { revision: 5, limit: 1, ..all() }),
        ("first revision", RangeRequest { revision: 1, ..all() }),
        ("future", RangeRequest { revision: 100, ..all() }),
        ("negative revision", RangeRequest { revision: -5, ..all() }),
        ("min mod", RangeRequest { min_mod_revision: 5, ..all() }),
        ("max mod", RangeRequest { max_mod_revision: 5, ..all() }),
        ("min create", RangeRequest { min_create_revision: 5, ..all() }),
        ("max create", RangeRequest { max_create_revision: 5, ..all() }),
        ("filter and limit", RangeRequest { min_mod_revision: 4, limit: 1, ..all() }),
    ];
    for (what, request) in ranges {
        journal.take(what, store.range(request).await, |it| got(&it));
    }
    let targets =
        [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value];
    for target in targets {
        for order in [SortOrder::None, SortOrder::Ascend, SortOrder::Descend] {
            // Where the order is ambiguous, etcd's order among equals is undefined: versions are compared without keys.
            let request = RangeRequest { sort_target: target.into(), sort_order: order.into(), ..all() };
            journal.take(&format!("{target:?} {order:?}"), store.range(request).await, |it| match target {
                SortTarget::Version => {
                    format!("{:?}", it.kvs.iter().map(|kv| kv.version).collect::<Vec<_>>())
                }
                _ => got(&it),
            });
        }
    }
    journal.take("empty key", store.range(get("")).await, |it| got(&it));
    let (key, range_end) = kvstore_engine::prefix_range("a".into());
    let deletions = [
        ("delete", delete("b")),
        ("delete again", delete("b")),
        ("delete prefix", DeleteRangeRequest { key, range_end, prev_kv: true }),
        ("delete nothing", delete("")),
    ];
    for (what, request) in deletions {
        journal.take(what, store.delete_range(request).await, |it| deleted(&it));
    }
    journal.take("put again", store.put(put("a", "new")).await, |it| written(&it));
    journal.take("old", store.range(RangeRequest { revision: 8, ..get("a") }).await, |it| got(&it));
}

async fn txns(client: &mut Client, journal: &mut Journal) {
    let store = &mut client.kv;
    store.put(put("t", "1")).await.ok();
    store.put(put("t", "2")).await.ok();
    let results =
        [CompareResult::Equal, CompareResult::Greater, CompareResult::Less, CompareResult::NotEqual];
    for result in results {
        for key in ["t", "missing"] {
            for number in [0, 1, 2, 3] {
                for with in [
                    TargetUnion::Version(number),
                    TargetUnion::CreateRevision(number),
                    TargetUnion::ModRevision(number),
                    TargetUnion::Lease(number),
                    TargetUnion::Value(number.to_string().into()),
                ] {
                    let request = when(vec![compare(key, result, with)], vec![], vec![]);
                    journal.take(&format!("{result:?} {key} {number}"), store.txn(request).await, |it| {
                        done(&it)
                    });
                }
            }
        }
    }
    let range =
        Compare { range_end: "z".into(), ..compare("t", CompareResult::Greater, TargetUnion::Version(0)) };
    let request = when(
        vec![range, compare("t", CompareResult::Equal, TargetUnion::Value("2".into()))],
        vec![
            step(get("t")),
            step(PutRequest { prev_kv: true, ..put("t1", "x") }),
            step(get_prefix("t")),
            step(put("t2", "y")),
            step(DeleteRangeRequest { prev_kv: true, ..delete("t") }),
            step(when(
                // Conditions see the state before the transaction: t1 does not exist yet.
                vec![compare("t1", CompareResult::Equal, TargetUnion::Version(0))],
                vec![step(put("t3", "inner")), step(get("t1"))],
                vec![step(put("t4", "wrong"))],
            )),
            step(RangeRequest { count_only: true, ..get_prefix("t") }),
        ],
        vec![step(put("t5", "wrong"))],
    );
    journal.take("nested", store.txn(request).await, |it| done(&it));
    let refused = [
        ("put twice", vec![step(put("d", "1")), step(put("d", "2"))]),
        ("put and delete", vec![step(delete("d")), step(put("d", "2"))]),
        (
            "put, then delete a range",
            vec![step(put("d", "1")), step(DeleteRangeRequest { range_end: "z".into(), ..delete("a") })],
        ),
        ("delete twice", vec![step(delete("d")), step(delete("d"))]),
        ("empty key", vec![step(put("", "1"))]),
        ("future read", vec![step(put("f", "1")), step(RangeRequest { revision: 10_000, ..get("f") })]),
        ("missing lease", vec![step(PutRequest { lease: 4711, ..put("f", "1") })]),
        ("too many", (0..129).map(|number| step(put(format!("m{number}"), ""))).collect()),
        ("just enough", (0..128).map(|number| step(put(format!("m{number:03}"), ""))).collect()),
        (
            "nested duplicate",
            vec![step(put("n", "1")), step(when(vec![], vec![], vec![step(put("n", "2"))]))],
        ),
        (
            "exclusive duplicate",
            vec![step(when(vec![], vec![step(put("n", "1"))], vec![step(put("n", "2"))]))],
        ),
    ];
    for (what, steps) in refused {
        journal.take(what, store.txn(when(vec![], steps, vec![])).await, |it| done(&it));
    }
    journal.take("empty", store.txn(TxnRequest::default()).await, |it| done(&it));
    for size in [1_000_000, 1_572_000, 1_573_000] {
        let request = put("large", vec![b'x'; size]);
        journal.take(&format!("{size} bytes"), store.put(request).await, |it| written(&it));
    }
}

async fn leases(client: &mut Client, journal: &mut Journal) -> Result<()> {
    for (ttl, id) in [(100, 1), (100, 1), (1, 2), (0, 3), (-5, 4), (9_000_000_001, 5)] {
        let request = pb::LeaseGrantRequest { ttl, id };
        journal.take(&format!("grant {ttl} {id}"), client.lease.lease_grant(request).await, |it| {
            format!("{} {}", it.id, it.ttl)
        });
    }
    for request in [
        PutRequest { lease: 1, ..put("l1", "x") },
        PutRequest { lease: 1, ..put("l2", "x") },
        put("l2", "y"),
        PutRequest { lease: 1, ..put("l3", "y") },
        PutRequest { ignore_lease: true, ..put("l3", "z") },
    ] {
        client.kv.put(request).await?;
    }
    for id in [1, 99] {
        let request = pb::LeaseTimeToLiveRequest { id, keys: true };
        journal.take("time to live", client.lease.lease_time_to_live(request).await, |it| {
            let mut keys: Vec<_> = it.keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
            // etcd returns them in no particular order.
            keys.sort();
            // The remaining time may have ticked.
            format!("{} {} {} {keys:?}", it.id, it.ttl < 0, it.granted_ttl)
        });
        let requests = futures::stream::iter([pb::LeaseKeepAliveRequest { id }]);
        let kept = match client.lease.lease_keep_alive(requests.chain(futures::stream::pending())).await {
            Ok(answers) => answers.into_inner().message().await,
            Err(status) => Err(status),
        };
        journal
            .take("keep alive", kept.map(Response::new), |it| format!("{:?}", it.map(|it| (it.id, it.ttl))));
    }
    journal.take("leases", client.lease.lease_leases(pb::LeaseLeasesRequest {}).await, |it| {
        format!("{:?}", it.leases.iter().map(|lease| lease.id).min())
    });
    for what in ["revoke", "revoke again"] {
        let request = pb::LeaseRevokeRequest { id: 1 };
        journal.take(what, client.lease.lease_revoke(request).await, |it| {
            format!("{:?}", revision(it.header.as_ref()))
        });
    }
    journal.take("left", client.kv.range(get_prefix("l")).await, |it| got(&it));
    Ok(())
}

/// A stream of watch requests, opened with one.
struct Watching {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
}

impl Watching {
    async fn start(client: &mut Client, create: WatchCreateRequest) -> Result<Self> {
        let (requests, receiver) = mpsc::channel(8);
        requests.send(WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }).await?;
        let answers = client.watch.watch(ReceiverStream::new(receiver)).await?.into_inner();
        Ok(Self { requests, answers })
    }

    /// The next message other than the confirmation of the watch.
    async fn next(&mut self) -> Result<WatchResponse> {
        loop {
            let message = self.answers.message().await?.context("the watch ended")?;
            if !message.created || message.canceled {
                return Ok(message);
            }
        }
    }

    async fn cancel(&self, watch_id: i64) -> Result<()> {
        let cancel = RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id });
        Ok(self.requests.send(WatchRequest { request_union: Some(cancel) }).await?)
    }
}

async fn watches(client: &mut Client, journal: &mut Journal) -> Result<()> {
    let first = client.kv.put(put("w1", "0")).await?.into_inner();
    let start_revision = first.header.context("no header")?.revision;
    client.kv.put(put("w2", "1")).await?;
    client.kv.put(put("w1", "2")).await?;
    client.kv.delete_range(delete("w2")).await?;
    let steps = [("w1", "3"), ("w3", "4"), ("other", "5")].map(|(key, value)| step(put(key, value)));
    client.kv.txn(when(vec![], steps.to_vec(), vec![])).await?;
    let from = |key: &'static str| WatchCreateRequest {
        key: key.into(),
        start_revision,
        prev_kv: true,
        ..WatchCreateRequest::default()
    };
    let from_prefix = || {
        let (key, range_end) = kvstore_engine::prefix_range("w".into());
        WatchCreateRequest { key, range_end, ..from("w") }
    };
    for (what, wanted, create) in [
        ("history of a key", 3, from("w1")),
        ("history of a prefix", 5, from_prefix()),
        (
            "only deletions",
            1,
            WatchCreateRequest { filters: vec![FilterType::Noput.into()], ..from_prefix() },
        ),
        ("only puts", 4, WatchCreateRequest { filters: vec![FilterType::Nodelete.into()], ..from_prefix() }),
        ("chosen id", 5, WatchCreateRequest { watch_id: 42, ..from_prefix() }),
        ("empty range", 5, WatchCreateRequest { range_end: "a".into(), ..from("w") }),
    ] {
        let mut stream = Watching::start(client, create).await?;
        let mut heard = Vec::new();
        // Every watch of the history ends with the same transaction.
        while heard.len() < wanted {
            let message = stream.next().await?;
            if message.canceled {
                heard.push(watched(&message)?);
                break;
            }
            heard.extend(message.decoded_events()?.iter().map(told));
        }
        journal.note(what, heard);
    }
    // Live, with a cancellation after it.
    let (key, range_end) = kvstore_engine::prefix_range("live".into());
    let create = WatchCreateRequest { key, range_end, ..WatchCreateRequest::default() };
    let mut stream = Watching::start(client, create).await?;
    client.kv.put(put("live1", "a")).await?;
    let message = stream.next().await?;
    journal.note("live", watched(&message)?);
    stream.cancel(message.watch_id).await?;
    // etcd sometimes sends an event twice when the machine is busy; the cancellation comes after.
    let message = loop {
        let message = stream.next().await?;
        if message.canceled {
            break message;
        }
    };
    journal.note("cancelled", watched(&message)?);
    Ok(())
}

async fn compaction(client: &mut Client, journal: &mut Journal) -> Result<()> {
    let now = client.kv.put(put("k", "1")).await?.into_inner().header.context("no header")?.revision;
    client.kv.put(put("k", "2")).await?;
    client.kv.delete_range(delete("k")).await?;
    client.kv.put(put("k", "3")).await?;
    for at in [now + 1, now + 1, now, 0, -1, 1_000_000] {
        let request = pb::CompactionRequest { revision: at, physical: true };
        journal.take(&format!("compact {}", at - now), client.kv.compact(request).await, |it| {
            format!("{:?}", revision(it.header.as_ref()))
        });
    }
    for revision in [now, now + 1, now + 2, now + 3, 0] {
        let request = RangeRequest { revision, ..get("k") };
        journal.take(&format!("read {}", revision - now), client.kv.range(request).await, |it| got(&it));
    }
    let from = |start_revision| WatchCreateRequest {
        key: "k".into(),
        start_revision,
        ..WatchCreateRequest::default()
    };
    let message = Watching::start(client, from(now)).await?.next().await?;
    journal.note("watch the compacted", watched(&message)?);
    let request = when(vec![], vec![step(RangeRequest { revision: now, ..get("k") })], vec![]);
    journal.take("transaction on the compacted", client.kv.txn(request).await, |it| done(&it));
    let mut stream = Watching::start(client, from(now + 1)).await?;
    let mut heard = Vec::new();
    while heard.len() < 3 {
        heard.extend(stream.next().await?.decoded_events()?.iter().map(told));
    }
    journal.note("watch from the compaction on", heard);
    journal.take("all", client.kv.range(get_prefix("")).await, |it| got(&it));
    for (what, revision) in [("hash", 0), ("hash of the compacted", now)] {
        let request = pb::HashKvRequest { revision };
        journal.take(what, client.maintenance.hash_kv(request).await, |it| {
            format!("{} {}", it.hash, it.compact_revision)
        });
    }
    Ok(())
}

async fn record(endpoint: String) -> Result<String> {
    let mut client = connect(&endpoint).await?;
    let mut journal = Journal::default();
    keys(&mut client, &mut journal).await;
    txns(&mut client, &mut journal).await;
    leases(&mut client, &mut journal).await.context("leases")?;
    watches(&mut client, &mut journal).await.context("watches")?;
    compaction(&mut client, &mut journal).await.context("compaction")?;
    Ok(journal.text)
}

#[test]
fn answers_equal_etcds() -> Result<()> {
    let etcd = Etcd::start()?;
    let server = Server::start(&[])?;
    let theirs = block_on(record(etcd.endpoint())).context("on etcd")?;
    let ours = block_on(record(server.endpoint())).context("on our server")?;
    assert!(theirs.lines().count() > 250, "the script broke off:\n{theirs}");
    let differences: Vec<String> = theirs
        .lines()
        .zip(ours.lines())
        .filter(|(theirs, ours)| theirs != ours)
        .map(|(theirs, ours)| format!("etcd: {theirs}\nours: {ours}"))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(theirs.lines().count(), ours.lines().count());
    Ok(())
}
