//! The loop that brings the kernel to what the calculation asks for.
//!
//! One thread owns everything. It waits in one place for messages and for news from the kernel (interfaces, addresses,
//! changes of nftables by others), lets the managers work out what should be there, and brings the drivers' parts of the
//! kernel there in a fixed order of phases ([`phases`]). Nothing is written before the first [`ToDataplane::InSync`]. When
//! nothing happens and no refresh is set, it sleeps.

mod answers;
mod arrivals;
mod backend;
mod clock;
mod figures;
mod leftovers;
mod mailbox;
mod phases;
mod state;

use crate::bandwidth::BandwidthDriver;
use crate::conntrack::Connections;
use crate::managers::{ASSUMED_MTU, ChainSet, Interfaces, Mtus, Plane, host_mtu};
use crate::nftables;
use crate::refused::Refused;
use crate::routes::device::UnusedTunnels;
use crate::routes::{Background, ConnectionCleanup, LinkAddresses, RouteTable};
use crate::settings::DataplaneSettings;
use crate::wireguard::Wireguard;
use answers::Answers;
use arrivals::Arrivals;
use backend::{IPVS_INTERFACE, Leftover, Opened};
use clock::{Backoff, Every, Overdue, Throttle};
use figures::Figures;
use leftovers::Leftovers;
use mailbox::Mailbox;
use messages::{FromDataplane, Text, ToDataplane};
use netlink::netfilter::watch::{LaterWatch, Seen, Transactions, Watch};
use netlink::netfilter::{conntrack, nft};
use netlink::{
    Event as KernelEvent, Family, Handle, Interests, Kernel, Monitor, RouteFilter, RouteKind, TABLE_LOCAL,
    sysctl,
};
use rules::{Backend, IPIP_INTERFACE, VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use state::State;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A round that took longer wrote much at once, as the first one does, and its memory is free again. Rounds with iptables take
/// a tenth of it for a single change, and giving memory back is no work for each of those.
const LONG_ROUND_SECONDS: f64 = 1.0;
/// How long a host's MTU must be another before Felix starts anew because of it.
const MTU_SETTLING: Duration = Duration::from_secs(30);
/// The first report of the process waits, so that one that keeps dying does not report.
const FIRST_PROCESS_REPORT: Duration = Duration::from_secs(10);

/// What the loop is told.
#[derive(Debug)]
pub enum Event {
    /// Messages, in order: all that there are for now, or the last part of them.
    Messages(Vec<ToDataplane>),
    /// Messages that others belong to: nothing is done before those are there.
    Part(Vec<ToDataplane>),
    /// Ends the loop; what is programmed stays.
    Stop,
}

/// Why the dataplane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The mask of marks has too few bits.
    #[error(transparent)]
    Marks(#[from] rules::MarkError),
    /// There is no thread.
    #[error("cannot start the dataplane's threads: {0}")]
    Thread(#[from] std::io::Error),
    /// The kernel's network objects cannot be reached.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// The kernel's firewalls cannot be reached.
    #[error(transparent)]
    Netfilter(#[from] netlink::netfilter::Error),
    /// A setting asks for something that is not there.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The MTU of pods cannot be written, and it is required.
    #[error("cannot write the MTU of pods to {}: {reason}", path.display())]
    MtuFile {
        /// Where to.
        path: PathBuf,
        /// Why not.
        reason: std::io::Error,
    },
}

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// Only a new start can follow what changed on the host.
    #[error("a new start is needed: {0}")]
    Restart(String),
    /// The kernel cannot be listened to any more.
    #[error("{0}")]
    Kernel(String),
    /// It panicked.
    #[error("the dataplane's thread panicked: {0}")]
    Panicked(String),
}

impl DataplaneError {
    /// Whether a new start is all that is needed.
    #[must_use]
    pub fn is_restart(&self) -> bool {
        matches!(self, Self::Restart(_))
    }
}

/// What of the machine is not the kernel's.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where the MTU of pods is written to, for the CNI plugin.
    pub mtu_file: PathBuf,
    /// Where BPF programs and maps are pinned; none for the usual place, which counts in the machine's own network only.
    pub bpf_pins: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { mtu_file: PathBuf::from("/var/lib/calico/mtu"), bpf_pins: None }
    }
}

