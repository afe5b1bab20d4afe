//! One script of requests through the etcd-client crate, on real etcd and on our server; every answer is written down as text and the two
//! records must be equal. What names the server is left out, nothing else.

use std::fmt::{Debug, Write as _};

use anyhow::{Context, Result};
use etcd_client::{
    Client, CompactionOptions, Compare, CompareOp, DeleteOptions, Error, EventType, GetOptions, KeyValue,
    LeaseGrantOptions, LeaseTimeToLiveOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    TxnResponse, WatchFilterType, WatchOptions, WatchResponse,
};
use testkit::Etcd;

use crate::support::{Server, block_on};

#[derive(Default)]
struct Journal {
    text: String,
}

impl Journal {
    fn note(&mut self, what: &str, answer: impl Debug) {
        let _ = writeln!(self.text, "{what}: {answer:?}");
    }

    /// Notes an answer, or the code and text of its refusal.
    fn take<T>(&mut self, what: &str, answer: Result<T, Error>, describe: impl FnOnce(T) -> String) {
        let text = match answer {
            Ok(answer) => describe(answer),
            Err(Error::GRpcStatus(status)) => format!("refused: {:?} {:?}", status.code(), status.message()),
            Err(other) => format!("failed: {other}"),
        };
        let _ = writeln!(self.text, "{what}: {text}");
    }
}

fn kv(kv: &KeyValue) -> String {
    let (key, value) = (String::from_utf8_lossy(kv.key()), String::from_utf8_lossy(kv.value()));
    let numbers = (kv.create_revision(), kv.mod_revision(), kv.version(), kv.lease());
    // Long values are told by their length.
    if value.len() > 40 {
        format!("{key}=({} bytes){numbers:?}", value.len())
    } else {
        format!("{key}={value}{numbers:?}")
    }
}

fn kvs(all: &[KeyValue]) -> Vec<String> {
    all.iter().map(kv).collect()
}

fn got(answer: &etcd_client::GetResponse) -> String {
    let revision = answer.header().map(etcd_client::ResponseHeader::revision);
    format!("{revision:?} {:?} more={} count={}", kvs(answer.kvs()), answer.more(), answer.count())
}

fn put(answer: &etcd_client::PutResponse) -> String {
    format!(
        "{:?} {:?}",
        answer.header().map(etcd_client::ResponseHeader::revision),
        answer.prev_key().map(kv)
    )
}

fn deleted(answer: &etcd_client::DeleteResponse) -> String {
    let revision = answer.header().map(etcd_client::ResponseHeader::revision);
    format!("{revision:?} {} {:?}", answer.deleted(), kvs(answer.prev_kvs()))
}

fn txn(answer: &TxnResponse) -> String {
    let parts: Vec<String> = answer
        .op_responses()
        .iter()
        .map(|response| match response {
            TxnOpResponse::Put(it) => put(it),
            TxnOpResponse::Get(it) => got(it),
            TxnOpResponse::Delete(it) => deleted(it),
            TxnOpResponse::Txn(it) => txn(it),
        })
        .collect();
    let revision = answer.header().map(etcd_client::ResponseHeader::revision);
    format!("{revision:?} {} {parts:?}", answer.succeeded())
}

fn watched(answer: &WatchResponse) -> String {
    let events: Vec<String> = answer
        .events()
        .iter()
        .map(|event| {
            let kind = match event.event_type() {
                EventType::Put => "put",
                EventType::Delete => "delete",
            };
            format!("{kind} {:?} before {:?}", event.kv().map(kv), event.prev_kv().map(kv))
        })
        .collect();
    let flags = (answer.watch_id(), answer.created(), answer.canceled(), answer.compact_revision());
    format!("{flags:?} {:?} {events:?}", answer.cancel_reason())
}

