//! Combines maps, programs and attachments.

use crate::at_driver::AtDrivers;
use crate::attachments::{Attachments, Way};
use crate::denied::Denied;
use crate::error::Error;
use crate::files;
use crate::import::Imported;
use crate::limits::WantedLimits;
use crate::logs::{Logging, Logs, NAMES};
use crate::maps::{Maps, Plain};
use crate::policy::{Applied, Holders, PolicyMaps};
use crate::predecessor::Predecessor;
use crate::programs::{Kind, Programs};
use crate::routes::{Elements, Routes};
use crate::serving::Serving;
use crate::sockets::{SocketPrograms, Sockets};
use crate::store::Store as _;
use crate::sweeper::{Breath, Sweeper};
use crate::usage::Usages;
use bpf::interface::{Options, Version};
use bpf::layout::network::{CounterKey, Counters};
use bpf::{Layout as _, PerCpu, probe};
use bpf_conntrack::Timeouts;
use bpf_policy::Policies;
use messages::{InterfaceName, Text};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Instant;

const COUNTERS: &str = "cali_counters6";
const HOOKS: [u32; 2] = [0, 1];
/// The XDP hook.
const DRIVER_HOOK: u32 = 2;

/// The settings of a driver.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The folder for pins, instead of the usual one.
    pub pins: Option<PathBuf>,
    /// Whether IPv6 is programmed, too.
    pub with_v6: bool,
    /// How programs are attached; `None` uses links if the kernel supports them.
    pub way: Option<Way>,
    /// Whether XDP programs may run right behind drivers that do not support them.
    pub generic_xdp: bool,
    /// Sizes of maps that override the programs' defaults.
    pub sizes: BTreeMap<String, u32>,
    /// A device for trying a program that does nothing.
    pub scratch_device: u32,
    /// The node's configuration, as programs get it.
    pub options: Options,
    /// The addresses of the node's tunnel devices, IPv4 and IPv6.
    pub tunnel_addresses: [Option<IpAddr>; 2],
    /// How long idle connections are kept.
    pub timeouts: Timeouts,
    /// Settings for services; `None` if another program serves them.
    pub services: Option<bpf_services::Settings>,
    /// The sockets that are connected to backends directly.
    pub sockets: Option<Sockets>,
    /// What is logged about packets.
    pub logging: Logging,
}

/// An interface with programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its kind.
    pub kind: Kind,
}

/// The driver.
#[derive(Debug)]
pub struct Driver {
    pub(crate) maps: Maps,
    programs: Programs,
    attachments: Attachments,
    at_drivers: AtDrivers,
    predecessor: Predecessor,
    /// Flows imported from Linux, until programs judge packets.
    imported: Option<Imported>,
    policy: PolicyMaps,
    failsafes: [Plain; 2],
    sources: [Plain; 2],
    /// The contents of the maps of limits, if known.
    pub(crate) limits: Option<WantedLimits>,
    counted: BTreeSet<u32>,
    is_counted: bool,
    sweeper: Sweeper,
    pub(crate) serving: Option<Serving>,
    sockets: SocketPrograms,
    logs: Logs,
}

