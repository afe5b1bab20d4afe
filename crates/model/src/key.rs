//! Datastore keys: the identity of each stored object, and its path in etcd.
//!
//! [`Key::path`] and [`Key::parse`] are exact inverses. A key has no path if one of its parts would come back changed:
//! a slash, or text that looks escaped in a place where Calico does not escape names. Such a key is an error; it is
//! never repaired.

use crate::HandleId;
use api::Kind;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

mod list;
mod parse;
#[cfg(test)]
mod tests;
pub mod v1;

pub use list::ListOptions;
pub use v1::V1Key;

/// The version of the Internet Protocol that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpVersion {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl IpVersion {
    /// Both versions, in the order in which they are shown.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    /// The version of a network.
    #[must_use]
    pub fn of(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }

    /// Whether an address is of this version.
    #[must_use]
    pub fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    /// Whether a network is of this version.
    #[must_use]
    pub fn has_net(self, net: &IpNet) -> bool {
        self == Self::of(net)
    }

    /// 4 or 6.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }
}

impl fmt::Display for IpVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

/// The kind of owner that a block has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityType {
    /// A node.
    #[default]
    Host,
    /// A name that is not a machine, such as the owner of load balancer addresses.
    Virtual,
}

impl AffinityType {
    /// The word in paths and labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Virtual => "virtual",
        }
    }

    /// The type for this word; an empty word means a host.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "" | "host" => Some(Self::Host),
            "virtual" => Some(Self::Virtual),
            _ => None,
        }
    }
}

impl fmt::Display for AffinityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The identity of a `projectcalico.org/v3` resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for kinds without one.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// The identity of a claim on a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAffinityKey {
    /// The block.
    pub cidr: IpNet,
    /// The owner of the claim.
    pub host: String,
    /// The kind of owner.
    pub affinity_type: AffinityType,
}

/// The identity of anything in the datastore.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A resource.
    Resource(ResourceKey),
    /// A block of addresses.
    Block {
        /// Its range.
        cidr: IpNet,
    },
    /// A claim on a block.
    BlockAffinity(BlockAffinityKey),
    /// The addresses held under one handle.
    IpamHandle {
        /// The handle.
        handle_id: HandleId,
    },
    /// The settings of address management.
    IpamConfig,
    /// The mark that a host uses address management.
    IpamHost {
        /// The host.
        host: String,
    },
    /// The state of a host endpoint, reported by Felix.
    HostEndpointStatus {
        /// The host.
        host: String,
        /// The host endpoint's name.
        endpoint: String,
    },
    /// The state of a workload endpoint, reported by Felix.
    WorkloadEndpointStatus {
        /// The region: see [`region_string`].
        region: String,
        /// The host.
        host: String,
        /// The orchestrator.
        orchestrator: String,
        /// The workload, with its namespace if it has one.
        workload: String,
        /// The endpoint's name in the workload.
        endpoint: String,
    },
    /// Felix's status report, which expires.
    ActiveStatusReport {
        /// The region: see [`region_string`].
        region: String,
        /// The host.
        host: String,
    },
    /// Felix's last status report, which does not expire.
    LastStatusReport {
        /// The region: see [`region_string`].
        region: String,
        /// The host.
        host: String,
    },
    /// A key under which nothing is stored any more, but which Typha and Felix still use as a name.
    V1(V1Key),
}

/// Why a key has no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A required part is empty.
    #[error("insufficient identifiers, missing '{0}'")]
    Missing(&'static str),
    /// A part contains a slash, or text that would be read as an escape sequence.
    #[error("{part} '{value}' cannot be part of a datastore path")]
    NotAPart {
        /// The part.
        part: &'static str,
        /// Its value.
        value: String,
    },
}

/// Returns the region as it is written in the keys of status reports: `no-region`, or `region-` and its name.
#[must_use]
pub fn region_string(region: &str) -> String {
    if region.is_empty() { "no-region".to_owned() } else { format!("region-{region}") }
}

impl Key {
    /// Returns the key of a resource; the namespace is dropped for kinds without one.
    #[must_use]
    pub fn resource(kind: Kind, namespace: &str, name: &str) -> Self {
        let namespace = if kind.is_namespaced() { namespace.to_owned() } else { String::new() };
        Self::Resource(ResourceKey { kind, namespace, name: name.to_owned() })
    }

