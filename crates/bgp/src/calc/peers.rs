//! The sessions of a node.
//!
//! Peerings are emitted in this order, and the first for an address and port wins: BGPPeers of all nodes, BGPPeers of
//! some nodes, then the reverse of every BGPPeer whose other end is this node; each by name. A BGPPeer of some nodes
//! yields to one of all nodes. The mesh is separate, with its own sessions.

use crate::extras::Extras;
use crate::facts::{Facts, LocalPeer, NodeFacts};
use crate::intent::session::{Bfd, NextHop, Origin, Remote, Session, SessionKind, SessionName};
use crate::intent::{Gateway, GatewayScope, Listen, Problem};
use crate::values::{AsNumber, Password, Secs};
use api::scalars::{Duration, SelectorText};
use api::{BGPPassword, BGPPeerSpec, NextHopMode, SourceAddress};
use model::IpVersion;
use model::NodeName;
use selector::Selector;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;

mod mesh;
mod reverse;

/// The sessions of one node in both families, and related state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sessions {
    pub(crate) v4: BTreeMap<SessionName, Session>,
    pub(crate) v6: BTreeMap<SessionName, Session>,
    /// Sorted by the peers' addresses and ports as text, those of all nodes first.
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) problems: Vec<Problem>,
}

impl Sessions {
    fn family(&mut self, version: IpVersion) -> &mut BTreeMap<SessionName, Session> {
        match version {
            IpVersion::V4 => &mut self.v4,
            IpVersion::V6 => &mut self.v6,
        }
    }
}

/// The sessions of the node.
pub(crate) fn sessions(facts: &Facts, own_name: &NodeName, own: &NodeFacts) -> Sessions {
    let mut sessions = Sessions::default();
    mesh::add(facts, own, &mut sessions);
    let mut peerings = Peerings::default();
    let forward = Forward { facts, own_name, own };
    for global in [true, false] {
        for (name, spec) in &facts.peers {
            if global == (spec.node.is_empty() && spec.node_selector.is_empty()) {
                forward.emit(name, spec, global, &mut peerings);
            }
        }
    }
    reverse::emit(facts, own_name, own, &mut peerings);
    sessions.problems.append(&mut peerings.problems);
    let mut gateways = BTreeMap::new();
    for ((scope, key), peering) in peerings.by_key {
        if let Some(via) = peering.reachable_by {
            let gateway = Gateway { peer: peering.address, via, scope };
            gateways.insert((scope, key.text()), gateway);
        }
        build(facts, own, scope, &peering, &mut sessions);
    }
    sessions.gateways = gateways.into_values().collect();
    sessions.problems.sort();
    sessions.problems.dedup();
    sessions
}

/// One end of a peering, as described by a BGPPeer for this node.
#[derive(Clone, Debug)]
struct Peering {
    origin: Origin,
    local_workload: bool,
    remote: Remote,
    /// The address; for peers that are not identified by one, the unspecified address of their family.
    address: IpAddr,
    port: Option<u16>,
    peer_as: AsNumber,
    local_as: Option<AsNumber>,
    cluster_id: Option<crate::ClusterId>,
    password: Option<Password>,
    use_node_address: bool,
    restart_time: Option<Secs>,
    keepalive_time: Option<Secs>,
    keep_next_hop: bool,
    next_hop: NextHop,
    /// Whether the peer was given by an address that belongs to a node.
    is_node: bool,
    allowed_local_as: u32,
    ttl_security: Option<NonZeroU8>,
    filters: Vec<String>,
    reachable_by: Option<IpAddr>,
    bfd: Option<Bfd>,
}

impl Peering {
    fn new(origin: Origin, address: IpAddr, peer_as: AsNumber) -> Self {
        Self {
            origin,
            local_workload: false,
            remote: Remote::address(address),
            address,
            port: None,
            peer_as,
            local_as: None,
            cluster_id: None,
            password: None,
            use_node_address: false,
            restart_time: None,
            keepalive_time: None,
            keep_next_hop: false,
            next_hop: NextHop::Auto,
            is_node: false,
            allowed_local_as: 0,
            ttl_security: None,
            filters: Vec::new(),
            reachable_by: None,
            bfd: None,
        }
    }
}

/// Identifies a session: peerings with equal keys are one session. BGP's default port is the same as none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    remote: Remote,
    port: Option<u16>,
}

impl Key {
    fn of(peering: &Peering) -> Self {
        let port = peering.port.filter(|port| *port != Listen::DEFAULT_PORT);
        Self { remote: peering.remote.clone(), port }
    }

