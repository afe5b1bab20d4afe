//! The native speaker, BIRD 2 and GoBGP as processes with the same task: receive a table from one peer and pass it on
//! to another.
//!
//! None of them gives routes to the kernel: the time for that is the kernel's, and the same for all.

use crate::tester::{OPTIONS, Tester, prefix, table};
use anyhow::{Context as _, Result};
use bgp::intent::{Kernel, PoolRoutes, Programmer};
use bgp_wire::UpdateWriter;
use speaker::for_tests::{Speaker, intent, session};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testkit::network::Namespace;
use testkit::{Process, median};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
/// The addresses of the sender and the receiver; in a mesh, node 200 is at .200.
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 3);
const OWN: u32 = 65000;

/// The daemon under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    Native,
    Bird,
    GoBgp,
}

/// The cost of a run.
pub(crate) struct Cost {
    pub(crate) time: f64,
    pub(crate) cpu: f64,
    /// Memory in MiB at the end.
    pub(crate) memory: f64,
    /// Microseconds until the receiver learns of one changed route; the median of many.
    pub(crate) flap: f64,
    /// The flap with all processes on one processor: the speaker's share, without the cost of waking another processor.
    pub(crate) flap_together: f64,
    /// CPU seconds during a few idle seconds.
    pub(crate) idle: f64,
}

/// Two hosts on one wire: the daemon under test, and the peers.
struct Wire {
    ours: Namespace,
    theirs: Namespace,
    folder: TempDir,
}

impl Wire {
    fn new(name: &str, peers: u32) -> Result<Self> {
        let id = format!("sb{}{name}", std::process::id());
        let (ours, theirs) = (Namespace::new(&format!("{id}a"))?, Namespace::new(&format!("{id}b"))?);
        ours.batch(&format!(
            "link add eth0 type veth peer name eth0 netns {}\naddr add {HERE}/24 dev eth0\nlink set eth0 up",
            theirs.name()
        ))?;
        let addresses: Vec<String> =
            (0..peers).map(|peer| format!("addr add 10.99.0.{}/24 dev eth0\n", peer + 2)).collect();
        theirs.batch(&format!("{}link set eth0 up", addresses.concat()))?;
        Ok(Self { ours, theirs, folder: TempDir::new()? })
    }

    fn start(&self, daemon: Daemon, peers: &[(Ipv4Addr, u32)]) -> Result<Process> {
        let folder = self.folder.path();
        let config = folder.join("config");
        let mut words: Vec<String> = ["netns", "exec", self.ours.name()].map(str::to_owned).into();
        let text = |path: &Path| path.display().to_string();
        match daemon {
            Daemon::Native => {
                let shape: Vec<String> =
                    peers.iter().map(|(address, system)| format!("{address}={system}")).collect();
                words.extend([text(&std::env::current_exe()?), "--speaker".to_owned(), shape.join(",")]);
            }
            Daemon::Bird => {
                let sessions: String = peers
                    .iter()
                    .enumerate()
                    .map(|(number, (address, system))| {
                        format!(
                            "protocol bgp p{number} {{ local {HERE} as {OWN}; neighbor {address} as {system}; passive on; ipv4 {{ import all; export where source = RTS_BGP; }}; }}\n"
                        )
                    })
                    .collect();
                std::fs::write(&config, format!("router id {HERE};\nprotocol device {{ }}\n{sessions}"))?;
                let bird = testkit::Bird::two()?;
                words.extend([
                    text(&bird.v4),
                    "-f".into(),
                    "-c".into(),
                    text(&config),
                    "-s".into(),
                    text(&folder.join("ctl")),
                ]);
            }
            Daemon::GoBgp => {
                let sessions: String = peers
                    .iter()
                    .map(|(address, system)| {
                        format!(
                            "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{address}\"\npeer-as = {system}\n[neighbors.transport.config]\npassive-mode = true\n"
                        )
                    })
                    .collect();
                std::fs::write(
                    &config,
                    format!("[global.config]\nas = {OWN}\nrouter-id = \"{HERE}\"\n{sessions}"),
                )?;
                words.extend(["gobgpd", "-t", "toml", "-l", "error", "-f"].map(str::to_owned));
                words.push(text(&config));
            }
        }
        let ip = testkit::program("ip", "install Debian's iproute2")?;
        Process::start(&ip, &words, &folder.join("log"))
    }
}

/// Runs the native speaker alone, until it is killed (`--speaker`).
pub(crate) fn run_speaker(shape: &str) -> Result<()> {
    let mut sessions = Vec::new();
    for peer in shape.split(',') {
        let (address, system) = peer.split_once('=').context("a peer")?;
        let mut session = session(HERE.into(), address.parse::<Ipv4Addr>()?.into());
        session.peer_as = bgp::AsNumber(system.parse()?);
        session.local_as = bgp::AsNumber(OWN);
        session.passive = true;
        sessions.push(session);
    }
    let mut intent = intent(HERE.into(), sessions, &[]);
    let everything: bgp::Prefix = "0.0.0.0/0".parse().map_err(|_| anyhow::anyhow!("a network"))?;
    intent.v4.export.pools = vec![everything];
    let nothing = PoolRoutes { prefix: everything, programmer: Programmer::FelixVxlan };
    intent.v4.kernel = Kernel { pools: vec![nothing], ..Kernel::default() };
    let (speaker, handle) = Speaker::open()?;
    handle.apply(intent);
    Ok(speaker.run()?)
}

