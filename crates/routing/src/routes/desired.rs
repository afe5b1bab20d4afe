//! The desired routes as a value: what each part of Felix wants by each device, as far as it changed since the table
//! took it.

use super::{Device, RouteClass, RouteKey, RouteTable, Target};
use delta::Changes;
use messages::InterfaceName;
use std::collections::BTreeMap;
use std::fmt;

/// The routes that one part of Felix wants by one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceChange {
    /// All its routes.
    Whole(BTreeMap<RouteKey, Target>),
    /// Some of its routes; `None` for a withdrawn one.
    Some(BTreeMap<RouteKey, Option<Target>>),
}

/// The desired routes of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteChanges {
    /// Routes by class and device.
    pub places: BTreeMap<(RouteClass, Device), PlaceChange>,
    /// Workloads' interfaces behind which a BGP speaker runs: routes there may be the speaker's.
    pub bgp_interfaces: Changes<InterfaceName, ()>,
}

impl RouteChanges {
    /// Sets all routes that one part of Felix wants by a device; any others are withdrawn.
    pub fn set_all(
        &mut self,
        class: RouteClass,
        device: Device,
        targets: impl IntoIterator<Item = (RouteKey, Target)>,
    ) {
        self.places.insert((class, device), PlaceChange::Whole(targets.into_iter().collect()));
    }

    /// Sets or, with `None`, withdraws one route.
    pub fn set(&mut self, class: RouteClass, device: Device, key: RouteKey, target: Option<Target>) {
        let place = self.places.entry((class, device));
        match (place.or_insert_with(|| PlaceChange::Some(BTreeMap::new())), target) {
            (PlaceChange::Whole(routes), Some(target)) => _ = routes.insert(key, target),
            (PlaceChange::Whole(routes), None) => _ = routes.remove(&key),
            (PlaceChange::Some(routes), target) => _ = routes.insert(key, target),
        }
    }

    /// Hands all changes over to a table; no changes are left here.
    pub fn hand_over(&mut self, table: &mut RouteTable) {
        for (interface, speaks) in std::mem::take(&mut self.bgp_interfaces) {
            match speaks {
                Some(()) => table.ownership().bgp_interfaces.insert(interface),
                None => table.ownership().bgp_interfaces.remove(&interface),
            };
        }
        for ((class, device), change) in std::mem::take(&mut self.places) {
            match change {
                PlaceChange::Whole(routes) => table.set_routes(class, &device, routes),
                PlaceChange::Some(routes) => {
                    for (key, target) in routes {
                        table.set_route(class, &device, key, target);
                    }
                }
            }
        }
    }
}

/// One line for each change, for logs and tests.
impl fmt::Display for RouteChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((class, device), change) in &self.places {
            let device = device.as_deref().unwrap_or("no device");
            match change {
                PlaceChange::Whole(routes) => {
                    writeln!(f, "{class:?} by {device}: {} routes", routes.len())?;
                }
                PlaceChange::Some(routes) => {
                    for (key, target) in routes {
                        let sign = if target.is_some() { '+' } else { '-' };
                        writeln!(f, "{sign}{class:?} by {device}: {}", key.destination)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{PlaceChange, RouteChanges};
    use crate::routes::{RouteClass, RouteKey, Target, Way};
    use std::collections::BTreeMap;

    #[test]
    fn single_routes_and_whole_devices_combine() {
        let key = |text: &str| RouteKey::new(text.parse().expect("a network"));
        let target = || Target::new(Way::Direct);
        let (class, device) = (RouteClass::LocalWorkload, Some("cali1".into()));
        let mut changes = RouteChanges::default();
        changes.set(class, device.clone(), key("10.0.0.1/32"), Some(target()));
        changes.set(class, device.clone(), key("10.0.0.1/32"), None);
        assert_eq!(changes.to_string(), "-LocalWorkload by cali1: 10.0.0.1/32\n");
        changes.set_all(class, device.clone(), [(key("10.0.0.2/32"), target())]);
        changes.set(class, device.clone(), key("10.0.0.3/32"), Some(target()));
        changes.set(class, device.clone(), key("10.0.0.2/32"), None);
        let expected = PlaceChange::Whole(BTreeMap::from([(key("10.0.0.3/32"), target())]));
        assert_eq!(changes.places[&(class, device)], expected);
    }
}
