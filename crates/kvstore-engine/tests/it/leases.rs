//! Leases on the engine: durable, expiring, and removing their keys in one revision.

use bytes::Bytes;
use kvstore_engine::{
    Error, EventKind, Options, PutRequest, RangeRequest, Store, WatchMessage, WatchRequest,
};
use testkit::Folder;

use crate::support::{block_on, open, options};

async fn put(store: &Store, key: &'static str, lease: i64) -> Result<i64, Error> {
    let request = PutRequest { key: Bytes::from(key), value: "v".into(), lease, ..Default::default() };
    store.put(request).await.map(|response| response.revision)
}

#[test]
fn revoking_deletes_the_keys_in_one_revision() {
    let folder = Folder::new("revoke").unwrap();
    block_on(async {
        let mut store = open(folder.path());
        assert!(matches!(put(&store, "a", 5).await, Err(Error::LeaseNotFound)));
        let granted = store.lease_grant(5, 1).await.unwrap();
        assert_eq!((granted.id, granted.ttl), (5, 2), "etcd's shortest lease has 2 seconds");
        store.lease_grant(6, 600).await.unwrap();
        assert!(matches!(store.lease_grant(6, 600).await, Err(Error::LeaseExists)));
        assert!(matches!(store.lease_grant(0, i64::MAX).await, Err(Error::LeaseTtlTooLarge)));
        assert!(store.lease_grant(0, 60).await.unwrap().id > 0);
        for key in ["a", "b", "c"] {
            put(&store, key, 6).await.unwrap();
        }
        // Written without the lease, a key is detached from it.
        let revision = put(&store, "b", 0).await.unwrap();
        store.close();
        store = open(folder.path());
        assert_eq!(store.lease_time_to_live(6, true).keys, ["a", "c"]);
        let mut watch = store.watch(WatchRequest::prefix("", 0)).unwrap();
        assert_eq!(store.lease_revoke(6).await.unwrap(), revision + 1);
        assert!(matches!(store.lease_revoke(6).await, Err(Error::LeaseNotFound)));
        let Some(WatchMessage::Events { events, .. }) = watch.next().await.unwrap() else { panic!() };
        let gone: Vec<_> =
            events.iter().map(|event| (event.kind, &event.kv.key[..], event.kv.mod_revision)).collect();
        assert_eq!(
            gone,
            [(EventKind::Delete, &b"a"[..], revision + 1), (EventKind::Delete, b"c", revision + 1)]
        );
        assert_eq!(store.range(&RangeRequest::prefix("")).unwrap().kvs.len(), 1);
        assert_eq!(store.lease_time_to_live(6, false).ttl, -1);
    });
}

#[test]
fn leases_expire_unless_kept_alive_and_start_over_after_a_restart() {
    let folder = Folder::new("expire").unwrap();
    block_on(async {
        let short = || Options { min_lease_ttl: 1, ..options() };
        let mut store = Store::open(folder.path(), short()).unwrap();
        store.lease_grant(1, 1).await.unwrap();
        store.lease_grant(2, 3600).await.unwrap();
        put(&store, "short", 1).await.unwrap();
        put(&store, "long", 2).await.unwrap();
        store.close();
        store = Store::open(folder.path(), short()).unwrap();
        let mut watch = store.watch(WatchRequest::prefix("", 0)).unwrap();
        assert_eq!(store.lease_keep_alive(2).unwrap(), 3600);
        assert_eq!(store.leases(), [1, 2]);
        let Some(WatchMessage::Events { events, .. }) = watch.next().await.unwrap() else { panic!() };
        assert_eq!(events[0].kv.key, "short");
        assert!(matches!(store.lease_keep_alive(1), Err(Error::LeaseNotFound)));
        assert_eq!(store.leases(), [2]);
        // The end of a lease is as durable as its grant.
        store.close();
        store = Store::open(folder.path(), short()).unwrap();
        assert_eq!(store.leases(), [2]);
        assert_eq!(store.range(&RangeRequest::prefix("")).unwrap().kvs.len(), 1);
    });
}
