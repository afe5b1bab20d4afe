//! Pools as seen by address management, and which of them a request may use.
//!
//! Pools that a request names are used whatever they select, as long as they assign addresses at all; otherwise a pool
//! must assign automatically and select both the node and the namespace. The allowed uses of a pool apply in both
//! cases. An invalid pool (an unreadable range, blocks larger than the pool) assigns nothing.

use api::{AssignmentMode, IPPOOL_CONDITION_ALLOCATABLE, IPPool, IPPoolAllowedUse};
use ipnet::IpNet;
use model::{AffinityType, IpVersion};
use selector::Selector;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::block::Owner;

/// The maximum number of addresses of a block, as a power of two. Calico allows 12; more than 16 would make the record
/// of one block too large for a datastore.
const MAX_BLOCK_BITS: u8 = 16;

/// Labels.
pub type Labels = BTreeMap<String, String>;

/// A namespace, for pools that select namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLabels {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

/// The use of an address. Pools list their allowed uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntendedUse {
    /// A pod or another workload.
    Workload,
    /// The tunnel device of a node.
    Tunnel,
    /// A service of type LoadBalancer; its blocks belong to no node.
    LoadBalancer,
}

impl IntendedUse {
    /// The use as pools spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workload => "Workload",
            Self::Tunnel => "Tunnel",
            Self::LoadBalancer => "LoadBalancer",
        }
    }

    /// The use as a value of a pool.
    #[must_use]
    pub fn allowed_use(self) -> IPPoolAllowedUse {
        match self {
            Self::Workload => IPPoolAllowedUse::Workload,
            Self::Tunnel => IPPoolAllowedUse::Tunnel,
            Self::LoadBalancer => IPPoolAllowedUse::LoadBalancer,
        }
    }

    /// The owner of the blocks for addresses of this use.
    #[must_use]
    pub fn owner(self, host: &str) -> Owner {
        let affinity_type = match self {
            Self::LoadBalancer => AffinityType::Virtual,
            Self::Workload | Self::Tunnel => AffinityType::Host,
        };
        Owner { affinity_type, host: host.to_owned() }
    }
}

impl fmt::Display for IntendedUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its range.
    pub cidr: IpNet,
    /// The prefix length of its blocks.
    pub block_size: u8,
    /// Whether it assigns addresses: neither disabled nor being deleted, nor marked as not allocatable.
    pub is_enabled: bool,
    /// Whether requests that do not name it may use it.
    pub is_automatic: bool,
    /// Its allowed uses.
    pub allowed_uses: Vec<IPPoolAllowedUse>,
    /// The nodes that it selects, as written.
    pub node_selector: String,
    /// The namespaces that it selects, as written.
    pub namespace_selector: String,
}

/// The requirements of a request for pools.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The node's name (only for messages).
    pub host: &'a str,
    /// The IP version.
    pub version: IpVersion,
    /// The requested pools, by range; empty for all that fit.
    pub requested: &'a [IpNet],
    /// The intended use.
    pub intended_use: IntendedUse,
    /// The node's labels.
    pub node_labels: &'a Labels,
    /// The namespace's labels.
    pub namespace_labels: &'a Labels,
    /// The longest acceptable prefix length of blocks, i.e. the minimum size of a block.
    pub max_block_size: u8,
}

/// The pools that a request may use.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The pools that may be used, in order.
    pub usable: Vec<Pool>,
    /// The pools that select the node and the namespace, usable for this or not. Blocks of other pools may be given up.
    pub selecting: Vec<Pool>,
}

/// Why no pool can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPool {
    /// A requested pool does not exist, or assigns nothing.
    #[error("the given pool ({0}) does not exist, or is not enabled")]
    NotEnabled(IpNet),
    /// A requested pool is of the other IP version.
    #[error("provided IPv{wanted} IPPools list contains one or more IPv{found} IPPools")]
    OtherVersion {
        /// The requested IP version.
        wanted: IpVersion,
        /// The IP version of a pool in the list.
        found: IpVersion,
    },
    /// No pool assigns addresses of this IP version.
    #[error("cannot find a qualified ippool")]
    NoneEnabled,
    /// No pool selects this node and namespace.
    #[error("no configured Calico pools for node {0}")]
    NoneForNode(String),
    /// Pools select the node, but none may be used for this.
    #[error("cannot find a qualified ippool, no pools match the required use ({0})")]
    NoneForUse(IntendedUse),
    /// A selector cannot be parsed, so it is unknown what the pool selects.
    #[error("IP pool {pool}: {field} cannot be read: {reason}")]
    BadSelector {
        /// The pool.
        pool: String,
        /// The name of the selector's field.
        field: &'static str,
        /// The reason.
        reason: String,
    },
}

