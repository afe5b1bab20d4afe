//! Decides which default pools to create, given the variables, kubeadm's settings, existing pools and the host's
//! addresses.

use crate::environment::{PoolSettings, Settings};
use api::scalars::Cidr;
use api::{IPIPMode, IPPool, IPPoolSpec, VXLANMode};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use model::IpVersion;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// The facts besides the variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolFacts {
    /// The ranges of the existing pools.
    pub existing: Vec<Cidr>,
    /// kubeadm's settings, if kubeadm created the cluster.
    pub kubeadm: Option<BTreeMap<String, String>>,
    /// The host's own addresses.
    pub host_addresses: Vec<IpAddr>,
    /// Whether the host supports IPv6.
    pub host_has_ipv6: bool,
    /// Random bytes for a unique range.
    pub random: [u8; 5],
}

/// Why the pools cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The variables both request and forbid pools.
    #[error(
        "NO_DEFAULT_POOLS is true, and CALICO_IPV4POOL_CIDR or CALICO_IPV6POOL_CIDR names a pool to create: unset one of them"
    )]
    Contradiction,
    /// A variable has an unusable value.
    #[error("{variable}={value}: {reason}")]
    Variable {
        /// The name of the variable.
        variable: String,
        /// Its value.
        value: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
}

/// The pools to create, in order of creation.
///
/// # Errors
/// When a variable that is needed has an unusable value.
pub(crate) fn plan(settings: &Settings, facts: &PoolFacts) -> Result<Vec<IPPool>, PoolError> {
    if settings.no_default_pools {
        let wanted = IpVersion::BOTH.iter().any(|version| !settings.pool(*version).cidr.is_empty());
        return if wanted { Err(PoolError::Contradiction) } else { Ok(Vec::new()) };
    }
    let mut pools = Vec::new();
    for family in IpVersion::BOTH {
        let pool = settings.pool(family);
        if pool.cidr == "none" {
            continue;
        }
        // Block size, selector and range are checked even if a pool exists, as in Calico; the modes are not.
        let draft = Draft::read(family, pool, facts)?;
        let exists = facts
            .existing
            .iter()
            .filter_map(|cidr| cidr.parse().ok())
            .any(|network| family.has(&network.address()));
        let is_supported = family == IpVersion::V4 || (settings.ipv6_support && facts.host_has_ipv6);
        if !exists && is_supported {
            pools.push(draft.pool(pool)?);
        }
    }
    Ok(pools)
}

/// A pool without its modes.
struct Draft {
    family: IpVersion,
    range: IpNet,
    block_size: i64,
    node_selector: String,
}

impl Draft {
    fn read(family: IpVersion, pool: PoolSettings<'_>, facts: &PoolFacts) -> Result<Self, PoolError> {
        let sizes: RangeInclusive<i64> = match family {
            IpVersion::V4 => 20..=32,
            IpVersion::V6 => 116..=128,
        };
        let block_size =
            pool.block_size.trim().parse().ok().filter(|size| sizes.contains(size)).ok_or_else(|| {
                let reason =
                    format!("is not a block size: set a number from {} to {}", sizes.start(), sizes.end());
                wrong(family, "BLOCK_SIZE", pool.block_size, reason)
            })?;
        if let Err(error) = selector::Selector::parse(pool.node_selector) {
            return Err(wrong(
                family,
                "NODE_SELECTOR",
                pool.node_selector,
                format!("is not a selector: {error}"),
            ));
        }
        let range = if pool.cidr.is_empty() {
            from_kubeadm(family, facts).unwrap_or_else(|| match family {
                IpVersion::V4 => default_ipv4(&facts.host_addresses),
                IpVersion::V6 => unique_local(facts.random),
            })
        } else {
            let parsed = Cidr::from(pool.cidr).parse();
            match parsed {
                Ok(network) if family.has(&network.address()) => network.masked(),
                Ok(_) => {
                    let reason = format!("is not an IPv{family} range: set one, or none for no pool");
                    return Err(wrong(family, "CIDR", pool.cidr, reason));
                }
                Err(reason) => return Err(wrong(family, "CIDR", pool.cidr, reason)),
            }
        };
        Ok(Self { family, range, block_size, node_selector: pool.node_selector.to_owned() })
    }

