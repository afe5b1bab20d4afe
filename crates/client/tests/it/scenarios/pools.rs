//! IP pools and the blocks in them.

use super::{refusal, refused_fields};
use crate::stores::Store;
use api::{BlockAffinityState, IPPool, IPPoolSpec};
use client::{Client, DeleteOptions, Error, ListQuery};
use datastore::{Watch, WatchEvent, WatchOptions};
use futures::StreamExt as _;
use ipnet::IpNet;
use model::{
    AffinityType, AllocationBlock, BlockAffinity, BlockAffinityKey, Key, KvPair, ListOptions, Value,
};

fn pool(name: &str, cidr: &str) -> IPPool {
    IPPool::new("", name, IPPoolSpec { cidr: cidr.into(), ..Default::default() })
}

fn net(cidr: &str) -> IpNet {
    cidr.parse().expect("a range")
}

/// Stores a block of four addresses that belongs to a host; its first address is allocated if there is a `holder`.
pub(super) async fn put_block(client: &Client, host: &str, cidr: &str, holder: Option<&str>) {
    let allocations = if holder.is_some() { "[0,null,null,null]" } else { "[null,null,null,null]" };
    let unallocated = if holder.is_some() { "[1,2,3]" } else { "[0,1,2,3]" };
    let attributes = holder.map_or_else(String::new, |handle| format!(r#"{{"handle_id":"{handle}"}}"#));
    let json = format!(
        r#"{{"cidr":"{cidr}","affinity":"host:{host}","allocations":{allocations},"unallocated":{unallocated},"attributes":[{attributes}],"sequenceNumber":1,"sequenceNumberForAllocation":{{}},"deleted":false}}"#
    );
    let block: AllocationBlock = serde_json::from_str(&json).expect("a block");
    let key = Key::Block { cidr: net(cidr) };
    client.backend().create(&KvPair::new(key, Value::Block(block))).await.expect("storing a block");
    let claim = BlockAffinity { state: BlockAffinityState::Confirmed, ..Default::default() };
    let key = affinity_key(host, cidr);
    client.backend().create(&KvPair::new(key, Value::BlockAffinity(claim))).await.expect("storing a claim");
}

pub(super) fn affinity_key(host: &str, cidr: &str) -> Key {
    Key::BlockAffinity(BlockAffinityKey {
        cidr: net(cidr),
        host: host.into(),
        affinity_type: AffinityType::Host,
    })
}

/// The remaining blocks with their owners.
pub(super) async fn blocks(client: &Client) -> Vec<(String, Option<String>)> {
    let list =
        client.backend().list(&ListOptions::Block { ip_version: None }, None).await.expect("listing blocks");
    list.items
        .into_iter()
        .filter_map(|entry| match entry.value {
            Value::Block(block) => Some((block.cidr.to_string(), block.affinity)),
            _ => None,
        })
        .collect()
}

/// The number of remaining claims on blocks.
pub(super) async fn claims(client: &Client) -> usize {
    let all =
        ListOptions::BlockAffinity { host: None, affinity_type: Some(AffinityType::Host), ip_version: None };
    client.backend().list(&all, None).await.expect("listing claims").items.len()
}

pub(super) async fn ranges_are_normalised_and_must_not_overlap(store: &dyn Store) {
    let pools = store.client().resource::<IPPoolSpec>();
    let six = pools.create(pool("six", "FD00:0:0::/48")).await.expect("creating");
    assert_eq!(six.spec.cidr.as_str(), "fd00::/48");
    assert_eq!((six.spec.block_size, six.spec.node_selector.as_str()), (122, "all()"));
    let four = pools.create(pool("four", "10.0.0.0/16")).await.expect("creating");
    assert_eq!(four.spec.block_size, 26);

    for (name, cidr) in [("inner", "10.0.3.0/24"), ("outer", "10.0.0.0/8"), ("same", "10.0.0.0/16")] {
        let reason = refusal(pools.create(pool(name, cidr)).await, "spec.cidr");
        assert_eq!(reason, format!("IPPool({name}) CIDR overlaps with IPPool(four) CIDR 10.0.0.0/16"));
    }
    pools.create(pool("beside", "10.1.0.0/16")).await.expect("a range beside");
    assert!(matches!(pools.create(pool("four", "10.0.0.0/16")).await, Err(Error::AlreadyExists { .. })));
    for cidr in ["", "10.0.0.1/16", "169.254.1.0/24", "fe80::/64", "172.16.0.0/27", "nonsense"] {
        let fields = refused_fields(pools.create(pool("wrong", cidr)).await);
        assert!(fields.iter().any(|field| field.starts_with("spec")), "{cidr}: {fields:?}");
    }
}

pub(super) async fn range_and_block_size_are_fixed(store: &dyn Store) {
    let pools = store.client().resource::<IPPoolSpec>();
    let created = pools.create(pool("fixed", "10.0.0.0/16")).await.expect("creating");
    let mut moved = created.clone();
    moved.spec.cidr = "10.2.0.0/16".into();
    moved.spec.block_size = 28;
    assert_eq!(refused_fields(pools.update(moved).await), ["spec.cidr", "spec.blockSize"]);
    let mut changed = created;
    changed.spec.nat_outgoing = true;
    let changed = pools.update(changed).await.expect("other fields may change");
    assert!(changed.spec.nat_outgoing);
    let mut missing = changed;
    missing.metadata.name = "missing".into();
    assert!(matches!(pools.update(missing).await, Err(Error::DoesNotExist { .. })));
}

pub(super) async fn blocks_of_another_size_are_in_the_way(store: &dyn Store) {
    let client = store.client();
    put_block(client, "n1", "10.0.0.4/30", None).await;
    let pools = client.resource::<IPPoolSpec>();
    let reason = refusal(pools.create(pool("p", "10.0.0.0/16")).await, "spec.blockSize");
    assert!(reason.contains("10.0.0.4/30"), "{reason}");
    pools.create(pool("elsewhere", "10.1.0.0/16")).await.expect("no block there");
}

pub(super) async fn deleting_a_pool_releases_its_blocks(store: &dyn Store) {
    let client = store.client();
    let pools = client.resource::<IPPoolSpec>();
    pools.create(pool("keep", "10.9.0.0/16")).await.expect("creating");
    let going = pools.create(pool("going", "10.0.0.0/16")).await.expect("creating");
    put_block(client, "n1", "10.0.0.0/30", None).await;
    put_block(client, "n1", "10.0.0.4/30", Some("h1")).await;
    put_block(client, "n2", "10.9.0.0/30", None).await;
    // A claim whose block was never written, and one on a block owned by another host.
    for (host, cidr) in [("n3", "10.0.0.8/30"), ("n3", "10.0.0.4/30")] {
        let claim = BlockAffinity { state: BlockAffinityState::Pending, ..Default::default() };
        let entry = KvPair::new(affinity_key(host, cidr), Value::BlockAffinity(claim));
        client.backend().create(&entry).await.expect("storing a claim");
    }

    let stale = DeleteOptions::at("1");
    assert!(matches!(pools.delete("", "going", &stale).await, Err(Error::UpdateConflict { .. })));
    assert!(
        !pools.get("", "going").await.expect("still there").spec.disabled,
        "a refused deletion changes nothing"
    );

    let all =
        ListOptions::BlockAffinity { host: None, affinity_type: Some(AffinityType::Host), ip_version: None };
    let revision = client.backend().list(&all, None).await.expect("listing").revision;
    let options = WatchOptions { revision: Some(revision), ..WatchOptions::default() };
    let events = client.backend().watch(&all, options).await.expect("watching");

    let options = DeleteOptions::at(&going.metadata.resource_version);
    let deleted = pools.delete("", "going", &options).await.expect("deleting");
    assert!(deleted.spec.disabled, "allocation stopped before the pool went");
    assert!(matches!(pools.get("", "going").await, Err(Error::DoesNotExist { .. })));
    let left = blocks(client).await;
    assert_eq!(
        left,
        [("10.0.0.4/30".to_owned(), None), ("10.9.0.0/30".to_owned(), Some("host:n2".to_owned()))]
    );
    assert_eq!(claims(client).await, 1);
    assert_eq!(pools.list(&ListQuery::all()).await.expect("listing").items.len(), 1);
    let block = Key::Block { cidr: "10.0.0.4/30".parse().expect("a range") };
    let block = client.backend().get(&block, None).await.expect("the block");
    assert!(
        was_announced(events, &affinity_key("n1", "10.0.0.4/30"), &block.revision).await,
        "its owner could not have known"
    );
}

/// Whether a claim was marked before its deletion, or deleted in the same step in which the block changed (at this
/// revision), so that its owner does not use the block in between.
async fn was_announced(mut events: Watch, key: &Key, block_revision: &str) -> bool {
    let mut announced = false;
    loop {
        let event = tokio::time::timeout(std::time::Duration::from_secs(30), events.next());
        match event.await.expect("an event in time").expect("the watch goes on").expect("no error") {
            WatchEvent::Modified { new, .. } if new.key == *key => {
                let Value::BlockAffinity(claim) = &new.value else { panic!("{new:?}") };
                announced |= claim.state == BlockAffinityState::PendingDeletion;
            }
            WatchEvent::Deleted(old) if old.key == *key => {
                return announced || old.revision == block_revision;
            }
            _ => {}
        }
    }
}

pub(super) async fn a_pool_can_be_split(store: &dyn Store) {
    let client = store.client();
    let pools = client.resource::<IPPoolSpec>();
    pools.create(pool("whole", "10.0.0.0/16")).await.expect("creating");
    put_block(client, "n1", "10.0.0.4/30", None).await;
    for (name, cidr) in [("left", "10.0.0.0/17"), ("right", "10.0.128.0/17")] {
        client.create_overlapping_pool(pool(name, cidr)).await.expect("a part");
    }
    assert!(matches!(
        client.create_overlapping_pool(pool("bad", "10.0.0.1/17")).await,
        Err(Error::Validation(_))
    ));
    client.delete_pool_keeping_affinities("whole", &DeleteOptions::default()).await.expect("the whole");
    assert_eq!(claims(client).await, 1);
    assert_eq!(pools.list(&ListQuery::all()).await.expect("listing").items.len(), 2);
}
