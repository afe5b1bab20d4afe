//! `host-local`: addresses from ranges of this host, kept as one file per address.
//!
//! [`config`] reads the request, [`ranges`] iterates over ranges in a circle, [`store`] holds the files. The search for
//! an address starts after the last one assigned, so that a container which keeps failing does not get the same address
//! again.

mod config;
mod ranges;
mod store;

use crate::frame::failure;
use cni_protocol::Call;
use cni_protocol::error::Result;
use cni_protocol::result::{CniResult, Dns, Ip};
use config::Settings;
use std::net::IpAddr;
use store::{Owner, Store};

pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let settings = Settings::read(call)?;
    let dns = match settings.resolv_conf.as_str() {
        "" => Dns::default(),
        path => {
            let text =
                std::fs::read_to_string(path).map_err(|error| failure(format!("open {path}: {error}")))?;
            resolver(&text)
        }
    };
    let store = Store::open(&settings.data_dir, &call.network)?;
    let owner = Owner { container: &call.container_id, interface: &call.ifname };
    let ips = assign(&settings, &store, &owner).inspect_err(|_| {
        // Addresses assigned before the failure are released; only the failure matters to the caller.
        let _ = store.release(&owner);
    })?;
    Ok(CniResult { ips, routes: settings.routes, dns, ..CniResult::default() })
}

pub(crate) fn delete(call: &Call) -> Result<()> {
    let settings = Settings::read(call)?;
    let store = Store::open(&settings.data_dir, &call.network)?;
    store.release(&Owner { container: &call.container_id, interface: &call.ifname })
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let settings = Settings::read(call)?;
    let store = Store::open(&settings.data_dir, &call.network)?;
    let owner = Owner { container: &call.container_id, interface: &call.ifname };
    if store.addresses(&owner)?.is_empty() {
        let message = format!("host-local: Failed to find address added by container {}", call.container_id);
        return Err(failure(message));
    }
    Ok(())
}

/// Assigns one address of each set of ranges: the requested one, or the next.
fn assign(settings: &Settings, store: &Store, owner: &Owner<'_>) -> Result<Vec<Ip>> {
    let mut requested = settings.requested.clone();
    let mut ips = Vec::new();
    for (number, set) in settings.ranges.iter().enumerate() {
        let wanted = requested.iter().position(|address| set.range_of(*address).is_some());
        let given = match wanted.map(|place| requested.remove(place)) {
            Some(address) => assign_requested(set, store, owner, number, address),
            None => assign_next(set, store, owner, number),
        };
        ips.push(
            given
                .map_err(|error| failure(format!("failed to allocate for range {number}: {}", error.msg)))?,
        );
    }
    if requested.is_empty() {
        return Ok(ips);
    }
    let left: Vec<String> = requested.iter().map(IpAddr::to_string).collect();
    Err(failure(format!("failed to allocate all requested IPs: {}", left.join(" "))))
}

fn assign_requested(
    set: &ranges::RangeSet,
    store: &Store,
    owner: &Owner<'_>,
    number: usize,
    address: IpAddr,
) -> Result<Ip> {
    let range = set.range_of(address).ok_or_else(|| failure(format!("{address} not in range set {set}")))?;
    if address == range.gateway {
        return Err(failure(format!("requested ip {address} is subnet's gateway")));
    }
    if !store.reserve(owner, address, number)? {
        let message = format!("requested IP address {address} is not available in range set {set}");
        return Err(failure(message));
    }
    Ok(range.ip(address))
}

fn assign_next(set: &ranges::RangeSet, store: &Store, owner: &Owner<'_>, number: usize) -> Result<Ip> {
    // The protocol does not allow attaching an interface twice.
    if let Some(has) = store.addresses(owner)?.into_iter().find(|address| set.range_of(*address).is_some()) {
        let message =
            format!("{has} has been allocated to {}, duplicate allocation is not allowed", owner.container);
        return Err(failure(message));
    }
    for (address, range) in set.after(store.last(number)) {
        if store.reserve(owner, address, number)? {
            return Ok(range.ip(address));
        }
    }
    Err(failure(format!("no IP addresses available in range set: {set}")))
}

/// The name resolution settings of a `resolv.conf`.
fn resolver(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (Some(keyword), Some(first)) = (words.next(), words.next()) else { continue };
        match keyword.as_str() {
            "nameserver" => dns.nameservers.push(first),
            "domain" => dns.domain = first,
            "search" => dns.search.extend(std::iter::once(first).chain(words)),
            "options" => dns.options.extend(std::iter::once(first).chain(words)),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests;
