//! The lab's network: a router with one bridge per subnet, and nodes on the bridges.
//!
//! ```text
//!   node1 eth0      node2 eth0          node3 eth0
//!        │               │                   │
//!   ─────┴── subnet0 ────┴─────      ─ subnet1 ─
//!               10.65.0.254   router   10.65.1.254
//! ```
//!
//! With BGP, each subnet is a rack with a router of its own, and a backbone connects them:
//!
//! ```text
//!   node1    node2               node3
//!     └─ subnet0 ─┘            ─ subnet1 ─
//!   tor1 10.65.0.254         tor2 10.65.1.254
//!        192.0.2.1                192.0.2.2
//!     ───────┴──── backbone ────────┴────
//!                192.0.2.254   router (servers)
//! ```
//!
//! Everything is in namespaces of the lab; addresses of different labs may be the same. Other namespaces are never
//! inspected or entered.

use crate::topology::{Dataplane, Encap, Node, ROUTER, Topology, rack_router};
use anyhow::{Context as _, Result, anyhow, bail};
use ipnet::IpNet;
use netlink::namespace::Namespace;
use netlink::{
    Address, DeviceKind, Family, Handle, Kernel as _, LinkChange, LinkRef, NewLink, Operation, Peer, Route,
    RouteFilter, RouteKind, Scope, Vxlan, first_failure, sysctl,
};
use rustix::thread::UnshareFlags;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;

/// The bridge between the routers of racks.
const BACKBONE: &str = "backbone";
/// The protocol number of routes of BIRD, and of this program's own speaker.
const BIRD: u8 = 12;

/// Runs `work` with the kernel of a namespace.
fn with_kernel<T: Send>(
    namespace: &Namespace,
    work: impl FnOnce(&mut Handle) -> Result<T> + Send,
) -> Result<T> {
    namespace.run(|| work(&mut Handle::open()?))?
}

/// Checks in a scratch namespace that the kernel supports what the plan needs.
///
/// # Errors
/// A sentence about what the kernel lacks.
pub(crate) fn check_kernel(topology: &Topology, scratch: &Path) -> Result<()> {
    let scratch = Namespace::open(scratch)?;
    let mut wanted = vec![
        (DeviceKind::Bridge, "bridges (CONFIG_BRIDGE)"),
        (
            DeviceKind::Veth(Peer { name: "b".to_owned(), namespace: None, mac: None }),
            "pairs of virtual devices (CONFIG_VETH)",
        ),
    ];
    match topology.encap {
        Encap::None => {}
        Encap::Vxlan | Encap::CrossSubnet => wanted.push((
            DeviceKind::Vxlan(Vxlan { vni: 1, port: 4789, ..Vxlan::default() }),
            "VXLAN devices (CONFIG_VXLAN): choose --encap none",
        )),
        Encap::Ipip => wanted.push((
            DeviceKind::Plain("ipip".to_owned()),
            "IP in IP tunnels (CONFIG_NET_IPIP): choose --encap vxlan",
        )),
    }
    with_kernel(&scratch, |kernel| {
        for (index, (kind, what)) in wanted.into_iter().enumerate() {
            let name = format!("try{index}");
            let is_ipip = kind.name() == "ipip";
            let made = first_failure(kernel.apply(&[Operation::AddLink(NewLink::new(&name, kind))]));
            // The request loads the module, which creates a tunnel device; a namespace cannot have a second one.
            if is_ipip && made.is_err() && kernel.link(&LinkRef::from("tunl0"))?.is_some() {
                continue;
            }
            match made {
                Err(error) if error.is_unsupported() => bail!("this kernel has no {what}"),
                Err(error) => return Err(error.into()),
                Ok(()) => first_failure(kernel.apply(&[Operation::DeleteLink(name.as_str().into())]))?,
            }
        }
        Ok(())
    })?;
    if topology.families.has_v6() && !Path::new("/proc/sys/net/ipv6").exists() {
        bail!("this kernel has no IPv6: leave out --ipv6 and --dual-stack");
    }
    // A device that does not exist, so that the machine's own are left alone.
    if topology.dataplane == Dataplane::Ebpf && !bpf::probe::features(u32::MAX).classifiers {
        bail!(
            "this kernel does not let this user load eBPF programs: run as root, or choose --dataplane nftables"
        );
    }
    Ok(())
}

/// Whether the kernel can create an IP in IP tunnel, tried in a network namespace that this thread creates for it and
/// ends with. False if this process may not try.
pub(crate) fn makes_ipip() -> bool {
    let kind = DeviceKind::Plain("ipip".to_owned());
    let tried = || -> Result<bool> {
        crate::rights::unshare(UnshareFlags::NEWNET)?;
        let mut kernel = Handle::open()?;
        let made = first_failure(kernel.apply(&[Operation::AddLink(NewLink::new("try", kind))]));
        Ok(made.is_ok() || kernel.link(&LinkRef::from("tunl0"))?.is_some())
    };
    tried().unwrap_or(false)
}

