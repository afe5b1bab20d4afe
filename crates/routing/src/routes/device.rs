//! Tunnel devices: created, changed or recreated until they are as desired. The desired device is a value; the changes
//! needed on an existing device are a list of operations.

use super::Outcome;
use delta::{Changes, Retry};
use ipnet::IpNet;
use messages::InterfaceName;
use netlink::{
    Address, DeviceKind, Error, Family, Kernel, Link, LinkChange, LinkRef, MacAddress, NewLink, Operation,
    Vxlan, first_failure,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

/// The desired state of a tunnel device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelDevice {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: TunnelKind,
    /// Its only address; `None` for a device whose packets have another source.
    pub address: Option<IpAddr>,
    /// Its MTU; `None` to leave it unchanged.
    pub mtu: Option<u32>,
}

/// A kind of tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// VXLAN, with the device's hardware address.
    Vxlan(Vxlan, MacAddress),
    /// IP in IP.
    Ipip,
}

impl TunnelDevice {
    fn new_link(&self) -> NewLink {
        match &self.kind {
            TunnelKind::Vxlan(vxlan, mac) => NewLink {
                mac: Some(*mac),
                mtu: self.mtu,
                ..NewLink::new(&self.name, DeviceKind::Vxlan(vxlan.clone()))
            },
            TunnelKind::Ipip => NewLink::new(&self.name, DeviceKind::Plain("ipip".to_owned())),
        }
    }

    /// The IP version of its packets.
    fn family(&self) -> Family {
        let local = match &self.kind {
            TunnelKind::Vxlan(vxlan, _) => vxlan.local,
            TunnelKind::Ipip => None,
        };
        self.address.or(local).map_or(Family::V4, |address| Family::of(&address))
    }

    /// Why a device has to be recreated; `None` when it can stay.
    #[must_use]
    pub fn is_unfit(&self, found: &Link) -> Option<String> {
        let TunnelKind::Vxlan(wanted, mac) = &self.kind else { return None };
        let Some(vxlan) = &found.vxlan else { return Some(format!("it is a {} device", found.kind)) };
        let differs =
            |what: &str, is: String, should: String| Some(format!("its {what} is {is} instead of {should}"));
        if vxlan.vni != wanted.vni {
            return differs("network identifier", vxlan.vni.to_string(), wanted.vni.to_string());
        }
        if vxlan.parent != wanted.parent {
            return differs("parent", format!("{:?}", vxlan.parent), format!("{:?}", wanted.parent));
        }
        if vxlan.local.is_some() && vxlan.local != wanted.local {
            return differs("local address", format!("{:?}", vxlan.local), format!("{:?}", wanted.local));
        }
        if vxlan.port != wanted.port {
            return differs("port", vxlan.port.to_string(), wanted.port.to_string());
        }
        if vxlan.group_policy != wanted.group_policy {
            return differs("group policy", vxlan.group_policy.to_string(), wanted.group_policy.to_string());
        }
        if found.mac.is_some_and(|found| found != *mac) {
            return differs("hardware address", format!("{:?}", found.mac), mac.to_string());
        }
        None
    }

    /// The operations needed on a device that can stay.
    #[must_use]
    pub fn changes(&self, found: &Link, addresses: &[Address]) -> Vec<Operation> {
        let mut operations = Vec::new();
        let change = |change: LinkChange| Operation::ChangeLink(LinkRef::Index(found.index), change);
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu != found.mtu) {
            operations.push(change(LinkChange { mtu: Some(mtu), ..LinkChange::default() }));
        }
        let family = self.family();
        let wanted = self.address.map(|address| IpNet::new_assert(address, family.host_prefix()));
        let mut has_it = false;
        for address in addresses.iter().filter(|address| address.family() == family) {
            // The kernel gives every device its link-local address.
            let link_local =
                matches!(address.address.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
            if Some(address.address) == wanted {
                has_it = true;
            } else if !link_local {
                operations.push(Operation::DeleteAddress(address.clone()));
            }
        }
        if let Some(wanted) = wanted.filter(|_| !has_it) {
            operations.push(Operation::AddAddress(Address::new(found.index, wanted)));
        }
        if !found.up {
            operations.push(change(LinkChange { up: Some(true), ..LinkChange::default() }));
        }
        operations
    }

    /// Brings the device to the desired state; returns whether something had to be done.
    ///
    /// # Errors
    /// The kernel's first refusal.
    pub fn bring_about(&self, kernel: &mut dyn Kernel) -> Result<bool, Error> {
        let name = LinkRef::Name(self.name.clone());
        let mut made = false;
        let mut found = kernel.link(&name)?;
        if let Some(reason) = found.as_ref().and_then(|found| self.is_unfit(found)) {
            tracing::warn!(device = self.name, reason, "recreating a tunnel device that is not as desired");
            first_failure(kernel.apply(&[Operation::DeleteLink(name.clone())]))?;
            found = None;
        }
        if found.is_none() {
            let outcome = first_failure(kernel.apply(&[Operation::AddLink(self.new_link())]));
            match outcome {
                Err(error) if !error.is_exists() => return Err(error),
                _ => made = true,
            }
            found = kernel.link(&name)?;
        }
        let Some(found) = found else {
            return Err(Error::Refused {
                what: format!("make {name}"),
                errno: netlink::Errno::NODEV,
                message: "it disappeared again, or another device has its network identifier".to_owned(),
            });
        };
        let addresses = kernel.addresses(Some(self.family()), Some(found.index))?;
        let operations = self.changes(&found, &addresses);
        if operations.is_empty() {
            return Ok(made);
        }
        first_failure(kernel.apply(&operations))?;
        tracing::info!(device = self.name, address = ?self.address, "tunnel device is ready");
        Ok(true)
    }
}

