//! An external dataplane (`dataplane_options.type: grpc`): Calico's small gRPC protocol, `cni.CniDataplane`.
//!
//! The messages are written by hand: two calls do not justify a generated file.

use crate::config::NetConf;
use crate::error::{CniError, Result, code};
use crate::wiring::Ends;
use api::WorkloadEndpoint;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use prost::Message;
use std::collections::HashMap;
use std::time::Duration;
use tokio::net::UnixStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// How long the service may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The object that the service removes: one interface of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodInterface {
    /// The service's socket.
    pub(crate) socket: String,
    /// The pod's namespace.
    pub(crate) netns: String,
    /// The pod's interface.
    pub(crate) ifname: String,
    /// Options for the service.
    pub(crate) options: HashMap<String, String>,
}

/// What the service is requested to create.
#[derive(Clone, Debug)]
pub(crate) struct ExternalWish {
    /// The pod's interface.
    pub(crate) ifname: String,
    /// The pod's namespace.
    pub(crate) netns: String,
    /// The host's interface, if the service uses it.
    pub(crate) host_device: String,
    /// Whether the pod may forward.
    pub(crate) forwarding: bool,
    pub(crate) mtu: u32,
    /// The pod's addresses.
    pub(crate) addresses: Vec<IpNet>,
    /// The pod's routes.
    pub(crate) routes: Vec<IpNet>,
    /// The pod's endpoint.
    pub(crate) endpoint: Box<WorkloadEndpoint>,
    /// The pod's annotations.
    pub(crate) annotations: api::meta::StringMap,
    /// Options for the service.
    pub(crate) options: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct AddRequest {
    #[prost(string, tag = "1")]
    interface_name: String,
    #[prost(string, tag = "2")]
    netns: String,
    #[prost(string, tag = "3")]
    desired_host_interface_name: String,
    #[prost(message, optional, tag = "4")]
    settings: Option<ContainerSettings>,
    #[prost(message, repeated, tag = "5")]
    container_ips: Vec<IpConfig>,
    #[prost(string, repeated, tag = "6")]
    container_routes: Vec<String>,
    #[prost(message, optional, tag = "7")]
    workload: Option<Workload>,
    #[prost(map = "string, string", tag = "8")]
    dataplane_options: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerSettings {
    #[prost(bool, tag = "1")]
    allow_ip_forwarding: bool,
    #[prost(int32, tag = "2")]
    mtu: i32,
}

#[derive(Clone, PartialEq, Message)]
struct IpConfig {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(string, tag = "2")]
    gateway: String,
}

#[derive(Clone, PartialEq, Message)]
struct Workload {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(map = "string, string", tag = "3")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "4")]
    annotations: HashMap<String, String>,
    #[prost(string, tag = "5")]
    endpoint: String,
    #[prost(string, tag = "6")]
    node: String,
    #[prost(string, tag = "7")]
    orchestrator: String,
    #[prost(string, tag = "8")]
    pod: String,
    #[prost(message, repeated, tag = "9")]
    ports: Vec<Port>,
}

#[derive(Clone, PartialEq, Message)]
struct Port {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    protocol: String,
    #[prost(uint32, tag = "3")]
    port: u32,
    #[prost(uint32, tag = "4")]
    host_port: u32,
    #[prost(string, tag = "5")]
    host_ip: String,
}

#[derive(Clone, PartialEq, Message)]
struct AddReply {
    #[prost(bool, tag = "1")]
    successful: bool,
    #[prost(string, tag = "2")]
    error_message: String,
    #[prost(string, tag = "3")]
    host_interface_name: String,
    #[prost(string, tag = "4")]
    container_mac: String,
}

