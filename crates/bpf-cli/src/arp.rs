//! `arp`: the addresses of neighbours as seen in packets.

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::layout::Family;
use bpf::layout::devices::{Neighbour, NeighbourKey};
use clap::Subcommand;
use serde_json::{Value as Json, json};
use std::io::Write;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps arp
    Dump,
    /// removes all arp entries
    Clean,
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

pub(crate) fn run<F: Family>(
    command: &Command,
    as_json: bool,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let name = format!("cali_v{}_arp2", F::NUMBER);
    let mut all = maps.entries(&name)?;
    if matches!(command, Command::Clean) {
        let keys: Vec<Vec<u8>> = all.into_iter().map(|(key, _)| key).collect();
        return maps.remove(&name, &keys).map(drop);
    }
    all.sort_unstable();
    let mut objects = Vec::new();
    for (key, value) in &all {
        let NeighbourKey::<F> { address, device } = text::read(&name, key)?;
        let Neighbour { source, destination } = text::read(&name, value)?;
        let (address, source, destination) = (text::ip::<F>(&address), mac(&source), mac(&destination));
        if as_json {
            objects.push(json!({
                "ifindex": device, "ip": address.to_string(), "src_mac": source, "dst_mac": destination,
            }));
        } else {
            let address = address.to_string();
            writeln!(out, "dev {device:>4}: {address:>15} : {source} -> {destination}")?;
        }
    }
    if as_json { text::json(out, &Json::Array(objects)) } else { Ok(()) }
}
