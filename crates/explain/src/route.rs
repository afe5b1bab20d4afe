//! Determines which endpoints a packet passes on its path, and in which order.
//!
//! ```text
//! on each node that forwards:   host endpoint in (doNotTrack, preDNAT, applyOnForward) ─► workload egress ─► workload
//!                               ingress ─► host endpoint out (applyOnForward)
//! on the node that receives:    host endpoint in (doNotTrack, preDNAT, normal)
//! on the node that sends:       host endpoint out (doNotTrack, normal)
//! ```
//!
//! A host endpoint for all interfaces (`*`) also sees packets from and to workloads that its node forwards; a host
//! endpoint for a single interface sees packets on the network, unless a tunnel carries them.

use crate::clauses::{Owned, Packet};
use crate::manifest::UNSCHEDULED;
use crate::report::{Direction, FlowReport, Hook, Outcome, Stage, Verdict};
use crate::settings::ToHost;
use crate::walk::{Staged, Walker};
use crate::world::{Item, ItemKind, World};
use api::{IPIPMode, Kind, Resource, VXLANMode};
use ipnet::IpNet;
use std::net::IpAddr;

/// One end of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who<'w> {
    /// A workload.
    Workload(&'w Item),
    /// A node itself.
    Host(&'w str),
    /// Any address outside the cluster.
    Outside,
}

impl Who<'_> {
    fn node(&self) -> &str {
        match self {
            Self::Workload(item) => &item.node,
            Self::Host(node) => node,
            Self::Outside => "",
        }
    }

    /// The name for display.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Workload(item) => item.name.clone(),
            Self::Host(node) => format!("node {node}"),
            Self::Outside => "outside the cluster".to_owned(),
        }
    }
}

/// A flow between two resolved ends.
pub(crate) struct Flow<'w> {
    pub(crate) from: Who<'w>,
    pub(crate) to: Who<'w>,
    pub(crate) packet: Packet,
}

struct Trip {
    stages: Vec<Stage>,
    denied: bool,
    /// Whether a policy before connection tracking or translation accepted the packet.
    accepted: bool,
    notes: Vec<String>,
}

impl Trip {
    fn add(&mut self, stage: Stage) {
        if !self.denied {
            self.denied = stage.outcome == Outcome::Deny;
            self.stages.push(stage);
        }
    }

    fn fixed(&mut self, place: &str, outcome: Outcome, reason: impl Into<String>) {
        self.add(Stage {
            place: place.to_owned(),
            hook: Hook::Fixed,
            outcome,
            decided_by: reason.into(),
            tiers: Vec::new(),
            profiles: Vec::new(),
            not_selecting: Vec::new(),
        });
    }
}

impl<'a> World<'a> {
    /// Explains what happens to a flow.
    pub(crate) fn report<'w>(&'w self, flow: &Flow<'w>, detail: bool) -> FlowReport
    where
        'a: 'w,
    {
        let trip = self.travel(flow, Staged::Tried, detail);
        let verdict = |trip: &Trip| if trip.denied { Verdict::Deny } else { Verdict::Allow };
        let decided = |trip: &Trip| match trip.stages.iter().rfind(|stage| stage.outcome != Outcome::Through)
        {
            Some(stage) => format!("{}: {}", stage.place, stage.decided_by),
            None => "no endpoint with policy is on the path".to_owned(),
        };
        let has_staged = self.policies.iter().any(|policy| policy.staged.is_some());
        let if_staged = has_staged.then(|| self.travel(flow, Staged::Enforced, false)).and_then(|other| {
            let word = if other.denied { "denied" } else { "allowed" };
            (other.denied != trip.denied).then(|| {
                format!("with the staged policies enforced it would be {word} at {}", decided(&other))
            })
        });
        let packet = &flow.packet;
        FlowReport {
            source: flow.from.name(),
            source_address: packet.source.to_string(),
            destination: flow.to.name(),
            destination_address: packet.destination.to_string(),
            traffic: traffic(packet),
            verdict: verdict(&trip),
            decided_by: decided(&trip),
            stages: trip.stages,
            if_staged,
            notes: trip.notes,
        }
    }

    /// Whether a flow arrives; does not collect reasons.
    pub(crate) fn allows<'w>(&'w self, flow: &Flow<'w>) -> bool
    where
        'a: 'w,
    {
        !self.travel(flow, Staged::Tried, false).denied
    }

