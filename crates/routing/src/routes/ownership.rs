//! Which routes of a table are ours.
//!
//! Calico began with a protocol number that everyone uses ("boot"), so a route is ours when it has the number that only
//! we use, or leads to a device of ours.

use messages::{InterfaceName, Text};
use netlink::Route;
use std::collections::BTreeSet;

/// The number that `ip route` uses by default.
pub const PROTOCOL_BOOT: u8 = 3;
/// The number of routes that only Calico creates.
pub const PROTOCOL_CALICO: u8 = 80;
/// BIRD's number.
pub const PROTOCOL_BIRD: u8 = 12;

/// The criteria by which a route is ours.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    /// Whether the table is ours alone: then all routes without a device or by our own devices are ours.
    pub whole_table: bool,
    /// The prefixes of workloads' interface names.
    pub workload_prefixes: Vec<Text>,
    /// Whether any route to a workload's interface counts as ours (`RemoveExternalRoutes`).
    pub all_workload_routes: bool,
    /// The protocol number of routes to workloads (`DeviceRouteProtocol`).
    pub device_protocol: u8,
    /// Devices whose routes are all ours.
    pub own_devices: Vec<InterfaceName>,
    /// The device on which BIRD's routes are ours too, since we program the cluster's routes on it.
    pub bird_device: Option<InterfaceName>,
    /// Interfaces of workloads that speak BGP themselves: BIRD's routes there remain BIRD's.
    pub bgp_interfaces: BTreeSet<InterfaceName>,
}

impl Ownership {
    /// The protocol number that only we use: the configured one, unless that is the one everyone uses.
    #[must_use]
    pub fn exclusive_protocol(&self) -> u8 {
        if self.device_protocol == PROTOCOL_BOOT { PROTOCOL_CALICO } else { self.device_protocol }
    }

    /// Whether this is a workload's interface.
    #[must_use]
    pub fn is_workload(&self, device: &str) -> bool {
        self.workload_prefixes.iter().any(|prefix| device.starts_with(&**prefix))
    }

    /// Whether a route is ours; `device` is the name of its device, if it has one.
    #[must_use]
    pub fn is_ours(&self, route: &Route, device: Option<&str>) -> bool {
        let is_own_device = |device: &str| self.own_devices.iter().any(|own| **own == *device);
        if self.whole_table {
            return device.is_none_or(is_own_device);
        }
        let exclusive = self.exclusive_protocol();
        if route.protocol == exclusive {
            return true;
        }
        let Some(device) = device else { return false };
        if self.is_workload(device) {
            if !self.all_workload_routes {
                return route.protocol == self.device_protocol;
            }
            return !(route.protocol == PROTOCOL_BIRD && self.bgp_interfaces.contains(device));
        }
        if self.bird_device.as_deref() == Some(device) && route.protocol == PROTOCOL_BIRD {
            return true;
        }
        is_own_device(device)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ownership, PROTOCOL_BIRD, PROTOCOL_BOOT, PROTOCOL_CALICO};
    use netlink::Route;

    #[test]
    fn ours_by_number_or_by_device() {
        let ownership = Ownership {
            whole_table: false,
            workload_prefixes: vec!["cali".into(), "tap".into()],
            all_workload_routes: true,
            device_protocol: PROTOCOL_BOOT,
            own_devices: vec!["vxlan.calico".into()],
            bird_device: Some("tunl0".into()),
            bgp_interfaces: ["cali2".into()].into(),
        };
        let careful = Ownership { all_workload_routes: false, ..ownership.clone() };
        let numbered = Ownership { device_protocol: 99, all_workload_routes: false, ..ownership.clone() };
        for (device, protocol, expected) in [
            (Some("eth0"), PROTOCOL_BOOT, [false; 3]),
            (Some("eth0"), PROTOCOL_CALICO, [true, true, false]),
            (Some("eth0"), 99, [false, false, true]),
            (None, PROTOCOL_CALICO, [true, true, false]),
            (None, PROTOCOL_BOOT, [false; 3]),
            (Some("cali1"), PROTOCOL_BOOT, [true, true, false]),
            (Some("cali1"), 4, [true, false, false]),
            (Some("tap9"), PROTOCOL_BIRD, [true, false, false]),
            (Some("cali2"), PROTOCOL_BIRD, [false; 3]),
            (Some("tunl0"), PROTOCOL_BIRD, [true; 3]),
            (Some("tunl0"), 4, [false; 3]),
            (Some("vxlan.calico"), 4, [true; 3]),
        ] {
            let route = Route { protocol, ..Route::new("10.0.0.0/8".parse().expect("a network")) };
            let found = [&ownership, &careful, &numbered].map(|one| one.is_ours(&route, device));
            assert_eq!(found, expected, "{device:?} {protocol}");
        }
        let alone = Ownership { whole_table: true, ..ownership };
        for (device, expected) in
            [(None, true), (Some("vxlan.calico"), true), (Some("eth0"), false), (Some("cali1"), false)]
        {
            for protocol in [PROTOCOL_BOOT, PROTOCOL_CALICO, 4] {
                let route = Route { protocol, ..Route::new("10.0.0.0/8".parse().expect("a network")) };
                assert_eq!(alone.is_ours(&route, device), expected, "{device:?} {protocol}");
            }
        }
    }
}