#[derive(Clone, PartialEq, Message)]
struct DelRequest {
    #[prost(string, tag = "1")]
    interface_name: String,
    #[prost(string, tag = "2")]
    netns: String,
    #[prost(map = "string, string", tag = "3")]
    dataplane_options: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct DelReply {
    #[prost(bool, tag = "1")]
    successful: bool,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// The options for the service whose values are strings.
#[must_use]
pub(crate) fn options(conf: &NetConf) -> HashMap<String, String> {
    let text =
        |(name, value): (&String, &serde_json::Value)| Some((name.clone(), value.as_str()?.to_owned()));
    conf.dataplane_options.iter().filter_map(text).collect()
}

/// Has the service create a pod's network.
///
/// # Errors
/// When the service cannot be reached or reports an error.
pub(crate) async fn add(socket: &str, wish: ExternalWish) -> Result<Ends> {
    let spec = &wish.endpoint.spec;
    let metadata = &wish.endpoint.metadata;
    let port = |port: &api::WorkloadEndpointPort| Port {
        name: port.name.clone(),
        protocol: port.protocol.to_string(),
        port: port.port.into(),
        host_port: port.host_port.into(),
        host_ip: port.host_ip.to_string(),
    };
    let request = AddRequest {
        interface_name: wish.ifname,
        netns: wish.netns,
        desired_host_interface_name: wish.host_device,
        settings: Some(ContainerSettings {
            allow_ip_forwarding: wish.forwarding,
            mtu: i32::try_from(wish.mtu).unwrap_or_default(),
        }),
        // Go prints "no address" like this.
        container_ips: wish
            .addresses
            .iter()
            .map(|address| IpConfig { address: address.to_string(), gateway: "<nil>".to_owned() })
            .collect(),
        container_routes: wish.routes.iter().map(ToString::to_string).collect(),
        workload: Some(Workload {
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            labels: metadata.labels.clone().into_iter().collect(),
            annotations: wish.annotations.into_iter().collect(),
            endpoint: spec.endpoint.clone(),
            node: spec.node.clone(),
            orchestrator: spec.orchestrator.clone(),
            pod: spec.pod.clone(),
            ports: spec.ports.iter().map(port).collect(),
        }),
        dataplane_options: wish.options,
    };
    let reply: AddReply = call(socket, "/cni.CniDataplane/Add", request).await?;
    if !reply.successful {
        return Err(failed(socket, &format!("grpc dataplane error: {}", reply.error_message)));
    }
    let mac = match reply.container_mac.as_str() {
        "" => None,
        text => {
            Some(text.parse().map_err(|error| failed(socket, &format!("grpc dataplane error: {error}")))?)
        }
    };
    Ok(Ends { host_device: reply.host_interface_name, mac })
}

/// Has the service remove a pod's network.
///
/// # Errors
/// When the service cannot be reached or reports an error.
pub(crate) async fn delete(attachment: PodInterface) -> Result<()> {
    let PodInterface { socket, netns, ifname, options } = attachment;
    let request = DelRequest { interface_name: ifname, netns, dataplane_options: options };
    let reply: DelReply = call(&socket, "/cni.CniDataplane/Del", request).await?;
    if reply.successful {
        return Ok(());
    }
    Err(failed(&socket, &format!("grpc dataplane error: {}", reply.error_message)))
}

async fn call<Q: Message + 'static, A: Message + Default + 'static>(
    socket: &str,
    method: &'static str,
    request: Q,
) -> Result<A> {
    let work = async {
        let channel =
            connect(socket).await.map_err(|error| format!("cannot connect to grpc dataplane: {error}"))?;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.map_err(|error| error.to_string())?;
        let codec = tonic_prost::ProstCodec::default();
        let path = PathAndQuery::from_static(method);
        let answer = client.unary(tonic::Request::new(request), path, codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.to_string())
    };
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(outcome) => outcome.map_err(|error| failed(socket, &error)),
        Err(_) => Err(failed(socket, &format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

async fn connect(socket: &str) -> std::result::Result<Channel, tonic::transport::Error> {
    let Some(path) = socket
        .strip_prefix("unix://")
        .or_else(|| socket.strip_prefix("unix:"))
        .or_else(|| socket.starts_with('/').then_some(socket))
    else {
        let address = if socket.contains("://") { socket.to_owned() } else { format!("http://{socket}") };
        return Endpoint::from_shared(address)?.connect().await;
    };
    let path = path.to_owned();
    // The address is never used; the connector knows the socket.
    Endpoint::from_static("http://dataplane.invalid")
        .connect_with_connector(service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
}

fn failed(socket: &str, reason: &str) -> CniError {
    CniError::new(code::DATAPLANE, reason.to_owned()).with_details(format!(
        "the dataplane is the service at {socket}, named by dataplane_options of the CNI configuration"
    ))
}
