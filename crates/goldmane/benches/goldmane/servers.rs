//! Goldmane as a process: ours, or Calico's if available.

use anyhow::{Context as _, Result, bail};
use goldmane_api::connect::{Target, connect};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::{Folder, Process};
use tonic::transport::Channel;

const PATIENCE: Duration = Duration::from_secs(120);

/// A program of Calico's, if available.
pub(crate) fn peer(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TORTIE_PEER_BIN").filter(|folder| !folder.is_empty())?;
    Some(Path::new(&folder).join(name)).filter(|file| file.is_file())
}

/// A running server.
pub(crate) struct Server {
    process: Process,
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    _folder: Folder,
}

impl Server {
    /// Starts our server.
    pub(crate) async fn ours() -> Result<Self> {
        Self::start("ours", &testkit::measured_program()?, &["goldmane"]).await
    }

    /// Starts Calico's server, if available.
    pub(crate) async fn calicos() -> Result<Option<Self>> {
        match peer("calico-goldmane") {
            Some(program) => Ok(Some(Self::start("Calico's", &program, &[]).await?)),
            None => Ok(None),
        }
    }

    async fn start(name: &'static str, program: &Path, first: &[&str]) -> Result<Self> {
        let folder = Folder::new("goldmane-bench")?;
        let port = testkit::free_port()?;
        let mut arguments = vec![
            format!("PORT={port}"),
            "HEALTH_ENABLED=false".to_owned(),
            "LOG_LEVEL=warn".to_owned(),
            program.display().to_string(),
        ];
        arguments.extend(first.iter().map(|word| (*word).to_owned()));
        let process = Process::start(Path::new("/usr/bin/env"), &arguments, &folder.path().join("log"))?;
        let mut server = Self { process, name, port, _folder: folder };
        let begin = Instant::now();
        // Calico's server first waits for the start of the next bucket.
        while let Err(error) = server.channel().await {
            server.process.check_running()?;
            if begin.elapsed() > PATIENCE {
                bail!("{} does not answer: {error:#}; {}", program.display(), server.process.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(server)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) async fn channel(&self) -> Result<Channel> {
        Ok(connect(&Target { address: self.address(), tls: None }).await?)
    }

    /// The processor time used so far, in seconds.
    pub(crate) fn processor(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let fields = stat.rsplit_once(')').context("no name in the status of a process")?.1;
        let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
        Ok(ticks.sum::<f64>() / 100.0)
    }

    /// The resident memory in megabytes.
    pub(crate) fn memory(&self) -> Result<f64> {
        Ok(self.process.resident_kib()? as f64 * 1024.0 / 1e6)
    }
}
