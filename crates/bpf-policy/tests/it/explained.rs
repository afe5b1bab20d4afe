//! On random clusters, the evaluator of resources and the tables of both nodes agree about every packet between pods
//! and with the outside.

use crate::clusters::{PODS, resources};
use crate::kernel::{entries, is_fed};
use api::{Kind, Resource};
use bpf_policy::{EndpointId, Packet, Policies, Verdict, evaluate};
use calc::{CalcGraph, GraphConfig};
use explain::{Cluster, Protocol, Query, World};
use model::feed::Status;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rules::Direction;
use std::net::IpAddr;

/// The tables of a node after the resources arrived in this order.
fn node(host: &str, resources: &[Resource]) -> Policies {
    let mut graph = CalcGraph::new(GraphConfig { host: host.into(), ..GraphConfig::default() });
    let mut policies = Policies::default();
    let mut messages = Vec::new();
    graph.on_status(Status::WaitForDatastore);
    graph.on_status(Status::ResyncInProgress);
    let half = resources.len() / 2;
    for (number, resource) in resources.iter().enumerate() {
        entries(resource).into_iter().for_each(|entry| graph.on_entry(entry));
        if number == half {
            graph.on_status(Status::InSync);
        }
        if number >= half {
            graph.flush(&mut messages);
            messages.drain(..).for_each(|message| policies.update(&message));
            policies.flush();
        }
    }
    policies
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Pod(usize),
    Outside(u8),
}

impl Place {
    fn address(self, v6: bool) -> IpAddr {
        let text = match (self, v6) {
            (Self::Pod(index), false) => format!("10.0.0.{}", PODS[index].3),
            (Self::Pod(index), true) => format!("fd00::{}", PODS[index].3),
            (Self::Outside(number), false) => format!("203.0.113.{number}"),
            (Self::Outside(number), true) => format!("2001:db9::{number}"),
        };
        text.parse().expect("an address")
    }
}

fn question() -> impl Strategy<Value = (Place, Place, bool, Packet)> {
    let place =
        || prop_oneof![6 => (0..PODS.len()).prop_map(Place::Pod), 1 => (1..3_u8).prop_map(Place::Outside)];
    let port = || select(vec![80_u16, 80, 53, 443, 22, 40_000]);
    let protocols = select(vec![6_u8, 6, 6, 17, 17, 1, 132, 47]);
    (place(), place(), any::<bool>(), protocols, (port(), port()), (select(vec![8_u8, 3]), 0..2_u8))
        .prop_filter("the ends differ", |(from, to, ..)| from != to)
        .prop_map(|(from, to, v6, protocol, ports, icmp)| {
            let packet = Packet {
                source: from.address(v6),
                destination: to.address(v6),
                protocol: if v6 && protocol == 1 { 58 } else { protocol },
                ports,
                icmp: if v6 && icmp.0 == 8 { (128, icmp.1) } else { icmp },
            };
            (from, to, v6, packet)
        })
}

/// The decision of the tables of the end's node; outside the cluster everything is allowed.
fn allows(nodes: &[(&str, Policies)], end: Place, direction: Direction, v6: bool, packet: &Packet) -> bool {
    let Place::Pod(index) = end else { return true };
    let (host, _, _, _, interface) = PODS[index];
    let (_, policies) = nodes.iter().find(|(name, _)| *name == host).expect("a node");
    let of_pod = |(id, lists): &(&EndpointId, &bpf_policy::EndpointLists)| {
        matches!(id, EndpointId::Workload(_)) && lists.interface == interface
    };
    // An endpoint that could not be read has no entry, so nothing is allowed.
    let Some((_, lists)) = policies.tables().endpoints.iter().find(of_pod) else { return false };
    let lists = if v6 { &lists.v6 } else { &lists.v4 };
    let list = match direction {
        Direction::Inbound => lists.ingress,
        Direction::Outbound => lists.egress,
    };
    evaluate(policies.tables(), list, packet).verdict == Verdict::Allow
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn explanations_and_tables_agree(resources in resources(), questions in vec(question(), 60)) {
        // Host endpoints also judge forwarded packets; their lists are compared with rendered chains instead.
        let resources: Vec<Resource> =
            resources.into_iter().filter(|resource| resource.kind() != Kind::HostEndpoint).collect();
        let mut cluster = Cluster::new();
        resources.iter().for_each(|resource| cluster.add(resource.clone()));
        let world = World::new(&cluster);
        let fed: Vec<Resource> = cluster.resources().filter(|one| is_fed(one.kind())).cloned().collect();
        let nodes = ["h1", "h2"].map(|host| (host, node(host, &fed)));
        for (from, to, v6, packet) in questions {
            let has_ports = matches!(packet.protocol, 6 | 17 | 132);
            let query = Query {
                from: packet.source.to_string(),
                to: packet.destination.to_string(),
                protocol: Some(Protocol(packet.protocol)),
                port: has_ports.then_some(packet.ports.1),
                source_port: Some(if has_ports { packet.ports.0 } else { 0 }),
                icmp: Some(packet.icmp),
                ..Query::default()
            };
            let explained = world.verdict(&query).expect("an answer") == explain::Verdict::Allow;
            let programmed = allows(&nodes, from, Direction::Outbound, v6, &packet)
                && allows(&nodes, to, Direction::Inbound, v6, &packet);
            prop_assert_eq!(
                explained,
                programmed,
                "{:?} {:?} {:?}\n{}",
                from,
                to,
                packet,
                world.explain(&query).expect("an answer").to_text(false)
            );
        }
    }
}
