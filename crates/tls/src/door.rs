//! The door of a server: it accepts connections until the shutdown is requested, and serves each in its own task, over
//! TLS with the newest certificate if files for it are configured. Open connections may then finish.
//!
//! Knows nothing of the protocol behind the door, and never falls back to clear text because files cannot be used.
//!
//! Three servers accept connections themselves, each for a rule that this one lacks: `telemetry-server` lets the newest
//! client replace the oldest, `kvstore` also serves sockets in the file system, and Typha makes clients wait in a
//! queue.

use crate::{Renewing, Stream};
use daemon::Shutdown;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long the TLS handshake of a client may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, usually because the process is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// How a server accepts connections.
pub struct Door {
    /// The listening socket.
    pub listener: TcpListener,
    /// The certificates to present; `None` means clear text.
    pub certificates: Option<Renewing>,
    /// How many connections may be open at once; further clients wait.
    pub most: usize,
    /// How long connections may take to finish when the server ends.
    pub farewell: Duration,
}

impl Door {
    /// Serves every connection with `answer` until the shutdown is requested; `answer` should end soon after that, too.
    /// Returns whether all of them ended in time; the rest are cut off.
    pub async fn serve<A, F>(self, shutdown: &Shutdown, answer: A) -> bool
    where
        A: Fn(Stream, SocketAddr) -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let Self { listener, certificates, most, farewell } = self;
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept(), if connections.len() < most => accepted,
                () = shutdown.requested() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            // Small answers must not wait until earlier ones are acknowledged.
            let _ = stream.set_nodelay(true);
            let answer = answer.clone();
            match certificates.as_ref().map(Renewing::current_or_last) {
                None => {
                    connections.spawn(async move { answer(Stream::Clear(stream), address).await });
                }
                Some(Ok((acceptor, problem))) => {
                    if let Some(problem) = problem {
                        tracing::warn!(error = %problem, "the new certificate cannot be used; the last one is kept");
                    }
                    connections.spawn(async move {
                        if let Some(stream) = greet(&acceptor, stream).await {
                            answer(stream, address).await;
                        }
                    });
                }
                Some(Err(error)) => tracing::error!(%error, "no connection can be served"),
            }
        }
        // New clients are refused at once instead of waiting in vain.
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        tokio::time::timeout(farewell, all).await.is_ok()
    }
}

