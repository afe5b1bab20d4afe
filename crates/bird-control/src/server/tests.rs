//! Answers as text, compared with the output of BIRD 1.6 and 2, and parsed by our own client.

use super::*;
use jiff::Timestamp;
use std::net::{IpAddr, Ipv4Addr};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a moment")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn ask(line: &str, facts: &Facts) -> String {
    answer(&Question::parse(line), facts)
}

fn protocol(name: &str, kind: &'static str) -> ProtocolFacts {
    ProtocolFacts {
        name: name.to_owned(),
        kind,
        state: "up",
        since: at("2026-11-17T05:44:19Z"),
        preference: 100,
        input_filter: "ACCEPT".to_owned(),
        output_filter: "(unnamed)".to_owned(),
        counts: RouteCounts::default(),
        bgp: None,
    }
}

fn established() -> ProtocolFacts {
    let session = SessionFacts {
        neighbor_id: Ipv4Addr::new(10, 99, 0, 2),
        neighbor_capabilities: vec!["refresh", "enhanced-refresh", "restart-able", "AS4"],
        properties: vec!["internal", "multihop", "AS4"],
        source: address("10.99.0.1"),
        limit: None,
        hold: Timer { left: 217, total: 240 },
        keepalive: Timer { left: 66, total: 80 },
    };
    let bgp = BgpFacts {
        state: "Established",
        neighbor: address("10.99.0.2"),
        interface: None,
        neighbor_as: 64512,
        restarting: false,
        error_wait: None,
        connect_delay: None,
        session: Some(session),
        last_error: None,
    };
    let counts = RouteCounts {
        imported: 3,
        exported: 2,
        preferred: 2,
        import_updates: [3, 0, 0, 0, 3],
        import_withdraws: [1, 0, 0, 1],
        export_updates: [5, 2, 1, 2],
        export_withdraws: [4, 4],
    };
    ProtocolFacts { counts, bgp: Some(bgp), ..protocol("Mesh_10_99_0_2", "BGP") }
}

fn refused() -> ProtocolFacts {
    let bgp = BgpFacts {
        state: "Connect",
        neighbor: address("10.99.0.9"),
        interface: None,
        neighbor_as: 64999,
        restarting: true,
        error_wait: Some(Timer { left: 3, total: 5 }),
        connect_delay: None,
        session: None,
        last_error: Some("Socket: No route to host".to_owned()),
    };
    ProtocolFacts { state: "start", bgp: Some(bgp), ..protocol("Global_10_99_0_9", "BGP") }
}

fn protocols() -> Facts {
    let mut old = protocol("static1", "Static");
    old.since = at("2026-11-15T00:00:00Z");
    Facts::Protocols { now: at("2026-11-17T05:50:00Z"), protocols: vec![old, established(), refused()] }
}

#[test]
fn the_state_of_the_daemon() {
    let mut facts = DaemonFacts {
        version: "v0.1.0+tortie".to_owned(),
        router_id: Ipv4Addr::new(10, 0, 0, 1),
        now: at("2026-11-17T05:44:27.664Z"),
        booted: at("2026-11-17T05:44:19Z"),
        reconfigured: at("2026-11-17T05:44:20Z"),
        recovery: None,
    };
    assert_eq!(greeting(&facts.version), "0001 BIRD v0.1.0+tortie ready.\n");
    assert_eq!(
        ask("show status", &Facts::Daemon(facts.clone())),
        "1000-BIRD v0.1.0+tortie\n\
         1011-Router ID is 10.0.0.1\n \
         Current server time is 2026-11-17 05:44:27\n \
         Last reboot on 2026-11-17 05:44:19\n \
         Last reconfiguration on 2026-11-17 05:44:20\n\
         0013 Daemon is up and running\n"
    );
    facts.recovery = Some(Recovery { waiting_for: 1, timer: Timer { left: 215, total: 240 } });
    let text = ask("show status", &Facts::Daemon(facts));
    let recovery = "0024-Graceful restart recovery in progress\n   Waiting for 1 protocols to recover\n   Wait timer is 215/240\n0013 ";
    assert!(text.contains(recovery), "{text}");
}

#[test]
fn the_table_of_protocols() {
    assert_eq!(
        ask("show protocols", &protocols()),
        "2002-name     proto    table    state  since       info\n\
         1002-static1  Static   master   up     2026-11-15  \n \
         Mesh_10_99_0_2 BGP      master   up     05:44:19    Established   \n \
         Global_10_99_0_9 BGP      master   start  05:44:19    Connect       Socket: No route to host\n\
         0000 \n"
    );
}

