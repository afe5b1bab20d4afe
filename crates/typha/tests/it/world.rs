//! A server with feeds of texts, and clients that keep what they receive.

use async_trait::async_trait;
use model::feed::Status;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use telemetry::Pulse;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use typha::for_tests::{ConnectionFigures, Feed, FeedOptions, Input, Server, ServerParts, ServerSettings};
use typha_client::tls::ServerTls;
use typha_client::{ClientSettings, Consumer, Decoder, Discovery, Follower, follow};
use typha_wire::outgoing::Outgoing;
use typha_wire::{ClientHello, Incoming, Message, SyncerType};

pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct World {
    pub(crate) feeds: Vec<Arc<Feed>>,
    pub(crate) server: Option<Server>,
    pub(crate) address: SocketAddr,
    pub(crate) figures: Arc<ConnectionFigures>,
}

pub(crate) fn quick() -> ServerSettings {
    ServerSettings {
        ping_interval: Duration::from_millis(200),
        pong_timeout: Duration::from_secs(60),
        handshake_timeout: Duration::from_secs(2),
        write_timeout: Duration::from_secs(5),
        drop_interval: Duration::from_millis(50),
        shutdown_drop_interval: Duration::from_millis(50),
        ..ServerSettings::default()
    }
}

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// No time-out ends a connection before a test does: a closed connection was closed for what it sent.
pub(crate) fn patient() -> ServerSettings {
    ServerSettings {
        ping_interval: HOUR,
        pong_timeout: HOUR * 6,
        handshake_timeout: HOUR,
        write_timeout: HOUR,
        ..quick()
    }
}

pub(crate) fn input(path: &str, value: &str) -> Input {
    Input::new(path, Some(value.as_bytes()), "1", "")
}

impl World {
    pub(crate) async fn start(settings: ServerSettings, tls: Option<ServerTls>) -> Self {
        Self::with_feeds(Self::feeds(), settings, tls).await
    }

    /// An empty feed of each type.
    pub(crate) fn feeds() -> Vec<Arc<Feed>> {
        SyncerType::ALL.map(|kind| Feed::new(kind, 77, FeedOptions::default())).to_vec()
    }

    pub(crate) async fn with_feeds(
        feeds: Vec<Arc<Feed>>,
        settings: ServerSettings,
        tls: Option<ServerTls>,
    ) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, feeds, settings, tls).await
    }

    /// Starts a server at this address.
    pub(crate) async fn at(
        host: Ipv4Addr,
        feeds: Vec<Arc<Feed>>,
        settings: ServerSettings,
        tls: Option<ServerTls>,
    ) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        Self::on(listener, feeds, settings, tls)
    }

    /// Starts a server on this socket.
    pub(crate) fn on(
        listener: TcpListener,
        feeds: Vec<Arc<Feed>>,
        settings: ServerSettings,
        tls: Option<ServerTls>,
    ) -> Self {
        let mut world = Self {
            feeds,
            server: None,
            address: listener.local_addr().unwrap(),
            figures: Arc::new(ConnectionFigures::default()),
        };
        world.serve(listener, settings, tls);
        world
    }

    fn serve(&mut self, listener: TcpListener, settings: ServerSettings, tls: Option<ServerTls>) {
        let parts = ServerParts {
            feeds: self.feeds.clone(),
            settings,
            version: "v0".to_owned(),
            tls,
            figures: Arc::clone(&self.figures),
        };
        self.server = Some(Server::start(listener, parts));
    }

    /// Starts a server at the same address after the old one has gone.
    pub(crate) async fn serve_again(&mut self, settings: ServerSettings) {
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        self.serve(listener, settings, None);
    }

    pub(crate) fn felix(&self) -> &Arc<Feed> {
        &self.feeds[0]
    }

    pub(crate) fn contents(&self) -> BTreeMap<String, String> {
        contents(self.felix())
    }

    pub(crate) fn client(&self) -> Client {
        Client::start(self.address, settings())
    }

    pub(crate) fn connections(&self) -> usize {
        self.server.as_ref().map_or(0, Server::connections)
    }
}

pub(crate) fn contents(feed: &Feed) -> BTreeMap<String, String> {
    feed.contents().into_iter().map(|(path, value)| (path, String::from_utf8(value).unwrap())).collect()
}

pub(crate) fn settings() -> ClientSettings {
    let mut settings = ClientSettings::new(SyncerType::Felix, "n1", "test", "v0");
    settings.read_timeout = Duration::from_secs(30);
    settings
}

/// Waits until `done`, or fails after a long time.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a client has received.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) entries: BTreeMap<String, String>,
    pub(crate) status: Option<Status>,
    /// The number of entries received.
    pub(crate) count: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Keeper(pub(crate) Arc<Mutex<Told>>);

pub(crate) struct Texts;

impl Decoder for Texts {
    type Item = (String, Option<String>);

