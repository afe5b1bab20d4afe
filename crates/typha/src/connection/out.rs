//! Output to one client: with as few system calls as possible, each part of the bytes within the write time-out.

use super::End;
use crate::snapshot::Snapshot;
use bytes::Bytes;
use rustix::io::Errno;
use std::io::{Error, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, Interest, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use typha_wire::outgoing::STREAM_HEAD;
use typha_wire::schema;
use typha_wire::snappy::{IDENTIFIER, compressed};

/// How many bytes a client must read within the write time-out.
const PART: usize = 256 << 10;
/// How many pieces are passed to the kernel at once: a whole snapshot, or as much of it as a socket takes.
const PIECES_AT_ONCE: usize = 32;

/// The output side of a connection.
pub trait Outlet: AsyncWrite + Unpin {
    /// The socket that gets the bytes unchanged, if there is one: it can take those of a file without a copy.
    fn socket(&self) -> Option<&TcpStream>;
}

impl Outlet for OwnedWriteHalf {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self.as_ref())
    }
}

/// A layer around a socket, such as TLS.
impl<S: AsyncWrite> Outlet for WriteHalf<S> {
    fn socket(&self) -> Option<&TcpStream> {
        None
    }
}

/// The beginning of the compressed stream after the last ACK; with our extensions, or without.
static STREAM_HEADS: LazyLock<[Bytes; 2]> = LazyLock::new(|| {
    [&[][..], &[schema::POSITION]].map(|additions| {
        let mut head = STREAM_HEAD.clone();
        head.extend(schema::definitions(additions));
        let mut bytes = IDENTIFIER.to_vec();
        bytes.extend(compressed(&head));
        bytes.into()
    })
});

/// The output to the client.
pub(super) struct Out<W> {
    writer: W,
    timeout: Duration,
    compress: bool,
}

impl<W: Outlet> Out<W> {
    pub(super) fn new(writer: W, timeout: Duration) -> Self {
        Self { writer, timeout, compress: false }
    }

    /// Starts a new, compressed stream; returns its beginning.
    pub(super) fn begin_stream(&mut self, positions: bool) -> Bytes {
        self.compress = true;
        STREAM_HEADS[usize::from(positions)].clone()
    }

    /// Whether the stream is currently compressed.
    pub(super) fn compresses(&self) -> bool {
        self.compress
    }

    /// Encodes a message for the current state of the stream.
    pub(super) fn shaped(&self, message: Vec<u8>) -> Bytes {
        if self.compress { compressed(&message).into() } else { message.into() }
    }

    /// Sends bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.send_all(&[bytes]).await
    }

    /// Sends pieces, passing the kernel as many bytes at once as it takes. The time-out applies to a part of them: a
    /// long message to one of thousands of clients takes as long as sending it to all of them.
    pub(super) async fn send_all<B: AsRef<[u8]>>(&mut self, pieces: &[B]) -> Result<(), End> {
        let mut place = Place::default();
        while place.piece < pieces.len() {
            within(self.timeout, write_part(&mut self.writer, pieces, &mut place)).await?;
        }
        within(self.timeout, self.writer.flush()).await
    }

    /// Sends a snapshot: from its file if there are one and a socket to put it into, or else its pieces.
    pub(super) async fn send_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), End> {
        if let Some(socket) = self.writer.socket()
            && let Some(file) = snapshot.file()
        {
            let (mut offset, end) = (0, snapshot.bytes() as u64);
            while offset < end {
                within(self.timeout, put_part(socket, file, &mut offset, end)).await?;
            }
            return Ok(());
        }
        self.send_all(&snapshot.pieces).await
    }
}

