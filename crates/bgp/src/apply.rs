//! Applies stored objects to the state, by their keys. Objects that do not concern BGP are ignored.

use crate::convert;
use crate::facts::{LocalPeer, ObjectName};
use crate::state::BgpState;
use api::scalars::Cidr;
use api::{Kind, ObjectMeta, Resource};
use model::ResourceKey;
use model::feed::{FeedEntry, NamespacedName};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

impl BgpState {
    /// Sets a resource, or removes it. Returns whether its kind matters here.
    pub fn set_resource(&mut self, key: &ResourceKey, resource: Option<&Resource>) -> bool {
        let name = key.name.as_str();
        let object = || ObjectName { namespace: key.namespace.clone(), name: key.name.clone() };
        match (key.kind, resource) {
            (_, Some(Resource::Node(node))) => self.set_node(name, Some(node)),
            (Kind::Node, _) => self.set_node(name, None),
            (_, Some(Resource::IPPool(pool))) => self.set_pool(name, Some(&pool.spec)),
            (Kind::IPPool, _) => self.set_pool(name, None),
            (_, Some(Resource::BGPConfiguration(configuration))) => {
                self.set_configuration(name, Some(&configuration.spec));
                self.set_configuration_annotations(name, &configuration.metadata.annotations);
            }
            (Kind::BGPConfiguration, _) => {
                self.set_configuration(name, None);
                self.set_configuration_annotations(name, &BTreeMap::new());
            }
            (_, Some(Resource::BGPPeer(peer))) => {
                self.set_peer(name, Some(&peer.spec));
                self.set_peer_annotations(name, &peer.metadata.annotations);
            }
            (Kind::BGPPeer, _) => {
                self.set_peer(name, None);
                self.set_peer_annotations(name, &BTreeMap::new());
            }
            (_, Some(Resource::BGPFilter(filter))) => self.set_filter(name, Some(&filter.spec)),
            (Kind::BGPFilter, _) => self.set_filter(name, None),
            (_, Some(Resource::KubernetesService(service))) => {
                self.set_service(&object(), Some(convert::service(&service.spec, &service.status)));
            }
            (Kind::KubernetesService, _) => self.set_service(&object(), None),
            (_, Some(Resource::KubernetesEndpointSlice(slice))) => {
                self.set_slice(&object(), convert::slice(&slice.metadata, &slice.spec));
            }
            (Kind::KubernetesEndpointSlice, _) => self.set_slice(&object(), None),
            _ => return false,
        }
        true
    }

    /// Applies an entry of a feed; returns `false` for one that BGP does not depend on.
    pub fn set_entry(&mut self, entry: &FeedEntry) -> bool {
        let object =
            |key: &NamespacedName| ObjectName { namespace: key.namespace.clone(), name: key.name.clone() };
        match entry {
            FeedEntry::Node(name, node) => self.set_node(name, node.as_ref().map(|node| &node.object)),
            FeedEntry::IpPool(network, pool) => self.set_feed_pool(&network.to_string(), pool.as_deref()),
            FeedEntry::BlockAffinity(key, affinity) => self.set_affinity(key, affinity.as_ref()),
            FeedEntry::BgpConfiguration(name, configuration) => {
                self.set_configuration(name, configuration.as_ref().map(|configuration| &configuration.spec));
                let metadata = configuration.as_ref().map(|configuration| &configuration.metadata);
                self.set_configuration_annotations(name, &annotations(metadata));
            }
            FeedEntry::BgpPeer(name, peer) => {
                let object = peer.as_ref().map(|peer| &peer.object);
                self.set_peer(name, object.map(|object| &object.spec));
                self.set_peer_annotations(name, &annotations(object.map(|object| &object.metadata)));
            }
            FeedEntry::BgpFilter(name, filter) => {
                self.set_filter(name, filter.as_ref().map(|filter| &filter.spec));
            }
            FeedEntry::Service(key, service) => {
                let service =
                    service.as_ref().map(|service| convert::service(&service.spec, &service.status));
                self.set_service(&object(key), service);
            }
            FeedEntry::EndpointSlice(key, slice) => {
                let slice = slice.as_ref().and_then(|slice| convert::slice(&slice.metadata, &slice.spec));
                self.set_slice(&object(key), slice);
            }
            _ => return false,
        }
        true
    }
}

/// The annotations of an object; empty if it is gone.
fn annotations(metadata: Option<&ObjectMeta>) -> BTreeMap<String, String> {
    metadata.map(|metadata| metadata.annotations.clone()).unwrap_or_default()
}

/// The part of a workload's status file, written by Felix, that BGP needs.
#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct EndpointStatus {
    ipv4_nets: Vec<String>,
    ipv6_nets: Vec<String>,
    bgp_peer_name: String,
}

impl LocalPeer {
    /// Parses a workload's status file; `None` for a workload that no BGPPeer selects, or that has no address yet.
    ///
    /// # Errors
    /// When the text is not such a file: it may be partly written.
    pub fn from_status(json: &[u8]) -> Result<Option<Self>, String> {
        let status: EndpointStatus = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let first = |networks: &[String]| -> Result<Option<IpAddr>, String> {
            networks.first().map(|text| Ok(Cidr::new(text).parse()?.address())).transpose()
        };
        let (v4, v6) = (first(&status.ipv4_nets)?, first(&status.ipv6_nets)?);
        if status.bgp_peer_name.is_empty() || (v4.is_none() && v6.is_none()) {
            return Ok(None);
        }
        Ok(Some(Self { peer: status.bgp_peer_name, v4, v6 }))
    }
}
