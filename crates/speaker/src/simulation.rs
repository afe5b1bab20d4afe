//! Speakers in one process, over a network that is a list of connections: real messages, and time as an input. For
//! tests and benchmarks.

pub(crate) mod adversary;

use crate::engine::{Endpoint, Ends, Engine, LogLine, Output};
use crate::session::{Direction, Moment};
use bgp::Intent;
use bgp::intent::{
    Export, FamilyIntent, Kernel, Listen, LogLevel, NextHop, Origin, OwnBlock, Remote, Session, SessionKind,
    SessionName,
};
use bgp::{AsNumber, IpVersion, NodeName, Prefix, Priority};
use ipnet::IpNet;
use rib::{HostRoute, HostRouteKind, Interface, KernelRoute, PeerId};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// One end of a connection.
type Place = (usize, PeerId, Direction);

/// A speaker and the routes that it has put into its kernel.
pub struct Node {
    /// The speaker.
    pub engine: Engine,
    /// Its address.
    pub address: IpAddr,
    /// The routes in its kernel.
    pub kernel: BTreeMap<IpNet, KernelRoute>,
    /// Its log.
    pub log: Vec<LogLine>,
    /// How often routes from before a restart were swept.
    pub sweeps: usize,
}

/// Speakers and their connections.
#[derive(Default)]
pub struct Simulation {
    /// The speakers.
    pub nodes: Vec<Node>,
    /// The time.
    pub now: Moment,
    links: HashMap<Place, Place>,
    /// Nodes that are currently unreachable.
    pub cut: Vec<usize>,
}

impl Simulation {
    /// Adds a speaker with an address.
    pub fn add(&mut self, address: IpAddr, restarting: bool) -> usize {
        let index = self.nodes.len();
        let mut engine = Engine::new(index as u64 + 1, restarting, self.now);
        engine.set_host_routes([host_network(address)], self.now);
        self.nodes.push(Node { engine, address, kernel: BTreeMap::new(), log: Vec::new(), sweeps: 0 });
        index
    }

    /// Replaces a speaker by a new one, as after a crash: its connections break.
    pub fn restart(&mut self, node: usize, restarting: bool) {
        let address = self.nodes[node].address;
        self.break_links(node);
        let mut engine = Engine::new(node as u64 + 77, restarting, self.now);
        engine.set_host_routes([host_network(address)], self.now);
        self.nodes[node].engine = engine;
    }

    /// Breaks all connections of a node. If the node is replaced next, its own side does not notice.
    pub fn break_links(&mut self, node: usize) {
        let mine: Vec<(Place, Place)> =
            self.links.iter().filter(|(from, _)| from.0 == node).map(|(from, to)| (*from, *to)).collect();
        for (from, to) in mine {
            self.links.remove(&from);
            self.links.remove(&to);
            self.nodes[to.0].engine.closed(to.1, to.2, None, self.now);
            self.nodes[from.0].engine.closed(from.1, from.2, None, self.now);
        }
    }

    /// Transports bytes until none are left.
    pub fn settle(&mut self) {
        loop {
            let mut moved = false;
            for index in 0..self.nodes.len() {
                moved |= self.outputs(index);
                moved |= self.carry(index);
            }
            if !moved {
                return;
            }
        }
    }

    /// Lets time pass, from deadline to deadline.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        while let Some(next) =
            self.nodes.iter().filter_map(|node| node.engine.deadline()).min().filter(|next| *next <= end)
        {
            self.now = self.now.max(next);
            for node in &mut self.nodes {
                node.engine.tick(self.now);
            }
            self.settle();
        }
        self.now = end;
    }

    fn outputs(&mut self, index: usize) -> bool {
        let mut queue: VecDeque<Output> = self.nodes[index].engine.take_outputs().into();
        let moved = !queue.is_empty();
        while let Some(output) = queue.pop_front() {
            match output {
                Output::Connect(id) => self.connect(index, id),
                Output::Close(id, direction, last) => {
                    if let Some((other, peer, way)) = self.links.remove(&(index, id, direction)) {
                        self.links.remove(&(other, peer, way));
                        self.nodes[other].engine.received(peer, way, &last, self.now);
                        self.nodes[other].engine.closed(peer, way, None, self.now);
                    }
                }
                Output::Listen | Output::Watch => {}
                Output::SweepKernel => {
                    let node = &mut self.nodes[index];
                    node.sweeps += 1;
                    node.kernel.clear();
                    let kernel = &mut node.kernel;
                    node.engine.rib().kernel_routes(|prefix, route| {
                        kernel.insert(prefix, route.clone());
                    });
                    node.engine.take_kernel();
                }
                Output::Log(line) => self.nodes[index].log.push(line),
            }
        }
        let node = &mut self.nodes[index];
        for (prefix, route) in node.engine.take_kernel() {
            match route {
                Some(route) => node.kernel.insert(prefix, route),
                None => node.kernel.remove(&prefix),
            };
        }
        moved
    }

    fn connect(&mut self, index: usize, id: PeerId) {
        let here = self.nodes[index].address;
        let remote =
            self.nodes[index].engine.endpoint(id).and_then(|endpoint: &Endpoint| endpoint.remote.ip());
        let other = self.nodes.iter().position(|node| Some(node.address) == remote);
        let cut = self.cut.contains(&index) || other.is_some_and(|other| self.cut.contains(&other));
        let Some(other) = other.filter(|_| !cut) else {
            self.nodes[index].engine.connect_failed(id, "No route to host".to_owned(), self.now);
            return;
        };
        let ends = |local, remote| Ends { local, link_local: None, remote, link: None };
        let there = self.nodes[other].address;
        let accepted = self.nodes[other].engine.accept(ends(there, here), self.now);
        // A connection that the accepted one replaces must be closed first.
        self.outputs(other);
        self.nodes[index].engine.connected(id, ends(here, there), self.now);
        match accepted {
            Ok(peer) => {
                let (one, two) = ((index, id, Direction::Outgoing), (other, peer, Direction::Incoming));
                self.links.insert(one, two);
                self.links.insert(two, one);
            }
            Err(last) => {
                self.nodes[index].engine.received(id, Direction::Outgoing, &last, self.now);
                self.nodes[index].engine.closed(id, Direction::Outgoing, None, self.now);
            }
        }
    }

    fn carry(&mut self, index: usize) -> bool {
        let mut moved = false;
        for id in self.nodes[index].engine.take_ready() {
            for direction in [Direction::Outgoing, Direction::Incoming] {
                loop {
                    let bytes = self.nodes[index].engine.output(id, direction).to_vec();
                    if bytes.is_empty() {
                        break;
                    }
                    moved = true;
                    self.nodes[index].engine.sent(id, direction, bytes.len());
                    if let Some((other, peer, way)) = self.links.get(&(index, id, direction)).copied() {
                        self.nodes[other].engine.received(peer, way, &bytes, self.now);
                    }
                }
            }
        }
        moved
    }
}

