//! The tables of both families and the changes that they take.

use crate::host::HostRoute;
use crate::part::{Part, Shared};
use crate::peer::{Counts, Peer};
use crate::policy::Policy;
use crate::prefix::{V4, V6};
use crate::route::{Announcement, Mark, Moment, PeerId, Route, Slot, Source};
use crate::{KernelRoute, Sink};
use bgp_wire::{Family, RouterId};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Who we are, for loops to be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Our identifier.
    pub router_id: RouterId,
    /// The clusters that we reflect for.
    pub clusters: Vec<RouterId>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { router_id: RouterId(0), clusters: Vec::new() }
    }
}

/// What a changed peer asks for beyond what the tables do themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PeerChange {
    /// Nothing.
    None,
    /// The peer's routes were taken by other rules: it has to send them again.
    Refresh,
}

/// What the tables take, in bytes, and how much they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Of prefixes and paths.
    pub tables: usize,
    /// Different sets of attributes, local routes among them.
    pub routes: usize,
}

/// The tables.
pub struct Rib {
    pub(crate) shared: Shared,
    pub(crate) v4: Part<V4>,
    pub(crate) v6: Part<V6>,
}

/// Does the same with the table of a prefix's or a family's addresses.
macro_rules! with {
    ($rib:ident, $family:expr, |$part:ident, $shared:ident| $body:expr) => {{
        let Self { shared: $shared, v4, v6 } = $rib;
        match $family {
            Family::Ipv4 => {
                let $part = v4;
                $body
            }
            Family::Ipv6 => {
                let $part = v6;
                $body
            }
        }
    }};
}