    fn pool(self, settings: PoolSettings<'_>) -> Result<IPPool, PoolError> {
        let ipip = match self.family {
            IpVersion::V4 => Mode::read(self.family, "IPIP", settings.ipip)?,
            IpVersion::V6 => Mode::Never,
        };
        let vxlan = Mode::read(self.family, "VXLAN", settings.vxlan)?;
        let name = match self.family {
            IpVersion::V4 => "default-ipv4-ippool",
            IpVersion::V6 => "default-ipv6-ippool",
        };
        let spec = IPPoolSpec {
            cidr: self.range.to_string().into(),
            ipip_mode: match ipip {
                Mode::Never => IPIPMode::Never,
                Mode::Always => IPIPMode::Always,
                Mode::CrossSubnet => IPIPMode::CrossSubnet,
            },
            vxlan_mode: match vxlan {
                Mode::Never => VXLANMode::Never,
                Mode::Always => VXLANMode::Always,
                Mode::CrossSubnet => VXLANMode::CrossSubnet,
            },
            nat_outgoing: settings.nat_outgoing,
            disable_bgp_export: settings.disable_bgp_export,
            block_size: self.block_size,
            node_selector: self.node_selector.as_str().into(),
            ..IPPoolSpec::default()
        };
        Ok(IPPool::new("", name, spec))
    }
}

/// When packets are encapsulated.
#[derive(Clone, Copy)]
enum Mode {
    Never,
    Always,
    CrossSubnet,
}

impl Mode {
    fn read(family: IpVersion, what: &str, text: &str) -> Result<Self, PoolError> {
        match text.to_lowercase().as_str() {
            "" | "off" | "never" => Ok(Self::Never),
            "always" => Ok(Self::Always),
            "crosssubnet" | "cross-subnet" => Ok(Self::CrossSubnet),
            _ => {
                let reason = format!("is not a mode of {what}: set never, always or cross-subnet");
                Err(wrong(family, what, text, reason))
            }
        }
    }
}

fn wrong(family: IpVersion, what: &str, value: &str, reason: impl Into<String>) -> PoolError {
    let version = match family {
        IpVersion::V4 => "4",
        IpVersion::V6 => "6",
    };
    PoolError::Variable {
        variable: format!("CALICO_IPV{version}POOL_{what}"),
        value: value.to_owned(),
        reason: reason.into(),
    }
}

/// The first range of this family in kubeadm's `podSubnet`. The text is YAML inside a ConfigMap; as in Calico, only
/// this line is looked up, and the rest is not parsed.
fn from_kubeadm(family: IpVersion, facts: &PoolFacts) -> Option<IpNet> {
    let texts = facts.kubeadm.as_ref()?.values();
    let line = texts.flat_map(|text| text.lines()).find_map(|line| line.split_once("podSubnet: "))?.1;
    line.trim()
        .trim_matches(['"', '\''])
        .split(',')
        .map_while(|range| Cidr::from(range.trim()).parse().ok())
        .find(|network| family.has(&network.address()))
        .map(|network| network.masked())
}

/// Calico's default range, or the first of its alternatives in which this host has no address.
fn default_ipv4(host_addresses: &[IpAddr]) -> IpNet {
    let range = |a, b| IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), 16));
    let preferred = range(192, 168);
    std::iter::once(preferred)
        .chain((16..=31).map(|second| range(172, second)))
        .find(|range| !host_addresses.iter().any(|address| range.contains(address)))
        .unwrap_or(preferred)
}

/// A random range of fd00::/8, as RFC 4193 requires.
fn unique_local(random: [u8; 5]) -> IpNet {
    let [a, b, c, d, e] = random;
    let words = [u16::from_be_bytes([0xfd, a]), u16::from_be_bytes([b, c]), u16::from_be_bytes([d, e])];
    let base = Ipv6Addr::new(words[0], words[1], words[2], 0, 0, 0, 0, 0);
    IpNet::V6(Ipv6Net::new_assert(base, 48))
}

#[cfg(test)]
mod tests;
