//! The proposals of a collector.

use super::holder::Holder;
use super::judge::Reason;
use crate::Release;
use ipnet::IpNet;
use jiff::Timestamp;
use model::HandleId;
use std::net::IpAddr;

/// An address that is to be released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// The address.
    pub address: IpAddr,
    /// Its block.
    pub block: IpNet,
    /// Its handle.
    pub handle: HandleId,
    /// The sequence number of its allocation.
    pub sequence_number: u64,
    /// The last holder.
    pub holder: Holder,
    /// The node that it is recorded for.
    pub node: String,
    /// The Kubernetes name of that node; empty when it has none.
    pub kubernetes_node: String,
    /// The time since which it is suspected.
    pub since: Timestamp,
    /// The reason for the suspicion.
    pub reason: Reason,
}

impl Leak {
    /// The release, with all guards.
    #[must_use]
    pub fn release(&self) -> Release {
        Release {
            address: self.address,
            handle: Some(self.handle.clone()),
            sequence_number: Some(self.sequence_number),
        }
    }
}

/// A node that is gone and has nothing left in use: its claims on blocks are to be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneNode {
    /// The node.
    pub name: String,
}

/// A block that has been idle for long, of a node that has others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleBlock {
    /// The block.
    pub cidr: IpNet,
    /// The node that owns it.
    pub node: String,
    /// How many blocks the node has, including this one.
    pub blocks_of_node: usize,
}

/// Everything that should be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Addresses to release, in order of blocks.
    pub leaks: Vec<Leak>,
    /// Blocks to give up.
    pub idle_blocks: Vec<IdleBlock>,
    /// Nodes to forget, after their addresses have been released.
    pub gone_nodes: Vec<GoneNode>,
    /// Blocks with addresses that have rested long enough.
    pub rested_blocks: Vec<IpNet>,
}

impl Verdicts {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
