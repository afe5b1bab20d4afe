//! Services (`v1`) and endpoint slices (`discovery.k8s.io/v1`), which feeds pass on as kinds of their own.

use super::read_only_objects;
use crate::meta::StringMap;
use crate::scalars::IntOrString;
use api_derive::resource_struct;

read_only_objects! {
    /// A service.
    Service {
        /// What is served.
        spec: ServiceSpec,
        /// What was observed.
        status: ServiceStatus,
    }
}

/// What a service serves.
#[resource_struct]
pub struct ServiceSpec {
    /// The ports.
    pub ports: Vec<ServicePort>,
    /// The labels of the pods behind the service.
    pub selector: StringMap,
    /// The main address within the cluster; `None` for a service without one.
    #[field(name = "clusterIP")]
    pub cluster_ip: String,
    /// All addresses within the cluster.
    #[field(name = "clusterIPs")]
    pub cluster_ips: Vec<String>,
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[field(name = "type")]
    pub kind: String,
    /// Addresses outside the cluster that lead here.
    #[field(name = "externalIPs")]
    pub external_ips: Vec<String>,
    /// `ClientIP` or `None`.
    pub session_affinity: String,
    /// The address that was asked for.
    #[field(name = "loadBalancerIP")]
    pub load_balancer_ip: String,
    /// Clients that the load balancer admits.
    pub load_balancer_source_ranges: Vec<String>,
    /// The DNS name that an `ExternalName` service stands for.
    pub external_name: String,
    /// `Cluster` or `Local`: where traffic from outside may be served.
    pub external_traffic_policy: String,
    /// The port that says whether this node has endpoints.
    pub health_check_node_port: i32,
    /// Whether endpoints count before they are ready.
    pub publish_not_ready_addresses: bool,
    /// `IPv4`, `IPv6`, in order of preference.
    pub ip_families: Vec<String>,
    /// The class of load balancer that looks after the service.
    pub load_balancer_class: Option<String>,
    /// `Cluster` or `Local`: where traffic from within may be served.
    pub internal_traffic_policy: Option<String>,
    /// How traffic prefers near endpoints.
    pub traffic_distribution: Option<String>,
}

/// A port of a service.
#[resource_struct]
pub struct ServicePort {
    /// Its name; needed where there are several.
    pub name: String,
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// The protocol above, for those who look inside.
    pub app_protocol: Option<String>,
    /// The port of the service.
    #[field(always)]
    pub port: i32,
    /// The port of its pods.
    pub target_port: Option<IntOrString>,
    /// The port on every node.
    pub node_port: i32,
}

/// What was observed of a service.
#[resource_struct]
pub struct ServiceStatus {
    /// The load balancer.
    #[field(always)]
    pub load_balancer: LoadBalancerStatus,
}

/// What was observed of a service's load balancer.
#[resource_struct]
pub struct LoadBalancerStatus {
    /// Where it is reached.
    pub ingress: Vec<LoadBalancerIngress>,
}

/// A place where a load balancer is reached.
#[resource_struct]
pub struct LoadBalancerIngress {
    /// By address.
    pub ip: String,
    /// By name.
    pub hostname: String,
    /// `VIP` or `Proxy`.
    pub ip_mode: Option<String>,
}

/// An endpoint slice: part of the endpoints behind a service.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default)]
pub struct EndpointSlice {
    /// Name, labels (the service among them) and the rest.
    #[serde(deserialize_with = "crate::kubernetes::trimmed_metadata")]
    pub metadata: crate::meta::ObjectMeta,
    /// Addresses and ports; these fields stand at the top of the object.
    #[serde(flatten)]
    pub content: EndpointSliceContent,
}

impl EndpointSlice {
    /// Reads an endpoint slice, and drops the fields at its top that nobody uses.
    ///
    /// # Errors
    /// When the text is not JSON, or a field holds a value of the wrong type.
    pub fn from_json(json: &[u8]) -> Result<Self, serde_json::Error> {
        let mut slice: Self = serde_json::from_slice(json)?;
        slice.content.extra.clear();
        Ok(slice)
    }
}

/// Addresses and ports of an endpoint slice.
#[resource_struct]
pub struct EndpointSliceContent {
    /// `IPv4`, `IPv6` or `FQDN`.
    #[field(always)]
    pub address_type: String,
    /// The endpoints.
    #[field(always)]
    pub endpoints: Vec<Endpoint>,
    /// The ports that all of them have.
    #[field(always)]
    pub ports: Vec<EndpointPort>,
}

/// One endpoint.
#[resource_struct]
pub struct Endpoint {
    /// Its addresses, all for the same thing.
    #[field(always)]
    pub addresses: Vec<String>,
    /// Whether it is ready, serving, terminating.
    pub conditions: EndpointConditions,
    /// Its host name.
    pub hostname: Option<String>,
    /// The object behind it, a pod most often.
    pub target_ref: Option<ObjectReference>,
    /// Its node.
    pub node_name: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
}

/// The state of an endpoint; absent means unknown, which counts as true for `ready`.
#[resource_struct]
pub struct EndpointConditions {
    /// Takes traffic.
    pub ready: Option<bool>,
    /// Answers, even if it is on its way out.
    pub serving: Option<bool>,
    /// On its way out.
    pub terminating: Option<bool>,
}

/// Names another object.
#[resource_struct]
pub struct ObjectReference {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// A port that all endpoints of a slice have.
#[resource_struct]
pub struct EndpointPort {
    /// The name of the service's port.
    pub name: Option<String>,
    /// TCP, UDP or SCTP.
    pub protocol: Option<String>,
    /// The number; all ports if absent.
    pub port: Option<i32>,
    /// The protocol above, for those who look inside.
    pub app_protocol: Option<String>,
}