    fn text(&self) -> String {
        self.port.map_or_else(|| self.remote.to_string(), |port| format!("{}-{port}", self.remote))
    }
}

#[derive(Debug, Default)]
struct Peerings {
    by_key: BTreeMap<(GatewayScope, Key), Peering>,
    problems: Vec<Problem>,
}

impl Peerings {
    /// Adds a peering unless there is one already. Two BGPPeers for one session are reported; a reverse peering that
    /// yields to an explicit one is intended.
    fn emit(&mut self, scope: GatewayScope, peering: Peering) {
        let key = Key::of(&peering);
        if let Some(present) = self.by_key.get(&(scope, key.clone())) {
            if let (Origin::Peer(used), Origin::Peer(ignored)) = (&present.origin, &peering.origin)
                && used != ignored
            {
                self.problems.push(Problem::Clash {
                    used: used.clone(),
                    ignored: ignored.clone(),
                    remote: peering.remote.to_string(),
                });
            }
            return;
        }
        if scope == GatewayScope::Node && self.by_key.contains_key(&(GatewayScope::Global, key.clone())) {
            return;
        }
        self.by_key.insert((scope, key), peering);
    }

    fn leave_out(&mut self, peer: &str, reason: impl Into<String>) {
        self.problems.push(Problem::Peer { peer: peer.to_owned(), reason: reason.into() });
    }
}

/// BGPPeers that apply to this node.
struct Forward<'a> {
    facts: &'a Facts,
    own_name: &'a NodeName,
    own: &'a NodeFacts,
}

impl Forward<'_> {
    fn emit(&self, name: &str, spec: &BGPPeerSpec, global: bool, peerings: &mut Peerings) {
        let scope = if global { GatewayScope::Global } else { GatewayScope::Node };
        let concerns_us = global
            || (!spec.node.is_empty() && spec.node == **self.own_name)
            || (!spec.node_selector.is_empty()
                && match selector(&spec.node_selector) {
                    Ok(selector) => selector.evaluate(&self.own.labels),
                    Err(reason) => {
                        peerings.leave_out(name, format!("nodeSelector: {reason}"));
                        false
                    }
                });
        if !concerns_us {
            return;
        }
        for reason in self.facts.extras.get(name).map(|extras| extras.problems.as_slice()).unwrap_or_default()
        {
            let object = format!("BGPPeer {name}");
            peerings.problems.push(Problem::Setting { object, reason: reason.clone() });
        }
        let origin = Origin::Peer(name.to_owned());
        if !spec.local_workload_selector.is_empty() {
            let here = self.facts.local_peers.values().filter(|peer| peer.peer == name);
            for peering in here.flat_map(|peer| workload(peer, spec, &origin)) {
                peerings.emit(scope, peering);
            }
        } else if !spec.peer_selector.is_empty() {
            match selector(&spec.peer_selector) {
                Err(reason) => peerings.leave_out(name, format!("peerSelector: {reason}")),
                Ok(selector) => {
                    let common = Common::of(self.facts, name, spec, &mut peerings.problems);
                    for (node, facts) in &self.facts.nodes {
                        if selector.evaluate(&facts.labels) {
                            for version in [IpVersion::V4, IpVersion::V6] {
                                if let Some(peering) =
                                    node_as_peer(self.facts, node, facts, version, spec, &origin)
                                {
                                    peerings.emit(scope, common.applied(peering));
                                }
                            }
                        }
                    }
                }
            }
        } else {
            match self.by_address(name, spec, &origin, &mut peerings.problems) {
                Ok(peering) => peerings.emit(scope, peering),
                Err(reason) => peerings.leave_out(name, reason),
            }
        }
    }

    fn by_address(
        &self,
        name: &str,
        spec: &BGPPeerSpec,
        origin: &Origin,
        problems: &mut Vec<Problem>,
    ) -> Result<Peering, String> {
        let extras = self.facts.extras.get(name);
        if extras.is_some_and(|extras| extras.unusable) {
            return Err("its annotations do not identify the peer".to_owned());
        }
        let (remote, address, port) = remote(spec, extras)?;
        if spec.as_number.0 == 0 {
            return Err("asNumber is missing".to_owned());
        }
        let mut peering = Peering { remote, ..Peering::new(origin.clone(), address, spec.as_number.into()) };
        peering.port = port.or_else(|| {
            let node = nodes_at(self.facts, address, spec.as_number.into(), None).next();
            node.and_then(|node| self.facts.listen_port(node))
        });
        peering.is_node = self.facts.nodes.values().any(|node| node.has_address(address));
        peering.local_as = spec.local_as_number.map(Into::into);
        peering.allowed_local_as =
            spec.num_allowed_local_as_numbers.and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        peering.ttl_security = spec.ttl_security.and_then(NonZeroU8::new);
        peering.filters.clone_from(&spec.filters);
        if !spec.reachable_by.is_empty() {
            let gateway = spec.reachable_by.parse()?;
            if gateway.is_ipv4() != address.is_ipv4() {
                return Err(format!("reachableBy {gateway} is not of the family of {address}"));
            }
            peering.reachable_by = Some(gateway);
        }
        (peering.keep_next_hop, peering.next_hop) = next_hop(spec);
        Ok(Common::of(self.facts, name, spec, problems).applied(peering))
    }
}

