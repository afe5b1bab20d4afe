//! Nodes: the first one initialises the datastore, because on a cluster without Kubernetes it is the first thing that
//! users create. Deleting a node also deletes everything that exists only because of it.
//!
//! On Kubernetes, nodes are Kubernetes' own: the store refuses to create or delete them, and nothing is cleaned up.

use super::KindHooks;
use crate::Client;
use crate::query::{DeleteOptions, ListQuery};
use api::{
    BGPConfigurationSpec, BGPPeerSpec, FelixConfigurationSpec, HostEndpointSpec, Kind, Node, NodeSpec,
    Resource, WorkloadEndpoint, WorkloadEndpointIdentifiers, WorkloadEndpointSpec,
};
use async_trait::async_trait;
use datastore::{Error, Result};
use ipam::{Ipam, Release};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

pub(super) struct NodeHooks;

#[async_trait]
impl KindHooks for NodeHooks {
    async fn check_create(&self, client: &Client, _resource: &Resource) -> Result<()> {
        client.ensure_initialized("", "").await
    }

    async fn delete(
        &self,
        client: &Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        if !client.backend().is_kubernetes() {
            clean_up(client, name).await?;
        }
        client.delete_plain(kind, namespace, name, options).await
    }
}

/// Releases addresses, whatever their handle. A free address is not an error.
async fn release_addresses(ipam: &Ipam, addresses: &BTreeSet<IpAddr>) -> Result<()> {
    let releases: Vec<Release> = addresses.iter().copied().map(Release::of).collect();
    match ipam.release_ips(&releases).await?.failure {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}

async fn clean_up(client: &Client, node: &str) -> Result<()> {
    let endpoints = workload_endpoints(client, node).await?;
    let mut addresses = BTreeSet::new();
    for network in endpoints.iter().flat_map(|endpoint| &endpoint.spec.ip_networks) {
        add_address(network.as_str(), &mut addresses);
    }
    match client.resource::<NodeSpec>().get("", node).await {
        Ok(node) => add_tunnel_addresses(&node, &mut addresses),
        // The node may be gone already while its data is not.
        Err(error) if error.is_does_not_exist() => {}
        Err(error) => return Err(error),
    }
    let ipam = Ipam::new(Arc::clone(client.backend()));
    tolerated(release_addresses(&ipam, &addresses).await)?;
    for endpoint in &endpoints {
        let metadata = &endpoint.metadata;
        delete(client, Kind::WorkloadEndpoint, &metadata.namespace, &metadata.name).await?;
    }
    tolerated(ipam.remove_ipam_host(node).await.map_err(Error::from))?;

    for peer in client.resource::<BGPPeerSpec>().list(&ListQuery::all()).await?.items {
        if peer.spec.node == node {
            delete(client, Kind::BGPPeer, "", &peer.metadata.name).await?;
        }
    }
    let own_settings = format!("node.{node}");
    delete_typed::<FelixConfigurationSpec>(client, &own_settings).await?;
    delete_typed::<BGPConfigurationSpec>(client, &own_settings).await?;
    for endpoint in client.resource::<HostEndpointSpec>().list(&ListQuery::all()).await?.items {
        if endpoint.spec.node == node {
            delete(client, Kind::HostEndpoint, "", &endpoint.metadata.name).await?;
        }
    }
    Ok(())
}

async fn workload_endpoints(client: &Client, node: &str) -> Result<Vec<WorkloadEndpoint>> {
    let identifiers =
        WorkloadEndpointIdentifiers { node: node.to_owned(), ..WorkloadEndpointIdentifiers::default() };
    let prefix = identifiers.prefix().map_err(|error| {
        crate::any::one_error("metadata.name", node, format!("{}: {}", error.field, error.reason))
    })?;
    let list = client.resource::<WorkloadEndpointSpec>().list(&ListQuery::with_name_prefix(&prefix)).await?;
    // Names of endpoints of node `n-x` also start with the prefix of node `n`.
    Ok(list.items.into_iter().filter(|endpoint| endpoint.spec.node == node).collect())
}

fn add_tunnel_addresses(node: &Node, addresses: &mut BTreeSet<IpAddr>) {
    let spec = &node.spec;
    let (bgp, wireguard) = (spec.bgp.as_ref(), spec.wireguard.as_ref());
    let texts = [
        bgp.map_or("", |bgp| bgp.ipv4_ipip_tunnel_addr.as_str()),
        spec.ipv4_vxlan_tunnel_addr.as_str(),
        spec.ipv6_vxlan_tunnel_addr.as_str(),
        wireguard.map_or("", |wireguard| wireguard.interface_ipv4_address.as_str()),
        wireguard.map_or("", |wireguard| wireguard.interface_ipv6_address.as_str()),
    ];
    for text in texts.into_iter().filter(|text| !text.is_empty()) {
        add_address(text, addresses);
    }
}

fn add_address(text: &str, addresses: &mut BTreeSet<IpAddr>) {
    match api::scalars::IpOrCidr::new(text).parse() {
        Ok(network) => {
            addresses.insert(network.address());
        }
        Err(error) => {
            tracing::warn!(text, error, "an address of the node cannot be read and is not released");
        }
    }
}

async fn delete_typed<S: crate::Storable>(client: &Client, name: &str) -> Result<()> {
    delete(client, S::KIND, "", name).await
}

async fn delete(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<()> {
    tolerated(client.delete_any(kind, namespace, name, &DeleteOptions::default()).await.map(|_| ()))
}

/// Tolerates objects that are already gone, or unknown to this store.
fn tolerated(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::DoesNotExist { .. } | Error::NotSupported { .. }) => Ok(()),
        outcome => outcome,
    }
}
