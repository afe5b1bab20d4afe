//! The oracle: on random clusters, the evaluator and the rendered rules agree about every packet, on both backends, in
//! both IP versions, on every node that a packet passes.
//!
//! `EXPLAIN_ORACLE_CASES=10000 cargo test -p explain oracle` runs longer than the default.

use crate::clusters::{PODS, resources};
use crate::kernel::{Kernel, is_fed};
use explain::{Cluster, Protocol, Query, ToHost, Verdict, World};
use proptest::prelude::*;
use proptest::sample::select;
use rules::simulate::Packet;
use rules::tree::IpVersion;
use rules::{Backend, EndpointToHost};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One end of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Pod(usize),
    Host(&'static str),
    Outside(u8),
}

#[derive(Clone, Debug)]
struct Question {
    from: Place,
    to: Place,
    v6: bool,
    protocol: u8,
    ports: (u16, u16),
    icmp: (u8, u8),
}

impl Place {
    fn address(self, v6: bool) -> IpAddr {
        let text = match (self, v6) {
            (Self::Pod(index), false) => format!("10.0.0.{}", PODS[index].3),
            (Self::Pod(index), true) => format!("fd00::{}", PODS[index].3),
            (Self::Host(node), false) => format!("192.0.2.{}", &node[1..]),
            (Self::Host(node), true) => format!("2001:db8::{}", &node[1..]),
            (Self::Outside(number), false) => format!("203.0.113.{number}"),
            (Self::Outside(number), true) => format!("2001:db9::{number}"),
        };
        text.parse().expect("an address")
    }

    fn node(self) -> Option<&'static str> {
        match self {
            Self::Pod(index) => Some(PODS[index].0),
            Self::Host(node) => Some(node),
            Self::Outside(_) => None,
        }
    }
}

fn question() -> impl Strategy<Value = Question> {
    let place = || {
        prop_oneof![
            6 => (0..PODS.len()).prop_map(Place::Pod),
            2 => select(vec!["h1", "h2"]).prop_map(Place::Host),
            1 => (1..3_u8).prop_map(Place::Outside),
        ]
    };
    let port = || select(vec![80_u16, 80, 53, 443, 22, 4789, 40_000]);
    (
        place(),
        place(),
        any::<bool>(),
        select(vec![6_u8, 6, 6, 17, 17, 1, 132, 47, 4]),
        (port(), port()),
        (select(vec![8_u8, 3]), 0..2_u8),
    )
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

/// Whether the nodes' kernels, in turn, allow the packet.
fn kernels_allow(kernels: &mut BTreeMap<(&'static str, bool), Kernel>, question: &Question) -> bool {
    let Question { from, to, v6, protocol, ports, icmp } = question.clone();
    let packet = Packet {
        ports: if matches!(protocol, 6 | 17 | 132) { ports } else { (0, 0) },
        icmp,
        ..Packet::new(from.address(v6), to.address(v6), protocol)
    };
    let same = from.node().is_some() && from.node() == to.node();
    let interface = |place: Place| match place {
        Place::Pod(index) => Some(PODS[index].4),
        Place::Host(_) => None,
        Place::Outside(_) => Some("eth0"),
    };
    let mut kernel = |node: Option<&'static str>, act: &dyn Fn(&mut Kernel) -> bool| match node {
        Some(node) => act(kernels.get_mut(&(node, v6)).expect("a kernel")),
        None => true,
    };
    if same {
        return kernel(from.node(), &|kernel| match (interface(from), interface(to)) {
            (Some(from), to) => kernel.arrives(packet.clone(), from, to),
            (None, Some(to)) => kernel.leaves(packet.clone(), to),
            (None, None) => true,
        });
    }
    let sent = kernel(from.node(), &|kernel| match interface(from) {
        Some(from) => kernel.arrives(packet.clone(), from, Some("eth0")),
        None => kernel.leaves(packet.clone(), "eth0"),
    });
    sent && kernel(to.node(), &|kernel| kernel.arrives(packet.clone(), "eth0", interface(to)))
}

fn cases() -> u32 {
    std::env::var("EXPLAIN_ORACLE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(160)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 4096, ..ProptestConfig::default() })]

    #[test]
    fn explanations_and_rendered_rules_agree(
        resources in resources(),
        questions in proptest::collection::vec(question(), 60),
        to_host in select(vec![(ToHost::Drop, EndpointToHost::Drop), (ToHost::Accept, EndpointToHost::Accept), (ToHost::Return, EndpointToHost::Return)]),
    ) {
        let mut cluster = Cluster::new();
        resources.into_iter().for_each(|resource| cluster.add(resource));
        cluster.set_endpoint_to_host_action(to_host.0);
        let world = World::new(&cluster);
        for backend in [Backend::Iptables, Backend::Nftables] {
            let mut kernels = BTreeMap::new();
            for node in ["h1", "h2"] {
                for (v6, version) in [(false, IpVersion::V4), (true, IpVersion::V6)] {
                    let fed = cluster.resources().filter(|resource| is_fed(resource.kind()));
                    kernels.insert((node, v6), Kernel::of(node, backend, version, to_host.1, fed));
                }
            }
            for question in &questions {
                let has_ports = matches!(question.protocol, 6 | 17 | 132);
                let query = Query {
                    from: question.from.address(question.v6).to_string(),
                    to: question.to.address(question.v6).to_string(),
                    protocol: Some(Protocol(question.protocol)),
                    port: has_ports.then_some(question.ports.1),
                    source_port: Some(if has_ports { question.ports.0 } else { 0 }),
                    icmp: Some(question.icmp),
                    ..Query::default()
                };
                let explained = world.verdict(&query).expect("an answer") == Verdict::Allow;
                let programmed = kernels_allow(&mut kernels, question);
                prop_assert_eq!(
                    explained,
                    programmed,
                    "{:?} {:?}\n{}",
                    backend,
                    question,
                    world.explain(&query).expect("an answer").to_text(false)
                );
            }
        }
    }
}
