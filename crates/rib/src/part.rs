//! The table of one family, and the only way in which it changes: outcome before, change, outcome after, difference.

use crate::Sink;
use crate::by_peer::ByPeer;
use crate::difference::{Difference, count_export};
use crate::host::Host;
use crate::peer::{Counts, Export, Peers};
use crate::policy::Policy;
use crate::prefix::Key;
use crate::rib::Identity;
use crate::route::{Mark, Moment, Path, PeerId, Route, Source};
use crate::slots::{Resolutions, Slots};
use crate::store::{RouteId, Store};
use crate::table::{Place, Table};
use crate::view::{Best, Built, Outcome, View};
use bgp_wire::{Family, NextHop};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// State shared by both families.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) peers: Arc<Peers>,
    pub(crate) counts: ByPeer<[Counts; 2]>,
    pub(crate) store: Store,
    pub(crate) slots: Slots,
    pub(crate) resolutions: Resolutions,
    pub(crate) host: Host,
    pub(crate) gateways: BTreeMap<IpAddr, IpAddr>,
    /// Whether nothing is emitted yet, because routes are still being collected after a restart.
    pub(crate) deferred: bool,
    pub(crate) built: Built,
    /// References to routes that are released at the end of the operation.
    pub(crate) returned: Vec<RouteId>,
}

impl Shared {
    /// Interns a route.
    pub(crate) fn keep(&mut self, route: Route) -> RouteId {
        let Self { store, slots, host, gateways, resolutions, .. } = self;
        store.keep(route, |route| match route {
            Route::Bgp(bgp) => {
                let key = (bgp.announcement.next_hop, bgp.link.clone());
                bgp.slot.0 = slots.take(key, host, gateways, resolutions);
            }
            Route::Gateway { via, slot } => {
                slot.0 = slots.take((NextHop::from(*via), None), host, gateways, resolutions);
            }
            Route::Originated | Route::Direct(_) | Route::Host { .. } => {}
        })
    }

    /// Releases references at the end of the operation.
    pub(crate) fn return_later(&mut self, routes: impl IntoIterator<Item = RouteId>) {
        self.returned.extend(routes);
    }

    /// Ends an operation: unreferenced routes are removed.
    pub(crate) fn finish(&mut self) {
        self.built.clear();
        for route in self.returned.drain(..) {
            if let Some(slot) = self.store.give_back(route) {
                self.slots.give_back(slot);
            }
        }
        if self.returned.capacity() > 4096 {
            self.returned = Vec::new();
        }
    }

    pub(crate) fn count(&mut self, peer: Option<PeerId>, family: Family) -> Option<&mut Counts> {
        Some(&mut self.counts.get_mut(peer?)?[family.index()])
    }
}

/// The table of one family.
pub(crate) struct Part<K> {
    pub(crate) family: Family,
    pub(crate) table: Table<K>,
    pub(crate) policy: Arc<Policy>,
}

/// The inputs of decisions before a change that affects many prefixes.
pub(crate) struct Before {
    pub(crate) peers: Arc<Peers>,
    pub(crate) resolutions: Resolutions,
    pub(crate) policy: Arc<Policy>,
}

impl Before {
    pub(crate) fn view<'a>(&'a self, family: Family, store: &'a Store) -> View<'a> {
        View { family, store, peers: &self.peers, resolutions: &self.resolutions, policy: &self.policy }
    }
}

impl<K: Key> Part<K> {
    pub(crate) fn new(family: Family) -> Self {
        Self { family, table: Table::default(), policy: Arc::default() }
    }

    pub(crate) fn view<'a>(&'a self, shared: &'a Shared) -> View<'a> {
        View::new(self.family, shared, &self.policy)
    }

    /// Saves the current inputs, to compare with later ones.
    pub(crate) fn before(&self, shared: &Shared) -> Before {
        Before {
            peers: shared.peers.clone(),
            resolutions: shared.resolutions.clone(),
            policy: self.policy.clone(),
        }
    }

    /// Adds a path of a network, replacing the one from the same source. Returns false if nothing changed.
    pub(crate) fn put(
        &mut self,
        shared: &mut Shared,
        net: &IpNet,
        source: Source,
        route: RouteId,
        now: Moment,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(key) = K::of(*net) else { return false };
        let Self { family, table, policy } = self;
        let family = *family;
        let difference = Difference { family, policy, net, before: None };
        let path = Path::new(source, route, now);
        let is_more = match table.place(key) {
            Place::Free(place) => {
                // Stored first, to give the memory access time until the next one.
                place.put(path);
                let after = View::new(family, shared, policy).outcome(net, &[path]);
                difference.emit(shared, &Outcome::default(), &after, sink);
                true
            }
            Place::Taken(mut place) => {
                if let Some(known) = place.paths_mut().iter_mut().find(|path| path.is_from(source))
                    && known.route == route
                {
                    known.marks = crate::route::Marks::default();
                    return false;
                }
                let before = View::new(family, shared, policy).outcome(net, place.paths());
                let old = place.put(path);
                shared.return_later(old.map(|old| old.route));
                let after = View::new(family, shared, policy).outcome(net, place.paths());
                difference.emit(shared, &before, &after, sink);
                old.is_none()
            }
        };
        shared.store.use_again(route);
        if is_more && let Some(counts) = shared.count(source.peer(), family) {
            counts.imported += 1;
        }
        true
    }

