//! The WireGuard device as a link: creates it, configures it, sets its address, removes it.

use ipnet::IpNet;
use netlink::wireguard::KIND;
use netlink::{
    Address, DeviceKind, Error, Family, Kernel, Link, LinkChange, LinkRef, NewLink, Operation, first_failure,
};
use std::net::IpAddr;
use std::path::Path;

/// A device of another kind already has the name.
#[derive(Debug, thiserror::Error)]
#[error(
    "device {name} is of kind '{kind}' instead of wireguard: remove it, or set WireguardInterfaceName to another name"
)]
pub(super) struct NotOurs {
    name: String,
    kind: String,
}

/// The changes needed on an existing device.
fn changes(
    found: &Link,
    addresses: &[Address],
    family: Family,
    mtu: Option<u32>,
    address: Option<IpAddr>,
) -> Vec<Operation> {
    let mut operations = Vec::new();
    let change = |change: LinkChange| Operation::ChangeLink(LinkRef::Index(found.index), change);
    if let Some(mtu) = mtu.filter(|mtu| *mtu != found.mtu) {
        operations.push(change(LinkChange { mtu: Some(mtu), ..LinkChange::default() }));
    }
    let wanted = address.map(|address| IpNet::new_assert(address, family.host_prefix()));
    let mut has_it = false;
    for one in addresses.iter().filter(|one| one.family() == family) {
        let link_local = matches!(one.address.addr(), IpAddr::V6(address) if address.is_unicast_link_local());
        if Some(one.address) == wanted {
            has_it = true;
        } else if !link_local {
            operations.push(Operation::DeleteAddress(one.clone()));
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

/// Creates or changes the device so that it is as desired.
pub(super) fn bring_about(
    kernel: &mut dyn Kernel,
    name: &str,
    family: Family,
    mtu: Option<u32>,
    address: Option<IpAddr>,
) -> Result<(), super::Trouble> {
    let link = LinkRef::Name(name.to_owned());
    let mut found = kernel.link(&link)?;
    if found.is_none() {
        let new = NewLink::new(name, DeviceKind::Plain(KIND.to_owned()));
        match first_failure(kernel.apply(&[Operation::AddLink(new)])) {
            Err(error) if !error.is_exists() => return Err(error.into()),
            _ => tracing::info!(device = name, "created the WireGuard device"),
        }
        found = kernel.link(&link)?;
    }
    let Some(found) = found else { return Err(super::gone(name).into()) };
    if found.kind != KIND {
        return Err(NotOurs { name: name.to_owned(), kind: found.kind }.into());
    }
    let addresses = kernel.addresses(Some(family), Some(found.index))?;
    let operations = changes(&found, &addresses, family, mtu, address);
    first_failure(kernel.apply(&operations))?;
    Ok(())
}

/// Removes the device, if it is of our kind; returns whether it existed.
pub(super) fn remove(kernel: &mut dyn Kernel, name: &str) -> Result<bool, Error> {
    match kernel.link(&name.into())? {
        Some(link) if link.kind == KIND => {
            match first_failure(kernel.apply(&[Operation::DeleteLink(link.index.into())])) {
                Err(error) if !error.is_missing() => Err(error),
                _ => {
                    tracing::info!(device = name, "removed the WireGuard device: WireGuard is not enabled");
                    Ok(true)
                }
            }
        }
        _ => Ok(false),
    }
}

/// Sets whether the kernel processes packets of the device in threads.
pub(super) fn set_threading(name: &str, threaded: bool) -> std::io::Result<()> {
    // Interface names contain no slashes, but these two names would leave the directory all the same.
    if name.contains('/') || name == "." || name == ".." {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let path = Path::new("/sys/class/net").join(name).join("threaded");
    let value = if threaded { "1" } else { "0" };
    if std::fs::read_to_string(&path)?.trim() == value {
        return Ok(());
    }
    std::fs::write(&path, value)
}
