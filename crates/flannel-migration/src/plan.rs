//! Which nodes come in which order, and the steps of one node: functions of the nodes' labels.
//!
//! ```text
//! no label ─► flannel ─► flannel, in progress ─► none, in progress ─► calico, in progress ─► calico
//! ```
//!
//! The label `none` is set when the node is drained, `calico` when nothing of flannel is left and its pods are gone. So a
//! controller that is started again knows what is done, and does not drain a node twice.

use crate::facts::NodeFacts;
use std::fmt;

/// The label that shows whose network a node has; a selector of both DaemonSets.
pub const NETWORK_LABEL: &str = api::words::LABEL_MIGRATION_NETWORK;
/// The label of the node that is being worked on.
pub const PROGRESS_LABEL: &str = api::words::LABEL_MIGRATION_PROGRESS;
/// The label that holds up the work on a node, for so many seconds or until it is removed.
pub const PAUSE_LABEL: &str = api::words::LABEL_MIGRATION_PAUSE;

/// Labels of nodes that run the control plane.
const CONTROL_PLANE_LABELS: [&str; 3] = [
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/controlplane",
    "node-role.kubernetes.io/control-plane",
];

/// How far a node has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// flannel runs, and nobody has said so yet.
    Unlabelled,
    /// flannel runs.
    Flannel,
    /// Drained; flannel's pod is gone or going.
    Drained,
    /// Nothing of flannel is left; Calico is starting.
    Starting,
    /// Calico runs.
    Done,
}

impl Stage {
    /// The stage that labels tell.
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

/// One thing that is done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStep {
    /// The label that the node is being worked on.
    MarkInProgress,
    /// No new pods.
    Cordon,
    /// All pods but those of DaemonSets leave.
    Drain,
    /// flannel's pod leaves.
    LabelNone,
    /// flannel's devices are deleted, and a CNI configuration that refuses is put in front of flannel's.
    RemoveFlannel,
    /// Pods with addresses of flannel's are deleted.
    DeletePods,
    /// Calico's pod comes.
    LabelCalico,
    /// Until it is ready.
    WaitForCalico,
    /// Its tunnel device is there.
    CheckTunnel,
    /// New pods again.
    Uncordon,
    /// The label goes.
    MarkDone,
}

impl fmt::Display for NodeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MarkInProgress => "mark the node as in progress",
            Self::Cordon => "keep new pods away",
            Self::Drain => "drain the node",
            Self::LabelNone => "let flannel's pod leave",
            Self::RemoveFlannel => "remove flannel's network",
            Self::DeletePods => "delete pods with flannel's addresses",
            Self::LabelCalico => "let Calico's pod come",
            Self::WaitForCalico => "wait for Calico's pod",
            Self::CheckTunnel => "check Calico's tunnel",
            Self::Uncordon => "let new pods come",
            Self::MarkDone => "mark the node as done",
        })
    }
}

/// What is left to do for a node at this stage.
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

/// The nodes that need work, in the order in which they get it: workers, then the control plane, the controller's own node
/// last. Always the same order, so that a node that failed is the first one after a restart.
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

/// For how many seconds at most the work on a node is held up.
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
    fn labels_tell_the_stage() {
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

    /// Whatever the step after which the controller is stopped: going on from the labels does all that is left, and no
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
    fn workers_go_first_and_the_own_node_last() {
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
    fn only_a_number_holds_up_the_work() {
        assert_eq!(pause(&node("n", &[(PAUSE_LABEL, "30")])), Some(30));
        for value in ["0", "-1", "soon"] {
            assert_eq!(pause(&node("n", &[(PAUSE_LABEL, value)])), None);
        }
    }
}