async fn keys(client: &mut Client, journal: &mut Journal) {
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("ab", "4"), ("c", "5"), ("a", "6")] {
        journal.take("put", client.put(key, value, None).await, |it| put(&it));
    }
    journal.take("prev", client.put("a", "7", Some(PutOptions::new().with_prev_key())).await, |it| put(&it));
    let keep = PutOptions::new().with_ignore_value();
    journal.take("ignore value", client.put("a", "", Some(keep.clone())).await, |it| put(&it));
    journal.take("ignore value", client.put("a", "x", Some(keep.clone())).await, |it| put(&it));
    journal.take("ignore value", client.put("zz", "", Some(keep)).await, |it| put(&it));
    let keep = PutOptions::new().with_ignore_lease();
    journal.take("ignore lease", client.put("a", "8", Some(keep.clone())).await, |it| put(&it));
    journal.take("ignore lease", client.put("a", "8", Some(keep.clone().with_lease(5))).await, |it| put(&it));
    journal.take("ignore lease", client.put("zz", "8", Some(keep)).await, |it| put(&it));
    journal
        .take("no lease", client.put("a", "8", Some(PutOptions::new().with_lease(5))).await, |it| put(&it));
    journal.take("empty key", client.put("", "8", None).await, |it| put(&it));
    journal.take("empty value", client.put("empty", "", None).await, |it| put(&it));

    let all = || GetOptions::new().with_all_keys();
    let options = [
        ("all", all()),
        ("prefix", GetOptions::new().with_prefix()),
        ("from", GetOptions::new().with_from_key()),
        ("range", GetOptions::new().with_range("b")),
        ("empty range", GetOptions::new().with_range("a")),
        ("backward range", GetOptions::new().with_range("A")),
        ("limit", all().with_limit(2)),
        ("large limit", all().with_limit(100)),
        ("negative limit", all().with_limit(-1)),
        ("keys", all().with_keys_only()),
        ("count", all().with_count_only()),
        ("count of a limit", all().with_count_only().with_limit(1)),
        ("serializable", all().with_serializable()),
        ("revision", all().with_revision(4)),
        ("revision and limit", all().with_revision(5).with_limit(1)),
        ("first revision", all().with_revision(1)),
        ("future", all().with_revision(100)),
        ("negative revision", all().with_revision(-5)),
        ("min mod", all().with_min_mod_revision(5)),
        ("max mod", all().with_max_mod_revision(5)),
        ("min create", all().with_min_create_revision(5)),
        ("max create", all().with_max_create_revision(5)),
        ("filter and limit", all().with_min_mod_revision(4).with_limit(1)),
    ];
    for (what, options) in options {
        journal.take(what, client.get("a", Some(options)).await, |it| got(&it));
    }
    let targets =
        [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value];
    for target in targets {
        for order in [SortOrder::None, SortOrder::Ascend, SortOrder::Descend] {
            // Where it is not unique, etcd's order among equals is not defined: versions are told without keys.
            let options = all().with_sort(target, order);
            journal.take(&format!("{target:?} {order:?}"), client.get("a", Some(options)).await, |it| {
                match target {
                    SortTarget::Version => {
                        format!("{:?}", it.kvs().iter().map(KeyValue::version).collect::<Vec<_>>())
                    }
                    _ => got(&it),
                }
            });
        }
    }
    journal.take("empty key", client.get("", None).await, |it| got(&it));
    journal.take("delete", client.delete("b", None).await, |it| deleted(&it));
    journal.take("delete again", client.delete("b", None).await, |it| deleted(&it));
    let before = DeleteOptions::new().with_prefix().with_prev_key();
    journal.take("delete prefix", client.delete("a", Some(before)).await, |it| deleted(&it));
    journal.take("delete nothing", client.delete("", None).await, |it| deleted(&it));
    journal.take("put again", client.put("a", "new", None).await, |it| put(&it));
    journal.take("old", client.get("a", Some(GetOptions::new().with_revision(8))).await, |it| got(&it));
}

