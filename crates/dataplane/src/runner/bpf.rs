//! The eBPF dataplane beside the rest: messages become tables, routes and attachments, and netfilter keeps judging
//! packets until every interface has its programs.
//!
//! ```text
//!  enabled ─► tables and routes written ─► programs on every interface ─► netfilter leaves policy to them
//!      │ the kernel lacks something, or a part does not fit: netfilter policy stays, and the node is not ready
//! ```
//!
//! Missing parts are never hidden: every reason is named in the node's readiness.

mod connections;
mod controls;
mod figures;
mod hardening;
mod health;
mod host_path;
mod limits;
mod places;
mod receive_offload;
mod round;
mod serving;
mod wanted;

pub(super) use host_path::HostPath;

use super::start::Machine;
use crate::managers::{Interfaces, Mtus};
use crate::settings::DataplaneSettings;
use bpf_driver::{Driver, Error, Interface};
use bpf_policy::{Policies, RuleTexts};
use connections::Connections;
use controls::Controls;
use figures::Figures;
use limits::Limits;
use messages::{HostEndpointName, InterfaceName, ToDataplane, WorkloadEndpointId};
use netlink::Kernel;
use places::Places;
use receive_offload::ReceiveOffload;
use serving::Serving;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use wanted::Patterns;

/// The interfaces and their owners.
pub(super) struct Owners<'a> {
    pub(super) interfaces: &'a Interfaces,
    pub(super) is_workload: &'a dyn Fn(&str) -> bool,
    /// Workloads by interface.
    pub(super) workloads: &'a BTreeMap<InterfaceName, WorkloadEndpointId>,
    /// Host endpoints by interface, including the one for all other interfaces.
    pub(super) hosts: &'a BTreeMap<InterfaceName, HostEndpointName>,
}

/// Maps with an entry for each connection.
const CONNECTIONS: [&str; 4] = ["cali_v4_ct4", "cali_v6_ct4", "bpfp_v4_direct", "bpfp_v6_direct"];

/// How long after programs take over from netfilter the last step of the start is done.
const STARTED: Duration = Duration::from_millis(200);

/// The changes that other parts need to know.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Workload interfaces that got their programs, or lost them.
    pub(super) attached: Vec<(InterfaceName, bool)>,
    pub(super) failures: Vec<String>,
    pub(super) again_in: Option<Duration>,
}

/// The eBPF dataplane.
pub(super) struct Bpf {
    /// `None` where the kernel does not support it.
    driver: Option<Driver>,
    policies: Policies,
    places: Places,
    /// The names of rules.
    names: RuleTexts,
    begun: Instant,
    /// Host endpoints with policy that applies before connection tracking; `true` if some of it is for incoming
    /// packets.
    untracked: BTreeMap<HostEndpointName, bool>,
    patterns: Patterns,
    receive_offload: ReceiveOffload,
    limits: Limits,
    controls: Controls,
    connections: Connections,
    figures: Figures,
    /// Whether the last attempt wrote the complete policy.
    is_complete: bool,
    is_on: bool,
    /// Whether memory that only the start needed has been released since.
    has_let_go: bool,
    /// Whether interfaces or their owners may have changed since they were last examined.
    has_moved: bool,
    /// The interfaces that should have programs.
    wanted: BTreeMap<InterfaceName, Interface>,
    /// Whether they have them, with nothing left to do.
    is_settled: bool,
    attached: BTreeSet<InterfaceName>,
    /// Why the last attempt could not write the complete policy.
    trouble: Option<String>,
    /// An interface that should have programs but does not.
    without: Option<String>,
    /// How the host reaches services, where programs serve them.
    host_path: Option<HostPath>,
    /// `None` where another program serves services.
    serving: Option<Serving>,
}

