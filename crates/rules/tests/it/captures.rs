//! What Calico's Felix programmed for [`crate::shop`], against what is rendered here. Hashes are over the whole text of a
//! rule and of all before it, so equal hashes mean equal rules.

use crate::shop;
use rules::tree::{IpVersion, Table};
use rules::{Backend, iptables, nftables};
use std::collections::BTreeMap;

/// By chain: the comments of each rule, the hash first.
type Comments = BTreeMap<String, Vec<String>>;

fn quoted<'a>(line: &'a str, before: &str) -> impl Iterator<Item = &'a str> {
    line.split(before).skip(1).filter_map(|rest| rest.split('"').nth(1))
}

/// The comments of a file of `iptables-save`, chains with their table before the name.
fn saved_by_iptables(file: &str) -> Comments {
    let mut table = String::new();
    let mut chains = Comments::new();
    for line in file.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name.to_owned();
        } else if let Some(chain) = line.strip_prefix(':') {
            let name = chain.split(' ').next().unwrap_or_default();
            chains.entry(format!("{table} {name}")).or_default();
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let name = rule.split(' ').next().unwrap_or_default();
            let comments = quoted(rule, "--comment ").collect::<Vec<_>>().join("; ");
            chains.entry(format!("{table} {name}")).or_default().push(comments);
        }
    }
    // The kernel's chains are always there.
    chains.retain(|name, rules| name.contains("cali-") || !rules.is_empty());
    chains
}

#[test]
fn iptables_rules_are_calicos() {
    let world = shop::world(Backend::Iptables);
    let mut ours = Comments::new();
    for table in Table::ALL {
        let rendered = world.render(table, IpVersion::V4).programmed();
        let comments = |rule: &rules::Rule, hash: rules::RuleHash| {
            let line = iptables::render_append("X", rule, hash);
            quoted(&line, "--comment ").collect::<Vec<_>>().join("; ")
        };
        for chain in rendered.chains.values() {
            let hashes = iptables::hashes(&chain.name, &chain.rules);
            let rules = chain.rules.iter().zip(hashes).map(|(rule, hash)| comments(rule, hash));
            ours.insert(format!("{table} {}", chain.name), rules.collect());
        }
        for chain in &rendered.kernel {
            let inserted = chain.inserted.iter().zip(iptables::hashes(chain.name, &chain.inserted));
            let appended = chain.appended.iter().zip(iptables::appended_hashes(chain.name, &chain.appended));
            let rules = inserted.chain(appended).map(|(rule, hash)| comments(rule, hash));
            ours.insert(format!("{table} {}", chain.name), rules.collect());
        }
    }
    same(&ours, &saved_by_iptables(include_str!("../data/shop-iptables-save.txt")));
}

/// The comments, and the elements of verdict maps, of the IPv4 and ARP tables that `nft` listed.
fn listed_by_nft(file: &str) -> (Comments, BTreeMap<String, String>) {
    let mut table = "";
    let mut chain: Option<String> = None;
    let mut map: Option<(String, String)> = None;
    let (mut chains, mut maps) = (Comments::new(), BTreeMap::new());
    for line in file.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["table", family, ..] => table = family,
            ["chain", name, "{"] => {
                let name = format!("{table} {name}");
                chains.entry(name.clone()).or_insert_with(Vec::new);
                chain = Some(name);
            }
            ["map", name, "{"] => map = Some((format!("{table} {name}"), String::new())),
            ["}"] => {
                chain = None;
                if let Some((name, elements)) = map.take() {
                    maps.insert(name, elements);
                }
            }
            _ => {
                if let Some(name) = &chain {
                    let rules = chains.entry(name.clone()).or_default();
                    rules.extend(quoted(line, " comment ").map(str::to_owned));
                }
                if let Some((_, elements)) = &mut map
                    && line.contains("goto")
                {
                    elements.push_str(line.trim().trim_start_matches("elements = { ").trim_end_matches(" }"));
                }
            }
        }
    }
    (chains, maps)
}