#[test]
fn details_of_sessions() {
    assert_eq!(
        ask("show protocols all Mesh_10_99_0_2", &protocols()),
        "2002-name     proto    table    state  since       info\n\
         1002-Mesh_10_99_0_2 BGP      master   up     05:44:19    Established   \n\
         1006-  Preference:     100\n   \
         Input filter:   ACCEPT\n   \
         Output filter:  (unnamed)\n   \
         Routes:         3 imported, 2 exported, 2 preferred\n   \
         Route change stats:     received   rejected   filtered    ignored   accepted\n     \
         Import updates:              3          0          0          0          3\n     \
         Import withdraws:            1          0        ---          0          1\n     \
         Export updates:              5          2          1        ---          2\n     \
         Export withdraws:            4        ---        ---        ---          4\n   \
         BGP state:          Established\n     \
         Neighbor address: 10.99.0.2\n     \
         Neighbor AS:      64512\n     \
         Neighbor ID:      10.99.0.2\n     \
         Neighbor caps:    refresh enhanced-refresh restart-able AS4\n     \
         Session:          internal multihop AS4\n     \
         Source address:   10.99.0.1\n     \
         Hold timer:       217/240\n     \
         Keepalive timer:  66/80\n \n\
         0000 \n"
    );
    let text = ask("show protocols all 'Global_10_99_0_9'", &protocols());
    let expected = "   BGP state:          Connect\n     Neighbor address: 10.99.0.9\n     Neighbor AS:      64999\n     \
                    Neighbor graceful restart active\n     Error wait:       3/5\n     \
                    Last error:       Socket: No route to host\n \n0000 \n";
    assert!(text.ends_with(expected), "{text}");
    assert_eq!(ask("show protocols \"Mesh_*\"", &protocols()).lines().count(), 3);
    assert_eq!(ask("show protocols nosuch", &protocols()), "9002 nosuch is not a protocol\n");
    assert_eq!(ask("show protocols No*", &protocols()), "8003 No protocols match\n");
}

fn route(destination: &str, target: RouteTarget, protocol: &str, primary: bool) -> RouteFacts {
    let is_bgp = protocol.contains('_');
    let path = PathFacts {
        distance: Distance::Metric(0),
        origin: 'i',
        origin_as: None,
        attributes: vec![("BGP.origin", "IGP".to_owned()), ("BGP.local_pref", "100".to_owned())],
    };
    RouteFacts {
        destination: destination.parse().expect("a network"),
        target,
        protocol: protocol.to_owned(),
        source: if is_bgp { "BGP" } else { "static" },
        since: at("2026-11-17T05:44:21Z"),
        from: None,
        primary,
        stale: false,
        preference: if is_bgp { 100 } else { 200 },
        path: is_bgp.then_some(path),
    }
}

fn routes() -> Vec<RouteFacts> {
    let hop = |gateway: &str| NextHop { gateway: address(gateway), interface: "eth0".to_owned() };
    let mut reflected = route("10.10.2.0/26", RouteTarget::Via(hop("10.99.0.2")), "Mesh_10_99_0_2", true);
    reflected.from = Some(address("10.99.0.7"));
    let mut lost = route("10.10.3.0/26", RouteTarget::Unreachable, "Mesh_10_99_0_2", false);
    lost.stale = true;
    if let Some(path) = &mut lost.path {
        (path.distance, path.origin_as) = (Distance::Unreachable, Some(65001));
    }
    vec![
        route("10.10.1.0/26", RouteTarget::Blackhole, "static1", true),
        route("10.10.1.0/26", RouteTarget::Via(hop("10.99.0.2")), "Mesh_10_99_0_2", false),
        reflected,
        lost,
        route(
            "10.10.4.0/26",
            RouteTarget::Multipath(vec![hop("10.99.0.2"), hop("10.99.0.3")]),
            "Mesh_10_99_0_2",
            true,
        ),
        route("10.10.5.0/26", RouteTarget::Device("tunl0".to_owned()), "direct1", true),
    ]
}

fn found(routes: Vec<RouteFacts>) -> Facts {
    Facts::Routes { now: at("2026-11-17T05:50:00Z"), routes, networks: (5, 6) }
}