/// The settings shared by all peerings of a BGPPeer.
struct Common {
    password: Option<Password>,
    use_node_address: bool,
    restart_time: Option<Secs>,
    keepalive_time: Option<Secs>,
    bfd: Option<Bfd>,
}

impl Common {
    fn of(facts: &Facts, name: &str, spec: &BGPPeerSpec, problems: &mut Vec<Problem>) -> Self {
        Self {
            password: password(facts, spec.password.as_ref(), &format!("BGPPeer {name}"), problems),
            use_node_address: spec.source_address != SourceAddress::None,
            restart_time: seconds(spec.max_restart_time.as_ref()),
            keepalive_time: seconds(spec.keepalive_time.as_ref()),
            bfd: facts.extras.get(name).and_then(|extras| extras.bfd),
        }
    }

    fn applied(&self, mut peering: Peering) -> Peering {
        peering.password.clone_from(&self.password);
        peering.use_node_address = self.use_node_address;
        peering.restart_time = self.restart_time;
        peering.keepalive_time = self.keepalive_time;
        peering.bfd = self.bfd;
        peering
    }
}

/// A workload's peering only has the resource's settings of the session itself: the workload is one hop away, and it
/// connects.
fn workload(peer: &LocalPeer, spec: &BGPPeerSpec, origin: &Origin) -> Vec<Peering> {
    let at = |address: IpAddr| {
        let mut peering = Peering::new(origin.clone(), address, spec.as_number.into());
        peering.local_workload = true;
        peering.local_as = spec.local_as_number.map(Into::into);
        peering.filters.clone_from(&spec.filters);
        peering
    };
    [peer.v4, peer.v6].into_iter().flatten().map(at).collect()
}

/// A node as the other end of a peering, in one family.
fn node_as_peer(
    facts: &Facts,
    name: &NodeName,
    node: &NodeFacts,
    version: IpVersion,
    spec: &BGPPeerSpec,
    origin: &Origin,
) -> Option<Peering> {
    let mut peering = Peering::new(origin.clone(), node.address(version)?, facts.as_of(node));
    peering.port = facts.listen_port(name);
    peering.cluster_id = node.cluster_id;
    peering.ttl_security = spec.ttl_security.and_then(NonZeroU8::new);
    peering.filters.clone_from(&spec.filters);
    peering.reachable_by =
        spec.reachable_by.parse().ok().filter(|via| via.is_ipv4() == peering.address.is_ipv4());
    (peering.keep_next_hop, peering.next_hop) = next_hop(spec);
    Some(peering)
}

/// Nodes with this address and AS number that listen on this port, if one is given and any is configured.
fn nodes_at(
    facts: &Facts,
    address: IpAddr,
    as_number: AsNumber,
    port: Option<u16>,
) -> impl Iterator<Item = &NodeName> {
    let as_number = if as_number.0 == 0 { facts.global_as() } else { as_number };
    facts.nodes.iter().filter_map(move |(name, node)| {
        let listens = match (port, facts.listen_port(name)) {
            (Some(port), Some(listens)) => port == listens,
            _ => true,
        };
        (node.has_address(address) && facts.as_of(node) == as_number && listens).then_some(name)
    })
}

/// The remote end of a BGPPeer without a selector: an address, the neighbour on an interface, or any peer within a
/// network.
fn remote(spec: &BGPPeerSpec, extras: Option<&Extras>) -> Result<(Remote, IpAddr, Option<u16>), String> {
    let interface = extras.and_then(|extras| extras.interface.clone());
    let range = extras.and_then(|extras| extras.range);
    if let Some(range) = range {
        if !spec.peer_ip.is_empty() {
            return Err("peerIP and the annotation tortie/range cannot both be set".to_owned());
        }
        let any: IpAddr = if range.net().addr().is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        return Ok((Remote::Dynamic { range }, any, None));
    }
    match interface {
        Some(interface) if spec.peer_ip.is_empty() => {
            Ok((Remote::Unnumbered { interface }, Ipv6Addr::UNSPECIFIED.into(), None))
        }
        interface => {
            let (address, port) = spec.peer_ip.parse()?;
            let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
            if interface.is_some() && !is_link_local {
                return Err(format!("{address} is not a link-local address: it needs no tortie/interface"));
            }
            Ok((Remote::Address { address, interface }, address, port))
        }
    }
}

