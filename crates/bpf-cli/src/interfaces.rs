//! `ifstate`: the devices that have programs.

use crate::maps::{Failure, Maps};
use crate::text;
use clap::Subcommand;
use serde_json::{Value as Json, json};
use std::io::Write;

const MAP: &str = "cali_iface4";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps interface states
    Dump,
}

const FLAGS: [(u32, &str); 11] = [
    (0x1, "workload"),
    (0x2, "v4Ready"),
    (0x4, "v6Ready"),
    (0x8, "host"),
    (0x10, "bond"),
    (0x20, "bondslave"),
    (0x40, "vxlan"),
    (0x80, "ipip"),
    (0x100, "wg"),
    (0x200, "l3"),
    (0x400, "notmanaged"),
];

/// A device, as far as people want to know.
pub(crate) struct Device {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) flags: u32,
    /// Places in the arrays of programs: XDP, ingress, egress for IPv4; the same for IPv6; filters in and out.
    programs: [i32; 8],
}

/// What the map has, by number.
pub(crate) fn read(maps: &dyn Maps) -> Result<Vec<Device>, Failure> {
    let mut all = Vec::new();
    for (key, value) in maps.entries(MAP)? {
        text::sized(MAP, &value, 52)?;
        let number = |at: usize| u32::from_ne_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        all.push(Device {
            index: text::read(MAP, &key)?,
            name: String::from_utf8_lossy(&value[4..20]).trim_end_matches('\0').to_owned(),
            flags: number(0),
            programs: std::array::from_fn(|place| number(20 + 4 * place).cast_signed()),
        });
    }
    all.sort_unstable_by_key(|device| device.index);
    Ok(all)
}

pub(crate) fn run(as_json: bool, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let devices = read(maps)?;
    // A device without any flag is the host's.
    let flags = |device: &Device| match text::names(device.flags, &FLAGS) {
        none if none.is_empty() => vec!["host"],
        names => names,
    };
    if as_json {
        let objects = devices.iter().map(|device| {
            let [xdp4, in4, out4, xdp6, in6, out6, filter_in, filter_out] = device.programs;
            json!({
                "ifindex": device.index, "name": device.name, "flags": flags(device),
                "ingress_policy_v4": in4, "egress_policy_v4": out4, "xdp_policy_v4": xdp4,
                "ingress_policy_v6": in6, "egress_policy_v6": out6, "xdp_policy_v6": xdp6,
                "tc_ingress_filter": filter_in, "tc_egress_filter": filter_out,
            })
        });
        return text::json(out, &Json::Array(objects.collect()));
    }
    for device in &devices {
        let [xdp4, in4, out4, xdp6, in6, out6, filter_in, filter_out] = device.programs;
        writeln!(
            out,
            "{:>5} : {{flags: {}, XDPPolicyV4: {xdp4}, IngressPolicyV4: {in4}, EgressPolicyV4: {out4}, \
             XDPPolicyV6: {xdp6}, IngressPolicyV6: {in6}, EgressPolicyV6: {out6}, IngressFilter: {filter_in}, \
             EgressFilter: {filter_out}, name: {}}}",
            device.index,
            flags(device).join(","),
            device.name
        )?;
    }
    Ok(())
}
