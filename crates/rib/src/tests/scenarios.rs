//! The behaviour of routers, step by step.

use super::world::*;
use crate::{Mark, Moment, PeerChange, PeerId, Policy, Query, Relation};
use bgp::intent::{
    Action, BlockState, CommunityRule, Encapsulation, FilterRule, Gateway, GatewayScope, NextHop, Operation,
    Operator, OwnBlock, PoolRoutes, PrefixMatch, Programmer,
};
use bgp::{AsNumber, Community, InterfacePattern, Priority};
use bgp_wire::{Attributes, Family};
use std::sync::Arc;

const NOW: Moment = Moment(1);

#[test]
fn a_mesh_learns_blocks_and_passes_nothing_on() {
    let (mut rib, mut mirror) = rib();
    let one = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Internal));
    let two = join(&mut rib, &mut mirror, 2, peer("10.0.0.3", Relation::Internal));
    let block = attributes(&[], Some(Priority::NORMAL.local_preference()));
    rib.update(one, &announce(&["10.10.1.0/26"], "10.0.0.2", block), NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines(), ["10.10.1.0/26 via 10.0.0.2 dev eth0 metric 1024"]);
    assert!(mirror.peer_lines(two).is_empty(), "routes are not passed on within an AS");
    let third = join(&mut rib, &mut mirror, 3, peer("10.0.0.9", Relation::External));
    assert_eq!(mirror.peer_lines(third), ["10.10.1.0/26 via 10.0.0.1 [64512]"]);
    rib.update(one, &withdraw(&["10.10.1.0/26"]), NOW, &mut mirror);
    assert!(mirror.kernel.is_empty() && mirror.exports.is_empty());
    assert_eq!(rib.len(Family::Ipv4), (2, 2));
}

#[test]
fn own_blocks_hide_routes_inside() {
    let (mut rib, mut mirror) = rib();
    let mut policy = Policy::default();
    policy.export.pools = vec![net("10.10.0.0/16").into()];
    policy.export.services = vec![net("172.17.0.0/16").into(), net("172.18.1.1/32").into()];
    policy.export.blocks = vec![
        OwnBlock { prefix: net("10.10.1.0/26").into(), state: BlockState::Confirmed },
        OwnBlock { prefix: net("10.10.2.0/26").into(), state: BlockState::Other("pendingDeletion".into()) },
        OwnBlock { prefix: net("10.10.3.1/32").into(), state: BlockState::Confirmed },
    ];
    policy.kernel.services = vec![net("172.17.0.0/16").into(), net("172.18.1.1/32").into()];
    policy.export.communities = vec![CommunityRule {
        prefix: net("10.10.0.0/16").into(),
        communities: vec![Community::Standard(65000, 7), Community::Large(1, 2, 3)],
    }];
    rib.set_policy(Family::Ipv4, policy.clone(), NOW, &mut mirror);
    let peer = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Internal));
    for (text, metric) in [
        ("10.10.1.5/32", None),
        ("10.10.1.6/32", Some(512)),
        ("10.10.2.7/32", None),
        ("10.10.3.1/32", None),
        ("10.10.9.9/32", None),
        ("192.0.2.0/24", None),
    ] {
        let kind = crate::HostRouteKind::Learned {
            metric,
            gateway: None,
            interface: Some(interface(9, "cali12345678901")),
        };
        let route = crate::HostRoute { destination: net(text), kind };
        rib.add_host_route(route, NOW, &mut mirror);
    }
    assert_eq!(
        mirror.peer_lines(peer),
        [
            "10.10.1.0/26 via 10.0.0.1 [] 2147482623",
            "10.10.1.6/32 via 10.0.0.1 [] 2147483135",
            "10.10.2.0/26 via 10.0.0.1 [] 2147482623",
            "10.10.2.7/32 via 10.0.0.1 [] 2147482623",
            "10.10.3.1/32 via 10.0.0.1 [] 2147482623",
            "10.10.9.9/32 via 10.0.0.1 [] 2147482623",
            "172.17.0.0/16 via 10.0.0.1 [] 2147482623",
            "172.18.1.1/32 via 10.0.0.1 [] 2147482623",
        ]
    );
    assert_eq!(mirror.kernel_lines(), ["blackhole 10.10.1.0/26", "blackhole 10.10.2.0/26"]);
    let block = &mirror.exports[&(peer, net("10.10.1.0/26"))].attributes;
    assert_eq!((block.communities.len(), block.large_communities.len()), (1, 1));
    // The pool is withheld: none of it is announced any more, including its blocks.
    policy.export.withheld = vec![net("10.10.0.0/16").into()];
    rib.set_policy(Family::Ipv4, policy, NOW, &mut mirror);
    assert_eq!(mirror.exports.len(), 2);
}

