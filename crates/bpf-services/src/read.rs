//! The relevant parts of a Service or an EndpointSlice, for one IP version.
//!
//! Headless services, external names, services without an address of this version and those of another proxy
//! (`service.kubernetes.io/service-proxy-name`) are ignored. Invalid entries are left out, except where they restrict:
//! an invalid source range admits no client.

use crate::address;
use api::kubernetes::service::{Endpoint as RawEndpoint, EndpointSliceContent};
use api::words::service as words;
use api::{KubernetesEndpointSlice, KubernetesService};
use bpf::layout::Family;
use ipnet::IpNet;
use serde_json::Value;

/// A service with this label belongs to another proxy.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "service.kubernetes.io/headless";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Kubernetes' default.
const AFFINITY_SECONDS: u32 = 10_800;

/// The number of a protocol that services have.
pub(crate) fn protocol(name: &str) -> Option<u8> {
    match name {
        "" | "TCP" => Some(6),
        "UDP" => Some(17),
        "SCTP" => Some(132),
        _ => None,
    }
}

/// A service in one IP version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service<F: Family> {
    /// The creation time, as text that sorts: the older service keeps an address.
    pub(crate) created: Box<str>,
    /// Its cluster address.
    pub(crate) cluster: F::Address,
    /// External addresses.
    pub(crate) external: Vec<F::Address>,
    /// Addresses of its load balancer.
    pub(crate) balancer: Vec<F::Address>,
    /// Source networks admitted at load balancer and external addresses; all if there is no such list.
    pub(crate) ranges: Option<Vec<(u32, F::Address)>>,
    /// The seconds for which a client stays with its backend.
    pub(crate) affinity: u32,
    pub(crate) is_external_local: bool,
    pub(crate) is_internal_local: bool,
    /// Left to the host.
    pub(crate) is_excluded: bool,
    pub(crate) has_maglev: bool,
    /// UDP flows end as soon as their backend begins to terminate.
    pub(crate) ends_udp_early: bool,
    pub(crate) is_topology_aware: bool,
    /// The port at which load balancers check whether this node has endpoints.
    pub(crate) health_port: Option<u16>,
    pub(crate) ports: Vec<Port>,
}

/// A port of a service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Port {
    pub(crate) name: Box<str>,
    pub(crate) protocol: u8,
    pub(crate) port: u16,
    /// The node port, or 0.
    pub(crate) node_port: u16,
}

impl<F: Family> Service<F> {
    /// The service, if it is served.
    pub(crate) fn read(object: &KubernetesService) -> Option<Self> {
        let (metadata, spec) = (&object.metadata, &object.spec.0);
        if spec.kind == "ExternalName"
            || [OTHER_PROXY, HEADLESS].iter().any(|label| metadata.labels.contains_key(*label))
        {
            return None;
        }
        // Older APIs have a single address.
        let cluster =
            spec.cluster_ips.iter().chain([&spec.cluster_ip]).find_map(|ip| address::parse::<F>(ip))?;
        let is_outside =
            matches!(spec.kind.as_str(), "NodePort" | "LoadBalancer") || !spec.external_ips.is_empty();
        let is_external_local = is_outside && spec.external_traffic_policy == "Local";
        let has_health = spec.kind == "LoadBalancer" && is_external_local;
        let annotation = |name: &str| metadata.annotations.get(name).map_or("", String::as_str);
        let is_excluded = annotation(words::NAT_EXCLUDED) == "true";
        let is = |name: &str, value: &str| !is_excluded && annotation(name).eq_ignore_ascii_case(value);
        let ports = spec.ports.iter().filter_map(|port| {
            Some(Port {
                name: port.name.as_str().into(),
                protocol: protocol(&port.protocol)?,
                port: u16::try_from(port.port).ok().filter(|port| *port != 0)?,
                node_port: u16::try_from(port.node_port).unwrap_or_default(),
            })
        });
        let balancer = object.status.load_balancer.ingress.iter();
        Some(Self {
            created: metadata.creation_timestamp.as_ref().map_or("", |time| time.as_str()).into(),
            cluster,
            external: spec.external_ips.iter().filter_map(|ip| address::parse::<F>(ip)).collect(),
            balancer: balancer
                .filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"))
                .filter_map(|ingress| address::parse::<F>(&ingress.ip))
                .collect(),
            ranges: ranges::<F>(&spec.load_balancer_source_ranges),
            affinity: if spec.session_affinity == "ClientIP" {
                affinity(spec.extra.get("sessionAffinityConfig"))
            } else {
                0
            },
            is_external_local,
            is_internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            is_excluded,
            has_maglev: is(words::TRAFFIC_STRATEGY, "maglev"),
            ends_udp_early: is(words::UDP_CLEANUP, "TerminatingImmediately"),
            is_topology_aware: is("service.kubernetes.io/topology-mode", "Auto"),
            health_port: u16::try_from(spec.health_check_node_port)
                .ok()
                .filter(|port| has_health && *port != 0),
            ports: ports.collect(),
        })
    }
}

