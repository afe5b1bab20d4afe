//! The speaker with its sockets: one thread that owns everything and sleeps until something happens.
//!
//! It uses epoll directly: a runtime would cost threads, and a node of a large mesh should cost a few megabytes and,
//! when idle, no processor time. A bounded amount is read from a peer at a time, so that one that sends much does not
//! block others. Makes no decisions, which are the engine's.

mod connections;
mod discovery;
mod filters;
mod handle;
mod host;
mod host_events;
mod kernel;
mod log;
mod sockets;
mod watch;

pub use handle::Handle;

use crate::bfd::News;
use crate::engine::{Engine, Output};
use crate::session::{Direction, Moment};
use connections::Connection;
use discovery::Discovery;
use handle::Command;
use host::Host;
use kernel::Routes;
use log::log;
use netlink::{Interests, Monitor};
use rib::PeerId;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use sockets::Listener;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use watch::{Found, Watch};

/// After this time, operations that the host refused (a port, a route) are retried.
const RETRY: Duration = Duration::from_secs(5);
/// The size of one read.
const READ: usize = 64 * 1024;
/// The maximum number of reads from one connection before others get their turn.
const READS: usize = 4;

const WAKE: u64 = 0;
const MONITOR: u64 = 1;
/// The next two numbers are those of listeners, followed by BFD's, and connections from there on.
const LISTENERS: u64 = 2;
const BFD: u64 = 4;
const DISCOVERY: u64 = BFD + watch::LISTENERS;
const CONNECTIONS: u64 = DISCOVERY + 1;

/// The speaker with its sockets.
pub struct Speaker {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: Receiver<Command>,
    engine: Engine,
    host: Host,
    routes: Routes<netlink::Handle>,
    monitor: Monitor,
    watch: Watch,
    discovery: Discovery,
    listeners: [Option<Listener>; 2],
    connections: BTreeMap<u64, Connection>,
    by_peer: HashMap<(PeerId, Direction), u64>,
    next: u64,
    begun: Instant,
    retry_at: Option<Instant>,
    buffer: Vec<u8>,
    ended: bool,
}