#[test]
fn reflectors_add_originator_and_cluster_list() {
    let (mut rib, mut mirror) = rib();
    let (first, second) = (id("1.1.1.1"), id("2.2.2.2"));
    let client = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Client(first)));
    let other = join(&mut rib, &mut mirror, 2, peer("10.0.0.3", Relation::Client(first)));
    let far = join(&mut rib, &mut mirror, 3, peer("10.0.0.4", Relation::Client(second)));
    let plain = join(&mut rib, &mut mirror, 4, peer("10.0.0.5", Relation::Internal));
    rib.update(
        client,
        &announce(&["10.10.1.0/26"], "10.0.0.2", attributes(&[], Some(100))),
        NOW,
        &mut mirror,
    );
    let sent = |mirror: &Mirror, to: PeerId| {
        let attributes = &mirror.exports.get(&(to, net("10.10.1.0/26")))?.attributes;
        Some((attributes.originator_id, attributes.cluster_list.to_vec()))
    };
    let originator = Some(id("10.0.0.2"));
    assert_eq!(sent(&mirror, client), None);
    assert_eq!(sent(&mirror, other), Some((originator, vec![first])));
    assert_eq!(sent(&mirror, far), Some((originator, vec![second, first])));
    assert_eq!(sent(&mirror, plain), Some((originator, vec![first])));
    // A route from a peer that is not a client is only sent to clients.
    rib.update(plain, &announce(&["10.10.1.0/26"], "10.0.0.5", attributes(&[], Some(200))), NOW, &mut mirror);
    assert_eq!(sent(&mirror, client), Some((Some(id("10.0.0.5")), vec![first])));
    assert_eq!(sent(&mirror, plain), None);
    // A route is not sent back to the peer that introduced it, whichever peer reflected it.
    let mut reflected = attributes(&[], Some(300));
    reflected.originator_id = Some(id("10.0.0.3"));
    rib.update(far, &announce(&["10.10.1.0/26"], "10.0.0.3", reflected), NOW, &mut mirror);
    assert_eq!(sent(&mirror, other), None);
    assert_eq!(sent(&mirror, client), Some((Some(id("10.0.0.3")), vec![first, second])));
}

#[test]
fn loops_are_rejected_and_replace_the_previous_route() {
    let (mut rib, mut mirror) = rib();
    let inside = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Internal));
    let outside = join(&mut rib, &mut mirror, 2, peer("10.0.0.9", Relation::External));
    let good = attributes(&[65001], None);
    let looped = |change: &dyn Fn(&mut Attributes)| {
        let mut attributes = attributes(&[], Some(100));
        change(&mut attributes);
        attributes
    };
    for (peer, bad) in [
        (inside, looped(&|attributes| attributes.originator_id = Some(id(OWN)))),
        (inside, looped(&|attributes| attributes.cluster_list = Box::new([id("9.9.9.9"), id("2.2.2.2")]))),
        (outside, attributes(&[65001, LOCAL_AS], None)),
    ] {
        rib.update(peer, &announce(&["10.10.1.0/26"], "10.0.0.9", good.clone()), NOW, &mut mirror);
        assert_eq!(mirror.kernel.len(), 1);
        rib.update(peer, &announce(&["10.10.1.0/26"], "10.0.0.9", bad), NOW, &mut mirror);
        assert!(mirror.kernel.is_empty());
    }
    for next_hop in [OWN, "0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
        rib.update(outside, &announce(&["10.10.1.0/26"], next_hop, good.clone()), NOW, &mut mirror);
        assert!(mirror.kernel.is_empty(), "{next_hop}");
    }
    assert_eq!(rib.counts(outside, Family::Ipv4).rejected, 6);
    // As often as permitted.
    let mut lenient = peer("10.0.0.9", Relation::External);
    lenient.import.allowed_local_as = 1;
    assert_eq!(rib.set_peer(outside, lenient, &mut mirror), PeerChange::Refresh);
    let once = announce(&["10.10.1.0/26"], "10.0.0.9", attributes(&[65001, LOCAL_AS], None));
    rib.update(outside, &once, NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines(), ["10.10.1.0/26 via 10.0.0.9 dev eth0 metric 2147483547"]);
}

