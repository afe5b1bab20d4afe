//! The public keys of this node's WireGuard devices, written into its `Node` resource, where other nodes find them.
//!
//! Only the newest key of each device is written, with retries until the datastore accepts it: a node whose published
//! key is outdated is cut off from nodes that encrypt to it.

use super::Latest;
use api::{NodeSpec, Object};
use client::Client;
use daemon::Backoff;
use messages::FromDataplane;
use std::collections::BTreeMap;
use std::time::Duration;

/// The first and the longest pause before a retry.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));

/// A device's key: whether it is the IPv6 device, and the key, empty for none.
pub(crate) type DeviceKey = (bool, String);

/// The key in a report, if it concerns one.
pub(crate) fn key_of(report: &FromDataplane) -> Option<DeviceKey> {
    match report {
        FromDataplane::WireguardStatus { public_key, ipv6 } => Some((*ipv6, public_key.clone())),
        _ => None,
    }
}

/// Writes keys for as long as it is polled.
pub(crate) async fn write(client: Client, node: String, keys: Latest<bool, String>) {
    let mut pending: BTreeMap<bool, String> = BTreeMap::new();
    let mut backoff = PAUSES;
    loop {
        match pending.is_empty() {
            true => pending = keys.take().await,
            false => {
                if let Ok(newer) = tokio::time::timeout(backoff.pause(), keys.take()).await {
                    pending.extend(newer);
                    backoff.reset();
                }
            }
        }
        write_all(&client, &node, &mut pending).await;
        if pending.is_empty() {
            backoff.reset();
        }
    }
}

async fn write_all(client: &Client, node: &str, pending: &mut BTreeMap<bool, String>) {
    for (ipv6, key) in std::mem::take(pending) {
        let nodes = client.resource::<NodeSpec>();
        let mut is_new = false;
        let change = |node: &mut Object<NodeSpec>| {
            is_new = set(node, ipv6, &key);
            is_new
        };
        match nodes.update_with_retry("", node, change).await {
            Ok(_) if is_new => tracing::info!(key, ipv6, "published this node's WireGuard key"),
            Ok(_) => {}
            // Without a node resource there is no key to remove.
            Err(client::Error::DoesNotExist { .. }) if key.is_empty() => {}
            Err(error) => {
                tracing::warn!(%error, node, "cannot publish this node's WireGuard key; retrying");
                pending.entry(ipv6).or_insert(key);
            }
        }
    }
}

/// Sets the key; returns false if it is already set.
fn set(node: &mut Object<NodeSpec>, ipv6: bool, key: &str) -> bool {
    let place = match ipv6 {
        false => &mut node.status.wireguard_public_key,
        true => &mut node.status.wireguard_public_key_v6,
    };
    if *place == key {
        return false;
    }
    key.clone_into(place);
    true
}

#[cfg(test)]
mod tests {
    use super::{key_of, set};
    use api::Node;
    use messages::FromDataplane;

    #[test]
    fn only_changes_are_written() {
        let mut node = Node::default();
        assert!(set(&mut node, false, "key") && !set(&mut node, false, "key"));
        assert!(set(&mut node, true, "other"));
        assert_eq!(
            (node.status.wireguard_public_key.as_str(), node.status.wireguard_public_key_v6.as_str()),
            ("key", "other")
        );
        assert!(set(&mut node, false, "") && !set(&mut node, false, ""));
        assert_eq!(key_of(&FromDataplane::InSync), None);
        let report = FromDataplane::WireguardStatus { public_key: "k".into(), ipv6: true };
        assert_eq!(key_of(&report), Some((true, "k".into())));
    }
}
