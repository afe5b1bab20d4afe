//! The node's policy for one family: what it announces, and what it gives to the kernel.

use bgp::intent::{Export, FamilyIntent, Gateway, Kernel};
use bgp::{Prefix, Priority};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The node's policy for one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The announced routes and their communities.
    pub export: Export,
    /// The routes for the kernel.
    pub kernel: Kernel,
    /// The priority of ordinary routes.
    pub normal: Priority,
}

impl Default for Policy {
    fn default() -> Self {
        Self { export: Export::default(), kernel: Kernel::default(), normal: Priority::NORMAL }
    }
}

impl Policy {
    /// The policy of a family of the intent.
    #[must_use]
    pub fn of(intent: &FamilyIntent) -> Self {
        Self { export: intent.export.clone(), kernel: intent.kernel.clone(), normal: intent.normal_priority }
    }

    pub(crate) fn originated(&self) -> BTreeSet<IpNet> {
        self.export.originated().map(Prefix::net).collect()
    }

    pub(crate) fn gateways(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> {
        self.export.gateways.iter().map(|Gateway { peer, via, .. }| (*peer, *via))
    }
}
