//! WireGuard before Felix learns about the cluster: anything that cannot work is removed first, because otherwise Felix
//! may never reach the datastore.
//!
//! With host encryption the path to the datastore, or to Typha, can itself use WireGuard. When this node's device has
//! another key than the published one, or no peers, other nodes encrypt to a key that does not exist, or drop
//! unencrypted packets. So the device and the published key are removed, packets are sent in the clear, and Felix
//! creates both again. Where WireGuard is disabled, both are removed as well.
//!
//! Nothing here keeps Felix from starting: failures are logged, and Felix repairs the rest when it knows the cluster.

use api::{NodeSpec, Object};
use client::Client;
use felix_config::Config;
use netlink::wireguard::{Client as Wireguard, Device, Devices as _, KIND};
use netlink::{Handle, Kernel as _, Operation, first_failure};
use std::time::Duration;

const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// What to do about WireGuard of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Remove(&'static str),
}

/// `found` is the device, if it exists; `published` is the key in the node's resource, empty for none.
fn decide(enabled: bool, encrypt_hosts: bool, found: Option<&Device>, published: &str) -> Verdict {
    if !enabled {
        return Verdict::Remove("WireGuard is not enabled");
    }
    if !encrypt_hosts {
        return Verdict::Keep;
    }
    match found {
        None => Verdict::Remove("there is no device"),
        Some(device) if device.peers.is_empty() => Verdict::Remove("the device has no peers"),
        Some(device) => match device.public_key {
            Some(key) if key.to_string() == published => Verdict::Keep,
            _ => Verdict::Remove("the device's key is not the published one"),
        },
    }
}

/// Checks both IP versions, and removes what has to be removed.
pub(crate) async fn prepare(config: &Config, client: &Client) {
    for ipv6 in [false, true] {
        let mut attempt = 1;
        while let Err(error) = prepare_one(config, client, ipv6).await {
            if attempt == ATTEMPTS {
                tracing::error!(
                    error = format!("{error:#}"),
                    ipv6,
                    "cannot check WireGuard before the start"
                );
                break;
            }
            tokio::time::sleep(PAUSE * (1 << attempt)).await;
            attempt += 1;
        }
    }
}

async fn prepare_one(config: &Config, client: &Client, ipv6: bool) -> anyhow::Result<()> {
    let (enabled, device) = match ipv6 {
        false => (config.wireguard_enabled, &config.wireguard_interface_name),
        true => (config.wireguard_enabled_v6, &config.wireguard_interface_name_v6),
    };
    let encrypt_hosts = config.wireguard_host_encryption_enabled;
    let nodes = client.resource::<NodeSpec>();
    let published = match nodes.get("", &config.felix_hostname).await {
        Ok(node) => published(&node, ipv6).to_owned(),
        Err(client::Error::DoesNotExist { .. }) => String::new(),
        Err(error) => return Err(error.into()),
    };
    // Where the kernel has no WireGuard, there is no device.
    let found = match (enabled && encrypt_hosts).then(Wireguard::open) {
        Some(Ok(mut devices)) => devices.device(device).ok().flatten(),
        _ => None,
    };
    let Verdict::Remove(reason) = decide(enabled, encrypt_hosts, found.as_ref(), &published) else {
        return Ok(());
    };
    let mut kernel = Handle::open()?;
    if let Some(link) = kernel.link(&device.as_str().into())?.filter(|link| link.kind == KIND) {
        tracing::info!(device, reason, "removing the WireGuard device before the start");
        match first_failure(kernel.apply(&[Operation::DeleteLink(link.index.into())])) {
            Err(error) if !error.is_missing() => return Err(error.into()),
            _ => {}
        }
    }
    if !published.is_empty() {
        tracing::info!(ipv6, reason, "removing this node's published WireGuard key before the start");
        nodes.update_with_retry("", &config.felix_hostname, |node| clear(node, ipv6)).await?;
    }
    Ok(())
}

fn published(node: &Object<NodeSpec>, ipv6: bool) -> &str {
    match ipv6 {
        false => &node.status.wireguard_public_key,
        true => &node.status.wireguard_public_key_v6,
    }
}

fn clear(node: &mut Object<NodeSpec>, ipv6: bool) -> bool {
    let place = match ipv6 {
        false => &mut node.status.wireguard_public_key,
        true => &mut node.status.wireguard_public_key_v6,
    };
    !std::mem::take(place).is_empty()
}

#[cfg(test)]
mod tests {
    use super::{Verdict, clear, decide};
    use netlink::wireguard::{Device, Peer, PublicKey};

    #[test]
    fn unusable_devices_and_keys_are_removed() {
        let key = |number| PublicKey::from_bytes([number; 32]).expect("a key");
        let lonely = Device { public_key: Some(key(1)), ..Device::default() };
        let whole = Device { peers: [(key(2), Peer::default())].into(), ..lonely.clone() };
        let keyless = Device { public_key: None, ..whole.clone() };
        let (own, other) = (key(1).to_string(), key(3).to_string());
        let kept = |enabled, hosts, found: Option<&Device>, published: &str| {
            decide(enabled, hosts, found, published) == Verdict::Keep
        };
        assert!(kept(true, true, Some(&whole), &own));
        assert!(!kept(true, true, Some(&whole), &other));
        assert!(!kept(true, true, Some(&whole), ""));
        assert!(!kept(true, true, Some(&lonely), &own));
        assert!(!kept(true, true, Some(&keyless), ""));
        assert!(!kept(true, true, None, &own));
        // Only host encryption can cut off the path to the datastore.
        assert!(kept(true, false, None, &other) && kept(true, false, Some(&lonely), &own));
        assert!(!kept(false, false, Some(&whole), &own) && !kept(false, true, Some(&whole), &own));
    }

    #[test]
    fn a_key_is_cleared_once() {
        let mut node = api::Node::default();
        node.status.wireguard_public_key_v6 = "key".into();
        assert!(!clear(&mut node, false) && clear(&mut node, true) && !clear(&mut node, true));
    }
}
