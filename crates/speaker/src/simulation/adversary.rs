//! Peers with arbitrary behaviour on connections that break at any time: a history decoded from bytes is played to one
//! speaker, and its invariants are checked after every step. For fuzz targets and properties; it panics when an
//! invariant is violated.
//!
//! Any bytes are a history: missing bytes are zero. Most steps are well-formed messages, so that sessions come up and
//! the deeper states are reached; some are such messages with a byte changed, some are raw bytes.

use super::{address, block, intent, session};
use crate::engine::{Ends, Engine, Output};
use crate::session::{Direction, Moment, StateName};
use bgp::intent::{Remote, Session};
use bgp_wire::{
    AsPath, Asn, Attributes, Capability, Cause, Family, GracefulRestart, GracefulRestartFamily, Message,
    NextHop, Nlri, Open, RefreshPhase, RouteRefresh, RouterId, SessionOptions, UpdateWriter, encode,
    end_of_rib, frame,
};
use ipnet::{IpNet, Ipv4Net};
use rib::{KernelTarget, PeerId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The maximum memory for all connections: for each, one incomplete message, and unsent output.
const MOST_BUFFERED: usize = 8 * (64 + 512) * 1024;

/// Plays a history.
///
/// # Panics
/// When an invariant is violated.
pub fn play(bytes: &[u8]) {
    let mut play = Play::of(bytes);
    play.engine.shut_down(false, "the end", play.now);
    play.outputs();
    assert!(play.links.is_empty(), "connections outlive the end: {:?}", play.links);
}

/// The remaining bytes of a history.
struct History<'a> {
    bytes: &'a [u8],
}

impl History<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn take(&mut self, count: u8) -> Vec<u8> {
        let (taken, rest) = self.bytes.split_at(usize::from(count).min(self.bytes.len()));
        self.bytes = rest;
        taken.to_vec()
    }
}

struct Play {
    engine: Engine,
    now: Moment,
    connecting: BTreeSet<PeerId>,
    /// Open connections, with the bytes of an incomplete message that the peer has read.
    links: BTreeMap<(PeerId, Direction), Vec<u8>>,
}

impl Play {
    /// Plays a history to its end.
    fn of(bytes: &[u8]) -> Self {
        let mut history = History { bytes };
        let mut play = Self::new(history.next());
        while !history.bytes.is_empty() {
            play.step(&mut history);
            play.outputs();
            play.check();
        }
        play
    }

    fn new(choice: u8) -> Self {
        let mut engine = Engine::new(u64::from(choice), choice & 1 != 0, Duration::ZERO);
        engine.set_host_routes([super::host_network(address(0))], Duration::ZERO);
        let mut play =
            Self { engine, now: Duration::ZERO, connecting: BTreeSet::new(), links: BTreeMap::new() };
        play.apply(choice);
        play
    }

    /// Applies one of a few intents: internal and external peers, a reflection client, a range.
    fn apply(&mut self, choice: u8) {
        let own = address(0);
        let bit = |number: u8| choice & (1 << number) != 0;
        let mut sessions: Vec<Session> = (1..4).map(|node| session(own, address(node))).collect();
        sessions[1].peer_as = bgp::AsNumber(65001);
        sessions[1].passive = bit(1);
        sessions[2].reflector_client = bit(2).then_some(bgp::ClusterId(Ipv4Addr::new(224, 0, 0, 1)));
        let range: bgp::Prefix = "10.1.0.0/24".parse().expect("a network");
        sessions.push(Session { remote: Remote::Dynamic { range }, ..sessions[0].clone() });
        if let Some(range) = sessions.last_mut() {
            range.name = bgp::intent::SessionName::of(range.kind, &range.remote, None);
        }
        if bit(3) {
            sessions.remove(0);
        }
        let blocks = if bit(4) { vec![block(0), block(9)] } else { vec![block(0)] };
        self.engine.apply(intent(own, sessions, &blocks), self.now);
    }

