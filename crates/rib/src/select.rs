//! Selects the best path of a prefix (RFC 4271, 9.1), and the paths that are equally good for the kernel.
//!
//! Candidates are eliminated step by step instead of being compared in pairs: metrics only count between routes of one
//! neighbouring AS, so pairwise comparison is not an order, and the winner would depend on which came first.

use crate::peer::Relation;
use crate::route::{BgpRoute, Path, Route, Source, originator};
use crate::slots::Resolutions;
use crate::view::View;
use bgp::Priority;
use bgp_wire::{Asn, RouterId};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::net::IpAddr;

/// The maximum number of paths over which the kernel balances packets.
pub(crate) const MOST_PATHS: usize = 16;

/// The result of a selection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    /// The index of the best path.
    pub(crate) best: usize,
    /// The indexes of all equally good paths, including the best one.
    pub(crate) equal: SmallVec<[usize; 4]>,
}

/// A BGP path with the values to compare.
struct Candidate<'a> {
    place: usize,
    route: &'a BgpRoute,
    relation: Relation,
    sender: RouterId,
    address: IpAddr,
    path_id: u32,
    metric: u32,
}

/// Selects among the paths of a prefix; `None` if none is usable.
pub(crate) fn select(paths: &[Path], view: &View<'_>) -> Option<Selection> {
    let View { store, peers, resolutions, .. } = *view;
    let normal = view.policy.normal;
    let route = |path: &Path| store.get(path.route);
    let only = |place| Some(Selection { best: place, equal: SmallVec::from_slice(&[place]) });
    if let [path] = paths {
        return if is_usable(route(path), resolutions) { only(0) } else { None };
    }
    let mut usable: SmallVec<[usize; 4]> =
        (0..paths.len()).filter(|place| is_usable(route(&paths[*place]), resolutions)).collect();
    keep_least(&mut usable, |place| Reverse(rank(route(&paths[*place]), normal)));
    let mut candidates: SmallVec<[Candidate<'_>; 4]> = SmallVec::new();
    for place in &usable {
        let path = &paths[*place];
        // There is one local path per kind, and kinds have different ranks.
        let (Route::Bgp(route), Source::Peer(id, path_id)) = (&**store.get(path.route), path.source()) else {
            return only(*place);
        };
        let Some(peer) = peers.get(id) else { continue };
        candidates.push(Candidate {
            place: *place,
            route,
            relation: peer.relation,
            sender: peer.router_id,
            address: peer.address,
            path_id: path_id.0,
            metric: resolutions.get(route.slot.0).metric().unwrap_or(u32::MAX),
        });
    }
    keep_least(&mut candidates, |one| Reverse(one.route.local_preference()));
    keep_least(&mut candidates, |one| one.route.announcement.attributes.as_path.length());
    keep_least(&mut candidates, |one| one.route.announcement.attributes.origin);
    keep_least_discriminated(&mut candidates);
    keep_least(&mut candidates, |one| one.relation.is_internal());
    keep_least(&mut candidates, |one| one.metric);
    let equal = candidates.iter().map(|one| one.place).collect();
    let best = candidates.iter().min_by_key(|one| {
        (
            originator(one.route, one.sender),
            one.route.announcement.attributes.cluster_list.len(),
            one.address,
            one.path_id,
        )
    })?;
    Some(Selection { best: best.place, equal })
}

fn is_usable(route: &Route, resolutions: &Resolutions) -> bool {
    route.slot().is_none_or(|slot| resolutions.get(slot).metric().is_some())
}

/// The preference, and an order among kinds with the same preference: a route that overrides local ones first, and
/// networks to announce before mere gateways.
fn rank(route: &Route, normal: Priority) -> (u32, u8) {
    let second = match route {
        Route::Bgp(_) => 2,
        Route::Originated => 1,
        Route::Gateway { .. } | Route::Direct(_) | Route::Host { .. } => 0,
    };
    (route.preference(normal), second)
}

/// Keeps the items with the smallest key.
fn keep_least<T, K: Ord, const N: usize>(items: &mut SmallVec<[T; N]>, key: impl Fn(&T) -> K)
where
    [T; N]: smallvec::Array<Item = T>,
{
    if items.len() < 2 {
        return;
    }
    if let Some(least) = items.iter().map(&key).min() {
        items.retain(|item| key(item) == least);
    }
}

/// Among routes of each neighbouring AS, keeps those with the smallest MULTI_EXIT_DISC; a missing one is 0.
fn keep_least_discriminated(candidates: &mut SmallVec<[Candidate<'_>; 4]>) {
    if candidates.len() < 2 {
        return;
    }
    let med = |one: &Candidate<'_>| one.route.announcement.attributes.med.unwrap_or(0);
    let mut least: SmallVec<[(Option<Asn>, u32); 4]> = SmallVec::new();
    for one in candidates.iter() {
        let neighbor = one.route.neighbor_as();
        match least.iter_mut().find(|(known, _)| *known == neighbor) {
            Some((_, value)) => *value = (*value).min(med(one)),
            None => least.push((neighbor, med(one))),
        }
    }
    candidates.retain(|one| least.contains(&(one.route.neighbor_as(), med(one))));
}