async fn txns(client: &mut Client, journal: &mut Journal) {
    client.put("t", "1", None).await.ok();
    client.put("t", "2", None).await.ok();
    let ops = [CompareOp::Equal, CompareOp::Greater, CompareOp::Less, CompareOp::NotEqual];
    for op in ops {
        for key in ["t", "missing"] {
            for number in [0, 1, 2, 3] {
                for compare in [
                    Compare::version(key, op, number),
                    Compare::create_revision(key, op, number),
                    Compare::mod_revision(key, op, number),
                    Compare::lease(key, op, number),
                    Compare::value(key, op, number.to_string()),
                ] {
                    let request = Txn::new().when([compare]);
                    journal.take(&format!("{op:?} {key} {number}"), client.txn(request).await, |it| txn(&it));
                }
            }
        }
    }
    let range = Compare::version("t", CompareOp::Greater, 0).with_range("z");
    let request = Txn::new()
        .when([range, Compare::value("t", CompareOp::Equal, "2")])
        .and_then([
            TxnOp::get("t", None),
            TxnOp::put("t1", "x", Some(PutOptions::new().with_prev_key())),
            TxnOp::get("t", Some(GetOptions::new().with_prefix())),
            TxnOp::put("t2", "y", None),
            TxnOp::delete("t", Some(DeleteOptions::new().with_prev_key())),
            TxnOp::txn(
                Txn::new()
                    // Decided on the state before: t1 is not there yet.
                    .when([Compare::version("t1", CompareOp::Equal, 0)])
                    .and_then([TxnOp::put("t3", "inner", None), TxnOp::get("t1", None)])
                    .or_else([TxnOp::put("t4", "wrong", None)]),
            ),
            TxnOp::get("t", Some(GetOptions::new().with_prefix().with_count_only())),
        ])
        .or_else([TxnOp::put("t5", "wrong", None)]);
    journal.take("nested", client.txn(request).await, |it| txn(&it));
    let refused = [
        ("put twice", vec![TxnOp::put("d", "1", None), TxnOp::put("d", "2", None)]),
        ("put and delete", vec![TxnOp::delete("d", None), TxnOp::put("d", "2", None)]),
        (
            "put, then delete a range",
            vec![TxnOp::put("d", "1", None), TxnOp::delete("a", Some(DeleteOptions::new().with_range("z")))],
        ),
        ("delete twice", vec![TxnOp::delete("d", None), TxnOp::delete("d", None)]),
        ("empty key", vec![TxnOp::put("", "1", None)]),
        (
            "future read",
            vec![TxnOp::put("f", "1", None), TxnOp::get("f", Some(GetOptions::new().with_revision(10_000)))],
        ),
        ("missing lease", vec![TxnOp::put("f", "1", Some(PutOptions::new().with_lease(4711)))]),
        ("too many", (0..129).map(|number| TxnOp::put(format!("m{number}"), "", None)).collect()),
        ("just enough", (0..128).map(|number| TxnOp::put(format!("m{number:03}"), "", None)).collect()),
        (
            "nested duplicate",
            vec![TxnOp::put("n", "1", None), TxnOp::txn(Txn::new().or_else([TxnOp::put("n", "2", None)]))],
        ),
        (
            "exclusive duplicate",
            vec![TxnOp::txn(
                Txn::new().and_then([TxnOp::put("n", "1", None)]).or_else([TxnOp::put("n", "2", None)]),
            )],
        ),
    ];
    for (what, ops) in refused {
        journal.take(what, client.txn(Txn::new().and_then(ops)).await, |it| txn(&it));
    }
    journal.take("empty", client.txn(Txn::new()).await, |it| txn(&it));
    for size in [1_000_000, 1_572_000, 1_573_000] {
        journal
            .take(&format!("{size} bytes"), client.put("large", vec![b'x'; size], None).await, |it| put(&it));
    }
}

async fn leases(client: &mut Client, journal: &mut Journal) -> Result<()> {
    let grant = |id| Some(LeaseGrantOptions::new().with_id(id));
    for (ttl, id) in [(100, 1), (100, 1), (1, 2), (0, 3), (-5, 4), (9_000_000_001, 5)] {
        journal.take(&format!("grant {ttl} {id}"), client.lease_grant(ttl, grant(id)).await, |it| {
            format!("{} {}", it.id(), it.ttl())
        });
    }
    for key in ["l1", "l2"] {
        client.put(key, "x", Some(PutOptions::new().with_lease(1))).await?;
    }
    client.put("l2", "y", None).await?;
    client.put("l3", "y", Some(PutOptions::new().with_lease(1))).await?;
    client.put("l3", "z", Some(PutOptions::new().with_ignore_lease())).await?;
    for id in [1, 99] {
        let options = LeaseTimeToLiveOptions::new().with_keys();
        journal.take("time to live", client.lease_time_to_live(id, Some(options)).await, |it| {
            let mut keys: Vec<_> = it.keys().iter().map(|key| String::from_utf8_lossy(key)).collect();
            // etcd gives them in no particular order.
            keys.sort();
            // The time left may have ticked.
            format!("{} {} {} {keys:?}", it.id(), it.ttl() < 0, it.granted_ttl())
        });
        let kept = async {
            let (mut keeper, mut answers) = client.lease_keep_alive(id).await?;
            keeper.keep_alive().await?;
            answers.message().await
        };
        journal.take("keep alive", kept.await, |it| format!("{:?}", it.map(|it| (it.id(), it.ttl()))));
    }
    journal.take("leases", client.leases().await, |it| {
        format!("{:?}", it.leases().iter().map(etcd_client::LeaseStatus::id).min())
    });
    journal.take("revoke", client.lease_revoke(1).await, |it| {
        format!("{:?}", it.header().map(etcd_client::ResponseHeader::revision))
    });
    journal.take("revoke again", client.lease_revoke(1).await, |_| String::new());
    journal.take("left", client.get("l", Some(GetOptions::new().with_prefix())).await, |it| got(&it));
    Ok(())
}

