//! One round: brings the managers' desired state into the kernel, in an order in which every step finds what it needs.
//!
//! 1. policy for programs of the eBPF dataplane that judge packets already; managers write what changed, and drivers take it;
//! 2. settings of the kernel and of workloads' interfaces, and their bandwidth limits;
//! 3. sets are created and filled, because rules refer to them;
//! 4. tunnel devices, their neighbours, addresses, routes; WireGuard;
//! 5. programs of the eBPF dataplane, where it is used; rules; then leftovers of ours in other packet filters; counting
//!    of connections, which the kernel supports once rules use connection tracking;
//! 6. sets that no rule refers to any more are destroyed;
//! 7. endpoints are reported, because now their policies are in place, and neighbours are answered for them.
//!
//! A part that fails does not stop the others, and is retried.

use super::Loop;
use super::answers::{self, Place, Places};
use super::bpf::Bpf;
use crate::managers::{self, News};
use messages::{FromDataplane, HostEndpoint, InterfaceName, ProfileName, Text, TierInfo, WorkloadEndpoint};
use netfilter::driver::RuleDriver;
use netfilter::refused::Refused;
use netlink::{MacAddress, sysctl};
use routing::routes::Outcome;
use rules::names::EndpointChain;
use rules::tree::{ChainName, IpVersion};
use rules::{Backend, Direction};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The result of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The failures, as text.
    pub(super) failures: Vec<String>,
    /// Whether sets or rules are among the failures.
    pub(super) rules_failed: bool,
    /// When to call again even if nothing changes.
    pub(super) again_in: Option<Duration>,
}

impl Round {
    pub(super) fn again(&mut self, when: Option<Duration>) {
        self.again_in = self.again_in.into_iter().chain(when).min();
    }

    fn note(&mut self, what: &str, outcome: Outcome) {
        self.again(outcome.again_in);
        self.failures.extend(outcome.failures.into_iter().map(|reason| format!("{what}: {reason}")));
    }

    fn failed(&mut self, what: &str, error: impl std::fmt::Display) {
        self.failures.push(format!("{what}: {error}"));
    }
}

impl Loop {
    /// Brings the kernel to the managers' desired state.
    pub(super) fn round(&mut self, now: Instant) -> Round {
        let mut round = Round::default();
        self.hurry_policy(now, &mut round);
        self.write_desired(now);
        round.again(self.world.wake_at.map(|at| at.saturating_duration_since(now)));
        self.prepare_kernel(now, &mut round);
        self.set_interfaces_up(now, &mut round);
        self.limit_bandwidth(&mut round);
        let sets_failed = self.fill_sets(now, &mut round);
        round.note("tunnel device", self.drivers.devices.apply(&mut *self.kernel));
        self.make_routes(now, &mut round);
        self.run_programs(now, &mut round);
        let rules_failed = self.write_rules(&sets_failed, now, &mut round);
        round.rules_failed = !rules_failed.is_empty() || !sets_failed.is_empty();
        self.rules_are_written |= !round.rules_failed;
        // Until the new rules are in place, the old ones are the only protection.
        if !round.rules_failed {
            round.again(self.leftovers.remove(now));
            if self.bpf.as_ref().is_some_and(Bpf::is_on) {
                round.again(self.kube_proxy.remove(now));
            }
        }
        self.count_connections();
        self.destroy_sets(&rules_failed, &mut round);
        self.look_at_refusals();
        // Without the rules an endpoint may be incomplete: it is not reported as up.
        if !round.rules_failed {
            self.report();
            self.answer_neighbours(&mut round);
        }
        self.figures.copy(&self.drivers.planes, self.drivers.arp.as_ref(), self.world.renderer.backend());
        round
    }

    /// Has managers write what changed, and drivers take it.
    pub(super) fn write_desired(&mut self, now: Instant) {
        self.roster.write(&mut self.world, now, &mut self.desired);
        if !self.world.changed.workloads.is_empty() || self.world.changed.hosts {
            self.bpf.iter_mut().for_each(Bpf::moved);
        }
        self.drivers.take(&mut self.desired);
    }

    /// One-time work after the calculation's first complete result.
    fn prepare_kernel(&mut self, now: Instant, round: &mut Round) {
        if self.progress == super::Progress::Nothing {
            self.set_forwarding();
        }
        let again = self.unused_tunnels.remove(&mut *self.kernel, now);
        round.again(again.map(|due| due.saturating_duration_since(now)));
    }

