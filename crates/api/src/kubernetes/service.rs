//! Services (`v1`) and endpoint slices (`discovery.k8s.io/v1`), which feeds pass on as kinds of their own.

use super::read_only_objects;
use crate::meta::StringMap;
use crate::scalars::IntOrString;
use api_derive::resource_struct;

read_only_objects! {
    /// A service.
    Service {
        /// The desired state.
        spec: ServiceSpec,
        /// The observed state.
        status: ServiceStatus,
    }
}

/// The desired state of a service.
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
    /// The requested address.
    #[field(name = "loadBalancerIP")]
    pub load_balancer_ip: String,
    /// Client ranges that the load balancer admits.
    pub load_balancer_source_ranges: Vec<String>,
    /// The DNS name that an `ExternalName` service points to.
    pub external_name: String,
    /// `Cluster` or `Local`: where traffic from outside may be served.
    pub external_traffic_policy: String,
    /// The port on which this node reports whether it has endpoints.
    pub health_check_node_port: i32,
    /// Whether endpoints count before they are ready.
    pub publish_not_ready_addresses: bool,
    /// `IPv4`, `IPv6`, in order of preference.
    pub ip_families: Vec<String>,
    /// The class of load balancer responsible for the service.
    pub load_balancer_class: Option<String>,
    /// `Cluster` or `Local`: where traffic from within may be served.
    pub internal_traffic_policy: Option<String>,
    /// How nearby endpoints are preferred.
    pub traffic_distribution: Option<String>,
}

/// A port of a service.
#[resource_struct]
pub struct ServicePort {
    /// The name; required if there are several ports.
    pub name: String,
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// The application protocol, for programs that inspect traffic.
    pub app_protocol: Option<String>,
    /// The port of the service.
    #[field(always)]
    pub port: i32,
    /// The port of its pods.
    pub target_port: Option<IntOrString>,
    /// The port on every node.
    pub node_port: i32,
}

/// The observed state of a service.
#[resource_struct]
pub struct ServiceStatus {
    /// The load balancer.
    #[field(always)]
    pub load_balancer: LoadBalancerStatus,
}

/// The observed state of a service's load balancer.
#[resource_struct]
pub struct LoadBalancerStatus {
    /// The addresses at which it is reached.
    pub ingress: Vec<LoadBalancerIngress>,
}

/// An address or name at which a load balancer is reached.
#[resource_struct]
pub struct LoadBalancerIngress {
    /// The address.
    pub ip: String,
    /// The DNS name.
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
    /// Addresses and ports; these fields are at the top level of the object.
    #[serde(flatten)]
    pub content: EndpointSliceContent,
}

impl EndpointSlice {
    /// Reads an endpoint slice, and drops unused top-level fields.
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
    /// The ports of all endpoints.
    #[field(always)]
    pub ports: Vec<EndpointPort>,
}

/// One endpoint.
#[resource_struct]
pub struct Endpoint {
    /// Its addresses, which are equivalent.
    #[field(always)]
    pub addresses: Vec<String>,
    /// Whether it is ready, serving, terminating.
    pub conditions: EndpointConditions,
    /// Its host name.
    pub hostname: Option<String>,
    /// The object behind it, usually a pod.
    pub target_ref: Option<ObjectReference>,
    /// Its node.
    pub node_name: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
}

/// The state of an endpoint; absent means unknown, which counts as true for `ready`.
#[resource_struct]
pub struct EndpointConditions {
    /// Accepts traffic.
    pub ready: Option<bool>,
    /// Answers, even while it is terminating.
    pub serving: Option<bool>,
    /// Is terminating.
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

/// A port of all endpoints of a slice.
#[resource_struct]
pub struct EndpointPort {
    /// The name of the service's port.
    pub name: Option<String>,
    /// TCP, UDP or SCTP.
    pub protocol: Option<String>,
    /// The number; all ports if absent.
    pub port: Option<i32>,
    /// The application protocol, for programs that inspect traffic.
    pub app_protocol: Option<String>,
}
