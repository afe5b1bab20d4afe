//! The network half of the graph: where addresses are, how to get there, and what the dataplane must know about hosts,
//! pools, services, namespaces and service accounts.
//!
//! Each part hears the entries of the feed that concern it and keeps only what it needs to tell news from repetition.
//! Parts do not know each other. Policies, sets and endpoints are the other half's business.

mod encapsulation;
#[cfg(test)]
mod fixtures;
mod hosts;
mod node_addresses;
mod passthrough;
mod profile_owners;
mod routes;
mod vteps;

pub use encapsulation::{EncapsulationNeed, EncapsulationSettings};
pub use routes::RouteSource;

use crate::sequencer::Sequencer;
use api::{Kind, Resource};
use encapsulation::EncapsulationReport;
use hosts::Hosts;
use messages::Text;
use model::feed::{FeedValue, Status, Update};
use model::{Key, ResourceKey, V1Key};
use passthrough::Passthrough;
use routes::Routes;
use vteps::Vteps;

/// What the network half must know about its host.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkSettings {
    /// Where the places of workloads are read from.
    pub route_source: RouteSource,
    /// What the configuration says about encapsulation.
    pub encapsulation: EncapsulationSettings,
    /// Whether routes are left out: nothing on this host makes use of them.
    pub without_routes: bool,
    /// Whether VXLAN devices are left out: no pool uses VXLAN.
    pub without_vteps: bool,
}

/// The parts of the network half.
#[derive(Debug)]
pub(crate) struct Network {
    routes: Option<Routes>,
    vteps: Option<Vteps>,
    encapsulation: EncapsulationReport,
    hosts: Hosts,
    passthrough: Passthrough,
}

impl Network {
    /// A network about which nothing is known yet, as seen from this host.
    pub(crate) fn new(host: Text, settings: NetworkSettings) -> Self {
        Self {
            routes: (!settings.without_routes).then(|| Routes::new(host, settings.route_source)),
            vteps: (!settings.without_vteps).then(Vteps::default),
            encapsulation: EncapsulationReport::new(settings.encapsulation),
            hosts: Hosts::default(),
            passthrough: Passthrough::default(),
        }
    }

    /// Takes in one entry of the feed. Entries that concern no part are ignored.
    pub(crate) fn on_update(&mut self, update: &Update, out: &mut Sequencer) {
        let value = update.value.as_ref();
        match &update.key {
            Key::Block { cidr } => {
                self.routes.on_block(
                    *cidr,
                    value.and_then(|value| match value {
                        FeedValue::Block(block) => Some(&**block),
                        _ => None,
                    }),
                );
            }
            Key::Resource(key) => {
                let resource = value.and_then(|value| match value {
                    FeedValue::Resource(resource) => Some(&**resource),
                    _ => None,
                });
                self.on_resource(key, resource, out);
            }
            Key::V1(V1Key::IpPool { cidr }) => {
                let pool = value.and_then(|value| match value {
                    FeedValue::IpPool(pool) => Some(&**pool),
                    _ => None,
                });
                self.routes.on_pool(*cidr, pool);
                self.encapsulation.on_pool(*cidr, pool, out);
                self.passthrough.on_pool(*cidr, pool, out);
            }
            Key::V1(V1Key::WorkloadEndpoint { host, orchestrator, workload, endpoint }) => {
                let value = value.and_then(|value| match value {
                    FeedValue::WorkloadEndpoint(endpoint) => Some(&**endpoint),
                    _ => None,
                });
                self.routes.on_workload(host, (orchestrator, workload, endpoint), value);
            }
            Key::V1(V1Key::HostConfig { host, name }) => {
                let value = value.and_then(|value| match value {
                    FeedValue::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                self.vteps.on_host_config(host, name, value, out);
            }
            Key::V1(V1Key::Wireguard { node }) => {
                let value = value.and_then(|value| match value {
                    FeedValue::Wireguard(wireguard) => Some(&**wireguard),
                    _ => None,
                });
                passthrough::on_wireguard(node, value, out);
            }
            _ => {}
        }
    }

    fn on_resource(&mut self, key: &ResourceKey, resource: Option<&Resource>, out: &mut Sequencer) {
        match key.kind {
            Kind::Node => {
                let node = resource.and_then(|resource| match resource {
                    Resource::Node(node) => Some(&**node),
                    _ => None,
                });
                self.routes.on_node(&key.name, node);
                self.vteps.on_node(&key.name, node, out);
                self.hosts.on_node(&key.name, node, out);
            }
            Kind::Profile => {
                let profile = resource.and_then(|resource| match resource {
                    Resource::Profile(profile) => Some(&**profile),
                    _ => None,
                });
                profile_owners::on_profile(&key.name, profile, out);
            }
            Kind::BGPConfiguration if key.name == "default" => {
                let config = resource.and_then(|resource| match resource {
                    Resource::BGPConfiguration(config) => Some(&**config),
                    _ => None,
                });
                self.passthrough.on_bgp_configuration(config, out);
            }
            Kind::KubernetesService => {
                let service = resource.and_then(|resource| match resource {
                    Resource::KubernetesService(service) => Some(&**service),
                    _ => None,
                });
                passthrough::on_service(&key.namespace, &key.name, service, out);
            }
            _ => {}
        }
    }

    /// Takes in how far the feed has come.
    pub(crate) fn on_status(&mut self, status: Status, out: &mut Sequencer) {
        self.encapsulation.on_status(status, out);
    }

    /// Resolves what was left for the flush. Called before the sequencer sends.
    pub(crate) fn flush(&mut self, out: &mut Sequencer) {
        self.routes.flush(out);
    }
}
