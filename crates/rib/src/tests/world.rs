//! A small world for testing the tables: a recording sink, and short notations for peers, routes and policies.

use crate::{
    Announcement, Ends, Export, HostRoute, HostRouteKind, Import, Interface, KernelRoute, KernelTarget, Link,
    Peer, PeerId, Policy, Relation, Rib, Sink,
};
use bgp::intent::{FilterRule, NextHop as NextHopMode};
use bgp_wire::{AsPath, Asn, Attributes, Family, NextHop, Nlri, Reach, RouterId, Update};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

pub(super) fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

pub(super) fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(super) fn id(text: &str) -> RouterId {
    text.parse().expect("an identifier")
}

pub(super) fn interface(index: u32, name: &str) -> Interface {
    Interface { index, name: name.into() }
}

pub(super) const OWN: &str = "10.0.0.1";
pub(super) const LOCAL_AS: u32 = 64512;

/// A peer without filters.
pub(super) fn peer(remote: &str, relation: Relation) -> Peer {
    let none: [Arc<[FilterRule]>; 2] = [Arc::new([]), Arc::new([])];
    let own = NextHop::from(address(OWN));
    let ends = Ends {
        local: address(OWN),
        link_local: None,
        remote: address(remote),
        link: None,
        router_id: id(remote),
    };
    Peer {
        address: ends.remote,
        link: ends.link,
        router_id: ends.router_id,
        relation,
        import: Import {
            local_as: Asn(LOCAL_AS),
            allowed_local_as: 0,
            local_address: ends.local,
            rules: none.clone(),
        },
        export: Export {
            relation,
            local_as: Asn(LOCAL_AS),
            next_hop: NextHopMode::Auto,
            own: [own, own],
            rules: none,
        },
    }
}

/// A policy that announces everything in 10.8.0.0/13 and 172.16.0.0/12.
pub(super) fn open_policy() -> Policy {
    let mut policy = Policy::default();
    policy.export.pools = ["10.8.0.0/13", "172.16.0.0/12"].map(|text| net(text).into()).to_vec();
    policy
}

/// The host's link to the other nodes, and a default route.
pub(super) fn host_routes() -> Vec<HostRoute> {
    let eth0 = interface(2, "eth0");
    vec![
        HostRoute {
            destination: net("10.0.0.0/24"),
            kind: HostRouteKind::Direct { interface: eth0.clone() },
        },
        HostRoute {
            destination: net("0.0.0.0/0"),
            kind: HostRouteKind::Learned {
                metric: None,
                gateway: Some(address("10.0.0.254")),
                interface: Some(eth0),
            },
        },
    ]
}

pub(super) fn attributes(as_path: &[u32], local_pref: Option<u32>) -> Attributes {
    let as_path =
        if as_path.is_empty() { AsPath::default() } else { AsPath::sequence(as_path.iter().copied()) };
    Attributes { as_path, local_pref, ..Attributes::default() }
}

pub(super) fn announce(prefixes: &[&str], next_hop: &str, attributes: Attributes) -> Update {
    let nlri = prefixes.iter().map(|text| Nlri::new(net(text))).collect();
    let reach = Reach { family: Family::Ipv4, next_hop: address(next_hop).into(), nlri };
    Update { reach: [reach].into_iter().collect(), attributes, ..Update::default() }
}

pub(super) fn withdraw(prefixes: &[&str]) -> Update {
    Update { withdrawn: prefixes.iter().map(|text| Nlri::new(net(text))).collect(), ..Update::default() }
}

/// The state of the kernel and the peers according to the emitted changes. Panics on repetitions.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    pub(super) kernel: BTreeMap<IpNet, KernelRoute>,
    pub(super) exports: BTreeMap<(PeerId, IpNet), Announcement>,
    pub(super) told: usize,
}

impl Sink for Mirror {
    fn kernel(&mut self, prefix: IpNet, route: Option<&KernelRoute>) {
        self.told += 1;
        let before = match route {
            Some(route) => self.kernel.insert(prefix, route.clone()),
            None => self.kernel.remove(&prefix),
        };
        assert_ne!(before.as_ref(), route, "the kernel has it already: {prefix}");
    }

    fn export(&mut self, peer: PeerId, prefix: IpNet, announcement: Option<&Arc<Announcement>>) {
        self.told += 1;
        let before = match announcement {
            Some(announcement) => self.exports.insert((peer, prefix), (**announcement).clone()),
            None => self.exports.remove(&(peer, prefix)),
        };
        let announcement = announcement.map(|announcement| &**announcement);
        assert_ne!(before.as_ref(), announcement, "peer {peer:?} has it already: {prefix}");
    }
}

impl Mirror {
    /// Forgets everything sent to a peer whose session is down.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.exports.retain(|(one, _), _| *one != peer);
    }

    /// The kernel's table as `ip route` prints it.
    pub(super) fn kernel_lines(&self) -> Vec<String> {
        self.kernel.iter().map(|(prefix, route)| kernel_line(*prefix, route)).collect()
    }

    /// The routes of a peer: prefix, next hop, path.
    pub(super) fn peer_lines(&self, peer: PeerId) -> Vec<String> {
        let of_peer = self.exports.iter().filter(|((one, _), _)| *one == peer);
        let line = |(key, announcement): (&(PeerId, IpNet), &Announcement)| {
            let path = announcement.attributes.as_path.to_string();
            let line = format!("{} via {} [{path}]", key.1, announcement.next_hop);
            match announcement.attributes.local_pref {
                Some(local_pref) => format!("{line} {local_pref}"),
                None => line,
            }
        };
        of_peer.map(line).collect()
    }
}

pub(super) fn kernel_line(prefix: IpNet, route: &KernelRoute) -> String {
    let metric = route.metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    match &route.target {
        KernelTarget::Blackhole => format!("blackhole {prefix}{metric}"),
        KernelTarget::Via(hops) => {
            let hops: Vec<String> = hops
                .iter()
                .map(|hop| match &hop.link {
                    Link::Interface(interface) => format!("via {} dev {}", hop.gateway, interface.name),
                    Link::IpIpTunnel => format!("via {} dev tunl0 onlink", hop.gateway),
                })
                .collect();
            format!("{prefix} {}{metric}", hops.join(" + "))
        }
    }
}

/// Tables with the usual host routes and policy.
pub(super) fn rib() -> (Rib, Mirror) {
    let identity = crate::Identity { router_id: id(OWN), clusters: vec![id("1.1.1.1"), id("2.2.2.2")] };
    let mut rib = Rib::new(identity);
    let mut mirror = Mirror::default();
    rib.set_policy(Family::Ipv4, open_policy(), crate::Moment(0), &mut mirror);
    rib.set_host_routes(host_routes(), crate::Moment(0), &mut mirror);
    (rib, mirror)
}

/// Adds a peer that receives routes.
pub(super) fn join(rib: &mut Rib, mirror: &mut Mirror, number: u32, peer: Peer) -> PeerId {
    let id = PeerId(number);
    let _ = rib.set_peer(id, peer, mirror);
    rib.listen(id, Family::Ipv4, mirror);
    id
}
