//! The state that a Felix left in the kernel of a host, as texts that can be compared: rules by chain, sets, routes,
//! neighbours, devices, bandwidth limits and kernel parameters.
//!
//! Rules of iptables are compared by their whole text. Those of nftables are compared by their comments, which hold the
//! hash of the whole chain so far as Calico writes it: our rules order the same conditions differently, so that cheap
//! matches come first. Counters, indexes and clocks are left out.

use crate::host::Filter;
use anyhow::Result;
use std::collections::BTreeMap;
use testkit::network::Namespace;

/// Lines by place.
pub(crate) type State = BTreeMap<String, Vec<String>>;

/// The present state of this host's kernel.
pub(crate) fn state(host: &Namespace, filter: Filter) -> Result<State> {
    let mut state = State::new();
    match filter {
        Filter::Nftables => {
            for table in host.shell("nft list tables")?.lines() {
                let listed = host.shell(&format!("nft -s list {table}"))?;
                nftables(&listed, table, &mut state);
                // On a kernel without flow tables the peer knows that from a probe, and ours leaves a set that no rule names.
                if !listed.contains("flowtable ") {
                    state.retain(|place, _| !place.ends_with("no-flow-offload"));
                }
            }
        }
        Filter::Iptables => {
            for version in ["ip", "ip6"] {
                iptables(&host.shell(&format!("{version}tables-nft-save"))?, version, &mut state);
            }
            ipset(&host.shell("ipset save")?, &mut state);
        }
    }
    lines(&host.shell("ip -d route show table all; ip -d -6 route show table all")?, "routes", &mut state);
    lines(&host.shell("ip rule; ip -6 rule")?, "rules of routing", &mut state);
    lines(&host.shell("ip neigh show nud permanent; ip -6 neigh show nud permanent; ip neigh show proxy; bridge fdb show")?, "neighbours", &mut state);
    lines(&host.shell("tc qdisc show; for device in $(ls /sys/class/net); do tc filter show dev $device; tc filter show dev $device ingress; done")?, "limits", &mut state);
    let parameters = host.shell(
        "cd /proc/sys/net; cat /dev/null; for file in ipv4/ip_forward ipv4/conf/*/* ipv6/conf/*/* ipv4/neigh/*/* ipv6/neigh/*/*; do \
         case $file in */stable_secret|*/lo/*|*time*) continue;; esac; echo $file $(cat $file 2>/dev/null || true); done",
    )?;
    lines(&parameters, "parameters", &mut state);
    without_random_addresses(&mut state);
    for device in ["vxlan.calico", "vxlan-v6.calico"] {
        let shown = host.shell(&format!("ip -d -o link show {device} 2>/dev/null || true; ip -o addr show dev {device} 2>/dev/null || true"))?;
        lines(&without_index(&shown), device, &mut state);
    }
    Ok(state)
}

/// Devices that limit bandwidth have random hardware addresses, and therefore random IPv6 addresses.
fn without_random_addresses(state: &mut State) {
    let routes = state.get("routes").cloned().unwrap_or_default();
    let of_limits = routes.iter().filter(|route| route.contains(" dev bwcali"));
    let random: Vec<String> = of_limits
        .flat_map(|route| route.split(' ').filter(|word| word.starts_with("fe80::")).map(str::to_owned))
        .collect();
    for lines in state.values_mut() {
        lines.retain(|line| !line.split(' ').any(|word| random.iter().any(|address| address == word)));
    }
}

/// The number of rules, set members and other lines.
pub(crate) fn size(state: &State) -> usize {
    state.values().map(Vec::len).sum()
}

