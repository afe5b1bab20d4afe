//! What the tests share: folders, an in-process store, and the server as a process of its own.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Parser;
use etcd_api::Client;
use kvstore::{Options, Store};
use testkit::{Folder, Process, free_port, program};

/// Names the variable that turns this test program into a server.
const SERVE: &str = "KVSTORE_TEST_SERVE";

/// Blocks on a future.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Connects to a server.
pub(crate) async fn connect(endpoint: &str) -> Result<Client> {
    let endpoint = tonic::transport::Endpoint::from_shared(endpoint.to_owned())?;
    Ok(Client::new(endpoint.connect().await?))
}

/// Opens a store with options that make background work happen early.
pub(crate) fn open(dir: &Path) -> Arc<Store> {
    Store::open(dir, options()).unwrap()
}

/// Small limits, so that tests reach them.
pub(crate) fn options() -> Options {
    Options { min_garbage_bytes: 64 << 10, watch_buffer_bytes: 16 << 10, ..Options::default() }
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: kvstore::cli::Arguments,
}

/// Not a test by itself: the other tests start this program once more, with a variable that makes this function the server. Run
/// with the others it checks only that the arguments the tests use are understood.
#[test]
fn serve_when_asked() {
    let arguments = std::env::var(SERVE).unwrap_or_default();
    let parsed = Cli::try_parse_from(["datastore"].into_iter().chain(arguments.lines())).unwrap();
    parsed.arguments.config().unwrap();
    if !arguments.is_empty() {
        kvstore::cli::run(parsed.arguments).unwrap();
    }
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

    /// Starts it with flags that say where to listen; it is up when the socket in its directory answers.
    pub(crate) fn start_on(flags: &[String]) -> Result<Self> {
        let mut server =
            Self { process: None, folder: Folder::new("datastore")?, port: 0, flags: flags.to_vec() };
        server.restart()?;
        Ok(server)
    }

    /// Kills it, if it runs, and starts it on the same data.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.kill();
        let mut arguments = vec![format!("--data-dir={}", self.dir().display())];
        if self.port != 0 {
            arguments.push(format!("--listen-client-urls={}", self.endpoint()));
        }
        arguments.extend(self.flags.iter().cloned());
        let this = std::env::current_exe()?.display().to_string();
        let command = vec![
            format!("{SERVE}={}", arguments.join("\n")),
            this,
            "support::serve_when_asked".to_owned(),
            "--exact".to_owned(),
            "--nocapture".to_owned(),
        ];
        let log = self.folder.path().join("log");
        let mut process = Process::start(&program("env", "install coreutils")?, &command, &log)?;
        for _ in 0..2000 {
            process.check_running()?;
            let up = match self.port {
                0 => std::os::unix::net::UnixStream::connect(kvstore::socket_path(&self.dir())).is_ok(),
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
