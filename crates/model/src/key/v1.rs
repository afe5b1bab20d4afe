//! Keys of Calico's first data model. Nothing is stored under them any more, but Typha and Felix still use them as
//! names, so they must parse and print exactly as they always did.

use super::parse::undashed;
use super::{IpVersion, KeyError, dashed, escaped, name, plain, raw, unescape};
use crate::{NodeName, ProfileName, TierName};
use api::Kind;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// The default port of a BGP peer.
pub const BGP_PORT: u16 = 179;

/// A key of the first data model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum V1Key {
    /// Whether the datastore may be used.
    ReadyFlag,
    /// One of Felix's settings for all hosts.
    GlobalConfig {
        /// The setting.
        name: String,
    },
    /// One of Felix's settings for one host.
    HostConfig(HostConfigKey),
    /// The mark that a host exists.
    HostMetadata {
        /// The host.
        host: String,
    },
    /// A node's WireGuard keys and addresses.
    Wireguard {
        /// The node.
        node: NodeName,
    },
    /// The names that orchestrators use for a host.
    OrchRefs {
        /// The host.
        host: String,
    },
    /// A workload endpoint.
    WorkloadEndpoint(WorkloadEndpointKey),
    /// A host endpoint.
    HostEndpoint(HostEndpointKey),
    /// A network set, global (`name`) or in a namespace (`namespace/name`).
    NetworkSet {
        /// The name.
        name: String,
    },
    /// A policy.
    Policy(PolicyKey),
    /// A tier.
    Tier {
        /// The name.
        name: TierName,
    },
    /// The rules of a profile.
    ProfileRules {
        /// The profile.
        name: ProfileName,
    },
    /// The labels that a profile gives to its endpoints.
    ProfileLabels {
        /// The profile.
        name: ProfileName,
    },
    /// An address pool.
    IpPool {
        /// Its range.
        cidr: IpNet,
    },
    /// One BGP setting for all nodes.
    GlobalBgpConfig {
        /// The setting.
        name: String,
    },
    /// One BGP setting for one node.
    NodeBgpConfig {
        /// The node.
        node: String,
        /// The setting.
        name: String,
    },
    /// A BGP peer of all nodes.
    GlobalBgpPeer {
        /// The peer.
        ip: IpAddr,
        /// Its port; [`BGP_PORT`] (or 0) is left out of the path.
        port: u16,
    },
    /// A BGP peer of one node.
    NodeBgpPeer {
        /// The node.
        node: String,
        /// The peer.
        ip: IpAddr,
        /// Its port; [`BGP_PORT`] (or 0) is left out of the path.
        port: u16,
    },
    /// The mark that a node takes part in BGP.
    BgpNode {
        /// The node.
        host: String,
    },
}

/// The identity of one of Felix's settings for one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostConfigKey {
    /// The host.
    pub host: NodeName,
    /// The setting.
    pub name: String,
}

/// The identity of a workload endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadEndpointKey {
    /// The host.
    pub host: NodeName,
    /// The orchestrator.
    pub orchestrator: String,
    /// The workload: namespace and name with a slash between.
    pub workload: String,
    /// The endpoint's name in the workload.
    pub endpoint: String,
}

/// The identity of a host endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostEndpointKey {
    /// The host.
    pub host: NodeName,
    /// The endpoint's name.
    pub endpoint: String,
}

/// The identity of a policy of any kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// The kind, one of the policy kinds.
    pub kind: Kind,
    /// The namespace; empty for global kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// A policy's key in the form of releases before 3.32: the key contained the tier, and the name contained the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyPolicyKey {
    /// The tier, which belongs to the value today.
    pub tier: TierName,
    /// The key that is used today.
    pub key: PolicyKey,
}

