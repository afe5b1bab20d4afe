//! Shared by the tests: connections, and the server as a process of its own.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use etcd_api::Client;
use testkit::{Folder, Process, example, free_port};

/// Blocks on a future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Connects to a server.
pub(crate) async fn connect(endpoint: &str) -> Result<Client> {
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint.to_owned())?;
    Ok(Client::new(endpoint.connect().await?))
}

/// Our server as a process.
pub(crate) struct Server {
    process: Option<Process>,
    folder: Folder,
    port: u16,
    flags: Vec<String>,
}

impl Server {
    pub(crate) fn start(flags: &[&str]) -> Result<Self> {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        let mut server = Self { process: None, folder: Folder::new("datastore")?, port: free_port()?, flags };
        server.restart()?;
        Ok(server)
    }

    /// Starts it with flags that set where to listen; it is up when the socket in its directory answers.
    pub(crate) fn start_on(flags: &[String]) -> Result<Self> {
        let mut server =
            Self { process: None, folder: Folder::new("datastore")?, port: 0, flags: flags.to_vec() };
        server.restart()?;
        Ok(server)
    }

    /// Kills it, if it runs, and restarts it on the same data.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut arguments = vec![format!("--data-dir={}", self.dir().display())];
        if self.port != 0 {
            arguments.push(format!("--listen-client-urls={}", self.endpoint()));
        }
        arguments.extend(self.flags.iter().cloned());
        let log = self.folder.path().join("log");
        let mut process = Process::start(&example("datastore")?, &arguments, &log)?;
        for _ in 0..2000 {
            process.check_running()?;
            let up = match self.port {
                0 => {
                    std::os::unix::net::UnixStream::connect(kvstore_engine::socket_path(&self.dir())).is_ok()
                }
                port => std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(),
            };
            if up {
                self.process = Some(process);
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the server does not listen; its log ends with:\n{}", process.log_tail())
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the server was killed")
    }

    pub(crate) fn dir(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
