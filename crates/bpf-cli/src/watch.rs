//! `watch`: shows packets as programs drop them, with interface, reason and rule. Only in Tortie: Calico has the trace
//! pipe. Programs report packets only while a command watches; concurrent watchers get a part of the packets each.

use crate::counters::caption;
use crate::maps::{Failure, Maps};
use crate::text;
use bpf::Layout as _;
use bpf::layout::event::{self, Event};
use clap::Args;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

const QUEUE: &str = "bpfp_events";
const NAMES: &str = "bpfp_names";
const WATCHED: &str = "bpfp_watched";
const PAUSE: Duration = Duration::from_millis(200);
/// How long programs keep reporting after the watcher last renewed its request, in nanoseconds: a killed watcher is
/// forgotten.
const PATIENCE: u64 = 5_000_000_000;

#[derive(Args, Clone, Debug)]
pub(crate) struct Command {
    /// Only packets of this interface
    #[arg(long)]
    iface: Option<String>,
    /// End after this many seconds; by default, never
    #[arg(long)]
    seconds: Option<u64>,
}

pub(crate) fn run(
    command: &Command,
    as_json: bool,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let begin = maps.now();
    let end = command.seconds.map(|seconds| begin.saturating_add(seconds.saturating_mul(1_000_000_000)));
    loop {
        maps.set(WATCHED, &0_u32.bytes(), &(maps.now() + PATIENCE).bytes())?;
        let devices: BTreeMap<u32, String> = maps.devices()?.into_iter().collect();
        while let Some(bytes) = maps.pop(QUEUE)? {
            let event: Event = text::read(QUEUE, &bytes)?;
            let device = devices.get(&event.device).cloned().unwrap_or_else(|| event.device.to_string());
            // Events from before this command started are skipped.
            if event.time >= begin && command.iface.as_ref().is_none_or(|wanted| *wanted == device) {
                show(&event, &device, rule_name(event.rule, maps), as_json, out)?;
            }
        }
        out.flush()?;
        if end.is_some_and(|end| maps.now() >= end) || !maps.pause(PAUSE) {
            return maps.set(WATCHED, &0_u32.bytes(), &0_u64.bytes());
        }
    }
}

/// The NFLOG prefix of a rule with this id. Programs of an earlier version have no such map.
pub(crate) fn rule_name(rule: u64, maps: &dyn Maps) -> Option<String> {
    let bytes = maps.get(NAMES, &rule.bytes()).ok().flatten()?;
    Some(event::rule_name(&bytes))
}

fn show(
    event: &Event,
    device: &str,
    rule: Option<String>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let reason = caption(event.reason);
    let rule = rule.or_else(|| (event.rule != 0).then(|| format!("{:016x}", event.rule)));
    let direction = ["ingress", "egress", "xdp"].get(usize::from(event.hook)).unwrap_or(&"unknown");
    if as_json {
        let object = json!({
            "interface": device, "hook": direction, "reason": reason, "rule": rule, "proto": event.protocol,
            "src": event.source, "src_port": event.source_port, "dst": event.destination,
            "dst_port": event.destination_port, "length": event.length, "mark": event.mark, "time": event.time,
        });
        return Ok(writeln!(out, "{object}")?);
    }
    write!(out, "{device} {direction}: ")?;
    let end = |address, port| SocketAddr::new(address, port);
    match event.protocol {
        0 => write!(out, "unreadable")?,
        protocol @ (6 | 17 | 132) => {
            let protocol = [(6, "TCP"), (17, "UDP")].iter().find(|(number, _)| *number == protocol);
            let protocol = protocol.map_or("SCTP", |(_, name)| name);
            let (from, to) =
                (end(event.source, event.source_port), end(event.destination, event.destination_port));
            write!(out, "{protocol} {from} -> {to}")?;
        }
        1 | 58 => {
            let [kind, code] = event.destination_port.to_be_bytes();
            write!(out, "ICMP {} -> {} type {kind} code {code}", event.source, event.destination)?;
        }
        other => write!(out, "protocol {other} {} -> {}", event.source, event.destination)?,
    }
    write!(out, ", {} bytes: dropped {reason}", event.length)?;
    match rule {
        Some(rule) => Ok(writeln!(out, ", rule {rule}")?),
        None => Ok(writeln!(out)?),
    }
}
