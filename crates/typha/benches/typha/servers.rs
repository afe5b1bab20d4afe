//! The servers: Typha as a process, ours or Calico's, and the floor.

use crate::store::Filled;
use anyhow::{Context as _, Result, bail};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::{Folder, Process};
use tokio::io::AsyncWriteExt as _;

const PATIENCE: Duration = Duration::from_secs(120);

/// Calico's Typha, if available.
pub(crate) fn peer() -> Option<PathBuf> {
    let folder = std::env::var_os("TORTIE_PEER_BIN").filter(|folder| !folder.is_empty())?;
    Some(Path::new(&folder).join("calico-typha")).filter(|file| file.is_file())
}

/// A process that serves clients.
pub(crate) struct Serving {
    process: Process,
    pub(crate) address: SocketAddr,
    /// From its start until it was ready.
    pub(crate) ready: Duration,
    /// The processor time until then.
    pub(crate) ready_cpu: f64,
    _folder: Folder,
}

impl Serving {
    /// Starts our Typha on this store.
    pub(crate) fn ours(store: &Filled) -> Result<Self> {
        let program = testkit::measured_program()?;
        Self::typha(&program, &["typha".to_owned()], store)
    }

    /// Starts a Typha on this store.
    pub(crate) fn typha(program: &Path, first: &[String], store: &Filled) -> Result<Self> {
        let folder = Folder::new("typha-bench")?;
        let (port, health) = (testkit::free_port()?, testkit::free_port()?);
        let file = folder.path().join("typha.cfg");
        let text = format!(
            "[global]\nDatastoreType = etcdv3\nEtcdEndpoints = {}\nServerPort = {port}\nServerHost = 127.0.0.1\n\
             ServerPongTimeoutSecs = 900\nHealthEnabled = true\nHealthHost = 127.0.0.1\nHealthPort = {health}\nLogSeverityScreen = warning\nLogFilePath = none\n\
             LogSeverityFile = none\nLogSeveritySys = none\n",
            store.etcd.endpoint()
        );
        std::fs::write(&file, text)?;
        let mut arguments = first.to_vec();
        arguments.extend(["-c".to_owned(), file.display().to_string()]);
        let begin = Instant::now();
        let mut process = Process::start(program, &arguments, &folder.path().join("log"))?;
        while !is_ready(health) {
            process.check_running()?;
            if begin.elapsed() > PATIENCE {
                bail!("{} is not ready: {}", program.display(), process.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let (ready, ready_cpu) = (begin.elapsed(), cpu_of(process.id())?);
        // Memory needed only for reading everything is returned to the system soon after.
        std::thread::sleep(Duration::from_secs(1));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Ok(Self { process, address, ready, ready_cpu, _folder: folder })
    }

    /// Starts a process that writes these bytes to every connection.
    pub(crate) fn floor(bytes: &[u8]) -> Result<Self> {
        let folder = Folder::new("typha-bench")?;
        let file = folder.path().join("bytes");
        std::fs::write(&file, bytes)?;
        let port = testkit::free_port()?;
        let arguments = ["floor".to_owned(), file.display().to_string(), port.to_string()];
        let begin = Instant::now();
        let mut process = Process::start(&std::env::current_exe()?, &arguments, &folder.path().join("log"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        while TcpStream::connect(address).is_err() {
            process.check_running()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { process, address, ready: begin.elapsed(), ready_cpu: 0.0, _folder: folder })
    }

    /// The processor time used, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64> {
        cpu_of(self.process.id())
    }

    /// Its memory in MiB.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn mebibytes(&self) -> Result<f64> {
        Ok(self.process.resident_kib()? as f64 / 1024.0)
    }
}

/// Seconds of processor time that a process has used.
pub(crate) fn cpu_of(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields = stat.rsplit_once(')').context("no name in the status of a process")?.1;
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut answer = [0; 15];
    stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
        && stream.write_all(b"GET /readiness HTTP/1.0\r\nHost: localhost\r\n\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer.windows(3).any(|word| word == b" 20")
}

/// Writes the same bytes to every connection.
pub(crate) fn floor(file: &str, port: &str) -> Result<()> {
    let bytes = bytes::Bytes::from(std::fs::read(file)?);
    let port: u16 = port.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match runtime.block_on(write_to_all(bytes, port))? {}
}

async fn write_to_all(bytes: bytes::Bytes, port: u16) -> Result<std::convert::Infallible> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    // As Typha does.
    let listener = socket.listen(8192)?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        let bytes = bytes.clone();
        tokio::spawn(async move {
            let _ = stream.write_all(&bytes).await;
            // A client that has read everything ends the connection.
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1]).await;
        });
    }
}