/// Creates the router: bridges with its addresses, and forwarding.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn make_router(topology: &Topology, router: &Path) -> Result<()> {
    let namespace = Namespace::open(router)?;
    with_kernel(&namespace, |kernel| {
        forward(topology, kernel)?;
        if topology.bgp.is_spoken() {
            let index = add_bridge(kernel, BACKBONE, &topology.backbone_addresses(ROUTER))?;
            // Routes to nodes, not to pods: those come from BGP.
            return topology.racks().try_for_each(|rack| route_to_rack(kernel, topology, rack, index));
        }
        for subnet in 0..topology.subnets {
            add_bridge(kernel, &bridge_name(subnet), &topology.router_addresses(subnet))?;
        }
        Ok(())
    })
    .context("creating the lab's router")
}

/// Makes the namespace of this thread a router.
fn forward(topology: &Topology, kernel: &mut Handle) -> Result<()> {
    loopback_up(kernel)?;
    allow_ipv6(topology)?;
    sysctl::write("net/ipv4/ip_forward", "1")?;
    // Nodes are meant to send through the router.
    sysctl::write("net/ipv4/conf/all/send_redirects", "0")?;
    sysctl::write("net/ipv4/conf/default/send_redirects", "0")?;
    if topology.families.has_v6() {
        sysctl::write("net/ipv6/conf/all/forwarding", "1")?;
    }
    Ok(())
}

/// Creates the router of a rack: the bridge of its nodes, an end of the backbone, forwarding.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn make_rack_router(topology: &Topology, rack: usize, netns: &Path, router: &Path) -> Result<()> {
    let (own, router) = (Namespace::open(netns)?, Namespace::open(router)?);
    let far_end = format!("to-{}", rack_router(rack));
    let peer = Peer { name: far_end.clone(), namespace: Some(Arc::new(router.duplicate()?)), mac: None };
    with_kernel(&own, |kernel| {
        forward(topology, kernel)?;
        add_bridge(kernel, &bridge_name(rack), &topology.router_addresses(rack))?;
        let pair = NewLink { up: true, mtu: topology.mtu, ..NewLink::new("eth0", DeviceKind::Veth(peer)) };
        Ok(first_failure(kernel.apply(&[Operation::AddLink(pair)]))?)
    })?;
    with_kernel(&router, |kernel| {
        let (index, bridge) = (index_of(kernel, &far_end)?, index_of(kernel, BACKBONE)?);
        let join =
            LinkChange { master: Some(bridge), up: Some(true), mtu: topology.mtu, ..LinkChange::default() };
        Ok(first_failure(kernel.apply(&[Operation::ChangeLink(index.into(), join)]))?)
    })?;
    with_kernel(&own, |kernel| {
        let index = index_of(kernel, "eth0")?;
        add_addresses(kernel, index, &topology.backbone_addresses(rack + 1))?;
        for other in topology.racks().filter(|other| *other != rack) {
            route_to_rack(kernel, topology, other, index)?;
        }
        for gateway in topology.backbone_addresses(ROUTER) {
            let route = Route::via(everything(gateway.addr()), gateway.addr(), index);
            first_failure(kernel.apply(&[Operation::AddRoute(route)]))?;
        }
        Ok(())
    })
    .with_context(|| format!("making {}", rack_router(rack)))
}

/// Adds a route to the nodes of a rack, over the backbone.
fn route_to_rack(kernel: &mut Handle, topology: &Topology, rack: usize, device: u32) -> Result<()> {
    for (net, gateway) in topology.router_addresses(rack).iter().zip(topology.backbone_addresses(rack + 1)) {
        let route = Route::via(net.trunc(), gateway.addr(), device);
        first_failure(kernel.apply(&[Operation::AddRoute(route)]))?;
    }
    Ok(())
}

fn add_bridge(kernel: &mut Handle, name: &str, addresses: &[IpNet]) -> Result<u32> {
    let bridge = NewLink { up: true, ..NewLink::new(name, DeviceKind::Bridge) };
    first_failure(kernel.apply(&[Operation::AddLink(bridge)]))?;
    let index = index_of(kernel, name)?;
    add_addresses(kernel, index, addresses)?;
    Ok(index)
}

/// The routes that a node learnt by BGP: those with the protocol number of BIRD and a neighbour as gateway.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn learnt_routes(netns: &Path) -> Result<Vec<(IpNet, String)>> {
    with_kernel(&Namespace::open(netns)?, |kernel| {
        let mut learnt = Vec::new();
        for family in [Family::V4, Family::V6] {
            let filter = RouteFilter { protocol: Some(BIRD), ..RouteFilter::all(family) };
            for route in kernel.routes(&filter)? {
                let names: Vec<String> = route.gateway.iter().map(ToString::to_string).collect();
                if route.kind == RouteKind::Unicast {
                    learnt.push((route.destination, names.join(" ")));
                }
            }
        }
        learnt.sort();
        Ok(learnt)
    })
}