impl V1Key {
    /// Returns the path.
    ///
    /// # Errors
    /// When a part is missing, or cannot be part of a path.
    pub fn path(&self) -> Result<String, KeyError> {
        Ok(match self {
            Self::ReadyFlag => "/calico/v1/Ready".to_owned(),
            Self::GlobalConfig { name } => format!("/calico/v1/config/{}", filled("name", name)?),
            Self::HostConfig(HostConfigKey { host, name }) => {
                format!("/calico/v1/host/{}/config/{}", plain("node", host)?, filled("name", name)?)
            }
            Self::HostMetadata { host } => format!("/calico/v1/host/{}/metadata", raw("name", host)?),
            Self::Wireguard { node } => format!("/calico/v1/host/{}/wireguard", plain("name", node)?),
            Self::OrchRefs { host } => format!("/calico/v1/host/{}/orchestrator_refs", raw("name", host)?),
            Self::WorkloadEndpoint(WorkloadEndpointKey { host, orchestrator, workload, endpoint }) => {
                format!(
                    "/calico/v1/host/{}/workload/{}/{}/endpoint/{}",
                    plain("node", host)?,
                    escaped("orchestrator", orchestrator)?,
                    escaped("workload", workload)?,
                    escaped("name", endpoint)?
                )
            }
            Self::HostEndpoint(HostEndpointKey { host, endpoint }) => {
                format!("/calico/v1/host/{}/endpoint/{}", plain("node", host)?, escaped("name", endpoint)?)
            }
            Self::NetworkSet { name } => format!("/calico/v1/netset/{}", escaped("name", name)?),
            Self::Policy(key) => key.path()?,
            Self::Tier { name } => format!("/calico/v1/policy/tier/{}/metadata", plain("name", name)?),
            Self::ProfileRules { name } => {
                format!("/calico/v1/policy/profile/{}/rules", escaped("name", name)?)
            }
            Self::ProfileLabels { name } => {
                format!("/calico/v1/policy/profile/{}/labels", escaped("name", name)?)
            }
            Self::IpPool { cidr } => {
                format!("/calico/v1/ipam/v{}/pool/{}", IpVersion::of(cidr), dashed(cidr))
            }
            Self::GlobalBgpConfig { name } => format!("/calico/bgp/v1/global/{}", setting(name)?),
            Self::NodeBgpConfig { node, name } => {
                format!("/calico/bgp/v1/host/{}/{}", raw("node", node)?, setting(name)?)
            }
            Self::GlobalBgpPeer { ip, port } => format!("/calico/bgp/v1/global/{}", peer(*ip, *port)),
            Self::NodeBgpPeer { node, ip, port } => {
                format!("/calico/bgp/v1/host/{}/{}", raw("node", node)?, peer(*ip, *port))
            }
            Self::BgpNode { host } => format!("/calico/bgp/v1/host/{}", raw("host", host)?),
        })
    }
}

impl PolicyKey {
    fn path(&self) -> Result<String, KeyError> {
        if !is_policy(self.kind) {
            return Err(KeyError::NotAPart { part: "kind", value: self.kind.to_string() });
        }
        let (kind, name) = (self.kind, plain("name", &self.name)?);
        let namespace = if kind.is_namespaced() { plain("namespace", &self.namespace)? } else { "" };
        Ok(format!("/calico/v1/policy/{kind}/{namespace}/{name}"))
    }
}

/// Whether the kind is a policy: Calico's or Kubernetes', enforced or staged.
#[must_use]
pub fn is_policy(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::NetworkPolicy
            | Kind::GlobalNetworkPolicy
            | Kind::StagedNetworkPolicy
            | Kind::StagedGlobalNetworkPolicy
            | Kind::StagedKubernetesNetworkPolicy
            | Kind::KubernetesNetworkPolicy
            | Kind::KubernetesClusterNetworkPolicy
    )
}

/// Parses the path of a policy in the form of releases before 3.32. Its tier must be copied into the value.
#[must_use]
pub fn parse_legacy_policy(path: &str) -> Option<LegacyPolicyKey> {
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    match parts.as_slice() {
        ["calico", "v1", "policy", "tier", tier, "policy", name] if !tier.is_empty() && !name.is_empty() => {
            Some(legacy_policy(self::name(tier), &unescape(name)))
        }
        _ => None,
    }
}

