//! Accepting clients, and dropping them: when there are too many, and in turn when shutting down.

use crate::connection::Connection;
use crate::feed::Feed;
use crate::figures::ConnectionFigures;
use crate::handshakes::{Handshakes, Verdict};
use crate::random;
use crate::settings::ServerSettings;
use socket2::{SockRef, TcpKeepalive};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use typha_client::tls::ServerTls;

/// How many clients may be in their handshake at once.
const HANDSHAKES: usize = 512;
/// How many connections may wait for their turn.
const WAITING: usize = 8192;
/// How long the kernel takes to notice a peer that vanished, in addition to our pings.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A server that accepts connections.
pub struct Server {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    governing: JoinHandle<()>,
}

struct Shared {
    feeds: Vec<Arc<Feed>>,
    settings: ServerSettings,
    version: String,
    tls: Option<ServerTls>,
    figures: Arc<ConnectionFigures>,
    connections: Mutex<BTreeMap<u64, AbortHandle>>,
    most: AtomicUsize,
    next_id: AtomicU64,
    lobby: Mutex<Lobby>,
    /// Announces whose turn it is.
    turns: mpsc::UnboundedSender<u64>,
}

/// Clients before their hello.
struct Lobby {
    handshakes: Handshakes,
    waiting: HashMap<u64, (TcpStream, SocketAddr)>,
}

/// The parts that a server consists of.
pub struct ServerParts {
    /// The feeds that clients may request.
    pub feeds: Vec<Arc<Feed>>,
    /// Limits and intervals.
    pub settings: ServerSettings,
    /// Our version, for the logs of clients.
    pub version: String,
    /// TLS; `None` for plain connections.
    pub tls: Option<ServerTls>,
    /// The counters to update.
    pub figures: Arc<ConnectionFigures>,
}

impl Server {
    /// Starts accepting connections. Needs a Tokio runtime.
    #[must_use]
    pub fn start(listener: TcpListener, parts: ServerParts) -> Self {
        let (turns, taken) = mpsc::unbounded_channel();
        let lobby = Lobby { handshakes: Handshakes::new(HANDSHAKES, WAITING), waiting: HashMap::new() };
        let shared = Arc::new(Shared {
            feeds: parts.feeds,
            settings: parts.settings.corrected(),
            version: parts.version,
            tls: parts.tls,
            figures: parts.figures,
            connections: Mutex::default(),
            most: AtomicUsize::new(usize::MAX),
            next_id: AtomicU64::new(random::any() << 32 | 1),
            lobby: Mutex::new(lobby),
            turns,
        });
        prepare(&listener);
        let accepting = tokio::spawn(accept(listener, taken, Arc::clone(&shared)));
        let governing = tokio::spawn(govern(Arc::clone(&shared)));
        Self { shared, accepting, governing }
    }

    /// The number of connections, including those in their handshake but not those waiting for theirs.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections().len()
    }

    /// Sets the number of connections beyond which clients are dropped in turn.
    pub fn set_most_connections(&self, most: usize) {
        let before = self.shared.most.swap(most, Ordering::Relaxed);
        if before != most {
            tracing::info!(most, now = self.connections(), "the number of connections that this Typha keeps");
        }
    }

    /// Stops accepting clients, and drops the existing ones in turn, so that they do not all move to the next server at
    /// once.
    pub async fn shut_down(mut self) {
        self.accepting.abort();
        // The socket is closed when the task has ended.
        let _ = (&mut self.accepting).await;
        self.governing.abort();
        let shared = &self.shared;
        shared.lobby().waiting.clear();
        let clients = shared.connections().len();
        if clients == 0 {
            return;
        }
        let pause = shared.settings.shutdown_pause(clients);
        tracing::info!(clients, ?pause, "shutting down: closing connections in turn");
        loop {
            tokio::time::sleep(pause).await;
            let dropped = shared.drop_one("graceful shutdown in progress");
            if !dropped || shared.connections().is_empty() {
                return;
            }
        }
    }
}