fn next_hop(spec: &BGPPeerSpec) -> (bool, NextHop) {
    match &spec.next_hop_mode {
        None => (spec.keep_original_next_hop, NextHop::Auto),
        Some(NextHopMode::Itself) => (false, NextHop::Itself),
        Some(NextHopMode::Keep) => (false, NextHop::Keep),
        Some(_) => (false, NextHop::Auto),
    }
}

fn selector(text: &SelectorText) -> Result<Selector, String> {
    text.parse()
}

/// Rounded to whole seconds, half up.
pub(crate) fn seconds(duration: Option<&Duration>) -> Option<Secs> {
    let duration = duration?.parse().ok()?;
    let rounded = duration.as_secs() + u64::from(duration.subsec_millis() >= 500);
    Some(Secs(u32::try_from(rounded).unwrap_or(u32::MAX)))
}

/// The password that a reference refers to. An empty one counts as none.
pub(crate) fn password(
    facts: &Facts,
    reference: Option<&BGPPassword>,
    user: &str,
    problems: &mut Vec<Problem>,
) -> Option<Password> {
    let reference = reference?.secret_key_ref.as_ref()?;
    let found = facts.secrets.get(&reference.name).and_then(|keys| keys.get(&reference.key));
    if found.is_none() {
        problems.push(Problem::Password {
            user: user.to_owned(),
            secret: reference.name.clone(),
            key: reference.key.clone(),
        });
    }
    found.filter(|password| !password.expose().is_empty()).cloned()
}

/// Adds the session for a peering, unless it is with the node itself.
fn build(facts: &Facts, own: &NodeFacts, scope: GatewayScope, peering: &Peering, sessions: &mut Sessions) {
    let version = version_of(peering.address);
    let own_address = own.address(version);
    let is_plain = matches!(peering.remote, Remote::Address { interface: None, .. });
    // A peer on a link or within a range needs no address of this family on the node.
    if is_plain && own_address.is_none_or(|address| address == peering.address) {
        return;
    }
    let kind = match scope {
        _ if peering.local_workload => SessionKind::LocalWorkload,
        GatewayScope::Global => SessionKind::Global,
        GatewayScope::Node => SessionKind::Node,
    };
    let local_as = peering.local_as.filter(|number| number.0 != 0);
    let effective_as = local_as.unwrap_or_else(|| facts.as_of(own));
    let internal = peering.peer_as == effective_as;
    let remote = peering.remote.clone();
    let (mut import, mut export) = (Vec::new(), Vec::new());
    for name in &peering.filters {
        let name = crate::intent::FilterName(name.clone());
        match facts.filters.get(&name) {
            None => {
                let (Origin::Peer(peer) | Origin::ReverseOf(peer)) = &peering.origin else { continue };
                sessions.problems.push(Problem::MissingFilter { peer: peer.clone(), filter: name.0 });
            }
            Some(filter) => {
                if !filter.import(version).is_empty() {
                    import.push(filter.clone());
                }
                if !filter.export(version).is_empty() {
                    export.push(filter.clone());
                }
            }
        }
    }
    let session = Session {
        name: SessionName::of(kind, &remote, peering.port),
        version,
        kind,
        origin: peering.origin.clone(),
        remote,
        port: peering.port,
        peer_as: peering.peer_as,
        local_as: effective_as,
        local_as_is_own: local_as.is_some(),
        source: own_address.filter(|_| peering.use_node_address && is_plain),
        // Between two nodes, the one whose address is the smaller text connects.
        passive: peering.local_workload
            || (kind == SessionKind::Global
                && peering.is_node
                && own_address.is_some_and(|own| peering.address.to_string() > own.to_string())),
        password: peering.password.clone(),
        ttl_security: peering.ttl_security,
        restart_time: peering.restart_time,
        keepalive_time: peering.keepalive_time,
        bfd: peering.bfd,
        reflector_client: own.cluster_id.filter(|id| internal && peering.cluster_id != Some(*id)),
        next_hop: if peering.keep_next_hop && !internal { NextHop::Keep } else { peering.next_hop },
        allowed_local_as: peering.allowed_local_as,
        import,
        export,
    };
    sessions.family(version).insert(session.name.clone(), session);
}

fn version_of(address: IpAddr) -> IpVersion {
    if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
}