/// The places where the two states differ, with the lines that only one of them has.
pub(crate) fn differences(ours: &State, theirs: &State) -> Vec<String> {
    let mut found = Vec::new();
    for (place, lines) in ours {
        match theirs.get(place) {
            None => found.push(format!("{place}: only ours\n    {}", lines.join("\n    "))),
            Some(others) if others != lines => {
                let only = |of: &[String], not: &[String], sign: &str| -> String {
                    of.iter()
                        .filter(|line| !not.contains(line))
                        .map(|line| format!("\n    {sign} {line}"))
                        .collect()
                };
                let (mine, other) = (only(lines, others, "ours  "), only(others, lines, "theirs"));
                let order = if mine.is_empty() && other.is_empty() { " the order" } else { "" };
                found.push(format!("{place}:{order}{mine}{other}"));
            }
            Some(_) => {}
        }
    }
    for (place, lines) in theirs.iter().filter(|(place, _)| !ours.contains_key(*place)) {
        found.push(format!("{place}: only theirs\n    {}", lines.join("\n    ")));
    }
    found
}

/// Lines whose order is irrelevant.
fn lines(text: &str, place: &str, state: &mut State) {
    let mut lines: Vec<String> =
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    lines.sort();
    state.insert(place.to_owned(), lines);
}

fn without_index(shown: &str) -> String {
    let line = |line: &str| line.split_once(": ").map_or(line, |(_, rest)| rest).to_owned() + "\n";
    shown.lines().map(line).collect()
}

/// Chains in their order, sets and maps sorted.
fn nftables(listed: &str, table: &str, state: &mut State) {
    let mut place = None::<String>;
    let mut elements = None::<String>;
    for line in listed.lines().map(str::trim) {
        if let Some(text) = &mut elements {
            text.push_str(line);
            if line.ends_with('}') {
                close(&mut elements, place.as_deref(), state);
            }
        } else if let Some(name) = line.strip_suffix(" {").filter(|name| !name.starts_with("table ")) {
            let name = format!("{table} {name}");
            state.entry(name.clone()).or_default();
            place = Some(name);
        } else if line == "}" {
            place = None;
        } else if let (Some(rest), Some(_)) = (line.strip_prefix("elements = {"), &place) {
            elements = Some(rest.to_owned());
            if rest.ends_with('}') {
                close(&mut elements, place.as_deref(), state);
            }
        } else if let Some(place) = &place {
            let comment = line.find("comment \"cali:").map_or(line, |start| &line[start..]);
            state.entry(place.clone()).or_default().push(comment.to_owned());
        }
    }
}

/// Ends a list of elements.
fn close(elements: &mut Option<String>, place: Option<&str>, state: &mut State) {
    let Some(text) = elements.take() else { return };
    let mut members: Vec<String> = text
        .trim_end_matches('}')
        .split(',')
        .map(|member| member.trim().to_owned())
        .filter(|member| !member.is_empty())
        .collect();
    members.sort();
    state.entry(place.unwrap_or_default().to_owned()).or_default().extend(members);
}

fn iptables(saved: &str, version: &str, state: &mut State) {
    let mut table = "";
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some((chain, _)) = line.strip_prefix(':').and_then(|rest| rest.split_once(' ')) {
            state.entry(format!("{version} {table} {chain}")).or_default();
        } else if let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) {
            state.entry(format!("{version} {table} {chain}")).or_default().push(rule.to_owned());
        }
    }
}

fn ipset(saved: &str, state: &mut State) {
    for line in saved.lines() {
        let mut words = line.splitn(3, ' ');
        if let (Some(verb), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) {
            let of = state.entry(format!("set {name}")).or_default();
            // The kernel chooses the seed of the hash and its size.
            let rest: Vec<&str> = rest.split(' ').collect();
            let skip =
                |place: usize| place > 0 && matches!(rest[place - 1], "initval" | "hashsize" | "bucketsize");
            let kept = rest.iter().enumerate().filter(|(place, word)| {
                !skip(*place) && !matches!(**word, "initval" | "hashsize" | "bucketsize")
            });
            let kept: Vec<&str> = kept.map(|(_, word)| *word).collect();
            of.push(format!("{verb} {}", kept.join(" ")));
        }
    }
    for (_, members) in state.iter_mut().filter(|(place, _)| place.starts_with("set ")) {
        members.sort();
    }
}
