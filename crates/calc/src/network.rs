//! The network half of the graph: where addresses are, how packets reach them, and what the dataplane must know about
//! hosts, pools, services, namespaces and service accounts.
//!
//! Each part receives the entries of the feed that concern it and keeps only what it needs to tell changes from
//! repetitions. Parts do not know each other. The other half handles policies, sets and endpoints.

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

use crate::sequencer::Sequencer;
use api::RouteOrigin;
use encapsulation::EncapsulationReport;
use hosts::Hosts;
use messages::NodeName;
use model::feed::{FeedEntry, Status};
use passthrough::Passthrough;
use routes::Routes;
use vteps::Vteps;

/// The settings of the network half.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkSettings {
    /// The source of the workloads' places: endpoints everywhere, or (the default) blocks, and endpoints on this host.
    pub route_source: Option<RouteOrigin>,
    /// The configuration's settings for encapsulation.
    pub encapsulation: EncapsulationSettings,
    /// Whether routes are left out, because nothing on this host uses them.
    pub without_routes: bool,
    /// Whether VXLAN devices are left out, because no pool uses VXLAN.
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
    /// Creates an empty network half, from the point of view of this host.
    pub(crate) fn new(host: NodeName, settings: NetworkSettings) -> Self {
        Self {
            routes: (!settings.without_routes)
                .then(|| Routes::new(host, settings.route_source.unwrap_or(RouteOrigin::CalicoIPAM))),
            vteps: (!settings.without_vteps).then(Vteps::default),
            encapsulation: EncapsulationReport::new(settings.encapsulation),
            hosts: Hosts::default(),
            passthrough: Passthrough::default(),
        }
    }

    /// Applies one entry of the feed. Entries that concern no part are ignored.
    pub(crate) fn on_entry(&mut self, entry: &FeedEntry, out: &mut Sequencer) {
        match entry {
            FeedEntry::Block(cidr, block) => {
                if let Some(routes) = &mut self.routes {
                    routes.on_block(*cidr, block.as_deref());
                }
            }
            FeedEntry::IpPool(cidr, pool) => {
                let pool = pool.as_deref();
                if let Some(routes) = &mut self.routes {
                    routes.on_pool(*cidr, pool);
                }
                self.encapsulation.on_pool(*cidr, pool, out);
                self.passthrough.on_pool(*cidr, pool, out);
            }
            FeedEntry::WorkloadEndpoint(key, endpoint) => {
                if let Some(routes) = &mut self.routes {
                    routes.on_workload(key, endpoint.as_deref());
                }
            }
            FeedEntry::HostConfig(key, text) => {
                if let Some(vteps) = &mut self.vteps {
                    vteps.on_host_config(&key.host, &key.name, text.as_deref(), out);
                }
            }
            FeedEntry::Wireguard(node, keys) => passthrough::on_wireguard(node, keys.as_deref(), out),
            FeedEntry::Node(name, node) => {
                let node = node.as_deref();
                if let Some(routes) = &mut self.routes {
                    routes.on_node(name, node);
                }
                if let Some(vteps) = &mut self.vteps {
                    vteps.on_node(name, node, out);
                }
                self.hosts.on_node(name, node, out);
            }
            FeedEntry::Profile(name, profile) => profile_owners::on_profile(name, profile.as_deref(), out),
            FeedEntry::BgpConfiguration(name, configuration) if name == "default" => {
                self.passthrough.on_bgp_configuration(configuration.as_deref(), out);
            }
            FeedEntry::Service(key, service) => {
                passthrough::on_service(&key.namespace, &key.name, service.as_deref(), out);
            }
            _ => {}
        }
    }

    /// Applies the status of the feed.
    pub(crate) fn on_status(&mut self, status: Status, out: &mut Sequencer) {
        self.encapsulation.on_status(status, out);
    }

    /// Resolves what was left for the flush. Must be called before the sequencer sends.
    pub(crate) fn flush(&mut self, out: &mut Sequencer) {
        if let Some(routes) = &mut self.routes {
            routes.flush(out);
        }
    }
}

#[cfg(test)]
mod tests;
