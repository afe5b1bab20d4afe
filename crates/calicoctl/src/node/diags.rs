//! `calicoctl node diags`: everything useful about this machine's node, in one archive.
//!
//! Missing tools are reported and left out. No container is started and no image is fetched: what needs a container is
//! read from the node's own, if it runs.

use crate::archive;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::programs::{Programs, Report};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

const RUNTIMES: [&str; 3] = ["docker", "nerdctl", "crictl"];

/// Announcement, command and file of each query.
const COMMANDS: &[(&str, &str, &str)] = &[
    ("Dumping routes (IPv4)", "ip -4 route", "ipv4_route"),
    ("Dumping routes (IPv6)", "ip -6 route", "ipv6_route"),
    ("Dumping interface info (IPv4)", "ip -4 addr", "ipv4_addr"),
    ("Dumping interface info (IPv6)", "ip -6 addr", "ipv6_addr"),
    ("Dumping nftables", "nft -n -a list ruleset", "nft_ruleset"),
    ("Dumping iptables (IPv4)", "iptables-save -c", "ipv4_tables"),
    ("Dumping iptables (IPv6)", "ip6tables-save -c", "ipv6_tables"),
    ("Dumping ipsets", "ipset list", "ipsets"),
    (
        "Copying journal for calico-node.service",
        "journalctl -u calico-node.service --no-pager",
        "journalctl_calico_node",
    ),
];

/// Collects everything in a new folder below `temporary`, and packs it.
///
/// # Errors
/// When the folder cannot be created. Any other failure is reported, and its part left out.
pub async fn collect(log_dir: &Path, temporary: &Path, context: &mut Context) -> Result<()> {
    let programs = Programs::of(context);
    context.print("Collecting diagnostics\n")?;
    let folder = new_folder(temporary)
        .map_err(|error| Failure::new(format!("error creating temp directory to dump logs: {error}")))?;
    context.print(&format!("Using temp dir: {}\n", folder.display()))?;
    let diagnostics = folder.join("diagnostics");
    std::fs::create_dir(&diagnostics)
        .map_err(|error| Failure::new(format!("error creating diagnostics directory: {error}")))?;

    let now = jiff::Timestamp::now();
    let hostname = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    keep(&diagnostics, "date", now.strftime("%a %b %e %H:%M:%S UTC %Y\n").to_string().as_bytes(), context);
    keep(&diagnostics, "hostname", &hostname, context);
    for (info, line, file) in COMMANDS {
        context.print(&format!("{info}\n"))?;
        command(&programs, line, file, &diagnostics, context).await?;
    }
    context.print("Dumping felix stats\n")?;
    signal_felix(context)?;
    let (info, line, file) = if programs.find("netstat").is_some() {
        ("Dumping netstat", "netstat -a -n", "netstat")
    } else {
        ("Dumping ss", "ss -a -n", "ss")
    };
    context.print(&format!("{info}\n"))?;
    command(&programs, line, file, &diagnostics, context).await?;

    let runtime = RUNTIMES.into_iter().find(|runtime| programs.find(runtime).is_some());
    container_sets(&programs, runtime, &diagnostics, context).await?;
    let logs = diagnostics.join("logs");
    copy_logs(log_dir, &logs, context)?;
    container_logs(&programs, runtime, &logs, context).await?;

    let archive = folder.join(format!("diags-{}.tar.gz", now.strftime("%Y%m%d_%H%M%S")));
    if let Err(error) = archive::write(&archive, &diagnostics, "diagnostics") {
        return Err(Failure::new(format!(
            "Error compressing the diagnostics: {error}; what was collected is in {}",
            diagnostics.display()
        )));
    }
    context.print(&format!(
        "\nDiags saved to {}\nIf required, you can upload the diagnostics bundle to a file sharing service.\n",
        archive.display()
    ))
}

/// Creates a folder for this run that other users cannot read.
fn new_folder(temporary: &Path) -> std::io::Result<PathBuf> {
    let moment = jiff::Timestamp::now().as_nanosecond();
    for attempt in 0..100 {
        let folder = temporary.join(format!("calico{}{}", moment % 1_000_000_000, attempt));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            outcome => return outcome.map(|()| folder),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

fn keep(folder: &Path, name: &str, content: &[u8], context: &mut Context) {
    if let Err(error) = std::fs::write(folder.join(name), content) {
        context.warn(&format!("Error writing diags to file: {name}: {error}"));
    }
}

async fn command(
    programs: &Programs,
    line: &str,
    file: &str,
    folder: &Path,
    context: &mut Context,
) -> Result<()> {
    let report = programs.run_line(line).await;
    if !report.succeeded {
        return context.print(&format!("Failed to run command: {line}\nError: {}\n", text(&report)));
    }
    keep(folder, file, &report.output, context);
    Ok(())
}

fn text(report: &Report) -> String {
    String::from_utf8_lossy(&report.output).trim_end().to_owned()
}

/// Asks Felix to write its statistics to its log, if the process handles the signal.
fn signal_felix(context: &mut Context) -> Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let mut asked = 0;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        // Without a handler, the signal would end the process.
        if is_felix(read("comm").trim(), &read("cmdline")) && catches_user_signal(&read("status")) {
            asked += usize::from(kill_process(pid, Signal::USR1).is_ok());
        }
    }
    if asked == 0 {
        context.print("Felix is not running here, or does not write statistics.\n")
    } else {
        Ok(())
    }
}