/// A loop that runs.
#[derive(Debug)]
pub struct Running {
    sender: SyncSender<Event>,
    thread: JoinHandle<Result<(), DataplaneError>>,
    suppress_overlaps: bool,
}

impl Running {
    /// Where messages are sent to. It blocks when the loop is far behind.
    #[must_use]
    pub fn sender(&self) -> SyncSender<Event> {
        self.sender.clone()
    }

    /// Whether sets must be free of networks that are inside others.
    #[must_use]
    pub fn suppress_overlaps(&self) -> bool {
        self.suppress_overlaps
    }

    /// Waits for the end of the loop.
    ///
    /// # Errors
    /// Why it ended, unless it was asked to.
    pub fn wait(self) -> Result<(), DataplaneError> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(DataplaneError::Panicked(text.unwrap_or_else(|| "no reason given".to_owned())))
        })
    }
}

/// Finds out which firewall is used, opens sockets, and starts the loop.
///
/// # Errors
/// When the configuration cannot be followed or the kernel cannot be reached.
pub fn start(
    settings: DataplaneSettings,
    reports: impl FnMut(FromDataplane) + Send + 'static,
) -> Result<Running, StartError> {
    start_on(settings, &Machine::default(), reports)
}

/// The same on a machine with other places.
///
/// # Errors
/// As above.
pub fn start_on(
    settings: DataplaneSettings,
    machine: &Machine,
    reports: impl FnMut(FromDataplane) + Send + 'static,
) -> Result<Running, StartError> {
    let (sender, mailbox) = Mailbox::open()?;
    let config = &settings.config;
    if !config.is_leader() {
        return stand_by(&settings, sender, mailbox);
    }
    if !config.use_internal_dataplane_driver {
        return Err(StartError::Unsupported(
            "UseInternalDataplaneDriver=false: there are no external drivers any more",
        ));
    }
    if config.bpf_enabled {
        tracing::error!("BPFEnabled: there is no BPF dataplane yet; policy is enforced without it");
    }
    let work = Work::open(settings, machine, Box::new(reports))?;
    let suppress_overlaps = work.state.renderer.backend() == Backend::Nftables;
    let thread =
        std::thread::Builder::new().name("dataplane".to_owned()).spawn(move || work.run(&mailbox))?;
    Ok(Running { sender, thread, suppress_overlaps })
}

/// Another Felix is the one that programs the kernel: messages are taken and nothing is done.
fn stand_by(
    settings: &DataplaneSettings,
    sender: SyncSender<Event>,
    mailbox: Mailbox,
) -> Result<Running, StartError> {
    tracing::info!(
        variant = settings.config.variant,
        "another Felix programs this host, and this one stands by"
    );
    settings.pulse.report(true, "standing by");
    let thread = std::thread::Builder::new().name("dataplane".to_owned()).spawn(move || {
        loop {
            let mut descriptors = [PollFd::new(&mailbox, PollFlags::IN)];
            // An interrupted wait only means another look.
            let _ = poll(&mut descriptors, None);
            mailbox.silence();
            while let Some(event) = mailbox.take() {
                if matches!(event, Event::Stop) {
                    return Ok(());
                }
            }
        }
    })?;
    Ok(Running { sender, thread, suppress_overlaps: false })
}

/// The loop's state.
struct Work {
    settings: DataplaneSettings,
    reports: Box<dyn FnMut(FromDataplane) + Send>,
    state: State,
    planes: Vec<Plane>,
    arp: Option<nftables::Driver<nft::Client>>,
    leftovers: Leftovers<Leftover>,
    mark_dispatch: ChainSet,
    watched: Vec<(nft::Table, Option<usize>)>,
    own_ports: Vec<u32>,
    own_commits: Vec<Arc<AtomicU64>>,
    kernel: Box<dyn Kernel + Send>,
    monitor: Monitor,
    watch: Option<Watch>,
    /// What listens as soon as the first rules are there.
    later_watch: Option<LaterWatch>,
    /// Who else changed nftables while we did.
    transactions: Option<Transactions>,
    arrivals: Arrivals,
    /// None where the host answers its neighbours only for itself.
    answers: Option<Answers>,
    announces: bool,
    connections: Box<dyn ConnectionCleanup + Send>,
    /// None where the kernel has no traffic control.
    bandwidth: Option<BandwidthDriver<netlink::tc::Client>>,
    figures: Figures,
    default_reverse_path: String,
    /// Whether the kernel was told to count packets of connections, or will not be.
    counts_connections: bool,
    has_ipvs: bool,
    mtus: Mtus,
    /// Tunnels that the kernel cannot make.
    unsupported: BTreeSet<String>,
    refused: BTreeSet<Refused>,
    refused_names: BTreeSet<Text>,
    has_refused: bool,
    look_for_refusals: bool,
    /// Whether there was a first round.
    is_started: bool,
    unused_tunnels: UnusedTunnels,
    is_reported_in_sync: bool,
    needs_round: bool,
    /// Whether only a part of what belongs together is there.
    is_partial: bool,
    begin: Instant,
    throttle: Throttle,
    backoff: Backoff,
    /// Since when rules have not come through.
    overdue: Overdue,
    /// When to try again or to look again.
    again_at: Option<Instant>,
    /// When the host's MTU is looked at again.
    mtu_check: Option<Instant>,
    refresh_sets: Every,
    refresh_routes: Every,
    refresh_interfaces: Every,
    process_report: Every,
    /// When addresses that the host answers for are announced again.
    announce: Every,
}