impl Rib {
    /// Empty tables.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            shared: Shared { identity, ..Shared::default() },
            v4: Part::new(Family::Ipv4),
            v6: Part::new(Family::Ipv6),
        }
    }

    /// Changes who we are. Loops are judged when routes come in: peers have to send theirs again, and sessions with another
    /// identifier are other sessions anyway.
    pub fn set_identity(&mut self, identity: Identity) {
        self.shared.identity = identity;
    }

    /// Says nothing to kernel and peers until [`Rib::tell`]: after a restart of our own, while peers send what they have.
    pub fn defer(&mut self) {
        self.shared.deferred = true;
    }

    /// Ends what [`Rib::defer`] began: the kernel and all peers get everything that they should have.
    pub fn tell(&mut self, sink: &mut impl Sink) {
        if !std::mem::replace(&mut self.shared.deferred, false) {
            return;
        }
        self.v4.kernel_all(&self.shared, sink);
        self.v6.kernel_all(&self.shared, sink);
        for family in Family::ALL {
            let groups = self.shared.peers.groups(family);
            let peers: BTreeSet<PeerId> =
                groups.iter().flat_map(|group| group.peers.iter().copied()).collect();
            for peer in peers {
                with!(self, family, |part, shared| part.tell_all(shared, peer, sink));
            }
        }
        self.shared.finish();
    }

    /// All routes that the kernel should have.
    pub fn kernel_routes(&self, mut each: impl FnMut(IpNet, &KernelRoute)) {
        struct Each<F>(F);
        impl<F: FnMut(IpNet, &KernelRoute)> Sink for Each<F> {
            fn kernel(&mut self, prefix: IpNet, route: Option<&KernelRoute>) {
                if let Some(route) = route {
                    (self.0)(prefix, route);
                }
            }
            fn export(&mut self, _: PeerId, _: IpNet, _: Option<&Arc<Announcement>>) {}
        }
        let mut each = Each(&mut each);
        self.v4.kernel_all(&self.shared, &mut each);
        self.v6.kernel_all(&self.shared, &mut each);
    }

    /// Adds a peer, or changes one whose session goes on or came back. It gets no routes before [`Rib::listen`].
    pub fn set_peer(&mut self, id: PeerId, peer: Peer, sink: &mut impl Sink) -> PeerChange {
        if self.shared.counts.get(id).is_none() {
            self.shared.counts.insert(id, Default::default());
        }
        let Some(known) = self.shared.peers.known(id).cloned() else {
            Arc::make_mut(&mut self.shared.peers).set(id, peer);
            return PeerChange::None;
        };
        let refresh = known.peer.import != peer.import || known.peer.relation != peer.relation;
        let export_changed = known.peer.export != peer.export;
        let ties_changed = known.peer.router_id != peer.router_id
            || known.peer.address != peer.address
            || known.peer.relation != peer.relation;
        if export_changed {
            let old = Arc::new(known.peer.export.clone());
            let with_export = Peer { export: peer.export.clone(), ..(*known.peer).clone() };
            Arc::make_mut(&mut self.shared.peers).set(id, with_export);
            if !self.shared.deferred {
                self.v4.retell(&mut self.shared, id, &old, sink);
                self.v6.retell(&mut self.shared, id, &old, sink);
            }
            self.shared.finish();
        }
        let (before4, before6) = (self.v4.before(&self.shared), self.v6.before(&self.shared));
        Arc::make_mut(&mut self.shared.peers).set(id, peer);
        if ties_changed {
            // Who brought a route into the system may be who gets it, so a peer that listens is asked about all.
            let listens = known.listens.contains(&true);
            let concerned =
                |paths: &[crate::route::Path]| listens || paths.iter().any(|path| path.is_of_peer(id));
            let keys = self.v4.table.keys(concerned);
            self.v4.walk(&mut self.shared, &before4, &keys, sink);
            let keys = self.v6.table.keys(concerned);
            self.v6.walk(&mut self.shared, &before6, &keys, sink);
        }
        self.shared.finish();
        if refresh { PeerChange::Refresh } else { PeerChange::None }
    }

    /// The session with a peer is up for a family: it gets everything, and from now on every change.
    pub fn listen(&mut self, id: PeerId, family: Family, sink: &mut impl Sink) {
        Arc::make_mut(&mut self.shared.peers).listen(id, family, true);
        if !self.shared.deferred {
            with!(self, family, |part, shared| part.tell_all(shared, id, sink));
        }
        self.shared.finish();
    }

    /// The session is down: the peer gets nothing any more. Its own routes stay until they are taken away.
    pub fn unlisten(&mut self, id: PeerId) {
        for family in Family::ALL {
            Arc::make_mut(&mut self.shared.peers).listen(id, family, false);
            if let Some(counts) = self.shared.counts.get_mut(id) {
                counts[family.index()].exported = 0;
            }
        }
    }

    /// Sends everything again to a peer that asks for it (RFC 2918).
    pub fn refresh(&mut self, id: PeerId, family: Family, sink: &mut impl Sink) {
        if self.shared.deferred {
            return;
        }
        if let Some(counts) = self.shared.counts.get_mut(id) {
            counts[family.index()].exported = 0;
        }
        with!(self, family, |part, shared| part.tell_all(shared, id, sink));
        self.shared.finish();
    }

    /// Forgets a peer and its routes.
    pub fn remove_peer(&mut self, id: PeerId, sink: &mut impl Sink) {
        self.unlisten(id);
        for family in Family::ALL {
            with!(self, family, |part, shared| part.take_all(shared, id, None, sink));
        }
        self.shared.finish();
        Arc::make_mut(&mut self.shared.peers).remove(id);
        self.shared.counts.remove(id);
    }

    /// Takes all routes of a peer in a family away. How many there were.
    pub fn withdraw_all(&mut self, id: PeerId, family: Family, sink: &mut impl Sink) -> usize {
        let count = with!(self, family, |part, shared| part.take_all(shared, id, None, sink));
        self.shared.finish();
        count
    }

    /// From now on the peer's routes of a family wait to be confirmed. How many there are.
    pub fn mark(&mut self, id: PeerId, family: Family, mark: Mark) -> usize {
        match family {
            Family::Ipv4 => self.v4.mark(id, mark),
            Family::Ipv6 => self.v6.mark(id, mark),
        }
    }

    /// Takes away what was not confirmed since [`Rib::mark`]. How many there were.
    pub fn sweep(&mut self, id: PeerId, family: Family, mark: Mark, sink: &mut impl Sink) -> usize {
        let count = with!(self, family, |part, shared| part.take_all(shared, id, Some(mark), sink));
        self.shared.finish();
        count
    }

    /// Changes what the node says about a family.
    pub fn set_policy(&mut self, family: Family, policy: Policy, now: Moment, sink: &mut impl Sink) {
        let current = match family {
            Family::Ipv4 => &self.v4.policy,
            Family::Ipv6 => &self.v6.policy,
        };
        if **current == policy {
            return;
        }
        let (before4, before6) = (self.v4.before(&self.shared), self.v6.before(&self.shared));
        let policy = Arc::new(policy);
        let old = match family {
            Family::Ipv4 => std::mem::replace(&mut self.v4.policy, policy.clone()),
            Family::Ipv6 => std::mem::replace(&mut self.v6.policy, policy.clone()),
        };
        self.shared.gateways = self.v4.policy.gateways().chain(self.v6.policy.gateways()).collect();
        let moved = self.look_again(None);
        let keys4 = match family {
            Family::Ipv4 => self.v4.table.keys(|_| true),
            Family::Ipv6 => self.v4.keys_with_slots(&self.shared.store, &moved),
        };
        self.v4.walk(&mut self.shared, &before4, &keys4, sink);
        let keys6 = match family {
            Family::Ipv6 => self.v6.table.keys(|_| true),
            Family::Ipv4 => self.v6.keys_with_slots(&self.shared.store, &moved),
        };
        self.v6.walk(&mut self.shared, &before6, &keys6, sink);
        self.change_local(&old, &policy, now, sink);
        self.shared.finish();
    }

    /// Routes that the intent has.
    fn change_local(&mut self, old: &Policy, new: &Policy, now: Moment, sink: &mut impl Sink) {
        let (had, has) = (old.originated(), new.originated());
        for net in had.difference(&has) {
            self.take_local(*net, Source::Originated, sink);
        }
        for net in has.difference(&had) {
            self.put_local(*net, Source::Originated, Route::Originated, now, sink);
        }
        for (peer, via) in old.gateways() {
            if !new.gateways().any(|one| one == (peer, via)) {
                self.take_local(peer.into(), Source::Gateway, sink);
            }
        }
        for (peer, via) in new.gateways() {
            if !old.gateways().any(|one| one == (peer, via)) {
                let route = Route::Gateway { via, slot: Slot::default() };
                self.put_local(peer.into(), Source::Gateway, route, now, sink);
            }
        }
    }

    fn put_local(&mut self, net: IpNet, source: Source, route: Route, now: Moment, sink: &mut impl Sink) {
        let (route, net) = (self.shared.keep(route), net.trunc());
        match net {
            IpNet::V4(_) => self.v4.put(&mut self.shared, &net, source, route, now, sink),
            IpNet::V6(_) => self.v6.put(&mut self.shared, &net, source, route, now, sink),
        };
        self.shared.return_later([route]);
    }

    fn take_local(&mut self, net: IpNet, source: Source, sink: &mut impl Sink) {
        let net = net.trunc();
        match net {
            IpNet::V4(_) => self.v4.take(&mut self.shared, &net, source, sink),
            IpNet::V6(_) => self.v6.take(&mut self.shared, &net, source, sink),
        };
    }

    /// The host has one route more.
    pub fn add_host_route(&mut self, route: HostRoute, now: Moment, sink: &mut impl Sink) {
        let destination = route.destination;
        if self.shared.host.insert(route) {
            self.host_changed(destination, now, sink);
        }
        self.shared.finish();
    }

    /// The host has one route less.
    pub fn remove_host_route(&mut self, route: &HostRoute, now: Moment, sink: &mut impl Sink) {
        if self.shared.host.remove(route) {
            self.host_changed(route.destination, now, sink);
        }
        self.shared.finish();
    }

    /// The host has these routes and no others.
    pub fn set_host_routes(
        &mut self,
        routes: impl IntoIterator<Item = HostRoute>,
        now: Moment,
        sink: &mut impl Sink,
    ) {
        let had: BTreeSet<HostRoute> = self.shared.host.all().cloned().collect();
        let has: BTreeSet<HostRoute> = routes.into_iter().collect();
        for route in has.difference(&had) {
            self.add_host_route(route.clone(), now, sink);
        }
        for route in had.difference(&has) {
            self.remove_host_route(route, now, sink);
        }
    }

    fn host_changed(&mut self, destination: IpNet, now: Moment, sink: &mut impl Sink) {
        let before4 = self.v4.before(&self.shared);
        let before6 = self.v6.before(&self.shared);
        let moved = self.look_again(Some(destination));
        if !moved.is_empty() {
            let keys = self.v4.keys_with_slots(&self.shared.store, &moved);
            self.v4.walk(&mut self.shared, &before4, &keys, sink);
            let keys = self.v6.keys_with_slots(&self.shared.store, &moved);
            self.v6.walk(&mut self.shared, &before6, &keys, sink);
        }
        for (source, route) in [
            (Source::Direct, self.shared.host.direct(destination).map(HostRoute::as_route)),
            (Source::Host, self.shared.host.learned(destination).map(HostRoute::as_route)),
        ] {
            match route {
                Some(route) => self.put_local(destination, source, route, now, sink),
                None => self.take_local(destination, source, sink),
            }
        }
    }

    fn look_again(&mut self, within: Option<IpNet>) -> Vec<u32> {
        let Shared { slots, host, gateways, resolutions, .. } = &mut self.shared;
        slots.look_again(within, host, gateways, resolutions)
    }

    /// Figures of a peer in a family.
    #[must_use]
    pub fn counts(&self, id: PeerId, family: Family) -> Counts {
        self.shared.counts.get(id).map(|counts| counts[family.index()]).unwrap_or_default()
    }

    /// How many prefixes and paths a family has.
    #[must_use]
    pub fn len(&self, family: Family) -> (usize, usize) {
        match family {
            Family::Ipv4 => self.v4.table.len(),
            Family::Ipv6 => self.v6.table.len(),
        }
    }

    /// Whether there is no route at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Family::ALL.iter().all(|family| self.len(*family).0 == 0)
    }

    /// What the tables take.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory { tables: self.v4.table.memory() + self.v6.table.memory(), routes: self.shared.store.len() }
    }
}
