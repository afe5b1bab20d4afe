//! Runs the same command lines with this calicoctl and with Calico's, and compares what they print: not a measurement,
//! and run only on request.
//!
//! ```text
//! TORTIE_PEER_CALICOCTL=/path/to/calicoctl cargo bench -p calicoctl --bench compare -- compare
//! ```
//!
//! Each program has its own etcd, and every session begins with an empty one; so both may write. Compared are standard
//! output, standard error and exit code, except identities, revisions and times. Then each program reads what the other
//! one wrote. The comparison fails when anything differs that docs/differences.md does not list; the listed differences
//! are in `known`.

#![expect(clippy::print_stdout, reason = "the differences are this program's output")]

mod known;
mod sessions;

use anyhow::{Context as _, Result, ensure};
use calicoctl::Surroundings;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use testkit::{Etcd, Folder};

/// The name that makes this program run as `calicoctl`.
const NAME: &str = "calicoctl";

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().map(PathBuf::from).unwrap_or_default();
    if called.file_name().is_some_and(|name| name == NAME) {
        arguments[0] = NAME.into();
        return calicoctl::run(&arguments, Surroundings::of_process());
    }
    if !arguments.iter().any(|word| word == "compare") {
        println!("nothing is measured here; the word `compare` compares with TORTIE_PEER_CALICOCTL");
        return ExitCode::SUCCESS;
    }
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The output of one command line.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    stdout: String,
    stderr: String,
    code: Option<i32>,
}

/// One of the two programs, and the store it writes to.
struct Side {
    /// A folder that contains only the program.
    programs: Folder,
    etcd: Etcd,
}

impl Side {
    fn new(program: &Path) -> Result<Self> {
        let programs = Folder::new("compare-ctl")?;
        std::os::unix::fs::symlink(program, programs.path().join(NAME))?;
        Ok(Self { programs, etcd: Etcd::start()? })
    }

    /// Runs a shell line in the folder of the golden inputs, on this store or on another one.
    fn run(&self, line: &str, etcd: &Etcd) -> Result<Said> {
        let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/input");
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .args(["-c", line])
            .current_dir(input)
            .env("PATH", format!("{}:{path}", self.programs.path().display()))
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", etcd.endpoint())
            .output()
            .context("sh")?;
        Ok(Said {
            stdout: known::masked(&String::from_utf8_lossy(&output.stdout)),
            stderr: known::masked(&String::from_utf8_lossy(&output.stderr)),
            code: output.status.code(),
        })
    }

    /// Empties the store.
    fn empty(&self) -> Result<()> {
        let output = Command::new("etcdctl")
            .args(["--endpoints", &self.etcd.endpoint(), "del", "", "--from-key"])
            .output()
            .context("etcdctl")?;
        ensure!(output.status.success(), "etcdctl: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// The counts of compared command lines, by outcome.
#[derive(Default)]
struct Tally {
    equal: usize,
    listed: usize,
    different: usize,
}

impl Tally {
    fn count(&mut self, session: &str, line: &str, ours: &Said, theirs: &Said) {
        if ours == theirs {
            self.equal += 1;
        } else if known::is_listed(line, ours, theirs) {
            self.listed += 1;
        } else {
            self.different += 1;
            println!("{session}: {line}");
            for (part, ours, theirs) in
                [("stdout", &ours.stdout, &theirs.stdout), ("stderr", &ours.stderr, &theirs.stderr)]
            {
                if ours != theirs {
                    println!(
                        "  ours, {part}:\n{}  theirs, {part}:\n{}",
                        known::indented(ours),
                        known::indented(theirs)
                    );
                }
            }
            if ours.code != theirs.code {
                println!("  exit code: ours {:?}, theirs {:?}", ours.code, theirs.code);
            }
        }
    }
}

fn compare() -> Result<()> {
    let peer = std::env::var_os("TORTIE_PEER_CALICOCTL")
        .context("TORTIE_PEER_CALICOCTL does not name Calico's calicoctl")?;
    let ours = Side::new(&std::env::current_exe()?)?;
    let theirs = Side::new(&std::path::absolute(peer)?)?;
    let mut tally = Tally::default();
    for session in sessions::all()? {
        ours.empty()?;
        theirs.empty()?;
        for line in &session.lines {
            let (one, other) = (ours.run(line, &ours.etcd)?, theirs.run(line, &theirs.etcd)?);
            tally.count(&session.name, line, &one, &other);
        }
        // Each program reads what the other wrote.
        for etcd in [&ours.etcd, &theirs.etcd] {
            for line in session.lines.iter().filter(|line| sessions::only_reads(line)) {
                tally.count(&session.name, line, &ours.run(line, etcd)?, &theirs.run(line, etcd)?);
            }
        }
    }
    println!(
        "{} answers are equal, {} differ as listed, {} differ otherwise",
        tally.equal, tally.listed, tally.different
    );
    ensure!(tally.different == 0, "{} answers differ", tally.different);
    Ok(())
}
