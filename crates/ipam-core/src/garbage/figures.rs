//! Figures by pool and node: how many addresses are in use, borrowed and suspected, and how many blocks there are.
//!
//! Computed on request from what the collector knows. The labels for missing names are Calico's.

use super::Collector;
use super::collector::Suspicion;
use ipnet::IpNet;
use std::collections::BTreeMap;

/// The label for allocations that name no node.
pub const UNKNOWN_NODE: &str = "unknown_node";
/// The label for blocks that are not a host's.
pub const NO_AFFINITY: &str = "no_affinity";
/// The label for blocks in no pool.
pub const NO_POOL: &str = "no_ippool";

/// The part of a pool that figures need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRange {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub cidr: IpNet,
}

/// Figures by pool, then by node.
pub type ByPool = BTreeMap<String, BTreeMap<String, u64>>;

/// The figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Addresses in use.
    pub in_use: ByPool,
    /// Addresses in blocks of another node, or of none.
    pub borrowed: ByPool,
    /// Blocks.
    pub blocks: ByPool,
    /// Addresses that look leaked.
    pub candidates: ByPool,
    /// Addresses in use by node, in all pools; without addresses that name no node.
    pub in_use_by_node: BTreeMap<String, u64>,
}

impl Figures {
    /// Adds up figures of all pools.
    #[must_use]
    pub fn by_node(figure: &ByPool) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for (node, count) in figure.values().flatten() {
            *sums.entry(node.clone()).or_default() += count;
        }
        sums
    }
}

impl Collector {
    /// Computes the figures. Nodes of the cluster that have nothing in a pool have a zero, so that quotients exist.
    #[must_use]
    pub fn figures<'a>(&self, pools: &[PoolRange], nodes: impl Iterator<Item = &'a str>) -> Figures {
        let zeros: BTreeMap<String, u64> = nodes.map(|node| (node.to_owned(), 0)).collect();
        let mut figures = Figures::default();
        for pool in pools {
            figures.in_use.insert(pool.name.clone(), zeros.clone());
            figures.borrowed.insert(pool.name.clone(), zeros.clone());
            figures.candidates.insert(pool.name.clone(), zeros.clone());
            figures.blocks.insert(pool.name.clone(), BTreeMap::new());
        }
        for (cidr, known) in &self.blocks {
            let pool = pools.iter().find(|pool| pool.cidr.contains(cidr));
            let pool = pool.map_or(NO_POOL, |pool| pool.name.as_str());
            let owner = known.owner.as_deref().unwrap_or(NO_AFFINITY);
            add(&mut figures.blocks, pool, owner);
            for entry in known.entries.values() {
                let node = entry.node.as_deref();
                add(&mut figures.in_use, pool, node.unwrap_or(UNKNOWN_NODE));
                if let Some(node) = node {
                    *figures.in_use_by_node.entry(node.to_owned()).or_default() += 1;
                    if !known.has_affinity || node != owner {
                        add(&mut figures.borrowed, pool, node);
                    }
                }
                if entry.suspicion != Suspicion::None {
                    add(&mut figures.candidates, pool, node.unwrap_or(UNKNOWN_NODE));
                }
            }
        }
        figures
    }
}

fn add(figure: &mut ByPool, pool: &str, node: &str) {
    if !figure.contains_key(pool) {
        figure.insert(pool.to_owned(), BTreeMap::new());
    }
    if let Some(nodes) = figure.get_mut(pool) {
        *nodes.entry(node.to_owned()).or_default() += 1;
    }
}
