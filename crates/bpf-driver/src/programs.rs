//! The programs for interfaces, loaded once per kind of interface and direction.
//!
//! The kernel empties an array of programs when no process and no pin holds it any more, so it is pinned beside the
//! maps, in a folder per generation of programs; the folder of the previous generation is removed when every interface
//! has a new program.

use crate::error::Error;
use crate::files;
use crate::maps::{Maps, folder};
use bpf::interface::{self, ENTRY, Interface, Options, ReversePath, Version};
use bpf::xdp::{self, AtDriver};
use bpf::{Loaded, Map, Object, Program};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The prefix of the names of the generations' folders.
const GENERATION: &str = "generation_";

/// Longer than judging a packet takes, which is microseconds.
const GRACE: Duration = Duration::from_millis(100);

/// The kinds of interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A workload's interface.
    Workload,
    /// A workload's interface with packet or connection limits.
    Limited,
    /// A host interface.
    Host,
    /// A host interface with untracked policy.
    Untracked,
    /// A host interface with untracked policy for ingress, which is enforced by XDP if possible.
    Guarded,
    /// A tunnel between nodes, with Ethernet headers.
    Tunnel,
    /// A tunnel between nodes, without Ethernet headers.
    Layer3,
    /// `lo`, where the host connects to its own ports.
    Loopback,
    /// `bpfout.cali`, where the host's own packets to services arrive.
    Services,
}

impl Kind {
    /// Whether it is a workload's interface.
    #[must_use]
    pub fn is_workload(self) -> bool {
        matches!(self, Self::Workload | Self::Limited)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::Limited => "limited",
            Self::Host => "host",
            Self::Untracked => "untracked",
            Self::Guarded => "guarded",
            Self::Tunnel => "tunnel",
            Self::Layer3 => "layer3",
            Self::Loopback => "loopback",
            Self::Services => "services",
        }
    }
}

/// The direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hook {
    /// Into the host's namespace.
    Ingress,
    /// Out of the host's namespace.
    Egress,
}

impl Hook {
    pub(crate) const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// The number of an IP version.
fn number(version: Version) -> u8 {
    match version {
        Version::V4 => 4,
        Version::V6 => 6,
    }
}

/// All programs that have been needed so far.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The programmed IP versions.
    versions: Vec<Version>,
    /// The parsed objects by version; empty while not needed, and parsed again on demand.
    objects: Vec<(Version, Object)>,
    at_driver: Option<AtDriver>,
    /// The node's configuration.
    options: Options,
    /// The addresses of the node's tunnel devices, IPv4 and IPv6.
    tunnel_addresses: [Option<IpAddr>; 2],
    loaded: BTreeMap<(Kind, Hook, u8), Loaded>,
    /// Maps that the programs of an IP version share and that are not persistent.
    scratch: BTreeMap<(u8, String), Map>,
    generation: PathBuf,
    has_old: bool,
    found_old: bool,
    /// When every interface had a new program.
    replaced_at: Option<Instant>,
}

impl Programs {
    /// Starts without any programs.
    pub(crate) fn new(
        root: &Path,
        objects: Vec<(Version, Object)>,
        options: Options,
        tunnel_addresses: [Option<IpAddr>; 2],
    ) -> Result<Self, Error> {
        let folder = folder(root);
        let numbers = files::names(&folder).into_iter();
        let numbers: Vec<u64> =
            numbers.filter_map(|name| name.strip_prefix(GENERATION)?.parse().ok()).collect();
        let next = numbers.iter().max().map_or(1, |last| last + 1);
        let generation = folder.join(format!("{GENERATION}{next}"));
        files::make_folder(&generation)?;
        let has_old = !numbers.is_empty();
        Ok(Self {
            versions: objects.iter().map(|(version, _)| *version).collect(),
            objects,
            at_driver: None,
            options,
            tunnel_addresses,
            loaded: BTreeMap::new(),
            scratch: BTreeMap::new(),
            generation,
            has_old,
            found_old: has_old,
            replaced_at: None,
        })
    }

    /// Frees the parsed objects, which are not needed for now.
    pub(crate) fn let_go(&mut self) {
        self.objects = Vec::new();
    }

