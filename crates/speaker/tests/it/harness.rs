//! Two hosts on one wire: a speaker in one, a peer in the other.

use anyhow::{Context as _, Result, bail};
use bgp::intent::{Remote, Session, SessionKind, SessionName};
use bgp::{Intent, IpVersion};
use ipnet::IpNet;
use speaker::for_tests::{self as simulation, Handle, PeerStatus, Speaker, StateName};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::Process;
use testkit::network::Namespace;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) const OURS: [&str; 2] = ["10.99.0.1", "fd99::1"];
pub(crate) const THEIRS: [&str; 2] = ["10.99.0.2", "fd99::2"];
/// The blocks that the speaker announces.
pub(crate) const BLOCKS: [&str; 2] = ["172.16.0.64/26", "fd00:10:0:40::/122"];

/// Two hosts on one wire.
pub(crate) struct Wire {
    pub(crate) ours: Arc<Namespace>,
    pub(crate) theirs: Arc<Namespace>,
    pub(crate) folder: TempDir,
}

impl Wire {
    pub(crate) fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("sp{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (ours, theirs) = (Namespace::new(&format!("{id}a"))?, Namespace::new(&format!("{id}b"))?);
        ours.batch(&format!(
            "link add eth0 type veth peer name eth0 netns {}\naddr add {}/24 dev eth0\naddr add {}/64 dev eth0\nlink set eth0 up",
            theirs.name(),
            OURS[0],
            OURS[1],
        ))?;
        theirs.batch(&format!(
            "addr add {}/24 dev eth0\naddr add {}/64 dev eth0\nlink set eth0 up",
            THEIRS[0], THEIRS[1]
        ))?;
        Ok(Self { ours: Arc::new(ours), theirs: Arc::new(theirs), folder: TempDir::new()? })
    }

    /// Our routes of BIRD's protocol number, in both families.
    pub(crate) fn kernel_routes(&self) -> Result<String> {
        self.ours.shell("ip route show proto bird; ip -6 route show proto bird")
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            bail!("waited in vain for: {what}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A speaker in its own thread.
pub(crate) struct Running {
    pub(crate) handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(wire: &Wire, intent: Intent) -> Result<Self> {
        Self::start_in(&wire.ours, intent)
    }

    /// Starts a speaker in a namespace.
    pub(crate) fn start_in(namespace: &Arc<Namespace>, intent: Intent) -> Result<Self> {
        let namespace = Arc::clone(namespace);
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            let outcome = namespace.run(move || match Speaker::open() {
                Ok((speaker, handle)) => {
                    drop(sender.send(Ok(handle)));
                    speaker.run().expect("a speaker that runs");
                }
                Err(error) => drop(sender.send(Err(error))),
            });
            outcome.expect("a namespace");
        });
        let handle = receiver.recv().context("the speaker's thread has ended")??;
        handle.apply(intent);
        Ok(Self { handle, thread: Some(thread) })
    }

    /// All sessions.
    pub(crate) fn peers(&self) -> Result<Vec<PeerStatus>> {
        let summary = self.handle.ask(|engine, _| engine.summary()).context("the speaker has ended")?;
        Ok(summary.peers)
    }

    pub(crate) fn wait_established(&self, count: usize) -> Result<()> {
        wait_for("all sessions to be up", || {
            let up = self.peers()?.iter().filter(|peer| peer.state == StateName::Established).count();
            Ok(up == count)
        })
        .with_context(|| format!("{:#?}", self.peers().map(|peers| states(&peers)).unwrap_or_default()))
    }

    /// Ends the speaker and waits for its thread.
    pub(crate) fn end(mut self, keep: bool) {
        self.handle.end(keep, "test");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a speaker that ends");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.end(false, "test");
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has already been printed.
            let _ = thread.join();
        }
    }
}

pub(crate) fn states(peers: &[PeerStatus]) -> Vec<String> {
    peers
        .iter()
        .map(|peer| format!("{} {} {}", peer.remote, peer.state, peer.reason.as_deref().unwrap_or_default()))
        .collect()
}

/// A session with the other host.
pub(crate) fn session(version: IpVersion) -> Session {
    let index = usize::from(version == IpVersion::V6);
    let (own, remote): (IpAddr, IpAddr) =
        (OURS[index].parse().expect("an address"), THEIRS[index].parse().expect("an address"));
    let remote = Remote::address(remote);
    Session {
        name: SessionName::of(SessionKind::Mesh, &remote, None),
        version,
        source: Some(own),
        remote,
        ..simulation::session(own, own)
    }
}

/// An intent with these sessions that announces [`BLOCKS`].
pub(crate) fn intent(sessions: impl IntoIterator<Item = Session>) -> Intent {
    let blocks: Vec<IpNet> = BLOCKS.iter().map(|block| block.parse().expect("a network")).collect();
    simulation::intent(OURS[0].parse().expect("an address"), sessions, &blocks)
}

/// A BIRD on the other host.
pub(crate) struct Bird {
    pub(crate) process: Process,
    socket: PathBuf,
}

impl Bird {
    /// Starts BIRD 2 with lines for both of its BGP protocols. `recover`: it starts like after a restart.
    pub(crate) fn start(wire: &Wire, lines: &str, recover: bool) -> Result<Self> {
        let folder = wire.folder.path();
        let (config, socket, log) =
            (folder.join("bird.conf"), folder.join("bird.ctl"), folder.join("bird.log"));
        let [own4, own6] = THEIRS;
        let [peer4, peer6] = OURS;
        let text = format!(
            "router id {own4};\nlog stderr all;\nprotocol device {{ }}\nprotocol bfd {{ }}\n\
             protocol static s4 {{ ipv4; route 172.31.0.0/24 blackhole {{ bgp_community.add((65000,77)); bgp_large_community.add((65000,7,8)); }}; }}\n\
             protocol static s6 {{ ipv6; route fd00:31::/64 blackhole; }}\n\
             protocol bgp one {{ local {own4} as 64512; neighbor {peer4} as 64512; connect delay time 1; error wait time 1, 5; {lines}\n\
               ipv4 {{ import all; export where source = RTS_STATIC; next hop self; add paths on; }}; }}\n\
             protocol bgp two {{ local {own6} as 64512; neighbor {peer6} as 64512; connect delay time 1; error wait time 1, 5; {lines}\n\
               ipv6 {{ import all; export where source = RTS_STATIC; next hop self; add paths on; }}; }}\n"
        );
        std::fs::write(&config, text)?;
        let text = |path: &std::path::Path| path.display().to_string();
        let mut arguments: Vec<String> =
            ["netns", "exec", wire.theirs.name(), "bird", "-f", "-c"].map(str::to_owned).into();
        arguments.extend([text(&config), "-s".to_owned(), text(&socket)]);
        if recover {
            arguments.push("-R".to_owned());
        }
        let ip = testkit::program("ip", "install Debian's iproute2")?;
        let process = Process::start(&ip, &arguments, &log)?;
        Ok(Self { process, socket })
    }

    /// The output of its client.
    pub(crate) fn ask(&self, wire: &Wire, question: &str) -> Result<String> {
        wire.theirs.shell(&format!("birdc -s {} {question} || true", self.socket.display()))
    }
}