#[test]
fn next_hops_by_kind_of_peer() {
    let (mut rib, mut mirror) = rib();
    let sender = join(&mut rib, &mut mirror, 1, peer("10.0.0.9", Relation::External));
    rib.update(
        sender,
        &announce(&["10.10.1.0/26"], "10.0.0.77", attributes(&[65001], None)),
        NOW,
        &mut mirror,
    );
    for (number, relation, mode, expected) in [
        (2, Relation::Internal, NextHop::Auto, "10.0.0.77"),
        (3, Relation::Internal, NextHop::Itself, "10.0.0.1"),
        (4, Relation::External, NextHop::Auto, "10.0.0.1"),
        (5, Relation::External, NextHop::Keep, "10.0.0.77"),
    ] {
        let mut one = peer(&format!("10.0.0.{number}"), relation);
        one.export.next_hop = mode;
        let one = join(&mut rib, &mut mirror, number, one);
        let next_hop = mirror.exports[&(one, net("10.10.1.0/26"))].next_hop;
        assert_eq!(next_hop.to_string(), expected, "{relation:?} {mode:?}");
    }
}

#[test]
fn several_equal_paths_share_the_packets() {
    let (mut rib, mut mirror) = rib();
    let peers: Vec<PeerId> = (2..5)
        .map(|number| {
            join(&mut rib, &mut mirror, number, peer(&format!("10.0.0.{number}"), Relation::Internal))
        })
        .collect();
    for (number, id) in peers.iter().enumerate() {
        let update =
            announce(&["10.10.1.0/26"], &format!("10.0.0.{}", number + 2), attributes(&[], Some(100)));
        rib.update(*id, &update, NOW, &mut mirror);
    }
    let line = "10.10.1.0/26 via 10.0.0.2 dev eth0 + via 10.0.0.3 dev eth0 + via 10.0.0.4 dev eth0 metric 2147483547";
    assert_eq!(mirror.kernel_lines(), [line]);
    rib.update(
        peers[1],
        &announce(&["10.10.1.0/26"], "10.0.0.3", attributes(&[], Some(50))),
        NOW,
        &mut mirror,
    );
    let line = "10.10.1.0/26 via 10.0.0.2 dev eth0 + via 10.0.0.4 dev eth0 metric 2147483547";
    assert_eq!(mirror.kernel_lines(), [line]);
    let shown = rib.routes(Family::Ipv4, &Query::default());
    let of_block = shown.iter().filter(|one| one.prefix == net("10.10.1.0/26"));
    assert_eq!(of_block.clone().count(), 3);
    assert!(of_block.clone().next().is_some_and(|one| one.best && one.is_multipath()));
}

