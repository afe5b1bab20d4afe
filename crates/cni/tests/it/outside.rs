//! External parts: a dataplane behind gRPC, readiness gates over HTTPS, and device types that the kernel may lack.

use crate::world::{Cluster, Node, Pod, add_node, address_of, answer, pool, reach, refusal, told};
use anyhow::{Context as _, Result, ensure};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use testkit::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// `cni.AddRequest`, with the fields that the test inspects; the field numbers are those of Calico's protocol.
#[derive(Clone, PartialEq, Message)]
struct AddRequest {
    #[prost(string, tag = "1")]
    interface_name: String,
    #[prost(string, tag = "2")]
    netns: String,
    #[prost(string, tag = "3")]
    desired_host_interface_name: String,
    #[prost(message, optional, tag = "4")]
    settings: Option<Settings>,
    #[prost(message, repeated, tag = "5")]
    container_ips: Vec<Address>,
    #[prost(string, repeated, tag = "6")]
    container_routes: Vec<String>,
    #[prost(message, optional, tag = "7")]
    workload: Option<Workload>,
    #[prost(map = "string, string", tag = "8")]
    dataplane_options: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Settings {
    #[prost(bool, tag = "1")]
    allow_ip_forwarding: bool,
    #[prost(int32, tag = "2")]
    mtu: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(string, tag = "1")]
    address: String,
}

#[derive(Clone, PartialEq, Message)]
struct Workload {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(string, tag = "5")]
    endpoint: String,
    #[prost(string, tag = "6")]
    node: String,
    #[prost(string, tag = "7")]
    orchestrator: String,
}

/// `cni.AddReply`; `cni.DelReply` has the first two of its fields.
#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(bool, tag = "1")]
    successful: bool,
    #[prost(string, tag = "2")]
    error_message: String,
    #[prost(string, tag = "3")]
    host_interface_name: String,
    #[prost(string, tag = "4")]
    container_mac: String,
}

/// `cni.DelRequest`.
#[derive(Clone, PartialEq, Message)]
struct DelRequest {
    #[prost(string, tag = "1")]
    interface_name: String,
    #[prost(string, tag = "2")]
    netns: String,
    #[prost(map = "string, string", tag = "3")]
    dataplane_options: HashMap<String, String>,
}

/// The requests that the service got.
#[derive(Default)]
struct Service {
    added: Mutex<Vec<AddRequest>>,
    deleted: Mutex<Vec<DelRequest>>,
    refuses: AtomicBool,
    /// The name of the host's end; `outside0` when empty.
    device: Mutex<String>,
}

impl Service {
    /// Listens on a unix socket until the test's runtime ends.
    fn start(socket: &Path) -> Result<Arc<Self>> {
        let service = Arc::new(Self::default());
        let listener = tokio::net::UnixListener::bind(socket)?;
        let shared = Arc::clone(&service);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let answer = service_fn(move |request| answered(Arc::clone(&shared), request));
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Ok(service)
    }

    fn answer(&self, method: &str, message: &[u8]) -> Result<Reply> {
        let refused = self.refuses.load(Ordering::SeqCst);
        match method {
            "/cni.CniDataplane/Add" => {
                let request = AddRequest::decode(message)?;
                self.added.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                if refused {
                    return Ok(Reply { error_message: "no room".to_owned(), ..Reply::default() });
                }
                let device = self.device.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Ok(Reply {
                    successful: true,
                    host_interface_name: if device.is_empty() { "outside0".to_owned() } else { device },
                    container_mac: "02:00:00:00:00:07".to_owned(),
                    ..Reply::default()
                })
            }
            "/cni.CniDataplane/Del" => {
                let request = DelRequest::decode(message)?;
                self.deleted.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                Ok(Reply { successful: true, ..Reply::default() })
            }
            other => anyhow::bail!("no such method: {other}"),
        }
    }

