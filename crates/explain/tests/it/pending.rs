//! The evaluator of flow logs: on random clusters it gives the same verdicts about pods and hosts as the explanations,
//! whose code it does not share.

use crate::clusters::{PODS, host_endpoint, resources};
use crate::kernel::{entries, is_fed};
use api::{Kind, Resource};
use calc::{CalcGraph, GraphConfig};
use explain::{Cluster, Hook, Outcome, Protocol, Query, Verdict, World};
use flows::collector::Tuple;
use flows::pending::{Evaluator, LocalEndpoint};
use flows::{Action, Direction};
use messages::ToDataplane;
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
        .prop_filter("no pod connects to itself", |(from, to, ..)| from != to)
        .prop_map(|(from, to, v6, protocol, ports, icmp)| Question {
            from,
            to,
            v6,
            protocol: if v6 && protocol == 1 { 58 } else { protocol },
            ports,
            icmp: if v6 && icmp.0 == 8 { (128, icmp.1) } else { icmp },
        })
}

/// A connection between a host and an address outside the cluster.
#[derive(Clone, Debug)]
struct HostQuestion {
    node: usize,
    direction: Direction,
    v6: bool,
    outside: u8,
    protocol: u8,
    ports: (u16, u16),
    icmp: (u8, u8),
}

/// Failsafe ports are left out: no rule is evaluated for them.
fn host_question() -> impl Strategy<Value = HostQuestion> {
    let port = || select(vec![80_u16, 80, 443, 8080, 40_000]);
    let direction = select(vec![Direction::Ingress, Direction::Egress]);
    let protocol = select(vec![6_u8, 6, 6, 17, 17, 1, 132]);
    let icmp = (select(vec![8_u8, 3]), 0..2_u8);
    (0..2_usize, direction, any::<bool>(), 1..4_u8, protocol, (port(), port()), icmp).prop_map(
        |(node, direction, v6, outside, protocol, ports, icmp)| HostQuestion {
            node,
            direction,
            v6,
            outside,
            protocol: if v6 && protocol == 1 { 58 } else { protocol },
            ports,
            icmp: if v6 && icmp.0 == 8 { (128, icmp.1) } else { icmp },
        },
    )
}

/// A node's evaluator, its workloads by interface, and its host endpoint.
struct Node {
    evaluator: Evaluator,
    workloads: BTreeMap<String, LocalEndpoint>,
    host: Option<LocalEndpoint>,
}

impl Node {
    fn of(host: &str, cluster: &Cluster) -> Self {
        let mut graph = CalcGraph::new(GraphConfig { host: host.into(), ..GraphConfig::default() });
        let fed = cluster.resources().filter(|resource| is_fed(resource.kind()));
        for entry in fed.flat_map(entries) {
            graph.on_entry(entry);
        }
        for status in [Status::WaitForDatastore, Status::ResyncInProgress, Status::InSync] {
            graph.on_status(status);
        }
        let mut node = Self { evaluator: Evaluator::default(), workloads: BTreeMap::new(), host: None };
        graph.flush_each(|message| {
            node.evaluator.take(&message);
            match message {
                ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                    node.workloads.insert(endpoint.name.to_string(), LocalEndpoint::Workload(id));
                }
                ToDataplane::HostEndpointUpdate(name, _) => node.host = Some(LocalEndpoint::Host(name)),
                _ => {}
            }
        });
        node
    }

    /// The final decision; `None` if the pod has no interface here.
    fn allows(&mut self, pod: usize, direction: Direction, tuple: &Tuple) -> Option<bool> {
        let id = self.workloads.get(PODS[pod].4)?.clone();
        self.decides(&id, direction, tuple)
    }

    fn decides(&mut self, endpoint: &LocalEndpoint, direction: Direction, tuple: &Tuple) -> Option<bool> {
        let hits = self.evaluator.evaluate(endpoint, direction, tuple)?;
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
        // Hosts have policies of their own, and staged policies count only for the evaluator.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn the_evaluator_of_flows_agrees_about_hosts(
        resources in resources(),
        hosts in (host_endpoint("h1", 1), host_endpoint("h2", 2)),
        places in proptest::collection::vec(0..4_u8, 8),
        questions in proptest::collection::vec(host_question(), 60),
    ) {
        let mut cluster = Cluster::new();
        let mut places = places.into_iter().cycle();
        for mut resource in resources {
            // Staged policies count only for the evaluator, and policies of all hooks are equally likely.
            match &mut resource {
                Resource::StagedGlobalNetworkPolicy(_) | Resource::HostEndpoint(_) => continue,
                Resource::GlobalNetworkPolicy(policy) => {
                    let place = places.next();
                    policy.spec.do_not_track = place == Some(0);
                    policy.spec.pre_dnat = place == Some(1);
                    policy.spec.apply_on_forward |= place < Some(2);
                }
                _ => {}
            }
            cluster.add(resource);
        }
        cluster.add(hosts.0);
        cluster.add(hosts.1);
        let world = World::new(&cluster);
        let mut nodes = [("h1", 1), ("h2", 2)].map(|(host, number)| (Node::of(host, &cluster), number));
        for HostQuestion { node, direction, v6, outside, protocol, ports, icmp } in questions {
            let (node, number) = &mut nodes[node];
            let Some(host) = node.host.clone() else { continue };
            let own = if v6 { format!("2001:db8::{number}") } else { format!("192.0.2.{number}") };
            let other = if v6 { format!("2001:db9::{outside}") } else { format!("203.0.113.{outside}") };
            let (source, dest) = if direction == Direction::Ingress { (other, own) } else { (own, other) };
            let is_icmp = matches!(protocol, 1 | 58);
            let tuple = Tuple {
                source: source.parse().expect("an address"),
                dest: dest.parse().expect("an address"),
                protocol,
                source_port: if is_icmp { 7 } else { ports.0 },
                dest_port: if is_icmp { u16::from_be_bytes([icmp.0, icmp.1]) } else { ports.1 },
            };
            let query = Query {
                from: source,
                to: dest,
                protocol: Some(Protocol(protocol)),
                port: (!is_icmp).then_some(ports.1),
                source_port: Some(if is_icmp { 0 } else { ports.0 }),
                icmp: Some(icmp),
                ..Query::default()
            };
            let explained = world.explain(&query).expect("an answer");
            // The host's own stages; the first that decides is final.
            let hooks = [Hook::Untracked, Hook::BeforeTranslation, Hook::Host];
            let mut own = explained.flows[0].stages.iter().filter(|stage| hooks.contains(&stage.hook));
            let outcome = own.find(|stage| stage.outcome != Outcome::Through).map(|stage| stage.outcome);
            prop_assert_eq!(
                outcome.map(|outcome| outcome == Outcome::Allow),
                node.decides(&host, direction, &tuple),
                "{:?} {:?}\n{}",
                direction,
                tuple,
                explained.to_text(false)
            );
        }
    }
}