#[test]
fn pools_determine_how_routes_are_programmed() {
    let (mut rib, mut mirror) = rib();
    let mut policy = open_policy();
    let pool = |text: &str, programmer| PoolRoutes { prefix: net(text).into(), programmer };
    policy.kernel.pools = vec![
        pool("10.10.0.0/16", Programmer::Bgp(Encapsulation::IpIp)),
        pool("10.11.0.0/16", Programmer::Bgp(Encapsulation::IpIpCrossSubnet)),
        pool("10.12.0.0/16", Programmer::FelixVxlan),
        pool("10.13.0.0/16", Programmer::Felix),
        pool("10.14.0.0/16", Programmer::Bgp(Encapsulation::None)),
    ];
    policy.kernel.subnet = Some(net("10.0.0.0/24").into());
    policy.kernel.wireguard = [address("10.0.0.3")].into();
    policy.kernel.services = vec![net("172.16.0.0/16").into()];
    rib.set_policy(Family::Ipv4, policy, NOW, &mut mirror);
    let near = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Internal));
    let guarded = join(&mut rib, &mut mirror, 2, peer("10.0.0.3", Relation::Internal));
    let far = join(&mut rib, &mut mirror, 3, peer("10.5.0.4", Relation::Internal));
    let blocks = |last: u8| -> Vec<String> {
        (10..16).map(|pool| format!("10.{pool}.{last}.0/26")).chain([format!("172.16.{last}.0/24")]).collect()
    };
    for (id, next_hop, last) in [(near, "10.0.0.2", 1), (guarded, "10.0.0.3", 2), (far, "10.5.0.4", 3)] {
        let texts = blocks(last);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let normal = attributes(&[], Some(Priority::NORMAL.local_preference()));
        rib.update(id, &announce(&texts, next_hop, normal), NOW, &mut mirror);
    }
    assert_eq!(
        mirror.kernel_lines(),
        [
            "10.10.1.0/26 via 10.0.0.2 dev tunl0 onlink metric 1024",
            "10.10.3.0/26 via 10.5.0.4 dev tunl0 onlink metric 1024",
            "10.11.1.0/26 via 10.0.0.2 dev eth0 metric 1024",
            "10.11.3.0/26 via 10.5.0.4 dev tunl0 onlink metric 1024",
            "10.14.1.0/26 via 10.0.0.2 dev eth0 metric 1024",
            "10.14.3.0/26 via 10.0.0.254 dev eth0 metric 1024",
            "10.15.1.0/26 via 10.0.0.2 dev eth0 metric 1024",
            "10.15.3.0/26 via 10.0.0.254 dev eth0 metric 1024",
        ]
    );
}

#[test]
fn filters_decide_in_both_directions() {
    let (mut rib, mut mirror) = rib();
    let matching = |text: &str, action, operations: Vec<Operation>| FilterRule {
        prefix: Some(PrefixMatch { operator: Operator::In, prefix: net(text).into(), lengths: None }),
        operations,
        ..FilterRule::all(action)
    };
    let mut sender = peer("10.0.0.9", Relation::External);
    sender.import.rules[0] = Arc::new([
        matching("10.10.1.0/24", Action::Accept, vec![Operation::SetPriority(Priority(512))]),
        matching("10.10.2.0/24", Action::Reject, vec![]),
    ]);
    let sender = join(&mut rib, &mut mirror, 1, sender);
    let mut receiver = peer("10.0.0.8", Relation::External);
    receiver.export.rules[0] = Arc::new([
        matching(
            "10.10.1.0/24",
            Action::Accept,
            vec![
                Operation::PrependAsPath(vec![AsNumber(1), AsNumber(2)]),
                Operation::AddCommunity(Community::Standard(65000, 1)),
            ],
        ),
        FilterRule { interface: Some(InterfacePattern::new("eth*")), ..FilterRule::all(Action::Reject) },
    ]);
    let receiver_id = join(&mut rib, &mut mirror, 2, receiver.clone());
    let prefixes = ["10.10.1.0/26", "10.10.2.0/26", "10.10.3.0/26"];
    rib.update(sender, &announce(&prefixes, "10.0.0.9", attributes(&[65001], None)), NOW, &mut mirror);
    assert_eq!(
        mirror.kernel_lines(),
        [
            "10.10.1.0/26 via 10.0.0.9 dev eth0 metric 512",
            "10.10.3.0/26 via 10.0.0.9 dev eth0 metric 2147483547",
        ]
    );
    assert_eq!(mirror.peer_lines(receiver_id), ["10.10.1.0/26 via 10.0.0.1 [64512 1 2 65001]"]);
    let counts = rib.counts(sender, Family::Ipv4);
    assert_eq!((counts.imported, counts.preferred, counts.updates, counts.filtered), (2, 2, 3, 1));
    // Different export rules: only differences are emitted, and the peer need not send anything again.
    let told = mirror.told;
    receiver.export.rules[0] = Arc::new([]);
    assert_eq!(rib.set_peer(receiver_id, receiver, &mut mirror), PeerChange::None);
    assert_eq!(mirror.told, told + 2);
    assert_eq!(rib.counts(receiver_id, Family::Ipv4).exported, 2);
}

