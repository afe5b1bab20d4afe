//! Random histories from so few things that everything collides with everything.

use super::super::RouteOrigin;
use super::naive::State;
use super::{ME, Seen, block, workload};
use crate::network::fixtures::{NodeText, net, pool};
use crate::network::routes::Routes;
use crate::sequencer::Sequencer;
use api::IPPoolAllowedUse;
use messages::NodeName;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const NODES: [&str; 3] = [ME, "b", "z"];
const WORKLOADS: [&str; 2] = ["one", "two"];
const POOLS: [&str; 4] = ["10.0.0.0/8", "10.0.0.0/24", "10.0.0.0/30", "fd00::/120"];
const BLOCKS: [&str; 5] = ["10.0.0.0/29", "10.0.0.0/30", "10.0.0.1/32", "10.0.0.8/29", "fd00::/125"];
const NETS: [&str; 6] =
    ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.0/30", "10.0.0.9/32", "fd00::1/128", "0.0.0.0/32"];

/// A block's owner, and the nodes that have single addresses.
type Given = (Option<&'static str>, Vec<(usize, &'static str)>);

/// One entry of the feed: the thing and its value, `None` for a removal.
#[derive(Clone, Debug)]
enum Step {
    Pool(&'static str, Option<(usize, bool, bool)>),
    Block(&'static str, Option<Given>),
    Workload(&'static str, &'static str, Option<Vec<&'static str>>),
    Node(&'static str, Option<NodeText>),
    Flush,
}

fn node_text() -> impl Strategy<Value = NodeText> {
    (
        select(
            &["", "10.0.0.2/24", "10.0.0.9/30", "192.0.2.1/24", "192.0.2.7/24", "198.51.100.1/32", "x"][..],
        ),
        select(&["", "fd00::1/64", "2001:db8::1/64"][..]),
        select(&["", "10.0.0.1", "10.0.0.2", "10.0.0.8"][..]),
        select(&["", "10.0.0.1", "10.0.0.9"][..]),
        select(&["", "fd00::1", "fd00::2"][..]),
        select(&["", "10.0.0.1", "0.0.0.0"][..]),
        select(&["", "192.0.2.9", "2001:db8::7", "10.0.0.2"][..]),
        select(&["", "198.51.100.9"][..]),
    )
        .prop_map(|(ipv4, ipv6, ipip, vxlan, vxlan_v6, wireguard, internal, external)| NodeText {
            ipv4,
            ipv6,
            ipip,
            vxlan,
            vxlan_v6,
            wireguard,
            internal,
            external,
            empty_bgp: false,
        })
}

fn step() -> impl Strategy<Value = Step> {
    let node = || select(&NODES[..]);
    let given = (option::of(node()), vec((0..8_usize, select(&[ME, "b", "z", ""][..])), 0..4));
    prop_oneof![
        (select(&POOLS[..]), option::of((0..6_usize, any::<bool>(), any::<bool>())))
            .prop_map(|(cidr, value)| Step::Pool(cidr, value)),
        (select(&BLOCKS[..]), option::weighted(0.7, given))
            .prop_map(|(cidr, value)| Step::Block(cidr, value)),
        (node(), select(&WORKLOADS[..]), option::weighted(0.7, vec(select(&NETS[..]), 0..3)))
            .prop_map(|(host, name, value)| Step::Workload(host, name, value)),
        (node(), option::weighted(0.7, node_text())).prop_map(|(name, value)| Step::Node(name, value)),
        Just(Step::Flush),
    ]
}

impl Step {
    /// Applies the step to the state.
    fn note(&self, state: &mut State) {
        match self {
            Self::Pool(cidr, None) => drop(state.pools.remove(&net(cidr))),
            Self::Pool(cidr, Some((modes, nat, balancers))) => {
                let (ipip, vxlan) = [
                    ("", ""),
                    ("Always", ""),
                    ("CrossSubnet", ""),
                    ("", "Always"),
                    ("", "CrossSubnet"),
                    ("", "Never"),
                ][*modes];
                let mut value = pool(cidr, ipip, vxlan);
                value.masquerade = *nat;
                if *balancers {
                    value.allowed_uses.push(IPPoolAllowedUse::LoadBalancer);
                }
                state.pools.insert(value.cidr, value);
            }
            Self::Block(cidr, None) => drop(state.blocks.remove(&net(cidr))),
            Self::Block(cidr, Some((owner, taken))) => {
                let range = net(cidr);
                let size = 1 << (range.max_prefix_len() - range.prefix_len()).min(3);
                let taken: Vec<(String, &str)> = taken
                    .iter()
                    .map(|(ordinal, node)| {
                        let mut text = range.network().to_string();
                        let ordinal = ordinal % size;
                        if range.addr().is_ipv4() {
                            let last: usize = text.rsplit('.').next().unwrap().parse().unwrap();
                            text.truncate(text.rfind('.').unwrap() + 1);
                            text += &(last + ordinal).to_string();
                        } else {
                            text += &format!("{ordinal:x}");
                        }
                        (text, *node)
                    })
                    .collect();
                let taken: Vec<(&str, &str)> =
                    taken.iter().map(|(address, node)| (address.as_str(), *node)).collect();
                state.blocks.insert(range, block(cidr, *owner, &taken));
            }
            Self::Workload(host, name, None) => drop(state.workloads.remove(&(*host, *name))),
            Self::Workload(host, name, Some(nets)) => {
                drop(state.workloads.insert((*host, *name), workload(nets)));
            }
            Self::Node(name, None) => drop(state.nodes.remove(name)),
            Self::Node(name, Some(text)) => drop(state.nodes.insert(name, *text)),
            Self::Flush => {}
        }
    }

    /// Sends the state's new value for the step's thing to the code under test.
    fn feed(&self, state: &State, routes: &mut Routes) {
        match self {
            Self::Pool(cidr, _) => routes.on_pool(net(cidr), state.pools.get(&net(cidr))),
            Self::Block(cidr, _) => routes.on_block(net(cidr), state.blocks.get(&net(cidr))),
            Self::Workload(host, name, _) => {
                routes.on_workload(&super::workload_key(host, name), state.workloads.get(&(*host, *name)));
            }
            Self::Node(name, _) => {
                routes.on_node(&NodeName::from(*name), state.nodes.get(name).map(NodeText::node).as_ref());
            }
            Self::Flush => {}
        }
    }
}

fn flush(routes: &mut Routes, out: &mut Sequencer, seen: &mut Seen) {
    routes.flush(out);
    seen.take(out);
}

/// Runs a history, flushing where it says and at the end, then in reverse as one batch; then removes everything.
fn check_history(source: RouteOrigin, steps: &[Step]) {
    let (mut routes, mut out, mut seen) =
        (Routes::new(ME.into(), source), Sequencer::default(), Seen::default());
    let mut state = State { source: Some(source), ..State::default() };
    for step in steps {
        step.note(&mut state);
        step.feed(&state, &mut routes);
        if matches!(step, Step::Flush) {
            flush(&mut routes, &mut out, &mut seen);
            assert_eq!(seen.0, state.recomputed());
        }
    }
    flush(&mut routes, &mut out, &mut seen);
    assert_eq!(seen.0, state.recomputed());

    let (mut reversed, mut out, mut reversed_seen) =
        (Routes::new(ME.into(), source), Sequencer::default(), Seen::default());
    for step in steps.iter().rev() {
        step.feed(&state, &mut reversed);
    }
    flush(&mut reversed, &mut out, &mut reversed_seen);
    assert_eq!(reversed_seen.0, seen.0);

    for step in steps {
        step.feed(&State::default(), &mut reversed);
    }
    flush(&mut reversed, &mut out, &mut reversed_seen);
    assert!(reversed_seen.0.is_empty(), "{reversed_seen:?}");
    assert_eq!((reversed.table.len(), reversed.nodes.len()), (0, 0), "something is kept of what is gone");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_history_gives_the_routes_of_its_end(
        steps in vec(step(), 1..40),
        source in select(&[RouteOrigin::CalicoIPAM, RouteOrigin::WorkloadIPs][..]),
    ) {
        check_history(source, &steps);
    }
}
