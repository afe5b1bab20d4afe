//! The pods in the cluster of `tortie lab ui`, and their traffic: what policies allow, what they deny, and what staged
//! ones would deny. Pure.

use crate::probe::Protocol;
use crate::topology::{Families, PodWish};

/// The policies.
pub(super) const POLICIES: &str = include_str!("cluster.yaml");

/// A pod: its namespace, its name, which is also the label `app`, and its ports.
const PODS: [(&str, &str, &[u16]); 9] = [
    ("shop", "frontend", &[8080, 9100]),
    ("shop", "cart", &[8080, 9100]),
    ("shop", "catalog", &[8080, 9100]),
    ("shop", "database", &[5432, 9100]),
    ("payments", "api", &[8443, 9100]),
    ("payments", "ledger", &[5432, 9100]),
    ("ops", "monitor", &[9090]),
    ("ops", "dns", &[53, 9100]),
    ("guest", "laptop", &[80]),
];

/// A repeated connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The sender.
    pub(super) from: &'static str,
    /// The receiver.
    pub(super) to: &'static str,
    /// The receiver's port.
    pub(super) port: u16,
    /// The protocol that the probe speaks.
    pub(super) protocol: Protocol,
    /// The connection is made in every n-th round.
    pub(super) every: u32,
}

const fn tcp(from: &'static str, to: &'static str, port: u16, every: u32) -> Line {
    Line { from, to, port, protocol: Protocol::Tcp, every }
}

const fn udp(from: &'static str, to: &'static str, port: u16, every: u32) -> Line {
    Line { from, to, port, protocol: Protocol::Udp, every }
}

pub(super) const LINES: &[Line] = &[
    tcp("shop/frontend", "shop/cart", 8080, 1),
    tcp("shop/frontend", "shop/catalog", 8080, 1),
    tcp("shop/cart", "shop/database", 5432, 1),
    tcp("shop/catalog", "shop/database", 5432, 2),
    tcp("shop/cart", "payments/api", 8443, 2),
    tcp("payments/api", "payments/ledger", 5432, 2),
    udp("shop/frontend", "ops/dns", 53, 2),
    udp("payments/api", "ops/dns", 53, 3),
    tcp("ops/monitor", "shop/frontend", 9100, 5),
    tcp("ops/monitor", "shop/cart", 9100, 5),
    tcp("ops/monitor", "shop/catalog", 9100, 5),
    tcp("ops/monitor", "shop/database", 9100, 5),
    tcp("ops/monitor", "payments/api", 9100, 5),
    tcp("ops/monitor", "payments/ledger", 9100, 5),
    // Allowed, but the staged policy of the api would deny it.
    tcp("shop/frontend", "payments/api", 8443, 2),
    // Denied: no rule of the ledger's policy matches.
    tcp("shop/frontend", "payments/ledger", 5432, 2),
    // Denied by a rule of the guard.
    tcp("guest/laptop", "shop/database", 5432, 2),
    tcp("guest/laptop", "ops/dns", 53, 3),
    // Denied by egress policy.
    tcp("payments/api", "shop/database", 5432, 4),
];

/// The pods, as wishes.
pub(super) fn pods() -> Vec<PodWish> {
    PODS.map(|(namespace, name, ports)| PodWish {
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        labels: [("app".to_owned(), name.to_owned())].into(),
        ports: ports.to_vec(),
        ..PodWish::default()
    })
    .into()
}

/// Whether an address is of the IP version of the traffic: IPv4 if the lab has it.
pub(super) fn is_usual(families: Families, address: std::net::IpAddr) -> bool {
    address.is_ipv4() == families.has_v4()
}

#[cfg(test)]
mod tests {
    use super::{LINES, POLICIES, pods};

    #[test]
    fn all_senders_and_receivers_of_traffic_exist_and_answer_on_the_port() {
        let pods = pods();
        let named = |name: &str| {
            pods.iter()
                .find(|pod| format!("{}/{}", pod.namespace.as_deref().unwrap(), pod.name) == name)
                .unwrap_or_else(|| panic!("{name} is not in the cast"))
        };
        for line in LINES {
            named(line.from);
            assert!(named(line.to).ports.contains(&line.port), "{line:?}");
        }
    }

    #[test]
    fn policies_are_valid() {
        let documents =
            api::document::read("cluster.yaml", POLICIES.as_bytes(), api::document::Checks::Everything);
        assert_eq!(documents.unwrap().len(), 8);
    }
}
