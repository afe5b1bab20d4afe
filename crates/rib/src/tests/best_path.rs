//! Compares the selection with a reference that works the other way round: first the best of each neighbouring AS, then
//! the best of these.

use super::world::*;
use crate::route::{Announcement, BgpRoute, Moment, Path, PeerId, Route, Slot, Source};
use crate::select::select;
use crate::slots::{Resolutions, Slots};
use crate::view::View;
use crate::{Peer, Relation};
use bgp_wire::{Origin, PathId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A path as numbers: local preference, length, neighbour, origin, metric, sender, metric of the next hop, cluster
/// list.
#[derive(Clone, Debug)]
struct Made {
    local_pref: u32,
    length: usize,
    neighbor: u32,
    origin: u8,
    med: Option<u32>,
    sender: u32,
    near: bool,
    originator: Option<u32>,
    clusters: usize,
}

fn made() -> impl Strategy<Value = Made> {
    (
        100..102u32,
        1..3usize,
        65001..65003u32,
        0..2u8,
        proptest::option::of(0..2u32),
        2..8u32,
        any::<bool>(),
        proptest::option::of(1..3u32),
        0..2usize,
    )
        .prop_map(|(local_pref, length, neighbor, origin, med, sender, near, originator, clusters)| {
            Made { local_pref, length, neighbor, origin, med, sender, near, originator, clusters }
        })
}

fn sender(number: u32) -> Peer {
    let relation = if number < 5 { Relation::External } else { Relation::Internal };
    peer(&format!("10.0.0.{number}"), relation)
}

impl Made {
    fn id(&self) -> u32 {
        self.originator.unwrap_or_else(|| sender(self.sender).router_id.0)
    }

    fn is_internal(&self) -> bool {
        self.sender >= 5
    }

    /// Everything but MULTI_EXIT_DISC that decides whether paths are equally good for the kernel.
    fn key(&self) -> impl Ord + use<> {
        (std::cmp::Reverse(self.local_pref), self.length, self.origin, self.is_internal(), !self.near)
    }

    fn with_med(&self) -> impl Ord + use<> {
        (std::cmp::Reverse(self.local_pref), self.length, self.origin, self.med.unwrap_or(0))
    }

    fn tie(&self) -> impl Ord + use<> {
        (self.id(), self.clusters, self.sender)
    }
}

fn reference(all: &[Made]) -> (usize, BTreeSet<usize>) {
    let mut by_neighbor: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, one) in all.iter().enumerate() {
        by_neighbor.entry(one.neighbor).or_default().push(place);
    }
    let mut left = Vec::new();
    for group in by_neighbor.values() {
        let least = group.iter().map(|place| all[*place].with_med()).min();
        left.extend(group.iter().copied().filter(|place| Some(all[*place].with_med()) == least));
    }
    let least = left.iter().map(|place| all[*place].key()).min();
    left.retain(|place| Some(all[*place].key()) == least);
    let best = left.iter().copied().min_by_key(|place| all[*place].tie()).expect("at least one");
    (best, left.into_iter().collect())
}

proptest! {
    #[test]
    fn the_best_path_is_that_of_the_reference(paths in proptest::collection::vec(made(), 1..6)) {
        // One path per sender: a second one would replace the first.
        let unique: BTreeMap<u32, Made> = paths.into_iter().map(|one| (one.sender, one)).collect();
        let all: Vec<Made> = unique.into_values().collect();
        let (mut peers, mut host) = (crate::peer::Peers::default(), crate::host::Host::default());
        host_routes().into_iter().for_each(|route| { host.insert(route); });
        let (mut slots, mut resolutions) = (Slots::default(), Resolutions::default());
        let (mut made_paths, mut store) = (Vec::new(), crate::store::Store::default());
        for one in &all {
            peers.set(PeerId(one.sender), sender(one.sender));
            let mut attributes = attributes(&vec![one.neighbor; one.length], Some(one.local_pref));
            attributes.origin = if one.origin == 0 { Origin::Igp } else { Origin::Incomplete };
            attributes.med = one.med;
            attributes.originator_id = one.originator.map(bgp_wire::RouterId);
            attributes.cluster_list = vec![id("7.7.7.7"); one.clusters].into();
            let next_hop = address(if one.near { "10.0.0.200" } else { "192.0.2.200" }).into();
            let slot = slots.take((next_hop, None), &host, &BTreeMap::new(), &mut resolutions);
            let route = BgpRoute {
                announcement: Announcement { attributes, next_hop },
                link: None,
                slot: Slot(slot),
            };
            let source = Source::Peer(PeerId(one.sender), PathId(0));
            made_paths.push(Path::new(source, store.keep(Route::Bgp(route), |_| {}), Moment(0)));
        }
        let policy = crate::Policy::default();
        let view = View {
            family: bgp_wire::Family::Ipv4,
            store: &store,
            peers: &peers,
            resolutions: &resolutions,
            policy: &policy,
        };
        let selection = select(&made_paths, &view).expect("a usable path");
        let (best, equal) = reference(&all);
        prop_assert_eq!(selection.best, best, "{:?}", all);
        prop_assert_eq!(selection.equal.iter().copied().collect::<BTreeSet<_>>(), equal);
        // Independent of the order.
        made_paths.reverse();
        let reversed = select(&made_paths, &view).expect("a usable path");
        prop_assert_eq!(made_paths.len() - 1 - reversed.best, best);
    }
}
