//! The loop that brings the kernel to the state that the calculation requests.
//!
//! One thread owns everything. It waits in one place for messages and for events of the kernel (interfaces, addresses,
//! foreign changes of nftables), lets the managers compute the desired state, and has the drivers bring the kernel
//! there in a fixed order of phases ([`phases`]). Nothing is written before the first [`ToDataplane::InSync`]. When
//! nothing happens and no refresh is configured, it sleeps.

mod answers;
mod arrivals;
mod backend;
mod bpf;
mod clock;
mod drivers;
mod figures;
mod interface_setup;
mod leftovers;
mod listen;
mod mailbox;
mod open;
mod others;
mod outcome;
mod pace;
mod phases;
mod refusals;
mod roster;
mod start;
mod wireguard_figures;

pub use mailbox::{NotTaken, Sender};
#[cfg(any(test, feature = "testing"))]
pub use start::testing;
pub use start::{DataplaneError, Machine, Running, StartError, start, start_on};

use crate::desired::Desired;
use crate::managers::{self, Mtus, News, World};
use crate::settings::DataplaneSettings;
use answers::Answers;
use arrivals::Arrivals;
use backend::Leftover;
use bpf::Bpf;
use clock::{Every, Overdue, Throttle};
use drivers::Drivers;
use figures::Figures;
use leftovers::Leftovers;
use mailbox::Mailbox;
use messages::{FromDataplane, ToDataplane};
use netlink::{Kernel, Monitor};
use others::Others;
use outcome::Progress;
use pace::{Pace, Step};
use refusals::Refusals;
use roster::Roster;
use routing::routes::ConnectionCleanup;
use routing::routes::device::UnusedTunnels;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// An input of the loop.
#[derive(Debug)]
pub enum Event {
    /// Messages, in order: all that are available now, or the last part of a batch.
    Messages(Vec<ToDataplane>),
    /// An incomplete part of a batch: nothing is done before the rest arrives.
    Part(Vec<ToDataplane>),
    /// Ends the loop; the programmed state remains.
    Stop,
}

/// Regular checks, as configured.
struct Refreshes {
    sets: Every,
    routes: Every,
    interfaces: Every,
    process_report: Every,
    /// When the addresses that the host answers for are announced again.
    announce: Every,
}

impl Refreshes {
    fn due(&self) -> Option<Instant> {
        let all = [&self.sets, &self.routes, &self.interfaces, &self.process_report, &self.announce];
        all.into_iter().filter_map(Every::due).min()
    }
}

/// The loop: managers with their input and output, drivers, and the loop's own state.
struct Loop {
    settings: DataplaneSettings,
    reports: Box<dyn FnMut(FromDataplane) + Send>,
    roster: Roster,
    world: World,
    desired: Desired,
    drivers: Drivers,
    /// `None` where eBPF is not enabled.
    bpf: Option<Bpf>,
    leftovers: Leftovers<Leftover>,
    /// kube-proxy's leftovers, removed once programs serve services.
    kube_proxy: Leftovers<Leftover>,
    unused_tunnels: UnusedTunnels,
    kernel: Box<dyn Kernel + Send>,
    monitor: Monitor,
    others: Others,
    arrivals: Arrivals,
    /// `None` where the host answers its neighbours only for itself.
    answers: Option<Answers>,
    /// Whether all addresses are announced with the next answers.
    announces: bool,
    connections: Box<dyn ConnectionCleanup + Send>,
    /// Whether the kernel was set to count the packets of connections, or will never be.
    counts_connections: bool,
    figures: Figures,
    refusals: Refusals,
    /// Whether all rules have been in place once.
    rules_are_written: bool,
    has_ipvs: bool,
    mtus: Mtus,
    /// When the host's MTU is checked again.
    mtu_check: Option<Instant>,
    begin: Instant,
    pace: Pace,
    progress: Progress,
    throttle: Throttle,
    /// Since when rules could not be programmed.
    overdue: Overdue,
    refreshes: Refreshes,
}

impl Loop {
    fn run(mut self, mailbox: &Mailbox) -> Result<(), DataplaneError> {
        let hang_after = self.settings.config.debug_simulate_dataplane_hang_after.positive();
        loop {
            self.settings.pulse.idle();
            self.wait(mailbox)?;
            self.settings.pulse.busy();
            let now = Instant::now();
            if hang_after.is_some_and(|after| now >= self.begin + after) {
                tracing::warn!("hanging, as DebugSimulateDataplaneHangAfter requests");
                std::thread::sleep(Duration::from_secs(3600));
            }
            mailbox.silence();
            let mut batch = 0;
            while let Some(event) = mailbox.take() {
                let (messages, is_part) = match event {
                    Event::Stop => return Ok(()),
                    Event::Messages(messages) => (messages, false),
                    Event::Part(messages) => (messages, true),
                };
                batch += messages.len();
                let in_sync = self.take_messages(messages, now);
                self.step(if is_part { Step::Part { in_sync } } else { Step::Messages { in_sync } });
            }
            if batch > 0 {
                self.settings.metrics.observe(
                    "felix_int_dataplane_msg_batch_size",
                    "Number of messages processed in each batch.",
                    backend::number(batch),
                );
            }
            self.listen(now)?;
            self.await_machines(now);
            self.look_at_clock(now)?;
            self.maybe_round(Instant::now());
            if self.progress != Progress::Nothing {
                self.begin_to_listen()?;
            }
        }
    }

