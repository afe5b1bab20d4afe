//! Two pods on two hosts with a Felix each, and two on hosts that only route.
//!
//! The first host is the namespace that the measurement runs in. The second reaches etcd only through a relay, so that
//! only the pods' packets use the link. Routes between the hosts are created here: with a pool without tunnels they are
//! the task of BGP.

use crate::cluster::{Cluster, HOST};
use crate::daemon::Felix;
use crate::host::{self, Filter, shell};
use crate::packets::{pod, take_turns};
use crate::traffic::{Pods, Speed, on};
use anyhow::{Context as _, Result, ensure};
use api::{Kind, Resource};
use netlink::namespace::Namespace;
use serde_json::json;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The name of the second host, both for Calico and as a namespace.
const SECOND: &str = "node2";
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 200, 1, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 200, 1, 2);
const INTERFACES: [&str; 2] = ["califarc", "califars"];
/// The hosts' addresses on the link between them.
const LINK: [&str; 2] = ["10.67.0.1", "10.67.0.2"];

/// Both pairs of hosts.
pub(crate) struct Ground {
    ours: Pods,
    plain: Pods,
    second: Namespace,
}

impl Ground {
    pub(crate) fn make() -> Result<Self> {
        let ours = connect("far", [None, Some(SECOND)])?;
        let plain = connect("flat", [Some("flat1"), Some("flat2")])?;
        shell(
            &format!(
                "ip -n flat1 route add {CLIENT}/32 dev {}; ip -n flat2 route add {SERVER}/32 dev {}",
                INTERFACES[0], INTERFACES[1]
            ),
            "",
        )?;
        ensure!(plain.reach()?, "plain routing between two hosts does not work");
        let second = Namespace::open(&Path::new("/run/netns").join(SECOND))?;
        Ok(Self { ours, plain, second })
    }

    /// Measures with a Felix on each host and no policy; returns ours, and plain routing.
    pub(crate) fn measure(&self, runtime: &Runtime, filter: Filter) -> Result<[Speed; 2]> {
        let cluster = runtime.block_on(async {
            let cluster = Cluster::start().await?;
            let node = json!({"metadata": {"name": SECOND}, "spec": {"bgp": {"ipv4Address": format!("{}/24", LINK[1])}}});
            cluster.client.create_any(Resource::from_value(Kind::Node, node)?).await?;
            let pods = [(HOST, "client", CLIENT), (SECOND, "server", SERVER)].into_iter().zip(INTERFACES);
            let pods =
                pods.map(|((host, name, address), interface)| pod(host, name, interface, address));
            cluster.write(pods.collect::<Result<_>>()?).await?;
            anyhow::Ok(cluster)
        })?;
        let endpoint = cluster.etcd.endpoint();
        let relayed = relay(&self.second, 0, &endpoint)?;
        let mut here = Felix::start(&endpoint, filter)?;
        here.wait_until_ready()?;
        let mut there = self.second.run(|| Felix::start_as(SECOND, &relayed, filter))??;
        self.second.run(|| there.wait_until_ready())??;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.ours.reach()? {
            ensure!(Instant::now() < deadline, "no way between the hosts:\n{}\n{}", here.log(), there.log());
        }
        let speeds = take_turns([&self.ours, &self.plain])?;
        drop((here, there));
        host::clean()?;
        shell(&format!("ip netns exec {SECOND} sh -ec 'nft flush ruleset; ipset destroy'"), "")?;
        Ok(speeds)
    }
}

/// Connects two hosts by a link and routes, with a pod beside each.
fn connect(id: &str, hosts: [Option<&str>; 2]) -> Result<Pods> {
    for host in hosts.into_iter().flatten() {
        shell(&format!("ip netns add {host}; ip -n {host} link set lo up"), "")?;
    }
    let second = hosts[1].context("the second host has a namespace of its own")?;
    shell(
        &on(hosts[0], &format!("ip link add link0 type veth peer name link0 netns /run/netns/{second}")),
        "",
    )?;
    for (host, address) in hosts.into_iter().zip(LINK) {
        let link =
            [on(host, &format!("ip addr add {address}/24 dev link0")), on(host, "ip link set link0 up")];
        shell(&link.join("\n"), "")?;
    }
    let pods = Pods::make(id, hosts, INTERFACES, [CLIENT, SERVER])?;
    let routes = [
        on(hosts[0], &format!("ip route add {SERVER}/32 via {}", LINK[1])),
        on(hosts[1], &format!("ip route add {CLIENT}/32 via {}", LINK[0])),
    ];
    shell(&routes.join("\n"), "")?;
    Ok(pods)
}

/// Makes a server of this namespace reachable in another one, at this port (0 for any); returns its address there. It
/// ends with this program.
pub(crate) fn relay(namespace: &Namespace, port: u16, endpoint: &str) -> Result<String> {
    let target = endpoint.strip_prefix("http://").context("not a plain endpoint")?.to_owned();
    let listener = namespace.run(|| TcpListener::bind(("127.0.0.1", port)))??;
    let relayed = format!("http://{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // Without the server there is nothing left to relay.
            let Ok(far) = TcpStream::connect(&target) else { return };
            let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { return };
            for (mut from, mut to) in [(near, far), (far_too, near_too)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    Ok(relayed)
}