#[test]
fn a_restarting_peers_routes_are_kept_until_it_has_sent_all() {
    let (mut rib, mut mirror) = rib();
    let peer = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Internal));
    let update = |prefixes: &[&str]| announce(prefixes, "10.0.0.2", attributes(&[], Some(100)));
    rib.update(peer, &update(&["10.10.1.0/26", "10.10.2.0/26"]), NOW, &mut mirror);
    let told = mirror.told;
    rib.unlisten(peer);
    assert_eq!(rib.mark(peer, Family::Ipv4, Mark::Restart), 2);
    assert!(rib.routes(Family::Ipv4, &Query::default()).iter().filter(|one| one.stale).count() == 2);
    rib.update(peer, &update(&["10.10.2.0/26"]), NOW, &mut mirror);
    assert_eq!(mirror.told, told, "confirming a route is not a change");
    // A refresh in between has its own marks.
    assert_eq!(rib.mark(peer, Family::Ipv4, Mark::Refresh), 2);
    assert_eq!(rib.sweep(peer, Family::Ipv4, Mark::Restart, &mut mirror), 1);
    assert_eq!(mirror.kernel_lines(), ["10.10.2.0/26 via 10.0.0.2 dev eth0 metric 2147483547"]);
    assert_eq!(rib.sweep(peer, Family::Ipv4, Mark::Refresh, &mut mirror), 1);
    assert!(mirror.kernel.is_empty());
}

#[test]
fn after_our_own_restart_nothing_is_emitted_until_all_is_known() {
    let (mut rib, mut mirror) = rib();
    rib.defer();
    let one = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::External));
    let two = join(&mut rib, &mut mirror, 2, peer("10.0.0.3", Relation::External));
    rib.update(one, &announce(&["10.10.1.0/26"], "10.0.0.2", attributes(&[65001], None)), NOW, &mut mirror);
    rib.update(two, &announce(&["10.10.2.0/26"], "10.0.0.3", attributes(&[65002], None)), NOW, &mut mirror);
    assert_eq!(mirror.told, 0);
    rib.tell(&mut mirror);
    assert_eq!((mirror.kernel.len(), mirror.exports.len()), (2, 2));
    rib.tell(&mut mirror);
}

#[test]
fn routes_follow_their_next_hop() {
    let (mut rib, mut mirror) = rib();
    let peer = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Internal));
    let update = announce(&["10.10.1.0/26", "10.10.2.0/26"], "192.0.2.9", attributes(&[], Some(100)));
    rib.update(peer, &update, NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines()[0], "10.10.1.0/26 via 10.0.0.254 dev eth0 metric 2147483547");
    let specific = crate::HostRoute {
        destination: net("192.0.2.0/24"),
        kind: crate::HostRouteKind::Direct { interface: interface(3, "eth1") },
    };
    rib.add_host_route(specific.clone(), NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines()[1], "10.10.2.0/26 via 192.0.2.9 dev eth1 metric 2147483547");
    let told = mirror.told;
    let pod = crate::HostRoute {
        destination: net("203.0.113.7/32"),
        kind: crate::HostRouteKind::Learned {
            metric: None,
            gateway: None,
            interface: Some(interface(9, "cali0")),
        },
    };
    rib.add_host_route(pod, NOW, &mut mirror);
    assert_eq!(mirror.told, told, "a pod's route does not affect next hops");
    rib.remove_host_route(&specific, NOW, &mut mirror);
    rib.remove_host_route(&host_routes()[1], NOW, &mut mirror);
    assert!(mirror.kernel.is_empty(), "an unresolvable next hop makes a route unusable");
    let shown = rib.routes(Family::Ipv4, &Query::default());
    assert!(shown.iter().all(|one| one.route.as_bgp().is_none() || (!one.best && one.hop.is_none())));
}

#[test]
fn a_peer_may_be_behind_a_gateway() {
    let (mut rib, mut mirror) = rib();
    let mut policy = open_policy();
    let via = address("10.0.0.7");
    policy.export.gateways = vec![Gateway { peer: address("192.0.2.1"), via, scope: GatewayScope::Global }];
    rib.set_policy(Family::Ipv4, policy, NOW, &mut mirror);
    let peer = join(&mut rib, &mut mirror, 1, peer("192.0.2.1", Relation::External));
    rib.update(peer, &announce(&["10.10.1.0/26"], "192.0.2.1", attributes(&[65001], None)), NOW, &mut mirror);
    assert_eq!(
        mirror.kernel_lines(),
        ["10.10.1.0/26 via 10.0.0.7 dev eth0 metric 2147483547", "192.0.2.1/32 via 10.0.0.7 dev eth0",]
    );
    rib.set_policy(Family::Ipv4, open_policy(), NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines(), ["10.10.1.0/26 via 10.0.0.254 dev eth0 metric 2147483547"]);
}