/// The desired tunnel devices. A device is checked when something about it changed.
#[derive(Debug, Default)]
pub struct TunnelDevices {
    wanted: BTreeMap<InterfaceName, TunnelDevice>,
    unsettled: BTreeSet<InterfaceName>,
    /// Devices that the kernel does not support.
    unsupported: BTreeSet<InterfaceName>,
}

impl TunnelDevices {
    /// Takes over the changes of desired devices; `changes` is empty afterwards. A device that is no longer wanted is
    /// left alone.
    pub fn take(&mut self, changes: &mut Changes<InterfaceName, TunnelDevice>) {
        for (name, device) in std::mem::take(changes) {
            match device {
                Some(device) => {
                    self.wanted.insert(name.clone(), device);
                    self.unsettled.insert(name);
                }
                None => {
                    self.wanted.remove(&name);
                    self.unsettled.remove(&name);
                }
            }
        }
    }

    /// Notes that an interface was added, removed or changed.
    pub fn interface_changed(&mut self, name: &InterfaceName) {
        if self.wanted.contains_key(name) {
            self.unsettled.insert(name.clone());
        }
    }

    /// Marks all devices as possibly changed by other programs.
    pub fn invalidate(&mut self) {
        self.unsettled.extend(self.wanted.keys().cloned());
    }

    /// Brings the devices to the desired state.
    pub fn apply(&mut self, kernel: &mut dyn Kernel) -> Outcome {
        let mut outcome = Outcome::default();
        for name in std::mem::take(&mut self.unsettled) {
            let Some(device) = self.wanted.get(&name) else { continue };
            match device.bring_about(kernel) {
                Ok(_) => {}
                Err(error) if error.is_unsupported() => {
                    if self.unsupported.insert(name) {
                        tracing::error!(%error, device = device.name, "the kernel does not support this tunnel");
                    }
                }
                Err(error) => {
                    outcome.failures.push(error.to_string());
                    self.unsettled.insert(name);
                }
            }
        }
        outcome
    }
}

/// Tunnels of a former configuration, which are removed at the start. Failures are retried with increasing pauses and
/// block nothing else.
#[derive(Debug)]
pub struct UnusedTunnels {
    devices: Vec<&'static str>,
    /// A device that the kernel does not delete: its addresses are removed instead.
    lasting: Option<&'static str>,
    retry: Retry,
}

impl UnusedTunnels {
    /// `vxlan` are the unused VXLAN devices, `ipip` is the unused device for IP in IP.
    #[must_use]
    pub fn new(vxlan: [Option<&'static str>; 2], ipip: Option<&'static str>) -> Self {
        Self { devices: vxlan.into_iter().flatten().collect(), lasting: ipip, retry: Retry::default() }
    }

    /// Removes what is left of them, if it is due; returns when to call again.
    pub fn remove(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Option<Instant> {
        if self.retry.due().is_some() && !self.retry.is_due(now) {
            return self.retry.due();
        }
        let failed = |outcome: Result<(), Error>| {
            outcome.is_err_and(|error| {
                tracing::warn!(%error, "cannot remove an unused tunnel; retrying");
                true
            })
        };
        self.devices.retain(|name| failed(remove(kernel, name, "vxlan")));
        self.lasting = self.lasting.filter(|name| failed(remove_addresses(kernel, name)));
        self.retry.note(!self.devices.is_empty() || self.lasting.is_some(), now);
        self.retry.due()
    }
}

/// Deletes a tunnel device of this kind that is no longer used.
///
/// # Errors
/// The kernel's refusal.
pub fn remove(kernel: &mut dyn Kernel, name: &str, kind: &str) -> Result<(), Error> {
    match kernel.link(&name.into())? {
        Some(link) if link.kind == kind => {
            match first_failure(kernel.apply(&[Operation::DeleteLink(link.index.into())])) {
                Err(error) if !error.is_missing() => Err(error),
                _ => {
                    tracing::info!(device = name, "removed a tunnel device that is no longer used");
                    Ok(())
                }
            }
        }
        _ => Ok(()),
    }
}

/// Removes the IPv4 addresses from a device that the kernel does not delete.
///
/// # Errors
/// The kernel's first refusal.
pub fn remove_addresses(kernel: &mut dyn Kernel, name: &str) -> Result<(), Error> {
    let Some(link) = kernel.link(&name.into())? else { return Ok(()) };
    let addresses = kernel.addresses(Some(Family::V4), Some(link.index))?;
    let operations: Vec<_> = addresses.into_iter().map(Operation::DeleteAddress).collect();
    first_failure(kernel.apply(&operations))
}
