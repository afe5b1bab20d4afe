//! `ifstate`: the devices with programs.

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::layout::devices::{Device, flags};
use clap::Subcommand;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::Write;

const MAP: &str = "cali_iface4";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps interface states
    Dump,
}

const FLAGS: [(u32, &str); 11] = [
    (flags::WORKLOAD, "workload"),
    (flags::V4_READY, "v4Ready"),
    (flags::V6_READY, "v6Ready"),
    (flags::HOST, "host"),
    (flags::BOND, "bond"),
    (flags::BOND_PART, "bondslave"),
    (flags::VXLAN, "vxlan"),
    (flags::IPIP, "ipip"),
    (flags::WIREGUARD, "wg"),
    (flags::LAYER_3, "l3"),
    (flags::NOT_MANAGED, "notmanaged"),
];

/// Reads the map, by interface index.
pub(crate) fn read(maps: &dyn Maps) -> Result<BTreeMap<u32, Device>, Failure> {
    maps.entries(MAP)?
        .iter()
        .map(|(key, value)| Ok((text::read(MAP, key)?, text::read(MAP, value)?)))
        .collect()
}

fn name(device: &Device) -> String {
    String::from_utf8_lossy(&device.name).trim_end_matches('\0').to_owned()
}

pub(crate) fn run(as_json: bool, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let devices = read(maps)?;
    // A device without flags belongs to the host.
    let names = |device: &Device| match text::names(device.flags, &FLAGS) {
        none if none.is_empty() => vec!["host"],
        some => some,
    };
    if as_json {
        let objects = devices.iter().map(|(index, device)| {
            let [xdp4, in4, out4, xdp6, in6, out6, filter_in, filter_out] = device.places;
            json!({
                "ifindex": index, "name": name(device), "flags": names(device),
                "ingress_policy_v4": in4, "egress_policy_v4": out4, "xdp_policy_v4": xdp4,
                "ingress_policy_v6": in6, "egress_policy_v6": out6, "xdp_policy_v6": xdp6,
                "tc_ingress_filter": filter_in, "tc_egress_filter": filter_out,
            })
        });
        return text::json(out, &Json::Array(objects.collect()));
    }
    for (index, device) in &devices {
        let [xdp4, in4, out4, xdp6, in6, out6, filter_in, filter_out] = device.places;
        writeln!(
            out,
            "{index:>5} : {{flags: {}, XDPPolicyV4: {xdp4}, IngressPolicyV4: {in4}, EgressPolicyV4: {out4}, \
             XDPPolicyV6: {xdp6}, IngressPolicyV6: {in6}, EgressPolicyV6: {out6}, IngressFilter: {filter_in}, \
             EgressFilter: {filter_out}, name: {}}}",
            names(device).join(","),
            name(device)
        )?;
    }
    Ok(())
}