impl Bpf {
    /// Opens the eBPF dataplane, if it is enabled. If that fails, only the reason is kept.
    pub(super) fn open(
        settings: &DataplaneSettings,
        machine: &Machine,
        with_v6: bool,
        loopback: u32,
        mtus: &Mtus,
    ) -> Option<Self> {
        let config = &*settings.config;
        if !config.bpf_enabled {
            return None;
        }
        let mut limits = Limits::new(config);
        let mut connections = Connections::new(config, &machine.mtu_file);
        let mut wanted = wanted::driver_settings(config, machine.bpf_pins.clone(), with_v6, loopback);
        wanted::set_sizes(&mut wanted, &CONNECTIONS, connections.size(config));
        let path = settings.has_services.then(|| {
            let (path, refused) = wanted::serve(&mut wanted, config, &settings.host);
            if let Some(reason) = refused {
                tracing::error!("{reason}");
                limits.refuse(reason);
            }
            path
        });
        let figures = Figures::default();
        let driver = match Driver::open(&wanted) {
            Ok(mut driver) => {
                tracing::info!(way = ?driver.way(), "policy will be enforced by eBPF programs");
                connections.follow(driver.connections(), &settings.metrics);
                match driver.denied() {
                    Ok(denied) => figures.show(denied, &settings.metrics),
                    Err(error) => tracing::warn!(%error, "packets denied by eBPF programs are not shown"),
                }
                if let Err(error) = driver.write_failsafes(wanted::failsafes(config)) {
                    tracing::error!(%error, "cannot write failsafe ports");
                    limits.refuse(format!("failsafe ports cannot be written: {error}"));
                }
                if wanted.pins.is_none() {
                    hardening::apply(config);
                }
                Some(driver)
            }
            Err(error) => {
                tracing::error!(%error, "BPFEnabled: netfilter enforces policy instead of eBPF programs");
                limits.refuse(format!("netfilter enforces policy, because {error}"));
                None
            }
        };
        let path = path.filter(|_| driver.is_some());
        if driver.is_some() && path.is_none() {
            tracing::warn!("without Kubernetes' services, eBPF programs leave destinations alone");
        }
        Some(Self {
            driver,
            policies: Policies::default(),
            places: Places::new(config),
            names: RuleTexts::default(),
            begun: Instant::now(),
            untracked: BTreeMap::new(),
            patterns: Patterns::new(config, path.is_some_and(|path| path.devices.is_some())),
            receive_offload: ReceiveOffload::new(config.bpf_disable_gro_for_ifaces.clone()),
            limits,
            controls: Controls::default(),
            connections,
            figures,
            is_complete: false,
            is_on: false,
            has_let_go: false,
            has_moved: true,
            wanted: BTreeMap::new(),
            is_settled: false,
            attached: BTreeSet::new(),
            trouble: None,
            without: None,
            host_path: path,
            serving: path.map(|path| Serving::new(config, &settings.host, path, mtus, with_v6)),
        })
    }

    /// How the host reaches services, where programs serve them.
    pub(super) fn host_path(&self) -> Option<HostPath> {
        self.host_path
    }

    /// Whether the kernel supports it.
    pub(super) fn is_possible(&self) -> bool {
        self.driver.is_some()
    }

    /// Whether programs judge packets instead of netfilter.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The reason why Felix should restart, if any.
    pub(super) fn outgrown(&mut self) -> Option<String> {
        self.connections.outgrown()
    }

    /// Whether a workload's interface may be reported as ready.
    pub(super) fn is_ready(&self, interface: &str) -> bool {
        !self.is_on || self.attached.contains(interface)
    }

    /// Notes that other programs may have changed the maps.
    pub(super) fn invalidate(&mut self) {
        self.driver.iter_mut().for_each(Driver::invalidate);
        self.places.routes.invalidate();
        self.names.change_all();
        self.has_moved = true;
    }

    /// Notes that interfaces or their owners may have changed.
    pub(super) fn moved(&mut self) {
        self.has_moved = true;
    }

