//! Address pools: the sets of all pools and of those with source NAT, and the chain that performs it.

use super::{Manager, News, World};
use crate::desired::{Desired, VersionDesired};
use api::IPPoolAllowedUse;
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType, IpamPool};
use rules::names::sets;
use rules::tree::{IpVersion, Table};
use std::collections::BTreeMap;
use std::time::Instant;

/// The pools of one IP version.
#[derive(Debug)]
pub(crate) struct Pools {
    version: IpVersion,
    pools: BTreeMap<IpNet, IpamPool>,
    changed: bool,
}

impl Pools {
    /// A manager without pools; defines the sets.
    pub(crate) fn new(desired: &mut VersionDesired) -> Self {
        for id in [sets::NETWORK_POOLS, sets::MASQUERADED_POOLS] {
            desired.sets.define(id, IpSetType::Net, Vec::new());
        }
        Self { version: desired.version, pools: BTreeMap::new(), changed: true }
    }

    fn update(&mut self, cidr: IpNet, pool: Option<&IpamPool>, desired: &mut VersionDesired) {
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
            (false, true) => desired.sets.change(id, &member, &[]),
            (true, false) => desired.sets.change(id, &[], &member),
            (true, true) | (false, false) => {}
        };
        exchange(sets::NETWORK_POOLS, |pool| !is_for_load_balancers_only(pool));
        exchange(sets::MASQUERADED_POOLS, |pool| pool.masquerade);
        self.changed = true;
    }
}

impl Manager for Pools {
    fn hear(&mut self, news: &News<'_>, _: Instant, desired: &mut Desired) {
        if let (News::Pool(cidr, pool), Some(desired)) = (*news, desired.of(self.version)) {
            self.update(*cidr, pool, desired);
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if let Some(desired) = desired.of(self.version).filter(|_| std::mem::take(&mut self.changed)) {
            let active = self.pools.values().any(|pool| pool.masquerade);
            desired.rules.define(Table::Nat, world.renderer.nat_outgoing_chain(active, self.version));
        }
    }
}

/// As far as source NAT is concerned, packets to such pools leave the cluster.
fn is_for_load_balancers_only(pool: &IpamPool) -> bool {
    matches!(pool.allowed_uses.as_slice(), [IPPoolAllowedUse::LoadBalancer])
}
