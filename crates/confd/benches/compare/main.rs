//! BIRD's files for the same random clusters, written by this confd and by Calico's, and every line that differs. Not a
//! measurement, and run only when asked for.
//!
//! ```text
//! TORTIE_PEER_BIN=/path/to/folder TORTIE_PEER_CONFD=/path/to/calico/node/filesystem/etc/calico/confd \
//!     cargo bench -p confd --bench compare -- compare
//! ```
//!
//! The first folder holds Calico's program `calico`, the second one the templates that its image contains. `TORTIE_PEER_CASES`
//! (50) and `TORTIE_PEER_SEED` (1) choose the clusters. There is no Kubernetes: services and passwords are not compared.

#![expect(clippy::print_stdout, reason = "the differences are this program's output")]

mod clusters;

use anyhow::{Context as _, Result, bail, ensure};
use api::Resource;
use clusters::{NODE, Random, random};
use confd::cli::Arguments;
use daemon::{ShutdownHandle, SystemEnvironment};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use testkit::{Etcd, Folder, compare_on_request, number_from_environment};
use tokio::runtime::Runtime;

/// Set in a process that is our confd: where its files go.
const ROLE: &str = "TORTIE_COMPARE_CONFD";
const FILES: [&str; 6] =
    ["bird.cfg", "bird6.cfg", "bird_aggr.cfg", "bird6_aggr.cfg", "bird_ipam.cfg", "bird6_ipam.cfg"];

