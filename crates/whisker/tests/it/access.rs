//! Access control.

use crate::world::{World, bytes};
use axum::body::Body;
use http::{Method, Request, StatusCode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::sync::Arc;
use testkit::{Authority, Folder, KeyAndCertificate};
use tls::{ClientAuth, Renewing, TlsFiles};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use whisker::for_tests::{Access, Reviews, serve};

#[tokio::test]
async fn nothing_can_be_changed() {
    let world = World::shop();
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        for path in ["/flows", "/api/v1/live", "/"] {
            let request = Request::builder().method(&method).uri(path).body(Body::empty()).unwrap();
            assert_eq!(world.ask(request).await.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
    }
    let head = Request::head("/flows").body(Body::empty()).unwrap();
    let response = world.ask(head).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(bytes(response).await.is_empty());
}

#[tokio::test]
async fn data_requires_the_token() {
    let world = World::with_access(Access::new(Some("secret"), false));
    for (path, header, expected) in [
        ("/flows", None, 401),
        ("/flows", Some("Bearer wrong"), 401),
        ("/flows", Some("Basic secret"), 401),
        ("/flows", Some("Bearer secret"), 200),
        ("/api/v1/status", Some("bearer secret"), 200),
        ("/whisker-backend/flows", None, 401),
        ("/api/v1/live", None, 401),
        ("/config/config.json", None, 401),
        // The page contains no data: it asks for the token.
        ("/", None, 200),
        ("/whisker.js", None, 200),
        ("/liveness", None, 200),
    ] {
        let mut request = Request::get(path);
        if let Some(header) = header {
            request = request.header("authorization", header);
        }
        let response = world.ask(request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status().as_u16(), expected, "{path} {header:?}");
        assert_eq!(response.headers().contains_key("www-authenticate"), expected == 401, "{path}");
    }
}

#[tokio::test]
async fn requests_for_foreign_names_are_refused() {
    let world = World::with_access(Access::new(None, true));
    for (host, expected) in
        [("localhost:8080", 200), ("127.0.0.1:8080", 200), ("[::1]:8080", 200), ("evil.example:8080", 421)]
    {
        let request = Request::get("/flows").header("host", host).body(Body::empty()).unwrap();
        assert_eq!(world.ask(request).await.status().as_u16(), expected, "{host}");
    }
}

#[tokio::test]
async fn readiness_reports_whether_flows_can_be_shown() {
    assert_eq!(World::empty().get("/readiness").await.status(), StatusCode::OK);
    assert_eq!(World::empty().get("/liveness").await.status(), StatusCode::OK);
}

struct Server {
    _shutdown: daemon::ShutdownHandle,
    authority: Authority,
    folder: Folder,
    address: std::net::SocketAddr,
}

async fn server(client_auth: ClientAuth) -> Server {
    let folder = Folder::new("whisker").unwrap();
    let authority = Authority::new(folder.path()).unwrap();
    let own = authority.sign("server", "localhost", &[]).unwrap();
    let files = TlsFiles {
        certificate: own.certificate,
        key: own.key,
        authorities: authority.certificate.clone(),
        client_auth,
        protocols: &["h2", "http/1.1"],
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (handle, shutdown) = daemon::ShutdownHandle::new();
    tokio::spawn(serve(listener, Some(Renewing::new(files)), World::shop().service, shutdown));
    Server { _shutdown: handle, authority, folder, address }
}

impl Server {
    async fn ask(&self, client: Option<&KeyAndCertificate>) -> Result<String, String> {
        let mut roots = rustls::RootCertStore::empty();
        for one in CertificateDer::pem_file_iter(&self.authority.certificate).unwrap() {
            roots.add(one.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
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
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        let request = b"GET /flows HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
        Ok(answer)
    }
}

#[tokio::test]
async fn tls_with_client_certificates_if_required() {
    let open = server(ClientAuth::None).await;
    assert!(open.ask(None).await.unwrap().contains("\"dest_port\":5432"));
    let closed = server(ClientAuth::RequireAndVerify).await;
    let known = closed.authority.sign("client", "reader", &[]).unwrap();
    let elsewhere = closed.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let stranger = Authority::new(&elsewhere).unwrap().sign("client", "reader", &[]).unwrap();
    assert!(closed.ask(Some(&known)).await.unwrap().contains("HTTP/1.1 200"));
    assert!(closed.ask(None).await.is_err());
    assert!(closed.ask(Some(&stranger)).await.is_err());
}

const READERS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flow-readers}
rules: [{nonResourceURLs: ["/flows"], verbs: ["get"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flow-readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flow-readers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: nobodies}]
"#;

async fn reviewing(kubeconfig: &std::path::Path, token: Option<&str>) -> World {
    let environment = daemon::Variables::new([("KUBECONFIG", kubeconfig.to_str().unwrap())]);
    let access = kube_access::KubeAccess::from_environment(&environment).await.unwrap().unwrap();
    let reviews = Reviews::new(kube_access::cluster::Cluster::new(&access));
    World::with_access(Access::new(token, false).with_reviews(Some(reviews)))
}

async fn status_with(world: &World, path: &str, token: &str) -> u16 {
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    world.ask(request.body(Body::empty()).unwrap()).await.status().as_u16()
}

#[tokio::test]
async fn kubernetes_decides_who_may_see_flows() {
    let etcd = testkit::Etcd::start().unwrap();
    let server = testkit::ApiServer::start(&etcd.endpoint()).unwrap();
    let world = reviewing(&server.kubeconfig(), Some("of-the-file")).await;
    // The token's owner, and what they may do.
    for (token, expected) in
        [("admin-token", 200), ("nobody-token", 403), ("made-up", 401), ("of-the-file", 200)]
    {
        for path in ["/flows", "/api/v1/status", "/whisker-backend/flows-filter-hints?type=DestName"] {
            assert_eq!(status_with(&world, path, token).await, expected, "{token} {path}");
        }
    }
    assert_eq!(world.get("/flows").await.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(world.get("/").await.status(), StatusCode::OK, "the page has no data");
    // A new grant takes effect.
    server.kubectl_with_input(&["apply", "-f", "-"], READERS).unwrap();
    testkit::eventually_async("the reader is let in", async || {
        status_with(&world, "/flows", "nobody-token").await == 200
    })
    .await
    .unwrap();
    // Without the right to ask Kubernetes, only the token of the file is accepted.
    let blind = reviewing(&server.kubeconfig_without_rights(), Some("of-the-file")).await;
    assert_eq!(status_with(&blind, "/flows", "admin-token").await, 503);
    assert_eq!(status_with(&blind, "/flows", "of-the-file").await, 200);
}
