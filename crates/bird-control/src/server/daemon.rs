//! `show status`, `show interfaces`, `show memory`.

use super::facts::{DaemonFacts, InterfaceFacts, MemoryFacts};
use super::text::Text;
use ipnet::IpNet;
use jiff::Timestamp;
use model::IpVersion;
use std::net::IpAddr;

pub(super) fn status(text: &mut Text, facts: &DaemonFacts) {
    text.line(1000, format_args!("BIRD {}", facts.version));
    text.line(1011, format_args!("Router ID is {}", facts.router_id));
    text.line(1011, format_args!("Current server time is {}", moment(facts.now)));
    text.line(1011, format_args!("Last reboot on {}", moment(facts.booted)));
    text.line(1011, format_args!("Last reconfiguration on {}", moment(facts.reconfigured)));
    if let Some(recovery) = facts.recovery {
        text.line(24, format_args!("Graceful restart recovery in progress"));
        text.line(24, format_args!("  Waiting for {} protocols to recover", recovery.waiting_for));
        text.line(24, format_args!("  Wait timer is {}/{}", recovery.timer.left, recovery.timer.total));
    }
    text.end(13, format_args!("Daemon is up and running"));
}

fn moment(at: Timestamp) -> impl std::fmt::Display {
    at.strftime("%Y-%m-%d %H:%M:%S")
}

pub(super) fn interfaces(text: &mut Text, interfaces: &[InterfaceFacts], summary: bool) {
    if summary {
        text.line(2005, format_args!("interface state address"));
    }
    for interface in interfaces {
        let state = if interface.up { "up" } else { "DOWN" };
        if summary {
            let first = interface.first(IpVersion::V4).or_else(|| interface.first(IpVersion::V6));
            let address = first.map(|net| net.to_string()).unwrap_or_default();
            let state = if interface.up { "up" } else { "down" };
            text.line(1005, format_args!("{:<9} {state:<5} {address}", interface.name));
            continue;
        }
        text.line(1001, format_args!("{} {state} (index={})", interface.name, interface.index));
        text.line(1004, format_args!("\t{} MTU={}", interface.flags.join(" "), interface.mtu));
        for (number, address) in interface.addresses.iter().enumerate() {
            let primary = if number == 0 { "Primary, " } else { "" };
            let scope = scope(address.address);
            text.line(1003, format_args!("\t{} ({primary}scope {scope})", address.address));
        }
    }
    text.end(0, format_args!(""));
}

/// BIRD's notion of an address's scope.
fn scope(network: IpNet) -> &'static str {
    match network.addr() {
        address if address.is_loopback() => "host",
        IpAddr::V4(address) if address.is_link_local() => "link",
        IpAddr::V4(address) if address.is_private() => "site",
        IpAddr::V6(address) if address.is_unicast_link_local() => "link",
        IpAddr::V6(address) if address.is_unique_local() => "site",
        _ => "univ",
    }
}

pub(super) fn memory(text: &mut Text, facts: &MemoryFacts) {
    text.line(1018, format_args!("BIRD memory usage"));
    let rows = [
        ("Routing tables:", facts.tables),
        ("Route attributes:", facts.attributes),
        ("Protocols:", facts.protocols),
        ("Total:", facts.total),
    ];
    for (title, bytes) in rows {
        let (amount, unit) = match bytes {
            0..10_000 => (bytes, " B"),
            10_000..10_240_000 => (bytes >> 10, "kB"),
            _ => (bytes >> 20, "MB"),
        };
        text.line(1018, format_args!("{title:<17} {amount:>4} {unit}"));
    }
    text.end(0, format_args!(""));
}