fn legacy_policy(tier: TierName, full_name: &str) -> LegacyPolicyKey {
    let (namespace, prefixes, plain_kind) = match full_name.split_once('/') {
        Some((namespace, _)) => (
            namespace,
            [
                ("staged:knp.default.", Kind::StagedKubernetesNetworkPolicy),
                ("knp.default.", Kind::KubernetesNetworkPolicy),
                ("staged:", Kind::StagedNetworkPolicy),
            ]
            .as_slice(),
            Kind::NetworkPolicy,
        ),
        None => (
            "",
            [("staged:", Kind::StagedGlobalNetworkPolicy), ("kcnp.", Kind::KubernetesClusterNetworkPolicy)]
                .as_slice(),
            Kind::GlobalNetworkPolicy,
        ),
    };
    let name = full_name.split_once('/').map_or(full_name, |(_, name)| name);
    let (kind, name) = prefixes
        .iter()
        .find_map(|(prefix, kind)| name.strip_prefix(prefix).map(|rest| (*kind, rest)))
        .unwrap_or((plain_kind, name));
    LegacyPolicyKey { tier, key: PolicyKey { kind, namespace: namespace.to_owned(), name: name.to_owned() } }
}

/// Parses the part of a path after `/calico/v1/`.
pub(super) fn parse(parts: &[&str]) -> Option<V1Key> {
    match parts {
        ["Ready"] => Some(V1Key::ReadyFlag),
        ["config", name @ ..] => Some(V1Key::GlobalConfig { name: joined(name)? }),
        ["host", host, rest @ ..] if !host.is_empty() => parse_host(host, rest),
        ["netset", name] if !name.is_empty() => Some(V1Key::NetworkSet { name: unescape(name) }),
        ["policy", "tier", tier, "metadata"] if !tier.is_empty() => Some(V1Key::Tier { name: name(tier) }),
        ["policy", "tier", tier, "policy", policy] if !tier.is_empty() && !policy.is_empty() => {
            Some(V1Key::Policy(legacy_policy(name(tier), &unescape(policy)).key))
        }
        ["policy", "profile", profile, "rules"] if !profile.is_empty() => {
            Some(V1Key::ProfileRules { name: name(profile) })
        }
        ["policy", "profile", profile, "labels"] if !profile.is_empty() => {
            Some(V1Key::ProfileLabels { name: name(profile) })
        }
        ["policy", kind, namespace, name] => parse_policy(kind, namespace, name).map(V1Key::Policy),
        ["ipam", "v4" | "v6", "pool", cidr] => Some(V1Key::IpPool { cidr: undashed(cidr)? }),
        _ => None,
    }
}

fn parse_policy(kind: &str, namespace: &str, name: &str) -> Option<PolicyKey> {
    let kind = if kind.contains('%') { Kind::from_name(&unescape(kind)) } else { Kind::from_name(kind) };
    let kind = kind.filter(|kind| is_policy(*kind))?;
    if name.is_empty() || kind.is_namespaced() == namespace.is_empty() {
        return None;
    }
    Some(PolicyKey { kind, namespace: unescape(namespace), name: unescape(name) })
}

fn parse_host(host: &str, parts: &[&str]) -> Option<V1Key> {
    match parts {
        ["workload", orchestrator, workload, "endpoint", endpoint]
            if ![orchestrator, workload, endpoint].iter().any(|part| part.is_empty()) =>
        {
            Some(V1Key::WorkloadEndpoint(WorkloadEndpointKey {
                host: name(host),
                orchestrator: unescape(orchestrator),
                workload: unescape(workload),
                endpoint: unescape(endpoint),
            }))
        }
        ["endpoint", endpoint] if !endpoint.is_empty() => {
            Some(V1Key::HostEndpoint(HostEndpointKey { host: name(host), endpoint: unescape(endpoint) }))
        }
        ["config", setting @ ..] => {
            Some(V1Key::HostConfig(HostConfigKey { host: name(host), name: joined(setting)? }))
        }
        ["metadata"] => Some(V1Key::HostMetadata { host: host.to_owned() }),
        ["wireguard"] => Some(V1Key::Wireguard { node: name(host) }),
        ["orchestrator_refs"] => Some(V1Key::OrchRefs { host: host.to_owned() }),
        _ => None,
    }
}

