//! Addresses of workloads' interfaces on the host's side: a workload that speaks BGP peers with this address.
//!
//! An interface has at most one such address per IP version. Addresses of scope "link" on workloads' interfaces are
//! ours, except the one that the kernel assigns by itself.

use super::{Outcome, Ownership};
use delta::{Delta, Operation as Pending};
use ipnet::IpNet;
use messages::InterfaceName;
use netlink::{Address, Errno, Family, Kernel, Operation};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The scope of addresses that are valid on their link only.
const SCOPE_LINK: u8 = 253;

/// The addresses of one IP version.
#[derive(Debug)]
pub struct LinkAddresses {
    family: Family,
    addresses: Delta<(InterfaceName, IpNet), ()>,
    desired: BTreeMap<InterfaceName, IpNet>,
    devices: BTreeMap<InterfaceName, u32>,
    in_sync: bool,
    /// Interfaces that came up since the addresses were read.
    unread: BTreeSet<InterfaceName>,
}

impl LinkAddresses {
    /// A set without addresses.
    #[must_use]
    pub fn new(family: Family) -> Self {
        Self {
            family,
            addresses: Delta::new(),
            desired: BTreeMap::new(),
            devices: BTreeMap::new(),
            in_sync: false,
            unread: BTreeSet::new(),
        }
    }

    /// Sets or, with `None`, removes the address of an interface.
    pub fn set(&mut self, interface: &InterfaceName, address: Option<IpAddr>) {
        let new = address
            .filter(|address| Family::of(address) == self.family)
            .map(|address| IpNet::new_assert(address, self.family.host_prefix()));
        let old = match new {
            Some(new) => self.desired.insert(interface.clone(), new),
            None => self.desired.remove(interface),
        };
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.addresses.remove_desired(&(interface.clone(), old));
        }
        if let Some(new) = new {
            self.addresses.set_desired((interface.clone(), new), ());
        }
    }

    /// Notes that an interface exists, or is gone.
    pub fn device_is(&mut self, name: &InterfaceName, index: Option<u32>) {
        match index {
            Some(index) => {
                if self.devices.insert(name.clone(), index) != Some(index) && self.desired.contains_key(name)
                {
                    self.unread.insert(name.clone());
                }
            }
            None => {
                self.devices.remove(name);
                let gone: Vec<_> = self
                    .addresses
                    .all_actual()
                    .filter(|((one, _), ())| one == name)
                    .map(|(key, ())| key.clone())
                    .collect();
                gone.iter().for_each(|key| self.addresses.remove_actual(key));
            }
        }
    }

    /// Marks all addresses as possibly changed by other programs.
    pub fn invalidate(&mut self) {
        self.in_sync = false;
    }

    fn read(&mut self, kernel: &mut dyn Kernel, ownership: &Ownership) -> Result<(), netlink::Error> {
        if self.in_sync && self.unread.is_empty() {
            return Ok(());
        }
        let names: BTreeMap<u32, &InterfaceName> =
            self.devices.iter().map(|(name, index)| (*index, name)).collect();
        let found = kernel.addresses(Some(self.family), None)?;
        let ours = found.into_iter().filter_map(|address| {
            let name = names.get(&address.index).filter(|name| ownership.is_workload(name))?;
            (address.scope == SCOPE_LINK && !is_the_kernels(&address.address))
                .then(|| (((*name).clone(), address.address), ()))
        });
        let ours: Vec<_> = ours.collect();
        self.addresses.replace_actual(ours);
        self.in_sync = true;
        self.unread.clear();
        Ok(())
    }

    /// Brings the kernel to the desired state.
    pub fn apply(&mut self, kernel: &mut dyn Kernel, ownership: &Ownership) -> Outcome {
        if let Err(error) = self.read(kernel, ownership) {
            return Outcome::failed(&error);
        }
        let (mut keys, mut operations) = (Vec::new(), Vec::new());
        for pending in self.addresses.pending() {
            let (key, removed) = match pending {
                Pending::Create(key, ()) | Pending::Replace(key, (), ()) => (key, false),
                Pending::Remove(key, ()) => (key, true),
            };
            let Some(index) = self.devices.get(&key.0) else { continue };
            let address = Address { scope: SCOPE_LINK, ..Address::new(*index, key.1) };
            keys.push(key.clone());
            operations.push(match removed {
                true => Operation::DeleteAddress(address),
                false => Operation::ReplaceAddress(address),
            });
        }
        let mut outcome = Outcome::default();
        for (key, result) in keys.iter().zip(kernel.apply(&operations)) {
            match result {
                Ok(()) => self.addresses.accept(key),
                Err(error) if matches!(error.errno(), Some(Errno::NODEV | Errno::ADDRNOTAVAIL)) => {
                    self.addresses.remove_actual(key);
                }
                Err(error) => outcome.failures.push(error.to_string()),
            }
        }
        // A change may have taken effect even if its answer was lost: the next attempt reads first.
        self.in_sync = outcome.is_done();
        outcome
    }
}

/// Whether this is the address that the kernel assigns to every interface.
fn is_the_kernels(address: &IpNet) -> bool {
    matches!(address, IpNet::V6(net) if net.addr().is_unicast_link_local() && net.prefix_len() == 64)
}
