//! The wiring of a site: the router with its networks, hosts, and pods wired as by the CNI plugin.

use super::{Address, Site};
use crate::packets::plan::{NodePlan, Plan, PodPlan};
use anyhow::{Context as _, Result};
use std::net::IpAddr;

impl Site {
    pub(super) fn wire_router(&mut self, plan: &Plan) -> Result<()> {
        self.add_place("wan")?;
        let wan = self.namespace("wan");
        wan.set("net/ipv4/ip_forward", "1")?;
        wan.set("net/ipv6/conf/all/forwarding", "1")?;
        let mut lines = String::new();
        for lan in &plan.lans {
            lines += &format!(
                "link add {0} address {1} type bridge\naddr add {2} dev {0}\naddr add {3} dev {0} nodad\nlink set {0} up\n",
                lan.name,
                mac(&lan.name),
                lan.gateway_v4,
                lan.gateway_v6
            );
        }
        for (name, v4, v6) in &plan.outside {
            lines += &format!("addr add {v4}/32 dev lo\naddr add {v6}/128 dev lo nodad\n");
            self.addresses.insert(name.clone(), Address { v4: v4.parse()?, v6: v6.parse()? });
        }
        self.namespace("wan").batch(&lines)?;
        let addresses: Vec<IpAddr> =
            self.addresses.values().flat_map(|address| [address.v4, address.v6]).collect();
        self.open_station("wan", &addresses)
    }

    pub(super) fn wire_node(&mut self, node: &NodePlan) -> Result<()> {
        self.add_place(&node.name)?;
        let lan =
            self.plan.lans.iter().find(|lan| lan.name == node.lan).context("the node's network")?.clone();
        let wan = self.full_name("wan");
        let namespace = self.namespace(&node.name);
        namespace.batch(&format!(
            "link add eth0 address {mac} type veth peer name {name} netns {wan}
addr add {v4} dev eth0
addr add {v6} dev eth0 nodad
link set eth0 up",
            mac = mac(&node.name),
            name = node.name,
            v4 = node.v4,
            v6 = node.v6,
        ))?;
        self.namespace("wan")
            .batch(&format!("link set {0} master {1}\nlink set {0} up", node.name, lan.name))?;
        let gateway = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
        let (gateway_v4, gateway_v6) = (gateway(&lan.gateway_v4), gateway(&lan.gateway_v6));
        let address = Address { v4: gateway(&node.v4).parse()?, v6: gateway(&node.v6).parse()? };
        // Policy on hosts also applies to IPv6 neighbour discovery, which is not tested here.
        namespace.batch(&format!(
            "route add default via {gateway_v4}\nroute add default via {gateway_v6}
neigh replace {gateway_v6} lladdr {} dev eth0 nud permanent",
            mac(&lan.name)
        ))?;
        self.namespace("wan").batch(&format!(
            "neigh replace {} lladdr {} dev {} nud permanent",
            address.v6,
            mac(&node.name),
            lan.name
        ))?;
        for other in self.plan.nodes.iter().filter(|other| other.lan == node.lan && other.name != node.name) {
            let line = format!(
                "neigh replace {} lladdr {} dev eth0 nud permanent",
                gateway(&other.v6),
                mac(&other.name)
            );
            namespace.batch(&line)?;
        }
        self.addresses.insert(node.name.clone(), address);
        self.open_station(&node.name, &[address.v4, address.v6])
    }

    /// Wires a pod as the CNI plugin does.
    pub(crate) fn wire_pod(&mut self, pod: &PodPlan) -> Result<()> {
        if !self.places.contains_key(&pod.name) {
            self.add_place(&pod.name)?;
        }
        let (node, inside) = (self.namespace(&pod.node), self.full_name(&pod.name));
        node.batch(&format!(
            "link add {name} address ee:ee:ee:ee:ee:ee type veth peer name eth0 address {mac} netns {inside}
link set {name} up",
            name = pod.interface,
            mac = pod_mac(pod),
        ))?;
        node.set(&format!("net/ipv4/neigh/{}/proxy_delay", pod.interface), "0")?;
        self.namespace(&pod.name).batch(&format!(
            "addr add {v4}/32 dev eth0
addr add {v6}/128 dev eth0 nodad
link set eth0 up
route add 169.254.1.1 dev eth0 scope link
route add default via 169.254.1.1
route add default via fe80::ecee:eeff:feee:eeee dev eth0",
            v4 = pod.v4,
            v6 = pod.v6,
        ))?;
        if self.plan.static_neighbours {
            let outside = "ee:ee:ee:ee:ee:ee";
            self.namespace(&pod.name).batch(&format!(
                "neigh replace fe80::ecee:eeff:feee:eeee lladdr {outside} dev eth0 nud permanent"
            ))?;
            self.namespace(&pod.node).batch(&format!(
                "neigh replace {} lladdr {} dev {} nud permanent",
                pod.v6,
                pod_mac(pod),
                pod.interface
            ))?;
        }
        // The route from the world to the pod, which a routing protocol would provide.
        let node = self.plan.nodes.iter().find(|node| node.name == pod.node).context("the pod's node")?;
        let bare = |text: &str| text.split('/').next().unwrap_or_default().to_owned();
        let routes = |v4: &str, v6: &str| {
            format!(
                "route replace {}/32 via {}\nroute replace {}/128 via {}",
                pod.v4,
                bare(v4),
                pod.v6,
                bare(v6)
            )
        };
        self.namespace("wan").batch(&routes(&node.v4, &node.v6))?;
        if !self.plan.vxlan {
            for other in self.plan.nodes.iter().filter(|other| other.name != node.name) {
                self.namespace(&other.name).batch(&routes(&node.v4, &node.v6))?;
            }
        }
        let address = Address { v4: pod.v4.parse()?, v6: pod.v6.parse()? };
        self.addresses.insert(pod.name.clone(), address);
        self.open_station(&pod.name, &[])
    }

    /// Removes a pod's wire, as the end of its namespace would.
    pub(crate) fn unwire_pod(&mut self, name: &str) {
        self.places.remove(name);
        self.addresses.remove(name);
    }
}

/// A hardware address from a name that ends with a digit.
fn mac(name: &str) -> String {
    let kind = if name.starts_with("lan") { 1 } else { 2 };
    format!("02:00:00:00:0{kind}:0{}", name.chars().last().unwrap_or('0'))
}

/// The hardware address of a pod's end of its wire.
fn pod_mac(pod: &PodPlan) -> String {
    let number: u8 = pod.v4.rsplit('.').next().and_then(|last| last.parse().ok()).unwrap_or(0);
    format!("02:00:00:00:03:{number:02x}")
}
