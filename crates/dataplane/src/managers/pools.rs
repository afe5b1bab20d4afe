//! Address pools: the sets of all pools and of those with source NAT, and the chain that does it.

use super::Plane;
use api::IPPoolAllowedUse;
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType, IpamPool};
use rules::Renderer;
use rules::names::sets;
use rules::tree::{IpVersion, Table};
use std::collections::BTreeMap;

/// The pools of one IP version.
#[derive(Debug)]
pub struct Pools {
    version: IpVersion,
    pools: BTreeMap<IpNet, IpamPool>,
    changed: bool,
}

impl Pools {
    /// No pools; the sets are defined.
    pub fn new(plane: &mut Plane) -> Self {
        for id in [sets::NETWORK_POOLS, sets::MASQUERADED_POOLS] {
            plane.sets.update_set(id, IpSetType::Net, &[]);
        }
        Self { version: plane.version, pools: BTreeMap::new(), changed: true }
    }

    /// A pool is new, changed, or gone.
    pub fn update(&mut self, cidr: IpNet, pool: Option<&IpamPool>, plane: &mut Plane) {
        if IpVersion::of(&cidr) != self.version {
            return;
        }
        let old = match pool {
            Some(pool) => self.pools.insert(cidr, pool.clone()),
            None => self.pools.remove(&cidr),
        };
        let member = [IpSetMember::Net(cidr)];
        let mut exchange = |id: &str, is_in: fn(&IpamPool) -> bool| match (
            old.as_ref().is_some_and(is_in),
            pool.is_some_and(is_in),
        ) {
            (false, true) => plane.sets.update_members(id, &member, &[]),
            (true, false) => plane.sets.update_members(id, &[], &member),
            (true, true) | (false, false) => {}
        };
        exchange(sets::NETWORK_POOLS, |pool| !is_for_load_balancers_only(pool));
        exchange(sets::MASQUERADED_POOLS, |pool| pool.masquerade);
        self.changed = true;
    }

    /// Writes what changed to the drivers.
    pub fn complete(&mut self, renderer: &Renderer, plane: &mut Plane) {
        if std::mem::take(&mut self.changed) {
            let active = self.pools.values().any(|pool| pool.masquerade);
            plane.rules.update_chain(Table::Nat, renderer.nat_outgoing_chain(active, self.version));
        }
    }
}

/// Packets to such pools do leave the cluster, as far as source NAT is concerned.
fn is_for_load_balancers_only(pool: &IpamPool) -> bool {
    matches!(pool.allowed_uses.as_slice(), [IPPoolAllowedUse::LoadBalancer])
}
