//! One client: hello, snapshot, changes, pings, until something ends it. The protocol has no message for a refusal: the
//! connection is closed.
//!
//! Reading and writing happen concurrently in one task. A client that does not read holds only its own place in the
//! trail, never the others' and never the feed.

mod handshake;
mod out;

pub(crate) use handshake::{Refusal, Terms, judge};
pub(crate) use out::Outlet;

use out::Out;

use crate::feed::Feed;
use crate::figures::ConnectionFigures;
use crate::settings::ServerSettings;
use crate::snapshot::Snapshot;
use crate::trail::Crumb;
use bytes::Bytes;
use model::feed::Status;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::mpsc;
use typha_wire::outgoing::{Outgoing, REST_OF_HEAD, segment};
use typha_wire::snappy::compressed;
use typha_wire::{
    ClientHello, Compression, GoTime, Incoming, Message, ServerHello, SyncerType, WireError, schema,
};

/// The longest message that a client may send. Legitimate ones have at most some hundred bytes.
pub(crate) const LONGEST_CLIENT_MESSAGE: usize = 1 << 20;
/// How many bytes of changes are written before the client's lag is checked again.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The client closed the connection.
    #[error("the client closed the connection")]
    Closed,
    /// The connection broke.
    #[error("{0}")]
    Broken(#[from] std::io::Error),
    /// The client sent an invalid message.
    #[error("{0}")]
    Unreadable(#[from] WireError),
    /// The client sent a message that is not allowed at this point.
    #[error("the client sent {0} where it does not belong")]
    Unexpected(&'static str),
    /// The hello was refused.
    #[error("the client was refused: {0}")]
    Refused(#[from] Refusal),
    /// An expected message did not arrive in time.
    #[error("the client sent no {0} in time")]
    Silent(&'static str),
    /// The client did not read in time.
    #[error("the client does not read")]
    NotReading,
    /// The client is too far behind.
    #[error("the client is {0:?} behind")]
    Behind(Duration),
}

/// A message from a client after its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Ack,
    Pong(GoTime),
}

enum Heard {
    Hello(Box<ClientHello>),
    Said(Said),
}

/// Serves one client.
pub struct Connection<'a> {
    /// The number of this connection.
    pub id: u64,
    /// Our version, for the client's log.
    pub version: &'a str,
    /// All feeds.
    pub feeds: &'a [Arc<Feed>],
    /// Limits and intervals.
    pub settings: &'a ServerSettings,
    /// The counters to update.
    pub figures: &'a ConnectionFigures,
}

impl Connection<'_> {
    /// Serves the client until the connection ends. `shaken` is called after the handshake.
    pub async fn serve<R: AsyncRead + Unpin>(
        &self,
        reader: R,
        writer: impl Outlet,
        shaken: impl FnOnce(),
    ) -> End {
        let (heard, hearing) = mpsc::channel(1);
        tokio::select! {
            end = read(reader, heard) => end,
            end = self.write(writer, hearing, shaken) => match end {
                Err(end) => end,
                Ok(never) => match never {},
            },
        }
    }

    async fn write<W: Outlet>(
        &self,
        writer: W,
        mut hearing: mpsc::Receiver<Heard>,
        shaken: impl FnOnce(),
    ) -> Result<std::convert::Infallible, End> {
        let hello = match tokio::time::timeout(self.settings.handshake_timeout, hearing.recv()).await {
            Ok(Some(Heard::Hello(hello))) => hello,
            Ok(Some(Heard::Said(_))) => return Err(End::Unexpected("another message before its hello")),
            Ok(None) => return Err(End::Closed),
            Err(_) => return Err(End::Silent("hello")),
        };
        let terms = judge(&hello)?;
        let feed = self.feeds.iter().find(|feed| feed.kind() == terms.kind);
        let feed = feed.ok_or_else(|| Refusal::UnknownType(hello.syncer_type.clone()))?;
        tracing::info!(
            connection = self.id, host = %hello.hostname, info = %hello.info, version = %hello.version,
            syncer = %terms.kind, "a client said hello"
        );
        shaken();
        // It may have a megabyte, and the connection may last for months.
        drop(hello);
        let _streaming = self.figures.streaming(terms.kind);
        let mut out = Out::new(writer, self.settings.write_timeout);
        let resumed = terms.resume.and_then(|position| feed.resume(position));
        out.send(&self.greeting(&terms, resumed.is_some())).await?;
        let mut news = Vec::new();
        let crumb = match resumed {
            Some(crumb) => {
                if terms.compression == Compression::Snappy {
                    self.acknowledged(&mut hearing).await?;
                    news.push(out.begin_stream(terms.positions));
                } else {
                    out.send(&REST_OF_HEAD).await?;
                    self.extend_stream(&mut out, terms).await?;
                }
                self.figures.resumed();
                crumb
            }
            None => self.send_snapshot(&mut out, &mut hearing, feed, terms, &mut news).await?,
        };
        self.stream(&mut out, &mut hearing, feed, terms, crumb, news).await
    }

    fn greeting(&self, terms: &Terms, resumed: bool) -> Vec<u8> {
        let hello = ServerHello {
            version: self.version.to_owned(),
            syncer_type: terms.kind.as_str().to_owned(),
            supports_node_resource_updates: true,
            connection_id: self.id,
            resumed,
        };
        let mut stream = if terms.positions { Outgoing::extended() } else { Outgoing::calico() };
        let mut bytes = Vec::new();
        stream.put(&Message::ServerHello(hello), &mut bytes);
        if terms.compression == Compression::Snappy {
            let message = if resumed {
                "enable compression: snappy"
            } else {
                "enable compression: snappy;send binary snapshot"
            };
            let restart =
                Message::DecoderRestart { message: message.to_owned(), compression: Ok(Compression::Snappy) };
            stream.put(&restart, &mut bytes);
        }
        bytes
    }

    async fn send_snapshot<W: Outlet>(
        &self,
        out: &mut Out<W>,
        hearing: &mut mpsc::Receiver<Heard>,
        feed: &Arc<Feed>,
        terms: Terms,
        news: &mut Vec<Bytes>,
    ) -> Result<Arc<Crumb>, End> {
        let began = Instant::now();
        let compress = terms.compression == Compression::Snappy;
        let snapshot: Arc<Snapshot>;
        if compress {
            self.acknowledged(hearing).await?;
            snapshot = feed.snapshot(true).await;
            out.send_snapshot(&snapshot).await?;
            self.acknowledged(hearing).await?;
            news.push(out.begin_stream(terms.positions));
        } else {
            out.send(&REST_OF_HEAD).await?;
            self.extend_stream(out, terms).await?;
            snapshot = feed.snapshot(false).await;
            out.send_snapshot(&snapshot).await?;
        }
        self.figures.snapshot_sent(terms.kind, began.elapsed());
        Ok(Arc::clone(&snapshot.crumb))
    }

    async fn extend_stream<W: Outlet>(&self, out: &mut Out<W>, terms: Terms) -> Result<(), End> {
        if terms.positions {
            out.send(&schema::definitions(&[schema::POSITION])).await?;
        }
        Ok(())
    }

    async fn acknowledged(&self, hearing: &mut mpsc::Receiver<Heard>) -> Result<(), End> {
        match tokio::time::timeout(self.settings.pong_timeout, hearing.recv()).await {
            Ok(Some(Heard::Said(Said::Ack))) => Ok(()),
            Ok(Some(Heard::Said(Said::Pong(_)))) => Err(End::Unexpected("a pong instead of an ACK")),
            Ok(Some(Heard::Hello(_))) => Err(End::Unexpected("a second hello")),
            Ok(None) => Err(End::Closed),
            Err(_) => Err(End::Silent("ACK")),
        }
    }

    async fn stream<W: Outlet>(
        &self,
        out: &mut Out<W>,
        hearing: &mut mpsc::Receiver<Heard>,
        feed: &Arc<Feed>,
        terms: Terms,
        mut crumb: Arc<Crumb>,
        mut news: Vec<Bytes>,
    ) -> Result<std::convert::Infallible, End> {
        let mut wake = feed.subscribe();
        let begin = Instant::now();
        let mut sent = Status::WaitForDatastore;
        let mut used_grace = false;
        let mut waited = false;
        let mut next_ping = tokio::time::Instant::now() + jittered(self.settings.ping_interval);
        self.put_status(crumb.status, &mut sent, out.compresses(), &mut news);
        if terms.positions {
            news.push(crumb.position(feed.instance(), out.compresses()));
        }
        out.send_all(&news).await?;
        let mut last_pong = Instant::now();
        loop {
            wake.mark_unchanged();
            while let Some(next) = crumb.next() {
                let start = Instant::now();
                crumb = Arc::clone(next);
                self.figures.next_step(terms.kind, waited, start.elapsed());
                waited = false;
                let age = feed.latest().time.saturating_duration_since(crumb.time);
                if age > self.settings.max_fall_behind {
                    if begin.elapsed() > self.settings.new_client_grace {
                        return Err(End::Behind(age));
                    }
                    if !used_grace {
                        used_grace = true;
                        self.figures.grace_used(terms.kind);
                    }
                }
                news.clear();
                let mut bytes = self.put_crumb(terms.kind, &crumb, &mut sent, out.compresses(), &mut news);
                while bytes < WRITTEN_AT_ONCE
                    && let Some(next) = crumb.next()
                {
                    crumb = Arc::clone(next);
                    bytes += self.put_crumb(terms.kind, &crumb, &mut sent, out.compresses(), &mut news);
                }
                if terms.positions {
                    news.push(crumb.position(feed.instance(), out.compresses()));
                }
                let start = Instant::now();
                out.send_all(&news).await?;
                self.figures.written(terms.kind, start.elapsed(), age);
                self.drain(terms.kind, hearing, &mut last_pong)?;
                if tokio::time::Instant::now() >= next_ping {
                    break;
                }
            }
            if tokio::time::Instant::now() >= next_ping {
                let ping = segment(&Message::Ping(GoTime::at(SystemTime::now())));
                let ping = out.shaped(ping);
                out.send(&ping).await?;
                next_ping = tokio::time::Instant::now() + jittered(self.settings.ping_interval);
            }
            self.drain(terms.kind, hearing, &mut last_pong)?;
            if last_pong.elapsed() > self.settings.pong_timeout {
                return Err(End::Silent("pong"));
            }
            if crumb.next().is_some() {
                continue;
            }
            tokio::select! {
                heard = hearing.recv() => self.take(terms.kind, heard.as_ref(), &mut last_pong)?,
                changed = wake.changed() => {
                    if changed.is_err() {
                        return Err(End::Closed);
                    }
                    waited = true;
                }
                () = tokio::time::sleep_until(next_ping) => {}
            }
        }
    }

    fn drain(
        &self,
        kind: SyncerType,
        hearing: &mut mpsc::Receiver<Heard>,
        last_pong: &mut Instant,
    ) -> Result<(), End> {
        loop {
            match hearing.try_recv() {
                Ok(heard) => self.take(kind, Some(&heard), last_pong)?,
                Err(mpsc::error::TryRecvError::Empty) => return Ok(()),
                Err(mpsc::error::TryRecvError::Disconnected) => return Err(End::Closed),
            }
        }
    }

    fn take(&self, kind: SyncerType, heard: Option<&Heard>, last_pong: &mut Instant) -> Result<(), End> {
        match heard {
            Some(Heard::Said(Said::Pong(ping))) => {
                *last_pong = Instant::now();
                if let Some(latency) = ping.elapsed(SystemTime::now()) {
                    self.figures.ping_answered(kind, latency);
                }
                Ok(())
            }
            Some(Heard::Said(Said::Ack)) => Err(End::Unexpected("an ACK")),
            Some(Heard::Hello(_)) => Err(End::Unexpected("a second hello")),
            None => Err(End::Closed),
        }
    }

    fn put_crumb(
        &self,
        kind: SyncerType,
        crumb: &Crumb,
        sent: &mut Status,
        compress: bool,
        news: &mut Vec<Bytes>,
    ) -> usize {
        let message = crumb.message(compress);
        let bytes = message.len();
        if !message.is_empty() {
            self.figures.message(kind, crumb.changes());
            news.push(message);
        }
        self.put_status(crumb.status, sent, compress, news);
        bytes
    }

    fn put_status(&self, status: Status, sent: &mut Status, compress: bool, news: &mut Vec<Bytes>) {
        if *sent != status {
            *sent = status;
            news.push(status_message(status, compress));
        }
    }
}

/// The status messages, which are the same for every client.
static STATUS_MESSAGES: LazyLock<Vec<(Status, [Bytes; 2])>> = LazyLock::new(|| {
    let all = [Status::WaitForDatastore, Status::ResyncInProgress, Status::InSync].into_iter();
    all.map(|status| {
        let message = segment(&Message::SyncStatus(Some(status)));
        (status, [message.clone().into(), compressed(&message).into()])
    })
    .collect()
});

fn status_message(status: Status, compress: bool) -> Bytes {
    let known = STATUS_MESSAGES.iter().find(|(known, _)| *known == status);
    known.map(|(_, messages)| messages[usize::from(compress)].clone()).unwrap_or_default()
}

/// Adds up to a tenth, so that clients that connected together do not stay synchronised.
fn jittered(interval: Duration) -> Duration {
    let share = crate::random::below(101);
    interval + interval * u32::try_from(share).unwrap_or(0) / 1000
}

async fn read<R: AsyncRead + Unpin>(mut reader: R, heard: mpsc::Sender<Heard>) -> End {
    let mut incoming = Incoming::from_client(LONGEST_CLIENT_MESSAGE);
    let mut buffer = [0; 1024];
    loop {
        loop {
            let next = match incoming.next(sort) {
                Ok(next) => next,
                Err(error) => return error.into(),
            };
            match next {
                None => break,
                Some(Err(end)) => return end,
                Some(Ok(message)) => {
                    if heard.send(message).await.is_err() {
                        return End::Closed;
                    }
                }
            }
        }
        match reader.read(&mut buffer).await {
            Ok(0) => return End::Closed,
            Ok(count) => incoming.push(&buffer[..count]),
            Err(error) => return error.into(),
        }
    }
}

fn sort(message: Message<'_>) -> Result<Heard, End> {
    match message {
        Message::ClientHello(hello) => Ok(Heard::Hello(Box::new(hello))),
        Message::Ack => Ok(Heard::Said(Said::Ack)),
        Message::Pong { ping, .. } => Ok(Heard::Said(Said::Pong(ping))),
        Message::ServerHello(_) | Message::Position(_) => Err(End::Unexpected("a message of servers")),
        Message::DecoderRestart { .. } => Err(End::Unexpected("a decoder restart")),
        Message::SyncStatus(_) => Err(End::Unexpected("a status")),
        Message::Ping(_) => Err(End::Unexpected("a ping")),
        Message::Kvs(_) => Err(End::Unexpected("entries")),
    }
}