#[test]
fn nftables_rules_are_calicos() {
    let world = shop::world(Backend::Nftables);
    let family = nftables::Family::Ip;
    let (mut ours, mut our_maps) = (Comments::new(), BTreeMap::new());
    let mut add_maps = |family: &str, layer, maps: &[rules::tree::VerdictMap]| {
        for map in maps {
            let entry = |(name, chain): (&rules::tree::Text, &rules::tree::Text)| {
                format!("\"{name}\" : goto {}", nftables::chain_name(layer, chain))
            };
            let entries: Vec<_> = map.entries.iter().map(entry).collect();
            our_maps
                .insert(format!("{family} {}", nftables::chain_name(layer, &map.name)), entries.join(","));
        }
    };
    for table in Table::ALL {
        let rendered = world.render(table, IpVersion::V4).programmed();
        for chain in rendered.chains.values() {
            let hashes = nftables::hashes(table, family, &chain.name, &chain.rules);
            let rules = chain.rules.iter().zip(hashes).map(|(rule, hash)| nftables::comment(rule, hash));
            ours.insert(format!("ip {}", nftables::chain_name(table, &chain.name)), rules.collect());
        }
        for chain in &rendered.kernel {
            let inserted = nftables::hashes(table, family, chain.name, &chain.inserted);
            let appended = nftables::appended_hashes(table, family, chain.name, &chain.appended);
            let rules = chain.inserted.iter().zip(inserted).chain(chain.appended.iter().zip(appended));
            let rules = rules.map(|(rule, hash)| nftables::comment(rule, hash));
            ours.insert(format!("ip {}", nftables::chain_name(table, chain.name)), rules.collect());
        }
        add_maps("ip", table, &rendered.maps);
    }
    add_arp(&mut ours, &mut add_maps);
    let (mut theirs, their_maps) = listed_by_nft(include_str!("../data/shop-nft.txt"));
    // Calico makes base chains for every hook; those that nothing is put into are the driver's business.
    theirs.retain(|name, rules| name.contains("cali-") || !rules.is_empty());
    same(&ours, &theirs);
    assert_eq!(our_maps, their_maps);
}

fn add_arp(ours: &mut Comments, add_maps: &mut impl FnMut(&str, Table, &[rules::tree::VerdictMap])) {
    let (layer, family) = (Table::Filter, nftables::Family::Arp);
    let renderer = rules::Renderer::new(rules::RulesConfig::default());
    let workloads = [
        ("cali00000000001", "10.66.1.1/32"),
        ("cali00000000002", "10.66.1.2/32"),
        ("cali12345678903", "10.66.1.3/32"),
    ];
    let (dispatch, map) = renderer.arp_dispatch(&workloads.iter().map(|(name, _)| (*name).into()).collect());
    let chains = workloads.iter().map(|(name, net)| {
        renderer.workload_arp_chain(name, &[net.parse().expect("a network")])
    });
    let kernel = renderer.arp_kernel_chain();
    let kernel = rules::Chain::new(kernel.name, kernel.inserted);
    for chain in chains.chain([dispatch, kernel]) {
        let hashes = nftables::hashes(layer, family, &chain.name, &chain.rules);
        let rules = chain.rules.iter().zip(hashes).map(|(rule, hash)| nftables::comment(rule, hash));
        ours.insert(format!("arp {}", nftables::chain_name(layer, &chain.name)), rules.collect());
    }
    add_maps("arp", layer, &[map]);
}

/// Compares chain by chain, so that a difference is shown where it begins.
fn same(ours: &Comments, theirs: &Comments) {
    for (name, rules) in theirs {
        assert_eq!(ours.get(name), Some(rules), "chain {name}");
    }
    let more: Vec<_> = ours.keys().filter(|name| !theirs.contains_key(*name)).collect();
    assert!(more.is_empty(), "chains that Calico does not have: {more:?}");
}
