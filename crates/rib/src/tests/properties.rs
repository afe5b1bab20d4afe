//! Whatever the history, the sum of all emitted changes equals what fresh tables emit when given the final state at
//! once, in another order.

use super::world::*;
use crate::{
    Counts, HostRoute, HostRouteKind, Mark, Moment, Peer, PeerChange, PeerId, Policy, Query, Relation, Rib,
};
use bgp::intent::{
    Action, BlockState, CommunityRule, Encapsulation, FilterRule, Gateway, GatewayScope, NextHop, Operation,
    Operator, OwnBlock, PoolRoutes, PrefixMatch, Programmer,
};
use bgp::{Community, Priority};
use bgp_wire::{Attributes, Family, Update};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PREFIXES: [&str; 6] =
    ["10.10.0.0/16", "10.10.1.0/26", "10.10.1.5/32", "10.11.1.0/26", "172.16.1.0/24", "192.0.2.0/24"];
const NEXT_HOPS: [&str; 4] = ["10.0.0.2", "10.0.0.3", "10.5.0.4", "192.0.2.9"];
const PEERS: u32 = 5;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Announce {
        peer: u32,
        prefix: usize,
        kind: u8,
        next_hop: usize,
    },
    Withdraw {
        peer: u32,
        prefix: usize,
    },
    Up {
        peer: u32,
        kind: u8,
    },
    Down {
        peer: u32,
    },
    /// The session is down, but the peer's routes are kept until it is back and has sent all of them.
    Restart {
        peer: u32,
        kept: u8,
    },
    Host {
        route: usize,
        there: bool,
    },
    Policy {
        kind: u8,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let peer = 0..PEERS;
    let prefix = 0..PREFIXES.len();
    prop_oneof![
        6 => (peer.clone(), prefix.clone(), 0..8u8, 0..NEXT_HOPS.len())
            .prop_map(|(peer, prefix, kind, next_hop)| Event::Announce { peer, prefix, kind, next_hop }),
        2 => (peer.clone(), prefix).prop_map(|(peer, prefix)| Event::Withdraw { peer, prefix }),
        3 => (peer.clone(), 0..4u8).prop_map(|(peer, kind)| Event::Up { peer, kind }),
        1 => peer.clone().prop_map(|peer| Event::Down { peer }),
        1 => (peer, 0..64u8).prop_map(|(peer, kept)| Event::Restart { peer, kept }),
        2 => (0..hosts().len(), any::<bool>()).prop_map(|(route, there)| Event::Host { route, there }),
        1 => (0..4u8).prop_map(|kind| Event::Policy { kind }),
    ]
}

fn hosts() -> Vec<HostRoute> {
    let learned = |to: &str, metric, gateway: Option<&str>, interface| HostRoute {
        destination: net(to),
        kind: HostRouteKind::Learned { metric, gateway: gateway.map(address), interface },
    };
    let mut all = host_routes();
    all.extend([
        learned("10.5.0.0/16", None, Some("10.0.0.253"), Some(interface(2, "eth0"))),
        learned("10.5.0.0/16", Some(10), Some("10.0.0.252"), Some(interface(2, "eth0"))),
        learned("192.0.2.0/24", None, None, None),
        learned("10.10.1.5/32", None, None, Some(interface(8, "cali1"))),
        learned("10.10.1.5/32", Some(512), None, Some(interface(8, "cali1"))),
        HostRoute {
            destination: net("192.0.2.0/24"),
            kind: HostRouteKind::Direct { interface: interface(3, "vxlan.calico") },
        },
    ]);
    all
}

fn made_attributes(kind: u8) -> Attributes {
    let mut attributes = attributes(&vec![65001 + u32::from(kind % 2); 1 + usize::from(kind % 3)], None);
    attributes.local_pref = [None, Some(200), Some(Priority(512).local_preference())][usize::from(kind % 3)];
    if kind >= 4 {
        attributes.communities = Box::new([bgp_wire::Community::new(65000, 1)]);
        attributes.med = Some(u32::from(kind));
    }
    if kind == 7 {
        attributes.as_path = bgp_wire::AsPath::sequence([LOCAL_AS]);
    }
    attributes
}