/// Why the speaker could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The kernel's network objects cannot be read.
    #[error("the network of this host cannot be read")]
    Netlink(#[from] netlink::Error),
    /// The kernel refuses epoll or an event counter.
    #[error("waiting for sockets is not possible")]
    Wait(#[from] rustix::io::Errno),
}

impl Speaker {
    /// Opens everything needed in this thread's network namespace. Nothing is sent before there is an intent.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open() -> Result<(Self, Handle), StartError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        // Monitoring begins before reading, so that nothing is missed in between.
        let monitor =
            Monitor::open(Interests { links: true, addresses: true, routes: true, ..Interests::default() })?;
        epoll::add(&epoll, &monitor, EventData::new_u64(MONITOR), EventFlags::IN)?;
        let mut routes = Routes::open(netlink::Handle::open()?)?;
        let host = Host::read(routes.kernel(), Vec::new())?;
        let restarting = routes.has_adopted();
        if restarting {
            tracing::info!("routes of the previous speaker are kept until peers have sent theirs");
        }
        let begun = Instant::now();
        let mut engine = Engine::new(seed(), restarting, Duration::ZERO);
        engine.set_host_routes(host.all(), Duration::ZERO);
        let (sender, commands) = channel();
        let handle = Handle { sender, wake: Arc::clone(&wake) };
        let speaker = Self {
            epoll,
            wake,
            commands,
            engine,
            host,
            routes,
            monitor,
            watch: Watch::new(seed()),
            discovery: Discovery::default(),
            listeners: [None, None],
            connections: BTreeMap::new(),
            by_peer: HashMap::new(),
            next: CONNECTIONS,
            begun,
            retry_at: None,
            buffer: vec![0; READ],
            ended: false,
        };
        Ok((speaker, handle))
    }

    fn now(&self) -> Moment {
        self.begun.elapsed()
    }

    /// Runs until [`Handle::end`].
    ///
    /// # Errors
    /// When waiting for sockets fails.
    pub fn run(mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        while !self.ended {
            let timeout = self.timeout().map(|time| Timespec {
                tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: time.subsec_nanos().into(),
            });
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                self.event(event.data.u64(), event.flags);
            }
            let now = self.now();
            if self.engine.deadline().is_some_and(|deadline| deadline <= now) {
                self.engine.tick(now);
            }
            if self.watch.deadline().is_some_and(|deadline| deadline <= now) {
                let found = self.watch.tick(now);
                self.found(found);
            }
            if self.retry_at.is_some_and(|at| at <= Instant::now()) {
                self.retry_at = None;
                self.routes.retry(&self.host);
                self.listen();
            }
            self.pump();
        }
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        let deadlines = [self.engine.deadline(), self.watch.deadline()];
        let deadline = deadlines.into_iter().flatten().min().map(|at| at.saturating_sub(self.now()));
        let retry = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()));
        let soonest = match (deadline, retry) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // Rather a millisecond late than many times too early.
        soonest.map(|time| time + Duration::from_millis(1))
    }

    fn event(&mut self, token: u64, flags: EventFlags) {
        match token {
            WAKE => self.commands(),
            MONITOR => self.host_events(),
            LISTENERS..BFD => self.accept(usize::from(token > LISTENERS)),
            BFD..DISCOVERY => {
                let found = self.watch.receive(usize::try_from(token - BFD).unwrap_or_default(), self.now());
                self.found(found);
            }
            DISCOVERY => self.discovery.receive(),
            _ => self.connection_event(token, flags),
        }
    }

    fn commands(&mut self) {
        let mut counter = [0; 8];
        // Its value does not matter.
        let _ = rustix::io::read(&*self.wake, &mut counter);
        while let Ok(command) = self.commands.try_recv() {
            let now = self.now();
            match command {
                Command::Apply(intent) => {
                    for problem in &intent.problems {
                        tracing::warn!("{problem}");
                    }
                    if self.host.ignored() != intent.ignored_interfaces.as_slice() {
                        self.read_host(intent.ignored_interfaces.clone());
                    }
                    self.engine.apply(*intent, now);
                }
                Command::Ask(question) => question(&self.engine, now),
                Command::End { keep, text } => {
                    self.watch.end();
                    self.engine.shut_down(keep, &text, now);
                    self.pump();
                    self.ended = true;
                }
            }
        }
    }

    /// Handles BFD's findings.
    fn found(&mut self, found: Vec<Found>) {
        let now = self.now();
        for Found { peer, remote, news } in found {
            match news {
                News::Up => {
                    tracing::info!("BFD sees {remote}");
                    self.engine.seen(peer, Some(true), now);
                }
                News::Down(reason) => {
                    tracing::warn!("BFD has lost {remote}: {reason}");
                    self.engine.seen(peer, Some(false), now);
                }
                News::Ended => {
                    tracing::info!("{remote} has shut down BFD");
                    self.engine.seen(peer, None, now);
                }
            }
        }
    }

    /// Executes the engine's outputs until there are none.
    fn pump(&mut self) {
        loop {
            self.outputs();
            let ready = self.engine.take_ready();
            if ready.is_empty() {
                break;
            }
            for peer in ready {
                for direction in [Direction::Outgoing, Direction::Incoming] {
                    self.flush(peer, direction);
                }
            }
        }
        let changes = self.engine.take_kernel();
        if !changes.is_empty() {
            self.routes.apply(changes, &self.host);
        }
        if self.routes.has_refused() && self.retry_at.is_none() {
            self.retry_at = Some(Instant::now() + RETRY);
        }
    }

    fn outputs(&mut self) {
        for output in self.engine.take_outputs() {
            match output {
                Output::Connect(peer) => self.connect(peer),
                Output::Close(peer, direction, last) => {
                    if let Some(token) = self.by_peer.get(&(peer, direction)).copied() {
                        if let Some(connection) = self.connections.get(&token)
                            && !last.is_empty()
                        {
                            // Data that cannot be sent immediately is dropped.
                            let _ = (&connection.socket).write(&last);
                        }
                        self.drop_connection(token);
                    }
                }
                Output::Listen => self.listen(),
                Output::Watch => {
                    let (wishes, now) = (self.engine.watched(), self.now());
                    self.watch.reconcile(wishes, &self.host, &self.epoll, BFD, now);
                }
                Output::SweepKernel => {
                    let changes = self.engine.take_kernel();
                    self.routes.apply(changes, &self.host);
                    self.routes.sweep();
                }
                Output::Log(line) => log(&line),
            }
        }
    }
}

/// A value that differs between starts.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
