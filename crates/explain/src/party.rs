//! Resolves `--from` and `--to`: a pod, an address, a node, a service with a port.
//!
//! ```text
//! web   shop/web   shop/web:8080   10.0.0.1   10.0.0.1:53   [fd00::1]:53   node:n1   service:shop/db:5432   pod:shop/web
//! ```
//!
//! Without a prefix, a name is looked up among pods, then services, then nodes. Nothing is guessed: an unknown name is
//! an error that suggests the nearest one.

use crate::clauses::{Packet, protocol_name};
use crate::kubernetes_policy::meant;
use crate::report::{Explanation, Verdict};
use crate::route::{Flow, Who};
use crate::world::{Item, ItemKind, World};
use api::kubernetes::service::ServicePort;
use api::scalars::IntOrString;
use api::{Kind, KubernetesService, Resource};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The source port of packets unless the query sets one: a typical client port.
const CLIENT_PORT: u16 = 40_000;

/// The protocol of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Protocol {
    /// TCP, the default.
    pub const TCP: Self = Self(6);

    /// The protocol with this name or number.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse::<u8>() {
            return (number != 0).then_some(Self(number));
        }
        api::scalars::Protocol::from_name(text).number().map(Self)
    }

    fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 132)
    }
}

/// A query: may `from` talk to `to`?
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The sender.
    pub from: String,
    /// The receiver, with a port if the protocol has ports.
    pub to: String,
    /// The namespace of names without one; `default` if empty.
    pub namespace: String,
    /// The protocol; if `None`, TCP or that of the service's port.
    pub protocol: Option<Protocol>,
    /// The destination port, if `to` does not contain it.
    pub port: Option<u16>,
    /// The source port.
    pub source_port: Option<u16>,
    /// ICMP type and code; an echo request if `None`.
    pub icmp: Option<(u8, u8)>,
    /// 4 or 6, if both ends have addresses of both versions.
    pub ip_version: Option<u8>,
}

/// Why a query cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// An unknown name.
    #[error("pod, service or node '{name}' not found{hint}")]
    Unknown {
        /// The name.
        name: String,
        /// A suggestion.
        hint: String,
    },
    /// An unknown name of a given kind.
    #[error("{kind} '{name}' not found{hint}")]
    UnknownKind {
        /// The kind.
        kind: &'static str,
        /// The name.
        name: String,
        /// A suggestion.
        hint: String,
    },
    /// The port is missing.
    #[error(
        "which port? Write it after the name, as in '{0}:80', or choose a protocol without ports, such as icmp"
    )]
    NoPort(String),
    /// The service does not have the port.
    #[error("service {service} has no port '{port}'; it has {has}")]
    NoServicePort {
        /// The service.
        service: String,
        /// The port.
        port: String,
        /// Its ports.
        has: String,
    },
    /// A named port of something other than a service.
    #[error("'{0}' is not a port number; only services have ports with names")]
    NamedPort(String),
    /// The service has no endpoints.
    #[error("service {0} has no endpoints: connections to it fail before any policy is evaluated")]
    NoBackends(String),
    /// An end has no usable address.
    #[error("{0} has no known address")]
    NoAddress(String),
    /// The ends only have addresses of different versions.
    #[error("{from} and {to} have no addresses of the same IP version")]
    NoCommonVersion {
        /// Sender.
        from: String,
        /// Receiver.
        to: String,
    },
    /// A service cannot send.
    #[error("a service sends nothing: name a pod, an address or a node with --from")]
    ServiceSends,
}

/// One possible meaning of an end.
struct Target<'w> {
    who: Who<'w>,
    addresses: Vec<IpAddr>,
    port: Option<u16>,
    protocol: Option<Protocol>,
}

/// The parts of an end as written.
struct Written<'q> {
    kind: &'q str,
    name: &'q str,
    port: Option<&'q str>,
}

impl Written<'_> {
    fn read(text: &str) -> Written<'_> {
        let kinds = ["pod:", "service:", "svc:", "node:", "host:", "ip:"];
        let (kind, rest) = kinds
            .iter()
            .find_map(|kind| text.strip_prefix(kind).map(|rest| (kind.trim_end_matches(':'), rest)))
            // `service:80` is the service of that name, with a port.
            .filter(|(_, rest)| rest.parse::<u16>().is_err())
            .unwrap_or(("", text));
        if rest.parse::<IpAddr>().is_ok() {
            return Written { kind, name: rest, port: None };
        }
        if let Some((address, port)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return Written { kind, name: address, port: port.strip_prefix(':') };
        }
        match rest.rsplit_once(':') {
            Some((name, port)) => Written { kind, name, port: Some(port) },
            None => Written { kind, name: rest, port: None },
        }
    }
}

