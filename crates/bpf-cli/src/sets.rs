//! `ipsets`: sets of addresses that Calico's programs ask. This dataplane has classes of addresses instead, and no such map.

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::layout::Family;
use clap::Subcommand;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::Write;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps ipsets
    Dump,
}

pub(crate) fn run<F: Family>(as_json: bool, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let name = format!("cali_v{}_ip_sets", F::NUMBER);
    let mut sets: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for (key, _) in maps.entries(&name)? {
        text::sized(&name, &key, 16 + F::WIDTH)?;
        let number = |at: usize| u32::from_ne_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
        let mut set = [0; 8];
        set.copy_from_slice(&key[4..12]);
        let mut address = F::Address::default();
        address.as_mut().copy_from_slice(&key[12..12 + F::WIDTH]);
        let (address, rest) = (text::ip::<F>(&address), &key[12 + F::WIDTH..]);
        let member = match rest[2] {
            0 => format!("{address}/{}", number(0).saturating_sub(64)),
            protocol => format!("{address}:{} (proto {protocol})", u16::from_ne_bytes([rest[0], rest[1]])),
        };
        sets.entry(u64::from_be_bytes(set)).or_default().push(member);
    }
    for members in sets.values_mut() {
        members.sort();
    }
    if as_json {
        let objects =
            sets.iter().map(|(set, members)| json!({"set_id": format!("{set:#x}"), "members": members}));
        return text::json(out, &Json::Array(objects.collect()));
    }
    for (set, members) in &sets {
        writeln!(out, "IP set {set:#x}")?;
        for member in members {
            writeln!(out, "   {member}")?;
        }
        writeln!(out)?;
    }
    if sets.is_empty() {
        writeln!(out, "No IP sets found.")?;
    }
    Ok(())
}
