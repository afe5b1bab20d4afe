//! The evaluator of flow logs: on random clusters it comes to the same verdicts about pods as the explanations, whose code it
//! does not share.

use crate::clusters::{PODS, resources};
use crate::kernel::{entries, is_fed};
use api::Kind;
use calc::{CalcGraph, GraphConfig};
use explain::{Cluster, Protocol, Query, Verdict, World};
use flows::collector::Tuple;
use flows::pending::Evaluator;
use flows::{Action, Direction};
use messages::{ToDataplane, WorkloadEndpointId};
use model::feed::Status;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Clone, Debug)]
struct Question {
    from: usize,
    to: usize,
    v6: bool,
    protocol: u8,
    ports: (u16, u16),
    icmp: (u8, u8),
}

fn address(pod: usize, v6: bool) -> IpAddr {
    let text = if v6 { format!("fd00::{}", PODS[pod].3) } else { format!("10.0.0.{}", PODS[pod].3) };
    text.parse().expect("an address")
}

fn question() -> impl Strategy<Value = Question> {
    let port = || select(vec![80_u16, 80, 53, 443, 22, 40_000]);
    let icmp = (select(vec![8_u8, 3]), 0..2_u8);
    let protocol = select(vec![6_u8, 6, 6, 17, 17, 1, 132]);
    (0..PODS.len(), 0..PODS.len(), any::<bool>(), protocol, (port(), port()), icmp)
        .prop_filter("nobody asks himself", |(from, to, ..)| from != to)
        .prop_map(|(from, to, v6, protocol, ports, icmp)| Question {
            from,
            to,
            v6,
            protocol: if v6 && protocol == 1 { 58 } else { protocol },
            ports,
            icmp: if v6 && icmp.0 == 8 { (128, icmp.1) } else { icmp },
        })
}

/// A node's evaluator, and its workloads by interface.
struct Node {
    evaluator: Evaluator,
    workloads: BTreeMap<String, WorkloadEndpointId>,
}

impl Node {
    fn of(host: &str, cluster: &Cluster) -> Self {
        let mut graph = CalcGraph::new(GraphConfig { host: host.to_owned(), ..GraphConfig::default() });
        let fed = cluster.resources().filter(|resource| is_fed(resource.kind()));
        for entry in fed.flat_map(entries) {
            graph.on_entry(entry);
        }
        for status in [Status::WaitForDatastore, Status::ResyncInProgress, Status::InSync] {
            graph.on_status(status);
        }
        let mut node = Self { evaluator: Evaluator::default(), workloads: BTreeMap::new() };
        graph.flush_each(|message| {
            node.evaluator.take(&message);
            if let ToDataplane::WorkloadEndpointUpdate(id, endpoint) = message {
                node.workloads.insert(endpoint.name, id);
            }
        });
        node
    }

    /// What is decided in the end; nothing if the pod has no interface here.
    fn allows(&mut self, pod: usize, direction: Direction, tuple: &Tuple) -> Option<bool> {
        let id = self.workloads.get(PODS[pod].4)?;
        let hits = self.evaluator.evaluate(id, direction, tuple)?;
        let (last, before) = hits.split_last()?;
        assert!(before.iter().all(|hit| hit.action == Action::Pass), "{hits:?}");
        Some(last.action == Action::Allow)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn the_evaluator_of_flows_agrees(
        resources in resources(),
        questions in proptest::collection::vec(question(), 60),
    ) {
        let mut cluster = Cluster::new();
        let staged =
            [Kind::StagedNetworkPolicy, Kind::StagedGlobalNetworkPolicy, Kind::StagedKubernetesNetworkPolicy];
        // Hosts have policies of their own, and staged ones count only for the evaluator.
        resources
            .into_iter()
            .filter(|resource| resource.kind() != Kind::HostEndpoint && !staged.contains(&resource.kind()))
            .for_each(|resource| cluster.add(resource));
        let world = World::new(&cluster);
        let mut nodes: BTreeMap<&str, Node> =
            ["h1", "h2"].into_iter().map(|host| (host, Node::of(host, &cluster))).collect();
        for question in &questions {
            let Question { from, to, v6, protocol, ports, icmp } = question.clone();
            let is_icmp = matches!(protocol, 1 | 58);
            let tuple = Tuple {
                source: address(from, v6),
                dest: address(to, v6),
                protocol,
                source_port: if is_icmp { 7 } else { ports.0 },
                dest_port: if is_icmp { u16::from_be_bytes([icmp.0, icmp.1]) } else { ports.1 },
            };
            let mut allows = |pod: usize, direction| {
                nodes.get_mut(PODS[pod].0).and_then(|node| node.allows(pod, direction, &tuple))
            };
            let Some(leaves) = allows(from, Direction::Egress) else { continue };
            let Some(arrives) = allows(to, Direction::Ingress) else { continue };
            let query = Query {
                from: tuple.source.to_string(),
                to: tuple.dest.to_string(),
                protocol: Some(Protocol(protocol)),
                port: (!is_icmp).then_some(ports.1),
                source_port: Some(if is_icmp { 0 } else { ports.0 }),
                icmp: Some(icmp),
                ..Query::default()
            };
            let explained = world.verdict(&query).expect("an answer") == Verdict::Allow;
            prop_assert_eq!(
                explained,
                leaves && arrives,
                "{:?}: leaves {}, arrives {}\n{}",
                question,
                leaves,
                arrives,
                world.explain(&query).expect("an answer").to_text(false)
            );
        }
    }
}
