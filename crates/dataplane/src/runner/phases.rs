//! One round: what the managers ask for is brought into the kernel, in an order in which every step finds what it needs.
//!
//! 1. managers write what changed to the drivers;
//! 2. settings of the kernel and of workloads' interfaces, and their limits of bandwidth;
//! 3. sets are made and filled, because rules name them;
//! 4. tunnel devices, their neighbours, addresses, routes; WireGuard;
//! 5. rules; then what other firewalls hold of ours; counting of connections, which the kernel knows when rules ask for them;
//! 6. sets that no rule names any more are destroyed;
//! 7. endpoints are reported, because now their policies are in place, and neighbours are answered for them.
//!
//! A part that fails does not stop the others, and is tried again.

use super::Work;
use super::answers::{Place, Places};
use crate::driver::RuleDriver;
use crate::managers::{self, SubnetNeighbours, workload_settings};
use crate::refused::Refused;
use crate::routes::Outcome;
use crate::wireguard::Wireguard;
use messages::{FromDataplane, HostEndpoint, Text, TierInfo, WorkloadEndpoint};
use netlink::{MacAddress, sysctl};
use rules::names::EndpointChain;
use rules::tree::{IpVersion, Table};
use rules::{Backend, Direction};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What is left to do after a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// What failed, in words.
    pub(super) failures: Vec<String>,
    /// Whether sets or rules are among it.
    pub(super) rules_failed: bool,
    /// When to come back even if nothing changes.
    pub(super) again_in: Option<Duration>,
}

