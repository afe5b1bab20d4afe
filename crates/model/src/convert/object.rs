//! Objects that feeds carry whole: BGP peers and migrations, with their selectors. A selector that cannot be read
//! selects nothing.

use super::Faults;
use crate::feed::{BgpPeer, LiveMigration};
use selector::Selector;

/// Converts a BGP peer.
#[must_use]
pub fn bgp_peer(object: api::BGPPeer, faults: &mut Faults) -> BgpPeer {
    let spec = &object.spec;
    // Without a selector, a peer applies to all nodes, but to no workloads.
    let nodes = read("spec.nodeSelector", spec.node_selector.as_str(), faults);
    let workloads = Some(spec.local_workload_selector.as_str()).filter(|text| !text.is_empty());
    let local_workloads = workloads.and_then(|text| read("spec.localWorkloadSelector", text, faults));
    BgpPeer { object, nodes, local_workloads }
}

/// Converts a migration.
#[must_use]
pub fn live_migration(object: api::LiveMigration, faults: &mut Faults) -> LiveMigration {
    let text = object.spec.target.as_ref().and_then(|target| target.selector.as_deref());
    let text = text.filter(|text| !text.is_empty());
    let target = text.and_then(|text| read("spec.target.selector", text, faults));
    LiveMigration { object, target }
}

fn read(place: &str, text: &str, faults: &mut Faults) -> Option<Selector> {
    Selector::parse(text).map_err(|reason| faults.add(place, format!("{reason}; it selects nothing"))).ok()
}