    fn set_forwarding(&self) {
        let config = &self.settings.config;
        let mut settings: Vec<(&str, &str)> = Vec::new();
        if config.ip_forwarding == Some(api::EnabledOrDisabled::Enabled) {
            settings.push(("net/ipv4/ip_forward", "1"));
            if self.drivers.planes.iter().any(super::drivers::Plane::is_v6) {
                settings.push(("net/ipv6/conf/all/forwarding", "1"));
            }
        }
        for (path, value) in settings {
            if let Err(error) = sysctl::ensure(path, value) {
                tracing::warn!(%error, "cannot apply a setting of the kernel");
            }
        }
    }

    fn set_interfaces_up(&mut self, now: Instant, round: &mut Round) {
        let (done, failures) =
            self.drivers.interfaces.apply(&self.world.interfaces, &mut self.drivers.planes);
        round.failures.extend(failures);
        for name in done {
            self.roster.hear(&News::SetUp(&name), now, &mut self.desired);
        }
    }

    fn limit_bandwidth(&mut self, round: &mut Round) {
        let Some(driver) = &mut self.drivers.bandwidth else { return };
        let workloads = &self.world.workloads;
        for failure in driver.apply(&mut *self.kernel, &mut self.drivers.limits, || workloads.clone()) {
            round.failed("limit of bandwidth", failure);
        }
    }

    /// Creates and fills sets. Returns the planes that have no complete sets.
    fn fill_sets(&mut self, now: Instant, round: &mut Round) -> BTreeSet<usize> {
        let mut failed = BTreeSet::new();
        let accept = self.world.renderer.config().marks.accept;
        for (place, plane) in self.drivers.planes.iter_mut().enumerate() {
            match plane.filter.fill_sets(accept, self.refusals.has_any(), now) {
                Ok(applied) => {
                    round.again(applied.again_in);
                    self.refusals.look |= applied.wrote || applied.again_in.is_some();
                }
                Err(error) => {
                    failed.insert(place);
                    plane.filter.sets.invalidate();
                    round.failed("sets", error);
                }
            }
        }
        failed
    }

    fn make_routes(&mut self, now: Instant, round: &mut Round) {
        let kernel = &mut *self.kernel;
        for plane in &mut self.drivers.planes {
            if let Some(tunnel) = &mut plane.tunnel {
                round.note("neighbours of the tunnel device", tunnel.apply(kernel));
            }
        }
        for plane in &mut self.drivers.planes {
            let Some(routes) = &mut plane.routes else { continue };
            if let Some(addresses) = &mut plane.link_addresses {
                round.note("addresses of interfaces", addresses.apply(kernel, routes.ownership()));
            }
            round.note("routes", routes.apply(kernel, &mut *self.connections, now));
        }
        for place in 0..self.drivers.planes.len() {
            self.encrypt(place, now, round);
        }
    }

    /// Configures WireGuard of one IP version. If the kernel's key is new, peers are first chosen again for it.
    fn encrypt(&mut self, place: usize, now: Instant, round: &mut Round) {
        let Some(wireguard) = &mut self.drivers.planes[place].wireguard else { return };
        let mut outcome = wireguard.apply(&mut *self.kernel, now);
        if let Some(key) = wireguard.take_new_key() {
            let version = wireguard.version();
            self.roster.hear(&News::OwnKey(version, key), now, &mut self.desired);
            self.write_desired(now);
            if let Some(wireguard) = &mut self.drivers.planes[place].wireguard {
                outcome = wireguard.apply(&mut *self.kernel, now);
            }
        }
        round.note("WireGuard", outcome);
        if let Some(wireguard) = &mut self.drivers.planes[place].wireguard
            && let Some(public_key) = wireguard.take_report()
        {
            let ipv6 = wireguard.version() == IpVersion::V6;
            (self.reports)(FromDataplane::WireguardStatus { public_key, ipv6 });
        }
    }