/// Nobody's connections: where the kernel has no connection table.
struct NoConnections;

impl Connections for NoConnections {
    fn forget(&mut self, _: &BTreeSet<std::net::IpAddr>) -> Result<usize, netlink::netfilter::Error> {
        Ok(0)
    }
}

impl Work {
    fn open(
        settings: DataplaneSettings,
        machine: &Machine,
        reports: Box<dyn FnMut(FromDataplane) + Send>,
    ) -> Result<Self, StartError> {
        let config = Arc::clone(&settings.config);
        // Listening comes first, so that nothing is missed between reading and listening.
        let monitor = Monitor::open(Interests { links: true, routes: true, ..Interests::default() })?;
        let mut kernel = Handle::open()?;
        let links = kernel.links()?;
        let has_ipvs = links.iter().any(|link| link.name == IPVS_INTERFACE);
        let host = host_mtu(
            config.mtu_iface_pattern.as_ref(),
            links.iter().map(|link| (link.name.as_str(), link.running, link.mtu)),
        );
        let host = host.unwrap_or_else(|| {
            tracing::warn!(assumed = ASSUMED_MTU, "no interface that is up matches MTUIfacePattern");
            ASSUMED_MTU
        });
        let mtus = Mtus::new(&config, &settings.encapsulation, host);
        write_mtu(&machine.mtu_file, mtus.pod, config.require_mtu_file)?;
        let Opened { renderer, mut planes, arp, leftovers, watched, own_ports, own_commits } =
            backend::open(&settings, machine, has_ipvs)?;
        let later_watch = match LaterWatch::open() {
            Ok(watch) => Some(watch),
            Err(error) => {
                tracing::info!(%error, "changes of nftables by others are found by refreshes only");
                None
            }
        };
        let connections = match conntrack::Client::open() {
            Ok(client) => Background::start(client)?,
            Err(error) => {
                tracing::warn!(%error, "connections of addresses that are gone cannot be forgotten");
                Background::start(NoConnections)?
            }
        };
        let bandwidth = match netlink::tc::Client::open() {
            Ok(client) => Some(BandwidthDriver::new(client, netlink::tc::ticks_in_microsecond())),
            Err(error) => {
                tracing::warn!(%error, "bandwidth of workloads cannot be limited");
                None
            }
        };
        let now = Instant::now();
        let interfaces = Interfaces::new(config.interface_exclude.clone());
        let state = State::new(&settings, renderer, &mut planes, interfaces, &mtus);
        let figures = Figures::new(&settings.metrics);
        let encrypting: Vec<String> = state.encrypting();
        if config.prometheus_wire_guard_metrics_enabled && !encrypting.is_empty() {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            crate::wireguard::watch(&settings.metrics, &name, encrypting);
        }
        let default_reverse_path =
            sysctl::read("net/ipv4/conf/default/rp_filter").unwrap_or_else(|_| "1".to_owned());
        let answers = state::answers_neighbours(&config).then(Answers::start).transpose()?;
        let announce = config.local_subnet_l2_reachability_refresh_interval.positive();
        let need = &settings.encapsulation;
        let unused_tunnels = UnusedTunnels::new(
            [
                (!need.vxlan).then_some(VXLAN_INTERFACE),
                (config.ipv6_support && !need.vxlan_v6).then_some(VXLAN_INTERFACE_V6),
            ],
            (!need.ipip && config.ipip_enabled.is_none()).then_some(IPIP_INTERFACE),
        );
        let mut work = Self {
            announce: Every::new(announce.filter(|_| answers.is_some()), now),
            answers,
            reports,
            state,
            planes,
            arp,
            leftovers: Leftovers::new(leftovers),
            mark_dispatch: ChainSet::default(),
            watched,
            own_ports,
            own_commits,
            kernel: Box::new(kernel),
            monitor,
            watch: None,
            later_watch,
            transactions: None,
            arrivals: Arrivals::default(),
            announces: false,
            connections: Box::new(connections),
            bandwidth,
            figures,
            default_reverse_path,
            counts_connections: false,
            has_ipvs,
            mtus,
            unsupported: BTreeSet::new(),
            refused: BTreeSet::new(),
            refused_names: BTreeSet::new(),
            has_refused: false,
            look_for_refusals: false,
            is_started: false,
            unused_tunnels,
            is_reported_in_sync: false,
            needs_round: false,
            is_partial: false,
            begin: now,
            throttle: Throttle::new(now),
            backoff: Backoff::default(),
            overdue: Overdue::default(),
            again_at: None,
            mtu_check: None,
            refresh_sets: Every::new(config.ipsets_refresh_interval.positive(), now),
            refresh_routes: Every::new(config.route_refresh_interval.positive(), now),
            refresh_interfaces: Every::new(config.interface_refresh_interval.positive(), now),
            process_report: Every::new(config.reporting_interval.positive(), now)
                .first_after(FIRST_PROCESS_REPORT, now),
            settings,
        };
        work.read_interfaces(now)?;
        Ok(work)
    }