async fn greet(acceptor: &tokio_rustls::TlsAcceptor, stream: TcpStream) -> Option<Stream> {
    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => return Some(Stream::Tls(Box::new(stream))),
        Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
        Err(_) => tracing::debug!("a client did not finish the TLS handshake in time"),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::Door;
    use crate::{ClientAuth, Renewing, Stream, TlsFiles};
    use daemon::{Shutdown, ShutdownHandle};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use testkit::{Authority, Folder, KeyAndCertificate};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio_rustls::TlsConnector;

    /// Long enough for anything that must happen.
    const SOON: Duration = Duration::from_secs(60);

    /// Sends how many certificates the client presented, then echoes its input until the client or the server ends.
    async fn echo(mut stream: Stream, shutdown: Shutdown, heeds: bool) {
        let shown = stream.peer_certificates().len().to_string();
        stream.write_all(shown.as_bytes()).await.unwrap();
        let mut bytes = [0; 64];
        loop {
            let count = tokio::select! {
                count = stream.read(&mut bytes) => count.unwrap_or(0),
                () = shutdown.requested(), if heeds => return,
            };
            if count == 0 || stream.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }

    struct Server {
        address: SocketAddr,
        end: ShutdownHandle,
        task: JoinHandle<bool>,
    }

    impl Server {
        async fn start(certificates: Option<Renewing>, farewell: Duration, heeds: bool) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (end, shutdown) = ShutdownHandle::new();
            let door = Door { listener, certificates, most: usize::MAX, farewell };
            let task = tokio::spawn(async move {
                let ending = shutdown.clone();
                door.serve(&shutdown, move |stream, _| echo(stream, ending.clone(), heeds)).await
            });
            Self { address, end, task }
        }

        async fn clear(&self) -> TcpStream {
            TcpStream::connect(self.address).await.unwrap()
        }

        async fn finish(self) -> bool {
            self.end.request();
            tokio::time::timeout(SOON, self.task).await.expect("an end").unwrap()
        }
    }

    async fn read(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> u8 {
        tokio::time::timeout(SOON, stream.read_u8()).await.expect("an answer").unwrap()
    }

    /// Returns the certificate that the server presents, and how many of the client's it has seen.
    async fn greet(
        address: SocketAddr,
        authority: &Authority,
        client: &KeyAndCertificate,
    ) -> (CertificateDer<'static>, u8) {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&authority.certificate).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_file(&client.certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(&client.key).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        let shown = read(&mut stream).await;
        (stream.get_ref().1.peer_certificates().unwrap()[0].clone(), shown)
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_used_for_the_next_client() {
        let folder = Folder::new("door").unwrap();
        let authority = Authority::new(folder.path()).unwrap();
        let [first, second] = ["first", "second"].map(|name| authority.sign(name, "localhost", &[]).unwrap());
        let client = authority.sign("client", "somebody", &[]).unwrap();
        let files = TlsFiles {
            certificate: first.certificate.clone(),
            key: first.key.clone(),
            authorities: authority.certificate.clone(),
            client_auth: ClientAuth::RequireAndVerify,
            ..TlsFiles::default()
        };
        let server = Server::start(Some(Renewing::new(files)), SOON, true).await;
        let (old, shown) = greet(server.address, &authority, &client).await;
        assert_eq!(shown, b'1');
        std::fs::copy(&second.certificate, &first.certificate).unwrap();
        // One file of the pair is replaced before the other: the last certificate is kept.
        assert_eq!(greet(server.address, &authority, &client).await.0, old);
        std::fs::copy(&second.key, &first.key).unwrap();
        let new = CertificateDer::from_pem_file(&second.certificate).unwrap();
        assert_eq!(greet(server.address, &authority, &client).await.0, new);
        assert!(server.finish().await);
    }

    #[tokio::test]
    async fn configured_files_rule_out_clear_text() {
        let server = Server::start(Some(Renewing::new(TlsFiles::default())), SOON, true).await;
        let mut bytes = Vec::new();
        let reading = server.clear().await.read_to_end(&mut bytes).await;
        assert!(reading.is_err() || bytes.is_empty(), "{bytes:?}");
        assert!(server.finish().await);
    }

    #[tokio::test]
    async fn clients_above_the_limit_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, shutdown) = ShutdownHandle::new();
        let door = Door { listener, certificates: None, most: 2, farewell: SOON };
        // How many are being served now, and the maximum so far.
        let served = Arc::new(Mutex::new((0, 0)));
        let counts = Arc::clone(&served);
        let task = tokio::spawn(async move {
            let answer = move |mut stream: Stream, _| {
                let counts = Arc::clone(&counts);
                async move {
                    {
                        let (now, most) = &mut *counts.lock().unwrap();
                        *now += 1;
                        *most = (*now).max(*most);
                    }
                    stream.write_all(b"!").await.unwrap();
                    let _ = stream.read(&mut [0]).await;
                    counts.lock().unwrap().0 -= 1;
                }
            };
            door.serve(&shutdown, answer).await
        });
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        for mut client in clients {
            read(&mut client).await;
        }
        end.request();
        assert!(tokio::time::timeout(SOON, task).await.expect("an end").unwrap());
        assert_eq!(served.lock().unwrap().1, 2);
    }

    #[tokio::test]
    async fn the_end_waits_only_for_connections_that_finish() {
        for heeds in [true, false] {
            let farewell = if heeds { SOON } else { Duration::from_millis(10) };
            let server = Server::start(None, farewell, heeds).await;
            let mut client = server.clear().await;
            assert_eq!(read(&mut client).await, b'0');
            assert_eq!(server.finish().await, heeds);
            // Connections that did not finish are cut off.
            assert!(!matches!(client.read(&mut [0]).await, Ok(1)));
        }
    }
}