impl Pool {
    /// Converts a pool whose defaults have been filled in.
    ///
    /// # Errors
    /// What is invalid about it; then it assigns nothing.
    pub fn read(pool: &IPPool) -> Result<Self, String> {
        let cidr = pool.spec.cidr.parse().map_err(|reason| format!("spec.cidr: {reason}"))?.masked();
        let longest = cidr.max_prefix_len();
        let default = if longest == 32 { 26 } else { 122 };
        let block_size = if pool.spec.block_size == 0 { default } else { pool.spec.block_size };
        let block_size = u8::try_from(block_size)
            .ok()
            .filter(|size| (cidr.prefix_len()..=longest).contains(size))
            .ok_or_else(|| format!("spec.blockSize: blocks of /{block_size} do not fit into {cidr}"))?;
        if longest - block_size > MAX_BLOCK_BITS {
            return Err(format!("spec.blockSize: blocks of /{block_size} are too large"));
        }
        let conditions = pool.status.iter().flat_map(|status| &status.conditions);
        let is_closed = conditions
            .filter(|condition| condition.kind == IPPOOL_CONDITION_ALLOCATABLE)
            .any(|condition| condition.status == "False");
        let is_leaving = pool.metadata.deletion_timestamp.is_some();
        let mut allowed_uses = pool.spec.allowed_uses.clone();
        if allowed_uses.is_empty() {
            allowed_uses = vec![IPPoolAllowedUse::Workload, IPPoolAllowedUse::Tunnel];
        }
        Ok(Self {
            name: pool.metadata.name.clone(),
            cidr,
            block_size,
            is_enabled: !pool.spec.disabled && !is_leaving && !is_closed,
            is_automatic: pool
                .spec
                .assignment_mode
                .as_ref()
                .is_none_or(|mode| mode.is_unset() || *mode == AssignmentMode::Automatic),
            allowed_uses,
            node_selector: pool.spec.node_selector.as_str().to_owned(),
            namespace_selector: pool.spec.namespace_selector.as_str().to_owned(),
        })
    }

    /// Its IP version.
    #[must_use]
    pub fn version(&self) -> IpVersion {
        version_of(&self.cidr)
    }

    /// Whether the pool may be used for this.
    #[must_use]
    pub fn allows(&self, intended_use: IntendedUse) -> bool {
        self.allowed_uses.contains(&intended_use.allowed_use())
    }

    /// Whether it selects a node.
    ///
    /// # Errors
    /// When the selector cannot be parsed.
    pub fn selects_node(&self, labels: &Labels) -> Result<bool, NoPool> {
        self.selects("nodeSelector", &self.node_selector, labels)
    }

    /// Whether it selects a namespace.
    ///
    /// # Errors
    /// When the selector cannot be parsed.
    pub fn selects_namespace(&self, labels: &Labels) -> Result<bool, NoPool> {
        self.selects("namespaceSelector", &self.namespace_selector, labels)
    }

    fn selects(&self, field: &'static str, text: &str, labels: &Labels) -> Result<bool, NoPool> {
        if text.is_empty() {
            return Ok(true);
        }
        let selector = Selector::parse(text).map_err(|error| NoPool::BadSelector {
            pool: self.name.clone(),
            field,
            reason: error.to_string(),
        })?;
        Ok(selector.evaluate(labels))
    }

    /// The block of the pool that contains an address.
    #[must_use]
    pub fn block_of(&self, address: IpAddr) -> Option<IpNet> {
        let inside = self.cidr.contains(&address);
        IpNet::new(address, self.block_size).ok().filter(|_| inside).map(|net| net.trunc())
    }
}

/// The IP version of a range.
#[must_use]
pub fn version_of(net: &IpNet) -> IpVersion {
    match net {
        IpNet::V4(_) => IpVersion::V4,
        IpNet::V6(_) => IpVersion::V6,
    }
}

/// The prefix length of a single address.
#[must_use]
pub fn longest_prefix(version: IpVersion) -> u8 {
    match version {
        IpVersion::V4 => 32,
        IpVersion::V6 => 128,
    }
}

/// The first of these pools that contains an address.
pub fn containing<'a>(pools: impl IntoIterator<Item = &'a Pool>, address: IpAddr) -> Option<&'a Pool> {
    pools.into_iter().find(|pool| pool.cidr.contains(&address))
}

/// The pools that a request may use, out of all pools in the order of their names.
///
/// # Errors
/// The reason why there are none.
pub fn choose(pools: &[Pool], wanted: &Wanted<'_>) -> Result<Chosen, NoPool> {
    for range in wanted.requested {
        let found = version_of(range);
        if found != wanted.version {
            return Err(NoPool::OtherVersion { wanted: wanted.version, found });
        }
    }
    let enabled = || {
        pools.iter().filter(|pool| {
            pool.is_enabled && pool.version() == wanted.version && pool.block_size <= wanted.max_block_size
        })
    };
    if enabled().next().is_none() {
        return Err(NoPool::NoneEnabled);
    }
    let mut selecting = Vec::new();
    for range in wanted.requested {
        let range = range.trunc();
        let pool = enabled().find(|pool| pool.cidr == range).ok_or(NoPool::NotEnabled(range))?;
        selecting.push(pool.clone());
    }
    if wanted.requested.is_empty() {
        for pool in enabled().filter(|pool| pool.is_automatic) {
            if pool.selects_node(wanted.node_labels)? && pool.selects_namespace(wanted.namespace_labels)? {
                selecting.push(pool.clone());
            }
        }
    }
    if selecting.is_empty() {
        return Err(NoPool::NoneForNode(wanted.host.to_owned()));
    }
    let usable: Vec<Pool> =
        selecting.iter().filter(|pool| pool.allows(wanted.intended_use)).cloned().collect();
    if usable.is_empty() {
        return Err(NoPool::NoneForUse(wanted.intended_use));
    }
    Ok(Chosen { usable, selecting })
}

#[cfg(test)]
mod tests;