fn is_felix(name: &str, arguments: &str) -> bool {
    name == "calico-felix" || (name == "calico-node" && arguments.split('\0').any(|word| word == "-felix"))
}

/// Whether the process has a handler for SIGUSR1, which is signal 10.
fn catches_user_signal(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << 9) != 0)
}

/// The kernel's sets, read from the node's container: the machine itself may lack the tool.
async fn container_sets(
    programs: &Programs,
    runtime: Option<&str>,
    folder: &Path,
    context: &mut Context,
) -> Result<()> {
    let found = match runtime {
        None => Err(format!("no supported container runtime found in PATH (tried {})", RUNTIMES.join(", "))),
        Some(runtime) => {
            let filter = if runtime == "crictl" {
                ["ps", "--name", "calico-node", "-q"].as_slice()
            } else {
                &["ps", "--filter", "name=calico-node", "-q"]
            };
            let report = programs.run(runtime, filter).await;
            let output = text(&report);
            match output.split_whitespace().next() {
                _ if !report.succeeded => Err(format!("{runtime}: {output}")),
                Some(container) => Ok(format!("{runtime} exec {container} ipset list")),
                None => Err(format!("{runtime}: no container matching \"calico-node\" found")),
            }
        }
    };
    match found {
        Ok(line) => {
            context.print("Dumping ipsets (container)\n")?;
            command(programs, &line, "ipset_container", folder, context).await
        }
        Err(reason) => context.print(&format!("Skipping container ipset dump: {reason}\n")),
    }
}

fn copy_logs(log_dir: &Path, target: &Path, context: &mut Context) -> Result<()> {
    match std::fs::metadata(log_dir) {
        Err(error) => context.print(&format!("Error copying log files: {}: {error}\n", log_dir.display()))?,
        Ok(metadata) if metadata.is_dir() => {
            context.print("Copying Calico logs\n")?;
            if let Err(error) = copy_tree(log_dir, target) {
                context.print(&format!("Error copying log files: {error}\n"))?;
            }
        }
        Ok(_) => context.print(&format!("No logs found in {}; skipping log copying\n", log_dir.display()))?,
    }
    std::fs::create_dir_all(target)
        .map_err(|error| Failure::new(format!("Error creating log directory: {error}")))
}

/// Copies files and folders; links, sockets and other special files are not logs.
fn copy_tree(source: &Path, target: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(target)?;
    for entry in std::fs::read_dir(source)? {
        let entry = entry?;
        let (kind, copy) = (entry.file_type()?, target.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &copy)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
}

async fn container_logs(
    programs: &Programs,
    runtime: Option<&str>,
    logs: &Path,
    context: &mut Context,
) -> Result<()> {
    let Some(runtime) = runtime else {
        return context.print(&format!(
            "Could not collect container logs: no container runtime found (tried {})\n",
            RUNTIMES.join(", ")
        ));
    };
    let arguments = match runtime {
        "crictl" => ["ps", "-a", "--name", "calico", "-q"].as_slice(),
        _ => &["ps", "-a", "--filter", "name=calico", "--format", "{{.Names}}: {{.CreatedAt}}"],
    };
    let report = programs.run(runtime, arguments).await;
    let listed = text(&report);
    if !report.succeeded {
        return context.print(&format!("Could not run {runtime} command: {listed}\n"));
    }
    // The pause containers of pods log nothing.
    let lines: Vec<&str> =
        listed.lines().filter(|line| !line.is_empty() && !line.contains("k8s_POD")).collect();
    if lines.is_empty() {
        return Ok(());
    }
    context.print(&format!("Copying logs from Calico containers ({runtime})\n"))?;
    keep(logs, "container_creation_time", format!("{}\n", lines.join("\n")).as_bytes(), context);
    for line in lines {
        let name = line.split(':').next().unwrap_or(line);
        let report = programs.run(runtime, &["logs", name]).await;
        if report.succeeded {
            keep(logs, &format!("{}.log", name.replace('/', "_")), &report.output, context);
        } else {
            context.print(&format!("Could not pull log for container {name}: {}\n", text(&report)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_felix_with_a_handler_is_signalled() {
        assert!(catches_user_signal("Name:\tx\nSigCgt:\t0000000000000200\n"));
        assert!(!catches_user_signal("SigCgt:\t0000000000000100\n"));
        assert!(!catches_user_signal(""));
        assert!(is_felix("calico-node", "calico-node\0-felix\0"));
        assert!(is_felix("calico-felix", "/usr/bin/calico-felix\0"));
        assert!(!is_felix("calico-node", "calico-node\0-confd\0"));
        assert!(!is_felix("vim", "vim\0-felix\0"));
    }
}
