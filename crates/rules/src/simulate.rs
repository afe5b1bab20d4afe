//! Simulates what rendered chains do with a packet, without a kernel. Tests compare the result with the meaning of
//! policy.
//!
//! It walks the tree as both packet filters do. It does not route, does not translate addresses and does not track
//! connections: the caller provides the results of those.

use crate::names::Backend;
use crate::tree::{
    Action, Chain, ChainName, Conntrack, End, InterfaceName, MapName, Match, PortRange, Protocol, Rule,
    SetName, Side, Text, VerdictMap,
};
use messages::IpSetMember;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The kernel rejects chains that jump deeper than this.
const MAX_DEPTH: usize = 16;

/// Why chains cannot be walked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimulateError {
    /// A rule leads to a chain that does not exist.
    #[error("there is no chain {0}")]
    NoChain(ChainName),
    /// A rule names a set that does not exist.
    #[error("there is no set {0}")]
    NoSet(SetName),
    /// A rule looks up a map that does not exist.
    #[error("there is no map {0}")]
    NoMap(MapName),
    /// Chains jump in a circle, or too deeply.
    #[error("chain {0} is too deep")]
    TooDeep(ChainName),
    /// A match that requires another one before it.
    #[error("a match on ports or ICMP has no protocol before it")]
    NoProtocol,
}

/// The state of a packet's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// The packet begins a connection.
    #[default]
    New,
    /// The packet belongs to a known connection.
    Established,
    /// The packet fits no connection.
    Invalid,
    /// The packet is not tracked.
    Untracked,
}

/// A packet and the kernel's information about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The protocol's number.
    pub protocol: u8,
    /// The source and destination ports, if the protocol has ports.
    pub ports: (u16, u16),
    /// Type and code, if it is ICMP.
    pub icmp: (u8, u8),
    /// The interface through which it came in; empty for the host's own packets.
    pub in_interface: InterfaceName,
    /// The interface through which it leaves; empty for packets to the host.
    pub out_interface: InterfaceName,
    /// The mark.
    pub mark: u32,
    /// The state of its connection.
    pub tracking: Tracking,
    /// Whether its destination was translated.
    pub is_translated: bool,
    /// Whether the source and the destination are addresses of this host.
    pub local: (bool, bool),
    /// Whether the route back to the source uses another interface.
    pub reverse_path_failed: bool,
    /// Whether it exceeds all limits of rate and of connections.
    pub over_limits: bool,
}

impl Packet {
    /// A packet that begins a connection, from no interface to none.
    #[must_use]
    pub fn new(source: IpAddr, destination: IpAddr, protocol: u8) -> Self {
        Self {
            source,
            destination,
            protocol,
            ports: (0, 0),
            icmp: (0, 0),
            in_interface: InterfaceName::default(),
            out_interface: InterfaceName::default(),
            mark: 0,
            tracking: Tracking::New,
            is_translated: false,
            local: (false, false),
            reverse_path_failed: false,
            over_limits: false,
        }
    }

    fn address(&self, end: End) -> IpAddr {
        match end {
            End::Source => self.source,
            End::Destination => self.destination,
        }
    }

    /// The port, if the protocol has ports.
    fn port(&self, end: End) -> Option<u16> {
        Protocol::Number(self.protocol).transport()?;
        Some(match end {
            End::Source => self.ports.0,
            End::Destination => self.ports.1,
        })
    }

    fn has_state(&self, state: Conntrack) -> bool {
        match state {
            Conntrack::RelatedOrEstablished => self.tracking == Tracking::Established,
            Conntrack::Invalid => self.tracking == Tracking::Invalid,
            Conntrack::New => self.tracking == Tracking::New,
            Conntrack::Dnat => self.is_translated,
        }
    }

    fn interface(&self, side: Side) -> &InterfaceName {
        match side {
            Side::In => &self.in_interface,
            Side::Out => &self.out_interface,
        }
    }
}

/// The outcome for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The table allows it.
    Accept,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender gets a reply.
    Reject,
    /// The chain ended without a verdict.
    Continue,
}

