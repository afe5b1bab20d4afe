//! The data that a check has gathered, and its verdicts. No IO: text is collected here, and the caller prints it.

use crate::ipam::explain::Knowledge;
use crate::ipam::report::{Allocation, HandleInfo};
use api::AllocationAttribute;
use api::meta::StringMap;
use ipam_core::Block;
use ipam_core::consistency::is_given_up;
use ipnet::IpNet;
use model::{AllocationBlock, HandleId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The state of a check.
#[derive(Debug, Default)]
pub(super) struct Findings {
    show_all: bool,
    show_problems: bool,
    text: String,
    allocations: BTreeMap<IpAddr, Vec<Allocation>>,
    allocations_by_node: BTreeMap<String, usize>,
    handles_in_use: BTreeSet<HandleId>,
    has_service_allocations: bool,
    users: BTreeMap<IpAddr, Vec<String>>,
    pools: Vec<IpNet>,
    problems: usize,
    /// The facts for explanations.
    pub(super) knowledge: Knowledge,
}

impl Findings {
    pub(super) fn new(show_all: bool, show_problems: bool) -> Self {
        Self { show_all, show_problems, ..Self::default() }
    }

    /// Adds text.
    pub(super) fn say(&mut self, text: &str) {
        self.text += text;
    }

    fn problem(&mut self, text: &str) {
        if self.show_problems {
            self.text += text;
        }
    }

    /// The text since the last call.
    pub(super) fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    pub(super) fn problems(&self) -> usize {
        self.problems
    }

    pub(super) fn allocation_count(&self) -> usize {
        self.allocations.values().map(Vec::len).sum()
    }

    pub(super) fn pool_count(&self) -> usize {
        self.pools.len()
    }

    pub(super) fn user_count(&self) -> usize {
        self.users.len()
    }

    /// Whether an address was ever allocated to a service.
    pub(super) fn has_service_allocations(&self) -> bool {
        self.has_service_allocations
    }

    /// The allocations in the form of the report.
    pub(super) fn allocations(&self) -> BTreeMap<String, Vec<Allocation>> {
        self.allocations.iter().map(|(address, list)| (address.to_string(), list.clone())).collect()
    }

    pub(super) fn add_block(&mut self, block: &AllocationBlock) {
        let view = Block::new(block);
        let affinity = view.affinity();
        self.say(&format!(
            " IPAM block {} affinity={}:\n",
            block.cidr,
            affinity.as_deref().unwrap_or("<none>")
        ));
        let affinity = affinity.unwrap_or_default();
        self.has_service_allocations |= affinity.starts_with("virtual:");
        let block_node = affinity.strip_prefix("host:").unwrap_or_default();
        for allocation in view.allocations() {
            let address = allocation.address;
            let attribute = |name: &str| allocation.owner_attribute(name).unwrap_or_default().to_owned();
            let node = Some(attribute("node")).filter(|node| !node.is_empty());
            let node = node.unwrap_or_else(|| block_node.to_owned());
            self.has_service_allocations |= allocation.owner_attribute("service").is_some();
            let mut entry = Allocation {
                ip: address.to_string(),
                sequence_number: Some(allocation.sequence_number),
                pod: attribute("pod"),
                namespace: attribute("namespace"),
                kind: attribute("type"),
                creation_timestamp: attribute("timestamp"),
                borrowed: node != block_node,
                cooling_down: allocation.is_resting(),
                node,
                attributes: allocation.attribute.map_or_else(|| "<missing>".to_owned(), format_attribute),
                ..Allocation::default()
            };
            let is_windows = allocation.is_windows_reserved();
            if let Some(handle_id) = allocation.handle_id().filter(|_| !is_windows) {
                handle_id.clone_into(&mut entry.handle);
                self.handles_in_use.insert(handle_id.into());
            }
            *self.allocations_by_node.entry(entry.node.clone()).or_default() += 1;
            let line = format!("  {address} allocated; attrs {}\n", entry.attributes);
            self.allocations.entry(address).or_default().push(entry);
            if is_windows {
                // No workload uses these, and releasing them would break the node.
                self.add_user(address, "Reserved for Windows");
            }
            if self.show_all {
                self.text += &line;
            }
        }
    }

    pub(super) fn add_pool(&mut self, cidr: IpNet) {
        self.say(&format!("  {cidr}\n"));
        self.pools.push(cidr);
    }

    /// Records that an address is in use.
    pub(super) fn add_user(&mut self, address: IpAddr, user: &str) {
        if self.show_all {
            self.text += &format!("  {address} belongs to {user}\n");
        }
        self.users.entry(address).or_default().push(user.to_owned());
        for allocation in self.allocations.get_mut(&address).into_iter().flatten() {
            allocation.in_use = true;
            allocation.owners.get_or_insert_default().push(user.to_owned());
        }
    }

    /// The nodes with the most addresses.
    pub(super) fn top_nodes(&mut self, limit: usize) {
        self.say(&format!("Looking for top (up to {limit}) nodes by allocations...\n"));
        let mut nodes: Vec<(String, usize)> =
            self.allocations_by_node.iter().map(|(node, count)| (node.clone(), *count)).collect();
        nodes.sort_by_key(|(_, count)| Reverse(*count));
        for (node, count) in nodes.iter().take(limit) {
            self.say(&format!("  {node} has {count} allocations\n"));
        }
        if let (Some((_, most)), Some((_, median))) = (nodes.first(), nodes.get(nodes.len() / 2)) {
            self.say(&format!("Node with most allocations has {most}; median is {median}\n"));
        }
        self.say("\n");
    }

    /// Finds addresses that are allocated but not in use.
    pub(super) fn scan_allocations(&mut self) {
        self.say("Scanning for IPs that are allocated but not actually in use...\n");
        let mut lines = String::new();
        let mut leaked = 0;
        for (address, allocations) in &self.allocations {
            if self.users.contains_key(address)
                || allocations.iter().any(|allocation| allocation.cooling_down)
            {
                continue;
            }
            leaked += 1;
            for allocation in allocations {
                let reason = self.knowledge.leaked(allocation);
                lines +=
                    &format!("  {address} leaked; attrs {}\n    because {reason}\n", allocation.attributes);
            }
        }
        self.problem(&lines);
        self.problems += leaked;
        self.say(&format!("Found {leaked} IPs that are allocated in IPAM but not actually in use.\n"));
    }

    /// Finds addresses that are in use but not allocated.
    pub(super) fn scan_users(&mut self) {
        self.say("Scanning for IPs that are in use by a workload or node but not allocated in IPAM...\n");
        let mut lines = String::new();
        let (mut in_no_pool, mut not_allocated, mut given_up) = (0, 0, 0);
        for (address, users) in &self.users {
            if users.len() > 1 {
                lines += &format!("  {address} has multiple owners.\n    namely {}\n", users.join(", "));
            }
            if let Some(found) = self.allocations.get(address) {
                if is_given_up(true, found.iter().map(|allocation| allocation.cooling_down)) {
                    given_up += 1;
                    for user in users {
                        lines += &format!("  {address} in use by {user} was released and is in cooldown.\n");
                    }
                    lines += "    because it was released while in use; recreate the workload before it is given away\n";
                }
                continue;
            }
            if self.pools.iter().any(|pool| pool.contains(address)) {
                not_allocated += 1;
                for user in users {
                    lines += &format!(
                        "  {address} in use by {user} and in active IPAM pool but has no IPAM allocation.\n"
                    );
                }
                lines += &format!("    {}\n", Knowledge::not_allocated());
            } else {
                in_no_pool += 1;
                for user in users {
                    lines += &format!("  {address} in use by {user} is not in any active IP pool.\n");
                }
                lines += &format!("    {}\n", Knowledge::in_no_pool());
            }
        }
        self.problem(&lines);
        self.problems += in_no_pool + not_allocated + given_up;
        if given_up > 0 {
            self.say(&format!("Found {given_up} in-use IPs that were released and are in cooldown.\n"));
        }
        self.say(&format!("Found {in_no_pool} in-use IPs that are not in active IP pools.\n"));
        self.say(&format!(
            "Found {not_allocated} in-use IPs that are in active IP pools but have no corresponding IPAM allocation.\n\n"
        ));
    }

    /// Finds handles without addresses, which are returned, and addresses whose handle is missing.
    pub(super) fn scan_handles(&mut self, handles: &BTreeMap<HandleId, HandleInfo>) -> Vec<HandleInfo> {
        self.say("Scanning for IPAM handles with no matching IPs...\n");
        let is_leaked = |handle: &&HandleInfo| !self.handles_in_use.contains(handle.id.as_str());
        let leaked: Vec<HandleInfo> = handles.values().filter(is_leaked).cloned().collect();
        if self.show_all {
            for handle in &leaked {
                self.text += &format!("  {} doesn't have any active IPs.\n", handle.id);
            }
        }
        self.problems += leaked.len();
        let good = handles.len() - leaked.len();
        self.say(&format!(
            "Found {} handles with no matching IPs (and {good} handles with matches).\n",
            leaked.len()
        ));
        self.say("Scanning for IPs with missing handle...\n");
        let missing: Vec<HandleId> =
            self.handles_in_use.iter().filter(|handle| !handles.contains_key(*handle)).cloned().collect();
        for handle in &missing {
            self.problem(&format!("  {handle} is in use in a block but doesn't exist.\n"));
        }
        // Calico does not count these as problems.
        self.say(&format!(
            "Found {} handles mentioned in blocks with no matching handle resource.\n",
            missing.len()
        ));
        leaked
    }

    /// Reports blocks that contradict themselves or cannot be read: key and reason.
    pub(super) fn invalid_blocks(&mut self, invalid: &[(String, String)]) {
        for (key, reason) in invalid {
            self.say(&format!("  IPAMBlock {key} is invalid: {reason}\n"));
        }
        self.problems += invalid.len();
        self.say(&format!("Found {} invalid IPAMBlocks.\n", invalid.len()));
    }
}

/// A holder's attributes on one line.
fn format_attribute(attribute: &AllocationAttribute) -> String {
    let handle = attribute.handle_id.as_deref().unwrap_or("<none>");
    let mut text = format!("Main:{handle} Extra:{}", pairs(&attribute.active_owner_attrs));
    if !attribute.alternate_owner_attrs.is_empty() {
        text += &format!(" Alternate:{}", pairs(&attribute.alternate_owner_attrs));
    }
    text
}

fn pairs(map: &StringMap) -> String {
    let pairs: Vec<String> = map.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(",")
}
