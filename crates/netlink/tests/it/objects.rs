//! Devices, addresses, routes, neighbours and rules: created, read back, changed, deleted, refused.

use crate::namespaces::TestNamespace;
use anyhow::{Context as _, Result};
use netlink::{
    Address, DeviceKind, Errno, Family, Handle, Kernel, LinkChange, LinkRef, MacAddress, Neighbour,
    NeighbourState, NewLink, Operation, Peer, Route, RouteFilter, RouteKind, Rule, Scope, TABLE_MAIN, Vxlan,
    first_failure,
};
use std::sync::Arc;

/// A handle inside a namespace: the socket stays in it, this thread does not.
fn handle(there: &TestNamespace) -> Result<Handle> {
    Ok(there.namespace.run(Handle::open)??)
}

fn apply(handle: &mut Handle, operations: &[Operation]) -> Result<()> {
    Ok(first_failure(handle.apply(operations))?)
}

fn veth(name: &str, peer: &str) -> NewLink {
    let peer = Peer { name: peer.into(), namespace: None, mac: None };
    NewLink { mtu: Some(1400), queues: Some(1), ..NewLink::new(name, DeviceKind::Veth(peer)) }
}

#[test]
fn a_pair_across_namespaces_in_one_request() -> Result<()> {
    let (here, there) = (TestNamespace::new()?, TestNamespace::new()?);
    let mut host = handle(&here)?;
    let mac = MacAddress([0xee; 6]);
    let peer = Peer {
        name: "eth0".into(),
        namespace: Some(Arc::new(there.namespace.duplicate()?)),
        mac: Some("02:00:00:00:00:07".parse()?),
    };
    let new = NewLink {
        mtu: Some(1430),
        mac: Some(mac),
        queues: Some(1),
        ..NewLink::new("cali1", DeviceKind::Veth(peer))
    };
    let (outcomes, read) = host.apply_and_read(&[Operation::AddLink(new)], &"cali1".into());
    first_failure(outcomes)?;
    let link = read?;
    assert_eq!((link.kind.as_str(), link.mtu, link.mac, link.up), ("veth", 1430, Some(mac), false));
    assert_eq!((link.tx_queues, link.rx_queues), (1, 1));
    let mut pod = handle(&there)?;
    let end = pod.link(&"eth0".into())?.context("no eth0")?;
    assert_eq!((end.mtu, end.mac.map(|mac| mac.to_string()).as_deref()), (1430, Some("02:00:00:00:00:07")));
    assert_eq!(end.peer_index, Some(link.index));
    apply(&mut pod, &[Operation::DeleteLink("eth0".into())])?;
    assert_eq!(host.link(&"cali1".into())?, None);
    Ok(())
}