/// The chains of one table, with the sets and maps that they use.
#[derive(Clone, Debug, Default)]
pub struct Simulation {
    /// The packet filter whose semantics apply.
    pub backend: Backend,
    chains: BTreeMap<ChainName, Chain>,
    maps: BTreeMap<MapName, VerdictMap>,
    sets: BTreeMap<SetName, Vec<IpSetMember>>,
    /// The lines that log rules wrote, in order.
    pub logged: Vec<Text>,
}

impl Simulation {
    /// Creates a simulation without chains.
    #[must_use]
    pub fn new(backend: Backend) -> Self {
        Self { backend, ..Self::default() }
    }

    /// Adds chains; one of the same name is replaced.
    pub fn add_chains(&mut self, chains: impl IntoIterator<Item = Chain>) {
        self.chains.extend(chains.into_iter().map(|chain| (chain.name.clone(), chain)));
    }

    /// Adds maps; one of the same name is replaced.
    pub fn add_maps(&mut self, maps: impl IntoIterator<Item = VerdictMap>) {
        self.maps.extend(maps.into_iter().map(|map| (map.name.clone(), map)));
    }

    /// Adds a set by the kernel's name; one of the same name is replaced.
    pub fn add_set(&mut self, name: SetName, members: Vec<IpSetMember>) {
        self.sets.insert(name, members);
    }

    /// Sends a packet into a chain.
    ///
    /// # Errors
    /// When a rule refers to something that does not exist.
    pub fn run(&mut self, chain: &str, packet: &mut Packet) -> Result<Verdict, SimulateError> {
        let chains = std::mem::take(&mut self.chains);
        let verdict = self.walk(&chains, &chain.into(), packet, 0);
        self.chains = chains;
        verdict
    }

