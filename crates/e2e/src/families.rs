//! Which IP versions the cluster, its nodes and its pods have, and the addresses that follow. Pure.
//!
//! With IPv4 alone, nodes and services have both versions, as a cluster has whose network was installed for one of them.

use anyhow::{Result, bail};
use std::net::IpAddr;

const NODES_V4: &str = "10.88.0";
const NODES_V6: &str = "fd88:";
const PODS: [&str; 2] = ["192.168.0.0/16", "fd00:192:168::/48"];
const SERVICES: [&str; 2] = ["10.96.0.0/16", "fd00:10:96::/112"];
const NAME_SERVERS: [&str; 2] = ["10.96.0.10", "fd00:10:96::a"];

/// The IP versions of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    V4,
    Dual,
    V6,
}

impl Families {
    /// By the word of a user.
    pub(crate) fn read(word: &str) -> Result<Self> {
        match word {
            "" | "ipv4" => Ok(Self::V4),
            "dual" => Ok(Self::Dual),
            "ipv6" => Ok(Self::V6),
            other => bail!("TORTIE_E2E_FAMILIES is {other:?}; known are ipv4, dual and ipv6"),
        }
    }

    /// What the network around pods has: only a cluster of IPv6 is without IPv4.
    fn of_cluster(self, both: [&str; 2]) -> Vec<String> {
        let from = if self == Self::V6 { 1 } else { 0 };
        both[from..].iter().map(|&one| one.to_owned()).collect()
    }

    /// What pods have of two values, that of IPv4 and that of IPv6.
    fn of_pods<T>(self, v4: T, v6: T) -> Vec<T> {
        match self {
            Self::V4 => vec![v4],
            Self::Dual => vec![v4, v6],
            Self::V6 => vec![v6],
        }
    }

    /// The ranges of pods' addresses, separated by commas; the pool of Calico's manifests when they are told nothing.
    pub(crate) fn pod_ranges(self) -> String {
        self.of_cluster(PODS).join(",")
    }

    /// The ranges of services' addresses, separated by commas.
    pub(crate) fn service_ranges(self) -> String {
        self.of_cluster(SERVICES).join(",")
    }

    /// The address of the service that is the cluster's name server.
    pub(crate) fn name_server(self) -> String {
        self.of_cluster(NAME_SERVERS).swap_remove(0)
    }

    /// The control plane's addresses on the switch; the first one is what everybody uses.
    pub(crate) fn control_plane(self) -> Vec<String> {
        self.of_cluster([&format!("{NODES_V4}.1"), &format!("{NODES_V6}:1")])
    }

    /// The address that everybody reaches the control plane at.
    pub(crate) fn api(self) -> IpAddr {
        let text = self.control_plane().swap_remove(0);
        text.parse().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// The addresses of the node with this number, from 1.
    pub(crate) fn node(self, number: usize) -> Vec<String> {
        let last = 10 + number;
        self.of_cluster([&format!("{NODES_V4}.{last}"), &format!("{NODES_V6}:{last}")])
    }

    /// The addresses of a node at which its pods' IP versions are reached.
    pub(crate) fn reached_at(self, number: usize) -> Vec<String> {
        let last = 10 + number;
        self.of_pods(format!("{NODES_V4}.{last}"), format!("{NODES_V6}:{last}"))
    }

    /// Kubernetes' names of the IP versions that services for pods are to have.
    pub(crate) fn of_services(self) -> Vec<&'static str> {
        self.of_pods("IPv4", "IPv6")
    }

    /// What our manifest is printed with.
    pub(crate) fn settings(self) -> Vec<String> {
        let pool = format!("ipv6Pool.cidr={}", PODS[1]);
        let chosen: Vec<&str> = match self {
            Self::V4 => Vec::new(),
            Self::Dual => vec!["ipv6=true", &pool],
            Self::V6 => vec![
                "ipv4=false",
                "ipv6=true",
                &pool,
                // The control plane's machine knows no way to pods, and IPv6 pools are not translated unless asked for.
                "node.env.CALICO_IPV6POOL_NAT_OUTGOING=true",
            ],
        };
        chosen.into_iter().map(str::to_owned).collect()
    }
}

/// A range around an address of a machine, as `ip address add` takes it.
pub(crate) fn with_prefix(address: &str) -> String {
    format!("{address}/{}", if address.contains(':') { 64 } else { 24 })
}

#[cfg(test)]
mod tests {
    use super::{Families, with_prefix};

    #[test]
    fn addresses_follow_from_the_versions() {
        assert_eq!(Families::V4.node(1), ["10.88.0.11", "fd88::11"]);
        assert_eq!(Families::V4.reached_at(1), ["10.88.0.11"]);
        assert_eq!(Families::Dual.reached_at(2), ["10.88.0.12", "fd88::12"]);
        assert_eq!(Families::V6.control_plane(), ["fd88::1"]);
        assert_eq!(Families::V6.name_server(), "fd00:10:96::a");
        assert_eq!(Families::Dual.name_server(), "10.96.0.10");
        assert_eq!(Families::V6.api().to_string(), "fd88::1");
        assert_eq!(Families::V6.pod_ranges(), "fd00:192:168::/48");
        assert_eq!(with_prefix("fd88::11"), "fd88::11/64");
        assert!(Families::read("both").unwrap_err().to_string().contains("dual"));
    }
}