fn host_network(address: IpAddr) -> HostRoute {
    let length = if address.is_ipv4() { 8 } else { 16 };
    let destination = IpNet::new(address, length).map_or_else(|_| address.into(), |net| net.trunc());
    let interface = Interface { index: 2, name: "eth0".into() };
    HostRoute { destination, kind: HostRouteKind::Direct { interface } }
}

/// The address of a node of the simulation.
#[must_use]
pub fn address(node: usize) -> IpAddr {
    let node = u32::try_from(node).unwrap_or_default();
    Ipv4Addr::from(0x0a00_0001 + node).into()
}

/// A session of the mesh.
#[must_use]
pub fn session(own: IpAddr, remote: IpAddr) -> Session {
    let remote_end = Remote::address(remote);
    Session {
        name: SessionName::of(SessionKind::Mesh, &remote_end, None),
        version: IpVersion::V4,
        kind: SessionKind::Mesh,
        origin: Origin::Mesh(NodeName::from(remote.to_string())),
        remote: remote_end,
        port: None,
        peer_as: AsNumber(64512),
        local_as: AsNumber(64512),
        local_as_is_own: false,
        source: Some(own),
        passive: false,
        password: None,
        ttl_security: None,
        restart_time: None,
        keepalive_time: None,
        bfd: None,
        reflector_client: None,
        next_hop: NextHop::Auto,
        allowed_local_as: 0,
        import: Vec::new(),
        export: Vec::new(),
    }
}

/// An intent with these sessions that announces these blocks.
#[must_use]
pub fn intent(own: IpAddr, sessions: impl IntoIterator<Item = Session>, blocks: &[IpNet]) -> Intent {
    let family = |version: IpVersion| {
        let blocks = blocks.iter().filter(|block| IpVersion::of(block) == version);
        let blocks = blocks
            .map(|block| OwnBlock { prefix: Prefix::new(*block), state: bgp::intent::BlockState::Confirmed });
        let pool = |text: &str| text.parse().map(Prefix::new).ok();
        let pools = match version {
            IpVersion::V4 => pool("172.16.0.0/12"),
            IpVersion::V6 => pool("fd00:10::/32"),
        };
        FamilyIntent {
            version,
            address: (IpVersion::of(&own.into()) == version).then_some(own),
            listen: Listen::default(),
            normal_priority: Priority::NORMAL,
            sessions: BTreeMap::new(),
            export: Export {
                blocks: blocks.collect(),
                pools: pools.into_iter().collect(),
                ..Export::default()
            },
            kernel: Kernel::default(),
        }
    };
    let router_id = match own {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::new(192, 0, 2, 1),
    };
    let mut intent = Intent {
        node: NodeName::from(own.to_string()),
        router_id,
        local_as: AsNumber(64512),
        cluster_id: None,
        log_level: LogLevel::Info,
        ignored_interfaces: Vec::new(),
        filters: BTreeMap::new(),
        v4: family(IpVersion::V4),
        v6: family(IpVersion::V6),
        problems: Vec::new(),
    };
    for session in sessions {
        let part = match session.version {
            IpVersion::V4 => &mut intent.v4,
            IpVersion::V6 => &mut intent.v6,
        };
        part.sessions.insert(session.name.clone(), session);
    }
    intent
}

/// The block of a node.
#[must_use]
pub fn block(node: usize) -> IpNet {
    let node = u32::try_from(node).unwrap_or_default();
    let address = Ipv4Addr::from(0xac10_0000 + (node << 6));
    IpNet::new(address.into(), 26).unwrap_or_default()
}

/// A full mesh of nodes, each with a block. Not yet run.
#[must_use]
pub fn mesh(count: usize) -> Simulation {
    let mut simulation = Simulation::default();
    for node in 0..count {
        simulation.add(address(node), false);
    }
    for node in 0..count {
        let own = address(node);
        let sessions = (0..count).filter(|other| *other != node).map(|other| session(own, address(other)));
        let intent = intent(own, sessions, &[block(node)]);
        simulation.nodes[node].engine.apply(intent, simulation.now);
    }
    simulation
}
