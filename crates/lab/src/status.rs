//! The output of `status`: the lab in one line, its nodes, its pods, and programs that ended. Pure.

use crate::called::count;
use crate::state::{Folder, State};
use crate::table::{age, table};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// What was measured of a lab, in addition to its stored state.
pub(crate) struct Findings {
    /// Whether each node's Felix is ready.
    pub(crate) ready: BTreeMap<String, bool>,
    /// Programs that ended, and how.
    pub(crate) ended: BTreeMap<String, String>,
    /// The lab's age.
    pub(crate) age: Option<Duration>,
}

impl Findings {
    /// Whether everything is running and ready.
    pub(crate) fn sound(&self, state: &State) -> bool {
        state.ready && self.ended.is_empty() && self.ready.values().all(|ready| *ready)
    }
}

/// The status as text.
pub(crate) fn text(folder: &Folder, state: &State, findings: &Findings) -> String {
    let topology = &state.topology;
    let since = findings.age.map(|since| format!(", {} old", age(since))).unwrap_or_default();
    let mut out = format!(
        "lab '{}': {} in {}, {}; encap {}, dataplane {}, datastore {}{since}\n",
        topology.name,
        count(topology.nodes.len(), "node"),
        count(topology.subnets, "subnet"),
        count(state.pods.len(), "pod"),
        word(&topology.encap),
        word(&topology.dataplane),
        word(&topology.datastore),
    );
    // Writing to a string cannot fail.
    let _ = writeln!(out, "logs: {}", folder.file("logs").display());
    if !state.ready {
        out.push_str("it did not come up completely\n");
    }
    out.push('\n');
    let nodes: Vec<Vec<String>> = topology
        .nodes
        .iter()
        .map(|node| {
            let ready = findings.ready.get(&node.name).copied().unwrap_or_default();
            let addresses: Vec<String> =
                [node.v4, node.v6].into_iter().flatten().map(|address| address.to_string()).collect();
            vec![
                node.name.clone(),
                if ready { "ready" } else { "not ready" }.to_owned(),
                node.subnet.to_string(),
                addresses.join(", "),
            ]
        })
        .collect();
    out.push_str(&table(&["NODE", "STATE", "SUBNET", "ADDRESS"], &nodes));
    if !state.pods.is_empty() {
        out.push('\n');
        let pods: Vec<Vec<String>> = state
            .pods
            .values()
            .map(|pod| {
                let words = |items: Vec<String>| items.join(",");
                let has_ended = findings.ended.contains_key(&format!("pod/{}", pod.pod.full_name()));
                vec![
                    pod.pod.full_name(),
                    if has_ended { "ended" } else { "answers" }.to_owned(),
                    pod.pod.node.clone(),
                    pod.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                    words(pod.pod.ports.iter().map(ToString::to_string).collect()),
                    words(pod.pod.labels.iter().map(|(name, value)| format!("{name}={value}")).collect()),
                ]
            })
            .collect();
        out.push_str(&table(&["POD", "STATE", "NODE", "ADDRESS", "PORTS", "LABELS"], &pods));
    }
    if !findings.ended.is_empty() {
        out.push('\n');
    }
    for (name, how) in &findings.ended {
        let _ = writeln!(out, "{} ended: {how}; its log: {}", program(name), folder.log(name).display());
    }
    out
}

/// The name of a program in messages.
pub(crate) fn program(name: &str) -> String {
    match name.strip_prefix("pod/") {
        Some(pod) => format!("the responder of pod {pod}"),
        None => name.to_owned(),
    }
}

/// The name of a choice on the command line.
pub(crate) fn word(choice: &impl ValueEnum) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Findings, text};
    use crate::state::{Folder, PodState, State};
    use crate::topology::{Wish, plan};
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::time::Duration;

    #[test]
    fn columns_have_headings_and_are_aligned() {
        let wish = Wish { node_count: Some(1), pod_count: Some(2), ..Wish::default() };
        let topology = plan("lab", &wish).unwrap();
        let pods: BTreeMap<String, PodState> = topology
            .pods
            .iter()
            .map(|pod| {
                let state = PodState {
                    pod: pod.clone(),
                    container: "c".to_owned(),
                    addresses: vec!["172.16.0.1".parse().unwrap()],
                    netns: PathBuf::new(),
                };
                (pod.full_name(), state)
            })
            .collect();
        let state = State { topology, namespaces: BTreeMap::new(), pods, ready: true };
        let findings = Findings {
            ready: [("node1".to_owned(), true)].into(),
            ended: [("pod/shop/cart".to_owned(), "signal: 9 (SIGKILL)".to_owned())].into(),
            age: Some(Duration::from_secs(60)),
        };
        assert!(!findings.sound(&state));
        let folder = Folder::at(&PathBuf::from("/labs/lab")).unwrap();
        assert_eq!(
            text(&folder, &state, &findings),
            "lab 'lab': 1 node in 1 subnet, 2 pods; encap vxlan, dataplane nftables, datastore embedded, 60s old\n\
             logs: /labs/lab/logs\n\n\
             NODE    STATE   SUBNET   ADDRESS\n\
             node1   ready   0        10.65.0.1/24\n\n\
             POD             STATE     NODE    ADDRESS      PORTS     LABELS\n\
             shop/cart       ended     node1   172.16.0.1   80,8080   app=cart,tier=middle\n\
             shop/frontend   answers   node1   172.16.0.1   80,8080   app=frontend,tier=front\n\n\
             the responder of pod shop/cart ended: signal: 9 (SIGKILL); its log: /labs/lab/logs/pod-shop-cart.log\n"
        );
    }
}
