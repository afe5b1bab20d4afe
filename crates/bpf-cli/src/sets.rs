//! `ipsets`: sets of addresses that Calico's programs use. This dataplane has classes of addresses instead, and no such
//! map.

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::layout::Family;
use bpf::layout::sets::MemberKey;
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
        let MemberKey::<F> { set, bits, address, port, protocol } = text::read(&name, &key)?;
        let address = text::ip::<F>(&address);
        let member = match protocol {
            0 => format!("{address}/{bits}"),
            protocol => format!("{address}:{port} (proto {protocol})"),
        };
        sets.entry(set).or_default().push(member);
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
