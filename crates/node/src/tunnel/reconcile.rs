//! One pass over all tunnel devices: reads, decides, takes and releases addresses, and writes the node's resource once.
//!
//! Addresses are taken before the resource names them, and released after it no longer does; a pass that fails in
//! between releases what it took. Anything left by a crash is found again by its handle.

use super::decision::{Leftover, Pools, Serving, Step, leftover, serving, step};
use super::kind::TunnelKind;
use crate::context::ContextError;
use api::scalars::Ip;
use api::{IPPoolSpec, Node, NodeSpec};
use client::{Client, ListQuery, OpenError};
use ipam::{AssignIp, AutoAssign, IntendedUse, Ipam, Release};
use ipnet::IpNet;
use model::IpVersion;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Why the tunnel addresses could not be updated.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The datastore cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The datastore returned an error.
    #[error("{step}: {source}")]
    Datastore {
        /// The step.
        step: String,
        /// The error.
        #[source]
        source: client::Error,
    },
    /// The resource's value for a device is not an address.
    #[error("the {kind} of node {node} is not an address: {reason}")]
    NotAnAddress {
        /// The device.
        kind: TunnelKind,
        /// The name of the node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// Address management returned an error.
    #[error("{step} for the {kind} of node {node}: {source}")]
    Ipam {
        /// The step.
        step: &'static str,
        /// The device.
        kind: TunnelKind,
        /// The name of the node.
        node: String,
        /// The error.
        #[source]
        source: Box<ipam::Error>,
    },
    /// The pools have no free address.
    #[error("no address for the {kind} of node {node} in the pools {pools}: {reason}")]
    Exhausted {
        /// The device.
        kind: TunnelKind,
        /// The name of the node.
        node: String,
        /// The pools that were tried.
        pools: String,
        /// The reason.
        reason: String,
    },
}

/// Brings the addresses of all tunnel devices up to date.
///
/// # Errors
/// When a device failed. Addresses taken in this pass are released.
pub(crate) async fn reconcile(
    client: &Client,
    node_name: &str,
    host_encryption: bool,
) -> Result<(), TunnelError> {
    let failed = |step: &str| {
        let step = step.to_owned();
        move |source| TunnelError::Datastore { step, source }
    };
    let nodes = client.resource::<NodeSpec>();
    let node = nodes.get("", node_name).await.map_err(failed(&format!("reading node {node_name}")))?;
    let pools =
        client.resource::<IPPoolSpec>().list(&ListQuery::all()).await.map_err(failed("listing IP pools"))?;
    let pools = Pools::new(pools.items, &pools.invalid);
    let mut pass = Pass {
        ipam: Ipam::new(client.backend().clone()),
        node_name,
        taken: Vec::new(),
        wanted: BTreeMap::new(),
    };
    let outcome = pass.all(&node, &pools, host_encryption).await;
    let outcome = match outcome {
        Ok(()) => {
            let wanted = &pass.wanted;
            let written = nodes.update_with_retry("", node_name, |node| apply(node, wanted)).await;
            written.map(drop).map_err(failed(&format!("writing the tunnel addresses of node {node_name}")))
        }
        Err(error) => Err(error),
    };
    if outcome.is_err() {
        pass.give_back().await;
    }
    outcome
}

/// Writes the addresses into the resource. Returns true if this changed it.
fn apply(node: &mut Node, wanted: &BTreeMap<TunnelKind, Ip>) -> bool {
    let before = node.spec.clone();
    for (kind, address) in wanted {
        kind.set_address(node, address.clone());
    }
    node.spec != before
}

struct Pass<'a> {
    ipam: Ipam,
    node_name: &'a str,
    /// Devices that got an address in this pass.
    taken: Vec<TunnelKind>,
    /// The new addresses of devices whose address changes.
    wanted: BTreeMap<TunnelKind, Ip>,
}