async fn watches(client: &mut Client, journal: &mut Journal) -> Result<()> {
    let start = client.put("w1", "0", None).await?.header().context("no header")?.revision();
    client.put("w2", "1", None).await?;
    client.put("w1", "2", None).await?;
    client.delete("w2", None).await?;
    client
        .txn(Txn::new().and_then([
            TxnOp::put("w1", "3", None),
            TxnOp::put("w3", "4", None),
            TxnOp::put("other", "5", None),
        ]))
        .await?;
    let from = || WatchOptions::new().with_start_revision(start).with_prev_key();
    for (what, options) in [
        ("history of a key", from()),
        ("history of a prefix", from().with_prefix()),
        ("only deletions", from().with_prefix().with_filters([WatchFilterType::NoPut])),
        ("only puts", from().with_prefix().with_filters([WatchFilterType::NoDelete])),
        ("chosen id", from().with_prefix().with_watch_id(42)),
        ("empty range", from().with_range("a")),
    ] {
        let key = if what == "history of a key" { "w1" } else { "w" };
        let mut stream = client.watch(key, Some(options)).await?;
        // A deletion after the history, so that every watch ends on the same event.
        let mut told = Vec::new();
        loop {
            let message = stream.message().await?.context("the watch ended")?;
            if message.canceled() {
                told.push(watched(&message));
                break;
            }
            for event in message.events() {
                let kind = format!("{:?}", event.event_type());
                told.push(format!("{kind} {:?} {:?}", event.kv().map(kv), event.prev_kv().map(kv)));
            }
            let wanted = match what {
                "history of a key" => 3,
                "only deletions" => 1,
                "only puts" => 4,
                _ => 5,
            };
            if told.len() >= wanted {
                break;
            }
        }
        journal.note(what, told);
    }
    // Live, with a progress request after it.
    let mut stream = client.watch("live", Some(WatchOptions::new().with_prefix())).await?;
    client.put("live1", "a", None).await?;
    let message = stream.message().await?.context("the watch ended")?;
    journal.note("live", watched(&message));
    stream.cancel(message.watch_id()).await?;
    // etcd now and then tells an event twice when the machine is busy; the cancellation comes after.
    let message = loop {
        let message = stream.message().await?.context("the watch ended")?;
        if message.canceled() {
            break message;
        }
    };
    journal.note("cancelled", watched(&message));
    Ok(())
}

async fn compaction(client: &mut Client, journal: &mut Journal) -> Result<()> {
    let now = client.put("k", "1", None).await?.header().context("no header")?.revision();
    client.put("k", "2", None).await?;
    client.delete("k", None).await?;
    client.put("k", "3", None).await?;
    for revision in [now + 1, now + 1, now, 0, -1, 1_000_000] {
        let options = CompactionOptions::new().with_physical();
        journal.take(
            &format!("compact {}", revision - now),
            client.compact(revision, Some(options)).await,
            |it| format!("{:?}", it.header().map(etcd_client::ResponseHeader::revision)),
        );
    }
    for revision in [now, now + 1, now + 2, now + 3, 0] {
        let options = GetOptions::new().with_revision(revision);
        journal
            .take(&format!("read {}", revision - now), client.get("k", Some(options)).await, |it| got(&it));
    }
    let mut stream = client.watch("k", Some(WatchOptions::new().with_start_revision(now))).await?;
    let message = stream.message().await?.context("the watch ended")?;
    journal.note("watch the compacted", watched(&message));
    let request = Txn::new().and_then([TxnOp::get("k", Some(GetOptions::new().with_revision(now)))]);
    journal.take("transaction on the compacted", client.txn(request).await, |it| txn(&it));
    let mut stream = client.watch("k", Some(WatchOptions::new().with_start_revision(now + 1))).await?;
    let mut told = Vec::new();
    while told.len() < 3 {
        let message = stream.message().await?.context("the watch ended")?;
        told.extend(
            message.events().iter().map(|event| format!("{:?} {:?}", event.event_type(), event.kv().map(kv))),
        );
    }
    journal.note("watch from the compaction on", told);
    journal.take("all", client.get("", Some(GetOptions::new().with_all_keys())).await, |it| got(&it));
    journal.take("hash", client.hash_kv(0).await, |it| format!("{} {}", it.hash(), it.compact_version()));
    journal.take("hash of the compacted", client.hash_kv(now).await, |it| format!("{}", it.hash()));
    Ok(())
}

async fn record(endpoint: String) -> Result<String> {
    let mut client = Client::connect([endpoint], None).await?;
    let mut journal = Journal::default();
    keys(&mut client, &mut journal).await;
    txns(&mut client, &mut journal).await;
    leases(&mut client, &mut journal).await.context("leases")?;
    watches(&mut client, &mut journal).await.context("watches")?;
    compaction(&mut client, &mut journal).await.context("compaction")?;
    Ok(journal.text)
}

#[test]
fn every_answer_is_etcds() -> Result<()> {
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
