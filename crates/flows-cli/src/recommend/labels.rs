//! Chooses the labels by which workloads, hosts and sets are selected.

use crate::flow::Flow;
use flows::{Labels, Peer};
use std::collections::BTreeMap;

/// How many labels a selector names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The usual application labels, if there are any.
    Usual,
    /// All labels that controllers do not generate.
    Every,
}

/// The usual labels for applications.
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

/// Labels that controllers generate: they change with every roll-out, or differ for every pod.
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

/// For each end, the labels that all its flows have.
#[derive(Debug)]
pub struct Labelled {
    labels: BTreeMap<Peer, Labels>,
    detail: Detail,
}

impl Labelled {
    /// Collects the labels of the ends of flows.
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

    /// The labels of an end that persist when pods are recreated.
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

    /// The selector of an end; `None` if it has no labels.
    #[must_use]
    pub fn selector(&self, peer: &Peer) -> Option<String> {
        let parts: Vec<String> =
            self.selecting(peer).iter().map(|(key, value)| format!("{key} == '{value}'")).collect();
        (!parts.is_empty()).then(|| parts.join(" && "))
    }
}
