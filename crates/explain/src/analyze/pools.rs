//! Pools that cannot allocate an address, and why; blocks of deleted nodes.

use super::{Finding, Severity};
use crate::Cluster;
use crate::cluster::Identity;
use api::{AssignmentMode, IPPoolAllowedUse, Kind, Resource};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// The use of pools, as counted by address management.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// By the pool's name.
    pub pools: BTreeMap<String, PoolRoom>,
    /// Blocks without a pool.
    pub orphans: Vec<IpNet>,
    /// Blocks, each with the node that owns it.
    pub blocks: Vec<(IpNet, Option<String>)>,
}

/// The use of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolRoom {
    /// The number of its addresses.
    pub capacity: u128,
    /// The number of reserved addresses.
    pub reserved: u128,
    /// The number of addresses that can be allocated.
    pub available: u128,
}

pub(super) fn look(cluster: &Cluster, addresses: Option<&Addresses>, findings: &mut Vec<Finding>) {
    let nodes: Vec<_> = cluster
        .of_kind(Kind::Node)
        .filter_map(|resource| match resource {
            Resource::Node(node) => Some(&node.metadata),
            _ => None,
        })
        .collect();
    let mut pools: Vec<(Identity, IpNet)> = Vec::new();
    for resource in cluster.of_kind(Kind::IPPool) {
        let Resource::IPPool(pool) = resource else { continue };
        let identity: Identity = (Kind::IPPool, String::new(), pool.metadata.name.clone());
        let mut warn = |severity, check, path: &str, message: String, remedy: &str| {
            findings.push(Finding::of(&identity, severity, check, path, message, remedy));
        };
        if pool.spec.disabled {
            let message = "allocates no addresses: it is disabled".to_owned();
            warn(Severity::Note, "pool-disabled", "spec.disabled", message, "remove `disabled`, or the pool");
        }
        if pool.spec.assignment_mode == Some(AssignmentMode::Manual) {
            let message = "allocates addresses only on explicit request: assignmentMode is Manual".to_owned();
            let remedy = "set assignmentMode to Automatic if pods should use it by themselves";
            warn(Severity::Note, "pool-manual", "spec.assignmentMode", message, remedy);
        }
        let uses = &pool.spec.allowed_uses;
        if !uses.is_empty() && !uses.contains(&IPPoolAllowedUse::Workload) {
            let message = "gives no addresses to pods: allowedUses does not have Workload".to_owned();
            warn(
                Severity::Note,
                "pool-not-for-pods",
                "spec.allowedUses",
                message,
                "add Workload if pods should use it",
            );
        }
        if let Ok(selector) = pool.spec.node_selector.parse()
            && !nodes.is_empty()
            && !pool.spec.node_selector.is_empty()
            && !nodes.iter().any(|node| selector.evaluate(&node.labels))
        {
            let message = format!("no node may use it: none is selected by {}", pool.spec.node_selector);
            warn(
                Severity::Warning,
                "pool-without-nodes",
                "spec.nodeSelector",
                message,
                "correct the selector, or label the nodes",
            );
        }
        if let Some(room) = addresses.and_then(|addresses| addresses.pools.get(&pool.metadata.name)) {
            if room.capacity > 0 && room.reserved >= room.capacity {
                let message = "allocates no addresses: all of them are reserved".to_owned();
                warn(Severity::Warning, "pool-reserved", "spec.cidr", message, "narrow the IPReservations");
            } else if room.available == 0 && room.capacity > 0 {
                let message = format!("full: all of its {} addresses are in use or reserved", room.capacity);
                let remedy = "add a pool; `calicoctl ipam check` finds addresses that leaked";
                warn(Severity::Warning, "pool-full", "spec.cidr", message, remedy);
            }
        }
        if let Ok(cidr) = pool.spec.cidr.parse() {
            pools.push((identity, cidr.masked()));
        }
    }
    for (index, (identity, cidr)) in pools.iter().enumerate() {
        let other = pools[..index].iter().find(|(_, other)| other.contains(cidr) || cidr.contains(other));
        if let Some((other, other_cidr)) = other {
            findings.push(Finding::of(
                identity,
                Severity::Warning,
                "pools-overlap",
                "spec.cidr",
                format!("{cidr} overlaps {other_cidr} of pool {}", other.2),
                "give each pool a range of its own",
            ));
        }
    }
    if let Some(addresses) = addresses {
        let known: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        blocks(addresses, &known, findings);
    }
}

fn blocks(addresses: &Addresses, nodes: &BTreeSet<&str>, findings: &mut Vec<Finding>) {
    let mut warn = |block: &IpNet, check, message: String, remedy: &str| {
        let (kind, namespace, name) = ("IPAMBlock".to_owned(), String::new(), block.to_string());
        let (path, remedy) = (String::new(), remedy.to_owned());
        findings.push(Finding {
            severity: Severity::Warning,
            check,
            kind,
            namespace,
            name,
            path,
            message,
            remedy,
        });
    };
    for block in &addresses.orphans {
        let message = "allocates no addresses: no pool contains it".to_owned();
        warn(block, "block-without-pool", message, "create its pool again, or release its addresses");
    }
    for (block, node) in &addresses.blocks {
        if let Some(node) = node
            && !nodes.is_empty()
            && !nodes.contains(node.as_str())
        {
            let message = format!("is kept for node {node}, which does not exist");
            warn(block, "block-without-node", message, "`calicoctl ipam check` shows what can be released");
        }
    }
}