/// Has the kernel put at least [`PART`] of a file into a socket, or the rest of it.
async fn put_part(socket: &TcpStream, file: &OwnedFd, offset: &mut u64, end: u64) -> std::io::Result<()> {
    let goal = offset.saturating_add(PART as u64).min(end);
    while *offset < goal {
        socket.writable().await?;
        let left = usize::try_from(end - *offset).unwrap_or(usize::MAX);
        let put = || rustix::fs::sendfile(socket, file, Some(offset), left).map_err(Error::from);
        match socket.try_io(Interest::WRITABLE, put) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The position up to which pieces have been written.
#[derive(Clone, Copy, Default)]
struct Place {
    piece: usize,
    offset: usize,
}

impl Place {
    /// Advances by `count` written bytes; empty pieces are skipped.
    fn advance<B: AsRef<[u8]>>(&mut self, pieces: &[B], count: usize) {
        self.offset += count;
        while let Some(length) = pieces.get(self.piece).map(|piece| piece.as_ref().len())
            && length <= self.offset
        {
            self.offset -= length;
            self.piece += 1;
        }
    }
}

/// Writes at least [`PART`], or the rest.
async fn write_part<W: AsyncWrite + Unpin, B: AsRef<[u8]>>(
    writer: &mut W,
    pieces: &[B],
    place: &mut Place,
) -> std::io::Result<()> {
    let mut written = 0;
    place.advance(pieces, 0);
    while written < PART
        && let Some((first, others)) = pieces.get(place.piece..).and_then(<[B]>::split_first)
    {
        let first = first.as_ref().get(place.offset..).unwrap_or_default();
        let count = if others.is_empty() {
            writer.write(first).await?
        } else {
            let mut slices = [IoSlice::new(&[]); PIECES_AT_ONCE];
            let rest = std::iter::once(first).chain(others.iter().map(AsRef::as_ref));
            let used = slices.iter_mut().zip(rest).map(|(slice, bytes)| *slice = IoSlice::new(bytes)).count();
            writer.write_vectored(slices.get(..used).unwrap_or_default()).await?
        };
        if count == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        written += count;
        place.advance(pieces, count);
    }
    Ok(())
}

async fn within(limit: Duration, work: impl Future<Output = std::io::Result<()>>) -> Result<(), End> {
    tokio::time::timeout(limit, work).await.map_err(|_| End::NotReading)?.map_err(End::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trail::Crumb;
    use std::time::Instant;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    /// Far more than a socket takes at once, in pieces of any size, including empty ones.
    fn pieces() -> Vec<Bytes> {
        let mut number = 0_u32;
        let lengths = [0, 1, 5_000_000, 0, 0, 300_000, 7];
        let long = lengths.into_iter().chain((0..100).map(|place| place * 1000));
        long.map(|length| {
            (0..length)
                .map(|_| {
                    number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    number.to_be_bytes()[0]
                })
                .collect::<Vec<u8>>()
                .into()
        })
        .collect()
    }

    fn snapshot(pieces: Vec<Bytes>) -> Snapshot {
        let now = Instant::now();
        Snapshot::new(Crumb::first(now), now, pieces, 0, 0)
    }

    #[tokio::test]
    async fn all_bytes_arrive_in_order_with_a_file_and_without() {
        let sent = snapshot(pieces());
        assert!(sent.file().is_some(), "this kernel has files in memory");
        let expected = sent.pieces.concat();
        for by_file in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            let send = async {
                if by_file {
                    let (_reader, writer) = far.into_split();
                    Out::new(writer, Duration::from_secs(60)).send_snapshot(&sent).await.unwrap();
                } else {
                    let (_reader, writer) = tokio::io::split(far);
                    Out::new(writer, Duration::from_secs(60)).send_snapshot(&sent).await.unwrap();
                }
            };
            let mut seen = Vec::new();
            let (read, ()) = tokio::join!(near.read_to_end(&mut seen), send);
            assert_eq!(read.unwrap(), expected.len());
            assert!(seen == expected, "by file: {by_file}");
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_detected_with_a_file_and_without() {
        let sent = snapshot(vec![vec![7; 64 << 20].into()]);
        for by_file in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let _near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            let end = if by_file {
                let (_reader, writer) = far.into_split();
                Out::new(writer, Duration::from_millis(100)).send_snapshot(&sent).await
            } else {
                let (_reader, writer) = tokio::io::split(far);
                Out::new(writer, Duration::from_millis(100)).send_snapshot(&sent).await
            };
            assert!(matches!(end, Err(End::NotReading)), "by file: {by_file}: {end:?}");
        }
    }
}