fn made_peer(number: u32, kind: u8) -> Peer {
    let relation = match number {
        0 | 1 => Relation::External,
        2 => Relation::Internal,
        3 => Relation::Client(id("1.1.1.1")),
        _ => Relation::Client(id("2.2.2.2")),
    };
    let mut peer = peer(&format!("10.0.0.{}", number + 2), relation);
    let reject = FilterRule {
        prefix: Some(PrefixMatch {
            operator: Operator::In,
            prefix: net("10.11.0.0/16").into(),
            lengths: None,
        }),
        ..FilterRule::all(Action::Reject)
    };
    let change = FilterRule {
        community: Some(Community::Standard(65000, 1)),
        operations: vec![
            Operation::SetPriority(Priority(2000)),
            Operation::AddCommunity(Community::Large(1, 2, 3)),
        ],
        ..FilterRule::all(Action::Accept)
    };
    if kind & 1 != 0 {
        peer.import.rules[0] = Arc::new([reject.clone(), change.clone()]);
    }
    if kind & 2 != 0 {
        peer.export.rules[0] = Arc::new([change, reject]);
        peer.export.next_hop = NextHop::Itself;
    }
    peer
}

fn made_policy(kind: u8) -> Policy {
    let mut policy = open_policy();
    if kind & 1 != 0 {
        policy.export.blocks =
            vec![OwnBlock { prefix: net("10.10.1.0/26").into(), state: BlockState::Confirmed }];
        policy.export.services = vec![net("172.16.1.0/24").into()];
        policy.kernel.services = policy.export.services.clone();
        policy.export.communities = vec![CommunityRule {
            prefix: net("10.10.0.0/16").into(),
            communities: vec![Community::Standard(1, 2)],
        }];
    }
    if kind & 2 != 0 {
        policy.export.withheld = vec![net("10.11.0.0/16").into()];
        let via = address("10.0.0.250");
        policy.export.gateways = vec![Gateway { peer: address("10.5.0.4"), via, scope: GatewayScope::Node }];
        policy.kernel.pools = vec![PoolRoutes {
            prefix: net("10.10.0.0/16").into(),
            programmer: Programmer::Bgp(Encapsulation::IpIpCrossSubnet),
        }];
        policy.kernel.subnet = Some(net("10.0.0.0/24").into());
        policy.normal = Priority(300);
    }
    policy
}

fn update_of(prefix: usize, kind: u8, next_hop: usize) -> Update {
    announce(&[PREFIXES[prefix]], NEXT_HOPS[next_hop], made_attributes(kind))
}

/// The true state, stored in the simplest way.
#[derive(Clone, Debug, Default)]
struct State {
    up: BTreeMap<u32, u8>,
    routes: BTreeMap<(u32, usize), (u8, usize)>,
    hosts: BTreeSet<usize>,
    policy: u8,
}

struct Tried {
    rib: Rib,
    mirror: Mirror,
    state: State,
}

const NOW: Moment = Moment(0);

impl Tried {
    fn new() -> Self {
        let identity = crate::Identity { router_id: id(OWN), clusters: vec![id("1.1.1.1"), id("2.2.2.2")] };
        let mut tried = Self { rib: Rib::new(identity), mirror: Mirror::default(), state: State::default() };
        tried.rib.set_policy(Family::Ipv4, made_policy(0), NOW, &mut tried.mirror);
        tried
    }

    fn apply(&mut self, event: &Event) {
        let Self { rib, mirror, state } = self;
        match *event {
            Event::Announce { peer, prefix, kind, next_hop } if state.up.contains_key(&peer) => {
                rib.update(PeerId(peer), &update_of(prefix, kind, next_hop), NOW, mirror);
                state.routes.insert((peer, prefix), (kind, next_hop));
            }
            Event::Withdraw { peer, prefix } if state.up.contains_key(&peer) => {
                rib.update(PeerId(peer), &withdraw(&[PREFIXES[prefix]]), NOW, mirror);
                state.routes.remove(&(peer, prefix));
            }
            Event::Announce { .. } | Event::Withdraw { .. } => {}
            Event::Up { peer, kind } => {
                let change = rib.set_peer(PeerId(peer), made_peer(peer, kind), mirror);
                if state.up.insert(peer, kind).is_none() {
                    rib.listen(PeerId(peer), Family::Ipv4, mirror);
                }
                if change == PeerChange::Refresh {
                    rib.mark(PeerId(peer), Family::Ipv4, Mark::Refresh);
                    self.send_again(peer);
                    self.rib.sweep(PeerId(peer), Family::Ipv4, Mark::Refresh, &mut self.mirror);
                }
            }
            Event::Down { peer } => {
                if state.up.remove(&peer).is_some() {
                    rib.remove_peer(PeerId(peer), mirror);
                    mirror.forget(PeerId(peer));
                    state.routes.retain(|(one, _), _| *one != peer);
                }
            }
            Event::Restart { peer, kept } => {
                if state.up.contains_key(&peer) {
                    rib.unlisten(PeerId(peer));
                    mirror.forget(PeerId(peer));
                    rib.mark(PeerId(peer), Family::Ipv4, Mark::Restart);
                    state.routes.retain(|(one, prefix), _| *one != peer || kept & (1 << prefix) != 0);
                    rib.listen(PeerId(peer), Family::Ipv4, mirror);
                    self.send_again(peer);
                    self.rib.sweep(PeerId(peer), Family::Ipv4, Mark::Restart, &mut self.mirror);
                }
            }
            Event::Host { route, there } => {
                let routes = hosts();
                if there {
                    rib.add_host_route(routes[route].clone(), NOW, mirror);
                    state.hosts.insert(route);
                } else {
                    rib.remove_host_route(&routes[route], NOW, mirror);
                    state.hosts.remove(&route);
                }
            }
            Event::Policy { kind } => {
                rib.set_policy(Family::Ipv4, made_policy(kind), NOW, mirror);
                state.policy = kind;
            }
        }
    }