    fn travel<'w>(&'w self, flow: &Flow<'w>, staged: Staged, detail: bool) -> Trip
    where
        'a: 'w,
    {
        let owned = Owned {
            source: self.owners(flow.packet.source),
            destination: self.owners(flow.packet.destination),
            packet: flow.packet.clone(),
        };
        let walker = Walker { world: self, owned, staged, detail };
        let mut trip = Trip { stages: Vec::new(), denied: false, accepted: false, notes: Vec::new() };
        let same_node = flow.from.node() == flow.to.node() && !matches!(flow.from.node(), "" | UNSCHEDULED);
        match (flow.from, flow.to) {
            (Who::Workload(item), Who::Host(node)) if item.node == node => {
                self.to_own_host(&walker, item, &mut trip);
                return trip;
            }
            (Who::Workload(item), Who::Workload(other)) if same_node || item.identity == other.identity => {
                self.forward(&walker, &item.node, Some(item), Some(other), false, &mut trip);
                return trip;
            }
            (Who::Host(node), Who::Workload(_)) if same_node => {
                let reason = "a node always reaches its own workloads, so that probes work";
                trip.fixed(&format!("node {node}"), Outcome::Allow, reason);
                return trip;
            }
            (Who::Host(node), Who::Host(_)) if same_node => {
                trip.fixed(
                    &format!("node {node}"),
                    Outcome::Allow,
                    "policy does not apply to packets of a node to itself",
                );
                return trip;
            }
            _ => {}
        }
        let tunnelled = self.is_tunnelled(flow);
        if tunnelled {
            trip.notes.push(
                "a tunnel carries these packets between nodes: host endpoints of single interfaces do not see them"
                    .to_owned(),
            );
        }
        match flow.from {
            Who::Workload(item) => self.forward(&walker, &item.node, Some(item), None, tunnelled, &mut trip),
            Who::Host(node) => self.send(&walker, node, tunnelled, &mut trip),
            Who::Outside => {}
        }
        trip.accepted = false;
        match flow.to {
            Who::Workload(item) => self.forward(&walker, &item.node, None, Some(item), tunnelled, &mut trip),
            Who::Host(node) => self.receive(&walker, node, &mut trip),
            Who::Outside => {}
        }
        trip
    }

    /// Packets that a node forwards: from one of its workloads or the network, to one of its workloads or the network.
    fn forward(
        &self,
        walker: &Walker<'_>,
        node: &str,
        from: Option<&Item>,
        to: Option<&Item>,
        tunnelled: bool,
        trip: &mut Trip,
    ) {
        let mut interface = |local: bool| {
            if local || tunnelled { self.every_interface(node) } else { self.uplink(node, &mut trip.notes) }
        };
        let (entry, exit) = (interface(from.is_some()), interface(to.is_some()));
        if let Some(host) = entry {
            self.early(walker, host, Direction::Ingress, trip);
            if !trip.accepted && walker.has_policy(host, Hook::Forward, Direction::Ingress) {
                trip.add(walker.stage(host, Hook::Forward, Direction::Ingress));
            }
        }
        if let Some(item) = from {
            trip.add(walker.stage(item, Hook::Workload, Direction::Egress));
        }
        if let Some(item) = to {
            trip.add(walker.stage(item, Hook::Workload, Direction::Ingress));
        }
        if let Some(host) = exit
            && walker.has_policy(host, Hook::Forward, Direction::Egress)
        {
            trip.add(walker.stage(host, Hook::Forward, Direction::Egress));
        }
    }

    /// Evaluates policy before connection tracking and before translation.
    fn early(&self, walker: &Walker<'_>, host: &Item, direction: Direction, trip: &mut Trip) {
        for hook in [Hook::Untracked, Hook::BeforeTranslation] {
            // Untracked policy does not apply to host endpoints for all interfaces.
            let possible = hook == Hook::BeforeTranslation || host.interface != "*";
            if possible && !trip.accepted && walker.has_policy(host, hook, direction) {
                let stage = walker.stage(host, hook, direction);
                trip.accepted |= stage.outcome == Outcome::Allow;
                trip.add(stage);
            }
        }
    }

    fn send(&self, walker: &Walker<'_>, node: &str, tunnelled: bool, trip: &mut Trip) {
        let host = if tunnelled { self.every_interface(node) } else { self.uplink(node, &mut trip.notes) };
        let Some(host) = host else {
            let reason = "the node has no host endpoint there, so nothing restricts its own packets";
            return trip.fixed(&format!("egress of node {node}"), Outcome::Allow, reason);
        };
        self.early(walker, host, Direction::Egress, trip);
        if !trip.accepted {
            trip.add(walker.stage(host, Hook::Host, Direction::Egress));
        }
    }

    fn receive(&self, walker: &Walker<'_>, node: &str, trip: &mut Trip) {
        let Some(host) = self.uplink(node, &mut trip.notes) else {
            let reason = "the node has no host endpoint there, so nothing restricts packets to it";
            return trip.fixed(&format!("ingress of node {node}"), Outcome::Allow, reason);
        };
        self.early(walker, host, Direction::Ingress, trip);
        if !trip.accepted {
            trip.add(walker.stage(host, Hook::Host, Direction::Ingress));
        }
    }

    fn to_own_host(&self, walker: &Walker<'_>, item: &Item, trip: &mut Trip) {
        if let Some(host) = self.every_interface(&item.node) {
            self.early(walker, host, Direction::Ingress, trip);
        }
        trip.add(walker.stage(item, Hook::Workload, Direction::Egress));
        let action = self.settings(&item.node).endpoint_to_host;
        let outcome = if action == ToHost::Drop { Outcome::Deny } else { Outcome::Allow };
        let reason = format!(
            "defaultEndpointToHostAction is {}{}",
            action.as_str(),
            match action {
                ToHost::Drop => " (FelixConfiguration; a node's environment may say otherwise)",
                ToHost::Accept => "",
                ToHost::Return => ", so the node's own firewall rules decide",
            }
        );
        trip.fixed(&format!("pod to its own node {}", item.node), outcome, reason);
    }

