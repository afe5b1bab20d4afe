//! `profiling`: the processing times of packets in programs, by device, since the last query (`BPFProfiling`).

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::Layout as _;
use bpf::layout::network::{Profile, ProfileKey};
use clap::Subcommand;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;

const MAP: &str = "cali_profiling2";
/// Headings of the kinds of packets, by number; new flows, and known ones.
const HEADS: [&str; 4] = ["INGRESS NEW", "INGRESS EST", "EGRESS NEW", "EGRESS EST"];
/// The names of the kinds in JSON.
const NAMES: [&str; 4] = ["ingressNew", "ingressEstablished", "egressNew", "egressEstablished"];
/// Shown where nothing was timed.
const NOTHING: &str = "---";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Shows average e2e latency for every interface since last query
    E2e,
}

/// The sums over all processors, by kind.
type Sums = [Option<Profile>; 4];

pub(crate) fn run(
    Command::E2e: &Command,
    as_json: bool,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut timed = take(maps)?;
    let mut devices = maps.devices()?;
    devices.sort_unstable();
    let known = devices.into_iter().filter_map(|(index, name)| Some((name, timed.remove(&index)?)));
    let known: Vec<(String, Sums)> = known.collect();
    if as_json { show_json(&known, out) } else { show(&known, out) }
}

/// Removes the current values from the map, so that the next query covers packets from now on.
fn take(maps: &mut dyn Maps) -> Result<BTreeMap<u32, Sums>, Failure> {
    let mut timed: BTreeMap<u32, Sums> = BTreeMap::new();
    let mut keys = Vec::new();
    for (bytes, value) in maps.entries(MAP)? {
        let key: ProfileKey = text::read(MAP, &bytes)?;
        let Some(place) = usize::try_from(key.kind).ok().filter(|place| *place < HEADS.len()) else {
            continue;
        };
        let mut total = Profile::default();
        for processor in value.chunks_exact(Profile::SIZE).map(Profile::read) {
            total.time = total.time.wrapping_add(processor.time);
            total.samples = total.samples.wrapping_add(processor.samples);
        }
        timed.entry(key.device).or_default()[place] = Some(total);
        keys.push(bytes);
    }
    if !keys.is_empty() {
        maps.remove(MAP, &keys)?;
    }
    Ok(timed)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn average(profile: Profile) -> Option<f64> {
    (profile.samples > 0).then(|| profile.time as f64 / profile.samples as f64)
}

fn show_json(devices: &[(String, Sums)], out: &mut dyn Write) -> Result<(), Failure> {
    let all: Vec<_> = devices
        .iter()
        .map(|(name, sums)| {
            let mut object = serde_json::Map::from_iter([("interface".to_owned(), json!(name))]);
            object.extend(NAMES.iter().zip(sums).map(|(name, sum)| {
                let value = sum.map(|sum| json!({"nanoseconds": average(sum), "packets": sum.samples}));
                ((*name).to_owned(), json!(value))
            }));
            serde_json::Value::Object(object)
        })
        .collect();
    text::json(out, &json!(all))
}

/// Prints a bordered table. Headings of text columns are left-aligned, and all cells except names are right-aligned.
fn show(devices: &[(String, Sums)], out: &mut dyn Write) -> Result<(), Failure> {
    let heads: Vec<&str> =
        ["IFACE"].into_iter().chain(HEADS.into_iter().flat_map(|head| [head, "#"])).collect();
    let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(String::len);
        cells.chain(heads.get(column).map(|head| head.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line: String = widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect();
    writeln!(out, "{line}+")?;
    for (column, (head, width)) in heads.iter().zip(&widths).enumerate() {
        let is_number = |row: &Vec<String>| row.get(column).is_some_and(|cell| cell.parse::<u64>().is_ok());
        // Calico's table also treats "0" of a missing average as text; programs never write that.
        match rows.iter().all(is_number) {
            true => write!(out, "| {head:>width$} ")?,
            false => write!(out, "| {head:<width$} ")?,
        }
    }
    writeln!(out, "|\n{line}+")?;
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column {
                0 => write!(out, "| {cell:<width$} ")?,
                _ => write!(out, "| {cell:>width$} ")?,
            }
        }
        writeln!(out, "|")?;
    }
    Ok(writeln!(out, "{line}+")?)
}

fn row((name, sums): &(String, Sums)) -> Vec<String> {
    let cells = |sum: &Option<Profile>| match sum {
        None => [NOTHING.to_owned(), NOTHING.to_owned()],
        Some(sum) => {
            let time = average(*sum).map_or_else(|| NOTHING.to_owned(), |time| format!("{time:.3} ns"));
            [time, sum.samples.to_string()]
        }
    };
    [name.clone()].into_iter().chain(sums.iter().flat_map(cells)).collect()
}