impl<'a> World<'a> {
    /// Explains what happens to the packets of a query.
    ///
    /// # Errors
    /// When the query names something that is not in the cluster.
    pub fn explain(&self, query: &Query) -> Result<Explanation, QueryError> {
        let flows = self.flows(query)?;
        let reports: Vec<_> = flows.iter().map(|flow| self.report(flow, true)).collect();
        let allowed = reports.iter().filter(|report| report.verdict == Verdict::Allow).count();
        let verdict = match allowed {
            0 => Verdict::Deny,
            all if all == reports.len() => Verdict::Allow,
            _ => Verdict::Partly,
        };
        let mut notes = Vec::new();
        let assumed: BTreeSet<&str> = flows
            .iter()
            .flat_map(|flow| [flow.from, flow.to])
            .filter_map(|who| match who {
                Who::Workload(item) if self.cluster.assumed.contains(&item.identity) => {
                    Some(item.name.as_str())
                }
                _ => None,
            })
            .collect();
        notes.extend(
            assumed.into_iter().map(|name| format!("the address of {name} is assumed: it has none yet")),
        );
        Ok(Explanation { from: query.from.clone(), to: query.to.clone(), verdict, flows: reports, notes })
    }

    /// Computes only the verdict, which is much cheaper.
    ///
    /// # Errors
    /// When the query names something that is not in the cluster.
    pub fn verdict(&self, query: &Query) -> Result<Verdict, QueryError> {
        let flows = self.flows(query)?;
        let allowed = flows.iter().filter(|flow| self.allows(flow)).count();
        Ok(match allowed {
            0 => Verdict::Deny,
            all if all == flows.len() => Verdict::Allow,
            _ => Verdict::Partly,
        })
    }

