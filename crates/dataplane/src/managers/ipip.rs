//! The device for IP in IP: it is wanted as soon as this host has an address for the tunnel.

use super::{Manager, News, World};
use crate::desired::Desired;
use routing::routes::device::TunnelDevice;
use std::time::Instant;

/// The device as configured.
#[derive(Debug)]
pub(crate) struct IpipDevice {
    wanted: Option<TunnelDevice>,
}

impl IpipDevice {
    /// This device.
    #[must_use]
    pub(crate) fn new(wanted: TunnelDevice) -> Self {
        Self { wanted: Some(wanted) }
    }
}

impl Manager for IpipDevice {
    fn hear(&mut self, _: &News<'_>, _: Instant, _: &mut Desired) {}

    fn write(&mut self, _: &mut World, desired: &mut Desired) {
        if let Some(wanted) = self.wanted.take() {
            desired.devices.set(wanted.name.as_str().into(), Some(wanted));
        }
    }
}