    fn added(&self) -> Vec<AddRequest> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn deleted(&self) -> Vec<DelRequest> {
        self.deleted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Handles one gRPC call: five bytes before each message, the status after the answer.
async fn answered(
    service: Arc<Service>,
    request: http::Request<Incoming>,
) -> Result<http::Response<BoxBody<Bytes, Infallible>>, anyhow::Error> {
    let method = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let reply = service.answer(&method, body.get(5..).unwrap_or_default())?.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(reply.len())?.to_be_bytes());
    frame.extend(reply);
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(frame)).with_trailers(async move { Some(Ok(trailers)) });
    Ok(http::Response::builder().header("content-type", "application/grpc").body(body.boxed())?)
}

async fn world() -> Result<(Cluster, Node)> {
    let cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    Ok((cluster, node))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_dataplane_wires_and_unwires() -> Result<()> {
    let (cluster, node) = world().await?;
    let socket = node.root().join("dataplane.sock");
    let service = Service::start(&socket)?;
    let options = json!({"type": "grpc", "socket": format!("unix://{}", socket.display()), "colour": "blue", "size": 3});
    let external = json!({"dataplane_options": options, "container_settings": {"allow_ip_forwarding": true}});
    let pod = Pod::new("far")?;
    let result = node.add(&pod, external.clone())?;
    let address = address_of(&result)?;
    assert_eq!(result["interfaces"][0]["name"], "outside0");
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:07");
    let seen = service.added();
    let [request] = seen.as_slice() else { anyhow::bail!("asked {} times", seen.len()) };
    assert_eq!((request.interface_name.as_str(), request.netns.as_str()), ("eth0", pod.call("ADD").netns));
    assert_eq!(request.desired_host_interface_name, "califar");
    assert_eq!(request.settings, Some(Settings { allow_ip_forwarding: true, mtu: 1450 }));
    assert_eq!(request.container_ips, [Address { address: format!("{address}/32") }]);
    assert_eq!(request.container_routes, ["0.0.0.0/0", "::/0"]);
    let workload = request.workload.clone().context("no workload")?;
    assert_eq!((workload.orchestrator.as_str(), workload.node.as_str()), ("cni", "node-a"));
    assert_eq!((workload.name.as_str(), workload.endpoint.as_str()), ("node--a-cni-far-eth0", "eth0"));
    assert_eq!(request.dataplane_options.get("colour").map(String::as_str), Some("blue"));
    // Only strings are passed on, as in Calico.
    assert!(!request.dataplane_options.contains_key("size"));
    // The plugin itself has created nothing.
    node.assert_bare()?;
    let stored = cluster.dump()?;
    let endpoint =
        stored.iter().find(|(key, _)| key.contains("/workloadendpoints/")).context("no endpoint")?;
    assert!(endpoint.1.contains("\"interfaceName\":\"outside0\""), "{endpoint:?}");
    node.del(&pod, external.clone())?;
    let deleted = service.deleted();
    assert_eq!(deleted.len(), 1);
    assert_eq!(
        (deleted[0].interface_name.as_str(), deleted[0].netns.as_str()),
        ("eth0", pod.call("DEL").netns)
    );
    cluster.assert_bare()?;

    // A service that returns an error: the address is released.
    service.refuses.store(true, Ordering::SeqCst);
    let (code, message) = refusal(&node.call(&pod.call("ADD"), &node.configuration(external))?)?;
    assert!(code == 110 && message == "grpc dataplane error: no room", "{code} {message}");
    cluster.assert_bare()?;
    // A service that does not exist.
    let nobody = json!({"dataplane_options": {"type": "grpc", "socket": node.root().join("nobody.sock")}});
    let (code, message) = refusal(&node.call(&pod.call("ADD"), &node.configuration(nobody))?)?;
    assert!(code == 110 && message.contains("cannot connect to grpc dataplane"), "{code} {message}");
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_network_is_removed_when_the_endpoint_cannot_be_written() -> Result<()> {
    let (cluster, node) = world().await?;
    let socket = node.root().join("dataplane.sock");
    let service = Service::start(&socket)?;
    // A name that no device can have: the endpoint is refused after the network was set up.
    "a name/too long"
        .repeat(3)
        .clone_into(&mut service.device.lock().unwrap_or_else(PoisonError::into_inner));
    let external = json!({"dataplane_options": {"type": "grpc", "socket": socket}});
    let pod = Pod::new("far")?;
    let output = node.call(&pod.call("ADD"), &node.configuration(external))?;
    let (code, message) = refusal(&output)?;
    ensure!(code == 101 && message.contains("writing WorkloadEndpoint"), "{}", told(&output));
    assert_eq!((service.added().len(), service.deleted().len()), (1, 1));
    cluster.assert_bare()
}

/// A gate over TLS that is closed for the first request; counts the requests.
async fn gate(authority: &Authority) -> Result<(u16, Arc<AtomicUsize>)> {
    let files = authority.sign("gate", "gate", &[])?;
    let certificate = CertificateDer::from_pem_file(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut question = vec![0; 4096];
            let length = stream.read(&mut question).await.unwrap_or_default();
            let is_right = question[..length].starts_with(b"GET /ready?all=1 HTTP/1.1\r\n");
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let status = if is_right && !is_first { "204 No Content" } else { "503 Later" };
            let _ = stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    Ok((port, asked))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_https_gate_is_waited_for_and_must_be_trusted() -> Result<()> {
    let (cluster, mut node) = world().await?;
    let authority = Authority::new(node.root())?;
    let (port, asked) = gate(&authority).await?;
    node.forward(port)?;
    node.variables.insert("SSL_CERT_FILE".into(), authority.certificate.display().to_string());
    let gated = json!({"readiness_gates": [format!("https://127.0.0.1:{port}/ready?all=1")]});
    let pod = Pod::new("gated")?;
    let output = node.call(&pod.call("ADD"), &node.configuration(gated.clone()))?;
    answer(&output)?;
    ensure!(told(&output).contains("response code returned:503"), "{}", told(&output));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    node.del(&pod, gated.clone())?;
    // DEL does not wait for gates.
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    // Without the authority nothing is sent to the gate, and the pod is not attached.
    node.variables.remove("SSL_CERT_FILE");
    let output = node.call(&pod.call("ADD"), &node.configuration(gated))?;
    let (code, message) = refusal(&output)?;
    ensure!(code == 11 && message.contains("did not open within 30 s"), "{}", told(&output));
    ensure!(message.contains("certificate"), "{message}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn netkit_if_the_kernel_has_it_else_veth() -> Result<()> {
    let (cluster, node) = world().await?;
    let netkit = json!({"device_type": "netkit"});
    let (one, two) = (Pod::new("one")?, Pod::new("two")?);
    let has_netkit = one.netns.ip(&["link", "add", "probe0", "type", "netkit"]).is_ok();
    if has_netkit {
        one.netns.ip(&["link", "del", "probe0"])?;
    }
    let output = node.call(&one.call("ADD"), &node.configuration(netkit.clone()))?;
    answer(&output)?;
    let second = address_of(&node.add(&two, netkit.clone())?)?;
    let device = node.host.ip(&["-details", "link", "show", "calione"])?;
    if has_netkit {
        ensure!(device.contains("netkit"), "{device}");
    } else {
        ensure!(device.contains("veth"), "{device}");
        ensure!(told(&output).contains("this kernel has no netkit devices"), "{}", told(&output));
    }
    ensure!(device.contains("mtu 1450"), "{device}");
    reach(&one.netns, &two.netns, &second)?;
    let odd = json!({"device_type": "tap"});
    assert_eq!(refusal(&node.call(&Pod::new("odd")?.call("ADD"), &node.configuration(odd))?)?.0, 2);
    node.del(&one, netkit.clone())?;
    node.del(&two, netkit)?;
    node.assert_bare()?;
    cluster.assert_bare()
}