#[test]
fn well_known_communities_withhold_routes() {
    let (mut rib, mut mirror) = rib();
    let sender = join(&mut rib, &mut mirror, 1, peer("10.0.0.9", Relation::External));
    let inside = join(&mut rib, &mut mirror, 2, peer("10.0.0.2", Relation::Internal));
    let outside = join(&mut rib, &mut mirror, 3, peer("10.0.0.8", Relation::External));
    for (community, expected) in [
        (bgp_wire::Community::NO_EXPORT, (true, false)),
        (bgp_wire::Community::NO_ADVERTISE, (false, false)),
        (bgp_wire::Community::new(65000, 1), (true, true)),
    ] {
        let mut attributes = attributes(&[65001], None);
        attributes.communities = Box::new([community]);
        rib.update(sender, &announce(&["10.10.1.0/26"], "10.0.0.9", attributes), NOW, &mut mirror);
        let has = |peer| mirror.exports.contains_key(&(peer, net("10.10.1.0/26")));
        assert_eq!((has(inside), has(outside)), expected, "{community}");
    }
}

#[test]
fn a_migrating_machine_wins_over_local_routes() {
    let (mut rib, mut mirror) = rib();
    let mut policy = open_policy();
    policy.export.blocks =
        vec![OwnBlock { prefix: net("10.10.1.0/26").into(), state: BlockState::Confirmed }];
    rib.set_policy(Family::Ipv4, policy, NOW, &mut mirror);
    let peer = join(&mut rib, &mut mirror, 1, peer("10.0.0.2", Relation::Internal));
    let block = |local_pref| announce(&["10.10.1.0/26"], "10.0.0.2", attributes(&[], Some(local_pref)));
    rib.update(peer, &block(Priority::NORMAL.local_preference()), NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines(), ["blackhole 10.10.1.0/26"]);
    rib.update(peer, &block(Priority(512).local_preference()), NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines(), ["10.10.1.0/26 via 10.0.0.2 dev eth0 metric 512"]);
    rib.update(peer, &withdraw(&["10.10.1.0/26"]), NOW, &mut mirror);
    assert_eq!(mirror.kernel_lines(), ["blackhole 10.10.1.0/26"]);
}

#[test]
fn queries_find_the_selected_routes() {
    use crate::Destination::{Exact, For, In};
    let (mut rib, mut mirror) = rib();
    let sender = join(&mut rib, &mut mirror, 1, peer("10.0.0.9", Relation::External));
    let receiver = join(&mut rib, &mut mirror, 2, peer("10.0.0.8", Relation::External));
    let update =
        announce(&["10.10.0.0/16", "10.10.1.0/26", "192.0.2.0/24"], "10.0.0.9", attributes(&[65001], None));
    rib.update(sender, &update, NOW, &mut mirror);
    let ask = |query: Query| -> Vec<String> {
        rib.routes(Family::Ipv4, &query).iter().map(|one| one.prefix.to_string()).collect()
    };
    let to = |destination| Query { destination: Some(destination), ..Query::default() };
    assert_eq!(ask(to(Exact(net("10.10.0.0/16")))), ["10.10.0.0/16"]);
    assert_eq!(ask(to(For(net("10.10.1.3/32")))), ["10.10.1.0/26"]);
    assert_eq!(ask(to(For(net("10.10.1.0/24")))), ["10.10.0.0/16"]);
    assert_eq!(ask(to(For(net("9.9.9.9/32")))), ["0.0.0.0/0"]);
    assert_eq!(ask(to(In(net("10.10.0.0/16")))), ["10.10.0.0/16", "10.10.1.0/26"]);
    let exported = Query { exported_to: Some(receiver), ..Query::default() };
    assert_eq!(ask(exported), ["10.10.0.0/16", "10.10.1.0/26"]);
    let kept = Query { not_exported_to: Some(receiver), ..Query::default() };
    assert_eq!(ask(kept), ["0.0.0.0/0", "10.0.0.0/24", "192.0.2.0/24"]);
}
