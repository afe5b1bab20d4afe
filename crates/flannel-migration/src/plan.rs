//! The order of nodes, and the steps of one node, as functions of the nodes' labels.
//!
//! ```text
//! no label ─► flannel ─► flannel, in progress ─► none, in progress ─► calico, in progress ─► calico
//! ```
//!
//! The label `none` is set when the node has been drained, and `calico` when nothing of flannel is left and its pods
//! are gone. A restarted controller therefore knows what has been done, and does not drain a node twice.

use crate::facts::NodeFacts;
use std::fmt;

/// The label for the network that a node uses; both DaemonSets select by it.
pub const NETWORK_LABEL: &str = api::words::LABEL_MIGRATION_NETWORK;
/// The label of the node that is being migrated.
pub const PROGRESS_LABEL: &str = api::words::LABEL_MIGRATION_PROGRESS;
/// The label that pauses the work on a node, for its value in seconds or until it is removed.
pub const PAUSE_LABEL: &str = api::words::LABEL_MIGRATION_PAUSE;

/// Labels of nodes that run the control plane.
const CONTROL_PLANE_LABELS: [&str; 3] = [
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/control-plane",
];

/// How far the migration of a node has progressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// flannel runs, but the node has no label yet.
    Unlabelled,
    /// flannel runs.
    Flannel,
    /// Drained; flannel's pod is gone or terminating.
    Drained,
    /// Nothing of flannel is left; Calico is starting.
    Starting,
    /// Calico runs.
    Done,
}

impl Stage {
    /// Derives the stage from the node's labels.
    #[must_use]
    pub fn of(node: &NodeFacts) -> Self {
        let is_in_progress = node.label(PROGRESS_LABEL) == Some("true");
        match (node.label(NETWORK_LABEL), is_in_progress) {
            (Some("calico"), false) => Self::Done,
            (Some("calico"), true) => Self::Starting,
            (Some("none"), _) => Self::Drained,
            (Some("flannel"), _) => Self::Flannel,
            _ => Self::Unlabelled,
        }
    }
}

/// One step of a node's migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// Sets the label that marks the node as in progress.
    MarkInProgress,
    /// Keeps new pods away.
    Cordon,
    /// Evicts all pods except those of DaemonSets.
    Drain,
    /// Sets the label `none`, so that flannel's pod is removed.
    LabelNone,
    /// Deletes flannel's devices, and puts a CNI configuration that rejects pods before flannel's.
    RemoveFlannel,
    /// Deletes pods with flannel's addresses.
    DeletePods,
    /// Sets the label `calico`, so that Calico's pod starts.
    LabelCalico,
    /// Waits until Calico's pod is ready.
    WaitForCalico,
    /// Checks that Calico's tunnel device exists.
    CheckTunnel,
    /// Allows new pods again.
    Uncordon,
    /// Removes the label that marks the node as in progress.
    MarkDone,
}

impl fmt::Display for NodeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MarkInProgress => "mark the node as in progress",
            Self::Cordon => "keep new pods away",
            Self::Drain => "drain the node",
            Self::LabelNone => "remove flannel's pod",
            Self::RemoveFlannel => "remove flannel's network",
            Self::DeletePods => "delete pods with flannel's addresses",
            Self::LabelCalico => "let Calico's pod start",
            Self::WaitForCalico => "wait for Calico's pod",
            Self::CheckTunnel => "check Calico's tunnel",
            Self::Uncordon => "allow new pods",
            Self::MarkDone => "mark the node as done",
        })
    }
}

/// The remaining steps for a node at this stage.
#[must_use]
pub fn steps(stage: Stage) -> Vec<NodeStep> {
    use NodeStep as Step;
    let end = [Step::WaitForCalico, Step::CheckTunnel, Step::Uncordon, Step::MarkDone];
    let middle = [Step::RemoveFlannel, Step::DeletePods, Step::LabelCalico];
    match stage {
        Stage::Unlabelled | Stage::Flannel => {
            let start = [Step::MarkInProgress, Step::Cordon, Step::Drain, Step::LabelNone];
            [start.as_slice(), &middle, &end].concat()
        }
        Stage::Drained => [[Step::MarkInProgress, Step::Cordon].as_slice(), &middle, &end].concat(),
        Stage::Starting => end.to_vec(),
        Stage::Done => Vec::new(),
    }
}

