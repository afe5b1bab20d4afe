//! The engine against a model so naive that it is obviously right: it keeps the complete state at every revision.
//! Random histories of puts, deletions, transactions, compactions, rewrites and restarts; every answer, every readable
//! past state and every event is compared.

use std::collections::BTreeMap;

use bytes::Bytes;
use kvstore_engine::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Error, Event, EventKind, KeyValue, Op,
    OpResponse, PutRequest, RangeRequest, SortOrder, SortTarget, Store, TxnRequest, WatchMessage,
    WatchRequest,
};
use proptest::{collection::vec, prelude::*};
use testkit::Folder;

use crate::support::{block_on, open};

type State = BTreeMap<Bytes, KeyValue>;

/// All states, by revision; the last is current.
struct Model {
    states: Vec<State>,
    events: Vec<Event>,
    compacted: i64,
}

impl Model {
    fn new() -> Self {
        // Revision 0 does not exist, revision 1 is the empty store.
        Self { states: vec![State::new(), State::new()], events: Vec::new(), compacted: 0 }
    }

    fn revision(&self) -> i64 {
        i64::try_from(self.states.len()).unwrap() - 1
    }

    fn at(&self, revision: i64) -> &State {
        &self.states[usize::try_from(revision).unwrap()]
    }

    fn now(&self) -> &State {
        self.at(self.revision())
    }

    /// Carries out operations as one revision.
    fn apply(&mut self, op: &Op) -> OpResponse {
        let revision = self.revision() + 1;
        let before = self.now().clone();
        let mut work = Work { before: &before, state: before.clone(), events: Vec::new(), revision };
        let mut response = work.op(op);
        let Work { state, events, .. } = work;
        if !events.is_empty() {
            self.states.push(state);
            self.events.extend(events);
        }
        if let OpResponse::Txn(response) = &mut response {
            response.revision = self.revision();
        }
        response
    }
}

struct Work<'a> {
    before: &'a State,
    state: State,
    events: Vec<Event>,
    revision: i64,
}

impl Work<'_> {
    fn seen(&self) -> i64 {
        self.revision - i64::from(self.events.is_empty())
    }

    fn op(&mut self, op: &Op) -> OpResponse {
        match op {
            Op::Put(put) => {
                let old = self.state.get(&put.key).cloned();
                let kv = KeyValue {
                    key: put.key.clone(),
                    create_revision: old.as_ref().map_or(self.revision, |old| old.create_revision),
                    mod_revision: self.revision,
                    version: old.as_ref().map_or(0, |old| old.version) + 1,
                    value: put.value.clone(),
                    lease: 0,
                };
                self.state.insert(put.key.clone(), kv.clone());
                self.events.push(Event { kind: EventKind::Put, kv, prev_kv: old.clone() });
                OpResponse::Put(kvstore_engine::PutResponse {
                    revision: self.revision,
                    prev_kv: old.filter(|_| put.prev_kv),
                })
            }
            Op::DeleteRange(delete) => {
                let gone: Vec<KeyValue> = select(&self.state, &delete.key, &delete.range_end);
                for old in &gone {
                    self.state.remove(&old.key);
                    let kv =
                        KeyValue { key: old.key.clone(), mod_revision: self.revision, ..KeyValue::default() };
                    self.events.push(Event { kind: EventKind::Delete, kv, prev_kv: Some(old.clone()) });
                }
                OpResponse::DeleteRange(kvstore_engine::DeleteRangeResponse {
                    revision: self.seen(),
                    deleted: i64::try_from(gone.len()).unwrap(),
                    prev_kvs: if delete.prev_kv { gone } else { Vec::new() },
                })
            }
            Op::Range(range) => OpResponse::Range(answer(&self.state, range, self.seen())),
            Op::Txn(txn) => {
                let succeeded = txn.compare.iter().all(|compare| holds(self.before, compare));
                let ops = if succeeded { &txn.success } else { &txn.failure };
                let responses = ops.iter().map(|op| self.op(op)).collect();
                OpResponse::Txn(kvstore_engine::TxnResponse { revision: 0, succeeded, responses })
            }
        }
    }
}

fn select(state: &State, key: &[u8], end: &[u8]) -> Vec<KeyValue> {
    let inside = |it: &&KeyValue| match end {
        [] => it.key == key,
        [0] => it.key >= key,
        end => it.key >= key && it.key < end,
    };
    state.values().filter(inside).cloned().collect()
}

