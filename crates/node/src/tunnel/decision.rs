//! What to do about one tunnel device: which pools may serve it, whether its address may stay, and what to release.

use super::kind::{NODE_ATTRIBUTE, TYPE_ATTRIBUTE, TunnelKind};
use api::{AllocationAttribute, IPIPMode, IPPool, IPPoolAllowedUse, Node, VXLANMode};
use client::InvalidEntry;
use ipnet::IpNet;
use std::net::IpAddr;

/// The pools that can be read, and whether these are all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pools {
    readable: Vec<(IPPool, IpNet)>,
    /// Whether there is a pool that cannot be read: an address might belong to it, and a device might be served by it.
    has_unreadable: bool,
}

impl Pools {
    /// Sorts them out; those that cannot be read are named in the log.
    #[must_use]
    pub(crate) fn new(pools: Vec<IPPool>, invalid: &[InvalidEntry]) -> Self {
        let mut sorted = Self { readable: Vec::new(), has_unreadable: !invalid.is_empty() };
        for entry in invalid {
            let (pool, reason) = (&entry.key, &entry.reason);
            tracing::warn!(pool, reason, "this IP pool cannot be read: not used for tunnels");
        }
        for pool in pools {
            match pool.spec.cidr.parse() {
                Ok(network) => sorted.readable.push((pool, network.masked())),
                Err(reason) => {
                    let (name, cidr) = (&pool.metadata.name, &pool.spec.cidr);
                    tracing::warn!(pool = name, %cidr, reason, "the range of this IP pool cannot be read: not used for tunnels");
                    sorted.has_unreadable = true;
                }
            }
        }
        sorted
    }

    /// Whether every pool can be read. Where one cannot, no address is given up for want of a pool.
    #[must_use]
    pub(crate) fn are_all_known(&self) -> bool {
        !self.has_unreadable
    }
}

/// What the pools mean for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// These may serve it, in the order of the list.
    Ranges(Vec<IpNet>),
    /// The device is not used.
    Unused,
    /// None may, but there is one that cannot be read: the device is left as it is.
    Unknown,
}

/// Which pools may serve the device.
#[must_use]
pub(crate) fn serving(kind: TunnelKind, node: &Node, pools: &Pools, host_encryption: bool) -> Serving {
    // WireGuard runs once the node has a key. Encrypting hosts, its device has the host's own address.
    let public_key = match kind {
        TunnelKind::Wireguard => Some(&node.status.wireguard_public_key),
        TunnelKind::WireguardV6 => Some(&node.status.wireguard_public_key_v6),
        TunnelKind::Ipip | TunnelKind::Vxlan | TunnelKind::VxlanV6 => None,
    };
    if public_key.is_some_and(|key| key.is_empty() || host_encryption) {
        return Serving::Unused;
    }
    let serves = |pool: &IPPool, range: &IpNet| {
        let is_closed = pool.spec.disabled || pool.metadata.deletion_timestamp.is_some();
        !is_closed
            && kind.family().has_net(range)
            && allows_tunnels(pool)
            && uses(pool, kind)
            && selects(pool, node)
    };
    let ranges: Vec<IpNet> =
        pools.readable.iter().filter(|(pool, range)| serves(pool, range)).map(|(_, range)| *range).collect();
    match (ranges.is_empty(), pools.has_unreadable) {
        (false, _) => Serving::Ranges(ranges),
        (true, false) => Serving::Unused,
        (true, true) => Serving::Unknown,
    }
}

fn allows_tunnels(pool: &IPPool) -> bool {
    pool.spec.allowed_uses.is_empty() || pool.spec.allowed_uses.contains(&IPPoolAllowedUse::Tunnel)
}

fn uses(pool: &IPPool, kind: TunnelKind) -> bool {
    match kind {
        TunnelKind::Wireguard | TunnelKind::WireguardV6 => true,
        TunnelKind::Ipip => matches!(pool.spec.ipip_mode, IPIPMode::Always | IPIPMode::CrossSubnet),
        TunnelKind::Vxlan | TunnelKind::VxlanV6 => {
            matches!(pool.spec.vxlan_mode, VXLANMode::Always | VXLANMode::CrossSubnet)
        }
    }
}

/// A selector that cannot be read selects nobody: an address from the wrong pool would be announced.
fn selects(pool: &IPPool, node: &Node) -> bool {
    match selector::Selector::parse(pool.spec.node_selector.as_str()) {
        Ok(selector) => selector.evaluate(&node.metadata.labels),
        Err(error) => {
            tracing::error!(pool = pool.metadata.name, %error, "the pool's nodeSelector cannot be read: pool not used");
            false
        }
    }
}

/// What to do about a device that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The address may stay.
    Keep,
    /// Take a new one; what the device's handle holds is given back first.
    ReleaseAndAssign,
    /// Take a new one; the old one is in use elsewhere.
    Assign,
    /// The address is ours from a time without handles: take the same one again, with a handle.
    Retag(IpAddr),
}

/// Decides for a device that is used. `allocation` is who holds its present address; `are_all_known` says whether `pools` may
/// lack one that cannot be read.
#[must_use]
pub(crate) fn step(
    kind: TunnelKind,
    node_name: &str,
    current: Option<IpAddr>,
    allocation: Option<&AllocationAttribute>,
    pools: &[IpNet],
    are_all_known: bool,
) -> Step {
    let Some(current) = current else {
        // The resource may have lost an address that is still allocated.
        return Step::ReleaseAndAssign;
    };
    let Some(allocation) = allocation else { return Step::ReleaseAndAssign };
    let owner = &allocation.active_owner_attrs;
    if is_owned(kind, node_name, allocation) {
        let is_served = pools.iter().any(|pool| pool.contains(&current));
        if is_served || !are_all_known { Step::Keep } else { Step::ReleaseAndAssign }
    } else if owner.is_empty() && allocation.handle_id.is_none() {
        // Workloads always had handles; tunnels got them only later.
        Step::Retag(current)
    } else {
        Step::Assign
    }
}

fn is_owned(kind: TunnelKind, node_name: &str, allocation: &AllocationAttribute) -> bool {
    let owner = &allocation.active_owner_attrs;
    owner.get(TYPE_ATTRIBUTE).is_some_and(|value| value == kind.attribute())
        && owner.get(NODE_ATTRIBUTE).is_some_and(|value| value == node_name)
}

/// What to do about the address of a device that is not used, when its handle holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Nothing: it is free.
    Nothing,
    /// It is ours from a time without handles: release it.
    Release,
    /// It is held under our handle, which got lost: release it by address and handle.
    ReleaseOfHandle,
    /// It is in use elsewhere.
    NotOurs,
}

/// Decides for a device that is not used.
#[must_use]
pub(crate) fn leftover(
    kind: TunnelKind,
    node_name: &str,
    allocation: Option<&AllocationAttribute>,
) -> Leftover {
    let Some(allocation) = allocation else { return Leftover::Nothing };
    match &allocation.handle_id {
        None if allocation.active_owner_attrs.is_empty() => Leftover::Release,
        Some(handle) if *handle == *kind.handle(node_name) => Leftover::ReleaseOfHandle,
        _ => Leftover::NotOurs,
    }
}

#[cfg(test)]
mod tests;