    /// Loads the programs for a kind of interface.
    pub(crate) fn load(&mut self, kind: Kind, maps: &Maps) -> Result<(), Error> {
        let is_loaded = |hook, version: &Version| self.loaded.contains_key(&(kind, hook, number(*version)));
        if Hook::BOTH.into_iter().all(|hook| self.versions.iter().all(|version| is_loaded(hook, version))) {
            return Ok(());
        }
        if self.objects.is_empty() {
            let read = |version: &Version| -> Result<(Version, Object), Error> {
                let mut object = version.object()?;
                maps.fit(&mut object)?;
                Ok((*version, object))
            };
            self.objects = self.versions.iter().map(read).collect::<Result<_, Error>>()?;
        }
        let has_both = self.versions.len() > 1;
        let mut is_new = false;
        for (version, object) in self.objects.clone() {
            for hook in Hook::BOTH {
                if self.loaded.contains_key(&(kind, hook, number(version))) {
                    continue;
                }
                is_new = true;
                let interface = Interface {
                    is_workload: kind.is_workload(),
                    is_leaving: hook == Hook::Egress,
                    is_layer_3: kind == Kind::Layer3,
                    has_both,
                    checks_source: kind.is_workload() && hook == Hook::Ingress,
                };
                let mut shared = maps.all();
                let own = self.scratch.iter().filter(|((of, _), _)| *of == number(version));
                shared.extend(own.map(|((_, name), map)| (name.as_str(), map)));
                let mut loaded =
                    interface.load_with(object.clone(), &self.options_of(kind, version), &shared)?;
                let name = format!("cali_programs_{}_{}_v{}", kind.word(), hook.word(), number(version));
                loaded.map("cali_programs")?.pin(&self.generation.join(name))?;
                for (name, map) in std::mem::take(&mut loaded.maps) {
                    match name.as_str() {
                        // Each program has its own array.
                        "cali_programs" => _ = loaded.maps.insert(name, map),
                        data if data.contains("rodata") => {}
                        _ => _ = self.scratch.insert((number(version), name), map),
                    }
                }
                self.loaded.insert((kind, hook, number(version)), loaded);
            }
        }
        for hook in Hook::BOTH.into_iter().filter(|_| is_new) {
            let of = |version| self.loaded.get(&(kind, hook, number(version)));
            if let (Some(first), Some(second)) = (of(Version::V4), of(Version::V6)) {
                interface::lead(first, second)?;
            }
        }
        Ok(())
    }

    /// Loads the XDP programs, once.
    pub(crate) fn load_at_driver(&mut self, maps: &Maps) -> Result<(), Error> {
        if self.at_driver.is_none() {
            let options = self.options_of(Kind::Guarded, Version::V4);
            let mut objects = Vec::new();
            for version in self.versions.iter().copied() {
                let mut object = xdp::object(version)?;
                maps.fit(&mut object)?;
                objects.push((version, object));
            }
            let loaded = AtDriver::load(objects, &options, &maps.all())?;
            loaded.array()?.pin(&self.generation.join(xdp::ARRAY))?;
            self.at_driver = Some(loaded);
        }
        Ok(())
    }

    /// The XDP program to attach.
    pub(crate) fn driver_entry(&self) -> Result<&Program, Error> {
        Ok(self.at_driver.as_ref().ok_or(Error::Missing("program for drivers"))?.entry()?)
    }

    /// The options for a kind of interface.
    fn options_of(&self, kind: Kind, version: Version) -> Options {
        Options {
            kind: match kind {
                Kind::Workload | Kind::Limited | Kind::Host | Kind::Untracked | Kind::Guarded => {
                    interface::Kind::Plain
                }
                Kind::Tunnel | Kind::Layer3 => interface::Kind::Tunnel,
                Kind::Loopback => interface::Kind::Loopback,
                Kind::Services => interface::Kind::Services,
            },
            // If sockets are connected to backends, TCP connections never use services' addresses; on `lo` most packets
            // are not UDP.
            is_udp_only: self.options.is_udp_only && kind == Kind::Loopback,
            tunnel_address: self.tunnel_addresses[usize::from(number(version) == 6)],
            // Sources of workloads are always checked, and packets out of a tunnel were checked where they entered it.
            reverse_path: match kind {
                Kind::Host | Kind::Untracked | Kind::Guarded => self.options.reverse_path,
                Kind::Workload
                | Kind::Limited
                | Kind::Tunnel
                | Kind::Layer3
                | Kind::Loopback
                | Kind::Services => ReversePath::Any,
            },
            asks_untracked: matches!(kind, Kind::Untracked | Kind::Guarded),
            has_limits: kind == Kind::Limited,
            ..self.options
        }
    }

    /// The program to attach, which passes on packets of the other IP version.
    pub(crate) fn entry(&self, kind: Kind, hook: Hook) -> Result<&Program, Error> {
        let loaded = self.versions.first().and_then(|first| self.loaded.get(&(kind, hook, number(*first))));
        Ok(loaded.ok_or(Error::Missing("program for this kind of interface"))?.program(ENTRY)?)
    }

    /// Whether programs of an earlier process were found.
    pub(crate) fn found_old(&self) -> bool {
        self.found_old
    }

    /// When the arrays of old programs can be removed.
    pub(crate) fn forgets_at(&self) -> Option<Instant> {
        self.replaced_at.filter(|_| self.has_old).map(|at| at + GRACE)
    }

    /// Removes the arrays of an earlier process's programs once no packet can be in one. To be called when no interface
    /// has such a program any more.
    pub(crate) fn forget_old(&mut self, now: Instant) -> Result<(), Error> {
        self.replaced_at.get_or_insert(now);
        if self.forgets_at().is_none_or(|at| now < at) {
            return Ok(());
        }
        self.has_old = false;
        let Some(parent) = self.generation.parent() else { return Ok(()) };
        for name in files::names(parent) {
            let old = parent.join(&name);
            if !name.starts_with(GENERATION) || old == self.generation {
                continue;
            }
            for pin in files::names(&old) {
                files::unpin(&old.join(pin))?;
            }
            std::fs::remove_dir(&old)
                .map_err(|reason| Error::File { what: format!("cannot remove {}", old.display()), reason })?;
        }
        Ok(())
    }
}