    /// Removes the path from a source. Returns false if there is none.
    pub(crate) fn take(
        &mut self,
        shared: &mut Shared,
        net: &IpNet,
        source: Source,
        sink: &mut impl Sink,
    ) -> bool {
        let Some(key) = K::of(*net) else { return false };
        let Self { family, table, policy } = self;
        let family = *family;
        let Place::Taken(place) = table.place(key) else { return false };
        if !place.paths().iter().any(|path| path.is_from(source)) {
            return false;
        }
        let before = View::new(family, shared, policy).outcome(net, place.paths());
        let (old, left) = place.take(source);
        shared.return_later(old.map(|old| old.route));
        if let Some(counts) = shared.count(source.peer(), family) {
            counts.imported = counts.imported.saturating_sub(1);
        }
        let left = left.as_ref().map_or(&[][..], |left| left.paths());
        let after = View::new(family, shared, policy).outcome(net, left);
        let difference = Difference { family, policy, net, before: None };
        difference.emit(shared, &before, &after, sink);
        true
    }

    /// Removes all paths of a peer, or only those with a mark. Returns their number.
    pub(crate) fn take_all(
        &mut self,
        shared: &mut Shared,
        peer: PeerId,
        mark: Option<Mark>,
        sink: &mut impl Sink,
    ) -> usize {
        let concerned = |path: &Path| path.is_of_peer(peer) && mark.is_none_or(|mark| path.marks.has(mark));
        let mut count = 0;
        for key in self.table.keys(|paths| paths.iter().any(concerned)) {
            let paths = self.table.get(key).iter().filter(|path| concerned(path));
            let sources: smallvec::SmallVec<[Source; 2]> = paths.map(Path::source).collect();
            for source in sources {
                self.take(shared, &key.net(), source, sink);
                count += 1;
            }
        }
        count
    }

    /// Marks all paths of a peer. Returns their number.
    pub(crate) fn mark(&mut self, peer: PeerId, mark: Mark) -> usize {
        let mut count = 0;
        for key in self.table.keys(|paths| paths.iter().any(|path| path.is_of_peer(peer))) {
            for path in self.table.get_mut(key).iter_mut().filter(|path| path.is_of_peer(peer)) {
                path.marks.set(mark);
                count += 1;
            }
        }
        count
    }

    /// Emits the consequences for these prefixes of a change that does not only affect paths.
    pub(crate) fn walk(&mut self, shared: &mut Shared, before: &Before, keys: &[K], sink: &mut impl Sink) {
        for key in keys {
            let (net, paths) = (key.net(), self.table.get(*key));
            let was = before.view(self.family, &shared.store).outcome(&key.net(), paths);
            let is = self.view(shared).outcome(&net, paths);
            let Self { family, policy, .. } = &*self;
            let difference = Difference { family: *family, policy, net: &net, before: Some(before) };
            difference.emit(shared, &was, &is, sink);
        }
    }

    /// The prefixes that use one of these next hops.
    pub(crate) fn keys_with_slots(&self, store: &Store, slots: &[u32]) -> Vec<K> {
        if slots.is_empty() {
            return Vec::new();
        }
        let concerned = |path: &Path| store.get(path.route).slot().is_some_and(|slot| slots.contains(&slot));
        self.table.keys(|paths| paths.iter().any(concerned))
    }

    /// Emits all announcements for one peer.
    pub(crate) fn tell_all(&self, shared: &mut Shared, peer: PeerId, sink: &mut impl Sink) {
        let groups = shared.peers.groups(self.family);
        let Some(group) = groups.iter().find(|group| group.peers.contains(&peer)).cloned() else { return };
        let mut told = 0;
        let Shared { store, peers, resolutions, built, .. } = &mut *shared;
        let view = View { family: self.family, store, peers, resolutions, policy: &self.policy };
        for key in self.table.keys(|_| true) {
            let paths = self.table.get(key);
            let Some(selection) = view.select(paths) else { continue };
            let path = &paths[selection.best];
            let best = Best::of(path);
            if !view.suits(peer, best) {
                continue;
            }
            if let Some(place) = view.announcement(built, &group.export, &key.net(), best) {
                sink.export(peer, key.net(), Some(built.get(place)));
                told += 1;
            }
        }
        if let Some(counts) = shared.count(Some(peer), self.family) {
            counts.exported += told;
            counts.exports += told as u64;
        }
    }

    /// Emits the consequences for one peer of a changed kind of announcement.
    pub(crate) fn retell(&self, shared: &mut Shared, peer: PeerId, old: &Arc<Export>, sink: &mut impl Sink) {
        let groups = shared.peers.groups(self.family);
        let Some(group) = groups.iter().find(|group| group.peers.contains(&peer)).cloned() else { return };
        let Shared { store, peers, resolutions, built, counts, .. } = shared;
        let view = View { family: self.family, store, peers, resolutions, policy: &self.policy };
        for key in self.table.keys(|_| true) {
            let paths = self.table.get(key);
            let Some(selection) = view.select(paths) else { continue };
            let path = &paths[selection.best];
            let best = Best::of(path);
            if !view.suits(peer, best) {
                continue;
            }
            let had = view.announcement(built, old, &key.net(), best);
            let gets = view.announcement(built, &group.export, &key.net(), best);
            let (had, gets) = (had.map(|place| built.get(place)), gets.map(|place| built.get(place)));
            if had != gets {
                sink.export(peer, key.net(), gets);
                count_export(counts, peer, self.family, had.is_some(), gets.is_some());
            }
        }
    }

    /// Emits all routes of the kernel.
    pub(crate) fn kernel_all(&self, shared: &Shared, sink: &mut impl Sink) {
        for key in self.table.keys(|_| true) {
            let outcome = self.view(shared).outcome(&key.net(), self.table.get(key));
            if let Some(route) = &outcome.kernel {
                sink.kernel(key.net(), Some(route));
            }
        }
    }
}
