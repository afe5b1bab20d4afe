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

/// What an optional value holds, if it is of this variant.
macro_rules! held {
    ($value:expr, $variant:path) => {
        $value.and_then(|value| match value {
            $variant(inner) => Some(&**inner),
            _ => None,
        })
    };
}

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
            Key::Resource(key) => self.on_resource(key, held!(value, FeedValue::Resource), out),
            Key::Block { cidr } => {
                if let Some(routes) = &mut self.routes {
                    routes.on_block(*cidr, held!(value, FeedValue::Block));
                }
            }
            Key::V1(V1Key::IpPool { cidr }) => {
                let pool = held!(value, FeedValue::IpPool);
                if let Some(routes) = &mut self.routes {
                    routes.on_pool(*cidr, pool);
                }
                self.encapsulation.on_pool(*cidr, pool, out);
                self.passthrough.on_pool(*cidr, pool, out);
            }
            Key::V1(V1Key::WorkloadEndpoint { host, orchestrator, workload, endpoint }) => {
                if let Some(routes) = &mut self.routes {
                    let name = (orchestrator.as_str(), workload.as_str(), endpoint.as_str());
                    routes.on_workload(host, name, held!(value, FeedValue::WorkloadEndpoint));
                }
            }
            Key::V1(V1Key::HostConfig { host, name }) => {
                if let Some(vteps) = &mut self.vteps {
                    let text = value.and_then(|value| match value {
                        FeedValue::Text(text) => Some(text.as_str()),
                        _ => None,
                    });
                    vteps.on_host_config(host, name, text, out);
                }
            }
            Key::V1(V1Key::Wireguard { node }) => {
                passthrough::on_wireguard(node, held!(value, FeedValue::Wireguard), out);
            }
            _ => {}
        }
    }

    fn on_resource(&mut self, key: &ResourceKey, resource: Option<&Resource>, out: &mut Sequencer) {
        match key.kind {
            Kind::Node => {
                let node = held!(resource, Resource::Node);
                if let Some(routes) = &mut self.routes {
                    routes.on_node(&key.name, node);
                }
                if let Some(vteps) = &mut self.vteps {
                    vteps.on_node(&key.name, node, out);
                }
                self.hosts.on_node(&key.name, node, out);
            }
            Kind::Profile => {
                profile_owners::on_profile(&key.name, held!(resource, Resource::Profile), out);
            }
            Kind::BGPConfiguration if key.name == "default" => {
                self.passthrough.on_bgp_configuration(held!(resource, Resource::BGPConfiguration), out);
            }
            Kind::KubernetesService => {
                let service = held!(resource, Resource::KubernetesService);
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
        if let Some(routes) = &mut self.routes {
            routes.flush(out);
        }
    }
}

#[cfg(test)]
mod tests;
