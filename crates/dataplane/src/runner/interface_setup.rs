//! Sets up workloads' interfaces: kernel settings, and the address that a workload peers with by BGP.
//!
//! An interface is set up when it comes up, and when its desired setup changed. This includes interfaces with a
//! workload's name but no known endpoint: the other end must not act as a router there either.

use super::drivers::Plane;
use crate::desired::{Peering, WantedInterface};
use crate::managers::Interfaces;
use delta::Changes;
use messages::InterfaceName;
use netlink::interface_settings::{Setting, workload_settings};
use netlink::{Family, sysctl};
use rules::names;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};

/// The desired setups, and the interfaces that are not set up.
#[derive(Debug)]
pub(super) struct InterfaceSetup {
    wanted: BTreeMap<InterfaceName, WantedInterface>,
    unsettled: BTreeSet<InterfaceName>,
    /// The kernel's source check for new interfaces.
    reverse_path: String,
}

impl InterfaceSetup {
    pub(super) fn new(reverse_path: String) -> Self {
        Self { wanted: BTreeMap::new(), unsettled: BTreeSet::new(), reverse_path }
    }

    /// Takes over the desired setups.
    pub(super) fn take(
        &mut self,
        changes: &mut Changes<InterfaceName, WantedInterface>,
        planes: &mut [Plane],
    ) {
        for (name, wanted) in std::mem::take(changes) {
            match wanted {
                Some(wanted) => {
                    self.wanted.insert(name.clone(), wanted);
                    self.unsettled.insert(name);
                }
                None => {
                    self.wanted.remove(&name);
                    self.unsettled.remove(&name);
                    let all = planes.iter_mut().filter_map(|plane| plane.link_addresses.as_mut());
                    all.for_each(|addresses| addresses.set(&name, None));
                }
            }
        }
    }

    /// Notes that an interface came up, went down or was removed.
    pub(super) fn interface_changed(&mut self, name: &InterfaceName, up: bool, is_workload: bool) {
        if up && (is_workload || self.wanted.contains_key(name)) {
            self.unsettled.insert(name.clone());
        }
    }

    /// Whether an interface is set up.
    pub(super) fn is_set_up(&self, name: &str) -> bool {
        !self.unsettled.contains(name)
    }

    /// Sets up interfaces that are up; those that are down are dropped until they come up. Returns the interfaces that
    /// were set up, and the failures.
    pub(super) fn apply(
        &mut self,
        interfaces: &Interfaces,
        planes: &mut [Plane],
    ) -> (Vec<InterfaceName>, Vec<String>) {
        self.unsettled.retain(|name| interfaces.is_up(name));
        let versions: Vec<IpVersion> = planes.iter().map(|plane| plane.version).collect();
        let (mut done, mut failures) = (Vec::new(), Vec::new());
        for name in self.unsettled.iter().filter(|name| is_safe(name)) {
            let wanted = self.wanted.get(name);
            let any_source = wanted.is_some_and(|wanted| wanted.any_source);
            let reverse_path = if any_source { "0" } else { &self.reverse_path };
            match configure(name, &versions, reverse_path) {
                // The interface was removed; its event will follow, or the next reading notices it.
                Err(error) if error.is_missing() => tracing::debug!(%error, "an interface has disappeared"),
                Err(error) => failures.push(format!("interface of a workload: {error}")),
                Ok(()) => match wanted.map_or(Ok(()), |wanted| set_peering(name, wanted, planes)) {
                    Ok(()) => done.push(name.clone()),
                    Err(reason) => failures.push(format!("{name}: {reason}")),
                },
            }
        }
        done.iter().for_each(|name| _ = self.unsettled.remove(name));
        (done, failures)
    }
}

/// Whether an interface name can be used in a path.
fn is_safe(name: &str) -> bool {
    names::is_interface(name) && name != "." && name != ".."
}

fn configure(name: &str, versions: &[IpVersion], reverse_path: &str) -> Result<(), sysctl::SysctlError> {
    let family = |version: &IpVersion| if *version == IpVersion::V6 { Family::V6 } else { Family::V4 };
    let families: Vec<Family> = versions.iter().map(family).collect();
    let mut settings = workload_settings(name, &families);
    if families.contains(&Family::V4) {
        // Our own rules check sources, so the kernel's filter is set to its value for new interfaces.
        settings.push(Setting::needed(format!("net/ipv4/conf/{name}/rp_filter"), reverse_path));
    }
    for setting in settings {
        match sysctl::ensure(&setting.path, &setting.value) {
            Ok(_) => {}
            Err(error) if setting.is_needed => return Err(error),
            Err(error) => tracing::debug!(%error, "cannot apply a setting of an interface"),
        }
    }
    Ok(())
}

fn set_peering(
    name: &InterfaceName,
    wanted: &WantedInterface,
    planes: &mut [Plane],
) -> Result<(), &'static str> {
    for plane in planes {
        let address = match wanted.peering[usize::from(plane.is_v6())] {
            Peering::None => None,
            Peering::With(address) => Some(address),
            Peering::Missing => return Err("a workload speaks BGP, but no address to peer with is set"),
        };
        if let Some(addresses) = &mut plane.link_addresses {
            addresses.set(name, address);
        }
    }
    Ok(())
}