    /// The flows of a query: several for a service with several backends.
    pub(crate) fn flows(&self, query: &Query) -> Result<Vec<Flow<'_>>, QueryError> {
        let namespace = if query.namespace.is_empty() { "default" } else { &query.namespace };
        let from_text = Written::read(&query.from);
        let sender = self.targets(&query.from, &from_text, namespace, query, true)?;
        let sender = sender.into_iter().next().ok_or_else(|| QueryError::NoAddress(query.from.clone()))?;
        let to_text = Written::read(&query.to);
        let receivers = self.targets(&query.to, &to_text, namespace, query, false)?;
        let mut flows = Vec::new();
        for receiver in &receivers {
            let (source, destination) = common(query, &sender, receiver)?;
            let protocol = receiver.protocol.or(query.protocol).unwrap_or(Protocol::TCP);
            // Ping means the ICMP of the addresses' version.
            let protocol = match (protocol.0, destination.is_ipv6()) {
                (1, true) => Protocol(58),
                (58, false) => Protocol(1),
                _ => protocol,
            };
            let destination_port = match receiver.port {
                Some(port) if protocol.has_ports() => port,
                None if protocol.has_ports() => return Err(QueryError::NoPort(query.to.clone())),
                _ => 0,
            };
            let echo = if destination.is_ipv6() { (128, 0) } else { (8, 0) };
            let packet = Packet {
                source,
                destination,
                protocol: protocol.0,
                source_port: query.source_port.or(sender.port).unwrap_or(CLIENT_PORT),
                destination_port,
                icmp: query.icmp.unwrap_or(echo),
            };
            flows.push(Flow { from: sender.who, to: receiver.who, packet });
        }
        Ok(flows)
    }

    fn targets<'w>(
        &'w self,
        text: &str,
        written: &Written<'_>,
        namespace: &str,
        query: &Query,
        sends: bool,
    ) -> Result<Vec<Target<'w>>, QueryError> {
        let number = || match written.port {
            None => Ok(if sends { None } else { query.port }),
            Some(text) => text.parse().map(Some).map_err(|_| QueryError::NamedPort(text.to_owned())),
        };
        let target = |who, addresses| -> Result<Vec<Target<'w>>, QueryError> {
            Ok(vec![Target { who, addresses, port: number()?, protocol: None }])
        };
        if let Ok(address) = written.name.parse::<IpAddr>() {
            let address = address.to_canonical();
            if let Some(service) = self.service_of(address).filter(|_| !sends) {
                return self.backends(service, written.port, query);
            }
            return target(self.whose(address), vec![address]);
        }
        let (space, name) = written.name.split_once('/').unwrap_or((namespace, written.name));
        let kind = written.kind;
        if matches!(kind, "" | "pod") {
            if let Some(item) = self.workload(space, name) {
                let addresses = item.nets.iter().map(ipnet::IpNet::addr).collect();
                return target(Who::Workload(item), addresses);
            }
            if let Some(node) = self.cluster.host_pods.get(&(space.to_owned(), name.to_owned())) {
                return target(Who::Host(node), self.node_addresses(node));
            }
        }
        if matches!(kind, "" | "service" | "svc")
            && let Some(Resource::KubernetesService(service)) =
                self.cluster.get(Kind::KubernetesService, space, name)
        {
            if sends {
                return Err(QueryError::ServiceSends);
            }
            return self.backends(service, written.port, query);
        }
        if matches!(kind, "" | "node" | "host")
            && let Some(node) = self.nodes().into_iter().find(|node| *node == written.name)
        {
            return target(Who::Host(node), self.node_addresses(node));
        }
        let known = self.known_names(kind, space);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let shown = match kind {
            "node" | "host" => written.name.to_owned(),
            _ => format!("{space}/{name}"),
        };
        let hint = meant(&shown, &known);
        let name = if kind.is_empty() { text.to_owned() } else { shown };
        Err(match kind {
            "pod" => QueryError::UnknownKind { kind: "pod", name, hint },
            "service" | "svc" => QueryError::UnknownKind { kind: "service", name, hint },
            "node" | "host" => QueryError::UnknownKind { kind: "node", name, hint },
            "ip" => QueryError::UnknownKind {
                kind: "address",
                name: written.name.to_owned(),
                hint: String::new(),
            },
            _ => QueryError::Unknown { name, hint },
        })
    }

    /// The owner of this address.
    pub(crate) fn whose(&self, address: IpAddr) -> Who<'_> {
        if let Some(item) = self.owners(address).into_iter().find(|item| item.kind == ItemKind::Workload) {
            return Who::Workload(item);
        }
        match self.nodes().into_iter().find(|node| self.node_addresses(node).contains(&address)) {
            Some(node) => Who::Host(node),
            None => Who::Outside,
        }
    }

    pub(crate) fn workload(&self, namespace: &str, name: &str) -> Option<&Item> {
        self.items.iter().find(|item| {
            item.kind == ItemKind::Workload
                && item.identity.1 == namespace
                && (item.short_name == name || item.identity.2 == name)
        })
    }

    /// The names of all nodes that any object mentions.
    fn nodes(&self) -> Vec<&str> {
        let mut names: BTreeSet<&str> = self.cluster.of_kind(Kind::Node).map(Resource::name).collect();
        names.extend(self.items.iter().map(|item| item.node.as_str()));
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }

    fn known_names(&self, kind: &str, namespace: &str) -> Vec<String> {
        let mut names = Vec::new();
        if matches!(kind, "" | "pod") {
            let workloads = self.items.iter().filter(|item| item.kind == ItemKind::Workload);
            names.extend(workloads.map(|item| format!("{}/{}", item.identity.1, item.short_name)));
        }
        if matches!(kind, "" | "service" | "svc") {
            let services = self.cluster.of_kind(Kind::KubernetesService);
            names.extend(services.map(|service| format!("{}/{}", service.namespace(), service.name())));
        }
        if matches!(kind, "" | "node" | "host") {
            names.extend(self.nodes().into_iter().map(|node| match kind {
                "" => format!("{namespace}/{node}"),
                _ => node.to_owned(),
            }));
        }
        names
    }

    fn service_of(&self, address: IpAddr) -> Option<&KubernetesService> {
        self.cluster.of_kind(Kind::KubernetesService).find_map(|resource| {
            let Resource::KubernetesService(service) = resource else { return None };
            let spec = &service.spec.0;
            let own = spec
                .cluster_ips
                .iter()
                .chain([&spec.cluster_ip, &spec.load_balancer_ip])
                .chain(&spec.external_ips);
            let given = service.status.load_balancer.ingress.iter().map(|place| &place.ip);
            own.chain(given).any(|text| text.parse() == Ok(address)).then_some(&**service)
        })
    }

    /// The endpoints of a service's port. Its address is translated before policy applies, so policy sees these.
    fn backends(
        &self,
        service: &KubernetesService,
        port: Option<&str>,
        query: &Query,
    ) -> Result<Vec<Target<'_>>, QueryError> {
        let (namespace, name) = (&service.metadata.namespace, &service.metadata.name);
        let full_name = format!("{namespace}/{name}");
        let ports = &service.spec.0.ports;
        let wanted = port.map(str::to_owned).or_else(|| query.port.map(|port| port.to_string()));
        let protocol = |port: &ServicePort| Protocol::from_text(&port.protocol).unwrap_or(Protocol::TCP);
        let fits = |port: &&ServicePort| {
            query.protocol.is_none_or(|wanted| wanted == protocol(port))
                && match &wanted {
                    Some(text) => *text == port.port.to_string() || *text == port.name,
                    None => ports.len() == 1,
                }
        };
        let Some(chosen) = ports.iter().find(fits) else {
            let Some(port) = wanted else { return Err(QueryError::NoPort(full_name)) };
            let has: Vec<String> = ports
                .iter()
                .map(|port| format!("{}/{}", port.port, protocol_name(protocol(port).0)))
                .collect();
            return Err(QueryError::NoServicePort { service: full_name, port, has: has.join(", ") });
        };
        let protocol = protocol(chosen);
        let mut found: BTreeSet<(IpAddr, u16)> = BTreeSet::new();
        let mut has_slices = false;
        for resource in self.cluster.of_kind(Kind::KubernetesEndpointSlice) {
            let Resource::KubernetesEndpointSlice(slice) = resource else { continue };
            if slice.metadata.namespace != *namespace
                || slice.metadata.labels.get("kubernetes.io/service-name") != Some(name)
            {
                continue;
            }
            has_slices = true;
            let content = &slice.spec.0;
            for port in content.ports.iter().filter(|port| port.name.as_deref().unwrap_or("") == chosen.name)
            {
                let Some(number) = port.port.and_then(|port| u16::try_from(port).ok()) else { continue };
                let ready =
                    content.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false));
                let addresses =
                    ready.flat_map(|endpoint| &endpoint.addresses).filter_map(|text| text.parse().ok());
                found.extend(addresses.map(|address: IpAddr| (address, number)));
            }
        }
        // Manifests contain no EndpointSlices; there, the pods that the service selects are its endpoints.
        let selector = &service.spec.0.selector;
        if !has_slices && !selector.is_empty() {
            for item in self.items.iter().filter(|item| item.kind == ItemKind::Workload) {
                let selected = item.identity.1 == *namespace
                    && selector.iter().all(|(label, value)| item.labels.get(label) == Some(value));
                if let Some(port) = target_port(chosen, item, protocol).filter(|_| selected) {
                    found.extend(item.nets.iter().map(|net| (net.addr(), port)));
                }
            }
        }
        if found.is_empty() {
            return Err(QueryError::NoBackends(full_name));
        }
        Ok(found
            .into_iter()
            .map(|(address, port)| Target {
                who: self.whose(address),
                addresses: vec![address],
                port: Some(port),
                protocol: Some(protocol),
            })
            .collect())
    }
}