fn answer(state: &State, range: &RangeRequest, revision: i64) -> kvstore_engine::RangeResponse {
    let mut kvs = select(state, &range.key, &range.range_end);
    let count = i64::try_from(kvs.len()).unwrap();
    if range.count_only {
        return kvstore_engine::RangeResponse { revision, count, ..Default::default() };
    }
    kvs.retain(|kv| range.min_mod_revision == 0 || kv.mod_revision >= range.min_mod_revision);
    kvs.retain(|kv| range.max_create_revision == 0 || kv.create_revision <= range.max_create_revision);
    match range.sort_target {
        SortTarget::Key => {}
        SortTarget::Mod => kvs.sort_by_key(|kv| kv.mod_revision),
        other => panic!("the generator does not make {other:?}"),
    }
    if range.sort_order == SortOrder::Descend {
        kvs.reverse();
    }
    let limit = usize::try_from(range.limit).unwrap();
    let more = limit > 0 && kvs.len() > limit;
    if more {
        kvs.truncate(limit);
    }
    if range.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    kvstore_engine::RangeResponse { revision, kvs, more, count }
}

fn holds(state: &State, compare: &Compare) -> bool {
    let kvs = select(state, &compare.key, &compare.range_end);
    let test = |kv: &KeyValue| {
        let order = match &compare.target {
            CompareTarget::Version(it) => kv.version.cmp(it),
            CompareTarget::Create(it) => kv.create_revision.cmp(it),
            CompareTarget::Mod(it) => kv.mod_revision.cmp(it),
            CompareTarget::Value(it) => kv.value.cmp(it),
            CompareTarget::Lease(it) => kv.lease.cmp(it),
        };
        match compare.result {
            CompareResult::Equal => order.is_eq(),
            CompareResult::Greater => order.is_gt(),
            CompareResult::Less => order.is_lt(),
            CompareResult::NotEqual => order.is_ne(),
        }
    };
    match kvs.as_slice() {
        [] => !matches!(compare.target, CompareTarget::Value(_)) && test(&KeyValue::default()),
        kvs => kvs.iter().all(test),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Op(Op),
    /// A read, and how many revisions back from now.
    Range(RangeRequest, i64),
    /// A compaction, and how many revisions back from now.
    Compact(i64),
    Rewrite,
    Reopen,
}

const KEYS: [&str; 6] = ["a", "ab", "b", "ba", "c", "\u{7f}"];

fn key() -> impl Strategy<Value = Bytes> {
    prop::sample::select(KEYS.to_vec()).prop_map(Bytes::from)
}

fn end() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec!["", "", "\0", "b", "c", "d"]).prop_map(Bytes::from)
}

fn put(key: Bytes) -> impl Strategy<Value = Op> {
    (vec(any::<u8>(), 0..40), any::<bool>()).prop_map(move |(value, prev_kv)| {
        Op::Put(PutRequest { key: key.clone(), value: value.into(), prev_kv, ..PutRequest::default() })
    })
}

fn delete() -> impl Strategy<Value = Op> {
    (key(), end(), any::<bool>())
        .prop_map(|(key, range_end, prev_kv)| Op::DeleteRange(DeleteRangeRequest { key, range_end, prev_kv }))
}

fn range() -> impl Strategy<Value = RangeRequest> {
    let flags = (any::<bool>(), prop::bool::weighted(0.1), any::<bool>(), any::<bool>());
    (key(), end(), 0..4i64, 0..6i64, 0..6i64, flags).prop_map(
        |(
            key,
            range_end,
            limit,
            min_mod_revision,
            max_create_revision,
            (keys_only, count_only, descend, by_mod),
        )| {
            RangeRequest {
                key,
                range_end,
                limit,
                keys_only,
                count_only,
                min_mod_revision,
                max_create_revision,
                sort_order: if descend { SortOrder::Descend } else { SortOrder::Ascend },
                sort_target: if by_mod { SortTarget::Mod } else { SortTarget::Key },
                ..RangeRequest::default()
            }
        },
    )
}

fn compare() -> impl Strategy<Value = Compare> {
    let result = prop::sample::select(vec![
        CompareResult::Equal,
        CompareResult::Greater,
        CompareResult::Less,
        CompareResult::NotEqual,
    ]);
    let target = prop_oneof![
        (0..4i64).prop_map(CompareTarget::Version),
        (0..20i64).prop_map(CompareTarget::Create),
        (0..20i64).prop_map(CompareTarget::Mod),
        vec(any::<u8>(), 0..2).prop_map(|value| CompareTarget::Value(value.into())),
        (0..1i64).prop_map(CompareTarget::Lease),
    ];
    (key(), end(), result, target).prop_map(|(key, range_end, result, target)| Compare {
        key,
        range_end,
        result,
        target,
    })
}

/// Operations of one list of a transaction: no key is written twice, as etcd requires.
fn ops(keys: &'static [&'static str]) -> impl Strategy<Value = Vec<Op>> {
    let one = |key: &'static str| {
        let key = Bytes::from(key);
        let delete =
            Op::DeleteRange(DeleteRangeRequest { key: key.clone(), prev_kv: true, ..Default::default() });
        prop_oneof![3 => put(key).prop_map(Some), 1 => Just(Some(delete)), 1 => range().prop_map(|it| Some(Op::Range(it))), 1 => Just(None)]
    };
    keys.iter().map(|key| one(key)).collect::<Vec<_>>().prop_map(|ops| ops.into_iter().flatten().collect())
}