    fn send_again(&mut self, peer: u32) {
        let routes = self.state.routes.iter().filter(|((one, _), _)| *one == peer);
        for ((_, prefix), (kind, next_hop)) in routes {
            let update = update_of(*prefix, *kind, *next_hop);
            self.rib.update(PeerId(peer), &update, NOW, &mut self.mirror);
        }
    }

    /// Tables that are given the final state at once; `late` reverses the order.
    fn at_once(state: &State, late: bool) -> Self {
        let mut tried = Self::new();
        let mut events: Vec<Event> = vec![Event::Policy { kind: state.policy }];
        events.extend(state.hosts.iter().map(|route| Event::Host { route: *route, there: true }));
        let ups = state.up.iter().map(|(peer, kind)| Event::Up { peer: *peer, kind: *kind });
        let routes = state.routes.iter().map(|((peer, prefix), (kind, next_hop))| Event::Announce {
            peer: *peer,
            prefix: *prefix,
            kind: *kind,
            next_hop: *next_hop,
        });
        if late {
            let peers: Vec<Event> = ups.chain(routes.rev()).collect();
            events.reverse();
            events.splice(0..0, peers);
        } else {
            events.extend(ups.chain(routes));
        }
        for event in events {
            tried.apply(&event);
        }
        tried
    }

    /// Everything visible, as text.
    fn seen(&self) -> Vec<String> {
        let mut seen = self.mirror.kernel_lines();
        for (key, announcement) in &self.mirror.exports {
            seen.push(format!("{key:?} {announcement:?}"));
        }
        for peer in 0..PEERS {
            let Counts { imported, preferred, exported, .. } = self.rib.counts(PeerId(peer), Family::Ipv4);
            seen.push(format!("{peer}: {imported} {preferred} {exported}"));
        }
        for shown in self.rib.routes(Family::Ipv4, &Query::default()) {
            seen.push(format!(
                "{} {:?} {:?} {} {} {:?}",
                shown.prefix,
                shown.source,
                announcement_of(&shown.route),
                shown.best,
                shown.preference,
                shown.hop
            ));
        }
        seen.push(format!("{:?} {}", self.rib.len(Family::Ipv4), self.rib.memory().routes));
        seen
    }
}

fn announcement_of(route: &crate::Route) -> Option<&crate::Announcement> {
    route.as_bgp().map(|route| &route.announcement)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn history_leaves_no_trace(events in proptest::collection::vec(event(), 1..60)) {
        let mut tried = Tried::new();
        for event in &events {
            tried.apply(event);
        }
        let expected = Tried::at_once(&tried.state, false).seen();
        prop_assert_eq!(tried.seen(), expected.clone());
        let reversed = Tried::at_once(&tried.state, true).seen();
        prop_assert_eq!(reversed, expected);
        // The exports reported for a peer are those that were sent to it.
        for ((peer, prefix), announcement) in &tried.mirror.exports {
            let exported = tried.rib.exported(*peer, *prefix);
            prop_assert_eq!(exported.as_deref(), Some(announcement));
        }
        let mut kernel = BTreeMap::new();
        tried.rib.kernel_routes(|prefix, route| { kernel.insert(prefix, route.clone()); });
        prop_assert_eq!(&kernel, &tried.mirror.kernel);
    }

    #[test]
    fn undoing_everything_leaves_nothing(events in proptest::collection::vec(event(), 1..40)) {
        let mut tried = Tried::new();
        for event in &events {
            tried.apply(event);
        }
        for peer in 0..PEERS {
            tried.apply(&Event::Down { peer });
        }
        for route in 0..hosts().len() {
            tried.apply(&Event::Host { route, there: false });
        }
        tried.apply(&Event::Policy { kind: 0 });
        prop_assert_eq!(tried.seen(), Tried::new().seen());
        prop_assert!(tried.rib.is_empty());
    }
}
