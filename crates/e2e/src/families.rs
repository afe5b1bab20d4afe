//! The IP versions of the cluster, its nodes and its pods, and the resulting addresses. Pure.
//!
//! With IPv4 alone, nodes and services have both versions, like a cluster whose network was installed for one of them.

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
    /// Parses the user's setting.
    pub(crate) fn read(word: &str) -> Result<Self> {
        match word {
            "" | "ipv4" => Ok(Self::V4),
            "dual" => Ok(Self::Dual),
            "ipv6" => Ok(Self::V6),
            other => bail!("TORTIE_E2E_FAMILIES is {other:?}; known are ipv4, dual and ipv6"),
        }
    }

    /// The values for the network around pods: only an IPv6 cluster lacks IPv4.
    fn of_cluster(self, both: [&str; 2]) -> Vec<String> {
        let from = if self == Self::V6 { 1 } else { 0 };
        both[from..].iter().map(|&one| one.to_owned()).collect()
    }

    /// The values for pods, of the one for IPv4 and the one for IPv6.
    fn of_pods<T>(self, v4: T, v6: T) -> Vec<T> {
        match self {
            Self::V4 => vec![v4],
            Self::Dual => vec![v4, v6],
            Self::V6 => vec![v6],
        }
    }

    /// The ranges of pods' addresses, separated by commas; the default pool of Calico's manifests.
    pub(crate) fn pod_ranges(self) -> String {
        self.of_cluster(PODS).join(",")
    }

    /// The ranges of services' addresses, separated by commas.
    pub(crate) fn service_ranges(self) -> String {
        self.of_cluster(SERVICES).join(",")
    }

    /// The address of the cluster's name service.
    pub(crate) fn name_server(self) -> String {
        self.of_cluster(NAME_SERVERS).swap_remove(0)
    }

    /// The control plane's addresses on the switch; the first one is what all components use.
    pub(crate) fn control_plane(self) -> Vec<String> {
        self.of_cluster([&format!("{NODES_V4}.1"), &format!("{NODES_V6}:1")])
    }

    /// The address at which all components reach the control plane.
    pub(crate) fn api(self) -> IpAddr {
        let text = self.control_plane().swap_remove(0);
        text.parse().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    }

    /// The addresses of the node with this number, from 1.
    pub(crate) fn node(self, number: usize) -> Vec<String> {
        let last = 10 + number;
        self.of_cluster([&format!("{NODES_V4}.{last}"), &format!("{NODES_V6}:{last}")])
    }

    /// The addresses of a node for its pods' IP versions.
    pub(crate) fn reached_at(self, number: usize) -> Vec<String> {
        let last = 10 + number;
        self.of_pods(format!("{NODES_V4}.{last}"), format!("{NODES_V6}:{last}"))
    }

    /// Kubernetes' names of the IP versions for services of pods.
    pub(crate) fn of_services(self) -> Vec<&'static str> {
        self.of_pods("IPv4", "IPv6")
    }

    /// The settings for our manifest.
    pub(crate) fn settings(self) -> Vec<String> {
        let pool = format!("ipv6Pool.cidr={}", PODS[1]);
        let chosen: Vec<&str> = match self {
            Self::V4 => Vec::new(),
            Self::Dual => vec!["ipv6=true", &pool],
            Self::V6 => vec![
                "ipv4=false",
                "ipv6=true",
                &pool,
                // The control plane's machine has no route to pods, and IPv6 pools are not translated by default.
                "node.env.CALICO_IPV6POOL_NAT_OUTGOING=true",
            ],
        };
        chosen.into_iter().map(str::to_owned).collect()
    }
}

/// An address of a machine with its prefix length, for `ip address add`.
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