    /// Writes rules. Returns the planes whose rules are not as desired.
    fn write_rules(
        &mut self,
        without_sets: &BTreeSet<usize>,
        now: Instant,
        round: &mut Round,
    ) -> BTreeSet<usize> {
        let mut failed = BTreeSet::new();
        let accept = self.world.renderer.config().marks.accept;
        for (place, plane) in self.drivers.planes.iter_mut().enumerate() {
            if without_sets.contains(&place) {
                continue;
            }
            match plane.filter.write_rules(accept, self.refusals.has_any(), now) {
                Ok(applied) => {
                    self.refusals.look |= applied.wrote;
                    round.again(applied.again_in);
                }
                Err(error) => {
                    failed.insert(place);
                    round.failed("rules", error);
                }
            }
        }
        match self.drivers.arp.as_mut().map(|arp| arp.apply(now)) {
            None => {}
            Some(Ok(applied)) => {
                self.refusals.look |= applied.wrote;
                round.again(applied.again_in);
            }
            Some(Err(error)) if self.world.renderer.backend() == Backend::Iptables => {
                tracing::warn!(%error, "the host may answer ARP for workloads' own addresses");
                self.drivers.arp = None;
            }
            Some(Err(error)) => round.failed("rules for ARP", error),
        }
        failed
    }

    /// Enables counting of packets and bytes of connections. Only rules make the kernel load connection tracking, so
    /// this comes after them, and is repeated in the next round if the setting does not exist yet.
    fn count_connections(&mut self) {
        if self.counts_connections {
            return;
        }
        self.counts_connections = match sysctl::ensure("net/netfilter/nf_conntrack_acct", "1") {
            Ok(_) => true,
            Err(error) if error.is_missing() => {
                tracing::debug!(%error, "connections are not tracked yet, and not counted");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "packets and bytes of connections are not counted");
                true
            }
        };
    }

    fn destroy_sets(&mut self, without_rules: &BTreeSet<usize>, round: &mut Round) {
        for (place, plane) in self.drivers.planes.iter_mut().enumerate() {
            // Old rules may still refer to old sets.
            if without_rules.contains(&place) {
                continue;
            }
            match plane.filter.sets.apply_deletions() {
                Ok(applied) => round.again(applied.again_in),
                Err(error) => round.failed("unused sets", error),
            }
        }
    }

    /// Updates the addresses for which neighbour requests are answered, if they changed. Networks and hardware
    /// addresses are read each time: there are no events when only these change, so the regular announcements pick them
    /// up.
    fn answer_neighbours(&mut self, round: &mut Round) {
        let Some(answers) = &self.answers else { return };
        if !self.drivers.answers_changed && !self.announces {
            return;
        }
        let read = self.kernel.links().and_then(|links| Ok((links, self.kernel.addresses(None, None)?)));
        let (links, addresses) = match read {
            Ok(read) => read,
            Err(error) => return round.failed("interfaces that neighbours are behind", error),
        };
        // Interfaces of pods are not subnets, and excluded ones have no known addresses. When an interface comes up
        // everything is announced on it, because nothing is wanted on one that is down.
        let hosts = links.iter().filter(|link| !link.loopback && !self.world.is_workload(&link.name));
        let hosts: BTreeMap<u32, (InterfaceName, MacAddress)> = hosts
            .filter(|link| {
                let known = self.world.interfaces.get(&link.name);
                known.is_some_and(|known| known.up && !known.addresses.is_empty())
            })
            .filter_map(|link| Some((link.index, (InterfaceName::from(link.name.as_str()), link.mac?))))
            .collect();
        let mut places = Places::new();
        for plane in &self.drivers.planes {
            let family = routing::wireguard::family(plane.version);
            let networks = addresses.iter().filter_map(|one| Some((&hosts.get(&one.index)?.0, one.address)));
            let mut wanted = answers::inside(&plane.answered, networks);
            for (index, (name, mac)) in &hosts {
                if let Some(addresses) = wanted.remove(name) {
                    let place = Place { device: *index, mac: *mac, addresses };
                    places.insert((name.clone(), family), place);
                }
            }
        }
        self.drivers.answers_changed = false;
        answers.tell(places, std::mem::take(&mut self.announces));
    }

    /// Logs new refusals of the kernel once, and has the affected endpoints reported.
    fn look_at_refusals(&mut self) {
        if !std::mem::take(&mut self.refusals.look) && !self.refusals.has_any() {
            return;
        }
        let mut refused: BTreeSet<Refused> = BTreeSet::new();
        self.drivers.all_rules().for_each(|rules| refused.extend(rules.refused()));
        self.drivers.planes.iter().for_each(|plane| refused.extend(plane.filter.sets.refused()));
        let count = refused.len();
        let Some(concerned) = self.refusals.replace(refused) else { return };
        self.settings.metrics.set(
            "felix_int_dataplane_refused",
            "Number of rules, sets and members that the kernel refused and that are closed instead.",
            super::backend::number(count),
        );
        let chains = Chains { backend: self.world.renderer.backend(), names: &concerned };
        let groups = &self.world.groups;
        self.roster.workloads.mark_status(|endpoint| {
            chains.of_workload(endpoint)
                || groups.of(&endpoint.name).any(|name| concerned.contains(name.text()))
        });
        self.roster.hosts.mark_status(|endpoint, interfaces| {
            chains.of_host(endpoint, interfaces)
                || interfaces.iter().any(|one| groups.of(one).any(|name| concerned.contains(name.text())))
        });
    }

    /// Reports endpoints whose state may have changed.
    fn report(&mut self) {
        let (world, names, setup) = (&self.world, self.refusals.names(), &self.drivers.interfaces);
        let (chains, bpf) = (Chains { backend: world.renderer.backend(), names }, self.bpf.as_ref());
        let is_set_up = |name: &str| setup.is_set_up(name) && bpf.is_none_or(|bpf| bpf.is_ready(name));
        let workloads = self.roster.workloads.take_statuses(&world.interfaces, is_set_up, |endpoint| {
            chains.of_workload(endpoint)
                || world.groups.of(&endpoint.name).any(|name| names.contains(name.text()))
        });
        for (id, status) in workloads {
            let (status, endpoint) =
                status.map_or((None, None), |(status, endpoint)| (Some(status), Some(endpoint)));
            (self.reports)(FromDataplane::WorkloadEndpointStatus { id, status, endpoint });
        }
        let hosts = self.roster.hosts.take_statuses(&world.interfaces, |endpoint, interfaces| {
            chains.of_host(endpoint, interfaces)
                || interfaces.iter().any(|one| world.groups.of(one).any(|name| names.contains(name.text())))
        });
        for (id, status) in hosts {
            (self.reports)(FromDataplane::HostEndpointStatus(id, status));
        }
    }
}

