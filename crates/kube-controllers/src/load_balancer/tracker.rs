//! Tracks which service has which address, according to the blocks of the load balancer.

use ipam_core::{Block, Owner};
use ipnet::IpNet;
use model::{AffinityType, AllocationBlock, HandleId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The name of the load balancer as the owner of blocks.
pub(crate) const HOST: &str = "load-balancer";

/// A service, identified by its addresses: a new service with the name of a deleted one is a different one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ServiceKey {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The handle of its addresses.
    pub handle: HandleId,
}

/// The addresses of each service. Our own assignments and releases are recorded at once; blocks confirm them later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker {
    services: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    blocks: BTreeMap<IpNet, BTreeMap<IpAddr, ServiceKey>>,
}

impl Tracker {
    /// Processes a block. Returns the services whose addresses changed.
    pub(crate) fn block_changed(&mut self, record: &AllocationBlock) -> BTreeSet<ServiceKey> {
        let view = Block::new(record);
        let is_ours =
            view.owner() == Some(Owner { affinity_type: AffinityType::Virtual, host: HOST.to_owned() });
        let mut now = BTreeMap::new();
        for allocation in view.allocations().filter(|_| is_ours) {
            let name = allocation.owner_attribute("service");
            let namespace = allocation.owner_attribute("namespace");
            let (Some(name), Some(namespace), Some(handle)) = (name, namespace, allocation.handle_id())
            else {
                continue;
            };
            let key =
                ServiceKey { namespace: namespace.to_owned(), name: name.to_owned(), handle: handle.into() };
            now.insert(allocation.address, key);
        }
        self.replace(record.cidr, now)
    }

    /// Removes a block. Returns the services whose addresses changed.
    pub(crate) fn block_gone(&mut self, cidr: &IpNet) -> BTreeSet<ServiceKey> {
        self.replace(*cidr, BTreeMap::new())
    }

    fn replace(&mut self, cidr: IpNet, now: BTreeMap<IpAddr, ServiceKey>) -> BTreeSet<ServiceKey> {
        let before = self.blocks.remove(&cidr).unwrap_or_default();
        let mut changed = BTreeSet::new();
        for (address, key) in &before {
            if now.get(address) != Some(key) {
                self.released(key, &[*address]);
                changed.insert(key.clone());
            }
        }
        for (address, key) in &now {
            if before.get(address) != Some(key) {
                self.assigned(key, &[*address]);
                changed.insert(key.clone());
            }
        }
        if !now.is_empty() {
            self.blocks.insert(cidr, now);
        }
        changed
    }

    /// Records that these addresses were assigned.
    pub(crate) fn assigned(&mut self, key: &ServiceKey, addresses: &[IpAddr]) {
        if !addresses.is_empty() {
            self.services.entry(key.clone()).or_default().extend(addresses);
        }
    }

    /// Records that these addresses were released.
    pub(crate) fn released(&mut self, key: &ServiceKey, addresses: &[IpAddr]) {
        if let Some(held) = self.services.get_mut(key) {
            held.retain(|address| !addresses.contains(address));
            if held.is_empty() {
                self.services.remove(key);
            }
        }
    }

    /// The addresses of a service.
    #[must_use]
    pub(crate) fn held(&self, key: &ServiceKey) -> BTreeSet<IpAddr> {
        self.services.get(key).cloned().unwrap_or_default()
    }

    /// Every service that has an address.
    pub(crate) fn services(&self) -> impl Iterator<Item = &ServiceKey> {
        self.services.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(affinity: &str, services: &[(&str, &str)]) -> AllocationBlock {
        let attributes: Vec<String> = services
            .iter()
            .map(|(name, handle)| {
                format!(r#"{{"handle_id":"{handle}","secondary":{{"service":"{name}","namespace":"shop"}}}}"#)
            })
            .collect();
        let allocations: Vec<String> = (0..services.len()).map(|index| index.to_string()).collect();
        serde_json::from_str(&format!(
            r#"{{"cidr":"10.0.0.0/29","affinity":"{affinity}","allocations":[{}],"unallocated":[],"attributes":[{}]}}"#,
            allocations.join(","),
            attributes.join(",")
        ))
        .expect("a block")
    }

    fn key(name: &str, handle: &str) -> ServiceKey {
        ServiceKey { namespace: "shop".into(), name: name.into(), handle: handle.into() }
    }

    #[test]
    fn blocks_determine_the_addresses_of_services() {
        let mut tracker = Tracker::default();
        let changed = tracker.block_changed(&block("virtual:load-balancer", &[("web", "h1"), ("api", "h2")]));
        assert_eq!(changed, [key("web", "h1"), key("api", "h2")].into());
        assert_eq!(tracker.held(&key("web", "h1")), ["10.0.0.0".parse().expect("an address")].into());
        assert!(
            tracker
                .block_changed(&block("virtual:load-balancer", &[("web", "h1"), ("api", "h2")]))
                .is_empty()
        );
        // Another service with the same name.
        let changed = tracker.block_changed(&block("virtual:load-balancer", &[("web", "h9"), ("api", "h2")]));
        assert_eq!(changed, [key("web", "h1"), key("web", "h9")].into());
        assert!(tracker.held(&key("web", "h1")).is_empty());
        // The block now belongs to a node.
        tracker.block_changed(&block("host:n1", &[("web", "h9")]));
        assert_eq!(tracker.services().count(), 0);
    }

    #[test]
    fn our_own_changes_are_known_before_the_block_confirms_them() {
        let mut tracker = Tracker::default();
        let address: IpAddr = "10.0.0.0".parse().expect("an address");
        tracker.assigned(&key("web", "h1"), &[address]);
        assert_eq!(tracker.held(&key("web", "h1")).len(), 1);
        tracker.block_changed(&block("virtual:load-balancer", &[("web", "h1")]));
        tracker.released(&key("web", "h1"), &[address]);
        assert!(tracker.held(&key("web", "h1")).is_empty());
        assert!(tracker.block_gone(&"10.0.0.0/29".parse().expect("a range")).contains(&key("web", "h1")));
    }
}
