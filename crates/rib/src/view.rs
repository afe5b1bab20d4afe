//! All inputs of decisions about a prefix at one moment. Two views, before and after a change, give the difference.

use crate::export::{Offer, Verdict};
use crate::host::Resolution;
use crate::kernel::{self, KernelRoute};
use crate::part::Shared;
use crate::peer::{Export, Peers};
use crate::policy::Policy;
use crate::route::{Announcement, Path, PeerId, Route, Source, originator};
use crate::select::{Selection, select};
use crate::slots::Resolutions;
use crate::store::{RouteId, Store};
use bgp_wire::Family;
use hashbrown::HashMap;
use ipnet::IpNet;
use std::sync::Arc;

#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) family: Family,
    pub(crate) store: &'a Store,
    pub(crate) peers: &'a Peers,
    pub(crate) resolutions: &'a Resolutions,
    pub(crate) policy: &'a Policy,
}

/// The best path of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Best {
    pub(crate) route: RouteId,
    pub(crate) source: Source,
}

impl Best {
    pub(crate) fn of(path: &Path) -> Self {
        Self { route: path.route, source: path.source() }
    }
}

/// The consequences of the paths of a prefix. Its route is kept until the end of the operation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) best: Option<Best>,
    pub(crate) kernel: Option<KernelRoute>,
}

/// Announcements built during one operation. Nothing is freed while it lasts, so addresses serve as identities.
#[derive(Debug, Default)]
pub(crate) struct Built {
    all: Vec<(BuiltFor, Arc<Announcement>)>,
    /// Indexes of all but the first few. An UPDATE has few, and comparing them is cheaper than hashing.
    places: HashMap<BuiltFor, usize>,
}

/// The address of the export, the route, the address of the policy, the sender, and the verdict.
type BuiltFor = (usize, RouteId, usize, Option<PeerId>, Verdict);

/// The index of an announcement of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// This many are compared before the map is used.
const FEW: usize = 4;

impl Built {
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        if self.all.capacity() > 4096 {
            *self = Self::default();
        } else {
            self.places.clear();
        }
    }

    fn place(&mut self, key: BuiltFor, build: impl FnOnce(&Verdict) -> Announcement) -> Place {
        let first = self.all.iter().take(FEW).position(|(known, _)| *known == key);
        if let Some(place) =
            first.or_else(|| (self.all.len() > FEW).then(|| self.places.get(&key).copied()).flatten())
        {
            return Place(place);
        }
        let announcement = Arc::new(build(&key.4));
        let place = self.all.len();
        if place >= FEW {
            self.places.insert(key.clone(), place);
        }
        self.all.push((key, announcement));
        Place(place)
    }

    pub(crate) fn get(&self, place: Place) -> &Arc<Announcement> {
        &self.all[place.0].1
    }
}

impl<'v> View<'v> {
    /// The current inputs, from the shared state and one family's policy.
    pub(crate) fn new(family: Family, shared: &'v Shared, policy: &'v Policy) -> Self {
        Self { family, store: &shared.store, peers: &shared.peers, resolutions: &shared.resolutions, policy }
    }

    pub(crate) fn select(&self, paths: &[Path]) -> Option<Selection> {
        select(paths, self)
    }

    pub(crate) fn outcome(&self, prefix: &IpNet, paths: &[Path]) -> Outcome {
        let Some(selection) = self.select(paths) else { return Outcome::default() };
        let kernel = kernel::desired(prefix, paths, &selection, self);
        Outcome { best: Some(Best::of(&paths[selection.best])), kernel }
    }

    /// The announcement for peers of this kind, before considering individual peers.
    pub(crate) fn announcement(
        &self,
        built: &mut Built,
        to: &Arc<Export>,
        prefix: &IpNet,
        best: Best,
    ) -> Option<Place> {
        let sender = match best.source.peer() {
            // The sender of a route that is about to be removed may already be gone.
            Some(id) => Some(self.peers.get(id)?),
            None => None,
        };
        let route = self.store.get(best.route);
        let interface = self.interface(route);
        let offer = Offer { prefix, family: self.family, route, interface, sender };
        let verdict = offer.judge(to, self.policy)?;
        let key = (
            Arc::as_ptr(to) as usize,
            best.route,
            std::ptr::from_ref(self.policy) as usize,
            best.source.peer(),
            verdict,
        );
        Some(built.place(key, |verdict| offer.build(to, self.policy, verdict)))
    }

    /// Whether a particular peer may get the route: not its own one, and not one that it introduced into the AS.
    pub(crate) fn suits(&self, id: PeerId, best: Best) -> bool {
        if best.source.peer() == Some(id) {
            return false;
        }
        let (Route::Bgp(route), Some(sender)) = (&**self.store.get(best.route), best.source.peer()) else {
            return true;
        };
        let (Some(sender), Some(peer)) = (self.peers.get(sender), self.peers.get(id)) else { return true };
        let is_inside = sender.relation.is_internal() && peer.relation.is_internal();
        !(is_inside && originator(route, sender.router_id) == peer.router_id)
    }

    /// The name of the outgoing interface of a route.
    pub(crate) fn interface<'a>(&'a self, route: &'a Route) -> Option<&'a str> {
        match route {
            Route::Direct(interface) | Route::Host { interface: Some(interface), .. } => {
                Some(&interface.name)
            }
            Route::Host { interface: None, .. } | Route::Originated => None,
            Route::Bgp(_) | Route::Gateway { .. } => match self.resolutions.get(route.slot()?) {
                Resolution::Found { interface, .. } => Some(&interface.name),
                Resolution::Unknown => None,
            },
        }
    }
}
