//! The driver's part in services: both IP versions, and answers to other components.

use crate::driver::Driver;
use crate::error::Error;
use crate::services::{ServiceMaps, Shared};
use crate::store::Store as _;
use bpf::Layout as _;
use bpf::layout::network::Node;
use bpf::layout::{V4, V6};
use bpf_services::{HealthCheck, Here, Settings, Update};
use messages::ToDataplane;
use std::net::IpAddr;

/// The services of all programmed IP versions.
#[derive(Debug)]
pub(crate) struct Serving {
    v4: ServiceMaps<V4>,
    v6: Option<ServiceMaps<V6>>,
}

impl Serving {
    pub(crate) fn new(settings: &Settings, with_v6: bool) -> Self {
        Self {
            v4: ServiceMaps::new(settings.clone()),
            v6: with_v6.then(|| ServiceMaps::new(settings.clone())),
        }
    }

    /// Shares the services with the thread that sweeps connections.
    pub(crate) fn shared(&self) -> (Shared<V4>, Option<Shared<V6>>) {
        (self.v4.shared().clone(), self.v6.as_ref().map(|one| one.shared().clone()))
    }

    pub(crate) fn invalidate(&mut self) {
        self.v4.invalidate();
        self.v6.iter_mut().for_each(ServiceMaps::invalidate);
    }
}

impl Driver {
    /// Takes in a message about services, or about nodes, whose addresses services need.
    pub fn hear_services(&mut self, message: &ToDataplane) {
        let Some(serving) = &mut self.serving else { return };
        serving.v4.hear(message);
        serving.v6.iter_mut().for_each(|one| one.hear(message));
    }

    /// Sets the addresses by which other nodes know this one, IPv4 and IPv6, and the maximum sizes of encapsulated
    /// packets. Without an address nothing is encapsulated, and remote backends see this node instead of clients.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn write_node(&mut self, addresses: [Option<IpAddr>; 2], rooms: [u32; 2]) -> Result<(), Error> {
        let (mut v4, mut v6) = (Node::<V4>::default(), Node::<V6>::default());
        if let Some(IpAddr::V4(address)) = addresses[0] {
            v4 = Node { address: address.octets(), room: rooms[0] };
        }
        if let Some(IpAddr::V6(address)) = addresses[1] {
            v6 = Node { address: address.octets(), room: rooms[1] };
        }
        for (map, value) in [("bpfp_v4_node", v4.bytes()), ("bpfp_v6_node", v6.bytes())] {
            if self.maps.room(map).is_some() {
                self.maps.write(map, &[(0_u32.bytes(), value)])?;
            }
        }
        Ok(())
    }

    /// Sets the facts about this node.
    pub fn node_is(&mut self, here: &Here) {
        let Some(serving) = &mut self.serving else { return };
        serving.v4.push(Update::Here(here.clone()));
        serving.v6.iter_mut().for_each(|one| one.push(Update::Here(here.clone())));
    }

    /// Whether services have changes to write.
    #[must_use]
    pub fn has_service_changes(&self) -> bool {
        let Some(serving) = &self.serving else { return false };
        serving.v4.is_waiting() || serving.v6.as_ref().is_some_and(ServiceMaps::is_waiting)
    }

    /// Updates the NAT maps; returns how many elements were written or removed. All objects must be known at the first
    /// call: anything else in the maps is removed.
    ///
    /// # Errors
    /// When they do not fit, or the kernel refuses; then the maps are read again with the next attempt.
    pub fn write_services(&mut self) -> Result<usize, Error> {
        let Some(serving) = &mut self.serving else { return Ok(0) };
        let mut count = serving.v4.write(&mut self.maps)?;
        if let Some(v6) = &mut serving.v6 {
            count += v6.write(&mut self.maps)?;
        }
        Ok(count)
    }

    /// The answers for load balancers; for a service with both IP versions, the endpoints are those of the version with
    /// more.
    #[must_use]
    pub fn health_checks(&self) -> Vec<HealthCheck> {
        let Some(serving) = &self.serving else { return Vec::new() };
        let mut all = serving.v4.shared().lock().health_checks();
        for check in serving.v6.iter().flat_map(|one| one.shared().lock().health_checks()) {
            match all.iter_mut().find(|other| other.port == check.port) {
                Some(other) => other.endpoints = other.endpoints.max(check.endpoints),
                None => all.push(check),
            }
        }
        all
    }
}
