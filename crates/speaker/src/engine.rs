//! The speaker without its sockets: sessions and tables, bytes in, bytes and actions out.
//!
//! A shell passes it the data from connections, the host's routes and the time, executes its outputs, and puts routes
//! into the kernel. A simulated network does the same in tests and benchmarks. Does not know sockets, the clock or the
//! kernel.

mod actions;
mod apply;
mod connections;
mod outbox;
mod output;
mod peer;
mod pending;
mod status;

#[cfg(test)]
mod tests;

pub(crate) use output::{LogLine, Output};
pub(crate) use peer::{Endpoint, Ends, Tally, Watched};
pub use status::PeerStatus;
#[cfg(feature = "component")]
pub(crate) use status::Summary;

use crate::session::{Event, Moment, Random};
use bgp::Intent;
use bgp_wire::{Cause, CeaseReason, Notification};
use ipnet::IpNet;
use peer::{Peer, Peers};
use rib::{Announcement, HostRoute, Identity, Interface, KernelRoute, PeerId, Rib, Sink};
use std::net::IpAddr;
use std::sync::Arc;

/// The speaker without its sockets.
pub struct Engine {
    rib: Rib,
    peers: Peers,
    random: Random,
    intent: Option<Intent>,
    /// When this speaker's graceful restart began, while it lasts.
    restart: Option<Moment>,
    /// Whether the restart has waited long enough for peers that are down.
    soft_passed: bool,
    kernel: Vec<(IpNet, Option<KernelRoute>)>,
    outputs: Vec<Output>,
    /// Peers with data to send.
    ready: Vec<PeerId>,
}

/// Collects the consequences of a change in the tables.
struct Collect<'a> {
    peers: &'a mut Peers,
    kernel: &'a mut Vec<(IpNet, Option<KernelRoute>)>,
    ready: &'a mut Vec<PeerId>,
}

impl Sink for Collect<'_> {
    fn kernel(&mut self, prefix: IpNet, route: Option<&KernelRoute>) {
        self.kernel.push((prefix, route.cloned()));
    }

    fn export(&mut self, peer: PeerId, prefix: IpNet, announcement: Option<&Arc<Announcement>>) {
        if let Some(Peer { outbox: Some((_, outbox)), .. }) = self.peers.get_mut(peer) {
            if outbox.is_empty() {
                self.ready.push(peer);
            }
            outbox.put(prefix, announcement);
        }
    }
}

/// Borrows the tables, and the rest as a sink for consequences.
macro_rules! rib {
    ($engine:ident, |$rib:ident, $sink:ident| $body:expr) => {{
        let Engine { rib: $rib, peers, kernel, ready, .. } = &mut *$engine;
        let $sink = &mut Collect { peers, kernel, ready };
        $body
    }};
}
use rib;

impl Engine {
    /// Creates a speaker without sessions. `restarting`: the kernel forwards by routes of the previous speaker, which
    /// are kept until peers have sent their routes.
    #[must_use]
    pub fn new(seed: u64, restarting: bool, now: Moment) -> Self {
        let mut rib = Rib::new(Identity::default());
        if restarting {
            rib.defer();
        }
        Self {
            rib,
            peers: Peers::default(),
            random: peer::random(seed),
            intent: None,
            restart: restarting.then_some(now),
            soft_passed: false,
            kernel: Vec::new(),
            outputs: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// The routing tables.
    #[must_use]
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// The intent in effect.
    #[must_use]
    pub fn intent(&self) -> Option<&Intent> {
        self.intent.as_ref()
    }

    /// Whether routes from before a restart are still kept.
    #[must_use]
    pub fn is_restarting(&self) -> bool {
        self.restart.is_some()
    }

    /// How a peer is connected.
    #[must_use]
    pub fn endpoint(&self, id: PeerId) -> Option<&Endpoint> {
        self.peers.get(id).map(|peer| &peer.endpoint)
    }

    /// The endpoints of all sessions, except members of a range.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.peers.iter().filter(|peer| peer.member.is_none()).map(|peer| &peer.endpoint)
    }

    /// Takes the pending requests to the shell.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Takes the pending changes of the kernel's routes, in order.
    pub fn take_kernel(&mut self) -> Vec<(IpNet, Option<KernelRoute>)> {
        std::mem::take(&mut self.kernel)
    }

    /// When [`Engine::tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        let sessions = self.peers.iter().filter_map(|peer| peer.session.deadline()).min();
        let restart = self
            .restart
            .map(|since| since + if self.soft_passed { peer::RESTART.0 } else { peer::RESTART.1 });
        match (sessions, restart) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Handles deadlines that have passed.
    pub fn tick(&mut self, now: Moment) {
        let due: Vec<PeerId> = self
            .peers
            .iter()
            .filter(|peer| peer.session.deadline().is_some_and(|deadline| deadline <= now))
            .map(|peer| peer.id)
            .collect();
        for id in due {
            self.tell(id, Event::Tick, now);
        }
        self.check_restart(now);
    }

    /// The peers for BFD to watch: those with a configured address, and others while they are connected.
    #[must_use]
    pub fn watched(&self) -> Vec<(PeerId, Watched)> {
        let of = |peer: &Peer| {
            let bfd = peer.intent.bfd?;
            let source = peer.endpoint.source;
            if let bgp::intent::Remote::Address { address, interface: None } = &peer.endpoint.remote {
                return Some((peer.id, Watched { remote: *address, link: None, source, bfd }));
            }
            let Ends { remote, link, local, .. } = &peer.links.iter().flatten().next()?.ends;
            let (link, source) = (link.as_ref().map(|link| link.index), Some(*local));
            Some((peer.id, Watched { remote: *remote, link, source, bfd }))
        };
        self.peers.iter().filter_map(of).collect()
    }

    /// Reports BFD's view of a peer: whether it is seen, or `None` if BFD no longer watches it. A peer that is no
    /// longer seen loses its session.
    pub fn seen(&mut self, id: PeerId, seen: Option<bool>, now: Moment) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.seen = seen;
        if seen == Some(false) {
            self.tell(id, Event::BfdDown, now);
        }
    }

    /// Replaces all routes of the host.
    pub fn set_host_routes(&mut self, routes: impl IntoIterator<Item = HostRoute>, now: Moment) {
        let when = moment(now);
        rib!(self, |rib, sink| rib.set_host_routes(routes, when, sink));
    }

    /// Adds a route of the host.
    pub fn add_host_route(&mut self, route: HostRoute, now: Moment) {
        rib!(self, |rib, sink| rib.add_host_route(route, moment(now), sink));
    }

    /// Removes a route of the host.
    pub fn remove_host_route(&mut self, route: &HostRoute, now: Moment) {
        rib!(self, |rib, sink| rib.remove_host_route(route, moment(now), sink));
    }
}

/// Converts a time to that of the tables.
fn moment(now: Moment) -> rib::Moment {
    rib::Moment(u32::try_from(now.as_secs()).unwrap_or(u32::MAX))
}

/// The reason for ending a session that the intent no longer contains.
fn removed() -> Notification {
    Cause::Cease(CeaseReason::PeerDeconfigured).into()
}

/// Whether an address is link-local.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Whether an interface has this name.
fn is_on(link: Option<&Interface>, name: &str) -> bool {
    link.is_some_and(|link| &*link.name == name)
}
