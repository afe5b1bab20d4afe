//! By which labels workloads, hosts and sets are selected.

use crate::flow::Flow;
use flows::{Labels, Peer};
use std::collections::BTreeMap;

/// How many labels a selector names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Those by which people name applications, where there are such.
    Usual,
    /// All that are not made by controllers.
    Every,
}

/// What people name applications by.
const USUAL: [&str; 10] = [
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "k8s-app",
    "app",
    "component",
    "role",
    "tier",
    "name",
    "run",
];

/// What controllers make: another one with every roll-out, or for every pod.
const MADE: [&str; 10] = [
    "pod-template-hash",
    "pod-template-generation",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "batch.kubernetes.io/job-completion-index",
];

/// The labels that every flow of an end has, by end.
#[derive(Debug)]
pub struct Labelled {
    labels: BTreeMap<Peer, Labels>,
    detail: Detail,
}

impl Labelled {
    /// Those of the ends of flows.
    #[must_use]
    pub fn new(flows: &[Flow], detail: Detail) -> Self {
        let mut labels: BTreeMap<Peer, Labels> = BTreeMap::new();
        for flow in flows {
            for (peer, more) in [(&flow.key.source, &flow.source_labels), (&flow.key.dest, &flow.dest_labels)]
            {
                match labels.get_mut(peer) {
                    Some(known) => *known = known.intersection(more),
                    None => drop(labels.insert(peer.clone(), more.clone())),
                }
            }
        }
        Self { labels, detail }
    }

    /// The ends, in order.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.labels.keys()
    }

    /// The labels of an end that stay when pods are made again.
    #[must_use]
    pub fn lasting(&self, peer: &Peer) -> Vec<(&str, &str)> {
        let labels = self.labels.get(peer).map(Labels::texts).unwrap_or_default();
        labels
            .iter()
            .filter_map(|text| text.split_once('='))
            .filter(|(key, value)| {
                !key.is_empty()
                    && !key.starts_with(api::words::OWN_PREFIX)
                    && !MADE.contains(key)
                    && !value.contains(['\'', '"', '\\'])
                    && !value.chars().any(char::is_control)
            })
            .collect()
    }

    /// The labels that select an end.
    #[must_use]
    pub fn selecting(&self, peer: &Peer) -> Vec<(&str, &str)> {
        let lasting = self.lasting(peer);
        let usual: Vec<(&str, &str)> =
            lasting.iter().copied().filter(|(key, _)| USUAL.contains(key)).collect();
        if self.detail == Detail::Usual && !usual.is_empty() { usual } else { lasting }
    }

    /// The selector of an end; none where it has no labels.
    #[must_use]
    pub fn selector(&self, peer: &Peer) -> Option<String> {
        let parts: Vec<String> =
            self.selecting(peer).iter().map(|(key, value)| format!("{key} == '{value}'")).collect();
        (!parts.is_empty()).then(|| parts.join(" && "))
    }
}
