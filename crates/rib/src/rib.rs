//! The tables of both families and their changes.

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

/// Our own identity, for detecting loops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Our BGP identifier.
    pub router_id: RouterId,
    /// The clusters that we reflect for.
    pub clusters: Vec<RouterId>,
}

impl Default for Identity {
    fn default() -> Self {
        Self { router_id: RouterId(0), clusters: Vec::new() }
    }
}

/// The consequence of changing a peer that the tables cannot handle themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PeerChange {
    /// Nothing.
    None,
    /// The peer's routes were imported by other rules: it has to send them again.
    Refresh,
}

/// The memory used by the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes used for prefixes and paths.
    pub tables: usize,
    /// The number of different sets of attributes, including local routes.
    pub routes: usize,
}

/// The tables.
pub struct Rib {
    pub(crate) shared: Shared,
    pub(crate) v4: Part<V4>,
    pub(crate) v6: Part<V6>,
}

/// Calls an operation on the table of a prefix's or an address's family.
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
    /// Creates empty tables.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            shared: Shared { identity, ..Shared::default() },
            v4: Part::new(Family::Ipv4),
            v6: Part::new(Family::Ipv6),
        }
    }

    /// Changes our identity. Loops are detected on import, so peers have to send their routes again; sessions with
    /// another identifier are new sessions anyway.
    pub fn set_identity(&mut self, identity: Identity) {
        self.shared.identity = identity;
    }

    /// Emits nothing to the kernel and peers until [`Rib::tell`]: after our own restart, while peers send their routes.
    pub fn defer(&mut self) {
        self.shared.deferred = true;
    }

    /// Ends the effect of [`Rib::defer`]: the kernel and all peers get all their routes.
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

    /// Calls `each` for all desired routes of the kernel.
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

    /// Adds a peer, or changes one whose session continues or is up again. It gets no routes before [`Rib::listen`].
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
            // The peer may have introduced some routes into the AS itself, so all exports to it are evaluated.
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

    /// Starts sending routes of a family to a peer: all present ones, and from now on every change.
    pub fn listen(&mut self, id: PeerId, family: Family, sink: &mut impl Sink) {
        Arc::make_mut(&mut self.shared.peers).listen(id, family, true);
        if !self.shared.deferred {
            with!(self, family, |part, shared| part.tell_all(shared, id, sink));
        }
        self.shared.finish();
    }

    /// Stops sending routes to a peer whose session is down. Its own routes remain until they are removed.
    pub fn unlisten(&mut self, id: PeerId) {
        for family in Family::ALL {
            Arc::make_mut(&mut self.shared.peers).listen(id, family, false);
            if let Some(counts) = self.shared.counts.get_mut(id) {
                counts[family.index()].exported = 0;
            }
        }
    }

    /// Sends everything again to a peer that requests it (RFC 2918).
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

    /// Removes a peer and its routes.
    pub fn remove_peer(&mut self, id: PeerId, sink: &mut impl Sink) {
        self.unlisten(id);
        for family in Family::ALL {
            with!(self, family, |part, shared| part.take_all(shared, id, None, sink));
        }
        self.shared.finish();
        Arc::make_mut(&mut self.shared.peers).remove(id);
        self.shared.counts.remove(id);
    }

    /// Removes all routes of a peer in a family. Returns their number.
    pub fn withdraw_all(&mut self, id: PeerId, family: Family, sink: &mut impl Sink) -> usize {
        let count = with!(self, family, |part, shared| part.take_all(shared, id, None, sink));
        self.shared.finish();
        count
    }

    /// Marks the peer's routes of a family as unconfirmed. Returns their number.
    pub fn mark(&mut self, id: PeerId, family: Family, mark: Mark) -> usize {
        match family {
            Family::Ipv4 => self.v4.mark(id, mark),
            Family::Ipv6 => self.v6.mark(id, mark),
        }
    }

    /// Removes the routes that were not confirmed since [`Rib::mark`]. Returns their number.
    pub fn sweep(&mut self, id: PeerId, family: Family, mark: Mark, sink: &mut impl Sink) -> usize {
        let count = with!(self, family, |part, shared| part.take_all(shared, id, Some(mark), sink));
        self.shared.finish();
        count
    }

    /// Changes the node's policy for a family.
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

    /// Changes the routes that originate from the intent.
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

    /// Adds a route of the host.
    pub fn add_host_route(&mut self, route: HostRoute, now: Moment, sink: &mut impl Sink) {
        let destination = route.destination;
        if self.shared.host.insert(route) {
            self.host_changed(destination, now, sink);
        }
        self.shared.finish();
    }

    /// Removes a route of the host.
    pub fn remove_host_route(&mut self, route: &HostRoute, now: Moment, sink: &mut impl Sink) {
        if self.shared.host.remove(route) {
            self.host_changed(route.destination, now, sink);
        }
        self.shared.finish();
    }

    /// Replaces all routes of the host.
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

    /// The number of prefixes and paths of a family.
    #[must_use]
    pub fn len(&self, family: Family) -> (usize, usize) {
        match family {
            Family::Ipv4 => self.v4.table.len(),
            Family::Ipv6 => self.v6.table.len(),
        }
    }

    /// Whether there are no routes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        Family::ALL.iter().all(|family| self.len(*family).0 == 0)
    }

    /// The memory used by the tables.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory { tables: self.v4.table.memory() + self.v6.table.memory(), routes: self.shared.store.len() }
    }
}