    fn run(mut self, mailbox: &Mailbox) -> Result<(), DataplaneError> {
        let hang_after = self.settings.config.debug_simulate_dataplane_hang_after.positive();
        loop {
            self.settings.pulse.idle();
            self.wait(mailbox)?;
            self.settings.pulse.busy();
            let now = Instant::now();
            if hang_after.is_some_and(|after| now >= self.begin + after) {
                tracing::warn!("hanging, as DebugSimulateDataplaneHangAfter asks for");
                std::thread::sleep(Duration::from_secs(3600));
            }
            mailbox.silence();
            let mut batch = 0;
            while let Some(event) = mailbox.take() {
                match event {
                    Event::Stop => return Ok(()),
                    Event::Messages(messages) => {
                        batch += messages.len();
                        self.take_messages(messages, now);
                        self.needs_round = true;
                        self.is_partial = false;
                    }
                    Event::Part(messages) => {
                        batch += messages.len();
                        self.take_messages(messages, now);
                        self.is_partial = true;
                    }
                }
            }
            if batch > 0 {
                self.settings.metrics.observe(
                    "felix_int_dataplane_msg_batch_size",
                    "Number of messages processed in each batch.",
                    backend::number(batch),
                );
            }
            self.listen(now)?;
            self.await_machines();
            self.look_at_clock(now)?;
            self.maybe_round(Instant::now());
            if self.is_started {
                self.begin_to_listen()?;
            }
        }
    }

    fn take_messages(&mut self, messages: Vec<ToDataplane>, now: Instant) {
        messages.into_iter().for_each(|message| self.state.take(message, &mut self.planes, now));
    }

    /// Listens for the machines that move here, and hears those that have come.
    fn await_machines(&mut self) {
        let state = &mut self.state;
        let awaited = state.migrations.awaited();
        self.arrivals.follow(awaited.filter_map(|(id, name)| Some((id, state.interfaces.index(name)?))));
        for id in self.arrivals.take() {
            tracing::info!(?id, "a machine that moves here announced itself");
            self.needs_round |= state.announced(&id);
        }
        for (id, machine) in state.migrations.take_arrived() {
            (self.reports)(FromDataplane::MachineArrived { id, machine });
        }
    }