fn txn() -> impl Strategy<Value = Op> {
    let inner = (vec(compare(), 0..2), ops(&KEYS[4..]), ops(&KEYS[3..]))
        .prop_map(|(compare, success, failure)| Op::Txn(TxnRequest { compare, success, failure }));
    (vec(compare(), 0..3), ops(&KEYS[..3]), ops(&KEYS[..]), inner).prop_map(
        |(compare, mut success, failure, inner)| {
            success.push(inner);
            Op::Txn(TxnRequest { compare, success, failure })
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => key().prop_flat_map(put).prop_map(Step::Op),
        2 => delete().prop_map(Step::Op),
        4 => txn().prop_map(Step::Op),
        3 => (range(), 0..12i64).prop_map(|(range, back)| Step::Range(range, back)),
        1 => (0..8i64).prop_map(Step::Compact),
        1 => Just(Step::Rewrite),
        1 => Just(Step::Reopen),
    ]
}

async fn perform(store: &Store, op: &Op) -> Result<OpResponse, Error> {
    Ok(match op.clone() {
        Op::Put(put) => OpResponse::Put(store.put(put).await?),
        Op::DeleteRange(delete) => OpResponse::DeleteRange(store.delete_range(delete).await?),
        Op::Txn(txn) => OpResponse::Txn(store.txn(txn).await?),
        Op::Range(range) => OpResponse::Range(store.range(&range)?),
    })
}

/// Compares every past state and event that can be read.
async fn check_history(store: &Store, model: &Model) {
    let everything = RangeRequest {
        key: Bytes::from_static(b"\0"),
        range_end: Bytes::from_static(b"\0"),
        ..Default::default()
    };
    for revision in model.compacted.max(1)..=model.revision() {
        let found = store.range(&RangeRequest { revision, ..everything.clone() }).unwrap();
        let expected: Vec<KeyValue> = model.at(revision).values().cloned().collect();
        assert_eq!(found.kvs, expected, "at revision {revision}");
        assert_eq!(found.revision, model.revision());
    }
    let first = model.compacted.max(1);
    let expected: Vec<Event> =
        model.events.iter().filter(|event| event.kv.mod_revision >= first).cloned().collect();
    let mut watch = store
        .watch(WatchRequest {
            key: everything.key,
            range_end: everything.range_end,
            start_revision: first,
            prev_kv: true,
            ..Default::default()
        })
        .unwrap();
    watch.request_progress();
    let mut events: Vec<Event> = Vec::new();
    loop {
        match watch.next().await.unwrap().unwrap() {
            WatchMessage::Events { events: more, .. } => {
                events.extend(more.iter().map(|event| Event::clone(event)));
            }
            WatchMessage::Progress { revision } => {
                assert_eq!(revision, model.revision());
                break;
            }
            other @ WatchMessage::Compacted { .. } => panic!("{other:?}"),
        }
    }
    assert_eq!(events.len(), expected.len());
    for (event, expected) in events.iter().zip(&expected) {
        assert_eq!((event.kind, &event.kv), (expected.kind, &expected.kv));
        // The previous value may be compacted away, but must not be wrong.
        if expected.kv.mod_revision > first {
            assert_eq!(event.prev_kv, expected.prev_kv);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_behaves_like_the_model(steps in vec(step(), 1..60)) {
        block_on(async {
            let folder = Folder::new("model").unwrap();
            let mut store = open(folder.path());
            let mut model = Model::new();
            for step in &steps {
                match step {
                    Step::Op(op) => assert_eq!(perform(&store, op).await.unwrap(), model.apply(op)),
                    Step::Range(range, back) => {
                        let revision = model.revision() - back;
                        let found = store.range(&RangeRequest { revision, ..range.clone() });
                        if revision > 0 && revision < model.compacted {
                            assert!(matches!(found, Err(Error::Compacted { .. })), "{found:?}");
                        } else {
                            let state = if revision <= 0 { model.now() } else { model.at(revision) };
                            assert_eq!(found.unwrap(), answer(state, range, model.revision()));
                        }
                    }
                    Step::Compact(back) => {
                        let revision = model.revision() - back;
                        let done = store.compact(revision, true).await;
                        if revision <= model.compacted {
                            assert!(matches!(done, Err(Error::Compacted { .. })));
                        } else {
                            assert_eq!(done.unwrap(), model.revision());
                            model.compacted = revision;
                        }
                    }
                    Step::Rewrite => store.defragment().await.unwrap(),
                    Step::Reopen => {
                        store.close();
                        store = open(folder.path());
                        assert_eq!(store.revision(), model.revision());
                    }
                }
            }
            check_history(&store, &model).await;
            store.close();
            let store = open(folder.path());
            check_history(&store, &model).await;
            let future = store.range(&RangeRequest { revision: model.revision() + 1, ..RangeRequest::key("a") });
            assert!(matches!(future, Err(Error::FutureRevision)));
        });
    }
}