/// Parses the part of a path after `/calico/bgp/v1/`.
pub(super) fn parse_bgp(parts: &[&str]) -> Option<V1Key> {
    match parts {
        ["global", "peer_v4" | "peer_v6", peer] => {
            let (ip, port) = parse_peer(peer)?;
            Some(V1Key::GlobalBgpPeer { ip, port })
        }
        ["global", name @ ..] => Some(V1Key::GlobalBgpConfig { name: joined(name)? }),
        ["host", host] if !host.is_empty() => Some(V1Key::BgpNode { host: (*host).to_owned() }),
        ["host", node, "peer_v4" | "peer_v6", peer] if !node.is_empty() => {
            let (ip, port) = parse_peer(peer)?;
            Some(V1Key::NodeBgpPeer { node: (*node).to_owned(), ip, port })
        }
        ["host", node, name @ ..] if !node.is_empty() => {
            Some(V1Key::NodeBgpConfig { node: (*node).to_owned(), name: joined(name)? })
        }
        _ => None,
    }
}

/// The last part of a path, which may itself contain slashes.
fn joined(parts: &[&str]) -> Option<String> {
    Some(parts.join("/")).filter(|name| !name.is_empty())
}

fn filled<'a>(part: &'static str, value: &'a str) -> Result<&'a str, KeyError> {
    if value.is_empty() { Err(KeyError::Missing(part)) } else { Ok(value) }
}

/// The name of a BGP setting, which must not look like a peer.
fn setting(name: &str) -> Result<&str, KeyError> {
    let name = filled("name", name)?;
    if name.starts_with("peer_v4/") || name.starts_with("peer_v6/") {
        return Err(KeyError::NotAPart { part: "name", value: name.to_owned() });
    }
    Ok(name)
}

fn peer(ip: IpAddr, port: u16) -> String {
    let version = if ip.is_ipv4() { 4 } else { 6 };
    if port == 0 || port == BGP_PORT {
        format!("peer_v{version}/{ip}")
    } else {
        format!("peer_v{version}/{ip}-{port}")
    }
}

fn parse_peer(segment: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = match segment.split_once('-') {
        Some((ip, port)) => (ip, port.parse().ok()?),
        None => (segment, BGP_PORT),
    };
    Some((ip.parse::<IpAddr>().ok()?.to_canonical(), port))
}

impl fmt::Display for PolicyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy(Name={}, Namespace={}, Kind={})", self.name, self.namespace, self.kind)
    }
}

/// The form in which Calico prints keys in logs and errors.
impl fmt::Display for V1Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadyFlag => f.write_str("ReadyFlagKey()"),
            Self::GlobalConfig { name } => write!(f, "GlobalFelixConfig(name={name})"),
            Self::HostConfig(HostConfigKey { host, name }) => {
                write!(f, "HostConfig(node={host},name={name})")
            }
            Self::HostMetadata { host } => write!(f, "Node(name={host})"),
            Self::Wireguard { node } => write!(f, "Node(nodename={node})"),
            Self::OrchRefs { host } => write!(f, "OrchRefs(nodename={host})"),
            Self::WorkloadEndpoint(WorkloadEndpointKey { host, orchestrator, workload, endpoint }) => write!(
                f,
                "WorkloadEndpoint(node={host}, orchestrator={orchestrator}, workload={workload}, name={endpoint})"
            ),
            Self::HostEndpoint(HostEndpointKey { host, endpoint }) => {
                write!(f, "HostEndpoint(node={host}, name={endpoint})")
            }
            Self::NetworkSet { name } => write!(f, "NetworkSet(name={name})"),
            Self::Policy(key) => key.fmt(f),
            Self::Tier { name } => write!(f, "Tier(name={name})"),
            Self::ProfileRules { name } => write!(f, "ProfileRules(name={name})"),
            Self::ProfileLabels { name } => write!(f, "ProfileLabels(name={name})"),
            Self::IpPool { cidr } => write!(f, "IPPool(cidr={cidr})"),
            Self::GlobalBgpConfig { name } => write!(f, "GlobalBGPConfig(name={name})"),
            Self::NodeBgpConfig { node, name } => write!(f, "HostBGPConfig(node={node}; name={name})"),
            Self::GlobalBgpPeer { ip, port } => write!(f, "BGPPeer(global, ip={ip}, port={port})"),
            Self::NodeBgpPeer { node, ip, port } => write!(f, "BGPPeer(node={node}, ip={ip}, port={port})"),
            Self::BgpNode { host } => write!(f, "BGPNodeKey(host={host})"),
        }
    }
}
