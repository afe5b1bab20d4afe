//! `calicoctl node status`: whether Calico runs on this machine, and its BGP peers.

use crate::context::Context;
use crate::failure::{Failure, Result};
use bird_control::{BirdError, Peer};
use model::IpVersion;
use std::path::{Path, PathBuf};

/// Where to look for processes and sockets; tests use other places.
#[derive(Clone, Debug)]
pub struct Host {
    /// The path of /proc.
    pub processes: PathBuf,
    /// The folders that may contain BIRD's sockets, in order of preference.
    pub sockets: Vec<PathBuf>,
}

impl Default for Host {
    fn default() -> Self {
        Self { processes: "/proc".into(), sockets: vec!["/var/run/calico".into(), "/var/run/bird".into()] }
    }
}

/// Prints the report.
///
/// # Errors
/// When Calico is not running, or BIRD's answer is not valid.
pub async fn report(host: &Host, context: &mut Context) -> Result<()> {
    let commands = commands(&host.processes);
    if !commands.iter().any(|command| is_calico(command)) {
        return Err(Failure::new("Calico process is not running."));
    }
    context.print("Calico process is running.\n")?;
    let runs = |name: &str| commands.iter().any(|command| program(command) == name);
    let is_bird = runs("bird");
    match (is_bird, runs("bird6")) {
        (false, false) => context.print("\nThe BGP backend process (BIRD) is not running.\n")?,
        (bird, bird6) => {
            let mut both_families = false;
            if bird {
                both_families = print_peers(IpVersion::V4, "bird.ctl", host, context).await?;
            } else {
                context.print("\nINFO: BIRDv4 process: 'bird' is not running.\n")?;
            }
            if bird6 {
                print_peers(IpVersion::V6, "bird6.ctl", host, context).await?;
            } else if both_families {
                print_peers(IpVersion::V6, "bird.ctl", host, context).await?;
            } else if host.sockets.iter().any(|folder| folder.join("bird6.ctl").exists()) {
                // The native speaker answers for both families, on two sockets.
                print_peers(IpVersion::V6, "bird6.ctl", host, context).await?;
            } else {
                context.print("\nINFO: BIRDv6 process: 'bird6' is not running.\n")?;
            }
        }
    }
    context.print("\n")
}

/// Prints the peers of one family. True if the same BIRD also has peers of the other family.
async fn print_peers(family: IpVersion, socket: &str, host: &Host, context: &mut Context) -> Result<bool> {
    let version = family.number();
    context.print(&format!("\nIPv{version} BGP status\n"))?;
    let sockets: Vec<PathBuf> = host.sockets.iter().map(|folder| folder.join(socket)).collect();
    let answer = match bird_control::peers(family, &sockets).await {
        Ok(answer) => answer,
        Err(error @ BirdError::NotThere { .. }) => {
            context.print(&format!("Error querying BIRD: {error}"))?;
            return Ok(false);
        }
        Err(error) => return Err(Failure::new(format!("error executing command: {error}"))),
    };
    if answer.peers.is_empty() {
        context.print(&format!("No IPv{version} peers found.\n"))?;
    } else {
        context.print(&table(&answer.peers))?;
    }
    Ok(answer.both_families)
}

/// The boxed table of the peers.
fn table(peers: &[Peer]) -> String {
    const TITLES: [&str; 5] = ["PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"];
    let rows = peers
        .iter()
        .map(|peer| [peer.address.as_str(), peer.peer_type, &peer.state, &peer.since, &peer.info]);
    let rows: Vec<[&str; 5]> = rows.collect();
    let mut widths = TITLES.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let edge = format!("+{}\n", widths.map(|width| format!("{}+", "-".repeat(width + 2))).concat());
    let line = |cells: &[&str; 5]| {
        let cells = cells.iter().zip(widths).map(|(cell, width)| format!(" {cell:width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let body: String = rows.iter().map(line).collect();
    format!("{edge}{}{edge}{body}{edge}", line(&TITLES))
}

/// The arguments of every process. Kernel threads, and processes that end meanwhile, have none.
fn commands(processes: &Path) -> Vec<Vec<String>> {
    let Ok(entries) = std::fs::read_dir(processes) else { return Vec::new() };
    let is_process = |entry: &std::fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let arguments = entries.flatten().filter(is_process).filter_map(|entry| {
        let bytes = std::fs::read(entry.path().join("cmdline")).ok()?;
        let parts = bytes.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
        let mut arguments: Vec<String> = parts.collect();
        // Each argument ends with a zero byte, so the last part is empty.
        arguments.pop_if(|last| last.is_empty());
        (!arguments.is_empty()).then_some(arguments)
    });
    arguments.collect()
}

/// The program's name, without its folder.
fn program(command: &[String]) -> &str {
    command.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path))
}

/// Whether this process is Felix, or the node program that runs it: `calico-felix`, `calico-node -felix`,
/// `calico component node felix`, `tortie felix`.
fn is_calico(command: &[String]) -> bool {
    let words: Vec<&str> = command.iter().skip(1).map(String::as_str).collect();
    matches!(
        (program(command), words.as_slice()),
        ("calico-felix", _)
            | (_, ["-felix" | "--felix", ..])
            | ("calico-node", ["felix", ..] | [])
            | ("tortie", ["felix" | "node", ..])
            | ("calico", ["component", "felix", ..] | ["component", "node", "felix" | "run", ..])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn felix_is_recognised_by_all_its_names() {
        for (command, expected) in [
            ("calico-felix", true),
            ("/usr/bin/calico-felix -c /etc/calico/felix.cfg", true),
            ("calico-node -felix", true),
            ("calico-node -confd", false),
            ("calico component node felix", true),
            ("calico component typha", false),
            ("tortie felix", true),
            ("/usr/local/bin/tortie datastore", false),
            ("calicoctl node status", false),
            ("bash -c calico-felix", false),
        ] {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            assert_eq!(is_calico(&words), expected, "{command}");
        }
    }

    #[test]
    fn the_table_fits_its_contents() {
        let peer = |address: &str, info: &str| Peer {
            address: address.into(),
            peer_type: "node-to-node mesh",
            state: "up".into(),
            since: "2026-11-15".into(),
            info: info.into(),
        };
        assert_eq!(
            table(&[peer("172.17.8.102", "Established"), peer("10.0.0.1", "Active")]),
            "+--------------+-------------------+-------+------------+-------------+\n\
             | PEER ADDRESS | PEER TYPE         | STATE | SINCE      | INFO        |\n\
             +--------------+-------------------+-------+------------+-------------+\n\
             | 172.17.8.102 | node-to-node mesh | up    | 2026-11-15 | Established |\n\
             | 10.0.0.1     | node-to-node mesh | up    | 2026-11-15 | Active      |\n\
             +--------------+-------------------+-------+------------+-------------+\n"
        );
    }
}