    fn walk(
        &mut self,
        chains: &BTreeMap<ChainName, Chain>,
        name: &ChainName,
        packet: &mut Packet,
        depth: usize,
    ) -> Result<Verdict, SimulateError> {
        let chain = chains.get(name).ok_or_else(|| SimulateError::NoChain(name.clone()))?;
        if depth > MAX_DEPTH {
            return Err(SimulateError::TooDeep(name.clone()));
        }
        for rule in chain.rules.iter() {
            if let Some(map) = rule.matches.iter().find_map(|one| match one {
                Match::InterfaceMap { side, map } => Some((side, map)),
                _ => None,
            }) {
                let (side, map) = map;
                let entries = self.maps.get(map).ok_or_else(|| SimulateError::NoMap(map.clone()))?;
                if let Some(target) = entries.entries.get(packet.interface(*side)).cloned() {
                    return self.walk(chains, &target, packet, depth + 1);
                }
                continue;
            }
            if !self.matches(rule, packet)? {
                continue;
            }
            let verdict = match rule.action.as_ref() {
                None => Verdict::Continue,
                Some(Action::Return) => return Ok(Verdict::Continue),
                Some(Action::Goto(target)) => return self.walk(chains, target, packet, depth + 1),
                Some(Action::Jump(target)) => self.walk(chains, target, packet, depth + 1)?,
                Some(action) => self.act(action, packet),
            };
            if verdict != Verdict::Continue {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Continue)
    }

    fn act(&mut self, action: &Action, packet: &mut Packet) -> Verdict {
        match action {
            Action::Accept | Action::Masquerade { .. } | Action::Snat { .. } | Action::Dnat { .. } => {
                return Verdict::Accept;
            }
            Action::Drop => return Verdict::Drop,
            Action::Reject(_) => return Verdict::Reject,
            Action::SetMark(bits) => packet.mark |= bits,
            Action::ClearMark(bits) => packet.mark &= !bits,
            Action::SetMaskedMark { value, mask } => packet.mark = packet.mark & !mask ^ value,
            Action::Log { prefix } | Action::NfLog { prefix, .. } => self.logged.push(prefix.clone()),
            Action::NoTrack => packet.tracking = Tracking::Untracked,
            Action::LimitPacketRate { mark, .. } => match (self.backend, packet.over_limits) {
                (Backend::Iptables, false) => packet.mark |= mark,
                (Backend::Nftables, true) => return Verdict::Drop,
                _ => {}
            },
            Action::LimitConnections { .. } => {
                if packet.over_limits && packet.protocol == 6 {
                    return Verdict::Reject;
                }
            }
            Action::Return
            | Action::Jump(_)
            | Action::Goto(_)
            | Action::SetConnectionMark { .. }
            | Action::SaveConnectionMark { .. }
            | Action::RestoreConnectionMark { .. }
            | Action::SetDscp(_)
            | Action::FlowOffload => {}
        }
        Verdict::Continue
    }

    fn matches(&self, rule: &Rule, packet: &Packet) -> Result<bool, SimulateError> {
        let mut protocol = None;
        for one in &rule.matches {
            if let Match::Protocol { protocol: wanted, negated: false } = one {
                protocol = Some(*wanted);
            }
            if !self.matches_one(one, protocol, packet)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn matches_one(
        &self,
        one: &Match,
        protocol: Option<Protocol>,
        packet: &Packet,
    ) -> Result<bool, SimulateError> {
        let transport = || protocol.and_then(Protocol::transport).ok_or(SimulateError::NoProtocol);
        Ok(match one {
            Match::Protocol { protocol, negated } => (protocol.number() == packet.protocol) != *negated,
            Match::Interface { side, pattern } => pattern.contains(packet.interface(*side)),
            Match::Mark { value, mask, negated } => (packet.mark & mask == *value) != *negated,
            Match::Conntrack { state, negated } => packet.has_state(*state) != *negated,
            Match::Net { end, net, negated } => net.contains(&packet.address(*end)) != *negated,
            Match::Address { end, address } => packet.address(*end) == *address,
            Match::IpSet { end, name, negated } => {
                has_address(self.set(name)?, packet.address(*end)) != *negated
            }
            Match::IpPortSet { end, name, negated } => {
                let wanted = packet.port(*end).map(|port| IpSetMember::IpAndPort {
                    address: packet.address(*end),
                    protocol: packet.protocol,
                    port,
                });
                let set = self.set(name)?;
                wanted.is_some_and(|wanted| set.contains(&wanted)) != *negated
            }
            Match::Ports { end, ports, negated } => {
                transport()?;
                let within =
                    |port| ports.iter().any(|PortRange { first, last }| (first..=last).contains(&&port));
                packet.port(*end).is_some_and(|port| within(port) != *negated)
            }
            Match::DestinationPort(wanted) => {
                transport()?;
                packet.port(End::Destination) == Some(*wanted)
            }
            Match::Icmp { version, icmp_type, code, negated } => {
                let number = crate::renderer::icmp_number(*version);
                if protocol.map(Protocol::number) != Some(number) {
                    return Err(SimulateError::NoProtocol);
                }
                let is = packet.icmp.0 == *icmp_type && code.is_none_or(|code| packet.icmp.1 == code);
                packet.protocol == number && is != *negated
            }
            Match::LocalAddress { end, negated, .. } => {
                let is = match end {
                    End::Source => packet.local.0,
                    End::Destination => packet.local.1,
                };
                is != *negated
            }
            Match::ReversePathFailed => packet.reverse_path_failed,
            Match::Ipvs { negated } => *negated,
            Match::Limit { .. } => !packet.over_limits,
            Match::InterfaceMap { .. } | Match::ArpReply | Match::ArpSource(_) => false,
        })
    }

    fn set(&self, name: &SetName) -> Result<&[IpSetMember], SimulateError> {
        self.sets.get(name).map(Vec::as_slice).ok_or_else(|| SimulateError::NoSet(name.clone()))
    }
}

fn has_address(set: &[IpSetMember], address: IpAddr) -> bool {
    set.iter().any(|member| match member {
        IpSetMember::Ip(member) => *member == address,
        IpSetMember::Net(net) => net.contains(&address),
        IpSetMember::IpAndPort { .. } => false,
    })
}