    fn step(&mut self, history: &mut History<'_>) {
        match history.next() % 16 {
            0 => {
                self.now = self.engine.deadline().map_or(self.now, |deadline| deadline.max(self.now));
                self.tick();
            }
            1 => {
                self.now += Duration::from_secs(u64::from(history.next()));
                self.tick();
            }
            2 | 3 => self.finish_connecting(history.next()),
            4 => self.accept(history.next()),
            5..=9 => {
                let bytes = message(history);
                self.receive(history.next(), &bytes);
            }
            10 => {
                let mut bytes = message(history);
                let place = usize::from(history.next()) % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= history.next();
                }
                self.receive(history.next(), &bytes);
            }
            11 => {
                let count = history.next();
                let bytes = history.take(count);
                self.receive(history.next(), &bytes);
            }
            12 => {
                if let Some((id, direction)) = self.link(history.next()) {
                    self.links.remove(&(id, direction));
                    self.engine.closed(id, direction, None, self.now);
                }
            }
            13 => self.send(history.next()),
            14 => {
                if let Some((id, _)) = self.link(history.next()) {
                    self.engine.blocked(id, self.now);
                }
            }
            _ => self.apply(history.next()),
        }
    }

    fn tick(&mut self) {
        self.engine.tick(self.now);
        assert!(self.engine.deadline().is_none_or(|next| next > self.now), "the speaker spins");
    }

    fn link(&self, choice: u8) -> Option<(PeerId, Direction)> {
        let count = self.links.len();
        self.links.keys().nth(usize::from(choice) % count.max(1)).copied()
    }

    fn receive(&mut self, choice: u8, bytes: &[u8]) {
        if let Some((id, direction)) = self.link(choice) {
            self.engine.received(id, direction, bytes, self.now);
        }
    }

    fn finish_connecting(&mut self, choice: u8) {
        let Some(id) = self.connecting.pop_first() else { return };
        let remote = self.engine.endpoint(id).and_then(|endpoint| endpoint.remote.ip());
        match remote.filter(|_| !choice.is_multiple_of(4)) {
            Some(remote) => {
                self.links.insert((id, Direction::Outgoing), Vec::new());
                self.engine.connected(id, ends(remote), self.now);
            }
            None => self.engine.connect_failed(id, "Connection refused".to_owned(), self.now),
        }
    }

    fn accept(&mut self, choice: u8) {
        let remote = match choice % 5 {
            number @ 0..3 => address(usize::from(number) + 1),
            3 => Ipv4Addr::new(10, 1, 0, choice).into(),
            _ => Ipv4Addr::new(192, 0, 2, choice).into(),
        };
        let accepted = self.engine.accept(ends(remote), self.now);
        // A connection that the new one replaces is closed first.
        self.outputs();
        match accepted {
            Ok(id) => {
                self.links.insert((id, Direction::Incoming), Vec::new());
            }
            Err(last) => assert!(whole_messages(&last).is_empty(), "a torn refusal"),
        }
    }

    /// Lets a peer read all available data, or a part of it.
    fn send(&mut self, choice: u8) {
        let links: Vec<(PeerId, Direction)> = self.links.keys().copied().collect();
        for (id, direction) in links {
            loop {
                let bytes = self.engine.output(id, direction);
                let count = if choice == 0 { bytes.len() } else { bytes.len().min(usize::from(choice)) };
                let Some(read) = self.links.get_mut(&(id, direction)).filter(|_| count > 0) else { break };
                read.extend_from_slice(&bytes[..count]);
                *read = whole_messages(read);
                self.engine.sent(id, direction, count);
                if choice != 0 {
                    break;
                }
            }
        }
    }

    fn outputs(&mut self) {
        for output in self.engine.take_outputs() {
            match output {
                Output::Connect(id) => {
                    self.connecting.insert(id);
                }
                Output::Close(id, direction, last) => {
                    if direction == Direction::Outgoing {
                        self.connecting.remove(&id);
                    }
                    if let Some(mut read) = self.links.remove(&(id, direction)) {
                        read.extend_from_slice(&last);
                        assert!(whole_messages(&read).is_empty(), "a torn last message");
                    }
                }
                Output::Listen | Output::Watch | Output::SweepKernel | Output::Log(_) => {}
            }
        }
        self.engine.take_kernel();
        self.engine.take_ready();
    }

    fn check(&self) {
        let buffered = self.engine.buffered();
        assert!(buffered <= MOST_BUFFERED, "{buffered} bytes are kept for connections");
        let summary = self.engine.summary();
        let mut imported = 0;
        for peer in &summary.peers {
            for family in Family::ALL {
                let count = peer.counts[family.index()].imported;
                imported += count;
                let may_have = peer.state == StateName::Established || peer.stale[family.index()];
                assert!(may_have || count == 0, "{} has {count} routes in {}", peer.remote, peer.state);
            }
        }
        self.engine.rib().kernel_routes(|prefix, route| {
            let learnt = matches!(route.target, KernelTarget::Via(_));
            assert!(!learnt || imported > 0, "{prefix} is in the kernel, but no peer announces anything");
        });
    }
}