/// CPU seconds used by a process so far.
fn cpu(process: &Process) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", process.id()))?;
    let (_, rest) = text.rsplit_once(')').context("a name")?;
    let ticks: f64 =
        rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

fn memory(process: &Process) -> Result<f64> {
    Ok(process.resident_kib()? as f64 / 1024.0)
}

/// Passes a table from one peer to another.
pub(crate) fn pass_on(daemon: Daemon, count: u32, shared: u32) -> Result<Cost> {
    let wire = Wire::new("t", 2)?;
    let process = wire.start(daemon, &[(SENDER, 65001), (RECEIVER, 65002)])?;
    let mut sender = Tester::connect(&wire.theirs, SENDER, HERE, 65001)?;
    let mut receiver = Tester::connect(&wire.theirs, RECEIVER, HERE, 65002)?;
    let bytes = table(count, shared, 65001, SENDER);
    let before = cpu(&process)?;
    let begin = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        let mut stream = sender.stream.try_clone()?;
        let bytes = &bytes;
        let writing = scope.spawn(move || stream.write_all(bytes));
        receiver.wait(count as usize, 0)?;
        writing.join().map_err(|_| anyhow::anyhow!("the sender"))??;
        Ok(())
    })?;
    let time = begin.elapsed().as_secs_f64();
    let cpu_now = cpu(&process)?;
    let memory = memory(&process)?;
    let flap_apart = flap(&mut sender, &mut receiver, count)?;
    let everybody = [process.id(), std::process::id()];
    let last = std::thread::available_parallelism()?.get() - 1;
    for id in everybody {
        processors(id, "0")?;
    }
    let flap_together = flap(&mut sender, &mut receiver, count)?;
    for id in everybody {
        processors(id, &format!("0-{last}"))?;
    }
    let idle = idle(&process)?;
    Ok(Cost { time, cpu: cpu_now - before, memory, flap: flap_apart, flap_together, idle })
}

/// The median time until the receiver learns of one changed route, in microseconds.
fn flap(sender: &mut Tester, receiver: &mut Tester, count: u32) -> Result<f64> {
    let one = prefix(count / 2);
    let mut gone = Vec::new();
    UpdateWriter::new(OPTIONS).withdraw(&mut gone, [one]);
    let mut back = Vec::new();
    let attributes =
        bgp_wire::Attributes { as_path: bgp_wire::AsPath::sequence(vec![65001, 7]), ..Default::default() };
    let next_hop = bgp_wire::NextHop::from(std::net::IpAddr::from(SENDER));
    UpdateWriter::new(OPTIONS)
        .announce(&mut back, &attributes, &next_hop, [one])
        .context("short attributes")?;
    let mut times = Vec::new();
    for _ in 0..100 {
        for (bytes, announced, withdrawn) in [(&gone, 0, 1), (&back, 1, 0)] {
            let begin = Instant::now();
            sender.stream.write_all(bytes)?;
            receiver.wait(announced, withdrawn)?;
            times.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(median(times))
}

/// Pins all threads of a process to these processors.
fn processors(id: u32, list: &str) -> Result<()> {
    let taskset = testkit::program("taskset", "install Debian's util-linux")?;
    let output =
        std::process::Command::new(taskset).args(["-a", "-c", "-p", list, &id.to_string()]).output()?;
    anyhow::ensure!(output.status.success(), "taskset: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn idle(process: &Process) -> Result<f64> {
    // Lets remaining work finish.
    std::thread::sleep(Duration::from_secs(1));
    let before = cpu(process)?;
    std::thread::sleep(Duration::from_secs(3));
    Ok(cpu(process)? - before)
}

/// One node of a mesh: sessions with all other nodes, and a block from each.
pub(crate) fn node_of_mesh(daemon: Daemon, nodes: u32) -> Result<Cost> {
    let wire = Wire::new("m", nodes - 1)?;
    let peers: Vec<(Ipv4Addr, u32)> =
        (0..nodes - 1).map(|peer| (Ipv4Addr::from(u32::from(SENDER) + peer), OWN)).collect();
    let process = wire.start(daemon, &peers)?;
    let begin = Instant::now();
    let mut testers = Vec::new();
    for (number, (address, _)) in (0..).zip(&peers) {
        let mut tester = Tester::connect(&wire.theirs, *address, HERE, OWN)?;
        let mut bytes = Vec::new();
        let attributes = bgp_wire::Attributes { local_pref: Some(100), ..Default::default() };
        let next_hop = bgp_wire::NextHop::from(std::net::IpAddr::from(*address));
        let options = bgp_wire::SessionOptions { external: false, ..OPTIONS };
        let block = [prefix(number)];
        UpdateWriter::new(options)
            .announce(&mut bytes, &attributes, &next_hop, block)
            .context("short attributes")?;
        tester.stream.write_all(&bytes)?;
        testers.push(tester);
    }
    let time = begin.elapsed().as_secs_f64();
    let idle = idle(&process)?;
    Ok(Cost { time, cpu: cpu(&process)?, memory: memory(&process)?, flap: 0.0, flap_together: 0.0, idle })
}