    fn hosts<'w>(&'w self, node: &str) -> impl Iterator<Item = &'w Item> {
        self.items.iter().filter(move |item| item.kind == ItemKind::Host && item.node == node)
    }

    /// The node's host endpoint for all interfaces.
    fn every_interface(&self, node: &str) -> Option<&Item> {
        self.hosts(node).find(|host| host.interface == "*")
    }

    /// The host endpoint that packets between the node and the network pass. A host endpoint for a single interface
    /// takes precedence.
    fn uplink(&self, node: &str, notes: &mut Vec<String>) -> Option<&Item> {
        let single: Vec<&Item> = self.hosts(node).filter(|host| host.interface != "*").collect();
        match single.as_slice() {
            [] => self.every_interface(node),
            [only] => Some(only),
            several => {
                let addresses = self.node_addresses(node);
                let by_address =
                    several.iter().find(|host| host.nets.iter().any(|net| addresses.contains(&net.addr())));
                let chosen = by_address.or(several.first()).copied();
                if let Some(chosen) = chosen {
                    let note = format!(
                        "node {node} has {} host endpoints; packets are assumed to pass {}",
                        several.len(),
                        chosen.short_name
                    );
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                chosen
            }
        }
    }

    /// The addresses of a node, including its tunnels', the most reliable first.
    pub(crate) fn node_addresses(&self, node: &str) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        if let Some(Resource::Node(object)) = self.cluster.get(Kind::Node, "", node) {
            let spec = &object.spec;
            if let Some(bgp) = &spec.bgp {
                for text in [&bgp.ipv4_address, &bgp.ipv6_address] {
                    addresses.extend(text.parse().ok().map(|net| net.address()));
                }
            }
            addresses.extend(
                spec.addresses.iter().filter_map(|entry| entry.address.parse().ok()).map(|net| net.address()),
            );
        }
        addresses.extend(self.hosts(node).flat_map(|host| host.nets.iter().map(IpNet::addr)));
        if let Some(Resource::Node(object)) = self.cluster.get(Kind::Node, "", node) {
            let spec = &object.spec;
            addresses.extend(spec.bgp.iter().filter_map(|bgp| bgp.ipv4_ipip_tunnel_addr.parse().ok()));
            for text in [&spec.ipv4_vxlan_tunnel_addr, &spec.ipv6_vxlan_tunnel_addr] {
                addresses.extend(text.parse().ok());
            }
            if let Some(wireguard) = &spec.wireguard {
                for text in [&wireguard.interface_ipv4_address, &wireguard.interface_ipv6_address] {
                    addresses.extend(text.parse().ok());
                }
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        addresses.retain(|address| seen.insert(*address));
        addresses
    }

    /// Whether the receiver's pool uses a tunnel between the two nodes.
    fn is_tunnelled(&self, flow: &Flow<'_>) -> bool {
        let (Who::Workload(_), true) = (flow.to, !flow.from.node().is_empty()) else { return false };
        let pools = self.cluster.of_kind(Kind::IPPool).filter_map(|resource| match resource {
            Resource::IPPool(pool) => Some((pool.spec.cidr.parse().ok()?.masked(), &pool.spec)),
            _ => None,
        });
        let pool = pools
            .filter(|(cidr, _)| cidr.contains(&flow.packet.destination))
            .max_by_key(|(cidr, _)| cidr.prefix_len());
        let Some((_, spec)) = pool else { return false };
        if spec.ipip_mode == IPIPMode::Always || spec.vxlan_mode == VXLANMode::Always {
            return true;
        }
        let across = spec.ipip_mode == IPIPMode::CrossSubnet || spec.vxlan_mode == VXLANMode::CrossSubnet;
        across && !self.same_subnet(flow.from.node(), flow.to.node())
    }

    fn same_subnet(&self, one: &str, other: &str) -> bool {
        let subnets = |node: &str| -> Vec<IpNet> {
            let Some(Resource::Node(object)) = self.cluster.get(Kind::Node, "", node) else {
                return Vec::new();
            };
            let bgp = object.spec.bgp.iter();
            bgp.flat_map(|bgp| [&bgp.ipv4_address, &bgp.ipv6_address])
                .filter_map(|text| text.parse().ok())
                .map(|net| net.masked())
                .collect()
        };
        let others = subnets(other);
        subnets(one).iter().any(|subnet| others.contains(subnet))
    }
}

/// Protocol and port, or ICMP type.
fn traffic(packet: &Packet) -> String {
    let name = packet.protocol_name();
    match packet.protocol {
        _ if packet.has_ports() => format!("{name} port {}", packet.destination_port),
        1 | 58 => format!("{name} type {} code {}", packet.icmp.0, packet.icmp.1),
        _ => name,
    }
}
