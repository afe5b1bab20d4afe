//! Changes by the kernel and other programs: interfaces, addresses, removed routes, nftables, kube-proxy.

use super::backend::{self, IPVS_INTERFACE};
use super::bpf::Bpf;
use super::pace::Step;
use super::start::DataplaneError;
use super::{Loop, others};
use crate::managers::{ASSUMED_MTU, InterfaceNews, News, host_mtu};
use netlink::netfilter::watch::Seen;
use netlink::{Event as KernelEvent, Family, RouteFilter, RouteKind, TABLE_LOCAL};
use rules::Backend;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the host's MTU must differ before Felix restarts because of it.
const MTU_SETTLING: Duration = Duration::from_secs(30);

impl Loop {
    /// Processes the kernel's events.
    pub(super) fn listen(&mut self, now: Instant) -> Result<(), DataplaneError> {
        let mut lost = false;
        let (mut news, mut unread) = (Vec::new(), BTreeSet::new());
        loop {
            let events = self
                .monitor
                .next(Some(Duration::ZERO))
                .map_err(|error| DataplaneError::Kernel(error.to_string()))?;
            if events.is_empty() {
                break;
            }
            for event in events {
                lost |= event == KernelEvent::Lost;
                if let KernelEvent::RouteGone(route) = &event
                    && self.drivers.route_gone(route)
                {
                    self.step(Step::News);
                }
                unread.extend(self.world.interfaces.take(&event, &mut news));
            }
        }
        if lost {
            tracing::warn!("kernel events were lost; reading everything again");
            self.read_network_again();
            self.read_interfaces(now).map_err(|error| DataplaneError::Kernel(error.to_string()))?;
        } else {
            for index in unread {
                self.read_addresses(index, &mut news)
                    .map_err(|error| DataplaneError::Kernel(error.to_string()))?;
            }
        }
        self.take_news(&news, now)?;
        self.listen_to_nftables()
    }

    pub(super) fn take_news(&mut self, news: &[InterfaceNews], now: Instant) -> Result<(), DataplaneError> {
        if news.is_empty() {
            return Ok(());
        }
        self.settings.metrics.observe(
            "felix_int_dataplane_iface_msg_batch_size",
            "Number of interface state messages processed in each batch.",
            backend::number(news.len()),
        );
        self.tell_news(news, now);
        let has_ipvs = self.world.interfaces.index(IPVS_INTERFACE).is_some();
        if has_ipvs != self.has_ipvs && self.writes_by_iptables() {
            return Err(DataplaneError::Restart("kube-proxy began or ceased to use IPVS".to_owned()));
        }
        if self.host_mtu() != self.mtus.host {
            self.mtu_check.get_or_insert(now + MTU_SETTLING);
        } else {
            self.mtu_check = None;
        }
        Ok(())
    }

    /// Passes the news of interfaces to managers and drivers.
    pub(super) fn tell_news(&mut self, news: &[InterfaceNews], now: Instant) {
        if !news.is_empty() {
            self.bpf.iter_mut().for_each(Bpf::moved);
        }
        for one in news {
            match one {
                InterfaceNews::State(name, state) => {
                    tracing::debug!(interface = %name, ?state, "an interface changed");
                    self.drivers.interface(name, *state, self.world.is_workload(name), now);
                    self.roster.hear(&News::Interface(name), now, &mut self.desired);
                }
                InterfaceNews::Addresses(name) if self.world.is_workload(name) => continue,
                InterfaceNews::Addresses(name) => {
                    self.drivers.addresses(name);
                    self.roster.hear(&News::Addresses, now, &mut self.desired);
                }
            }
            self.step(Step::News);
        }
    }

    pub(super) fn host_mtu(&self) -> u32 {
        let interfaces = self.world.interfaces.all();
        host_mtu(
            self.settings.config.mtu_iface_pattern.as_ref(),
            interfaces.map(|interface| (&*interface.name, interface.up, interface.mtu)),
        )
        .unwrap_or(ASSUMED_MTU)
    }

    pub(super) fn writes_by_iptables(&self) -> bool {
        self.world.renderer.backend() == Backend::Iptables
    }

    pub(super) fn listen_to_nftables(&mut self) -> Result<(), DataplaneError> {
        if self.writes_by_iptables() {
            // Before listening: foreign changes up to here have been received, and later ones are counted.
            self.others.wrote();
        }
        let seen = self.others.look().map_err(|error| DataplaneError::Kernel(error.to_string()))?;
        self.heed(&seen)
    }

    /// Starts to listen. Foreign changes between the start and now are detected by counting.
    pub(super) fn begin_to_listen(&mut self) -> Result<(), DataplaneError> {
        let begun = self.others.begin().map_err(|error| DataplaneError::Kernel(error.to_string()))?;
        let Some(others) = begun else { return Ok(()) };
        if !others {
            self.drivers.undisturbed();
        }
        self.heed(&Seen { lost: others, ..Seen::default() })
    }

    /// Has tables read again that other programs changed.
    pub(super) fn heed(&mut self, seen: &Seen) -> Result<(), DataplaneError> {
        let by_nftables = !self.writes_by_iptables();
        for place in self.others.disturbed(seen) {
            self.pace = self.pace.after(Step::News);
            match place.and_then(|place| self.drivers.planes.get_mut(place)) {
                Some(plane) => {
                    plane.filter.rules.invalidate();
                    if by_nftables {
                        plane.filter.sets.invalidate();
                    }
                }
                None => self.drivers.arp.iter_mut().for_each(netfilter::RuleDriver::invalidate),
            }
        }
        let follows = self.settings.config.nftables_mode == Some(api::NFTablesMode::Auto);
        if follows && others::concerns_kube_proxy(seen) {
            self.look_at_kube_proxy()?;
        }
        Ok(())
    }

    pub(super) fn look_at_kube_proxy(&self) -> Result<(), DataplaneError> {
        match netfilter::environment::find_kube_proxy_nftables() {
            Ok(found) if found == self.writes_by_iptables() => {
                Err(DataplaneError::Restart("kube-proxy began or ceased to use nftables".to_owned()))
            }
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "cannot find out what kube-proxy uses");
                Ok(())
            }
        }
    }

    /// Reads all interfaces and addresses.
    pub(super) fn read_interfaces(&mut self, now: Instant) -> Result<(), netlink::Error> {
        let links = self.kernel.links()?;
        let mut local = Vec::new();
        for family in [Family::V4, Family::V6] {
            local.extend(self.kernel.routes(&local_routes(family, None))?);
        }
        let mut news = Vec::new();
        self.world.interfaces.replace(&links, &local, &mut news);
        self.tell_news(&news, now);
        Ok(())
    }

    pub(super) fn read_addresses(
        &mut self,
        index: u32,
        news: &mut Vec<InterfaceNews>,
    ) -> Result<(), netlink::Error> {
        let mut addresses = BTreeSet::new();
        for family in [Family::V4, Family::V6] {
            let routes = self.kernel.routes(&local_routes(family, Some(index)))?;
            addresses.extend(routes.iter().map(|route| route.destination.addr()));
        }
        self.world.interfaces.set_addresses(index, addresses, news);
        Ok(())
    }

    pub(super) fn read_network_again(&mut self) {
        self.drivers.read_network_again();
        self.step(Step::News);
    }
}

/// The routes that determine which addresses are this host's.
fn local_routes(family: Family, device: Option<u32>) -> RouteFilter {
    RouteFilter { table: Some(TABLE_LOCAL), kind: Some(RouteKind::Local), device, ..RouteFilter::all(family) }
}
