//! A full table: import, memory, the cost of one flap in a small and in a large table, and export to peers.
//!
//! The lower bound is a plain hash map of prefixes with a counted reference each: the cost of storing them at all.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use anyhow::Result;
use bgp_wire::{AsPath, Attributes, Family, NextHop, Nlri, Reach, RouterId, Update};
use ipnet::{IpNet, Ipv4Net};
use rib::{
    Announcement, Export, HostRoute, HostRouteKind, Identity, Import, Interface, KernelRoute, Moment, Peer,
    PeerId, Policy, Relation, Rib, Sink,
};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Report, heap};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

/// Counts changes and discards them.
#[derive(Default)]
struct Counted {
    kernel: usize,
    exports: usize,
}

impl Sink for Counted {
    fn kernel(&mut self, _: IpNet, _: Option<&KernelRoute>) {
        self.kernel += 1;
    }

    fn export(&mut self, _: PeerId, _: IpNet, _: Option<&Arc<Announcement>>) {
        self.exports += 1;
    }
}

fn prefix(number: u32) -> IpNet {
    let address = Ipv4Addr::from(0x1000_0000 + (number << 8));
    IpNet::V4(Ipv4Net::new(address, 24).expect("a length"))
}

fn peer(last: u8, relation: Relation) -> Peer {
    let own: NextHop = IpAddr::from([10, 0, 0, 1]).into();
    let none = || Arc::new([]);
    Peer {
        address: IpAddr::from([10, 0, 0, last]),
        link: None,
        router_id: RouterId(u32::from(last)),
        relation,
        import: Import {
            local_as: bgp_wire::Asn(64512),
            allowed_local_as: 0,
            local_address: IpAddr::from([10, 0, 0, 1]),
            rules: [none(), none()],
        },
        export: Export {
            relation,
            local_as: bgp_wire::Asn(64512),
            next_hop: bgp::intent::NextHop::Auto,
            own: [own, own],
            rules: [none(), none()],
        },
    }
}

/// Updates of a thousand prefixes, each with its own attributes or all with the same.
fn updates(routes: u32, different: bool) -> impl Iterator<Item = Update> {
    (0..routes.div_ceil(1000)).map(move |chunk| {
        let numbers = chunk * 1000..((chunk + 1) * 1000).min(routes);
        let path = if different { vec![65001, 65000 + chunk] } else { vec![65001] };
        let reach = Reach {
            family: Family::Ipv4,
            next_hop: IpAddr::from([10, 0, 0, 2]).into(),
            nlri: numbers.map(|number| Nlri::new(prefix(number))).collect(),
        };
        Update {
            reach: [reach].into_iter().collect(),
            attributes: Attributes { as_path: AsPath::sequence(path), ..Attributes::default() },
            ..Update::default()
        }
    })
}

fn tables(exports: u8) -> Rib {
    let mut rib = Rib::new(Identity::default());
    let mut sink = Counted::default();
    let mut policy = Policy::default();
    policy.export.pools = vec![IpNet::V4(Ipv4Net::default()).into()];
    rib.set_policy(Family::Ipv4, policy, Moment(0), &mut sink);
    let link = HostRoute {
        destination: "10.0.0.0/24".parse().expect("a network"),
        kind: HostRouteKind::Direct { interface: Interface { index: 2, name: "eth0".into() } },
    };
    rib.add_host_route(link, Moment(0), &mut sink);
    let _ = rib.set_peer(PeerId(0), peer(2, Relation::External), &mut sink);
    for number in 0..exports {
        let _ = rib.set_peer(PeerId(u32::from(number) + 1), peer(number + 3, Relation::External), &mut sink);
        rib.listen(PeerId(u32::from(number) + 1), Family::Ipv4, &mut sink);
    }
    rib
}

fn imported(routes: u32, exports: u8, different: bool) -> (Rib, Duration, usize, usize) {
    let before = heap::now();
    heap::reset_peak();
    let mut rib = tables(exports);
    let mut sink = Counted::default();
    let mut spent = Duration::ZERO;
    for update in updates(routes, different) {
        let start = Instant::now();
        rib.update(PeerId(0), &update, Moment(1), &mut sink);
        spent += start.elapsed();
    }
    let now = heap::now() - before;
    assert_eq!(sink.kernel, routes as usize);
    assert_eq!(sink.exports, routes as usize * usize::from(exports));
    (rib, spent, now, heap::peak() - before)
}

fn floor(routes: u32) -> (Duration, usize) {
    let before = heap::now();
    let attributes = Arc::new(Attributes::default());
    let start = Instant::now();
    let mut map: HashMap<IpNet, Arc<Attributes>> = HashMap::new();
    for number in 0..routes {
        map.insert(prefix(number), attributes.clone());
    }
    (start.elapsed(), heap::now() - before)
}

fn flap(rib: &mut Rib, routes: u32) -> Duration {
    let mut sink = Counted::default();
    let one = Nlri::new(prefix(routes / 2));
    let withdrawn = Update { withdrawn: vec![one], ..Update::default() };
    let mut back = updates(1, false).next().expect("an update");
    back.reach[0].nlri = vec![one];
    let rounds = 2000;
    let start = Instant::now();
    for _ in 0..rounds {
        rib.update(PeerId(0), &withdrawn, Moment(2), &mut sink);
        rib.update(PeerId(0), &back, Moment(2), &mut sink);
    }
    assert_eq!(sink.kernel, 2 * rounds as usize);
    start.elapsed() / rounds
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn main() -> Result<()> {
    let mut report = Report::new("rib");
    let (floor_spent, floor_memory) = floor(800_000);
    for (what, routes, exports, different) in [
        ("100,000 routes with equal attributes", 100_000, 0, false),
        ("800,000 routes with equal attributes", 800_000, 0, false),
        ("800,000 routes, attributes shared by a thousand", 800_000, 0, true),
        ("800,000 routes, passed on to a peer", 800_000, 1, false),
        ("100,000 routes, passed on to 50 peers", 100_000, 50, false),
    ] {
        let (mut rib, spent, now, most) = imported(routes, exports, different);
        report.row(
            &format!("{what}: import, best path, kernel routes"),
            &format!(
                "{:.0} ms, {:.0} ns a route",
                spent.as_secs_f64() * 1e3,
                spent.as_secs_f64() * 1e9 / f64::from(routes)
            ),
            &format!("800,000 prefixes in a hash map: {:.0} ms", floor_spent.as_secs_f64() * 1e3),
            "",
            "BIRD 2 takes 0.63 s for 800,000, decoding included",
        );
        report.row(
            "the same, memory kept (most while it grew)",
            &format!("{:.1} MiB ({:.1} MiB)", megabytes(now), megabytes(most)),
            &format!("800,000 prefixes in a hash map: {:.1} MiB", megabytes(floor_memory)),
            "",
            "BIRD 2 keeps 77 MiB of 800,000, 13 MiB of 100,000",
        );
        let flap = flap(&mut rib, routes);
        report.row(
            "one of them withdrawn and announced again",
            &format!("{:.2} µs", flap.as_secs_f64() * 1e6),
            "",
            "",
            "microseconds, however large the table",
        );
    }
    print!("{}", report.markdown());
    report.record()
}