/// Whether any of an endpoint's chains has one of these names.
struct Chains<'a> {
    backend: Backend,
    names: &'a BTreeSet<Text>,
}

impl Chains<'_> {
    fn has(&self, chain: &ChainName) -> bool {
        self.names.contains(chain.text())
    }

    fn of_workload(&self, endpoint: &WorkloadEndpoint) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let own = [EndpointChain::ToWorkload, EndpointChain::FromWorkload]
            .map(|chain| self.backend.endpoint_chain(chain, &endpoint.name));
        own.iter().any(|name| self.has(name))
            || self.of_tiers(&endpoint.tiers)
            || self.of_profiles(&endpoint.profile_ids)
    }

    fn of_host(&self, endpoint: &HostEndpoint, interfaces: &[&InterfaceName]) -> bool {
        use EndpointChain::{FromHost, FromHostForward, ToHost, ToHostForward};
        if self.names.is_empty() {
            return false;
        }
        let own = |interface: &&InterfaceName| {
            [ToHost, FromHost, ToHostForward, FromHostForward]
                .iter()
                .any(|chain| self.has(&self.backend.endpoint_chain(*chain, interface)))
        };
        interfaces.iter().any(own)
            || managers::all_tiers(endpoint).any(|tiers| self.of_tiers(tiers))
            || self.of_profiles(&endpoint.profile_ids)
    }

    fn of_tiers(&self, tiers: &[TierInfo]) -> bool {
        tiers.iter().any(|tier| {
            let ingress = tier.ingress_policies.iter().map(|policy| (Direction::Inbound, policy));
            let egress = tier.egress_policies.iter().map(|policy| (Direction::Outbound, policy));
            ingress
                .chain(egress)
                .any(|(direction, policy)| self.has(&self.backend.policy_chain(direction, policy)))
        })
    }

    fn of_profiles(&self, profiles: &[ProfileName]) -> bool {
        let mut chains = profiles.iter().flat_map(|profile| {
            [Direction::Inbound, Direction::Outbound].map(|way| self.backend.profile_chain(way, profile))
        });
        chains.any(|name| self.has(&name))
    }
}
