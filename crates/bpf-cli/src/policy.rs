//! `policy dump`: the lists of rules that apply to packets of a device, with their counters.
//!
//! Calico prints files that it writes beside its generated programs. Here the maps themselves are read: the lists, the
//! order of their rules, each rule's action and hit count, and its NFLOG prefix if Felix has written it.

use crate::maps::{Failure, Maps};
use crate::{interfaces, text, watch};
use bpf::layout::devices::flags;
use bpf_policy::layout::{
    Action, Bytes as _, ListId, Lists, ListsKey, RuleEntry, RuleKey, Segment, SegmentKey,
};
use clap::{Subcommand, ValueEnum};
use std::io::Write;

const RULES: &str = "bpfp_rule";
const COUNTERS: &str = "cali_rule_ctrs2";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Hook {
    Ingress,
    Egress,
    Xdp,
    All,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps policy
    Dump {
        /// the interface
        interface: String,
        /// where packets match it, as the host sees it: a workload's ingress policy is at egress
        hook: Hook,
        /// also print the dimensions of each segment
        #[arg(long, short = 'a')]
        asm: bool,
    },
}

pub(crate) fn run(
    Command::Dump { interface, hook, asm }: &Command,
    family: u8,
    maps: &dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let found = maps.devices()?.into_iter().find(|(_, name)| name == interface);
    let (index, _) = found.ok_or_else(|| Failure::Wrong(format!("no such interface: {interface}")))?;
    let key = ListsKey { ifindex: index, family: u32::from(family) }.to_bytes();
    let Some(value) = maps.get("bpfp_lists", &key)? else {
        return Err(Failure::Wrong(format!("{interface} has no IPv{family} policy")));
    };
    let lists = Lists::decode(&value).ok_or_else(|| not_ours("bpfp_lists"))?;
    // Without its state, a device's kind is derived from its name.
    let is_workload = interfaces::read(maps).map_or_else(
        |_| interface.starts_with("cali"),
        |all| all.get(&index).is_some_and(|device| device.flags & flags::WORKLOAD != 0),
    );
    for (one, name) in [(Hook::Ingress, "ingress"), (Hook::Egress, "egress"), (Hook::Xdp, "xdp")] {
        if *hook != one && *hook != Hook::All {
            continue;
        }
        let here: Vec<(&str, ListId)> =
            at(one, is_workload, &lists).into_iter().filter(|(_, list)| *list != ListId::NONE).collect();
        if here.is_empty() {
            continue;
        }
        writeln!(out, "IfaceName: {interface}\nHook: {name}")?;
        for (what, list) in here {
            writeln!(out, "  List: {:#018x}  ({what})", list.0)?;
            show(list, *asm, maps, out)?;
        }
    }
    Ok(())
}

/// The lists that apply to packets at a hook, in order.
fn at(hook: Hook, is_workload: bool, lists: &Lists) -> Vec<(&'static str, ListId)> {
    match (hook, is_workload) {
        (Hook::Ingress, true) => {
            vec![("egress policy", lists.egress), ("staged egress policy", lists.pending_egress)]
        }
        (Hook::Egress, true) => {
            vec![("ingress policy", lists.ingress), ("staged ingress policy", lists.pending_ingress)]
        }
        (Hook::Ingress, false) => vec![
            ("untracked ingress policy", lists.untracked_ingress),
            ("policy before DNAT", lists.pre_dnat),
            ("ingress policy", lists.ingress),
            ("staged ingress policy", lists.pending_ingress),
            ("forwarded ingress policy", lists.forward_ingress),
        ],
        (Hook::Egress, false) => vec![
            ("forwarded egress policy", lists.forward_egress),
            ("egress policy", lists.egress),
            ("staged egress policy", lists.pending_egress),
            ("untracked egress policy", lists.untracked_egress),
        ],
        (Hook::Xdp, false) => vec![("untracked ingress policy", lists.untracked_ingress)],
        (Hook::Xdp | Hook::All, _) => Vec::new(),
    }
}

fn show(list: ListId, with_segments: bool, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let mut rule = 0;
    for number in 0.. {
        let key = SegmentKey { list, segment: number };
        let Some(value) = maps.get("bpfp_segment", &key.to_bytes())? else {
            writeln!(out, "    segment {number} is missing: packets are denied")?;
            return Ok(());
        };
        let segment = Segment::decode(&value).ok_or_else(|| not_ours("bpfp_segment"))?;
        if with_segments {
            let (rules, bits) = (segment.rules, segment.dimensions);
            writeln!(out, "    // segment {number}: {rules} rules, dimensions {bits:#08b}")?;
        }
        for _ in 0..segment.rules {
            match maps.get(RULES, &RuleKey { list, rule }.to_bytes())? {
                None => writeln!(out, "    Rule: {rule} is missing: packets that match it are denied")?,
                Some(value) => {
                    let entry = RuleEntry::decode(&value).ok_or_else(|| not_ours(RULES))?;
                    show_rule(rule, &entry, maps, out)?;
                }
            }
            rule += 1;
        }
        if segment.last {
            break;
        }
    }
    Ok(())
}

fn show_rule(number: u32, rule: &RuleEntry, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let action = match rule.action {
        Action::Allow => "allow".to_owned(),
        Action::Deny => "deny".to_owned(),
        Action::Pass => format!("pass, on to rule {}", rule.next),
        Action::Log => "log".to_owned(),
        Action::None => "none: the next list decides".to_owned(),
    };
    writeln!(out, "    Rule: {number}  Action: {action}")?;
    if rule.id == 0 {
        return Ok(());
    }
    let value = maps.get(COUNTERS, &rule.id.to_ne_bytes())?.unwrap_or_default();
    let mut hits: u64 = 0;
    for processor in value.chunks_exact(8) {
        hits = hits.wrapping_add(text::read(COUNTERS, processor)?);
    }
    writeln!(out, "      Id: {:#018x}", rule.id)?;
    if let Some(name) = watch::rule_name(rule.id, maps) {
        writeln!(out, "      Name: {name}")?;
    }
    Ok(writeln!(out, "      Hit count: {hits}")?)
}

fn not_ours(map: &str) -> Failure {
    Failure::Wrong(format!("{map} has an entry of another version"))
}