impl Round {
    fn again(&mut self, when: Option<Duration>) {
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

impl Work {
    /// Brings the kernel to what the managers ask for.
    pub(super) fn round(&mut self, now: Instant) -> Round {
        let mut round = Round::default();
        self.complete(now, &mut round);
        self.prepare_kernel(now, &mut round);
        self.configure_interfaces(&mut round);
        self.limit_bandwidth(&mut round);
        let sets_failed = self.fill_sets(now, &mut round);
        self.make_devices(&mut round);
        self.make_routes(now, &mut round);
        let rules_failed = self.write_rules(&sets_failed, now, &mut round);
        round.rules_failed = !rules_failed.is_empty() || !sets_failed.is_empty();
        // Until the new rules are there, the old ones are all that protects.
        if !round.rules_failed {
            round.again(self.leftovers.remove(now));
        }
        self.count_connections();
        self.destroy_sets(&rules_failed, &mut round);
        self.look_at_refusals();
        // What an endpoint needs may be missing as long as rules are: nobody is told that it is up.
        if !round.rules_failed {
            self.report();
            self.answer_neighbours(&mut round);
        }
        self.figures.copy(&self.planes, self.arp.as_ref(), self.state.renderer.backend());
        round
    }

    fn complete(&mut self, now: Instant, round: &mut Round) {
        let (state, planes) = (&mut self.state, &mut self.planes[..]);
        let regrouped = state.policies.take_regrouped();
        state.workloads.regroup(&regrouped);
        state.hosts.regroup(&regrouped);
        let (settled, next) = state.migrations.settled(now);
        settled.iter().for_each(|id| state.workloads.touch(id));
        round.again(next.map(|next| next.saturating_duration_since(now)));
        let before = state.renderer.config().ipvs_support.then(|| state.workloads.interfaces());
        state.workloads.complete(&mut managers::Surroundings {
            renderer: &state.renderer,
            planes,
            arp: self.arp.as_mut().map(|arp| arp as &mut (dyn RuleDriver + Send)),
            policies: &state.policies,
            groups: &mut state.groups,
            marks: &mut state.marks,
            migrations: &state.migrations,
            bandwidth: &mut state.bandwidth,
        });
        let prefixes = state.prefixes.clone();
        let is_workload = |name: &str| prefixes.iter().any(|prefix| name.starts_with(&**prefix));
        let hosts_changed = state.hosts.complete(
            &state.renderer,
            planes,
            (&state.policies, &mut state.groups, &mut state.marks),
            &state.interfaces,
            is_workload,
        );
        if before
            .is_some_and(|before| !self.is_started || hosts_changed || before != state.workloads.interfaces())
        {
            let (workloads, hosts) = (state.workloads.interfaces(), state.hosts.interfaces());
            let chains = state.renderer.endpoint_mark_dispatch(&mut state.marks, &workloads, &hosts);
            self.mark_dispatch
                .publish(planes, chains.into_iter().map(|chain| (Table::Filter, chain)).collect());
        }
        state.floating.complete(&state.renderer, planes);
        state.service_loop.complete(&state.renderer, planes);
        state.this_host.complete(&state.interfaces, planes, is_workload);
        for (managers, plane) in state.versions.iter_mut().zip(planes) {
            managers.pools.complete(&state.renderer, plane);
            managers.dscp.complete(&state.renderer, plane);
            if let Some(vxlan) = &mut managers.vxlan {
                vxlan.routes.complete(&state.interfaces, plane);
            }
            for routes in managers.ipip.iter_mut().chain(&mut managers.no_encap) {
                routes.complete(&state.interfaces, plane);
            }
            managers.wireguard.iter_mut().for_each(Wireguard::complete);
            if let Some(flow) = &mut managers.flow_tables {
                flow.complete(&state.workloads.interfaces(), &state.interfaces, plane);
            }
        }
    }

    /// What is done once, when the calculation has come through for the first time.
    fn prepare_kernel(&mut self, now: Instant, round: &mut Round) {
        if !self.is_started {
            self.set_forwarding();
        }
        let again = self.unused_tunnels.remove(&mut *self.kernel, now);
        round.again(again.map(|due| due.saturating_duration_since(now)));
    }

    fn set_forwarding(&self) {
        let config = &self.settings.config;
        let mut settings: Vec<(&str, &str)> = Vec::new();
        if config.ip_forwarding == felix_config::choices::Switch::Enabled {
            settings.push(("net/ipv4/ip_forward", "1"));
            if self.planes.iter().any(managers::Plane::is_v6) {
                settings.push(("net/ipv6/conf/all/forwarding", "1"));
            }
        }
        for (path, value) in settings {
            if let Err(error) = sysctl::ensure(path, value) {
                tracing::warn!(%error, "a setting of the kernel is not as it should be");
            }
        }
    }

    fn configure_interfaces(&mut self, round: &mut Round) {
        let versions: Vec<IpVersion> = self.planes.iter().map(|plane| plane.version).collect();
        for (interface, any_source) in self.state.workloads.to_configure(&self.state.interfaces) {
            if !super::state::State::is_safe_name(&interface) {
                continue;
            }
            let reverse_path = if any_source { "0" } else { &self.default_reverse_path };
            let mut failed = None;
            for setting in workload_settings(&interface, &versions, reverse_path) {
                match sysctl::ensure(&setting.path, &setting.value) {
                    Ok(_) => {}
                    Err(error) if setting.is_needed => {
                        failed = Some(error);
                        break;
                    }
                    Err(error) => tracing::debug!(%error, "a setting of an interface is not as it should be"),
                }
            }
            match failed {
                // It went away; its event comes, or the next look finds it gone.
                Some(error) if error.is_missing() => tracing::debug!(%error, "an interface is gone"),
                Some(error) => round.failed("interface of a workload", error),
                None => match self.set_peering_address(&interface) {
                    Ok(()) => self.state.workloads.configured(&interface),
                    Err(reason) => round.failed(&interface, reason),
                },
            }
        }
    }

    fn set_peering_address(&mut self, interface: &Text) -> Result<(), String> {
        for plane in &mut self.planes {
            let address = self.state.workloads.peering_address(interface, plane.version)?;
            if let Some(addresses) = &mut plane.link_addresses {
                addresses.set(interface, address);
            }
        }
        Ok(())
    }

    fn limit_bandwidth(&mut self, round: &mut Round) {
        let Some(driver) = &mut self.bandwidth else { return };
        let workloads = &self.state.workloads;
        for failure in driver.apply(&mut *self.kernel, &mut self.state.bandwidth, || workloads.interfaces()) {
            round.failed("limit of bandwidth", failure);
        }
    }

    /// Returns the planes that have no complete sets.
    fn fill_sets(&mut self, now: Instant, round: &mut Round) -> BTreeSet<usize> {
        let mut failed = BTreeSet::new();
        let accept = self.state.renderer.config().marks.accept;
        for (place, plane) in self.planes.iter_mut().enumerate() {
            match plane.fill_sets(accept, self.has_refused, now) {
                Ok(applied) => {
                    round.again(applied.again_in);
                    self.look_for_refusals |= applied.wrote || applied.again_in.is_some();
                }
                Err(error) => {
                    failed.insert(place);
                    plane.sets.invalidate();
                    round.failed("sets", error);
                }
            }
        }
        failed
    }

    fn make_devices(&mut self, round: &mut Round) {
        if !self.state.devices_changed {
            return;
        }
        let vxlan = self.state.versions.iter().filter_map(|managers| managers.vxlan.as_ref());
        let wanted: Vec<_> = vxlan
            .filter_map(|vxlan| vxlan.wanted_device(&self.state.interfaces))
            .chain(self.state.ipip_device.clone())
            .collect();
        self.state.devices_changed = false;
        for device in wanted {
            match device.bring_about(&mut *self.kernel) {
                Ok(_) => {}
                Err(error) if error.is_unsupported() => {
                    if self.unsupported.insert(device.name.clone()) {
                        tracing::error!(%error, device = device.name, "the kernel cannot make this kind of tunnel");
                    }
                }
                Err(error) => {
                    self.state.devices_changed = true;
                    round.failed("tunnel device", error);
                }
            }
        }
    }

    fn make_routes(&mut self, now: Instant, round: &mut Round) {
        let kernel = &mut *self.kernel;
        for vxlan in self.state.versions.iter_mut().filter_map(|managers| managers.vxlan.as_mut()) {
            round.note("neighbours of the tunnel device", vxlan.neighbours.apply(kernel));
        }
        for plane in &mut self.planes {
            let Some(routes) = &mut plane.routes else { continue };
            if let Some(addresses) = &mut plane.link_addresses {
                round.note("addresses of interfaces", addresses.apply(kernel, routes.ownership()));
            }
            round.note("routes", routes.apply(kernel, &mut *self.connections, now));
        }
        for managers in &mut self.state.versions {
            let Some(wireguard) = &mut managers.wireguard else { continue };
            round.note("WireGuard", wireguard.apply(kernel, now));
            if let Some(public_key) = wireguard.take_report() {
                let ipv6 = wireguard.version() == IpVersion::V6;
                (self.reports)(FromDataplane::WireguardStatus { public_key, ipv6 });
            }
        }
    }

    /// Returns the planes whose rules are not as they should be.
    fn write_rules(
        &mut self,
        without_sets: &BTreeSet<usize>,
        now: Instant,
        round: &mut Round,
    ) -> BTreeSet<usize> {
        let mut failed = BTreeSet::new();
        let accept = self.state.renderer.config().marks.accept;
        for (place, plane) in self.planes.iter_mut().enumerate() {
            if without_sets.contains(&place) {
                continue;
            }
            match plane.write_rules(accept, self.has_refused, now) {
                Ok(applied) => {
                    self.look_for_refusals |= applied.wrote;
                    round.again(applied.again_in);
                }
                Err(error) => {
                    failed.insert(place);
                    round.failed("rules", error);
                }
            }
        }
        match self.arp.as_mut().map(|arp| arp.apply(now)) {
            None => {}
            Some(Ok(applied)) => {
                self.look_for_refusals |= applied.wrote;
                round.again(applied.again_in);
            }
            Some(Err(error)) if self.state.renderer.backend() == Backend::Iptables => {
                tracing::warn!(%error, "the host may answer ARP for workloads' own addresses");
                self.arp = None;
            }
            Some(Err(error)) => round.failed("rules for ARP", error),
        }
        failed
    }

    /// Has packets and bytes of connections counted. Only rules make the kernel load what tracks connections, so this comes
    /// after them, and again with the next round where there is nothing to set yet.
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
        for (place, plane) in self.planes.iter_mut().enumerate() {
            // Old rules may still name old sets.
            if without_rules.contains(&place) {
                continue;
            }
            match plane.sets.apply_deletions() {
                Ok(applied) => round.again(applied.again_in),
                Err(error) => round.failed("sets that are not used", error),
            }
        }
    }

    /// Says whom neighbours are answered for, if that changed. Networks and hardware addresses are read each time: nobody
    /// tells when only these change, so the announcements that come again and again have them anew.
    fn answer_neighbours(&mut self, round: &mut Round) {
        let Some(answers) = &self.answers else { return };
        let changed = |managers: &super::state::VersionManagers| {
            managers.neighbours.as_ref().is_some_and(SubnetNeighbours::has_changed)
        };
        if !self.announces && !self.state.versions.iter().any(changed) {
            return;
        }
        let read = self.kernel.links().and_then(|links| Ok((links, self.kernel.addresses(None, None)?)));
        let (links, addresses) = match read {
            Ok(read) => read,
            Err(error) => return round.failed("interfaces that neighbours are behind", error),
        };
        // Interfaces of pods are no subnets, and those that are left out have no addresses that we know of. On one that
        // comes up everything is announced, because for one that is down nothing is wanted.
        let hosts = links.iter().filter(|link| !link.loopback && !self.state.is_workload(&link.name));
        let hosts: BTreeMap<u32, (Text, MacAddress)> = hosts
            .filter(|link| {
                let known = self.state.interfaces.get(&link.name);
                known.is_some_and(|known| known.up && !known.addresses.is_empty())
            })
            .filter_map(|link| Some((link.index, (Text::from(link.name.as_str()), link.mac?))))
            .collect();
        let mut places = Places::new();
        for neighbours in self.state.versions.iter_mut().filter_map(|managers| managers.neighbours.as_mut()) {
            let networks = addresses.iter().filter_map(|one| Some((&hosts.get(&one.index)?.0, one.address)));
            let mut wanted = neighbours.take_wanted(networks);
            let family = crate::wireguard::family(neighbours.version());
            for (index, (name, mac)) in &hosts {
                if let Some(addresses) = wanted.remove(name) {
                    let place = Place { device: *index, mac: *mac, addresses };
                    places.insert((name.clone(), family), place);
                }
            }
        }
        answers.tell(places, std::mem::take(&mut self.announces));
    }

    /// What the kernel refused: says so once, and has the endpoints reported that are concerned.
    fn look_at_refusals(&mut self) {
        if !std::mem::take(&mut self.look_for_refusals) && !self.has_refused {
            return;
        }
        let mut refused: BTreeSet<Refused> = BTreeSet::new();
        for plane in &self.planes {
            refused.extend(plane.rules.refused());
            refused.extend(plane.sets.refused());
        }
        refused.extend(self.arp.iter().flat_map(RuleDriver::refused));
        if refused == self.refused {
            return;
        }
        for one in refused.difference(&self.refused) {
            tracing::error!(refused = %one, "the kernel does not take a part of the policy; it is closed instead");
        }
        for one in self.refused.difference(&refused) {
            tracing::info!(was = %one, "a part of the policy that was refused is in place");
        }
        let names = |refused: &BTreeSet<Refused>| -> BTreeSet<Text> {
            refused.iter().map(|one| one.name.clone()).collect()
        };
        let concerned: BTreeSet<Text> = names(&self.refused).union(&names(&refused)).cloned().collect();
        self.refused_names = names(&refused);
        self.has_refused = !refused.is_empty();
        self.settings.metrics.set(
            "felix_int_dataplane_refused",
            "Number of rules, sets and members that the kernel refused and that are closed instead.",
            super::backend::number(refused.len()),
        );
        self.refused = refused;
        let chains = Chains { backend: self.state.renderer.backend(), names: &concerned };
        let groups = &self.state.groups;
        self.state.workloads.mark_status(|endpoint| {
            chains.of_workload(endpoint) || groups.of(&endpoint.name).any(|name| concerned.contains(name))
        });
        self.state.hosts.mark_status(|endpoint, interfaces| {
            chains.of_host(endpoint, interfaces)
                || interfaces.iter().any(|one| groups.of(one).any(|name| concerned.contains(name)))
        });
    }

    /// Reports endpoints whose state may have changed.
    fn report(&mut self) {
        let state = &mut self.state;
        let chains = Chains { backend: state.renderer.backend(), names: &self.refused_names };
        let (groups, names) = (&state.groups, &self.refused_names);
        let workloads = state.workloads.take_statuses(&state.interfaces, |endpoint| {
            chains.of_workload(endpoint) || groups.of(&endpoint.name).any(|name| names.contains(name))
        });
        for (id, status) in workloads {
            let (status, endpoint) =
                status.map_or((None, None), |(status, endpoint)| (Some(status), Some(endpoint)));
            (self.reports)(FromDataplane::WorkloadEndpointStatus { id, status, endpoint });
        }
        let hosts = state.hosts.take_statuses(&state.interfaces, |endpoint, interfaces| {
            chains.of_host(endpoint, interfaces)
                || interfaces.iter().any(|one| groups.of(one).any(|name| names.contains(name)))
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
    fn of_workload(&self, endpoint: &WorkloadEndpoint) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let own = [EndpointChain::ToWorkload, EndpointChain::FromWorkload]
            .map(|chain| self.backend.endpoint_chain(chain, &endpoint.name));
        own.iter().any(|name| self.names.contains(name))
            || self.of_tiers(&endpoint.tiers)
            || self.of_profiles(&endpoint.profile_ids)
    }

    fn of_host(&self, endpoint: &HostEndpoint, interfaces: &[&Text]) -> bool {
        use EndpointChain::{FromHost, FromHostForward, ToHost, ToHostForward};
        if self.names.is_empty() {
            return false;
        }
        let own = |interface: &&Text| {
            [ToHost, FromHost, ToHostForward, FromHostForward]
                .iter()
                .any(|chain| self.names.contains(&self.backend.endpoint_chain(*chain, interface)))
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
                .any(|(direction, policy)| self.names.contains(&self.backend.policy_chain(direction, policy)))
        })
    }

    fn of_profiles(&self, profiles: &[Text]) -> bool {
        let mut chains = profiles.iter().flat_map(|profile| {
            [Direction::Inbound, Direction::Outbound].map(|way| self.backend.profile_chain(way, profile))
        });
        chains.any(|name| self.names.contains(&name))
    }
}
