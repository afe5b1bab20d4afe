//! Follows Typha for as long as the component runs: find one, connect, follow, and repeat.

use crate::backoff::Backoff;
use crate::discovery::Discovery;
use crate::machine::{Decoder, Machine};
use crate::session::{Consumer, Session, SessionError};
use crate::settings::ClientSettings;
use crate::state_file;
use crate::tls::ClientTls;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use telemetry::Pulse;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// How long connecting may take, including TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A component that follows Typha. Dropping it ends that.
pub struct Follower {
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts following. The pulse reports whether a Typha is connected, for health. Needs a Tokio runtime.
pub fn follow<D: Decoder + 'static>(
    discovery: Discovery,
    settings: ClientSettings,
    decoder: D,
    consumer: impl Consumer<D::Item> + 'static,
    pulse: Pulse,
) -> Follower {
    let tls = settings.tls.clone().map(|(files, peer)| ClientTls::new(files, peer));
    let file = settings.state_file.clone();
    let looping = Looping {
        discovery,
        settings,
        tls,
        machine: Machine::new(decoder),
        consumer: Box::new(consumer),
        voice: Voice { pulse, file },
        backoff: Backoff::default(),
    };
    Follower { task: tokio::spawn(looping.run()) }
}

struct Looping<D: Decoder> {
    discovery: Discovery,
    settings: ClientSettings,
    tls: Option<ClientTls>,
    machine: Machine<D>,
    consumer: Box<dyn Consumer<D::Item>>,
    voice: Voice,
    backoff: Backoff,
}

/// Reports whether a Typha is connected.
struct Voice {
    pulse: Pulse,
    file: Option<PathBuf>,
}

impl Voice {
    fn report(&self, connected: bool, detail: &str) {
        if let Some(file) = &self.file {
            state_file::write(file, connected, detail);
        }
        self.pulse.report(connected, detail);
    }
}

impl<D: Decoder> Looping<D> {
    async fn run(mut self) {
        self.voice.report(false, &format!("no connection to Typha yet ({})", self.discovery.describe()));
        loop {
            let reason = match self.discovery.find().await {
                Ok(addresses) => self.try_all(addresses).await,
                Err(error) => daemon::causes(&error).to_string(),
            };
            self.report_loss(&reason);
            tokio::time::sleep(self.backoff.pause(getrandom::u64().unwrap_or(0))).await;
        }
    }

    fn report_loss(&mut self, reason: &str) {
        tracing::warn!(typha = %self.discovery.describe(), reason, "not connected to Typha; trying again");
        // Known entries stay in force: a component that is in sync continues to work.
        let known = self.machine.len();
        self.voice
            .report(false, &format!("no connection to Typha ({reason}); working with {known} known entries"));
    }

    /// Tries the addresses in turn; returns when the first connection that succeeded is lost, or when none succeeded.
    async fn try_all(&mut self, addresses: Vec<SocketAddr>) -> String {
        let mut last = "no address".to_owned();
        for address in addresses {
            match connect(address).await {
                Ok(stream) => {
                    let (end, greeted) = self.follow(stream, address).await;
                    if greeted {
                        return end.to_string();
                    }
                    last = format!("{address}: {end}");
                }
                Err(reason) => last = format!("{address}: {reason}"),
            }
            tracing::info!(reason = %last, "cannot use this Typha");
        }
        last
    }

    async fn follow(&mut self, stream: TcpStream, address: SocketAddr) -> (SessionError, bool) {
        let mut greeted = false;
        let (machine, settings, consumer) = (&mut self.machine, &self.settings, &mut *self.consumer);
        let (voice, backoff) = (&self.voice, &mut self.backoff);
        let mut on_hello = |hello: &typha_wire::ServerHello| {
            greeted = true;
            backoff.reset();
            tracing::info!(%address, version = %hello.version, resumed = hello.resumed, "connected to Typha");
            voice.report(true, &format!("connected to Typha at {address}"));
        };
        let end = match &self.tls {
            None => Session::run(stream, machine, settings, consumer, &mut on_hello).await,
            Some(tls) => match secured(tls, stream, address).await {
                Ok(stream) => Session::run(stream, machine, settings, consumer, &mut on_hello).await,
                Err(error) => error.into(),
            },
        };
        (end, greeted)
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => {
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

async fn secured(
    tls: &ClientTls,
    stream: TcpStream,
    address: SocketAddr,
) -> std::io::Result<Box<tokio_rustls::client::TlsStream<TcpStream>>> {
    let connector = tls.connector().map_err(std::io::Error::other)?;
    let name = ServerName::from(address.ip());
    match tokio::time::timeout(CONNECT_TIMEOUT, connector.connect(name, stream)).await {
        Ok(connected) => connected.map(Box::new),
        Err(_) => Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the TLS handshake took too long")),
    }
}

/// For consumers that pass on what they receive.
#[async_trait::async_trait]
impl<T: Send + 'static> Consumer<T> for tokio::sync::mpsc::Sender<Told<T>> {
    async fn updates(&mut self, updates: Vec<T>) {
        let _ = self.send(Told::Updates(updates)).await;
    }

    async fn status(&mut self, status: model::feed::Status) {
        let _ = self.send(Told::Status(status)).await;
    }
}

/// A call to a consumer, as a value.
#[derive(Debug, PartialEq)]
pub enum Told<T> {
    /// Entries were added, changed or removed.
    Updates(Vec<T>),
    /// The feed's status changed.
    Status(model::feed::Status),
}