    /// Waits until something happens or is due.
    fn wait(&self, mailbox: &Mailbox) -> Result<(), DataplaneError> {
        let now = Instant::now();
        let due = self.next_due(now).map(|due| due.saturating_duration_since(now));
        // Rounded up, so that it is due when we wake.
        let timeout = due.and_then(|due| Timespec::try_from(due + Duration::from_micros(100)).ok());
        let mut descriptors =
            vec![PollFd::new(mailbox, PollFlags::IN), PollFd::new(&self.monitor, PollFlags::IN)];
        descriptors.extend(self.watch.iter().map(|watch| PollFd::new(watch, PollFlags::IN)));
        descriptors
            .extend(self.arrivals.descriptors().map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)));
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(DataplaneError::Kernel(format!("cannot wait for events: {error}"))),
        }
    }

    fn next_due(&self, now: Instant) -> Option<Instant> {
        let round = match (self.may_start_round(), self.again_at) {
            // Held up, by the throttle or after a failure.
            (true, Some(at)) => Some(at),
            (true, None) => Some(now),
            // What is missing comes as a message.
            (false, at) => at.filter(|_| !self.is_partial),
        };
        [
            round,
            self.mtu_check,
            self.refresh_interfaces.due(),
            self.process_report.due(),
            self.announce.due(),
            self.refresh_sets.due(),
            self.refresh_routes.due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Takes in the kernel's news.
    fn listen(&mut self, now: Instant) -> Result<(), DataplaneError> {
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
                if let KernelEvent::RouteGone(route) = &event {
                    for plane in &mut self.planes {
                        self.needs_round |=
                            plane.routes.as_mut().is_some_and(|routes| routes.route_gone(route));
                    }
                    for wireguard in self.state.wireguards() {
                        self.needs_round |= wireguard.table().is_some_and(|routes| routes.route_gone(route));
                    }
                }
                unread.extend(self.state.interfaces.take(&event, &mut news));
            }
        }
        if lost {
            tracing::warn!("the kernel's events came too fast; everything is read anew");
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

    fn take_news(
        &mut self,
        news: &[crate::managers::InterfaceNews],
        now: Instant,
    ) -> Result<(), DataplaneError> {
        if news.is_empty() {
            return Ok(());
        }
        self.settings.metrics.observe(
            "felix_int_dataplane_iface_msg_batch_size",
            "Number of interface state messages processed in each batch.",
            backend::number(news.len()),
        );
        self.needs_round |= self.state.take_news(news, &mut self.planes, now);
        let has_ipvs = self.state.interfaces.index(IPVS_INTERFACE).is_some();
        if has_ipvs != self.has_ipvs && self.state.renderer.backend() == Backend::Iptables {
            return Err(DataplaneError::Restart("kube-proxy began or ceased to use IPVS".to_owned()));
        }
        if self.host_mtu() != self.mtus.host {
            self.mtu_check.get_or_insert(now + MTU_SETTLING);
        } else {
            self.mtu_check = None;
        }
        Ok(())
    }

    fn host_mtu(&self) -> u32 {
        let interfaces = self.state.interfaces.all();
        host_mtu(
            self.settings.config.mtu_iface_pattern.as_ref(),
            interfaces.map(|interface| (&*interface.name, interface.up, interface.mtu)),
        )
        .unwrap_or(ASSUMED_MTU)
    }

    fn writes_by_iptables(&self) -> bool {
        self.state.renderer.backend() == Backend::Iptables
    }

    fn listen_to_nftables(&mut self) -> Result<(), DataplaneError> {
        if self.writes_by_iptables() {
            // Before listening: what others write from here on is counted, and what they wrote until here is heard.
            self.others_wrote();
        }
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let seen = watch.look(&self.own_ports).map_err(|error| DataplaneError::Kernel(error.to_string()))?;
        self.heed(&seen)
    }

    /// Listens from now on. What others wrote since the start, while nobody listened, is found by counting.
    fn begin_to_listen(&mut self) -> Result<(), DataplaneError> {
        let Some(later) = self.later_watch.take() else { return Ok(()) };
        let listening = later.listen(self.own_commits());
        let (watch, transactions, others) =
            listening.map_err(|error| DataplaneError::Kernel(error.to_string()))?;
        (self.watch, self.transactions) = (Some(watch), Some(transactions));
        if !others {
            self.undisturbed();
        }
        self.heed(&Seen { lost: others, ..Seen::default() })
    }

    /// How many transactions of nftables were ours, also through iptables.
    fn own_commits(&self) -> u64 {
        self.own_commits.iter().map(|commits| commits.load(Ordering::Relaxed)).sum()
    }

    /// Whether there may have been transactions of others since this was asked last.
    fn others_wrote(&mut self) -> bool {
        let own = self.own_commits();
        self.transactions.as_mut().is_none_or(|transactions| transactions.others(own).unwrap_or(true))
    }

    /// Nobody else wrote since what others wrote was heard last.
    fn undisturbed(&mut self) {
        self.planes.iter_mut().for_each(|plane| plane.rules.undisturbed());
    }

    /// Has tables read anew that somebody else changed.
    fn heed(&mut self, seen: &Seen) -> Result<(), DataplaneError> {
        for (table, place) in &self.watched {
            if !seen.concerns(table) {
                continue;
            }
            self.needs_round = true;
            match place.map(|place| &mut self.planes[place]) {
                Some(plane) => {
                    plane.rules.invalidate();
                    if self.state.renderer.backend() == Backend::Nftables {
                        plane.sets.invalidate();
                    }
                }
                None => self.arp.iter_mut().for_each(crate::driver::RuleDriver::invalidate),
            }
        }
        let kube_proxy = |family| nft::Table::new(family, "kube-proxy");
        let is_kube_proxy =
            [nft::Family::Ip, nft::Family::Ip6].into_iter().any(|one| seen.concerns(&kube_proxy(one)));
        if is_kube_proxy && self.settings.config.nftables_mode == felix_config::choices::NftablesMode::Auto {
            self.look_at_kube_proxy()?;
        }
        Ok(())
    }

    fn look_at_kube_proxy(&self) -> Result<(), DataplaneError> {
        let uses_nftables = self.state.renderer.backend() == Backend::Nftables;
        match crate::environment::find_kube_proxy_nftables() {
            Ok(found) if found != uses_nftables => {
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
    fn read_interfaces(&mut self, now: Instant) -> Result<(), netlink::Error> {
        let links = self.kernel.links()?;
        let mut local = Vec::new();
        for family in [Family::V4, Family::V6] {
            local.extend(self.kernel.routes(&local_routes(family, None))?);
        }
        let mut news = Vec::new();
        self.state.interfaces.replace(&links, &local, &mut news);
        self.needs_round |= self.state.take_news(&news, &mut self.planes, now);
        Ok(())
    }

    fn read_addresses(
        &mut self,
        index: u32,
        news: &mut Vec<crate::managers::InterfaceNews>,
    ) -> Result<(), netlink::Error> {
        let mut addresses = BTreeSet::new();
        for family in [Family::V4, Family::V6] {
            let routes = self.kernel.routes(&local_routes(family, Some(index)))?;
            addresses.extend(routes.iter().map(|route| route.destination.addr()));
        }
        self.state.interfaces.set_addresses(index, addresses, news);
        Ok(())
    }

    /// Has everything looked at that is not of the firewall: routes, addresses, neighbours, tunnel devices.
    fn read_network_again(&mut self) {
        for plane in &mut self.planes {
            plane.routes.iter_mut().for_each(RouteTable::invalidate);
            plane.link_addresses.iter_mut().for_each(LinkAddresses::invalidate);
        }
        let vxlan = self.state.versions.iter_mut().filter_map(|managers| managers.vxlan.as_mut());
        vxlan.for_each(|vxlan| vxlan.neighbours.invalidate());
        self.state.wireguards().for_each(Wireguard::invalidate);
        self.state.devices_changed = true;
        self.needs_round = true;
    }

    /// Does what is due.
    fn look_at_clock(&mut self, now: Instant) -> Result<(), DataplaneError> {
        if self.refresh_sets.is_due(now) {
            self.planes.iter_mut().for_each(|plane| plane.sets.invalidate());
            self.needs_round = true;
        }
        if self.refresh_routes.is_due(now) {
            self.read_network_again();
        }
        if self.refresh_interfaces.is_due(now) {
            self.read_interfaces(now).map_err(|error| DataplaneError::Kernel(error.to_string()))?;
        }
        if self.announce.is_due(now) {
            (self.announces, self.needs_round) = (true, true);
        }
        if self.again_at.is_some_and(|at| at <= now) {
            self.needs_round = true;
        }
        if self.mtu_check.is_some_and(|at| at <= now) {
            self.mtu_check = None;
            let mtu = self.host_mtu();
            if mtu != self.mtus.host {
                let was = self.mtus.host;
                return Err(DataplaneError::Restart(format!("the MTU of the host was {was} and is {mtu}")));
            }
        }
        if self.process_report.is_due(now) {
            (self.reports)(FromDataplane::ProcessStatus {
                iso_timestamp: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                uptime: (now - self.begin).as_secs_f64(),
            });
        }
        Ok(())
    }

    /// Whether there is anything to do, and everything that belongs to it is known.
    fn may_start_round(&self) -> bool {
        self.state.in_sync && self.needs_round && !self.is_partial
    }

    /// Goes through the phases, if there is anything to do and it is time.
    fn maybe_round(&mut self, now: Instant) {
        if !self.may_start_round() {
            return;
        }
        if let Err(at) = self.throttle.admit(now) {
            self.again_at = Some(at);
            return;
        }
        if let Some(delay) = self.settings.config.debug_simulate_dataplane_apply_delay.positive() {
            std::thread::sleep(delay);
        }
        self.needs_round = false;
        let round = self.round(now);
        let seconds = now.elapsed().as_secs_f64();
        let done = Instant::now();
        if self.writes_by_iptables()
            && let Some(watch) = &mut self.watch
        {
            // What iptables wrote for us is no news. What somebody else wrote meanwhile cannot be told from it; if anybody
            // did, it is found soon after, because tables are looked at again after a write.
            let _ = watch.look(&self.own_ports);
            if !self.others_wrote() {
                self.undisturbed();
            }
        }
        self.again_at = round.again_in.map(|pause| done + pause);
        if round.failures.is_empty() {
            self.backoff.succeeded();
            let is_first = !std::mem::replace(&mut self.is_reported_in_sync, true);
            if is_first {
                (self.reports)(FromDataplane::InSync);
            }
            if is_first || seconds > LONG_ROUND_SECONDS {
                telemetry::memory::give_back();
            }
            if is_first {
                telemetry::memory::let_go_of_code();
            }
        } else {
            for failure in &round.failures {
                tracing::warn!(failure, "cannot bring a part of the kernel to its state; trying again");
            }
            let failures = backend::number(1);
            self.settings.metrics.count(
                "felix_int_dataplane_failures",
                "Number of times dataplane updates failed and will be retried.",
                failures,
            );
            let retry = done + self.backoff.failed();
            self.again_at = self.again_at.into_iter().chain([retry]).min();
        }
        if std::mem::replace(&mut self.is_started, true) {
            self.settings.metrics.observe(
                "felix_int_dataplane_apply_time_seconds",
                "Time in seconds for each incremental update to the dataplane (after the initial resync).",
                seconds,
            );
        } else {
            tracing::info!(seconds, "brought the kernel to its state for the first time");
            self.settings.metrics.set(
                "felix_int_dataplane_initial_resync_time_seconds",
                "Time in seconds that it took to do the initial resync with the dataplane.",
                seconds,
            );
        }
        let overdue = self.overdue.note(round.rules_failed, done);
        let detail = match (round.failures.as_slice(), self.refused.len()) {
            ([first, ..], _) if overdue => format!("policy has not been programmed for long: {first}"),
            ([], 0) => String::new(),
            ([], count) => format!("{count} parts of the policy were refused by the kernel and are closed"),
            ([first, ..], _) => format!("trying again: {first}"),
        };
        let unencrypted = self.state.wireguards().find_map(|wireguard| wireguard.unsupported());
        let detail: Vec<&str> =
            [detail.as_str()].into_iter().chain(unencrypted).filter(|part| !part.is_empty()).collect();
        self.settings.pulse.report(!overdue, detail.join("; "));
    }
}

/// The routes that say which addresses are this host's.
fn local_routes(family: Family, device: Option<u32>) -> RouteFilter {
    RouteFilter { table: Some(TABLE_LOCAL), kind: Some(RouteKind::Local), device, ..RouteFilter::all(family) }
}

fn write_mtu(file: &Path, mtu: u32, is_required: bool) -> Result<(), StartError> {
    let write = || {
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(file, mtu.to_string())
    };
    match write() {
        Ok(()) => Ok(()),
        Err(reason) if is_required => Err(StartError::MtuFile { path: file.to_owned(), reason }),
        Err(reason) => {
            tracing::error!(%reason, file = %file.display(), "the MTU of pods is not written and may be wrong");
            Ok(())
        }
    }
}