#[test]
fn devices_are_changed_and_refusals_name_them() -> Result<()> {
    let there = TestNamespace::new()?;
    let mut kernel = handle(&there)?;
    let twice = [
        Operation::AddLink(veth("a", "b")),
        Operation::AddLink(veth("a", "c")),
        Operation::DeleteLink("none".into()),
    ];
    let outcomes = kernel.apply(&twice);
    assert!(outcomes[0].is_ok());
    let exists = outcomes[1].as_ref().unwrap_err();
    assert!(
        exists.is_exists() && exists.to_string().starts_with("cannot create veth device a: "),
        "{exists}"
    );
    assert!(outcomes[2].as_ref().unwrap_err().is_missing());
    let index = kernel.link(&"a".into())?.context("no a")?.index;
    let change = LinkChange {
        up: Some(true),
        mtu: Some(1300),
        mac: Some(MacAddress([2, 0, 0, 0, 0, 1])),
        ..LinkChange::default()
    };
    apply(
        &mut kernel,
        &[
            Operation::ChangeLink(index.into(), change),
            Operation::AddLink(NewLink::new("br", DeviceKind::Bridge)),
        ],
    )?;
    let bridge = kernel.link(&"br".into())?.context("no br")?.index;
    let join = LinkChange { master: Some(bridge), ..LinkChange::default() };
    apply(&mut kernel, &[Operation::ChangeLink(index.into(), join)])?;
    let link = kernel.link(&LinkRef::Index(index))?.context("no a")?;
    assert_eq!((link.up, link.mtu, link.master), (true, 1300, Some(bridge)));
    let names: Vec<String> = kernel.links()?.into_iter().map(|link| link.name).collect();
    assert!(["lo", "a", "b", "br"].iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
    Ok(())
}

#[test]
fn addresses_of_both_families() -> Result<()> {
    let there = TestNamespace::new()?;
    let mut kernel = handle(&there)?;
    apply(&mut kernel, &[Operation::AddLink(veth("a", "b"))])?;
    let index = kernel.link(&"a".into())?.context("no a")?.index;
    let v4 = Address::new(index, "10.0.0.1/32".parse()?);
    let v6 = Address { skip_duplicate_detection: true, ..Address::new(index, "fd00::1/128".parse()?) };
    let outcomes = kernel.apply(&[
        Operation::up(index),
        Operation::AddAddress(v4.clone()),
        Operation::AddAddress(v6.clone()),
        Operation::AddAddress(v4.clone()),
        Operation::ReplaceAddress(v4.clone()),
    ]);
    assert!(outcomes[3].as_ref().unwrap_err().is_exists());
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
    let found = kernel.addresses(None, Some(index))?;
    assert!(found.iter().any(|address| address.address == v4.address && address.label == "a"));
    assert!(found.iter().any(|address| address.address == v6.address && !address.tentative));
    assert!(
        kernel.addresses(Some(Family::V4), Some(index))?.iter().all(|address| address.family() == Family::V4)
    );
    apply(&mut kernel, &[Operation::DeleteAddress(v4), Operation::DeleteAddress(v6)])?;
    assert!(kernel.addresses(Some(Family::V4), Some(index))?.is_empty());
    assert!(kernel.addresses(None, Some(9999))?.is_empty());
    Ok(())
}

#[test]
fn routes_are_added_replaced_filtered_and_deleted() -> Result<()> {
    let there = TestNamespace::new()?;
    let mut kernel = handle(&there)?;
    apply(&mut kernel, &[Operation::AddLink(veth("a", "b"))])?;
    let index = kernel.link(&"a".into())?.context("no a")?.index;
    let peer = kernel.link(&"b".into())?.context("no b")?.index;
    let ours = 80;
    let pod = Route { protocol: ours, ..Route::on_link("10.1.0.7/32".parse()?, index) };
    let blackhole =
        Route { kind: RouteKind::Blackhole, protocol: ours, ..Route::new("10.1.0.0/26".parse()?) };
    let onlink = Route {
        onlink: true,
        protocol: ours,
        source: Some("10.9.9.9".parse()?),
        ..Route::via("10.2.0.0/26".parse()?, "172.31.9.9".parse()?, index)
    };
    let v6 = Route {
        protocol: ours,
        table: 12345,
        mtu: Some(1280),
        ..Route::on_link("fd00:1::/64".parse()?, index)
    };
    apply(
        &mut kernel,
        &[
            Operation::up(index),
            Operation::up(peer),
            Operation::AddAddress(Address::new(index, "10.9.9.9/32".parse()?)),
            Operation::AddRoute(pod.clone()),
            Operation::AddRoute(blackhole.clone()),
            Operation::AddRoute(onlink.clone()),
            Operation::AddRoute(v6.clone()),
            Operation::AddRoute(Route::on_link("10.1.0.8/32".parse()?, index)),
        ],
    )?;
    let filter =
        RouteFilter { table: Some(TABLE_MAIN), protocol: Some(ours), ..RouteFilter::all(Family::V4) };
    let mut found = kernel.routes(&filter)?;
    found.sort();
    assert_eq!(found, [blackhole.clone(), pod.clone(), onlink.clone()]);
    let device = RouteFilter { device: Some(index), ..RouteFilter::all(Family::V4) };
    assert!(kernel.routes(&device)?.iter().any(|route| route.protocol != ours));
    let table = RouteFilter { table: Some(12345), ..RouteFilter::all(Family::V6) };
    let in_table = kernel.routes(&table)?;
    assert_eq!((in_table.len(), in_table[0].mtu, in_table[0].metric), (1, Some(1280), Some(1024)));
    assert!(kernel.routes(&RouteFilter { table: Some(54321), ..RouteFilter::all(Family::V4) })?.is_empty());
    let moved = Route { device: Some(peer), ..pod.clone() };
    let outcomes = kernel.apply(&[
        Operation::AddRoute(moved.clone()),
        Operation::ReplaceRoute(moved.clone()),
        Operation::DeleteRoute(onlink),
        Operation::DeleteRoute(Route::new("10.77.0.0/16".parse()?)),
    ]);
    assert!(outcomes[0].as_ref().unwrap_err().is_exists());
    assert!(outcomes[1].is_ok() && outcomes[2].is_ok());
    assert_eq!(outcomes[3].as_ref().unwrap_err().errno(), Some(Errno::SRCH));
    let found = kernel.routes(&filter)?;
    assert!(found.contains(&moved) && found.contains(&blackhole) && found.len() == 2, "{found:?}");
    assert!(there.ip(&["route", "show"])?.contains("blackhole 10.1.0.0/26 proto 80"));
    assert_eq!(moved.scope, Scope::Link);
    Ok(())
}

#[test]
fn vxlan_with_its_neighbours_and_forwarding() -> Result<()> {
    let there = TestNamespace::new()?;
    let mut kernel = handle(&there)?;
    let vxlan = Vxlan {
        vni: 4096,
        local: Some("10.0.0.1".parse()?),
        port: 4789,
        learning: false,
        checksum: Some(true),
        ..Vxlan::default()
    };
    let new = NewLink {
        up: true,
        mtu: Some(1410),
        ..NewLink::new("vxlan.calico", DeviceKind::Vxlan(vxlan.clone()))
    };
    apply(&mut kernel, &[Operation::AddLink(new)])?;
    let link = kernel.link(&"vxlan.calico".into())?.context("no vxlan.calico")?;
    assert_eq!((link.vxlan, link.up, link.mtu), (Some(vxlan), true, 1410));
    let mac = MacAddress([0x66, 1, 2, 3, 4, 5]);
    let neighbour = Neighbour::permanent(link.index, "10.1.0.0".parse()?, mac);
    let forwarding = Neighbour::forwarding(link.index, mac, "172.16.0.2".parse()?);
    apply(
        &mut kernel,
        &[Operation::ReplaceNeighbour(neighbour.clone()), Operation::ReplaceNeighbour(forwarding.clone())],
    )?;
    let found = kernel.neighbours(Family::V4, Some(link.index))?;
    assert!(found.contains(&neighbour) && found.iter().all(|it| !it.forwarding), "{found:?}");
    assert!(kernel.forwarding(link.index)?.contains(&forwarding));
    let moved = Neighbour::forwarding(link.index, mac, "172.16.0.3".parse()?);
    apply(&mut kernel, &[Operation::ReplaceNeighbour(moved.clone()), Operation::DeleteNeighbour(neighbour)])?;
    assert_eq!(kernel.forwarding(link.index)?.iter().filter(|it| it.mac == Some(mac)).count(), 1);
    assert!(
        !kernel
            .neighbours(Family::V4, Some(link.index))?
            .iter()
            .any(|it| it.state == NeighbourState::Permanent && it.mac == Some(mac))
    );
    apply(&mut kernel, &[Operation::DeleteNeighbour(moved)])?;
    Ok(())
}

#[test]
fn rules_of_both_families() -> Result<()> {
    let there = TestNamespace::new()?;
    let mut kernel = handle(&there)?;
    for family in [Family::V4, Family::V6] {
        let rule = Rule {
            mark: Some((0x20_0000, 0x20_0000)),
            invert: true,
            protocol: 80,
            ..Rule::to_table(family, 99, 300)
        };
        apply(&mut kernel, &[Operation::AddRule(rule.clone())])?;
        let found = kernel.rules(family)?;
        assert!(found.contains(&rule), "{found:?}");
        let again = kernel.apply(&[Operation::AddRule(rule.clone())]);
        assert!(again[0].as_ref().unwrap_err().is_exists());
        apply(&mut kernel, &[Operation::DeleteRule(rule.clone())])?;
        assert!(!kernel.rules(family)?.contains(&rule));
    }
    Ok(())
}

#[test]
fn thousands_of_routes_in_one_batch() -> Result<()> {
    const COUNT: u32 = 5000;
    let there = TestNamespace::new()?;
    let mut kernel = handle(&there)?;
    apply(&mut kernel, &[Operation::AddLink(veth("a", "b"))])?;
    let index = kernel.link(&"a".into())?.context("no a")?.index;
    apply(&mut kernel, &[Operation::up(index)])?;
    let route = |number: u32| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        Route { protocol: 80, ..Route::on_link(ipnet::IpNet::from(std::net::IpAddr::from(address)), index) }
    };
    let mut operations: Vec<Operation> =
        (0..COUNT).map(|number| Operation::AddRoute(route(number))).collect();
    // The operation in the middle is refused; the others are carried out.
    operations.insert(2500, Operation::AddRoute(route(3)));
    let outcomes = kernel.apply(&operations);
    let refused: Vec<usize> =
        outcomes.iter().enumerate().filter(|(_, it)| it.is_err()).map(|(index, _)| index).collect();
    assert_eq!(refused, [2500]);
    let filter = RouteFilter { protocol: Some(80), ..RouteFilter::all(Family::V4) };
    assert_eq!(kernel.routes(&filter)?.len(), usize::try_from(COUNT)?);
    Ok(())
}