    /// Returns the path in etcd.
    ///
    /// # Errors
    /// When a part is missing, or cannot be part of a path.
    pub fn path(&self) -> Result<String, KeyError> {
        Ok(match self {
            Self::Resource(ResourceKey { kind, namespace, name }) => {
                let (plural, name) = (kind.plural(), plain("name", name)?);
                if kind.is_namespaced() {
                    let namespace = plain("namespace", namespace)?;
                    format!("/calico/resources/v3/projectcalico.org/{plural}/{namespace}/{name}")
                } else {
                    format!("/calico/resources/v3/projectcalico.org/{plural}/{name}")
                }
            }
            Self::Block { cidr } => {
                format!("/calico/ipam/v2/assignment/ipv{}/block/{}", IpVersion::of(cidr), dashed(cidr))
            }
            Self::BlockAffinity(BlockAffinityKey { cidr, host, affinity_type }) => {
                let host = raw("host", host)?;
                format!(
                    "/calico/ipam/v2/{affinity_type}/{host}/ipv{}/block/{}",
                    IpVersion::of(cidr),
                    dashed(cidr)
                )
            }
            Self::IpamHandle { handle_id } => format!("/calico/ipam/v2/handle/{}", raw("handle", handle_id)?),
            Self::IpamConfig => "/calico/ipam/v2/config".to_owned(),
            Self::IpamHost { host } => format!("/calico/ipam/v2/host/{}", raw("host", host)?),
            Self::HostEndpointStatus { host, endpoint } => {
                format!(
                    "/calico/felix/v1/host/{}/endpoint/{}",
                    raw("node", host)?,
                    escaped("name", endpoint)?
                )
            }
            Self::WorkloadEndpointStatus { region, host, orchestrator, workload, endpoint } => format!(
                "/calico/felix/v2/{}/host/{}/workload/{}/{}/endpoint/{}",
                raw("regionString", region)?,
                raw("hostname", host)?,
                escaped("orchestrator", orchestrator)?,
                escaped("workload", workload)?,
                escaped("endpoint", endpoint)?
            ),
            Self::ActiveStatusReport { region, host } => {
                format!(
                    "/calico/felix/v2/{}/host/{}/status",
                    raw("regionString", region)?,
                    raw("hostname", host)?
                )
            }
            Self::LastStatusReport { region, host } => {
                let (region, host) = (raw("regionString", region)?, raw("hostname", host)?);
                format!("/calico/felix/v2/{region}/host/{host}/last_reported_status")
            }
            Self::V1(key) => key.path()?,
        })
    }

    /// Returns the key of a path; `None` for a path that is not one of Calico's.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        parse::parse(path)
    }

    /// Returns the resource's key, if this is one.
    #[must_use]
    pub fn as_resource(&self) -> Option<&ResourceKey> {
        match self {
            Self::Resource(key) => Some(key),
            _ => None,
        }
    }
}

impl From<ResourceKey> for Key {
    fn from(key: ResourceKey) -> Self {
        Self::Resource(key)
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.is_namespaced() {
            write!(f, "{}({}/{})", self.kind, self.namespace, self.name)
        } else {
            write!(f, "{}({})", self.kind, self.name)
        }
    }
}

impl fmt::Display for BlockAffinityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "BlockAffinityKey(cidr={}, host={}, affinityType={})",
            self.cidr, self.host, self.affinity_type
        )
    }
}

/// The form in which Calico prints keys in logs and errors.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resource(key) => key.fmt(f),
            Self::Block { cidr } => write!(f, "BlockKey(cidr={cidr})"),
            Self::BlockAffinity(key) => key.fmt(f),
            Self::IpamHandle { handle_id } => write!(f, "IPAMHandleKey(id={handle_id})"),
            Self::IpamConfig => f.write_str("IPAMConfigKey()"),
            Self::IpamHost { host } => write!(f, "IPAMHostKey(host={host})"),
            Self::HostEndpointStatus { host, endpoint } => {
                write!(f, "HostEndpointStatus(hostname={host}, name={endpoint})")
            }
            Self::WorkloadEndpointStatus { host, orchestrator, workload, endpoint, .. } => write!(
                f,
                "WorkloadEndpointStatus(hostname={host}, orchestrator={orchestrator}, workload={workload}, name={endpoint})"
            ),
            Self::ActiveStatusReport { host, .. } | Self::LastStatusReport { host, .. } => {
                write!(f, "StatusReport(hostname={host})")
            }
            Self::V1(key) => key.fmt(f),
        }
    }
}

/// A network as part of a path: masked, with `-` for its slash.
fn dashed(cidr: &IpNet) -> String {
    cidr.trunc().to_string().replace('/', "-")
}

/// A part that is neither escaped nor unescaped.
fn raw<'a>(part: &'static str, value: &'a str) -> Result<&'a str, KeyError> {
    if value.is_empty() {
        return Err(KeyError::Missing(part));
    }
    if value.contains('/') {
        return Err(KeyError::NotAPart { part, value: value.to_owned() });
    }
    Ok(value)
}

/// A part that is not escaped when it is written, but unescaped when it is read.
fn plain<'a>(part: &'static str, value: &'a str) -> Result<&'a str, KeyError> {
    let value = raw(part, value)?;
    if unescape(value) == value {
        Ok(value)
    } else {
        Err(KeyError::NotAPart { part, value: value.to_owned() })
    }
}

/// A part that is escaped, so that it may contain anything.
fn escaped(part: &'static str, value: &str) -> Result<String, KeyError> {
    if value.is_empty() { Err(KeyError::Missing(part)) } else { Ok(escape(value)) }
}

/// Escapes `%` and `/`.
fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('/', "%2f")
}

/// Reads a name from an escaped part. Hardly any name has escapes, so hardly any is copied twice.
fn name<T: for<'a> From<&'a str>>(text: &str) -> T {
    if text.contains('%') { T::from(&unescape(text)) } else { T::from(text) }
}

/// The inverse of [`escape`].
fn unescape(text: &str) -> String {
    // The name of a workload has a slash, and there is one for every pod: one pass, one allocation.
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(place) = rest.find('%') {
        plain.push_str(&rest[..place]);
        let (character, length) = match rest.as_bytes().get(place + 1..place + 3) {
            Some(b"2f") => ('/', 3),
            Some(b"25") => ('%', 3),
            _ => ('%', 1),
        };
        plain.push(character);
        rest = &rest[place + length..];
    }
    plain.push_str(rest);
    plain
}
