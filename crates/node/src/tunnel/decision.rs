//! Decides about one tunnel device: which pools may serve it, whether it keeps its address, and what to release.

use super::kind::{NODE_ATTRIBUTE, TYPE_ATTRIBUTE, TunnelKind};
use api::{AllocationAttribute, IPIPMode, IPPool, IPPoolAllowedUse, Node, VXLANMode};
use client::InvalidEntry;
use ipnet::IpNet;
use std::net::IpAddr;

/// The readable pools, and whether these are all pools.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pools {
    readable: Vec<(IPPool, IpNet)>,
    /// Whether a pool is unreadable: an address might belong to it, and it might serve a device.
    has_unreadable: bool,
}

impl Pools {
    /// Separates readable pools from unreadable ones, which are logged.
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

    /// Whether every pool is readable. If not, no address is released for lack of a pool.
    #[must_use]
    pub(crate) fn are_all_known(&self) -> bool {
        !self.has_unreadable
    }
}

/// The pools that serve a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Serving {
    /// These pools may serve it, in the order of the list.
    Ranges(Vec<IpNet>),
    /// The device is not used.
    Unused,
    /// No readable pool serves it, but an unreadable one might: the device is left unchanged.
    Unknown,
}

/// Determines which pools may serve the device.
#[must_use]
pub(crate) fn serving(kind: TunnelKind, node: &Node, pools: &Pools, host_encryption: bool) -> Serving {
    // WireGuard runs once the node has a key. With host encryption, its device has the host's own address.
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

/// A selector that cannot be parsed selects no node: otherwise an address from the wrong pool could be announced.
fn selects(pool: &IPPool, node: &Node) -> bool {
    match selector::Selector::parse(pool.spec.node_selector.as_str()) {
        Ok(selector) => selector.evaluate(&node.metadata.labels),
        Err(error) => {
            tracing::error!(pool = pool.metadata.name, %error, "the pool's nodeSelector cannot be read: pool not used");
            false
        }
    }
}

/// What to do about a device that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Keep the address.
    Keep,
    /// Assign a new address; release those of the device's handle first.
    ReleaseAndAssign,
    /// Assign a new address; the old one is used by something else.
    Assign,
    /// The address is ours from before handles were used: assign the same one again, with a handle.
    Retag(IpAddr),
}

/// Decides about a device that is in use. `allocation` is the holder of its present address; `are_all_known` is false
/// if `pools` may lack an unreadable one.
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
        // Workloads always had handles, but tunnels only got them later.
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

/// What to do about the address of an unused device whose handle holds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Nothing: the address is free.
    Nothing,
    /// The address is ours from before handles were used: release it.
    Release,
    /// The address is held by our handle, whose record was lost: release it by address and handle.
    ReleaseOfHandle,
    /// The address is used by something else.
    NotOurs,
}

/// Decides about a device that is not in use.
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
