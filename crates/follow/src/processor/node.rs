//! Nodes for Felix: settings of the host, WireGuard keys, the node itself, and, where Kubernetes allocates addresses, a
//! block for each of the node's ranges.

use super::{Outputs, Processor};
use api::{Node, Resource};
use ipnet::IpNet;
use model::convert::Faults;
use model::convert::node::{
    HOST_SETTINGS, Setting, host_settings, node, pod_range_block, pod_ranges, wireguard,
};
use model::feed::{FeedEntry, FeedKey};
use model::v1::HostConfigKey;
use model::{Key, NodeName, Value};
use std::collections::BTreeMap;

/// Converts nodes.
#[derive(Debug, Default)]
pub struct Nodes {
    use_pod_cidr: bool,
    /// The owner of each range. A range may move from one node to another, and the events may arrive in any order.
    owners: BTreeMap<IpNet, NodeName>,
    /// The ranges that each node was last seen with.
    ranges: BTreeMap<NodeName, Vec<IpNet>>,
}

impl Nodes {
    /// With `use_pod_cidr`, the ranges that Kubernetes assigned to a node take the place of its blocks.
    #[must_use]
    pub fn new(use_pod_cidr: bool) -> Self {
        Self { use_pod_cidr, ..Self::default() }
    }

    fn ranges_of(&self, name: &NodeName) -> Vec<IpNet> {
        let is_owner = |cidr: &&IpNet| self.owners.get(*cidr).is_some_and(|owner| owner == name);
        self.ranges.get(name).into_iter().flatten().filter(is_owner).copied().collect()
    }

    fn block_outputs(&mut self, name: &NodeName, node: &Node, revision: &str, outputs: &mut Outputs) {
        let mut faults = Faults::new();
        let ranges = pod_ranges(node, &mut faults);
        let all_read = faults.is_empty();
        outputs.faults.append(faults);
        for cidr in self.ranges_of(name) {
            // An unreadable range may be any of those that the node had.
            if !ranges.contains(&cidr) && all_read {
                self.owners.remove(&cidr);
                outputs.push(FeedEntry::Block(cidr, None), revision);
            }
        }
        let mut had = if all_read { Vec::new() } else { self.ranges_of(name) };
        had.retain(|cidr| !ranges.contains(cidr));
        had.extend(&ranges);
        self.ranges.insert(name.clone(), had);
        for cidr in ranges {
            let block = Box::new(pod_range_block(name, cidr));
            let before = self.owners.insert(cidr, name.clone());
            outputs.push(FeedEntry::Block(cidr, Some(block)), revision);
            if before.is_some_and(|before| before != *name)
                && let Some(output) = outputs.entries.last_mut()
            {
                output.replaces = true;
            }
        }
    }
}

fn host_config(host: &NodeName, name: &str) -> HostConfigKey {
    HostConfigKey { host: host.clone(), name: name.to_owned() }
}

fn name_of(key: &Key) -> NodeName {
    key.as_resource().map_or("", |key| key.name.as_str()).into()
}

impl Processor for Nodes {
    fn process(&mut self, key: &Key, value: Value, revision: &str, outputs: &mut Outputs) {
        let Value::Resource(Resource::Node(object)) = value else {
            outputs.faults.add("kind", "this is not a node");
            return;
        };
        let name = name_of(key);
        let mut faults = Faults::new();
        let settings = host_settings(&object, &mut faults);
        for (setting, value) in HOST_SETTINGS.iter().zip(settings) {
            let entry = |text| FeedEntry::HostConfig(host_config(&name, setting), text);
            match value {
                Setting::Is(text) => outputs.push(entry(Some(text)), revision),
                Setting::Unset => outputs.push(entry(None), revision),
                Setting::Unreadable => outputs.push_unreadable(entry(None), revision),
            }
        }
        outputs.faults.append(faults);
        let mut faults = Faults::new();
        let keys = wireguard(&object, &mut faults).map(Box::new);
        if self.use_pod_cidr {
            self.block_outputs(&name, &object, revision, outputs);
        }
        let node = node(*object, &mut outputs.faults);
        outputs.push(FeedEntry::Node(name.clone(), Some(Box::new(node))), revision);
        outputs.push_converted(FeedEntry::Wireguard(name, keys), faults, revision);
    }

    fn remove(&mut self, key: &Key, outputs: &mut Outputs) {
        for key in self.keys(key) {
            outputs.push(key.gone(), "");
        }
        let name = name_of(key);
        for cidr in self.ranges_of(&name) {
            self.owners.remove(&cidr);
        }
        self.ranges.remove(&name);
    }

    fn keys(&self, key: &Key) -> Vec<FeedKey> {
        let name = name_of(key);
        let settings = HOST_SETTINGS.iter().map(|setting| FeedKey::HostConfig(host_config(&name, setting)));
        let own = [FeedKey::Node(name.clone()), FeedKey::Wireguard(name.clone())];
        settings.chain(own).chain(self.ranges_of(&name).into_iter().map(FeedKey::Block)).collect()
    }
}
