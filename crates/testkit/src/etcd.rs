//! A real etcd server with one member, on loopback.

use crate::{Authority, Folder, KeyAndCertificate, Process, free_port, program};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const REMEDY: &str = "install Debian's etcd-server and etcd-client (`make setup` does)";

/// How to start etcd.
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    /// Serve TLS and require a client certificate.
    pub tls: bool,
    /// Additional flags, as on the command line.
    pub flags: Vec<String>,
    /// The name of the network namespace to run in; this process's own if `None`.
    pub namespace: Option<String>,
}

/// A running etcd. Its folder and port survive [`Etcd::restart`].
#[derive(Debug)]
pub struct Etcd {
    process: Option<Process>,
    folder: Folder,
    port: u16,
    arguments: Vec<String>,
    tls: Option<(Authority, KeyAndCertificate)>,
    namespace: Option<String>,
}

impl Etcd {
    /// Starts a plain server and waits until it answers.
    ///
    /// # Errors
    /// When etcd is not installed or does not start.
    pub fn start() -> Result<Self> {
        Self::start_with(EtcdOptions::default())
    }

    /// Starts a server with options and waits until it answers.
    ///
    /// # Errors
    /// When etcd is not installed or does not start.
    pub fn start_with(options: EtcdOptions) -> Result<Self> {
        let folder = Folder::new("etcd")?;
        let port = free_port()?;
        // A port that has just been released may be assigned again.
        let peer_port = loop {
            let other = free_port()?;
            if other != port {
                break other;
            }
        };
        let scheme = if options.tls { "https" } else { "http" };
        let mut arguments: Vec<String> = vec![
            "--name=test".into(),
            format!("--data-dir={}", folder.path().join("data").display()),
            format!("--listen-client-urls={scheme}://127.0.0.1:{port}"),
            format!("--advertise-client-urls={scheme}://127.0.0.1:{port}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}"),
            format!("--initial-cluster=test=http://127.0.0.1:{peer_port}"),
            "--logger=zap".into(),
        ];
        let tls = if options.tls {
            let authority = Authority::new(folder.path())?;
            let server = authority.sign("server", "localhost", &[])?;
            let client = authority.sign("client", "root", &[])?;
            arguments.extend([
                format!("--cert-file={}", server.certificate.display()),
                format!("--key-file={}", server.key.display()),
                format!("--trusted-ca-file={}", authority.certificate.display()),
                "--client-cert-auth".into(),
            ]);
            Some((authority, client))
        } else {
            None
        };
        arguments.extend(options.flags);
        let mut etcd = Self { process: None, folder, port, arguments, tls, namespace: options.namespace };
        etcd.restart()?;
        Ok(etcd)
    }

    /// Starts it (again) with the same data and port, and waits until it answers.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.process = None;
        let (binary, mut arguments) = self.inside("etcd")?;
        arguments.extend(self.arguments.iter().cloned());
        let mut process = Process::start(&binary, &arguments, &self.folder.path().join("log"))?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.etcdctl(&["endpoint", "health"])?.status.success() {
            process.check_running().context("starting etcd")?;
            if Instant::now() > deadline {
                bail!("etcd did not answer within 60 s; its log ends with:\n{}", process.log_tail());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.process = Some(process);
        Ok(())
    }

    /// The client address, such as `http://127.0.0.1:2379`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.tls.is_some() { "https" } else { "http" }, self.port)
    }

    /// The process, to pause, kill or measure.
    ///
    /// # Errors
    /// After [`Etcd::kill`].
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("etcd was killed and not restarted")
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The file of the authority's certificate.
    #[must_use]
    pub fn ca_certificate(&self) -> Option<PathBuf> {
        self.tls.as_ref().map(|(authority, _)| authority.certificate.clone())
    }

    /// The authority, which can sign further certificates.
    #[must_use]
    pub fn authority(&self) -> Option<&Authority> {
        self.tls.as_ref().map(|(authority, _)| authority)
    }

    /// A client certificate that the server accepts.
    #[must_use]
    pub fn client_certificate(&self) -> Option<&KeyAndCertificate> {
        self.tls.as_ref().map(|(_, client)| client)
    }

    /// Runs `etcdctl` with these arguments against this server.
    ///
    /// # Errors
    /// When the program is missing; a failing command is in the output's status.
    pub fn etcdctl(&self, arguments: &[&str]) -> Result<Output> {
        let (binary, words) = self.inside("etcdctl")?;
        let mut command = Command::new(binary);
        command.args(words).env("ETCDCTL_API", "3").arg("--endpoints").arg(self.endpoint());
        if let Some((authority, client)) = &self.tls {
            command.arg("--cacert").arg(&authority.certificate);
            command.arg("--cert").arg(&client.certificate).arg("--key").arg(&client.key);
        }
        Ok(command.args(arguments).output()?)
    }

    /// The program, with its first arguments, that starts etcd's programs in the server's namespace.
    fn inside(&self, name: &str) -> Result<(PathBuf, Vec<String>)> {
        let binary = program(name, REMEDY)?;
        let Some(namespace) = &self.namespace else { return Ok((binary, Vec::new())) };
        let words = ["netns", "exec", namespace, &binary.display().to_string()].map(str::to_owned);
        Ok((program("ip", "install Debian's iproute2")?, words.to_vec()))
    }
}