/// Ends everything at once.
impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        self.governing.abort();
        // Removed first: each task removes its own entry when it ends.
        let connections = std::mem::take(&mut *self.shared.connections());
        connections.values().for_each(AbortHandle::abort);
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lobby(&self) -> MutexGuard<'_, Lobby> {
        self.lobby.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a new connection.
    fn arrive(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut lobby = self.lobby();
        let arrival = lobby.handshakes.arrive(id, peer.ip().into());
        let closed = arrival.closed.filter(|closed| lobby.waiting.remove(closed).is_none());
        match arrival.verdict {
            Verdict::Begin => {
                drop(lobby);
                admit(stream, peer, id, self);
            }
            Verdict::Wait => {
                lobby.waiting.insert(id, (stream, peer));
                drop(lobby);
            }
            Verdict::Refuse => {
                drop(lobby);
                tracing::warn!(%peer, "a client was refused: too many wait for their handshake");
            }
        }
        // Not locked here: a task that ends removes itself from both maps.
        if let Some(handle) = closed.and_then(|closed| self.connections().remove(&closed)) {
            tracing::info!(connection = closed, %peer, "a handshake was ended to make room for another machine");
            handle.abort();
        }
    }

    /// Closes one of the waiting connections.
    fn shed(&self) {
        let mut lobby = self.lobby();
        let shed = lobby.handshakes.shed();
        shed.and_then(|id| lobby.waiting.remove(&id));
    }

    /// Starts serving the client whose turn it is.
    fn begin(self: &Arc<Self>, id: u64) {
        let waited = self.lobby().waiting.remove(&id);
        if let Some((stream, peer)) = waited {
            admit(stream, peer, id, self);
        }
    }

    /// Closes a random connection.
    fn drop_one(&self, reason: &str) -> bool {
        let mut connections = self.connections();
        let place = random::below(connections.len() as u64);
        let chosen = usize::try_from(place).ok().and_then(|place| connections.keys().nth(place).copied());
        let Some(handle) = chosen.and_then(|id| connections.remove(&id)) else { return false };
        tracing::info!(connection = chosen, reason, "closing a connection");
        handle.abort();
        true
    }
}

/// Sets the socket options for every connection. Accepted sockets inherit them from the listener, which saves four
/// system calls for each of thousands of clients that connect at once.
fn prepare(listener: &TcpListener) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let socket = SockRef::from(listener);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_nodelay(true);
}

async fn govern(shared: Arc<Shared>) {
    loop {
        let interval = shared.settings.drop_interval;
        let jitter = interval * u32::try_from(random::below(100)).unwrap_or(0) / 1000;
        tokio::time::sleep(interval + jitter).await;
        let most = shared.most.load(Ordering::Relaxed);
        if shared.connections().len() > most && shared.drop_one("re-balance load with other Typha instances")
        {
            shared.figures.dropped();
        }
    }
}

async fn accept(listener: TcpListener, mut turns: mpsc::UnboundedReceiver<u64>, shared: Arc<Shared>) {
    loop {
        tokio::select! {
            Some(id) = turns.recv() => shared.begin(id),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => shared.arrive(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    shared.shed();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

/// A client's place among the handshakes. Dropping this frees the place.
struct Turn {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(next) = self.shared.lobby().handshakes.over(self.id) {
            // No more turns are taken when the server is about to end.
            let _ = self.shared.turns.send(next);
        }
    }
}

fn admit(stream: TcpStream, peer: SocketAddr, id: u64, shared: &Arc<Shared>) {
    let work = {
        let shared = Arc::clone(shared);
        let turn = Turn { id, shared: Arc::clone(&shared) };
        async move {
            // The entry is removed with the task, however that ends.
            let _entry = Entry { id, shared: &shared };
            let _active = shared.figures.accepted();
            serve(stream, peer, id, turn, &shared).await;
        }
    };
    let mut connections = shared.connections();
    let task = tokio::spawn(work);
    connections.insert(id, task.abort_handle());
}

struct Entry<'a> {
    id: u64,
    shared: &'a Shared,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.connections().remove(&self.id);
    }
}

async fn serve(stream: TcpStream, peer: SocketAddr, id: u64, turn: Turn, shared: &Shared) {
    let connection = Connection {
        id,
        version: &shared.version,
        feeds: &shared.feeds,
        settings: &shared.settings,
        figures: &shared.figures,
    };
    let shaken = move || drop(turn);
    let end = match &shared.tls {
        None => {
            let (reader, writer) = stream.into_split();
            connection.serve(reader, writer, shaken).await
        }
        Some(tls) => {
            let acceptor = match tls.acceptor() {
                Ok(acceptor) => acceptor,
                Err(error) => {
                    tracing::error!(%peer, %error, "a client cannot be served");
                    return;
                }
            };
            let accepted =
                tokio::time::timeout(shared.settings.handshake_timeout, acceptor.accept(stream)).await;
            match accepted {
                Ok(Ok(stream)) => {
                    let (reader, writer) = tokio::io::split(stream);
                    connection.serve(reader, writer, shaken).await
                }
                Ok(Err(error)) => {
                    tracing::warn!(%peer, error = %daemon::causes(&error), "a client was refused");
                    return;
                }
                Err(_) => {
                    tracing::warn!(%peer, "a client did not finish the TLS handshake in time");
                    return;
                }
            }
        }
    };
    tracing::info!(%peer, connection = id, reason = %end, "a connection ended");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vanished peer is detected, and small messages are not delayed.
    #[tokio::test]
    async fn connections_inherit_the_listeners_options() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        prepare(&listener);
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let socket = SockRef::from(&far);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE);
        drop(near);
    }
}
