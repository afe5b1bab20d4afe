//! The targets of clients, and the expected outcome for each in every phase. Pure.

use super::phases::{Client, Layout, Phase, Reach, SERVER_PORT, SERVICE_PORT, Server};
use crate::probe::interface_target;
use kube_access::access::join_host_port;
use serde_json::Value;
use std::net::IpAddr;

/// The kind of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// A pod that answers.
    Server(Server),
    /// The service of all of them, by address or by name.
    Service,
    /// A node port of the service: the source address that servers see depends on the proxy.
    NodePort,
    /// An address outside the cluster that only has to accept the connection.
    Outside,
    /// An interface through which packets to other nodes must leave.
    Encryption(String),
}

/// A target of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Aim {
    /// Its display name.
    pub title: String,
    /// The target as it appears in clients' logs.
    pub address: String,
    /// Its kind.
    pub goal: Goal,
}

impl Aim {
    fn new(title: impl Into<String>, address: impl Into<String>, goal: Goal) -> Self {
        Self { title: title.into(), address: address.into(), goal }
    }

    /// A pod that answers, as one target per address.
    #[must_use]
    pub(crate) fn at_server(server: &Server, addresses: &[IpAddr]) -> Vec<Self> {
        let aim = |address: &IpAddr| {
            let title = format!("{} ({})", server.name, version(*address));
            let address = join_host_port(&address.to_string(), &SERVER_PORT.to_string());
            Self::new(title, address, Goal::Server(server.clone()))
        };
        addresses.iter().map(aim).collect()
    }

    /// The service: its addresses, its name, and its port on the given node addresses.
    #[must_use]
    pub(crate) fn at_service(layout: &Layout, service: &Value, nodes: &[(String, IpAddr)]) -> Vec<Self> {
        let port = SERVICE_PORT.to_string();
        let addresses = service.pointer("/spec/clusterIPs").and_then(Value::as_array);
        let addresses: Vec<IpAddr> =
            addresses.into_iter().flatten().filter_map(|address| address.as_str()?.parse().ok()).collect();
        let mut aims: Vec<Self> = addresses
            .iter()
            .map(|address| {
                let title = format!("service ({})", version(*address));
                Self::new(title, join_host_port(&address.to_string(), &port), Goal::Service)
            })
            .collect();
        let name = format!("server.{}.svc:{port}", layout.namespace);
        aims.push(Self::new("service by its name", name, Goal::Service));
        let Some(port) = service.pointer("/spec/ports/0/nodePort").and_then(Value::as_u64) else {
            return aims;
        };
        let has_version = |address: &IpAddr| addresses.iter().any(|own| own.is_ipv4() == address.is_ipv4());
        for (node, address) in nodes.iter().filter(|(_, address)| has_version(address)) {
            let title = format!("port {port} of {node} ({})", version(*address));
            let address = join_host_port(&address.to_string(), &port.to_string());
            aims.push(Self::new(title, address, Goal::NodePort));
        }
        aims
    }

    /// An address outside the cluster.
    #[must_use]
    pub(crate) fn outside(target: &str) -> Self {
        Self::new(format!("outside: {target}"), target, Goal::Outside)
    }

    /// An interface that encrypts.
    #[must_use]
    pub(crate) fn encryption(interface: &str) -> Self {
        let title = format!("other nodes by {interface}");
        Self::new(title, interface_target(interface), Goal::Encryption(interface.to_owned()))
    }

    /// The expected outcome of a client's attempt in a phase.
    #[must_use]
    pub(crate) fn reach(&self, layout: &Layout, phase: &Phase, client: Client) -> Reach {
        match &self.goal {
            Goal::Server(server) => layout.reach(phase, client, server),
            Goal::Service => {
                // Only if the answer is the same for all its backends.
                let all: Vec<Reach> =
                    layout.servers().iter().map(|server| layout.reach(phase, client, server)).collect();
                match all.first() {
                    Some(first) if all.iter().all(|reach| reach == first) => *first,
                    _ => Reach::Any,
                }
            }
            Goal::NodePort if phase.policies.is_empty() => Reach::Yes,
            Goal::NodePort => Reach::Any,
            Goal::Outside if phase.denies_egress && client == Client::Friend => Reach::No,
            Goal::Outside => Reach::Yes,
            // The probe in the host's network sees the interface; without policy, all pods talk across nodes.
            Goal::Encryption(_) if client == Client::Host && phase.policies.is_empty() => Reach::Yes,
            Goal::Encryption(_) => Reach::Any,
        }
    }
}

/// The arguments for a client: targets of each kind, interfaces only if it sees those of the host.
#[must_use]
pub(super) fn words(client: Client, aims: &[Aim]) -> Vec<String> {
    let mut words = Vec::new();
    for aim in aims {
        match &aim.goal {
            Goal::Server(_) | Goal::Service | Goal::NodePort => words.push(aim.address.clone()),
            Goal::Outside => words.push(format!("--connect={}", aim.address)),
            Goal::Encryption(interface) if client == Client::Host => {
                words.push(format!("--interface={interface}"));
            }
            Goal::Encryption(_) => {}
        }
    }
    words
}

fn version(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

#[cfg(test)]
mod tests {
    use super::super::phases::phases;
    use super::*;
    use serde_json::json;

    fn layout() -> Layout {
        Layout { namespace: "t".into(), image: "i".into(), nodes: vec!["n1".into(), "n2".into()] }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_service_is_tried_in_every_way() {
        let service =
            json!({"spec": {"clusterIPs": ["10.96.0.7", "fd00::7"], "ports": [{"nodePort": 30001}]}});
        let nodes = [("n1".to_owned(), address("10.0.0.1")), ("n1".to_owned(), address("fd88::1"))];
        let addresses = |service: &Value| -> Vec<String> {
            Aim::at_service(&layout(), service, &nodes).into_iter().map(|aim| aim.address).collect()
        };
        assert_eq!(
            addresses(&service),
            ["10.96.0.7:80", "[fd00::7]:80", "server.t.svc:80", "10.0.0.1:30001", "[fd88::1]:30001"]
        );
        let service = json!({"spec": {"clusterIPs": ["10.96.0.7"], "ports": [{"nodePort": 30001}]}});
        assert_eq!(addresses(&service), ["10.96.0.7:80", "server.t.svc:80", "10.0.0.1:30001"]);
    }

    #[test]
    fn policy_decides_about_what_it_can() {
        let layout = layout();
        let phases = phases("t");
        let (open, closed) = (&phases[0], &phases[4]);
        let outside = Aim::outside("192.0.2.1:443");
        assert_eq!(outside.reach(&layout, open, Client::Friend), Reach::Yes);
        assert_eq!(outside.reach(&layout, closed, Client::Friend), Reach::No);
        assert_eq!(outside.reach(&layout, closed, Client::Stranger), Reach::Yes);
        let wires = Aim::encryption("wireguard.cali");
        assert_eq!(wires.reach(&layout, open, Client::Host), Reach::Yes);
        assert_eq!(wires.reach(&layout, open, Client::Friend), Reach::Any);
        let server = Aim::at_server(&layout.servers()[1], &[address("10.0.0.9"), address("fd00::9")]);
        assert_eq!(server.len(), 2);
        assert_eq!(server[1].reach(&layout, closed, Client::Friend), Reach::No);
        let aims = [server[0].clone(), outside, wires];
        assert_eq!(words(Client::Friend, &aims), ["10.0.0.9:8080", "--connect=192.0.2.1:443"]);
        assert_eq!(words(Client::Host, &aims)[2], "--interface=wireguard.cali");
    }
}
