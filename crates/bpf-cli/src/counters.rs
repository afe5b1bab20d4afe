//! `counters`: the counters of programs, by device and hook.

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::Layout as _;
use bpf::layout::network::{CounterKey, Counters};
use clap::Subcommand;
use serde_json::json;
use std::io::Write;

const MAP: &str = "cali_counters6";

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps counters
    Dump {
        /// Interface name
        #[arg(long)]
        iface: Option<String>,
    },
    /// flush counters
    Flush {
        /// Interface name
        #[arg(long)]
        iface: Option<String>,
    },
}

/// The category, caption and index of each counter, in the order of the output; index 24 is reserved.
const SHOWN: [(&str, &str, usize); 26] = [
    ("Accepted", "by another program", 3),
    ("Accepted", "by failsafe", 1),
    ("Accepted", "by policy", 2),
    ("Dropped", "Maglev lookup found no backends for service IP", 25),
    ("Dropped", "NAT source collision resolution failed", 15),
    ("Dropped", "QoS control limit", 23),
    ("Dropped", "VXLAN encap when host IP unknown", 26),
    ("Dropped", "by policy", 4),
    ("Dropped", "failed decapsulation", 10),
    ("Dropped", "failed encapsulation", 9),
    ("Dropped", "failed to create conntrack", 16),
    ("Dropped", "fragment of yet incomplete packet", 20),
    ("Dropped", "fragment out of order within host", 21),
    ("Dropped", "fragments not supported", 22),
    ("Dropped", "incorrect checksum", 6),
    ("Dropped", "malformed IP packets", 8),
    ("Dropped", "packets hitting blackhole route", 13),
    ("Dropped", "packets with unknown route", 12),
    ("Dropped", "packets with unknown source", 11),
    ("Dropped", "packets with unsupported IP options", 7),
    ("Dropped", "too short packets", 5),
    ("Other", "packets hitting NAT source collision", 14),
    ("Redirect", "neigh", 18),
    ("Redirect", "peer", 19),
    ("Redirect", "plain", 17),
    ("Total", "packets", 0),
];

/// The caption of a counter.
pub(crate) fn caption(place: u32) -> &'static str {
    let shown = SHOWN.iter().find(|(_, _, one)| u32::try_from(*one) == Ok(place));
    shown.map_or("for an unknown reason", |(_, caption, _)| caption)
}

/// The sums over all processors at ingress, egress and XDP, where counted.
type Sums = [Option<[u64; 27]>; 3];

pub(crate) fn run(
    command: &Command,
    as_json: bool,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (Command::Dump { iface } | Command::Flush { iface }) = command;
    let mut devices = maps.devices()?;
    devices.sort_unstable();
    if let Some(name) = iface {
        devices.retain(|(_, other)| other == name);
        if devices.is_empty() {
            return Err(Failure::Wrong(format!("no such interface: {name}")));
        }
    }
    for (index, name) in devices {
        if matches!(command, Command::Flush { .. }) {
            for hook in 0..3 {
                let key = CounterKey { device: index, hook }.bytes();
                if let Some(value) = maps.get(MAP, &key)? {
                    maps.set(MAP, &key, &vec![0; value.len()])?;
                }
            }
            continue;
        }
        let sums = read(index, maps)?;
        if as_json { show_json(&name, &sums, out)? } else { show(&name, &sums, out)? }
    }
    Ok(())
}

fn read(device: u32, maps: &dyn Maps) -> Result<Sums, Failure> {
    let mut sums = Sums::default();
    for (hook, sum) in (0..).zip(&mut sums) {
        let Some(value) = maps.get(MAP, &CounterKey { device, hook }.bytes())? else { continue };
        let mut total = [0_u64; 27];
        for processor in value.chunks_exact(Counters::SIZE) {
            let counted = Counters::read(processor).0;
            for (total, counted) in total.iter_mut().zip(counted) {
                *total = total.wrapping_add(counted);
            }
        }
        *sum = Some(total);
    }
    Ok(sums)
}

fn show_json(name: &str, sums: &Sums, out: &mut dyn Write) -> Result<(), Failure> {
    let counters: Vec<_> = SHOWN
        .iter()
        .map(|(category, caption, place)| {
            let [ingress, egress, xdp] = sums.map(|sum| sum.map(|sum| sum[*place]));
            json!({"category": category, "type": caption, "ingress": ingress, "egress": egress, "xdp": xdp})
        })
        .collect();
    text::json(out, &json!({"interface": name, "counters": counters}))
}

/// Prints a bordered table; a category is only named in its first row.
fn show(name: &str, sums: &Sums, out: &mut dyn Write) -> Result<(), Failure> {
    let number = |sum: &Option<[u64; 27]>, place: usize| {
        sum.map_or_else(|| "N/A".to_owned(), |sum| sum[place].to_string())
    };
    let heads = ["INGRESS", "EGRESS", "XDP"];
    let widths: Vec<usize> = heads
        .iter()
        .zip(sums)
        .map(|(head, sum)| {
            SHOWN.iter().map(|shown| number(sum, shown.2).len()).max().unwrap_or(0).max(head.len())
        })
        .collect();
    let first = SHOWN.iter().map(|shown| shown.0.len()).chain(["CATEGORY".len()]).max().unwrap_or(0);
    let second = SHOWN.iter().map(|shown| shown.1.len()).max().unwrap_or(0);
    let line: String =
        [first, second].iter().chain(&widths).map(|width| format!("+{}", "-".repeat(width + 2))).collect();
    writeln!(out, "{line}+")?;
    write!(out, "| {:<first$} | {:<second$} |", "CATEGORY", "TYPE")?;
    for ((head, width), sum) in heads.iter().zip(&widths).zip(sums) {
        // Headings of number columns are right-aligned, others left-aligned.
        if sum.is_some() { write!(out, " {head:>width$} |")? } else { write!(out, " {head:<width$} |")? }
    }
    writeln!(out, "\n{line}+")?;
    let mut before = "";
    for (category, caption, place) in SHOWN {
        let shown = if category == before { "" } else { category };
        write!(out, "| {shown:<first$} | {caption:<second$} |")?;
        for (width, sum) in widths.iter().zip(sums) {
            write!(out, " {:>width$} |", number(sum, place))?;
        }
        writeln!(out)?;
        before = category;
    }
    Ok(writeln!(out, "{line}+\ndumped {name} counters.")?)
}