    /// The reasons related to eBPF why the node is not ready.
    pub(super) fn problem(&self) -> Option<String> {
        let denied = self.policies.problems().next();
        let denied = denied.map(|(id, why)| format!("packets of {id:?} are denied: {why}"));
        let waits = self.driver.is_some() && !self.is_on && self.trouble.is_none() && self.without.is_none();
        let waits = waits.then(|| "interfaces have no programs yet; netfilter enforces policy".to_owned());
        let services = self.serving.as_ref().and_then(|serving| serving.trouble.clone());
        let now = [self.trouble.clone(), self.without.clone(), services, denied, waits].into_iter().flatten();
        let all: Vec<String> = self.limits.all().chain(now).collect();
        (!all.is_empty()).then(|| format!("eBPF: {}", all.join("; ")))
    }

    /// Processes a message.
    pub(super) fn hear(&mut self, message: &ToDataplane) {
        let Some(driver) = &mut self.driver else { return };
        if let Some(serving) = &mut self.serving {
            serving.hear(message, driver);
        }
        self.policies.update(message);
        self.names.hear(message);
        self.controls.hear(message);
        self.has_moved |= matches!(
            message,
            ToDataplane::WorkloadEndpointUpdate(..)
                | ToDataplane::WorkloadEndpointRemove(_)
                | ToDataplane::HostEndpointUpdate(..)
                | ToDataplane::HostEndpointRemove(_)
        );
        match message {
            ToDataplane::HostEndpointUpdate(id, endpoint) if !endpoint.untracked_tiers.is_empty() => {
                let is_for_ingress =
                    endpoint.untracked_tiers.iter().any(|tier| !tier.ingress_policies.is_empty());
                self.untracked.insert(id.clone(), is_for_ingress);
            }
            ToDataplane::HostEndpointUpdate(id, _) | ToDataplane::HostEndpointRemove(id) => {
                self.untracked.remove(id);
            }
            _ => {}
        }
        let gone = self.places.hear(message);
        if let Some(driver) = self.driver.as_ref().filter(|_| !gone.is_empty()) {
            driver.workloads_removed(gone);
        }
    }

    /// Brings maps and interfaces to the desired state. `rules_are_written`: netfilter marks for
    /// programs the packets of connections that Linux knows.
    pub(super) fn apply(
        &mut self,
        owners: &Owners<'_>,
        kernel: &mut dyn Kernel,
        rules_are_written: bool,
        now: Instant,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(driver) = &mut self.driver else { return outcome };
        if self.is_on && !std::mem::replace(&mut self.has_let_go, true) {
            telemetry::memory::give_back();
            telemetry::memory::let_go_of_code();
        }
        let has_moved = std::mem::take(&mut self.has_moved);
        if has_moved {
            self.receive_offload.apply(owners.interfaces);
            let is_limited = |id: &WorkloadEndpointId| self.controls.is_limited(id);
            self.wanted = self.patterns.interfaces(owners, &self.untracked, is_limited);
            self.places.follow(owners);
            driver.set_holders(wanted::holders(&self.wanted, owners));
        }
        if let Err(error) = driver.write_routes(&mut self.places.routes) {
            outcome.failures.push(format!("routes of eBPF programs: {error}"));
        }
        if has_moved && let Err(error) = driver.write_sources(self.places.sources(owners)) {
            outcome.failures.push(format!("sources of eBPF programs: {error}"));
        }
        self.names
            .tick(i64::try_from(now.saturating_duration_since(self.begun).as_secs()).unwrap_or(i64::MAX));
        if let Err(error) = driver.write_names(&self.names.take_changed()) {
            // Only people who read the counters depend on them.
            tracing::warn!(%error, "cannot write the names of rules for eBPF programs' counters");
        }
        // Before any program reads them.
        if has_moved && let Err(error) = driver.write_limits(self.controls.limits(&self.wanted, owners)) {
            outcome.failures.push(format!("limits of workloads for eBPF programs: {error}"));
        }
        if let Some(serving) = &mut self.serving {
            let wanted = has_moved.then_some(&self.wanted);
            serving.apply(driver, owners, kernel, wanted, now, &mut outcome);
        }
        self.write_policy(now, &mut outcome);
        // A program without policy would deny allowed packets, and one without Linux's knowledge would cut connections;
        // those that an earlier process attached have both.
        let is_complete = self.is_complete && self.serving.as_ref().is_none_or(Serving::is_complete);
        if is_complete && (rules_are_written || self.driver.as_ref().is_some_and(Driver::found_programs)) {
            if has_moved || !self.is_settled {
                self.attach(owners, now, &mut outcome);
            }
        } else {
            self.is_settled = false;
            if is_complete {
                outcome.again_in = Some(Duration::ZERO);
            }
        }
        // The failures may concern any interface.
        self.has_moved |= !outcome.failures.is_empty();
        outcome
    }