fn ends(remote: IpAddr) -> Ends {
    Ends { local: address(0), link_local: None, remote, link: None }
}

/// Returns the bytes after the last complete message.
fn whole_messages(mut bytes: &[u8]) -> Vec<u8> {
    let options = SessionOptions { extended_messages: true, ..SessionOptions::default() };
    while let Some(found) = frame(bytes, &options).expect("a header that the speaker sent") {
        bytes = &bytes[found.length..];
    }
    bytes.to_vec()
}

/// A well-formed message, selected by the history.
fn message(history: &mut History<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = SessionOptions { four_byte_as: true, families: [true, true], ..SessionOptions::default() };
    let mut put = |message: Message| encode(&mut bytes, &message, &options);
    match history.next() % 10 {
        0..=2 => put(Message::Open(open(history.next()))),
        3 | 4 => put(Message::Keepalive),
        5 | 6 => {
            let (number, choice) = (history.next(), history.next());
            let external = choice & 1 != 0;
            let attributes = Attributes {
                local_pref: (!external).then_some(u32::from(choice)),
                as_path: if external {
                    AsPath::sequence(vec![65001, u32::from(number)])
                } else {
                    AsPath::default()
                },
                cluster_list: if choice & 2 != 0 { [RouterId(1)].into() } else { [].into() },
                ..Attributes::default()
            };
            let next_hop = NextHop::from(address(1 + usize::from(choice % 4)));
            let mut writer = UpdateWriter::new(SessionOptions { external, ..options });
            // Cannot fail: attributes this short fit.
            let _ = writer.announce(
                &mut bytes,
                &attributes,
                &next_hop,
                (0..=choice % 8).map(|more| prefix(number.wrapping_add(more))),
            );
        }
        7 => UpdateWriter::new(options).withdraw(&mut bytes, [prefix(history.next())]),
        8 => {
            let family = if history.next() & 1 == 0 { Family::Ipv4 } else { Family::Ipv6 };
            match history.next() % 4 {
                0 => end_of_rib(&mut bytes, family),
                1 => put(Message::RouteRefresh(RouteRefresh { family, phase: RefreshPhase::Request })),
                2 => put(Message::RouteRefresh(RouteRefresh { family, phase: RefreshPhase::Begin })),
                _ => put(Message::RouteRefresh(RouteRefresh { family, phase: RefreshPhase::End })),
            }
        }
        _ => put(Message::Notification(Cause::from_numbers(history.next() % 9, history.next() % 12).into())),
    }
    bytes
}

fn open(choice: u8) -> Open {
    let bit = |number: u8| choice & (1 << number) != 0;
    let system = if bit(0) { Asn(65001) } else { Asn(64512) };
    let mut open =
        Open::new(system, if bit(1) { 9 } else { 90 }, RouterId(0x0a00_0000 + u32::from(choice % 3) * 2));
    open.capabilities.push(Capability::Multiprotocol(Family::Ipv4));
    open.capabilities.push(Capability::RouteRefresh);
    if bit(2) {
        open.capabilities.push(Capability::EnhancedRouteRefresh);
    }
    if bit(3) {
        open.capabilities.push(Capability::ExtendedMessage);
    }
    if bit(4) {
        let families = vec![GracefulRestartFamily { family: Family::Ipv4, forwarding: bit(5) }];
        let restart = GracefulRestart { restarting: bit(6), notification: false, restart_time: 60, families };
        open.capabilities.push(Capability::GracefulRestart(restart));
    }
    open
}

fn prefix(number: u8) -> Nlri {
    let net = Ipv4Net::new(Ipv4Addr::new(172, 16, number, 0), 24).unwrap_or_default();
    Nlri::new(IpNet::V4(net))
}

#[cfg(test)]
mod tests {
    use super::{Play, play};
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn the_speaker_survives_whatever_peers_send(history in vec(any::<u8>(), 0..600)) {
            play(&history);
        }
    }

    /// Checks that the histories above reach the states that they are meant to test.
    #[test]
    fn a_history_can_reach_a_session() {
        let (time, connect) = ([0, 0, 0], [2, 1]);
        let (open, keepalive, routes) = ([5, 0, 0b0111_1100, 0], [5, 3, 0], [5, 5, 7, 6, 0]);
        let history = [&[0][..], &time, &connect, &open, &keepalive, &routes].concat();
        let peers = Play::of(&history).engine.summary().peers;
        assert_eq!(peers.iter().map(|peer| peer.counts[0].imported).sum::<usize>(), 7);
    }
}
