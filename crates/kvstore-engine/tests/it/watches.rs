//! Watches on the engine: history, live events, slow readers, compaction, whole revisions, progress.

use bytes::Bytes;
use kvstore_engine::{
    DeleteRangeRequest, EventKind, Op, PutRequest, Store, TxnRequest, WatchError, WatchMessage, WatchRequest,
};
use testkit::Folder;

use crate::support::{block_on, open};

async fn put(store: &Store, key: &str, value: &str) -> i64 {
    let request = PutRequest {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ..Default::default()
    };
    store.put(request).await.unwrap().revision
}

/// The next message as (watch, [(key, kind, revision)]).
async fn events(stream: &mut kvstore_engine::WatchStream) -> (i64, Vec<(String, EventKind, i64)>) {
    match stream.next().await.unwrap().unwrap() {
        WatchMessage::Events { watch_id, events, .. } => {
            let text = |event: &std::sync::Arc<kvstore_engine::SharedEvent>| {
                (String::from_utf8(event.kv.key.to_vec()).unwrap(), event.kind, event.kv.mod_revision)
            };
            (watch_id, events.iter().map(text).collect())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slow_reader_gets_everything_once_and_in_order() {
    let folder = Folder::new("slow").unwrap();
    block_on(async {
        let store = open(folder.path());
        let mut watch = store.watch(WatchRequest::prefix("k", 0)).unwrap();
        // Far more than the ring holds: the reader falls out of it.
        for number in 0..5000 {
            put(&store, &format!("k{}", number % 7), &"v".repeat(200)).await;
            if number % 1000 == 0 {
                put(&store, "other", "x").await;
            }
        }
        let mut seen = Vec::new();
        while seen.len() < 5000 {
            let (_, events) = events(&mut watch).await;
            seen.extend(events.into_iter().map(|(_, _, revision)| revision));
        }
        assert!(seen.is_sorted_by(|a, b| a < b));
        put(&store, "k", "live").await;
        assert_eq!(events(&mut watch).await.1.len(), 1);
        assert_eq!(watch.try_next().unwrap(), None);
    });
}

#[test]
fn a_revision_is_never_split() {
    let folder = Folder::new("whole").unwrap();
    block_on(async {
        let store = open(folder.path());
        let mut live = store.watch(WatchRequest::prefix("", 0)).unwrap();
        for round in 0..30 {
            let success = (0..100).map(|number| {
                let (key, value) = (format!("{number}").into(), vec![round; 2000].into());
                Op::Put(PutRequest { key, value, ..Default::default() })
            });
            store.txn(TxnRequest { success: success.collect(), ..Default::default() }).await.unwrap();
        }
        let mut late = store.watch(WatchRequest::prefix("", 1)).unwrap();
        for watch in [&mut live, &mut late] {
            let mut total = 0;
            while total < 3000 {
                let (_, events) = events(watch).await;
                let last = events.last().unwrap().2;
                assert_eq!(events.iter().filter(|event| event.2 == last).count(), 100);
                total += events.len();
            }
        }
    });
}

#[test]
fn many_watches_on_one_stream_with_ids_filters_and_ranges() {
    let folder = Folder::new("many").unwrap();
    block_on(async {
        let store = open(folder.path());
        let mut stream = store.watch_stream();
        let request = |key: &'static str, end: &'static str| WatchRequest {
            key: Bytes::from(key),
            range_end: Bytes::from(end),
            ..Default::default()
        };
        assert_eq!(stream.create(request("a", "")).unwrap(), (0, 1));
        assert_eq!(stream.create(WatchRequest { watch_id: 1, ..request("a", "b") }).unwrap().0, 1);
        assert_eq!(
            stream.create(WatchRequest { watch_id: 1, ..request("a", "b") }),
            Err(WatchError::DuplicateId)
        );
        assert_eq!(stream.create(WatchRequest { no_put: true, ..request("a", "\0") }).unwrap().0, 2);
        assert_eq!(stream.create(WatchRequest { no_delete: true, ..request("a", "\0") }).unwrap().0, 3);
        assert_eq!(stream.create(WatchRequest { start_revision: 4, ..request("a", "\0") }).unwrap().0, 4);
        assert_eq!(stream.create(request("b", "a")), Err(WatchError::EmptyRange));
        put(&store, "a", "1").await;
        put(&store, "ab", "2").await;
        store.delete_range(DeleteRangeRequest { key: "a".into(), ..Default::default() }).await.unwrap();
        stream.request_progress();
        let mut got: Vec<(i64, String, EventKind, i64)> = Vec::new();
        loop {
            match stream.next().await.unwrap().unwrap() {
                WatchMessage::Events { watch_id, events, .. } => {
                    for event in events {
                        let key = String::from_utf8(event.kv.key.to_vec()).unwrap();
                        got.push((watch_id, key, event.kind, event.kv.mod_revision));
                    }
                }
                WatchMessage::Progress { revision: 4 } => break,
                WatchMessage::Progress { .. } => stream.request_progress(),
                other @ WatchMessage::Compacted { .. } => panic!("{other:?}"),
            }
        }
        got.sort_by_key(|it| (it.0, it.3));
        let expected = [
            (0, "a", EventKind::Put, 2),
            (0, "a", EventKind::Delete, 4),
            (1, "a", EventKind::Put, 2),
            (1, "ab", EventKind::Put, 3),
            (1, "a", EventKind::Delete, 4),
            (2, "a", EventKind::Delete, 4),
            (3, "a", EventKind::Put, 2),
            (3, "ab", EventKind::Put, 3),
            (4, "a", EventKind::Delete, 4),
        ];
        assert_eq!(got, expected.map(|(id, key, kind, revision)| (id, key.to_owned(), kind, revision)));
        assert!(stream.cancel(1) && !stream.cancel(1));
        assert_eq!(store.status().watchers, 4);
        drop(stream);
        assert_eq!(store.status().watchers, 0);
    });
}

#[test]
fn a_watch_into_the_compacted_past_is_refused() {
    let folder = Folder::new("compacted").unwrap();
    block_on(async {
        let store = open(folder.path());
        for number in 0..10 {
            put(&store, "k", &number.to_string()).await;
        }
        let mut behind = store.watch(WatchRequest::prefix("k", 2)).unwrap();
        store.compact(8, true).await.unwrap();
        let told = |message: Option<WatchMessage>| {
            assert_eq!(message, Some(WatchMessage::Compacted { watch_id: 0, compact_revision: 8 }));
        };
        told(behind.next().await.unwrap());
        told(store.watch(WatchRequest::prefix("k", 7)).unwrap().next().await.unwrap());
        let mut at = store.watch(WatchRequest::prefix("k", 8)).unwrap();
        assert_eq!(events(&mut at).await.1.len(), 4);
    });
}

/// While other watches exist, recent events are in memory; the compaction must apply nevertheless.
#[test]
fn a_watch_into_the_compacted_past_is_refused_while_others_watch() {
    let folder = Folder::new("compacted").unwrap();
    block_on(async {
        let store = open(folder.path());
        let mut other = store.watch(WatchRequest::prefix("k", 0)).unwrap();
        for number in 0..10 {
            put(&store, "k", &number.to_string()).await;
        }
        store.compact(8, true).await.unwrap();
        let refused = store.watch(WatchRequest::prefix("k", 7)).unwrap().next().await.unwrap();
        assert_eq!(refused, Some(WatchMessage::Compacted { watch_id: 0, compact_revision: 8 }));
        assert!(
            matches!(other.next().await.unwrap(), Some(WatchMessage::Events { .. })),
            "it missed nothing"
        );
    });
}

#[test]
fn closing_the_store_ends_watches() {
    let folder = Folder::new("closing").unwrap();
    block_on(async {
        let store = open(folder.path());
        let mut watch = store.watch(WatchRequest::prefix("", 0)).unwrap();
        store.close();
        assert_eq!(watch.next().await.unwrap(), None);
        let refused = store.put(PutRequest { key: "k".into(), ..Default::default() }).await;
        assert!(matches!(refused, Err(kvstore_engine::Error::Stopped)));
    });
}

#[test]
fn a_herald_gives_every_watch_everything_once() {
    let folder = Folder::new("herald").unwrap();
    block_on(async {
        let store = open(folder.path());
        let herald = tokio::spawn(store.herald());
        // A stream that is never read delays no others, nor does one that fell asleep and does not respond when woken.
        let _unread = store.watch(WatchRequest::prefix("k", 0)).unwrap();
        let mut sleeper = store.watch(WatchRequest::prefix("k", 0)).unwrap();
        let mut asleep = Box::pin(sleeper.next());
        assert!(futures::poll!(&mut asleep).is_pending());
        let readers: Vec<_> = (0..10)
            .map(|number| {
                // Some watches get all of it, some a part, some start later.
                let prefix = if number % 2 == 0 { "k" } else { "k1" };
                let mut watch = store.watch(WatchRequest::prefix(prefix, 2)).unwrap();
                tokio::spawn(async move {
                    let mut seen = Vec::new();
                    while seen.last().is_none_or(|(key, ..): &(String, EventKind, i64)| key != "k1last") {
                        seen.extend(events(&mut watch).await.1);
                    }
                    seen
                })
            })
            .collect();
        for number in 0..300 {
            put(&store, &format!("k{}", number % 3), &"v".repeat(500)).await;
        }
        // Without the herald, events are still delivered.
        herald.abort();
        assert!(herald.await.unwrap_err().is_cancelled());
        put(&store, "k1last", "").await;
        for (number, reader) in readers.into_iter().enumerate() {
            let seen = reader.await.unwrap();
            assert!(seen.is_sorted_by(|a, b| a.2 < b.2), "{seen:?}");
            assert_eq!(seen.len(), if number % 2 == 0 { 301 } else { 101 });
        }
        assert!(matches!(asleep.await, Ok(Some(WatchMessage::Events { .. }))));
    });
}

#[test]
fn a_herald_ends_with_the_store_and_there_is_only_one() {
    let folder = Folder::new("heralds").unwrap();
    block_on(async {
        let store = open(folder.path());
        let herald = tokio::spawn(store.herald());
        let mut watch = store.watch(WatchRequest::prefix("", 0)).unwrap();
        put(&store, "a", "").await;
        assert_eq!(events(&mut watch).await.1.len(), 1);
        store.herald().await;
        let revision = put(&store, "b", "").await;
        watch.request_progress();
        assert_eq!(events(&mut watch).await.1.len(), 1);
        let progress = watch.next().await.unwrap();
        assert_eq!(progress, Some(WatchMessage::Progress { revision }));
        assert_eq!(watch.synced_revision(0), Some(revision));
        store.close();
        herald.await.unwrap();
        assert_eq!(watch.next().await.unwrap(), None);
    });
}