fn main() -> ExitCode {
    let Some(folder) = std::env::var_os(ROLE) else {
        return compare_on_request("Calico's confd", compare);
    };
    match ours(folder.into()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Our confd, in a process of its own: it reads its environment.
fn ours(folder: PathBuf) -> Result<()> {
    let runtime = Runtime::new()?;
    let run_dir = folder.join("run");
    let arguments =
        Arguments { run_once: true, keep_stage_file: false, confdir: folder, run_dir, calicoconfig: None };
    let (_handle, shutdown) = ShutdownHandle::new();
    runtime.block_on(confd::run(&arguments, &SystemEnvironment, shutdown))?;
    Ok(())
}

fn compare() -> Result<()> {
    let peer = PathBuf::from(std::env::var_os("TORTIE_PEER_BIN").context("TORTIE_PEER_BIN is not set")?)
        .join("calico");
    let templates =
        PathBuf::from(std::env::var_os("TORTIE_PEER_CONFD").context("TORTIE_PEER_CONFD is not set")?);
    ensure!(peer.is_file(), "{} was not found", peer.display());
    let (cases, seed) =
        (number_from_environment("TORTIE_PEER_CASES", 50)?, number_from_environment("TORTIE_PEER_SEED", 1)?);
    let runtime = Runtime::new()?;
    let (mut lines, mut differing, mut refused) = (0, 0, 0);
    for case in seed..seed + cases {
        let random = random(case)?;
        let etcd = Etcd::start()?;
        refused += runtime.block_on(fill(&etcd, case, &random))?;
        let about = || format!("case {case}");
        let ours = written(None, &templates, &etcd, &random).with_context(about)?;
        let theirs = written(Some(&peer), &templates, &etcd, &random).with_context(about)?;
        for name in FILES {
            let (ours, theirs) = (&ours[name], &theirs[name]);
            lines += ours.lines().count();
            if ours != theirs {
                differing += 1;
                println!("case {case}: {name} differs");
                for difference in differences(ours, theirs) {
                    println!("    {difference}");
                }
            }
        }
    }
    println!("{cases} clusters, {lines} lines; {differing} files differ; {refused} objects were not valid");
    ensure!(differing == 0, "{differing} files differ");
    Ok(())
}

/// The lines that only one of two texts has.
fn differences(ours: &str, theirs: &str) -> Vec<String> {
    let only = |of: &str, not: &str, sign: &str| -> Vec<String> {
        let known: Vec<&str> = not.lines().collect();
        of.lines().filter(|line| !known.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let mut found = only(ours, theirs, "ours  ");
    found.extend(only(theirs, ours, "theirs"));
    if found.is_empty() {
        found.push("the same lines in another order".to_owned());
    }
    found
}

/// Writes a cluster into an etcd; how many of its objects were refused.
async fn fill(etcd: &Etcd, case: u64, random: &Random) -> Result<usize> {
    let config = client::ClientConfig {
        datastore_type: client::DatastoreType::EtcdV3,
        etcd: client::config::EtcdSettings { endpoints: etcd.endpoint(), ..Default::default() },
        kubernetes: Default::default(),
        embedded_path: String::new(),
    };
    let client = client::Client::open(&config).await?;
    client.ensure_initialized("v3.32.0", "bench").await?;
    let mut refused = 0;
    for (kind, object) in &random.objects {
        let resource = Resource::from_value(*kind, object.clone())?;
        if let Err(refusal) = client.create_any(resource).await {
            println!("case {case}: left out: {refusal}\n  {object}");
            refused += 1;
        }
    }
    for entry in &random.entries {
        client.backend().create(entry).await?;
    }
    Ok(refused)
}

/// A folder with a BIRD 1.6 that accepts every file: Calico's is a fork that knows words that the plain one does not.
fn bird(folder: &Path) -> Result<PathBuf> {
    let programs = folder.join("programs");
    std::fs::create_dir(&programs)?;
    for name in ["bird", "bird6"] {
        let file = programs.join(name);
        std::fs::write(&file, "#!/bin/sh\necho 'BIRD version 1.6.8' >&2\n")?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(programs)
}

/// The files that our confd, or a peer's, writes in a folder of its own.
fn written(
    peer: Option<&Path>,
    templates: &Path,
    etcd: &Etcd,
    random: &Random,
) -> Result<BTreeMap<&'static str, String>> {
    let folder = Folder::new("confd-compare")?;
    let config = folder.path().join("config");
    std::fs::create_dir_all(&config)?;
    for part in ["conf.d", "templates"] {
        let to = folder.path().join(part);
        std::fs::create_dir_all(&to)?;
        for entry in std::fs::read_dir(templates.join(part))? {
            let entry = entry?;
            let text = std::fs::read_to_string(entry.path())?;
            // Files go here, and no BIRD is asked.
            let text: String = text
                .replace("/etc/calico/confd/config", &config.display().to_string())
                .lines()
                .filter(|line| {
                    part != "conf.d" || !(line.starts_with("check_cmd") || line.starts_with("reload_cmd"))
                })
                .map(|line| format!("{line}\n"))
                .collect();
            std::fs::write(to.join(entry.file_name()), text)?;
        }
    }
    let program = peer.map_or_else(std::env::current_exe, |peer| Ok(peer.to_owned()))?;
    let mut command = Command::new(&program);
    if peer.is_some() {
        command.args(["component", "confd", "--run-once", "--confdir"]).arg(folder.path());
    } else {
        command.env(ROLE, folder.path());
    }
    let programs = bird(folder.path())?;
    let log = std::fs::File::create(folder.path().join("log"))?;
    let status = command
        .env("NODENAME", NODE)
        .env("DATASTORE_TYPE", "etcdv3")
        .env("ETCD_ENDPOINTS", etcd.endpoint())
        .env("PATH", programs)
        .envs(random.environment.iter().map(|(name, value)| (*name, value.as_str())))
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()?;
    if !status.success() {
        bail!(
            "{} ended with {status}:\n{}",
            program.display(),
            std::fs::read_to_string(folder.path().join("log"))?
        );
    }
    FILES
        .into_iter()
        .map(|name| {
            let file = config.join(name);
            let text = std::fs::read_to_string(&file).with_context(|| {
                let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
                format!("{} of {}:\n{log}", file.display(), program.display())
            })?;
            Ok((name, text))
        })
        .collect()
}
