//! Queries of the tables, for people and their tools.

use crate::host::{FAR, Resolution};
use crate::kernel::{KernelRoute, KernelTarget};
use crate::part::Part;
use crate::prefix::Key;
use crate::rib::Rib;
use crate::route::{Announcement, Interface, Mark, Moment, PeerId, Route, Source};
use crate::view::{Best, Built};
use bgp_wire::Family;
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;

/// A selection of routes.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Only matching destinations; all if absent.
    pub destination: Option<Destination>,
    /// Only best routes.
    pub best_only: bool,
    /// Only routes announced to this peer.
    pub exported_to: Option<PeerId>,
    /// Only best routes that are not announced to this peer.
    pub not_exported_to: Option<PeerId>,
}

/// How destinations are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// This network itself.
    Exact(IpNet),
    /// The most specific network that contains this one.
    For(IpNet),
    /// Networks inside this one.
    In(IpNet),
}

/// A path of a prefix.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The prefix.
    pub prefix: IpNet,
    /// Its source.
    pub source: Source,
    /// The route.
    pub route: Arc<Route>,
    /// When it was received.
    pub since: Moment,
    /// Whether it has yet to be confirmed after the peer's restart.
    pub stale: bool,
    /// Whether it is the best path.
    pub best: bool,
    /// The preference of its kind.
    pub preference: u32,
    /// The resolved next hop.
    pub hop: Option<ShownHop>,
    /// On the best path: the desired kernel route of the prefix.
    pub kernel: Option<KernelRoute>,
}

/// A resolved next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownHop {
    /// The neighbour.
    pub gateway: IpAddr,
    /// The link.
    pub interface: Interface,
    /// The distance, if known.
    pub metric: Option<u32>,
}

impl Shown {
    /// Whether the kernel balances packets between several next hops.
    #[must_use]
    pub fn is_multipath(&self) -> bool {
        let target = self.kernel.as_ref().map(|route| &route.target);
        matches!(target, Some(KernelTarget::Via(hops)) if hops.len() > 1)
    }
}

impl Rib {
    /// The selected routes of a family, sorted by prefix, the best of each prefix first.
    #[must_use]
    pub fn routes(&self, family: Family, query: &Query) -> Vec<Shown> {
        match family {
            Family::Ipv4 => self.shown(&self.v4, query),
            Family::Ipv6 => self.shown(&self.v6, query),
        }
    }

    /// The announcement of a prefix to a peer.
    #[must_use]
    pub fn exported(&self, peer: PeerId, prefix: IpNet) -> Option<Arc<Announcement>> {
        match prefix {
            IpNet::V4(_) => self.exported_in(&self.v4, peer, prefix),
            IpNet::V6(_) => self.exported_in(&self.v6, peer, prefix),
        }
    }

    fn exported_in<K: Key>(&self, part: &Part<K>, peer: PeerId, prefix: IpNet) -> Option<Arc<Announcement>> {
        if self.shared.deferred {
            return None;
        }
        let groups = self.shared.peers.groups(part.family);
        let group = groups.iter().find(|group| group.peers.contains(&peer))?;
        let view = part.view(&self.shared);
        let paths = part.table.get(K::of(prefix)?);
        let path = &paths[view.select(paths)?.best];
        let best = Best::of(path);
        if !view.suits(peer, best) {
            return None;
        }
        let mut built = Built::default();
        let place = view.announcement(&mut built, &group.export, &prefix, best)?;
        Some(built.get(place).clone())
    }

    fn shown<K: Key>(&self, part: &Part<K>, query: &Query) -> Vec<Shown> {
        let keys = match query.destination {
            Some(Destination::Exact(net)) => K::of(net).into_iter().collect(),
            Some(Destination::For(net)) => {
                let fits = |key: &K| key.net().contains(&net) && !part.table.get(*key).is_empty();
                K::containing(net.addr()).find(fits).into_iter().collect()
            }
            Some(Destination::In(net)) => {
                let mut keys = part.table.keys(|_| true);
                keys.retain(|key| net.contains(&key.net()));
                keys
            }
            None => part.table.keys(|_| true),
        };
        let mut shown = Vec::new();
        for key in keys {
            let exported = |peer: Option<PeerId>| peer.map(|peer| self.exported(peer, key.net()).is_some());
            if exported(query.exported_to) == Some(false) || exported(query.not_exported_to) == Some(true) {
                continue;
            }
            let best_only = query.best_only || query.exported_to.is_some() || query.not_exported_to.is_some();
            self.show_prefix(part, key, best_only, &mut shown);
        }
        shown
    }

    fn show_prefix<K: Key>(&self, part: &Part<K>, key: K, best_only: bool, shown: &mut Vec<Shown>) {
        let view = part.view(&self.shared);
        let paths = part.table.get(key);
        let best = view.select(paths).map(|selection| selection.best);
        let first = shown.len();
        for (place, path) in paths.iter().enumerate() {
            let route = self.shared.store.get(path.route);
            let is_best = best == Some(place);
            if best_only && !is_best {
                continue;
            }
            let hop = route.slot().and_then(|slot| match self.shared.resolutions.get(slot) {
                Resolution::Found { gateway, interface, metric } => Some(ShownHop {
                    gateway: *gateway,
                    interface: interface.clone(),
                    metric: Some(*metric).filter(|metric| *metric != FAR),
                }),
                Resolution::Unknown => None,
            });
            shown.push(Shown {
                prefix: key.net(),
                source: path.source(),
                route: route.clone(),
                since: path.since,
                stale: path.marks.has(Mark::Restart),
                best: is_best,
                preference: route.preference(part.policy.normal),
                hop,
                kernel: is_best.then(|| view.outcome(&key.net(), paths).kernel).flatten(),
            });
        }
        shown[first..].sort_by_key(|one| (!one.best, std::cmp::Reverse(one.preference), one.source));
    }
}
