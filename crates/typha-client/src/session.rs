//! One connection to a Typha.

use crate::machine::{Decoder, Machine, News};
use crate::settings::ClientSettings;
use async_trait::async_trait;
use model::feed::Status;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use typha_wire::outgoing::Outgoing;
use typha_wire::{ClientHello, Compression, GoTime, Incoming, Message, Position, ServerHello, WireError};

/// The longest message that a server may send: only more than a thousand of the largest values that a store can hold
/// would be longer, and no server sends that.
const LONGEST_MESSAGE: usize = 256 << 20;
/// How many bytes are read at once.
const READ_AT_ONCE: usize = 64 << 10;

/// The receiver of updates. Calls are sequential; while one is running, nothing is read.
#[async_trait]
pub trait Consumer<T>: Send {
    /// Entries were added, changed or removed.
    async fn updates(&mut self, updates: Vec<T>);

    /// The feed's status changed.
    async fn status(&mut self, status: Status);
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The server closed the connection.
    #[error("Typha closed the connection")]
    Closed,
    /// The server closed the connection right after our hello, which is how it refuses a client.
    #[error("Typha closed the connection after our hello: it refuses this client, or is shutting down")]
    Refused,
    /// The connection broke.
    #[error("the connection to Typha broke: {0}")]
    Broken(#[from] std::io::Error),
    /// The server sent an invalid message.
    #[error("{0}")]
    Unreadable(#[from] WireError),
    /// The whole hello did not arrive in time: a server that sends a byte now and then does not extend the time.
    #[error("Typha did not say hello within {} s", .0.as_secs())]
    NoHello(Duration),
    /// Nothing arrived in time.
    #[error("Typha has been silent for {} s", .0.as_secs())]
    Silent(Duration),
    /// The server did not read in time.
    #[error("Typha does not read")]
    NotReading,
    /// The server sent a message that is not allowed at this point.
    #[error("Typha sent {0} where it does not belong")]
    Unexpected(&'static str),
    /// The server answered with a different feed.
    #[error("Typha sends the feed '{0}', which is not the requested one")]
    OtherFeed(String),
    /// The server is too old.
    #[error("this Typha is too old: it does not send whole nodes")]
    TooOld,
    /// The server requested an unknown compression.
    #[error("Typha requested the compression '{0}', which was not offered")]
    UnknownCompression(String),
}

/// The reaction to a message.
enum Step<T> {
    Tell(News<T>),
    Restart(Compression),
    Pong(GoTime),
    Greeted(Box<ServerHello>),
    Reached(Position),
    Wrong(SessionError),
}

/// An established connection.
pub struct Session<'a, S, D: Decoder> {
    stream: S,
    incoming: Incoming,
    outgoing: Outgoing,
    machine: &'a mut Machine<D>,
    settings: &'a ClientSettings,
    buffer: Vec<u8>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin, D: Decoder> Session<'a, S, D> {
    /// Follows the server until the connection ends. `greeted` is called after the handshake.
    pub async fn run(
        stream: S,
        machine: &'a mut Machine<D>,
        settings: &'a ClientSettings,
        consumer: &mut dyn Consumer<D::Item>,
        greeted: &mut (dyn FnMut(&ServerHello) + Send),
    ) -> SessionError {
        let mut session = Self {
            stream,
            incoming: Incoming::new(LONGEST_MESSAGE),
            outgoing: Outgoing::extended(),
            machine,
            settings,
            buffer: vec![0; READ_AT_ONCE],
        };
        let end = match session.follow(consumer, greeted).await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        session.machine.lost();
        end
    }

    async fn follow(
        &mut self,
        consumer: &mut dyn Consumer<D::Item>,
        greeted: &mut (dyn FnMut(&ServerHello) + Send),
    ) -> Result<std::convert::Infallible, SessionError> {
        let hello = ClientHello {
            hostname: self.settings.hostname.clone(),
            info: self.settings.info.clone(),
            version: self.settings.version.clone(),
            syncer_type: self.settings.kind.as_str().to_owned(),
            supports_decoder_restart: true,
            compression: vec![Compression::Snappy.as_str().to_owned()],
            supports_modern_policy_keys: true,
            connection_id: getrandom::u64().unwrap_or(1),
            supports_resume: true,
            resume: self.machine.position().unwrap_or_default(),
        };
        self.send(&Message::ClientHello(hello)).await?;
        let limit = self.settings.read_timeout;
        let greeting_end = Instant::now() + limit;
        let mut has_greeted = false;
        loop {
            let Some(step) = self.next()? else {
                if has_greeted {
                    self.read(SessionError::Closed).await?;
                } else {
                    let read = tokio::time::timeout_at(greeting_end, self.read(SessionError::Refused)).await;
                    read.map_err(|_| SessionError::NoHello(limit))??;
                }
                continue;
            };
            match (step, has_greeted) {
                (Step::Greeted(hello), false) => {
                    self.judge(&hello)?;
                    has_greeted = true;
                    greeted(&hello);
                    tell(self.machine.connected(hello.resumed), consumer).await;
                }
                (Step::Wrong(error), _) => return Err(error),
                (_, false) => return Err(SessionError::Unexpected("another message before its hello")),
                (Step::Greeted(_), true) => return Err(SessionError::Unexpected("a second hello")),
                (Step::Tell(news), true) => tell(news, consumer).await,
                (Step::Reached(position), true) => self.machine.reached(position),
                (Step::Restart(compression), true) => {
                    self.incoming.restart(compression)?;
                    self.send(&Message::Ack).await?;
                }
                (Step::Pong(ping), true) => {
                    self.send(&Message::Pong { ping, pong: GoTime::default() }).await?;
                }
            }
        }
    }

    fn judge(&self, hello: &ServerHello) -> Result<(), SessionError> {
        if !hello.supports_node_resource_updates {
            return Err(SessionError::TooOld);
        }
        if hello.syncer_type != self.settings.kind.as_str() {
            return Err(SessionError::OtherFeed(hello.syncer_type.clone()));
        }
        Ok(())
    }

    /// The step for the next message; `None` when it has not arrived completely.
    fn next(&mut self) -> Result<Option<Step<D::Item>>, SessionError> {
        let machine = &mut *self.machine;
        let step = self.incoming.next(|message| match message {
            Message::Kvs(updates) => Step::Tell(machine.updates(&updates)),
            Message::SyncStatus(status) => Step::Tell(machine.status(status)),
            Message::Ping(time) => Step::Pong(time),
            Message::DecoderRestart { compression: Ok(compression), .. } => Step::Restart(compression),
            Message::DecoderRestart { compression: Err(name), .. } => {
                Step::Wrong(SessionError::UnknownCompression(name))
            }
            Message::Position(position) => Step::Reached(position),
            Message::ServerHello(hello) => Step::Greeted(Box::new(hello)),
            Message::ClientHello(_) => Step::Wrong(SessionError::Unexpected("a client's hello")),
            Message::Ack => Step::Wrong(SessionError::Unexpected("an ACK")),
            Message::Pong { .. } => Step::Wrong(SessionError::Unexpected("a pong")),
        });
        Ok(step?)
    }

    /// Reads available bytes; `end` is returned if the stream has ended.
    async fn read(&mut self, end: SessionError) -> Result<(), SessionError> {
        let limit = self.settings.read_timeout;
        match tokio::time::timeout(limit, self.stream.read(&mut self.buffer)).await {
            Err(_) => Err(SessionError::Silent(limit)),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(0)) => Err(end),
            Ok(Ok(count)) => {
                self.incoming.push(&self.buffer[..count]);
                Ok(())
            }
        }
    }

    async fn send(&mut self, message: &Message<'_>) -> Result<(), SessionError> {
        let mut bytes = Vec::new();
        self.outgoing.put(message, &mut bytes);
        let work = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        let written = tokio::time::timeout(self.settings.write_timeout, work).await;
        Ok(written.map_err(|_| SessionError::NotReading)??)
    }
}

async fn tell<T>(news: News<T>, consumer: &mut dyn Consumer<T>) {
    if !news.items.is_empty() {
        consumer.updates(news.items).await;
    }
    if let Some(status) = news.status {
        consumer.status(status).await;
    }
}
