//! Cheap clients: the bytes of a snapshot are counted, and only what follows is decoded.

use anyhow::{Result, ensure};
use model::feed::Status;
use socket2::SockRef;
use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;
use typha_wire::outgoing::Outgoing;
use typha_wire::{ClientHello, Compression, GoTime, Incoming, Message, Position};

const LARGEST: usize = 64 << 20;
/// On a stream socket: discards what is read, without copying.
const MSG_TRUNC: i32 = 0x20;

thread_local! {
    // One per thread: buffers for thousands of clients would distort the measurement.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 256 << 10]);
    // Never written to.
    static NOWHERE: RefCell<Vec<MaybeUninit<u8>>> = RefCell::new(vec![MaybeUninit::uninit(); 4 << 20]);
}

/// Reads what is available and passes it to `take`.
pub(crate) async fn read(stream: &TcpStream, mut take: impl FnMut(&[u8])) -> Result<()> {
    loop {
        stream.readable().await?;
        let read = BUFFER.with_borrow_mut(|buffer| {
            let count = stream.try_read(buffer)?;
            take(&buffer[..count]);
            Ok::<usize, std::io::Error>(count)
        });
        match read {
            Ok(count) => {
                ensure!(count > 0, "the server closed the connection");
                return Ok(());
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Discards available data, up to `most` bytes, inside the kernel; returns the number of bytes.
pub(crate) async fn pass_over(stream: &TcpStream, most: usize) -> Result<usize> {
    let pass = || {
        NOWHERE.with_borrow_mut(|nowhere| {
            let most = most.min(nowhere.len());
            SockRef::from(stream).recv_with_flags(&mut nowhere[..most], MSG_TRUNC)
        })
    };
    loop {
        stream.readable().await?;
        match stream.try_io(Interest::READABLE, pass) {
            Ok(count) => {
                ensure!(count > 0, "the server closed the connection");
                return Ok(count);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A client.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) incoming: Incoming,
    outgoing: Outgoing,
    pub(crate) position: Option<Position>,
}

impl Client {
    /// Sends a hello, like a client of Calico's, or like one of ours that has reached this position.
    async fn greet(address: SocketAddr, ours: Option<Position>) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let outgoing = if ours.is_some() { Outgoing::extended() } else { Outgoing::calico() };
        let mut client = Self { stream, incoming: Incoming::new(LARGEST), outgoing, position: None };
        let hello = ClientHello {
            syncer_type: "felix".to_owned(),
            hostname: "bench".to_owned(),
            supports_decoder_restart: true,
            compression: vec!["snappy".to_owned()],
            supports_modern_policy_keys: true,
            supports_resume: ours.is_some(),
            resume: ours.unwrap_or_default(),
            ..ClientHello::default()
        };
        client.say(&Message::ClientHello(hello)).await?;
        Ok(client)
    }

    async fn say(&mut self, message: &Message<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        self.outgoing.put(message, &mut bytes);
        Ok(self.stream.write_all(&bytes).await?)
    }

    async fn more(&mut self) -> Result<()> {
        let incoming = &mut self.incoming;
        read(&self.stream, |bytes| incoming.push(bytes)).await
    }

    /// Waits for the restart of the stream and acknowledges it; returns whether the server resumes where the client
    /// was.
    async fn restarted(&mut self) -> Result<bool> {
        let mut resumed = false;
        loop {
            let next = self.incoming.next(|message| match message {
                Message::ServerHello(hello) => {
                    resumed = hello.resumed;
                    false
                }
                message => matches!(message, Message::DecoderRestart { .. }),
            })?;
            match next {
                Some(true) => break,
                Some(false) => {}
                None => self.more().await?,
            }
        }
        self.incoming.restart(Compression::Snappy)?;
        self.say(&Message::Ack).await?;
        Ok(resumed)
    }

    /// Waits until the server reports that it is in sync, and its position if the server sends it.
    async fn in_sync(&mut self, positions: bool) -> Result<()> {
        let (mut synced, mut position) = (false, None);
        while !synced || (positions && position.is_none()) {
            let next = self.incoming.next(|message| match message {
                Message::SyncStatus(status) => synced |= status == Some(Status::InSync),
                Message::Position(at) => position = Some(at),
                _ => {}
            })?;
            if next.is_none() && (!synced || (positions && position.is_none())) {
                self.more().await?;
            }
        }
        self.position = position;
        Ok(())
    }

    /// Connects and waits until the client is in sync; the snapshot's bytes are awaited but not decoded.
    pub(crate) async fn follow(address: SocketAddr, snapshot: usize, ours: Option<Position>) -> Result<Self> {
        let mut client = Self::greet(address, ours).await?;
        if !client.restarted().await? {
            let mut seen = 0;
            while seen < snapshot {
                seen += pass_over(&client.stream, snapshot - seen).await?;
            }
            client.say(&Message::Ack).await?;
            client.incoming = Incoming::new(LARGEST);
            client.incoming.restart(Compression::Snappy)?;
        }
        client.in_sync(ours.is_some()).await?;
        Ok(client)
    }

    /// Answers a ping.
    pub(crate) async fn pong(&mut self, ping: GoTime) -> Result<()> {
        self.say(&Message::Pong { ping, pong: GoTime::default() }).await
    }
}

/// The bytes of a snapshot as this server currently sends it.
pub(crate) async fn snapshot(address: SocketAddr) -> Result<Vec<u8>> {
    let mut client = Client::greet(address, None).await?;
    client.restarted().await?;
    let mut all = Vec::new();
    // The last message of the snapshot is a restart, and nothing follows before it is acknowledged.
    loop {
        let next = client.incoming.next(|message| matches!(message, Message::DecoderRestart { .. }))?;
        match next {
            Some(true) => return Ok(all),
            Some(false) => {}
            None => {
                let incoming = &mut client.incoming;
                read(&client.stream, |bytes| {
                    incoming.push(bytes);
                    all.extend_from_slice(bytes);
                })
                .await?;
            }
        }
    }
}

/// Connects this many clients at once, each at its position; returns the time until the last one is in sync.
pub(crate) async fn all(
    address: SocketAddr,
    snapshot: usize,
    standing: Vec<Option<Position>>,
) -> Result<(Duration, Vec<Client>)> {
    let begin = Instant::now();
    let tasks: Vec<_> =
        standing.into_iter().map(|ours| tokio::spawn(Client::follow(address, snapshot, ours))).collect();
    let mut clients = Vec::with_capacity(tasks.len());
    for task in tasks {
        clients.push(task.await??);
    }
    Ok((begin.elapsed(), clients))
}

/// The floor: this many connections that each read this many bytes.
pub(crate) async fn readers(address: SocketAddr, snapshot: usize, count: usize) -> Result<Duration> {
    let begin = Instant::now();
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            tokio::spawn(async move {
                let stream = TcpStream::connect(address).await?;
                let mut seen = 0;
                while seen < snapshot {
                    seen += pass_over(&stream, snapshot - seen).await?;
                }
                anyhow::Ok(stream)
            })
        })
        .collect();
    let mut streams = Vec::with_capacity(count);
    for task in tasks {
        streams.push(task.await??);
    }
    Ok(begin.elapsed())
}