#[test]
fn the_table_of_routes() {
    assert_eq!(
        ask("show route", &found(routes())),
        "1007-10.10.1.0/26       blackhole [static1 05:44:21] * (200)\n                    \
         via 10.99.0.2 on eth0 [Mesh_10_99_0_2 05:44:21] (100/0) [i]\n \
         10.10.2.0/26       via 10.99.0.2 on eth0 [Mesh_10_99_0_2 05:44:21 from 10.99.0.7] * (100/0) [i]\n \
         10.10.3.0/26       unreachable [Mesh_10_99_0_2 05:44:21] (100s/-) [AS65001i]\n \
         10.10.4.0/26       multipath [Mesh_10_99_0_2 05:44:21] * (100/0) [i]\n \
         \tvia 10.99.0.2 on eth0 weight 1\n \
         \tvia 10.99.0.3 on eth0 weight 1\n \
         10.10.5.0/26       dev tunl0 [direct1 05:44:21] * (200)\n\
         0000 \n"
    );
    assert_eq!(ask("show route count", &found(routes())), "0014 6 of 6 routes for 5 networks\n");
    assert_eq!(ask("show route for 11.1.1.1", &found(vec![])), "8001 Network not in table\n");
    assert_eq!(ask("show route protocol static1", &found(vec![])), "0000 \n");
    assert_eq!(
        ask("show route protocol nosuch", &Facts::NoSuchProtocol("nosuch".to_owned())),
        "9002 nosuch is not a protocol\n"
    );
    let mut one = routes();
    one.truncate(2);
    assert_eq!(
        ask("show route 10.10.1.0/26 all", &found(one)),
        "1007-10.10.1.0/26       blackhole [static1 05:44:21] * (200)\n\
         1008-\tType: static unicast univ\n\
         1007-                   via 10.99.0.2 on eth0 [Mesh_10_99_0_2 05:44:21] (100/0) [i]\n\
         1008-\tType: BGP unicast univ\n\
         1012-\tBGP.origin: IGP\n \
         \tBGP.local_pref: 100\n\
         0000 \n"
    );
}

#[test]
fn interfaces_and_memory() {
    let facts = Facts::Interfaces(vec![InterfaceFacts {
        name: "eth0".to_owned(),
        index: 3,
        up: true,
        flags: vec!["MultiAccess", "Broadcast", "Multicast", "AdminUp", "LinkUp"],
        mtu: 1500,
        addresses: ["10.99.0.1/24", "fe80::1/64"]
            .map(|text| InterfaceAddress { address: text.parse().expect("an address") })
            .to_vec(),
    }]);
    assert_eq!(
        ask("show interfaces", &facts),
        "1001-eth0 up (index=3)\n\
         1004-\tMultiAccess Broadcast Multicast AdminUp LinkUp MTU=1500\n\
         1003-\t10.99.0.1/24 (Primary, scope site)\n \
         \tfe80::1/64 (scope link)\n\
         0000 \n"
    );
    assert_eq!(
        ask("show interfaces summary", &facts),
        "2005-interface state address\n1005-eth0      up    10.99.0.1/24\n0000 \n"
    );
    let memory = MemoryFacts { tables: 31_900, attributes: 1552, protocols: 0, total: 80 << 20 };
    assert_eq!(
        ask("show memory", &Facts::Memory(memory)),
        "1018-BIRD memory usage\n Routing tables:     31 kB\n Route attributes: 1552  B\n Protocols:           0  B\n \
         Total:              80 MB\n0000 \n"
    );
}

#[test]
fn unsupported_questions_are_refused() {
    for (line, expected) in [
        ("foo", "9001 syntax error, unexpected 'foo'\n"),
        ("show", "9001 syntax error, unexpected end\n"),
        ("show foo", "9001 syntax error, unexpected 'foo'\n"),
        ("show status now", "9001 syntax error, unexpected 'now'\n"),
        ("show route where net ~ 10.0.0.0/8", "9001 'where' is not available here\n"),
        ("show route protocol", "9001 syntax error, 'protocol' needs a name\n"),
        ("show route 10.0.0.0/99", "9001 syntax error, unexpected '10.0.0.0/99'\n"),
        ("show route table other", "9002 other is not a table\n"),
        ("show bfd sessions", "8003 show bfd: no such protocol runs here\n"),
        ("configure", "8002 configure: not available, this speaker is configured by the datastore\n"),
        ("configure check", "8002 configure: not available, this speaker is configured by the datastore\n"),
        ("disable all", "8002 disable: not available, this speaker is configured by the datastore\n"),
        ("down", "8002 down: not available, this speaker is configured by the datastore\n"),
        ("restrict", "0016 Access restricted\n"),
        ("", "0000 \n"),
        ("echo all", "0000 \n"),
    ] {
        assert_eq!(ask(line, &Facts::None), expected, "{line}");
    }
    assert_eq!(ask("show status", &Facts::Ending), "0013 Shutdown in progress\n");
}

#[test]
fn questions_about_routes() {
    let net = |text: &str| text.parse().expect("a network");
    let parse = |line: &str| match Question::parse(line) {
        Ok(Question::Routes(question)) => question,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(
        parse("show route for 10.1.2.3 all primary"),
        RouteQuestion {
            destination: Some(Destination::For(net("10.1.2.3/32"))),
            all: true,
            primary: true,
            ..RouteQuestion::default()
        }
    );
    assert_eq!(parse("show route fd00::/64").destination, Some(Destination::Exact(net("fd00::/64"))));
    assert_eq!(parse("show route in 10.1.2.3/16").destination, Some(Destination::In(net("10.1.0.0/16"))));
    let question = parse("show route table master export Mesh_1 count");
    assert_eq!((question.export.as_deref(), question.count), (Some("Mesh_1"), true));
}