/// The nodes to migrate, in order: workers, then the control plane, the controller's own node last. The order is
/// stable, so that a failed node is the first one after a restart.
#[must_use]
pub fn order<'a>(nodes: impl IntoIterator<Item = &'a NodeFacts>, own: &str) -> Vec<&'a NodeFacts> {
    let mut nodes: Vec<&NodeFacts> =
        nodes.into_iter().filter(|node| Stage::of(node) != Stage::Done).collect();
    nodes.sort_by_key(|node| (node.name == own, is_control_plane(node), node.name.clone()));
    nodes
}

fn is_control_plane(node: &NodeFacts) -> bool {
    CONTROL_PLANE_LABELS.iter().any(|label| node.label(label).is_some())
}

/// The longest pause, in seconds, that a label requests for the node.
#[must_use]
pub fn pause(node: &NodeFacts) -> Option<u64> {
    node.label(PAUSE_LABEL)?.parse().ok().filter(|seconds| *seconds > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, labels: &[(&str, &str)]) -> NodeFacts {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeFacts { name: name.to_owned(), labels, ..NodeFacts::default() }
    }

    #[test]
    fn labels_determine_the_stage() {
        for (labels, stage, first) in [
            (vec![], Stage::Unlabelled, Some(NodeStep::MarkInProgress)),
            (vec![(NETWORK_LABEL, "flannel")], Stage::Flannel, Some(NodeStep::MarkInProgress)),
            // Stopped while draining.
            (
                vec![(NETWORK_LABEL, "flannel"), (PROGRESS_LABEL, "true")],
                Stage::Flannel,
                Some(NodeStep::MarkInProgress),
            ),
            (
                vec![(NETWORK_LABEL, "none"), (PROGRESS_LABEL, "true")],
                Stage::Drained,
                Some(NodeStep::MarkInProgress),
            ),
            (
                vec![(NETWORK_LABEL, "calico"), (PROGRESS_LABEL, "true")],
                Stage::Starting,
                Some(NodeStep::WaitForCalico),
            ),
            (vec![(NETWORK_LABEL, "calico")], Stage::Done, None),
            (vec![(NETWORK_LABEL, "what")], Stage::Unlabelled, Some(NodeStep::MarkInProgress)),
        ] {
            let node = node("n", &labels);
            assert_eq!(Stage::of(&node), stage, "{labels:?}");
            assert_eq!(steps(stage).first().copied(), first);
        }
    }

    /// After whichever step the controller is stopped: resuming from the labels does everything that is left, and no
    /// node is drained twice.
    #[test]
    fn a_node_can_be_resumed_anywhere() {
        let all = steps(Stage::Unlabelled);
        assert_eq!(all.len(), 11);
        for stopped_after in 0..=all.len() {
            let mut labels: Vec<(&str, &str)> = vec![(NETWORK_LABEL, "flannel")];
            for step in &all[..stopped_after] {
                match step {
                    NodeStep::MarkInProgress => labels.push((PROGRESS_LABEL, "true")),
                    NodeStep::LabelNone => labels[0].1 = "none",
                    NodeStep::LabelCalico => labels[0].1 = "calico",
                    NodeStep::MarkDone => labels.retain(|(label, _)| *label != PROGRESS_LABEL),
                    _ => {}
                }
            }
            let rest = steps(Stage::of(&node("n", &labels)));
            for step in &all[stopped_after..] {
                assert!(rest.contains(step), "after {stopped_after} steps, {step} is missing");
            }
            let was_drained = all[..stopped_after].contains(&NodeStep::LabelNone);
            assert!(!was_drained || !rest.contains(&NodeStep::Drain));
        }
    }

    #[test]
    fn workers_come_first_and_the_own_node_last() {
        let nodes = [
            node("w2", &[]),
            node("own", &[]),
            node("m1", &[("node-role.kubernetes.io/control-plane", "")]),
            node("w1", &[(NETWORK_LABEL, "none")]),
            node("done", &[(NETWORK_LABEL, "calico")]),
        ];
        let names: Vec<&str> = order(&nodes, "own").into_iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["w1", "w2", "m1", "own"]);
    }

    #[test]
    fn only_a_number_pauses_the_work() {
        assert_eq!(pause(&node("n", &[(PAUSE_LABEL, "30")])), Some(30));
        for value in ["0", "-1", "soon"] {
            assert_eq!(pause(&node("n", &[(PAUSE_LABEL, value)])), None);
        }
    }
}
