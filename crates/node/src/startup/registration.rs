//! Registers the node's resource in the datastore: reads, decides, checks against the other nodes and writes; repeats
//! if another writer was faster. Used once by start-up, and continuously by the address monitor.

use super::addresses::{HostFacts, interfaces, settle};
use super::node_resource::{conflicts, desired, without_addresses};
use super::{Cluster, StartupError, failed, has_networking};
use crate::autodetect::{Facts, Interface, Method};
use crate::context::Context;
use crate::environment::{AddressSetting, FamilySettings};
use api::scalars::IpOrCidr;
use api::{Node, NodeSpec};
use client::{Client, ListQuery};
use model::IpVersion;
use std::net::IpAddr;

/// How often writing the resource is attempted: enough for any fair competition on a busy host.
const ATTEMPTS: usize = 100;

/// Brings the node's resource up to date. Returns true if it was written.
///
/// # Errors
/// When the node has no address, or one that another node has. In that case earlier detected addresses are removed from
/// the resource, so that they are free for the node that has them now.
pub(crate) async fn register(
    context: &Context,
    client: &Client,
    cluster: &Cluster,
    node_name: &str,
) -> Result<bool, StartupError> {
    let mut attempt = 1;
    loop {
        match try_register(context, client, cluster, node_name).await {
            Err(StartupError::Datastore { source, .. })
                if (source.is_conflict() || source.is_already_exists()) && attempt < ATTEMPTS =>
            {
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

async fn try_register(
    context: &Context,
    client: &Client,
    cluster: &Cluster,
    node_name: &str,
) -> Result<bool, StartupError> {
    let nodes = client.resource::<NodeSpec>();
    let stored = match nodes.get("", node_name).await {
        Ok(node) => node,
        Err(error) if error.is_does_not_exist() => Node::new("", node_name, NodeSpec::default()),
        Err(error) => return Err(failed(&format!("reading node {node_name}"))(error)),
    };
    let node = if has_networking(context) {
        let node = with_addresses(context, client, cluster, &stored).await?;
        let addressing_changed =
            node.spec.bgp != stored.spec.bgp || node.spec.interfaces != stored.spec.interfaces;
        if addressing_changed && !context.settings.skip_conflict_check {
            check_conflicts(context, client, &stored, &node).await?;
        }
        node
    } else {
        desired(&stored, &context.settings, None)
    };
    if node == stored {
        return Ok(false);
    }
    let outcome = if node.metadata.resource_version.is_empty() {
        nodes.create(node).await
    } else {
        nodes.update(node).await
    };
    outcome.map_err(failed(&format!("writing node {node_name}")))?;
    Ok(true)
}

/// The resource with the desired addresses.
async fn with_addresses(
    context: &Context,
    client: &Client,
    cluster: &Cluster,
    stored: &Node,
) -> Result<Node, StartupError> {
    let settings = &context.settings;
    let host_interfaces = context.host.interfaces()?;
    let bgp = stored.spec.bgp.clone().unwrap_or_default();
    let facts = HostFacts {
        ipv4: facts(
            context,
            IpVersion::V4,
            settings.family(IpVersion::V4),
            &host_interfaces,
            cluster,
            &bgp.ipv4_address,
        )
        .await,
        ipv6: facts(
            context,
            IpVersion::V6,
            settings.family(IpVersion::V6),
            &host_interfaces,
            cluster,
            &bgp.ipv6_address,
        )
        .await,
    };
    match settle(settings, stored, &facts) {
        Ok(addresses) => {
            for warning in &addresses.warnings {
                tracing::warn!("{warning}");
            }
            // The expressions are ours, so this cannot fail.
            let interfaces = interfaces(settings, &host_interfaces).unwrap_or_default();
            tracing::info!(ipv4 = %addresses.ipv4, ipv6 = %addresses.ipv6, "addresses of this node");
            Ok(desired(stored, settings, Some((&addresses, interfaces))))
        }
        Err(error) => {
            let detected = IpVersion::BOTH.into_iter();
            let detected = detected.filter(|version| is_autodetected(settings.family(*version)));
            take_back(client, stored, &detected.collect::<Vec<_>>()).await;
            Err(error.into())
        }
    }
}

/// Collects the facts that the choice for one family is based on.
async fn facts<'a>(
    context: &Context,
    family: IpVersion,
    settings: FamilySettings<'_>,
    interfaces: &'a [Interface],
    cluster: &Cluster,
    stored: &IpOrCidr,
) -> Facts<'a> {
    let reached = match Method::parse(settings.method) {
        // Resolving a name may take long, so this is done only if needed.
        Ok(Method::CanReach(destination)) if is_looked_for(family, settings, stored) => {
            Some(context.host.reach(&destination, family).await)
        }
        _ => None,
    };
    let stored: Option<IpAddr> = stored.parse().ok().map(|network| network.address());
    Facts { interfaces, reached, internal_addresses: cluster.internal_addresses.clone(), stored }
}

fn is_autodetected(settings: FamilySettings<'_>) -> bool {
    *settings.address == AddressSetting::Autodetect
}

fn is_looked_for(family: IpVersion, settings: FamilySettings<'_>, stored: &IpOrCidr) -> bool {
    is_autodetected(settings)
        || (family == IpVersion::V4 && *settings.address == AddressSetting::Unset && stored.is_empty())
}

async fn check_conflicts(
    context: &Context,
    client: &Client,
    stored: &Node,
    node: &Node,
) -> Result<(), StartupError> {
    let list =
        client.resource::<NodeSpec>().list(&ListQuery::all()).await.map_err(failed("listing nodes"))?;
    for entry in &list.invalid {
        tracing::warn!(
            node = entry.key,
            reason = entry.reason,
            "cannot tell whether this node has our address"
        );
    }
    let found = conflicts(node, &list.items)?;
    if found.is_empty() {
        return Ok(());
    }
    let settings = &context.settings;
    let families: Vec<IpVersion> = IpVersion::BOTH
        .into_iter()
        .filter(|version| {
            is_autodetected(settings.family(*version))
                && found.iter().any(|conflict| conflict.family == *version)
        })
        .collect();
    take_back(client, stored, &families).await;
    Err(StartupError::Conflict(found))
}

/// Removes outdated addresses from a stored node. Failing to do so is only logged, because the error that led here is
/// worse and is the one to report.
async fn take_back(client: &Client, stored: &Node, families: &[IpVersion]) {
    if stored.metadata.resource_version.is_empty() {
        return;
    }
    let Some(node) = without_addresses(stored, families) else { return };
    tracing::info!(?families, "clearing out-of-date addresses of this node");
    if let Err(error) = client.resource::<NodeSpec>().update(node).await {
        tracing::warn!(%error, "could not clear the addresses of this node");
    }
}
