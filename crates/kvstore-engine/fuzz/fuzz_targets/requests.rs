//! Any bytes are a history of requests, extreme numbers and nested transactions included; each is answered or refused,
//! and nothing panics. Acknowledged changes survive when the store is reopened. Every history has a store of its own
//! in the temporary folder: run with `TMPDIR=/dev/shm cargo +nightly fuzz run requests`, because a disk would have to
//! sync thousands of times a second.
#![no_main]

mod folder;

use bytes::Bytes;
use folder::Folder;
use kvstore_engine::{
    Compare, CompareResult, CompareTarget, DeleteRangeRequest, Op, Options, PutRequest, RangeRequest,
    SortOrder, SortTarget, Store, TxnRequest, WatchRequest,
};
use libfuzzer_sys::fuzz_target;

/// Reads requests from bytes; after the last byte everything is zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// Mostly small, sometimes at either end of the range.
    fn number(&mut self) -> i64 {
        match self.byte() {
            255 => i64::MAX,
            254 => i64::MIN,
            253 => -1,
            byte => i64::from(byte) % 32,
        }
    }

    /// Few keys, so that they collide; including the empty key and one that is a zero byte.
    fn key(&mut self) -> Bytes {
        match self.byte() % 8 {
            0 => Bytes::new(),
            1 => Bytes::from_static(&[0]),
            2 => Bytes::from_static(b"aa"),
            byte => Bytes::copy_from_slice(&[b'a' + byte]),
        }
    }

    fn value(&mut self) -> Bytes {
        Bytes::from(vec![b'v'; usize::from(self.byte())])
    }

    fn range(&mut self) -> RangeRequest {
        RangeRequest {
            key: self.key(),
            range_end: self.key(),
            limit: self.number(),
            revision: self.number(),
            sort_order: [SortOrder::None, SortOrder::Ascend, SortOrder::Descend]
                [usize::from(self.byte() % 3)],
            sort_target: [SortTarget::Key, SortTarget::Version, SortTarget::Mod, SortTarget::Value]
                [usize::from(self.byte() % 4)],
            keys_only: self.flag(),
            count_only: self.flag(),
            min_mod_revision: self.number(),
            max_create_revision: self.number(),
            ..RangeRequest::default()
        }
    }

    fn op(&mut self, depth: u8) -> Op {
        match self.byte() % 5 {
            0 => Op::Range(self.range()),
            1 => Op::DeleteRange(DeleteRangeRequest {
                key: self.key(),
                range_end: self.key(),
                prev_kv: self.flag(),
            }),
            2 if depth < 4 => Op::Txn(self.txn(depth + 1)),
            _ => Op::Put(PutRequest {
                key: self.key(),
                value: self.value(),
                lease: self.number(),
                prev_kv: self.flag(),
                ignore_value: self.flag(),
                ignore_lease: self.flag(),
            }),
        }
    }

    fn compare(&mut self) -> Compare {
        let results =
            [CompareResult::Equal, CompareResult::Greater, CompareResult::Less, CompareResult::NotEqual];
        Compare {
            key: self.key(),
            range_end: self.key(),
            result: results[usize::from(self.byte() % 4)],
            target: match self.byte() % 4 {
                0 => CompareTarget::Version(self.number()),
                1 => CompareTarget::Mod(self.number()),
                2 => CompareTarget::Lease(self.number()),
                _ => CompareTarget::Value(self.value()),
            },
        }
    }

    fn txn(&mut self, depth: u8) -> TxnRequest {
        TxnRequest {
            compare: (0..self.byte() % 3).map(|_| self.compare()).collect(),
            success: (0..self.byte() % 4).map(|_| self.op(depth)).collect(),
            failure: (0..self.byte() % 3).map(|_| self.op(depth)).collect(),
        }
    }
}

fuzz_target!(|history: &[u8]| {
    let folder = Folder::new();
    let options =
        Options { min_garbage_bytes: 512, watch_buffer_bytes: 512, max_txn_ops: 8, ..Options::default() };
    let store = Store::open(folder.path(), options.clone()).expect("a new store");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut input = Input(history);
    while !input.0.is_empty() {
        let before = store.revision();
        runtime.block_on(async {
            match input.byte() % 8 {
                0 => drop(store.compact(input.number(), input.flag()).await),
                1 => drop(store.lease_grant(input.number(), input.number()).await),
                2 => drop(store.lease_revoke(input.number()).await),
                3 => drop(store.hash(input.number())),
                4 => drop(store.range(&input.range())),
                5 => {
                    let (key, range_end, start_revision) = (input.key(), input.key(), input.number());
                    drop(store.watch(WatchRequest {
                        key,
                        range_end,
                        start_revision,
                        ..WatchRequest::default()
                    }));
                }
                _ => drop(store.txn(input.txn(0)).await),
            }
        });
        assert!(store.revision() >= before, "the revision went back");
        store.healthy().expect("no request breaks a store");
    }
    let (revision, hash) = (store.revision(), store.hash(0).expect("a hash").hash);
    let has_leases = !store.leases().is_empty();
    store.close();
    drop(store);
    let again = Store::open(folder.path(), options).expect("what was written can be read");
    // A lease may expire in between.
    if !has_leases {
        assert_eq!((again.revision(), again.hash(0).expect("a hash").hash), (revision, hash));
    }
    again.close();
});
