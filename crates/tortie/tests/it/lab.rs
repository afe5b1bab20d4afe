//! The lab from outside: the program's own commands, real namespaces, real packets. Needs root (and one test drops it).
//!
//! - [`bgp`]: racks whose routers speak BGP, with the native speaker, with BIRD, and with both.
//! - [`combinations`]: encapsulations, packet filters, datastores and IP versions that this kernel supports.
//! - [`flows`]: denied flows with their policies, and the page of a living cluster.
//! - [`life`]: several labs, killed labs, pods added and removed, output formats, unprivileged users.
//! - [`mistakes`]: a one-sentence error, a clean exit, nothing left behind.
//! - [`oracle`]: random policies; `explain` and packets must agree on every cell.
//! - [`outside`]: variables for programs outside, lists, logs, shells, pictures.
//! - [`scenarios`]: walk-throughs of real clusters.
//! - [`typha`]: Typhas between the datastore and the nodes, one of which is killed.

mod bgp;
mod combinations;
mod flows;
mod life;
mod mistakes;
mod oracle;
mod outside;
mod scenarios;
mod typha;

use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::Folder;

const TORTIE: &str = env!("CARGO_BIN_EXE_tortie");

/// A folder of labs for one test, and one lab in it. Dropping it removes whatever is left.
struct Lab {
    folder: Folder,
    name: String,
}

impl Lab {
    fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", COUNTER.fetch_add(1, Ordering::Relaxed));
        Self { folder: Folder::new("lab").expect("a folder"), name }
    }

    /// A running lab.
    fn up(flags: &[&str]) -> Self {
        let lab = Self::new();
        let mut arguments = vec!["up", "--quiet"];
        arguments.extend(flags);
        lab.succeed(&arguments);
        lab
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TORTIE);
        command.args(["lab", "--lab", &self.name]).args(arguments).env("TORTIE_LAB_DIR", self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run_with(&self, arguments: &[&str], input: &str) -> Output {
        finish(self.command(arguments), input)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, "")
    }

    /// Runs a command that must succeed; returns its output.
    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}\n{}", told(&output), self.logs());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn apply(&self, manifest: &str) {
        let output = self.run_with(&["apply", "-f", "-"], manifest);
        assert!(output.status.success(), "{}\n{manifest}", told(&output));
    }

    /// Measures the matrix, which must be as expected; returns how many cells were reached and refused.
    #[track_caller]
    fn matrix(&self, flags: &[&str]) -> (usize, usize) {
        let mut arguments = vec!["matrix", "-o", "json", "--patience", "60"];
        arguments.extend(flags);
        let output = self.run(&arguments);
        let matrix: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
        let cells = || {
            matrix["cells"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|row| row.as_array().into_iter().flatten())
        };
        let count = |reached: bool| cells().filter(|cell| cell["reached"] == reached).count();
        assert!(output.status.success(), "not as expected:\n{}\n{}", self.text_matrix(flags), self.logs());
        (count(true), count(false))
    }

    fn text_matrix(&self, flags: &[&str]) -> String {
        let mut arguments = vec!["matrix", "--patience", "0"];
        arguments.extend(flags);
        String::from_utf8_lossy(&self.run(&arguments).stdout).into_owned()
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// The ends of all logs.
    fn logs(&self) -> String {
        let mut all = String::new();
        for entry in std::fs::read_dir(self.path().join("logs")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(12)..].join("\n");
            all.push_str(&format!("--- {}\n{tail}\n", entry.file_name().display()));
        }
        all
    }

    /// The processes that carry the lab's mark.
    fn processes(&self) -> Vec<u32> {
        let mark = format!("TORTIE_LAB_FOLDER={}", self.path().display());
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| {
                let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            })
            .collect()
    }

    #[track_caller]
    fn assert_gone(&self) {
        assert!(!self.path().exists(), "{} is left", self.path().display());
        assert_eq!(self.processes(), Vec::<u32>::new(), "processes are left");
    }

    fn keeper(&self) -> u32 {
        let text = std::fs::read_to_string(self.path().join("keeper.json")).expect("the keeper's file");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        u32::try_from(value["pid"].as_u64().expect("a number")).expect("a process id")
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.path().exists() {
            let _ = self.run(&["down"]);
        }
    }
}

fn finish(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().expect("the program");
    // A command that ends without reading is not an error.
    let _ = child.stdin.take().expect("standard input").write_all(input.as_bytes());
    child.wait_with_output().expect("an end")
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const DENY: &str = "apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: default-deny}
spec: {order: 1000, selector: all(), types: [Ingress]}
";
const ALLOW: &str = "apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: front-to-http}
spec:
  order: 100
  selector: all()
  types: [Ingress]
  ingress:
  - {action: Allow, protocol: TCP, source: {selector: tier == 'front'}, destination: {ports: [80]}}
";