    fn step(&mut self, step: Step) {
        self.pace = self.pace.after(step);
    }

    /// Passes messages to managers. What they write at once is passed on to the drivers, so that it is not held twice.
    /// Returns whether the state is complete for the first time with these messages.
    fn take_messages(&mut self, messages: Vec<ToDataplane>, now: Instant) -> bool {
        let mut in_sync = false;
        for message in messages {
            in_sync |= matches!(message, ToDataplane::InSync);
            self.bpf.iter_mut().for_each(|bpf| bpf.hear(&message));
            managers::tell(message, |news| self.roster.hear(news, now, &mut self.desired));
        }
        self.drivers.take(&mut self.desired);
        in_sync
    }

    /// Listens for machines that move here, and handles those that have arrived.
    fn await_machines(&mut self, now: Instant) {
        let interfaces = &self.world.interfaces;
        let awaited = self.roster.migrations.awaited();
        self.arrivals.follow(awaited.filter_map(|(id, name)| Some((id, interfaces.index(name)?))));
        for id in self.arrivals.take() {
            tracing::info!(?id, "a machine that moves here announced itself");
            self.roster.hear(&News::Announced(&id), now, &mut self.desired);
            self.step(Step::News);
        }
        for (id, machine) in self.roster.migrations.take_arrived() {
            (self.reports)(FromDataplane::MachineArrived { id, machine });
        }
    }

    /// Waits until an event arrives or something is due.
    fn wait(&self, mailbox: &Mailbox) -> Result<(), DataplaneError> {
        let now = Instant::now();
        let due = [self.pace.wake_at(now), self.mtu_check, self.refreshes.due()].into_iter().flatten().min();
        let due = due.map(|due| due.saturating_duration_since(now));
        // Rounded up, so that it is due when the loop wakes up.
        let timeout = due.and_then(|due| Timespec::try_from(due + Duration::from_micros(100)).ok());
        let mut descriptors =
            vec![PollFd::new(mailbox, PollFlags::IN), PollFd::new(&self.monitor, PollFlags::IN)];
        let others = self.others.descriptor().into_iter().chain(self.arrivals.descriptors());
        descriptors.extend(others.map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN)));
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(DataplaneError::Kernel(format!("cannot wait for events: {error}"))),
        }
    }

    /// Does what is due.
    fn look_at_clock(&mut self, now: Instant) -> Result<(), DataplaneError> {
        if self.refreshes.sets.is_due(now) {
            self.drivers.planes.iter_mut().for_each(|plane| plane.filter.sets.invalidate());
            self.bpf.iter_mut().for_each(Bpf::invalidate);
            self.step(Step::News);
        }
        if self.refreshes.routes.is_due(now) {
            self.read_network_again();
        }
        if self.refreshes.interfaces.is_due(now) {
            self.read_interfaces(now).map_err(|error| DataplaneError::Kernel(error.to_string()))?;
        }
        if self.refreshes.announce.is_due(now) {
            self.announces = true;
            self.step(Step::News);
        }
        self.step(Step::Time(now));
        if self.mtu_check.is_some_and(|at| at <= now) {
            self.mtu_check = None;
            let mtu = self.host_mtu();
            if mtu != self.mtus.host {
                let was = self.mtus.host;
                return Err(DataplaneError::Restart(format!("the MTU of the host was {was} and is {mtu}")));
            }
        }
        if let Some(reason) = self.bpf.as_mut().and_then(Bpf::outgrown) {
            return Err(DataplaneError::Restart(reason));
        }
        if self.refreshes.process_report.is_due(now) {
            (self.reports)(FromDataplane::ProcessStatus {
                iso_timestamp: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                uptime: (now - self.begin).as_secs_f64(),
            });
        }
        Ok(())
    }

    /// Performs a round, if there is anything to do and it is due.
    fn maybe_round(&mut self, now: Instant) {
        if !self.pace.is_due() {
            return;
        }
        if let Err(until) = self.throttle.admit(now) {
            self.step(Step::Held(until));
            return;
        }
        if let Some(delay) = self.settings.config.debug_simulate_dataplane_apply_delay.positive() {
            std::thread::sleep(delay);
        }
        let round = self.round(now);
        let seconds = now.elapsed().as_secs_f64();
        let done = Instant::now();
        if self.writes_by_iptables() && self.others.is_listening() {
            // Our own changes through iptables are not news. Simultaneous foreign changes cannot be distinguished from
            // them; any are found soon after, because tables are checked again after a write.
            self.others.pass_over();
            if !self.others.wrote() {
                self.drivers.undisturbed();
            }
        }
        let wake = round.again_in.map(|pause| done + pause);
        self.step(match round.failures.is_empty() {
            true => Step::Done { wake },
            false => Step::Failed { now: done, wake },
        });
        self.report_outcome(&round, seconds, done);
    }
}