    fn there(&mut self, path: &str, value: &[u8], _: &str) -> Result<Option<Self::Item>, String> {
        let value = String::from_utf8(value.to_vec()).map_err(|error| error.to_string())?;
        Ok(Some((path.to_owned(), Some(value))))
    }

    fn gone(&mut self, path: &str) -> Option<Self::Item> {
        Some((path.to_owned(), None))
    }
}

#[async_trait]
impl Consumer<(String, Option<String>)> for Keeper {
    async fn updates(&mut self, updates: Vec<(String, Option<String>)>) {
        let mut told = self.0.lock().unwrap();
        told.count += updates.len();
        for (path, value) in updates {
            match value {
                Some(value) => told.entries.insert(path, value),
                None => told.entries.remove(&path),
            };
        }
    }

    async fn status(&mut self, status: Status) {
        self.0.lock().unwrap().status = Some(status);
    }
}

/// Our client.
pub(crate) struct Client {
    pub(crate) keeper: Keeper,
    pub(crate) pulse: Pulse,
    _follower: Follower,
}

impl Client {
    pub(crate) fn start(address: SocketAddr, settings: ClientSettings) -> Self {
        let (keeper, pulse) = (Keeper::default(), Pulse::new());
        let discovery = Discovery::Address(address.to_string());
        let follower = follow(discovery, settings, Texts, keeper.clone(), pulse.clone());
        Self { keeper, pulse, _follower: follower }
    }

    pub(crate) fn has(&self, contents: &BTreeMap<String, String>) -> bool {
        let told = self.keeper.0.lock().unwrap();
        told.status == Some(Status::InSync) && told.entries == *contents
    }

    pub(crate) fn count(&self) -> usize {
        self.keeper.0.lock().unwrap().count
    }
}

/// A hand-written client, which does only what a test requests.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) incoming: Incoming,
    /// Every byte received, for tests that decode it again.
    pub(crate) seen: Vec<u8>,
    outgoing: Outgoing,
}

pub(crate) fn hello(kind: &str, restart: bool, compression: &[&str]) -> ClientHello {
    ClientHello {
        hostname: "n1".to_owned(),
        info: "raw".to_owned(),
        version: "v3.34.0".to_owned(),
        syncer_type: kind.to_owned(),
        supports_decoder_restart: restart,
        compression: compression.iter().map(|name| (*name).to_owned()).collect(),
        supports_modern_policy_keys: true,
        connection_id: 7,
        ..ClientHello::default()
    }
}

/// What was received: a message in words, or the end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Message(String),
    Restart(typha_wire::Compression),
    End,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).await.unwrap())
    }

    /// Connects from this address.
    pub(crate) async fn connect_from(own: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((own, 0).into()).unwrap();
        Self::of(socket.connect(address).await.unwrap())
    }

    fn of(stream: TcpStream) -> Self {
        Self { stream, incoming: Incoming::new(64 << 20), seen: Vec::new(), outgoing: Outgoing::calico() }
    }

    pub(crate) async fn say(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        self.outgoing.put(message, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub(crate) async fn get(&mut self) -> Got {
        loop {
            let next = self.incoming.next(|message| match message {
                Message::DecoderRestart { compression, .. } => Got::Restart(compression.unwrap()),
                Message::ServerHello(hello) => Got::Message(format!("hello {}", hello.syncer_type)),
                Message::SyncStatus(status) => Got::Message(format!("status {}", status.unwrap().as_str())),
                Message::Ping(_) => Got::Message("ping".to_owned()),
                Message::Kvs(updates) => Got::Message(
                    updates
                        .iter()
                        .map(|one| {
                            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                            let value = one.value.map(text).unwrap_or_default();
                            format!("{}={value}:{}", text(one.key), one.update_type)
                        })
                        .collect::<Vec<_>>()
                        .join(" "),
                ),
                other => Got::Message(format!("{other:?}")),
            });
            if let Some(got) = next.unwrap() {
                return got;
            }
            let mut buffer = [0; 4096];
            match tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await.unwrap() {
                Ok(0) | Err(_) => return Got::End,
                Ok(count) => {
                    self.seen.extend_from_slice(&buffer[..count]);
                    self.incoming.push(&buffer[..count]);
                }
            }
        }
    }

    /// Reads more bytes.
    pub(crate) async fn read(&mut self) {
        let mut buffer = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await.unwrap();
        let count = read.unwrap();
        assert!(count > 0, "the server closed the connection");
        self.incoming.push(&buffer[..count]);
    }

    /// The next message that is not a ping.
    pub(crate) async fn message(&mut self) -> String {
        loop {
            match self.get().await {
                Got::Message(text) if text == "ping" => {}
                Got::Message(text) => return text,
                other => return format!("{other:?}"),
            }
        }
    }

    /// Whether the server closes the connection before anything else but pings.
    pub(crate) async fn is_closed(&mut self) -> bool {
        loop {
            match self.get().await {
                Got::Message(text) if text == "ping" => {}
                got => return got == Got::End,
            }
        }
    }
}
