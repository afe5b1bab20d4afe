//! Serves a component's health probes and figures over HTTP: retries if a port is taken, and uses TLS if files for it
//! are configured.
//!
//! There are no timers: answers are computed on request.

mod listen;
mod patience;
mod server;

pub use listen::Address;
pub use server::{Pages, serve, serve_at};

#[cfg(test)]
mod tests {
    use crate::server::{Pages, serve_tls};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use std::path::Path;
    use std::sync::Arc;
    use telemetry::Metrics;
    use testkit::{Authority, Folder, KeyAndCertificate};
    use tls::{ClientAuth, TlsFiles};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;

    struct World {
        folder: Folder,
        authority: Authority,
        address: std::net::SocketAddr,
        files: TlsFiles,
    }

    impl World {
        async fn start(client_auth: ClientAuth) -> Self {
            let folder = Folder::new("telemetry").unwrap();
            let authority = Authority::new(folder.path()).unwrap();
            let server = authority.sign("server", "localhost", &[]).unwrap();
            let files = TlsFiles {
                certificate: server.certificate,
                key: server.key,
                authorities: authority.certificate.clone(),
                client_auth,
                ..TlsFiles::default()
            };
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let metrics = Metrics::default();
            metrics.set("felix_resync_state", "State.", 3.0);
            let pages = Pages { health: None, metrics: Some(metrics) };
            tokio::spawn(serve_tls(listener, pages, files.clone()));
            Self { folder, authority, address, files }
        }

        /// The answer that a client gets, or why it gets none.
        async fn ask(&self, client: Option<&KeyAndCertificate>) -> Result<String, String> {
            let mut roots = RootCertStore::empty();
            for one in CertificateDer::pem_file_iter(&self.authority.certificate).unwrap() {
                roots.add(one.unwrap()).unwrap();
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
            let config = match client {
                None => builder.with_no_client_auth(),
                Some(client) => {
                    let chain = CertificateDer::pem_file_iter(&client.certificate).unwrap();
                    let key = PrivateKeyDer::from_pem_file(&client.key).unwrap();
                    builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
                }
            };
            let name = ServerName::try_from("localhost").unwrap();
            let stream = TcpStream::connect(self.address).await.unwrap();
            let connector = TlsConnector::from(Arc::new(config));
            let mut stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
            let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.map_err(|error| error.to_string())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
            Ok(answer)
        }
    }

    #[tokio::test]
    async fn client_certificates_are_checked() {
        // Without a certificate, with one of the authority, with one of an unknown authority.
        for (auth, wanted) in [
            (ClientAuth::None, [true, true, true]),
            (ClientAuth::RequireAny, [false, true, true]),
            (ClientAuth::VerifyIfGiven, [true, true, false]),
            (ClientAuth::RequireAndVerify, [false, true, false]),
        ] {
            let world = World::start(auth).await;
            let known = world.authority.sign("client", "scraper", &[]).unwrap();
            let elsewhere = world.folder.path().join("elsewhere");
            std::fs::create_dir(&elsewhere).unwrap();
            let stranger = Authority::new(&elsewhere).unwrap().sign("client", "scraper", &[]).unwrap();
            for (client, wanted) in [None, Some(&known), Some(&stranger)].into_iter().zip(wanted) {
                let answer = world.ask(client).await;
                let served = answer.as_ref().is_ok_and(|text| text.ends_with("felix_resync_state 3\n"));
                assert_eq!(served, wanted, "{auth:?}: {answer:?}");
            }
        }
    }

    #[tokio::test]
    async fn new_files_are_read_and_bad_ones_stop_the_service() {
        let world = World::start(ClientAuth::None).await;
        assert!(world.ask(None).await.is_ok());
        let good = std::fs::read(&world.files.certificate).unwrap();
        write(&world.files.certificate, b"nothing", 10);
        assert!(world.ask(None).await.is_err());
        write(&world.files.certificate, &good, 20);
        assert!(world.ask(None).await.is_ok());
    }

    /// Writes a file with a modification time that certainly differs from the previous one.
    fn write(path: &Path, bytes: &[u8], later: u64) {
        std::fs::write(path, bytes).unwrap();
        let time = std::time::SystemTime::now() + std::time::Duration::from_secs(later);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
}
