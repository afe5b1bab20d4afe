//! Pools, nodes and requests that the tests share.

use api::{IPPool, IPPoolSpec, IPReservation, IPReservationSpec, Kind, Node, NodeSpec};
use ipam::{AutoAssign, IntendedUse};
use ipam_core::consistency::Records;
use model::{Key, KvPair, Value};
use std::collections::BTreeMap;

pub(crate) fn pool(name: &str, spec: &str) -> KvPair {
    let spec: IPPoolSpec = serde_json::from_str(spec).expect("a spec");
    KvPair::resource(IPPool::new("", name, spec))
}

pub(crate) fn reservation(name: &str, cidrs: &[&str]) -> KvPair {
    let text = serde_json::json!({ "reservedCIDRs": cidrs }).to_string();
    let spec: IPReservationSpec = serde_json::from_str(&text).expect("a spec");
    KvPair::resource(IPReservation::new("", name, spec))
}

/// A node with labels.
pub(crate) fn node(name: &str, labels: &[(&str, &str)]) -> KvPair {
    let mut node = Node::new("", name, NodeSpec::default());
    for (label, value) in labels {
        node.metadata.labels.insert((*label).to_owned(), (*value).to_owned());
    }
    KvPair::resource(node)
}

pub(crate) fn pool_key(name: &str) -> Key {
    Key::resource(Kind::IPPool, "", name)
}

/// A request for workload addresses.
pub(crate) fn request(host: &str, handle: &str, num4: usize) -> AutoAssign {
    AutoAssign {
        handle: Some(handle.into()),
        attributes: [("node".to_owned(), host.to_owned())].into(),
        num4,
        ..AutoAssign::new(host, IntendedUse::Workload)
    }
}

/// The stored entries as records for the consistency check.
pub(crate) fn records(entries: &BTreeMap<Key, KvPair>) -> Records {
    let mut records = Records::default();
    for (key, entry) in entries {
        match (key, &entry.value) {
            (Key::Block { cidr }, Value::Block(block)) => {
                records.blocks.insert(*cidr, block.clone());
            }
            (Key::BlockAffinity(claim), Value::BlockAffinity(affinity)) => {
                records.claims.insert(claim.clone(), affinity.state.clone());
            }
            (Key::IpamHandle { handle_id }, Value::IpamHandle(handle)) => {
                records.handles.insert(handle_id.clone(), handle.block.clone());
            }
            _ => {}
        }
    }
    records
}
