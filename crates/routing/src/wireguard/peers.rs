//! The difference between the desired and the actual peers, as one change of the device.

use super::WantedPeer;
use delta::{Delta, Operation};
use netlink::wireguard::{Device, PeerChange, PublicKey};

/// Records the peers that the kernel has.
pub(super) fn take_found(peers: &mut Delta<PublicKey, WantedPeer>, found: &Device) {
    peers.replace_actual(found.peers.iter().map(|(key, peer)| (*key, WantedPeer::found(peer))));
}

/// The changes to make. Removed peers come last: when a node has a new key, its networks move from the old peer to the
/// new one, and are never without a peer.
pub(super) fn changes(peers: &Delta<PublicKey, WantedPeer>) -> Vec<PeerChange> {
    let (mut changes, mut removals) = (Vec::new(), Vec::new());
    for pending in peers.pending() {
        match pending {
            Operation::Create(key, wanted) => changes.push(PeerChange {
                endpoint: Some(wanted.endpoint),
                keepalive: Some(wanted.keepalive),
                replace_allowed: true,
                allowed: wanted.allowed.iter().copied().collect(),
                ..PeerChange::new(*key)
            }),
            Operation::Replace(key, wanted, found) => changes.push(change(*key, wanted, found)),
            Operation::Remove(key, _) => removals.push(PeerChange::removal(*key)),
        }
    }
    changes.append(&mut removals);
    changes
}

fn change(key: PublicKey, wanted: &WantedPeer, found: &WantedPeer) -> PeerChange {
    // The kernel cannot remove a single network from a peer.
    let replace_allowed = !found.allowed.is_subset(&wanted.allowed);
    let allowed = match replace_allowed {
        true => wanted.allowed.iter().copied().collect(),
        false => wanted.allowed.difference(&found.allowed).copied().collect(),
    };
    PeerChange {
        only_known: true,
        endpoint: (wanted.endpoint != found.endpoint).then_some(wanted.endpoint),
        keepalive: (wanted.keepalive != found.keepalive).then_some(wanted.keepalive),
        replace_allowed,
        allowed,
        ..PeerChange::new(key)
    }
}
