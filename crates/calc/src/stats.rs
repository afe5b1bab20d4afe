//! Figures about the graph, for metrics.

use crate::population::ItemKey;
use messages::NodeName;
use std::collections::{HashMap, HashSet};

/// The figures. The names are those of Felix's metrics, without `felix_`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// `active_local_endpoints`
    pub active_local_endpoints: usize,
    /// `active_local_policies`
    pub active_local_policies: usize,
    /// `active_local_selectors`: sets in use.
    pub active_local_selectors: usize,
    /// `cluster_num_hosts`
    pub cluster_num_hosts: usize,
    /// `cluster_num_workload_endpoints`
    pub cluster_num_workload_endpoints: usize,
    /// `cluster_num_host_endpoints`
    pub cluster_num_host_endpoints: usize,
    /// `cluster_num_tiers`
    pub cluster_num_tiers: usize,
    /// `cluster_num_policies`
    pub cluster_num_policies: usize,
    /// `cluster_num_profiles`
    pub cluster_num_profiles: usize,
    /// `label_index_num_endpoints`
    pub label_index_num_endpoints: usize,
    /// `label_index_num_active_selectors{optimized="true"}`
    pub label_index_selectors_optimized: usize,
    /// `label_index_num_active_selectors{optimized="false"}`
    pub label_index_selectors_unoptimized: usize,
    /// `label_index_selector_evals{result="true"}`
    pub label_index_evaluations_true: u64,
    /// `label_index_selector_evals{result="false"}`
    pub label_index_evaluations_false: u64,
    /// `label_index_strategy_evals`: candidates found by the value of a label.
    pub label_index_lookups_by_value: u64,
    /// `label_index_strategy_evals`: candidates found by the presence of a label.
    pub label_index_lookups_by_name: u64,
    /// `label_index_strategy_evals`: selectors that cannot match anything.
    pub label_index_lookups_of_nobody: u64,
    /// `label_index_strategy_evals`: all items were tried.
    pub label_index_full_scans: u64,
}

/// Counts hosts and their endpoints.
#[derive(Debug, Default)]
pub(crate) struct HostCounts {
    /// The number of entries about each host.
    entries: HashMap<NodeName, usize>,
    /// The nodes (with an empty name) and settings of hosts that exist.
    settings: HashSet<(NodeName, Box<str>)>,
    pub(crate) workload_endpoints: usize,
    pub(crate) host_endpoints: usize,
}

impl HostCounts {
    pub(crate) fn hosts(&self) -> usize {
        self.entries.len()
    }

    /// Counts an endpoint that was added (`came`) or removed.
    pub(crate) fn count(&mut self, key: &ItemKey<'_>, came: bool) {
        let counter = match key {
            ItemKey::Workload { .. } => &mut self.workload_endpoints,
            ItemKey::Host { .. } => &mut self.host_endpoints,
            ItemKey::NetworkSet { .. } => return,
        };
        if came {
            *counter += 1;
        } else {
            *counter -= 1;
        }
        if let Some(host) = key.host() {
            self.count_entry(host, came);
        }
    }

    /// Notes whether a setting of a host, or its node (with an empty name), exists.
    pub(crate) fn set_entry(&mut self, host: &NodeName, name: &str, there: bool) {
        let entry = (host.clone(), name.into());
        let changed = if there { self.settings.insert(entry) } else { self.settings.remove(&entry) };
        if changed {
            self.count_entry(host, there);
        }
    }

    fn count_entry(&mut self, host: &NodeName, came: bool) {
        if came {
            if let Some(entries) = self.entries.get_mut(host) {
                *entries += 1;
            } else {
                self.entries.insert(host.clone(), 1);
            }
        } else if let Some(entries) = self.entries.get_mut(host) {
            *entries -= 1;
            if *entries == 0 {
                self.entries.remove(host);
            }
        }
    }
}