/// The timeout in `sessionAffinityConfig`.
fn affinity(config: Option<&Value>) -> u32 {
    let seconds = config.and_then(|config| config.get("clientIP")?.get("timeoutSeconds")?.as_u64());
    seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(AFFINITY_SECONDS)
}

/// The source ranges of this IP version. A list for the other version only counts as no list here, as in kube-proxy.
fn ranges<F: Family>(texts: &[String]) -> Option<Vec<(u32, F::Address)>> {
    let mut ranges = Vec::new();
    let mut restricts = false;
    for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()) {
        let Ok(net) = text.parse::<IpNet>() else {
            restricts = true;
            continue;
        };
        if let Some(address) = address::bytes::<F>(net.network()) {
            ranges.push((u32::from(net.prefix_len()), address));
        }
    }
    restricts |= !ranges.is_empty();
    ranges.sort_unstable();
    ranges.dedup();
    restricts.then_some(ranges)
}

/// An endpoint slice in one IP version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slice<F: Family> {
    /// The name of its service.
    pub(crate) service: Box<str>,
    /// Name, protocol and number of its ports.
    pub(crate) ports: Box<[(Box<str>, u8, u16)]>,
    pub(crate) endpoints: Box<[Endpoint<F>]>,
}

/// An endpoint of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Endpoint<F: Family> {
    pub(crate) address: F::Address,
    /// Its node's name, if known.
    pub(crate) node: Box<str>,
    pub(crate) is_ready: bool,
    pub(crate) is_serving: bool,
    pub(crate) is_terminating: bool,
    /// Zones that it is hinted for.
    pub(crate) zones: Box<[Box<str>]>,
    /// Nodes that it is hinted for.
    pub(crate) nodes: Box<[Box<str>]>,
}

impl<F: Family> Slice<F> {
    /// The slice, if it is of this IP version and belongs to a service.
    pub(crate) fn read(object: &KubernetesEndpointSlice) -> Option<Self> {
        let (labels, content): (_, &EndpointSliceContent) = (&object.metadata.labels, &object.spec.0);
        let service = labels.get(SERVICE_NAME).filter(|name| !name.is_empty())?;
        let version = if F::NUMBER == 4 { "IPv4" } else { "IPv6" };
        if content.address_type != version
            || labels.contains_key(OTHER_PROXY)
            || labels.contains_key(HEADLESS)
        {
            return None;
        }
        let ports = content.ports.iter().filter_map(|port| {
            let number = u16::try_from(port.port?).ok().filter(|number| *number != 0)?;
            let name = port.name.as_deref().unwrap_or_default();
            Some((name.into(), protocol(port.protocol.as_deref().unwrap_or_default())?, number))
        });
        Some(Self {
            service: service.as_str().into(),
            ports: ports.collect(),
            endpoints: content.endpoints.iter().filter_map(Endpoint::read).collect(),
        })
    }
}

impl<F: Family> Endpoint<F> {
    /// All addresses of an endpoint are equivalent: the first one counts.
    fn read(raw: &RawEndpoint) -> Option<Self> {
        let conditions = &raw.conditions;
        let is_ready = conditions.ready.unwrap_or(true);
        let hints = raw.extra.get("hints");
        let names = |field: &str| -> Box<[Box<str>]> {
            let list = hints.and_then(|hints| hints.get(field)?.as_array());
            let names = list.into_iter().flatten().filter_map(|hint| hint.get("name")?.as_str());
            names.map(Box::from).collect()
        };
        Some(Self {
            address: address::parse::<F>(raw.addresses.first()?)?,
            node: raw.node_name.as_deref().unwrap_or_default().into(),
            is_ready,
            is_serving: conditions.serving.unwrap_or(is_ready),
            is_terminating: conditions.terminating.unwrap_or(false),
            zones: names("forZones"),
            nodes: names("forNodes"),
        })
    }
}
