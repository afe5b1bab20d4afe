//! Handles events of the host's network: routes of other programs, interfaces, and deleted routes of ours.

use super::Speaker;
use super::host::{Change, Host};
use std::time::Duration;

impl Speaker {
    pub(super) fn host_events(&mut self) {
        let events = match self.monitor.next(Some(Duration::ZERO)) {
            Ok(events) => events,
            Err(error) => {
                tracing::warn!(%error, "changes of the host's network cannot be read");
                return;
            }
        };
        let now = self.now();
        for event in events {
            self.heal(&event);
            match self.host.take(&event) {
                Some(changes) => {
                    for change in changes {
                        match change {
                            Change::Add(route) => self.engine.add_host_route(route, now),
                            Change::Remove(route) => self.engine.remove_host_route(&route, now),
                        }
                    }
                }
                None => self.read_host(self.host.ignored().to_vec()),
            }
        }
    }

    /// Reads the host's whole network.
    pub(super) fn read_host(&mut self, ignored: Vec<bgp::InterfacePattern>) {
        let now = self.now();
        match Host::read(self.routes.kernel(), ignored) {
            Ok(host) => {
                self.host = host;
                self.engine.set_host_routes(self.host.all(), now);
            }
            Err(error) => tracing::warn!(%error, "the network of this host cannot be read"),
        }
    }

    /// Restores a route of ours that another program deleted.
    pub(super) fn heal(&mut self, event: &netlink::Event) {
        let netlink::Event::RouteGone(route) = event else { return };
        if route.protocol != rib::PROTOCOL || route.table != netlink::TABLE_MAIN {
            return;
        }
        let query = rib::Query {
            destination: Some(rib::Destination::Exact(route.destination)),
            best_only: true,
            ..rib::Query::default()
        };
        let mut wanted = None;
        let family = bgp_wire::Family::of_prefix(&route.destination);
        for shown in self.engine.rib().routes(family, &query) {
            wanted = shown.kernel;
        }
        let metric = |metric: Option<u32>| metric.filter(|metric| *metric > 0);
        if let Some(wanted) = wanted.filter(|wanted| metric(wanted.metric) == metric(route.metric)) {
            self.routes.apply(vec![(route.destination, Some(wanted))], &self.host);
        }
    }
}
