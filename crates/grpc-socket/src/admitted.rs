//! A connection whose client may name the server by the path of its socket.

use crate::authority::Frames;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// How much is read at once.
const PIECE: usize = 8192;

/// See [`admit`].
#[derive(Debug)]
pub struct Admitted<S> {
    stream: S,
    frames: Frames,
    /// Bytes for the server; those before `read` have been delivered.
    waiting: Vec<u8>,
    read: usize,
}

/// Wraps a connection so that authorities which HTTP does not allow are replaced.
pub fn admit<S>(stream: S) -> Admitted<S> {
    Admitted { stream, frames: Frames::default(), waiting: Vec::new(), read: 0 }
}

impl<S: AsyncRead + Unpin> AsyncRead for Admitted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.read == this.waiting.len() {
            let mut piece = [0; PIECE];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.waiting.clear();
            this.read = 0;
            this.frames.take(piece.filled(), &mut this.waiting);
        }
        let rest = &this.waiting[this.read..];
        let now = rest.len().min(to.remaining());
        to.put_slice(&rest[..now]);
        this.read += now;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Admitted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl<S: Connected> Connected for Admitted<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::admit;
    use http::{Request, Response};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// The client's side of a request as sent by gRPC in Go: a preface, settings, and an authority that is a path.
    const REQUEST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
        \0\0\x15\x01\x05\0\0\0\x01\x83\x86\x44\x02/p\x41\x0d/csi/csi.sock";

    #[tokio::test]
    async fn a_server_answers_a_client_that_names_a_path() {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        client.write_all(REQUEST).await.unwrap();
        let mut connection = h2::server::handshake(admit(server)).await.unwrap();
        let (request, mut answer): (Request<h2::RecvStream>, _) = connection.accept().await.unwrap().unwrap();
        assert_eq!(request.uri(), "http://-csi-csi.sock/p");
        answer.send_response(Response::new(()), true).unwrap();
        drop((request, answer));
        let serving = tokio::spawn(async move { while connection.accept().await.is_some() {} });
        assert!(client.read_u8().await.is_ok());
        serving.abort();
    }

    #[tokio::test]
    async fn without_the_wrapper_the_request_is_refused() {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        client.write_all(REQUEST).await.unwrap();
        let mut connection = h2::server::handshake(server).await.unwrap();
        let serving = tokio::spawn(async move { while connection.accept().await.is_some() {} });
        // Reads frames up to the one that ends the stream.
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.expect("delete this crate if the request is answered");
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            client.read_exact(&mut vec![0; length]).await.unwrap();
            if head[3] == 3 {
                break;
            }
            assert_ne!(head[3], 1, "it is answered: delete this crate");
        }
        serving.abort();
    }
}
