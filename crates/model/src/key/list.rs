//! What to list: a class of keys, with restrictions. Gives the prefix for a request to etcd, and the filter for its
//! answers.

use super::{AffinityType, IpVersion, Key, KeyError, plain, raw};
use api::Kind;
use std::fmt;

/// A class of keys to list or watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListOptions {
    /// Resources of a kind.
    Resource {
        /// The kind.
        kind: Kind,
        /// Only resources of this namespace.
        namespace: Option<String>,
        /// Only the resource of this name.
        name: Option<String>,
        /// Whether `name` is only a prefix of names.
        name_is_prefix: bool,
    },
    /// Blocks of addresses.
    Block {
        /// Only blocks of this IP version.
        ip_version: Option<IpVersion>,
    },
    /// Claims on blocks.
    BlockAffinity {
        /// Only claims of this owner.
        host: Option<String>,
        /// Only claims of this kind of owner. In etcd, `None` means those of hosts.
        affinity_type: Option<AffinityType>,
        /// Only claims on blocks of this IP version.
        ip_version: Option<IpVersion>,
    },
    /// Handles.
    IpamHandle,
    /// States of host endpoints.
    HostEndpointStatus {
        /// Only those of this host.
        host: Option<String>,
    },
    /// States of workload endpoints, in all regions.
    WorkloadEndpointStatus {
        /// Only those of this host.
        host: Option<String>,
    },
    /// Status reports of all Felixes, in all regions.
    StatusReports,
}

impl ListOptions {
    /// Returns options for all resources of a kind.
    #[must_use]
    pub fn resources(kind: Kind) -> Self {
        Self::Resource { kind, namespace: None, name: None, name_is_prefix: false }
    }

    /// Returns the one key that these options identify completely, if they do; it is read instead of listed.
    #[must_use]
    pub fn exact_key(&self) -> Option<Key> {
        match self {
            Self::Resource { kind, namespace, name: Some(name), name_is_prefix: false } => match namespace {
                Some(namespace) if kind.is_namespaced() => Some(Key::resource(*kind, namespace, name)),
                _ if !kind.is_namespaced() => Some(Key::resource(*kind, "", name)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the prefix of the paths of all these keys. It ends with a slash, unless its last part is the prefix of a
    /// name or a whole name (see [`Self::exact_key`]).
    ///
    /// # Errors
    /// When a part cannot be part of a path.
    pub fn prefix(&self) -> Result<String, KeyError> {
        Ok(match self {
            Self::Resource { kind, namespace, name, .. } => {
                let mut path = format!("/calico/resources/v3/projectcalico.org/{}/", kind.plural());
                if kind.is_namespaced() {
                    let Some(namespace) = namespace else { return Ok(path) };
                    path.push_str(plain("namespace", namespace)?);
                    path.push('/');
                }
                if let Some(name) = name {
                    path.push_str(plain("name", name)?);
                }
                path
            }
            Self::Block { ip_version: None } => "/calico/ipam/v2/assignment/".to_owned(),
            Self::Block { ip_version: Some(version) } => format!("/calico/ipam/v2/assignment/ipv{version}/"),
            Self::BlockAffinity { host, affinity_type, ip_version } => {
                let mut path = format!("/calico/ipam/v2/{}/", affinity_type.unwrap_or_default());
                if let Some(host) = host {
                    path.push_str(raw("host", host)?);
                    path.push('/');
                    if let Some(version) = ip_version {
                        path.push_str(&format!("ipv{version}/block/"));
                    }
                }
                path
            }
            Self::IpamHandle => "/calico/ipam/v2/handle/".to_owned(),
            Self::HostEndpointStatus { host: None } => "/calico/felix/v1/host/".to_owned(),
            Self::HostEndpointStatus { host: Some(host) } => {
                format!("/calico/felix/v1/host/{}/endpoint/", raw("node", host)?)
            }
            // The region comes before the host in the path, so the host cannot narrow the prefix.
            Self::WorkloadEndpointStatus { .. } | Self::StatusReports => "/calico/felix/v2/".to_owned(),
        })
    }

    /// Whether a key is among those to list.
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        fn same<T: PartialEq>(wanted: Option<&T>, found: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        match (self, key) {
            (Self::Resource { kind, namespace, name, name_is_prefix }, Key::Resource(key)) => {
                *kind == key.kind
                    && (!kind.is_namespaced() || same(namespace.as_ref(), &key.namespace))
                    && name.as_ref().is_none_or(|name| {
                        if *name_is_prefix { key.name.starts_with(name.as_str()) } else { key.name == *name }
                    })
            }
            (Self::Block { ip_version }, Key::Block { cidr }) => {
                same(ip_version.as_ref(), &IpVersion::of(cidr))
            }
            (Self::BlockAffinity { host, affinity_type, ip_version }, Key::BlockAffinity(key)) => {
                same(host.as_ref(), &key.host)
                    && same(affinity_type.as_ref(), &key.affinity_type)
                    && same(ip_version.as_ref(), &IpVersion::of(&key.cidr))
            }
            (Self::IpamHandle, Key::IpamHandle { .. }) => true,
            (Self::HostEndpointStatus { host: wanted }, Key::HostEndpointStatus { host, .. })
            | (Self::WorkloadEndpointStatus { host: wanted }, Key::WorkloadEndpointStatus { host, .. }) => {
                same(wanted.as_ref(), host)
            }
            (Self::StatusReports, Key::ActiveStatusReport { .. } | Key::LastStatusReport { .. }) => true,
            _ => false,
        }
    }
}

/// The form in which Calico prints list options in logs and errors, where it does.
impl fmt::Display for ListOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = |text: &Option<String>| text.clone().unwrap_or_else(|| "*".to_owned());
        match self {
            Self::Resource { kind, namespace, name, name_is_prefix } => {
                write!(f, "{kind}(")?;
                if let Some(namespace) = namespace {
                    write!(f, "{namespace}/")?;
                }
                write!(f, "{}{})", any(name), if *name_is_prefix { "*" } else { "" })
            }
            Self::Block { ip_version: None } => f.write_str("Block(*)"),
            Self::Block { ip_version: Some(version) } => write!(f, "Block(ipv{version})"),
            Self::BlockAffinity { host, .. } => write!(f, "BlockAffinity({})", any(host)),
            Self::IpamHandle => f.write_str("IPAMHandle(*)"),
            Self::HostEndpointStatus { host } => write!(f, "HostEndpointStatus({})", any(host)),
            Self::WorkloadEndpointStatus { host } => write!(f, "WorkloadEndpointStatus({})", any(host)),
            Self::StatusReports => f.write_str("StatusReport(*)"),
        }
    }
}
