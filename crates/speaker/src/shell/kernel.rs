//! Routes in the kernel: ours have BIRD's protocol number and are in the main table. Routes of other programs are never
//! touched, and routes that exist are not written again.

use super::host::Host;
use ipnet::IpNet;
use netlink::{Family, Hop, Kernel, Operation, Route, RouteFilter, RouteKind, TABLE_MAIN};
use rib::{KernelRoute, KernelTarget, Link, PROTOCOL};
use std::collections::BTreeMap;

/// The IP in IP device.
const TUNNEL: &str = "tunl0";

/// The fields by which our routes are distinguished.
type RouteKey = (IpNet, Option<u32>);

/// The kernel's side of the tables.
pub(super) struct Routes<K> {
    kernel: K,
    /// Routes of the previous speaker, until they are confirmed or swept.
    adopted: BTreeMap<RouteKey, Route>,
    /// Non-default metrics of routes, so that a change of metric leaves nothing behind.
    metrics: BTreeMap<IpNet, Option<u32>>,
    /// Changes that the kernel refused, to be retried.
    refused: BTreeMap<IpNet, Option<KernelRoute>>,
}

impl<K: Kernel> Routes<K> {
    /// Reads the routes of the previous speaker.
    pub(super) fn open(mut kernel: K) -> netlink::Result<Self> {
        let mut adopted = BTreeMap::new();
        for family in [Family::V4, Family::V6] {
            let filter =
                RouteFilter { table: Some(TABLE_MAIN), protocol: Some(PROTOCOL), ..RouteFilter::all(family) };
            for route in kernel.routes(&filter)? {
                adopted.insert((route.destination, metric_of(&route)), route);
            }
        }
        Ok(Self { kernel, adopted, metrics: BTreeMap::new(), refused: BTreeMap::new() })
    }

    pub(super) fn kernel(&mut self) -> &mut K {
        &mut self.kernel
    }

    /// Whether the previous speaker left routes.
    pub(super) fn has_adopted(&self) -> bool {
        !self.adopted.is_empty()
    }

    /// Whether any change must be retried.
    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Applies changes in order.
    pub(super) fn apply(&mut self, changes: Vec<(IpNet, Option<KernelRoute>)>, host: &Host) {
        let mut operations: Vec<(Operation, IpNet, Option<KernelRoute>)> = Vec::new();
        for (prefix, wanted) in changes {
            self.refused.remove(&prefix);
            match &wanted {
                None => {
                    let metric = self.metrics.remove(&prefix);
                    let old = self.adopted.keys().find(|(known, _)| *known == prefix).copied();
                    if let Some(key) = old {
                        self.adopted.remove(&key);
                    }
                    operations.push((Operation::DeleteRoute(gone(prefix, metric.flatten())), prefix, None));
                }
                Some(route) => match convert(prefix, route, host) {
                    None => {
                        self.refused.insert(prefix, wanted.clone());
                    }
                    Some(new) => {
                        let key = (prefix, metric_of(&new));
                        let is_there = self.adopted.remove(&key).is_some_and(|old| is_same(&old, &new));
                        let former = self.metrics.insert(prefix, new.metric);
                        if !is_there {
                            operations.push((Operation::ReplaceRoute(new.clone()), prefix, wanted.clone()));
                        }
                        if let Some(former) = former.filter(|former| *former != new.metric) {
                            operations.push((Operation::DeleteRoute(gone(prefix, former)), prefix, None));
                        }
                    }
                },
            }
        }
        self.carry_out(operations);
    }

    fn carry_out(&mut self, operations: Vec<(Operation, IpNet, Option<KernelRoute>)>) {
        let plain: Vec<Operation> = operations.iter().map(|(operation, _, _)| operation.clone()).collect();
        let outcomes = self.kernel.apply(&plain);
        for (outcome, (operation, prefix, wanted)) in outcomes.into_iter().zip(operations) {
            let Err(error) = outcome else { continue };
            // If the route is already gone, that is what was wanted.
            if matches!(operation, Operation::DeleteRoute(_)) && error.is_missing() {
                continue;
            }
            tracing::warn!(%error, "a route was refused; trying again");
            self.refused.insert(prefix, wanted);
        }
    }

    /// Retries refused changes.
    pub(super) fn retry(&mut self, host: &Host) {
        let again: Vec<_> = std::mem::take(&mut self.refused).into_iter().collect();
        self.apply(again, host);
    }

    /// Deletes routes of the previous speaker that have not been confirmed.
    pub(super) fn sweep(&mut self) {
        let left = std::mem::take(&mut self.adopted);
        if !left.is_empty() {
            tracing::info!(
                routes = left.len(),
                "deleting routes from before the restart that no peer has confirmed"
            );
        }
        let operations =
            left.into_values().map(|route| (Operation::DeleteRoute(route.clone()), route.destination, None));
        self.carry_out(operations.collect());
    }
}

/// A route to delete: with any next hop, as long as it is ours.
fn gone(prefix: IpNet, metric: Option<u32>) -> Route {
    // The kernel compares the scope of a deletion: "nowhere" (255) matches all for IPv4.
    Route {
        protocol: PROTOCOL,
        metric,
        scope: netlink::Scope::Other(255),
        kind: RouteKind::Other(0),
        ..Route::new(prefix)
    }
}

/// The metric that the kernel reports for a route: IPv6 always has one.
fn metric_of(route: &Route) -> Option<u32> {
    match route.family() {
        Family::V4 => route.metric.filter(|metric| *metric > 0),
        Family::V6 => route.metric.or(Some(1024)),
    }
}

/// Whether an existing route is equivalent to a new one.
fn is_same(old: &Route, new: &Route) -> bool {
    let ways = |route: &Route| -> Vec<(Option<u32>, Option<std::net::IpAddr>)> {
        let mut ways: Vec<_> = match route.hops.is_empty() {
            true => vec![(route.device, route.gateway)],
            false => route.hops.iter().map(|hop| (Some(hop.device), hop.gateway)).collect(),
        };
        ways.sort_unstable();
        ways
    };
    old.kind == new.kind
        && (new.kind != RouteKind::Unicast || (old.onlink == new.onlink && ways(old) == ways(new)))
}

/// Converts a route to the kernel's form; `None` if its tunnel does not exist yet.
fn convert(prefix: IpNet, wanted: &KernelRoute, host: &Host) -> Option<Route> {
    let mut route = Route { protocol: PROTOCOL, metric: wanted.metric, ..Route::new(prefix) };
    let hops = match &wanted.target {
        KernelTarget::Blackhole => {
            route.kind = RouteKind::Blackhole;
            return Some(route);
        }
        KernelTarget::Via(hops) => hops,
    };
    let mut ways = Vec::new();
    for hop in hops {
        let (device, onlink) = match &hop.link {
            Link::Interface(interface) => (interface.index, false),
            Link::IpIpTunnel => (host.index_of(TUNNEL)?, true),
        };
        ways.push(Hop { device, gateway: Some(hop.gateway), onlink });
    }
    match ways.as_slice() {
        [only] => {
            route.device = Some(only.device);
            route.gateway = only.gateway;
            route.onlink = only.onlink;
        }
        _ => route.hops = ways,
    }
    Some(route)
}
