//! The driver's part in services: both IP versions together, and what others ask about them.

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

/// Services of all IP versions that there are programs for.
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

    /// For the thread that takes out connections.
    pub(crate) fn shared(&self) -> (Shared<V4>, Option<Shared<V6>>) {
        (self.v4.shared().clone(), self.v6.as_ref().map(|one| one.shared().clone()))
    }

    pub(crate) fn invalidate(&mut self) {
        self.v4.invalidate();
        self.v6.iter_mut().for_each(ServiceMaps::invalidate);
    }
}

impl Driver {
    /// Takes a message about services, or about nodes, whose addresses they need.
    pub fn hear_services(&mut self, message: &ToDataplane) {
        let Some(serving) = &mut self.serving else { return };
        serving.v4.hear(message);
        serving.v6.iter_mut().for_each(|one| one.hear(message));
    }

    /// The addresses by which other nodes know this one, IPv4 and IPv6, and how long a packet in an envelope may be. Without an
    /// address there are no envelopes, and backends elsewhere see this node in the place of clients.
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

    /// What is known of this node.
    pub fn node_is(&mut self, here: &Here) {
        let Some(serving) = &mut self.serving else { return };
        serving.v4.push(Update::Here(here.clone()));
        serving.v6.iter_mut().for_each(|one| one.push(Update::Here(here.clone())));
    }

    /// Whether services have something to be written.
    #[must_use]
    pub fn has_service_changes(&self) -> bool {
        let Some(serving) = &self.serving else { return false };
        serving.v4.is_waiting() || serving.v6.as_ref().is_some_and(ServiceMaps::is_waiting)
    }

    /// Brings the NAT maps to what services say; how many elements were written or removed. All objects must be known with the first
    /// call: what the maps have beside them is removed.
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

    /// What load balancers are told; the endpoints of a service with both IP versions are those of the one that has more.
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
