//! Everything that this program runs on one node, in two figures: memory, and how often the kernel wakes it.
//!
//! A node of a lab is started as `tortie node` is in a cluster, with the speaker, on an etcd. It runs from its own copy
//! of the program, so that only processes of the lab share its pages. Memory is the sum of proportional set sizes
//! (PSS): a page of the program that several processes of the node use counts once. A wake-up is a voluntary context
//! switch of a thread. Needs root, and does not guess which program to measure: `TORTIE_BENCH_PROGRAM` names it, as
//! `cargo xtask bench cost` does. `TORTIE_BENCH_SECONDS` is how long wake-ups are counted (300).

#![expect(clippy::print_stdout, reason = "the table is this program's output")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Folder, Report};

const POLICIES: usize = 1000;
const PODS: usize = 110;
/// How long memory may take to settle after the last change.
const SETTLE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let program = std::env::var_os("TORTIE_BENCH_PROGRAM")
        .context("TORTIE_BENCH_PROGRAM must name the program to measure; cargo xtask bench cost sets it")?;
    let seconds = match std::env::var("TORTIE_BENCH_SECONDS") {
        Ok(text) => text.parse().context("TORTIE_BENCH_SECONDS is a number of seconds")?,
        Err(_) => 300,
    };
    let folder = Folder::new("node-bench")?;
    let copy = folder.path().join("tortie");
    std::fs::copy(&program, &copy).with_context(|| format!("copying {}", program.display()))?;
    let mut report = Report::new("node");

    let lab = Lab::up(&copy, 0)?;
    std::thread::sleep(SETTLE);
    let processes = lab.node_processes()?;
    memory(&mut report, "idle", &processes, "40 MiB")?;
    wakeups(&mut report, &processes, Duration::from_secs(seconds))?;
    drop(lab);

    let lab = Lab::up(&copy, PODS)?;
    lab.apply_policies(&folder)?;
    std::thread::sleep(SETTLE);
    let what = format!("{PODS} pods, {POLICIES} policies for each of them");
    memory(&mut report, &what, &lab.node_processes()?, "60 MiB")?;
    drop(lab);
    report.note("Felix, the node's services with the CNI agent, the BGP speaker and their supervisor, on an etcd. Other processes of the lab share some pages of the program with them.");
    println!("{}", report.markdown());
    report.record()
}

/// A lab with one node; it is removed when this is dropped.
struct Lab<'a> {
    program: &'a Path,
    name: String,
}

impl<'a> Lab<'a> {
    fn up(program: &'a Path, pods: usize) -> Result<Self> {
        let lab = Self { program, name: format!("cost-{}", std::process::id()) };
        let pods = pods.to_string();
        lab.run(&["up", "--nodes", "1", "--bgp", "native", "--datastore", "etcd", "--pods", &pods])?;
        Ok(lab)
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.program);
        command.arg("lab").args(arguments).args(["--lab", &self.name]);
        let output = testkit::finish(command, "")?;
        ensure!(
            output.status.success(),
            "tortie lab {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn apply_policies(&self, folder: &Folder) -> Result<()> {
        let mut text = String::new();
        for number in 0..POLICIES {
            write!(
                text,
                "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {{name: p{number}}}\nspec:\n  order: {number}\n  \
                 selector: projectcalico.org/orchestrator == 'k8s'\n  types: [Ingress]\n  ingress:\n  - action: Allow\n    protocol: TCP\n    \
                 source: {{selector: app == 'a{}'}}\n    destination: {{ports: [{}]}}\n---\n",
                number % 50,
                1000 + number
            )?;
        }
        let file = folder.path().join("policies.yaml");
        std::fs::write(&file, text)?;
        self.run(&["apply", "-f", &file.display().to_string()])
    }

    /// `tortie node` and everything below it.
    fn node_processes(&self) -> Result<Vec<Process>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let ours: Vec<Process> =
                processes()?.into_iter().filter(|it| it.program == self.program).collect();
            if let Some(node) = ours.iter().find(|it| it.arguments == ["tortie", "node"]) {
                let parent = node.id;
                let below = ours.into_iter().filter(|it| it.id == parent || it.parent == parent).collect();
                return Ok(below);
            }
            if Instant::now() > until {
                bail!("no node runs in the lab");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        // Errors do not matter: leftovers are removed with the next lab of this name.
        let _ = self.run(&["down"]);
    }
}

struct Process {
    id: u32,
    parent: u32,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Process {
    /// The name of its program.
    fn name(&self) -> String {
        self.arguments.get(1..).unwrap_or_default().join(" ")
    }

    /// A field of its `smaps_rollup`, in KiB.
    fn memory(&self, field: &str) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.id))?;
        let line =
            text.lines().find_map(|line| line.strip_prefix(field)).context("a line of smaps_rollup")?;
        Ok(line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>()? as f64 / 1024.0)
    }

    /// How often each of its threads went to sleep and was woken.
    fn switches(&self) -> Result<BTreeMap<String, u64>> {
        let mut switches = BTreeMap::new();
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.id))? {
            let folder = thread?.path();
            // A thread may end at any time.
            let Ok(text) = std::fs::read_to_string(folder.join("status")) else { continue };
            let field = |name| text.lines().find_map(|line: &str| line.strip_prefix(name)).map(str::trim);
            let count = field("voluntary_ctxt_switches:").context("a line of status")?.parse::<u64>()?;
            *switches.entry(field("Name:").unwrap_or_default().to_owned()).or_default() += count;
        }
        Ok(switches)
    }
}

fn processes() -> Result<Vec<Process>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(id) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        // A process may end at any time, and kernel threads have no program.
        let read = |name| std::fs::read_to_string(path.join(name));
        let (Ok(program), Ok(line), Ok(stat)) =
            (std::fs::read_link(path.join("exe")), read("cmdline"), read("stat"))
        else {
            continue;
        };
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        let arguments = line.split_terminator('\0').map(str::to_owned).collect();
        all.push(Process { id, parent: parent.unwrap_or(0), program, arguments });
    }
    Ok(all)
}

fn memory(report: &mut Report, what: &str, processes: &[Process], goal: &str) -> Result<()> {
    let (mut total, mut own, mut parts) = (0.0, 0.0, Vec::new());
    for process in processes {
        let share = process.memory("Pss")?;
        total += share;
        own += process.memory("Pss_Anon")?;
        parts.push(format!("{} {share:.1}", process.name()));
    }
    report.row(
        &format!("a node, {what}: memory"),
        &format!("{total:.1} MiB, {own:.1} of them not the program's file"),
        &parts.join(", "),
        "",
        goal,
    );
    Ok(())
}

fn wakeups(report: &mut Report, processes: &[Process], time: Duration) -> Result<()> {
    let before = processes.iter().map(Process::switches).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(time);
    let (mut total, mut parts) = (0, Vec::new());
    for (process, before) in processes.iter().zip(before) {
        for (thread, count) in process.switches()? {
            let count = count.saturating_sub(before.get(&thread).copied().unwrap_or(0));
            total += count;
            if count > 0 {
                parts.push(format!("{} ({thread}) {count}", process.name()));
            }
        }
    }
    report.row(
        &format!("a node, idle: wake-ups in {} s", time.as_secs()),
        &format!("{total}, {:.2} a second", total as f64 / time.as_secs_f64()),
        &parts.join(", "),
        "",
        "0",
    );
    Ok(())
}