impl Pass<'_> {
    async fn all(&mut self, node: &Node, pools: &Pools, host_encryption: bool) -> Result<(), TunnelError> {
        for kind in TunnelKind::ALL {
            match serving(kind, node, pools, host_encryption) {
                Serving::Unused => self.remove(kind, node).await?,
                Serving::Ranges(ranges) => self.ensure(kind, node, &ranges, pools.are_all_known()).await?,
                Serving::Unknown => {
                    if !kind.address(node).is_empty() {
                        tracing::warn!(%kind, "a pool cannot be read: the tunnel device keeps its address");
                    }
                }
            }
        }
        Ok(())
    }

    async fn ensure(
        &mut self,
        kind: TunnelKind,
        node: &Node,
        pools: &[IpNet],
        are_all_known: bool,
    ) -> Result<(), TunnelError> {
        let current = self.current(kind, node)?;
        let allocation = match current {
            Some(address) => {
                self.ipam.allocation(address).await.map_err(self.failed("looking up the address", kind))?
            }
            None => None,
        };
        match step(kind, self.node_name, current, allocation.as_ref(), pools, are_all_known) {
            Step::Keep => Ok(()),
            Step::ReleaseAndAssign => {
                self.release_handle(kind).await?;
                self.assign(kind, pools).await
            }
            Step::Assign => {
                tracing::info!(%kind, ?current, "the address is in use elsewhere: taking a new one");
                self.assign(kind, pools).await
            }
            Step::Retag(address) => match self.retag(kind, address).await {
                // It was taken in the meantime.
                Err(error) if error.is_already_exists() => self.assign(kind, pools).await,
                outcome => outcome.map_err(self.failed("giving the old address a handle", kind)),
            },
        }
    }

    async fn retag(&mut self, kind: TunnelKind, address: IpAddr) -> Result<(), ipam::Error> {
        if let Some(refusal) = self.ipam.release_ips(&[Release::of(address)]).await?.failure {
            return Err(refusal);
        }
        let request = AssignIp {
            handle: Some(kind.handle(self.node_name)),
            attributes: kind.attributes(self.node_name),
            ..AssignIp::new(address, self.node_name)
        };
        self.ipam.assign_ip(&request).await
    }

    async fn assign(&mut self, kind: TunnelKind, pools: &[IpNet]) -> Result<(), TunnelError> {
        let mut request = AutoAssign {
            handle: Some(kind.handle(self.node_name)),
            attributes: kind.attributes(self.node_name),
            ..AutoAssign::new(self.node_name, IntendedUse::Tunnel)
        };
        match kind.family() {
            IpVersion::V4 => (request.num4, request.ipv4_pools) = (1, pools.to_vec()),
            IpVersion::V6 => (request.num6, request.ipv6_pools) = (1, pools.to_vec()),
        }
        let assigned =
            self.ipam.auto_assign(&request).await.map_err(self.failed("taking an address", kind))?;
        let Some(address) = assigned.addresses().next() else {
            let reason = assigned.shortfalls.first().map(ToString::to_string).unwrap_or_default();
            let pools = pools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(TunnelError::Exhausted { kind, node: self.node_name.to_owned(), pools, reason });
        };
        tracing::info!(%kind, %address, "took an address for the tunnel device");
        self.taken.push(kind);
        self.wanted.insert(kind, address.to_string().into());
        Ok(())
    }

    async fn remove(&mut self, kind: TunnelKind, node: &Node) -> Result<(), TunnelError> {
        let text = kind.address(node);
        if !text.is_empty() {
            self.wanted.insert(kind, Ip::default());
        }
        if self.release_handle(kind).await? {
            return Ok(());
        }
        // A value that is not an address cannot be allocated either.
        let Ok(address) = text.parse() else { return Ok(()) };
        let allocation =
            self.ipam.allocation(address).await.map_err(self.failed("looking up the address", kind))?;
        let release = match leftover(kind, self.node_name, allocation.as_ref()) {
            Leftover::Nothing => return Ok(()),
            Leftover::NotOurs => {
                tracing::warn!(%kind, %address, "the address is in use elsewhere: left alone");
                return Ok(());
            }
            Leftover::Release => Release::of(address),
            Leftover::ReleaseOfHandle => {
                Release { handle: Some(kind.handle(self.node_name)), ..Release::of(address) }
            }
        };
        let outcome = self.ipam.release_ips(&[release]).await;
        let refusal = outcome.map(|released| released.failure).unwrap_or_else(Some);
        match refusal {
            None => Ok(()),
            Some(error) => Err(self.failed("releasing the address", kind)(error)),
        }
    }

    /// Releases the addresses of the device's handle. Returns false if the handle does not exist.
    async fn release_handle(&self, kind: TunnelKind) -> Result<bool, TunnelError> {
        match self.ipam.release_by_handle(&kind.handle(self.node_name)).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_does_not_exist() => Ok(false),
            Err(error) => Err(self.failed("releasing by handle", kind)(error)),
        }
    }

    /// Releases the addresses taken in this pass. Failing to do so is only logged: the next pass finds them by handle.
    async fn give_back(&self) {
        for kind in &self.taken {
            if let Err(error) = self.release_handle(*kind).await {
                tracing::error!(%error, "could not give back an address after a failure");
            }
        }
    }

    fn current(&self, kind: TunnelKind, node: &Node) -> Result<Option<IpAddr>, TunnelError> {
        let text = kind.address(node);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|reason| TunnelError::NotAnAddress {
            kind,
            node: self.node_name.to_owned(),
            reason,
        })
    }

    fn failed(
        &self,
        step: &'static str,
        kind: TunnelKind,
    ) -> impl FnOnce(ipam::Error) -> TunnelError + use<> {
        let node = self.node_name.to_owned();
        move |source| TunnelError::Ipam { step, kind, node, source: Box::new(source) }
    }
}