    /// Writes policy ahead of everything else, if programs judge packets and the interfaces are unchanged: it then
    /// takes effect at once, and not only when netfilter's part is done.
    pub(super) fn hurry(&mut self, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        if self.is_on && !self.has_moved {
            self.write_policy(now, &mut outcome);
        }
        outcome
    }

    fn write_policy(&mut self, now: Instant, outcome: &mut Outcome) {
        let Some(driver) = &mut self.driver else { return };
        match driver.write_policy(&mut self.policies, now) {
            Ok(applied) => {
                self.is_complete |= applied.is_complete;
                self.trouble = None;
                outcome.again_in = outcome.again_in.into_iter().chain(applied.again_in).min();
                if applied.changes > 0 {
                    tracing::debug!(changes = applied.changes, "wrote policy for eBPF programs");
                }
            }
            // Only a different policy helps: the error is reported, and writing is not retried.
            Err(error @ Error::TooMany { .. }) => {
                tracing::error!(%error, "policy does not fit into the maps of eBPF programs");
                self.trouble = Some(error.to_string());
            }
            Err(error) => {
                self.trouble = Some(error.to_string());
                outcome.failures.push(format!("policy of eBPF programs: {error}"));
            }
        }
    }

    fn attach(&mut self, owners: &Owners<'_>, now: Instant, outcome: &mut Outcome) {
        let (Some(driver), wanted) = (&mut self.driver, &self.wanted) else { return };
        let there: BTreeSet<u32> = owners.interfaces.indices().collect();
        // The only consequence can be that fewer flows continue.
        if let Err(error) = driver.import_flows() {
            tracing::warn!(%error, "UDP flows from before eBPF programs start over");
        }
        let failures = driver.attach(wanted, &there, now);
        let again_in = driver.again_in(now);
        outcome.again_in = outcome.again_in.into_iter().chain(again_in).min();
        let is_everywhere = failures.is_empty();
        self.is_settled = is_everywhere && again_in.is_none();
        outcome
            .failures
            .extend(failures.iter().map(|(name, error)| format!("eBPF programs of {name}: {error}")));
        self.without = outcome.failures.last().filter(|_| !is_everywhere).cloned();
        let attached: BTreeSet<InterfaceName> = wanted
            .iter()
            .filter(|(name, interface)| (owners.is_workload)(name) && driver.has_programs(**interface))
            .map(|(name, _)| name.clone())
            .collect();
        outcome.attached.extend(attached.difference(&self.attached).map(|name| (name.clone(), true)));
        outcome.attached.extend(self.attached.difference(&attached).map(|name| (name.clone(), false)));
        self.attached = attached;
        if is_everywhere && !std::mem::replace(&mut self.is_on, true) {
            tracing::info!(interfaces = wanted.len(), "eBPF programs enforce policy on every interface");
            outcome.again_in = outcome.again_in.into_iter().chain([STARTED]).min();
            if let Err(error) = driver.finish_import() {
                tracing::warn!(%error, "UDP flows to services may be delayed until Linux has forgotten them");
            }
        }
        if self.is_on {
            self.figures.set(self.attached.len());
        }
    }
}
