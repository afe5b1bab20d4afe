//! A Felix in a separate process, and the kernel's statistics of that process.

use crate::host::Filter;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Folder, free_port, measured_program};

/// The time limit for anything.
const PATIENCE: Duration = Duration::from_secs(300);

/// A running Felix; killed when dropped.
pub(crate) struct Felix {
    child: Child,
    health: u16,
    folder: Folder,
    begin: Instant,
}

impl Felix {
    pub(crate) fn start(endpoint: &str, filter: Filter) -> Result<Self> {
        Self::start_as(crate::cluster::HOST, endpoint, filter)
    }

    /// Starts ours for a host of this name.
    pub(crate) fn start_as(host: &str, endpoint: &str, filter: Filter) -> Result<Self> {
        Self::start_with(None, host, endpoint, filter, &[])
    }

    /// Starts ours or another Felix, which is a program with its arguments; further settings come last.
    pub(crate) fn start_with(
        peer: Option<&str>,
        host: &str,
        endpoint: &str,
        filter: Filter,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let mut command = match peer {
            None => Command::new(measured_program()?),
            Some(peer) => {
                let mut words = peer.split_whitespace();
                let mut command = Command::new(words.next().context("no program is named")?);
                command.args(words);
                command
            }
        };
        if peer.is_none() {
            command.arg("felix").env(crate::ROLE, "felix");
        }
        Self::start_command(command, host, endpoint, filter, settings)
    }

    fn start_command(
        mut command: Command,
        host: &str,
        endpoint: &str,
        filter: Filter,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = Folder::new("felix")?;
        let health = match settings.iter().find(|(name, _)| *name == "HEALTHPORT") {
            Some((_, port)) => port.parse()?,
            None => free_port()?,
        };
        for (name, value) in [
            ("DATASTORETYPE", "etcdv3"),
            ("FELIXHOSTNAME", host),
            ("IPV6SUPPORT", "false"),
            ("IPTABLESBACKEND", "NFT"),
            ("NFTABLESMODE", if filter == Filter::Nftables { "Enabled" } else { "Disabled" }),
            ("HEALTHENABLED", "true"),
            ("HEALTHHOST", "127.0.0.1"),
            ("HEALTHPORT", &health.to_string()),
            ("ENDPOINTSTATUSPATHPREFIX", &folder.path().display().to_string()),
            ("LOGSEVERITYSCREEN", "INFO"),
            ("LOGFILEPATH", "none"),
        ] {
            command.env(format!("FELIX_{name}"), value);
        }
        let mut datastore = "etcdv3";
        for (name, value) in settings {
            command.env(format!("FELIX_{name}"), value);
            match *name {
                "DATASTORETYPE" => datastore = value,
                "KUBECONFIG" => drop(command.env(name, value)),
                _ => {}
            }
        }
        // The variables in which Calico's Felix looks for the datastore, whatever its own ones say; its log is on
        // standard output. Built without C code, it cannot clean up after an eBPF dataplane.
        command.env("DATASTORE_TYPE", datastore).env("ETCD_ENDPOINTS", endpoint);
        // Addresses of an etcd in Felix's own variables mean etcd, whatever else they say.
        if datastore == "etcdv3" {
            command.env("FELIX_ETCDENDPOINTS", endpoint);
        }
        command.env("FELIX_DebugSkipCTLBCleanup", "true");
        let log = File::create(folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let begin = Instant::now();
        let child = command.spawn()?;
        Ok(Self { child, health, folder, begin })
    }

    /// Waits until it is ready; returns the time since its start.
    pub(crate) fn wait_until_ready(&mut self) -> Result<Duration> {
        loop {
            if is_ready(self.health) {
                return Ok(self.begin.elapsed());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("Felix ended with {status}:\n{}", self.log());
            }
            ensure!(self.begin.elapsed() < PATIENCE, "Felix is not ready:\n{}", self.log());
            // More frequent queries would take a good part of a processor from the measured program.
            std::thread::sleep(Duration::from_millis(8));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn file(&self, name: &str) -> Result<String> {
        let path = PathBuf::from(format!("/proc/{}/{name}", self.child.id()));
        std::fs::read_to_string(&path).with_context(|| format!("{}; {}", path.display(), self.log()))
    }

    /// Resident memory now, in MiB.
    pub(crate) fn memory(&self) -> Result<f64> {
        self.memory_line("VmRSS:")
    }

    /// Peak resident memory, in MiB.
    pub(crate) fn peak_memory(&self) -> Result<f64> {
        self.memory_line("VmHWM:")
    }

    fn memory_line(&self, name: &str) -> Result<f64> {
        let status = self.file("status")?;
        let line = status.lines().find(|line| line.starts_with(name)).context("no such line")?;
        let kib: f64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
        Ok(kib / 1024.0)
    }

    /// CPU seconds since its start, including helpers that have ended.
    pub(crate) fn cpu(&self) -> Result<f64> {
        let stat = self.file("stat")?;
        // The name may contain anything but ends with the last parenthesis.
        let (_, rest) = stat.rsplit_once(')').context("no name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks: u64 =
            fields.get(11..15).context("too short")?.iter().flat_map(|one| one.parse::<u64>()).sum();
        #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
        Ok(ticks as f64 / 100.0)
    }

    /// CPU time of all its threads in nanoseconds, exactly.
    pub(crate) fn exact_cpu(&self) -> Result<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        let mut sum = 0;
        for task in tasks {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            sum += text.split_whitespace().next().context("no time")?.parse::<u64>()?;
        }
        Ok(sum)
    }
}

impl Drop for Felix {
    fn drop(&mut self) {
        if let Some(place) = std::env::var_os("TORTIE_BENCH_FELIX_LOG") {
            let _ = std::fs::copy(self.folder.path().join("log"), place);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /readiness HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 20"))
    };
    // There is no listener yet.
    ask().unwrap_or(false)
}