/// Connects a node to its subnet's bridge.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn connect_node(
    topology: &Topology,
    number: usize,
    node: &Node,
    netns: &Path,
    router: &Path,
) -> Result<()> {
    let (own, router) = (Namespace::open(netns)?, Namespace::open(router)?);
    let far_end = format!("to-node{}", number + 1);
    let peer = Peer { name: far_end.clone(), namespace: Some(Arc::new(router.duplicate()?)), mac: None };
    with_kernel(&own, |kernel| {
        loopback_up(kernel)?;
        allow_ipv6(topology)?;
        let pair = NewLink { up: true, mtu: topology.mtu, ..NewLink::new("eth0", DeviceKind::Veth(peer)) };
        Ok(first_failure(kernel.apply(&[Operation::AddLink(pair)]))?)
    })?;
    with_kernel(&router, |kernel| {
        let (index, bridge) = (index_of(kernel, &far_end)?, index_of(kernel, &bridge_name(node.subnet))?);
        let join =
            LinkChange { master: Some(bridge), up: Some(true), mtu: topology.mtu, ..LinkChange::default() };
        Ok(first_failure(kernel.apply(&[Operation::ChangeLink(index.into(), join)]))?)
    })?;
    with_kernel(&own, |kernel| {
        let index = index_of(kernel, "eth0")?;
        let addresses: Vec<IpNet> = [node.v4, node.v6].into_iter().flatten().collect();
        add_addresses(kernel, index, &addresses)?;
        for gateway in topology.router_addresses(node.subnet) {
            if gateway.addr().is_ipv4() && node.v4.is_some_and(|own| own.prefix_len() == 32) {
                // With a /32 address, a node has no neighbours on its device, not even the router.
                let beside =
                    Route { device: Some(index), scope: Scope::Link, ..Route::new(gateway.addr().into()) };
                first_failure(kernel.apply(&[Operation::AddRoute(beside)]))?;
            }
            let route = Route::via(everything(gateway.addr()), gateway.addr(), index);
            first_failure(kernel.apply(&[Operation::AddRoute(route)]))?;
        }
        Ok(())
    })
    .with_context(|| format!("connecting {}", node.name))
}

/// Sets a pod's loopback device up, as a container runtime does.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn prepare_pod(netns: &Path) -> Result<()> {
    with_kernel(&Namespace::open(netns)?, loopback_up)
}

/// Adds routes to pods to the router, as BGP would on the routers of a network without encapsulation.
///
/// # Errors
/// When the kernel reports an error.
pub(crate) fn route_pod(router: &Path, node: &Node, pod: &[IpAddr], is_there: bool) -> Result<()> {
    let routes: Vec<Route> = pod
        .iter()
        .filter_map(|address| {
            let gateway = if address.is_ipv4() { node.v4 } else { node.v6 }?;
            let route = Route { gateway: Some(gateway.addr()), ..Route::new(IpNet::from(*address)) };
            Some(route)
        })
        .collect();
    with_kernel(&Namespace::open(router)?, |kernel| {
        for route in routes {
            if is_there {
                first_failure(kernel.apply(&[Operation::ReplaceRoute(route)]))?;
            } else {
                match first_failure(kernel.apply(&[Operation::DeleteRoute(route)])) {
                    Err(error) if !error.is_missing() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    })
}

fn bridge_name(subnet: usize) -> String {
    format!("subnet{subnet}")
}

fn everything(like: IpAddr) -> IpNet {
    match Family::of(&like) {
        Family::V4 => IpNet::new_assert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        Family::V6 => IpNet::new_assert(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    }
}

/// New namespaces start with the machine's settings, and a machine may have IPv6 disabled.
fn allow_ipv6(topology: &Topology) -> Result<()> {
    if topology.families.has_v6() {
        for scope in ["all", "default"] {
            sysctl::ensure(&format!("net/ipv6/conf/{scope}/disable_ipv6"), "0")?;
        }
    }
    Ok(())
}

fn loopback_up(kernel: &mut Handle) -> Result<()> {
    let index = index_of(kernel, "lo")?;
    Ok(first_failure(kernel.apply(&[Operation::up(index)]))?)
}

fn index_of(kernel: &mut Handle, name: &str) -> Result<u32> {
    let link = kernel.link(&LinkRef::from(name))?;
    Ok(link.ok_or_else(|| anyhow!("device {name} not found"))?.index)
}

fn add_addresses(kernel: &mut Handle, index: u32, addresses: &[IpNet]) -> Result<()> {
    for address in addresses {
        // The lab knows that the address is unique; detection would take seconds.
        let address = Address { skip_duplicate_detection: true, ..Address::new(index, *address) };
        first_failure(kernel.apply(&[Operation::AddAddress(address)]))?;
    }
    Ok(())
}