/// Routes with several next hops, and of one family by a neighbour of the other, are read as written.
#[test]
fn routes_with_several_next_hops() -> Result<()> {
    let id = std::process::id();
    let host = testkit::network::Namespace::new(&format!("nlm{id}"))?;
    host.batch(
        "link add d0 type veth peer name p0\nlink add d1 type veth peer name p1\nlink set p0 up\nlink set p1 up\naddr add 10.7.0.1/24 dev d0\naddr add 10.8.0.1/24 dev d1\n\
         addr add fd07::1/64 dev d0\naddr add fd08::1/64 dev d1\nlink set d0 up\nlink set d1 up",
    )?;
    host.run(|| -> Result<()> {
        let mut kernel = Handle::open()?;
        let index = |kernel: &mut Handle, name: &str| -> Result<u32> {
            Ok(kernel.link(&name.into())?.expect("a device").index)
        };
        let (d0, d1) = (index(&mut kernel, "d0")?, index(&mut kernel, "d1")?);
        let hop = |device, gateway: &str| netlink::Hop {
            device,
            gateway: Some(gateway.parse().expect("an address")),
            onlink: false,
        };
        let v4 = Route {
            protocol: 12,
            metric: Some(1024),
            hops: vec![hop(d0, "10.7.0.2"), hop(d1, "10.8.0.2")],
            ..Route::new("10.1.0.0/26".parse()?)
        };
        let v6 = Route {
            protocol: 12,
            metric: Some(1024),
            hops: vec![hop(d0, "fd07::2"), hop(d1, "fd08::2")],
            ..Route::new("fd01::/64".parse()?)
        };
        let mixed = Route {
            protocol: 12,
            metric: Some(7),
            ..Route::via("10.2.0.0/26".parse()?, "fe80::9".parse()?, d0)
        };
        let operations: Vec<Operation> =
            [&v4, &v6, &mixed].into_iter().map(|route| Operation::ReplaceRoute(route.clone())).collect();
        first_failure(kernel.apply(&operations))?;
        for (family, expected) in [(Family::V4, vec![v4, mixed]), (Family::V6, vec![v6])] {
            let filter = RouteFilter { protocol: Some(12), ..RouteFilter::all(family) };
            let mut found = kernel.routes(&filter)?;
            found.sort();
            assert_eq!(found, expected);
        }
        Ok(())
    })?
}