fn target_port(port: &ServicePort, item: &Item, protocol: Protocol) -> Option<u16> {
    let number = |number: i64| u16::try_from(number).ok();
    match &port.target_port {
        None | Some(IntOrString::Int(0)) => number(i64::from(port.port)),
        Some(IntOrString::Int(target)) => number(*target),
        Some(IntOrString::String(name)) => item
            .ports
            .iter()
            .find(|own| own.name == *name && own.protocol.number() == Some(protocol.0))
            .map(|own| own.port),
    }
}

/// Addresses of the same version for both ends, IPv4 first.
fn common(query: &Query, from: &Target<'_>, to: &Target<'_>) -> Result<(IpAddr, IpAddr), QueryError> {
    for (target, text) in [(from, &query.from), (to, &query.to)] {
        if target.addresses.is_empty() {
            return Err(QueryError::NoAddress(text.clone()));
        }
    }
    for version in [4, 6] {
        if query.ip_version.is_some_and(|wanted| wanted != version) {
            continue;
        }
        let address = |target: &Target<'_>| {
            target.addresses.iter().copied().find(|address| address.is_ipv6() == (version == 6))
        };
        if let (Some(source), Some(destination)) = (address(from), address(to)) {
            return Ok((source, destination));
        }
    }
    Err(QueryError::NoCommonVersion { from: query.from.clone(), to: query.to.clone() })
}
