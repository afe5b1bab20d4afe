//! `portmap`: forwards ports of the host to a container.
//!
//! [`config`] reads the request. [`nft`] writes it natively into the reference plugin's own nftables tables and is the
//! default, because it needs no program on the host. [`iptables`] exists for configurations that select it by name, by
//! a condition or by a mark chain, and to remove the rules of the reference plugin: ours may detach a container that
//! the reference plugin has attached. A repeated ADD replaces the container's rules.

mod config;
mod iptables;
mod nft;

use crate::frame::{failure, previous_result};
use cni_protocol::Call;
use cni_protocol::error::Result;
use cni_protocol::result::CniResult;
use config::{Backend, Settings};
use netlink::{Family, Handle, Kernel as _, LinkRef, sysctl};
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let settings = Settings::read(call)?;
    let Some(previous) = previous_result(call)? else {
        return Err(failure("must be called as chained plugin"));
    };
    if settings.mappings.is_empty() {
        return Ok(previous);
    }
    for address in config::container_addresses(&previous, &call.ifname) {
        match settings.backend {
            Backend::Nftables => nft::add(&settings, address)?,
            Backend::Iptables => iptables::add(&settings, address)?,
        }
        forget_flows(&settings, address);
        if settings.snat && address.is_ipv4() {
            route_from_localhost(address)?;
        }
    }
    Ok(previous)
}

pub(crate) fn delete(call: &Call) -> Result<()> {
    let settings = Settings::read(call)?;
    if settings.mappings.is_empty() {
        return Ok(());
    }
    // Either backend may have created the rules: of this plugin, an older one, or the reference plugin.
    let natively = nft::delete(&settings.container);
    iptables::delete(&settings, settings.backend == Backend::Iptables)?;
    natively
}

pub(crate) fn check(call: &Call) -> Result<()> {
    let settings = Settings::read(call)?;
    let Some(previous) = previous_result(call)? else {
        return Err(failure("Required prevResult missing"));
    };
    if settings.mappings.is_empty() {
        return Ok(());
    }
    for address in config::container_addresses(&previous, &call.ifname) {
        match settings.backend {
            Backend::Nftables => nft::check(&settings, address)?,
            Backend::Iptables => iptables::check(&settings, address)?,
        }
    }
    Ok(())
}

/// UDP flows to the mapped ports keep their old destination until they are forgotten. Failing to forget them is not an
/// error: they end by themselves.
fn forget_flows(settings: &Settings, address: IpAddr) {
    let udp = settings.mappings.iter().filter(|mapping| mapping.protocol == config::Protocol::Udp);
    let ports: BTreeSet<u16> = udp.map(|mapping| mapping.host_port).collect();
    if ports.is_empty() {
        return;
    }
    let forgotten = netlink::netfilter::conntrack::Client::open()
        .and_then(|mut client| client.forget_udp_ports(Family::of(&address), &ports));
    if let Err(error) = forgotten {
        // The runtime stores what plugins write to standard error.
        eprintln!("portmap: stale UDP flows of {address} could not be forgotten: {error}");
    }
}

/// Allows packets from 127/8 to leave by the container's device: without it, a mapped port does not answer on
/// localhost.
fn route_from_localhost(address: IpAddr) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| failure(format!("unable to enable route_localnet: {error}"));
    let mut kernel = Handle::open().map_err(|error| failed(&error))?;
    let Some(index) = kernel.device_towards(address).map_err(|error| failed(&error))? else { return Ok(()) };
    let Some(link) = kernel.link(&LinkRef::Index(index)).map_err(|error| failed(&error))? else {
        return Ok(());
    };
    sysctl::write(&format!("net/ipv4/conf/{}/route_localnet", link.name), "1").map_err(|error| failed(&error))
}