impl Driver {
    /// Probes the kernel, opens the maps and loads the programs for workload interfaces. Nothing is attached.
    ///
    /// # Errors
    /// When the kernel lacks a feature, or refuses.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        if let Err(errno) = probe::raise_memory_limit() {
            tracing::debug!(%errno, "the limit of locked memory stays");
        }
        let features = probe::features(settings.scratch_device);
        for (has, what) in [
            (features.classifiers, "eBPF programs at traffic control"),
            (features.lru, "LRU hashes for eBPF"),
            (features.prefixes, "prefix maps for eBPF"),
        ] {
            if !has {
                return Err(Error::Missing(what));
            }
        }
        let way = match settings.way {
            Some(Way::Filters) => Way::Filters,
            _ if features.tcx => Way::Links,
            _ => Way::Filters,
        };
        let root = files::root(settings.pins.as_deref())?;
        let mut maps = Maps::default();
        let mut objects = Vec::new();
        let versions: Vec<Version> =
            [Version::V4].into_iter().chain(settings.with_v6.then_some(Version::V6)).collect();
        for version in versions.iter().copied() {
            let mut object = version.object()?;
            maps.open(&root, &mut object, &settings.sizes)?;
            objects.push((version, object));
            let mut object = bpf::xdp::object(version)?;
            maps.open(&root, &mut object, &settings.sizes)?;
        }
        let sockets = settings.sockets.clone();
        let sockets =
            SocketPrograms::new(&root, sockets, &versions, features.answers, &mut maps, &settings.sizes)?;
        let serving = settings.services.as_ref().map(|one| Serving::new(one, settings.with_v6));
        let services = serving.as_ref().map(Serving::shared);
        let sweeper = Sweeper::start(&root, settings.with_v6, settings.timeouts, services)?;
        // Names of rules from an earlier process.
        let names: Vec<Vec<u8>> = maps.read(NAMES)?.into_iter().map(|(key, _)| key).collect();
        if !names.is_empty() {
            maps.remove(NAMES, &names)?;
        }
        let logs = Logs::start(&root, settings.logging.clone())?;
        let mut programs = Programs::new(&root, objects, settings.options, settings.tunnel_addresses)?;
        programs.load(Kind::Workload, &maps)?;
        Ok(Self {
            maps,
            programs,
            attachments: Attachments::new(&root, way)?,
            at_drivers: AtDrivers::new(&root, settings.generic_xdp),
            predecessor: Predecessor::new(&root),
            imported: None,
            policy: PolicyMaps::default(),
            failsafes: ["cali_v4_fsafes2", "cali_v6_fsafes2"].map(Plain::new),
            sources: ["cali_v4_sprefix", "cali_v6_sprefix"].map(Plain::new),
            limits: None,
            counted: BTreeSet::new(),
            is_counted: false,
            sweeper,
            serving,
            sockets,
            logs,
        })
    }

    /// How programs are attached.
    #[must_use]
    pub fn way(&self) -> Way {
        self.attachments.way()
    }

    /// Whether an earlier process had programs on interfaces.
    #[must_use]
    pub fn found_programs(&self) -> bool {
        self.programs.found_old()
    }

    /// The usage of the maps of connections.
    #[must_use]
    pub fn connections(&self) -> Usages {
        self.sweeper.usages()
    }

    /// Resets TCP connections of removed workloads at their next packet.
    pub fn workloads_removed(&self, addresses: Vec<IpAddr>) {
        self.sweeper.workloads_removed(addresses);
    }

    /// Makes the driver read the maps again, as others may have changed them.
    pub fn invalidate(&mut self) {
        self.policy.invalidate();
        self.limits = None;
        self.failsafes.iter_mut().chain(&mut self.sources).for_each(Plain::invalidate);
        self.serving.iter_mut().for_each(Serving::invalidate);
    }

    /// Sets the endpoints that interfaces belong to, by interface index.
    pub fn set_holders(&mut self, holders: Holders) {
        self.policy.set_holders(holders);
    }

    /// Updates the maps of policy.
    ///
    /// # Errors
    /// As [`PolicyMaps::apply`].
    pub fn write_policy(&mut self, policies: &mut Policies, now: Instant) -> Result<Applied, Error> {
        let applied = self.policy.apply(&mut self.maps, policies, now)?;
        self.logs.want(policies.has_logs());
        Ok(applied)
    }

    /// Updates the maps of routes.
    ///
    /// # Errors
    /// As [`Routes::write`].
    pub fn write_routes(&mut self, routes: &mut Routes) -> Result<usize, Error> {
        routes.write(&mut self.maps)
    }

    /// Updates the maps of failsafe ports.
    ///
    /// # Errors
    /// When they do not fit, or the kernel refuses.
    pub fn write_failsafes(&mut self, wanted: Elements) -> Result<(), Error> {
        let mut maps = self.failsafes.iter_mut().zip(wanted);
        maps.try_for_each(|(map, wanted)| map.apply(&mut self.maps, wanted))
    }

    /// Updates the maps of additional networks that workloads may send from.
    ///
    /// # Errors
    /// When they do not fit, or the kernel refuses.
    pub fn write_sources(&mut self, wanted: Elements) -> Result<(), Error> {
        let mut maps = self.sources.iter_mut().zip(wanted);
        maps.try_for_each(|(map, wanted)| map.apply(&mut self.maps, wanted))
    }

    /// Writes names of rules, for reports of counters and dropped packets; `None` removes a rule's name.
    ///
    /// # Errors
    /// When the kernel refuses, for example for lack of room.
    pub fn write_names(&mut self, names: &[(u64, Option<Text>)]) -> Result<(), Error> {
        let value = |text: &Text| {
            let mut bytes = [0; 64];
            for (place, byte) in bytes.iter_mut().zip(text.bytes()) {
                *place = byte;
            }
            bytes.to_vec()
        };
        let named = names.iter().filter_map(|(id, text)| Some((id.bytes(), value(text.as_ref()?))));
        let gone = names.iter().filter(|(_, text)| text.is_none()).map(|(id, _)| id.bytes());
        let (named, gone): (Vec<_>, Vec<_>) = (named.collect(), gone.collect());
        if !gone.is_empty() {
            self.maps.remove(NAMES, &gone)?;
        }
        if named.is_empty() { Ok(()) } else { self.maps.write(NAMES, &named) }
    }

    /// Attaches programs to these interfaces and no others. `there` are the indexes of all interfaces. Returns failures
    /// by name.
    pub fn attach(
        &mut self,
        wanted: &BTreeMap<InterfaceName, Interface>,
        there: &BTreeSet<u32>,
        now: Instant,
    ) -> Vec<(Text, Error)> {
        let mut failures = Vec::new();
        if let Err(error) = self.attachments.forget_gone(there) {
            failures.push((Text::from("interfaces that are gone"), error));
        }
        for (name, Interface { index, kind }) in wanted {
            if self.attachments.has(*index, *kind) {
                continue;
            }
            let attached = self
                .programs
                .load(*kind, &self.maps)
                .and_then(|()| self.count(*index, &HOOKS))
                .and_then(|()| self.attachments.attach(name, *index, *kind, &self.programs));
            if let Err(error) = attached {
                failures.push((name.text().clone(), error));
            }
        }
        // Not fatal: the programs at traffic control enforce the same policy.
        if let Err(error) = self.attach_to_drivers(wanted) {
            tracing::warn!(%error, "untracked policy is not enforced by XDP where it could be");
        }
        self.programs.let_go();
        let indices: BTreeSet<u32> = wanted.values().map(|interface| interface.index).collect();
        // As long as an interface lacks its new program, an old one needs its array of programs.
        let rest = match failures.is_empty() {
            true => self
                .attachments
                .keep_only(&indices, there)
                .and_then(|()| self.programs.forget_old(now))
                .and_then(|()| self.maps.finish_copies())
                .and_then(|()| self.predecessor.forget(|name| self.maps.get(name).is_some(), now))
                .and_then(|()| self.count_only(&indices)),
            false => Ok(()),
        };
        failures
            .extend(rest.err().map(|error| (Text::from("interfaces that no longer have programs"), error)));
        failures
    }

    /// Attaches XDP programs to the interfaces that should have one, and detaches all others.
    fn attach_to_drivers(&mut self, wanted: &BTreeMap<InterfaceName, Interface>) -> Result<(), Error> {
        let guarded = || wanted.iter().filter(|(_, interface)| interface.kind == Kind::Guarded);
        self.at_drivers.keep_only(&guarded().map(|(_, interface)| interface.index).collect())?;
        for (name, Interface { index, .. }) in guarded() {
            if self.at_drivers.was_tried(*index) || !self.attachments.has(*index, Kind::Guarded) {
                continue;
            }
            self.programs.load_at_driver(&self.maps)?;
            if self.at_drivers.attach(name, *index, self.programs.driver_entry()?)? {
                self.count(*index, &[DRIVER_HOOK])?;
            }
        }
        Ok(())
    }

    /// Imports flows that Linux knows, unless programs have judged packets before. Once, right before programs are
    /// attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn import_flows(&mut self) -> Result<(), Error> {
        if self.imported.is_none() && !self.found_programs() && !self.predecessor.was_there() {
            self.imported = Some(Imported::default());
            self.imported = Some(Imported::write(&self.maps, Breath::clock())?);
        }
        Ok(())
    }

    /// Makes Linux forget flows to services, which programs translate now that they are on every interface.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn finish_import(&mut self) -> Result<(), Error> {
        self.imported.replace(Imported::default()).map_or(Ok(()), |imported| imported.let_linux_forget())
    }

    /// Attaches or detaches the programs for sockets. Services must have been written before.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_sockets(&mut self) -> Result<(), Error> {
        self.sockets.attach(&self.maps)
    }

    /// When to attach again even if nothing changes, because arrays of an earlier process's programs have yet to be
    /// removed.
    #[must_use]
    pub fn again_in(&self, now: Instant) -> Option<std::time::Duration> {
        let all = self.programs.forgets_at().into_iter().chain(self.predecessor.forgets_at());
        all.min().map(|at| at.saturating_duration_since(now))
    }

    /// Whether an interface has its programs.
    #[must_use]
    pub fn has_programs(&self, interface: Interface) -> bool {
        self.attachments.has(interface.index, interface.kind)
    }

    /// Starts counting packets of an interface.
    fn count(&mut self, index: u32, hooks: &[u32]) -> Result<(), Error> {
        let counters = self.counters()?;
        for hook in hooks {
            let key = CounterKey { device: index, hook: *hook };
            if counters.get(&key)?.is_empty() {
                counters.fill(&key, &Counters::default())?;
            }
        }
        self.counted.insert(index);
        Ok(())
    }

    /// Removes the counters of interfaces that no longer have programs.
    fn count_only(&mut self, indices: &BTreeSet<u32>) -> Result<(), Error> {
        let Some(map) = self.maps.get(COUNTERS) else { return Ok(()) };
        if std::mem::replace(&mut self.is_counted, true) && self.counted == *indices {
            return Ok(());
        }
        let keys = map.keys()?;
        let gone = keys.into_iter().filter(|key| !indices.contains(&CounterKey::read(key).device));
        map.remove_many(&gone.collect::<Vec<_>>())?;
        self.counted.clone_from(indices);
        Ok(())
    }

    fn counters(&self) -> Result<PerCpu<'_, CounterKey, Counters>, Error> {
        Ok(PerCpu::new(self.maps.get(COUNTERS).ok_or(Error::Missing("map of counters"))?)?)
    }

    /// The number of packets that policy denied on interfaces with programs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn denied(&self) -> Result<Denied, Error> {
        Denied::of(self.maps.get(COUNTERS).ok_or(Error::Missing("map of counters"))?)
    }
}
