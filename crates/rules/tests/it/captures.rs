//! What Calico's Felix programmed, compared with what is rendered here. Hashes cover the whole text of a rule and of
//! all rules before it, so equal hashes mean equal rules.
//!
//! There is one intended difference: Calico's nftables listing of the shop was taken without the code in the rule about
//! ICMP, because Calico renders type and code into a text that `nft` rejects.

use crate::shop;
use crate::world::World;
use rules::nftables::Family;
use rules::tree::{Chain, IpVersion, KernelChain, Rule, Table, VerdictMap};
use rules::{Backend, Renderer, RuleHash, RulesConfig, iptables, nftables};
use std::collections::BTreeMap;

/// By chain, with its table or family before it: the comments of each rule, beginning with the hash.
type Comments = BTreeMap<String, Vec<String>>;

fn quoted<'a>(line: &'a str, before: &str) -> impl Iterator<Item = &'a str> {
    line.split(before).skip(1).filter_map(|rest| rest.split('"').nth(1))
}

/// The comments of a file of `iptables-save`.
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
    // The kernel's chains always exist.
    chains.retain(|name, rules| name.contains("cali-") || !rules.is_empty());
    chains
}

#[test]
fn iptables_rules_are_calicos() {
    let world = shop::world(Backend::Iptables);
    let mut ours = Comments::new();
    let comments = |rules: &[Rule], hashes: Vec<RuleHash>| {
        let line = |(rule, hash)| {
            let line = iptables::render_append("X", rule, hash);
            quoted(&line, "--comment ").collect::<Vec<_>>().join("; ")
        };
        rules.iter().zip(hashes).map(line).collect::<Vec<_>>()
    };
    for table in Table::ALL {
        let rendered = world.render(table, IpVersion::V4).programmed();
        for Chain { name, rules } in rendered.chains.values() {
            ours.insert(format!("{table} {name}"), comments(rules, iptables::hashes(name, rules)));
        }
        for KernelChain { name, inserted, appended } in &rendered.kernel {
            let mut rules = comments(inserted, iptables::hashes(name, inserted));
            rules.extend(comments(appended, iptables::appended_hashes(name, appended)));
            ours.insert(format!("{table} {name}"), rules);
        }
    }
    same(&ours, &saved_by_iptables(include_str!("../../../testkit/data/felix-iptables-save.txt")));
}

/// The comments and the elements of verdict maps in the listing of `nft`.
fn listed_by_nft(file: &str) -> (Comments, BTreeMap<String, String>) {
    let mut family = "";
    let mut chain: Option<String> = None;
    let mut map: Option<(String, String)> = None;
    let (mut chains, mut maps) = (Comments::new(), BTreeMap::new());
    for line in file.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["table", name, ..] => family = name,
            ["chain", name, "{"] => {
                let name = format!("{family} {name}");
                chains.entry(name.clone()).or_insert_with(Vec::new);
                chain = Some(name);
            }
            ["map", name, "{"] => map = Some((format!("{family} {name}"), String::new())),
            ["}"] => {
                chain = None;
                maps.extend(map.take());
            }
            _ => {
                if let Some(rules) = chain.as_ref().and_then(|name| chains.get_mut(name)) {
                    rules.extend(quoted(line, " comment ").map(str::to_owned));
                }
                if let Some((_, elements)) = map.as_mut().filter(|_| line.contains("goto")) {
                    let line = line.trim().trim_start_matches("elements = { ").trim_end_matches(" }");
                    elements.push_str(line);
                }
            }
        }
    }
    // Base chains without rules are left to the driver.
    chains.retain(|name, rules| name.contains("cali-") || !rules.is_empty());
    (chains, maps)
}

/// The rules that are rendered for nftables, in the form of a listing.
#[derive(Default)]
struct Listing {
    chains: Comments,
    maps: BTreeMap<String, String>,
}

impl Listing {
    fn add_chain(&mut self, layer: Table, family: Family, name: &str, rules: &[Rule], hashes: Vec<RuleHash>) {
        let name = format!("{} {}", family.as_str(), nftables::chain_name(layer, name));
        let comments = rules.iter().zip(hashes).map(|(rule, hash)| nftables::comment(rule, hash));
        self.chains.entry(name).or_default().extend(comments);
    }

    fn add_own_chain(&mut self, layer: Table, family: Family, Chain { name, rules }: &Chain) {
        self.add_chain(layer, family, name, rules, nftables::hashes(layer, family, name, rules));
    }

    fn add_kernel_chain(&mut self, layer: Table, family: Family, chain: &KernelChain) {
        let KernelChain { name, inserted, appended } = chain;
        self.add_chain(layer, family, name, inserted, nftables::hashes(layer, family, name, inserted));
        let hashes = nftables::appended_hashes(layer, family, name, appended);
        self.add_chain(layer, family, name, appended, hashes);
    }

    fn add_map(&mut self, layer: Table, family: Family, map: &VerdictMap) {
        let entries = map.entries.iter();
        let entries: Vec<_> = entries
            .map(|(name, chain)| format!("\"{name}\" : goto {}", nftables::chain_name(layer, chain)))
            .collect();
        let name = format!("{} {}", family.as_str(), nftables::chain_name(layer, &map.name));
        self.maps.insert(name, entries.join(","));
    }
}

fn listing(world: &World) -> Listing {
    let mut listing = Listing::default();
    for table in Table::ALL {
        let rendered = world.render(table, IpVersion::V4).programmed();
        for chain in rendered.chains.values() {
            listing.add_own_chain(table, Family::Ip, chain);
        }
        for chain in &rendered.kernel {
            listing.add_kernel_chain(table, Family::Ip, chain);
        }
        for map in &rendered.maps {
            listing.add_map(table, Family::Ip, map);
        }
    }
    listing
}

#[test]
fn nftables_rules_are_calicos() {
    let mut ours = listing(&shop::world(Backend::Nftables));
    let (layer, family) = (Table::Filter, Family::Arp);
    let renderer = Renderer::new(RulesConfig::default());
    let workloads = [
        ("cali00000000001", "10.66.1.1/32"),
        ("cali00000000002", "10.66.1.2/32"),
        ("cali12345678903", "10.66.1.3/32"),
    ];
    for (name, net) in workloads {
        let chain = renderer.workload_arp_chain(name, &[net.parse().expect("a network")]);
        ours.add_own_chain(layer, family, &chain);
    }
    let (dispatch, map) = renderer.arp_dispatch(&workloads.iter().map(|(name, _)| (*name).into()).collect());
    ours.add_own_chain(layer, family, &dispatch);
    ours.add_map(layer, family, &map);
    ours.add_kernel_chain(layer, family, &renderer.arp_kernel_chain());

    let (chains, maps) = listed_by_nft(include_str!("../../../testkit/data/felix-nft.txt"));
    same(&ours.chains, &chains);
    assert_eq!(ours.maps, maps);
}

/// A node of a Kubernetes cluster with one NetworkPolicy: a named port, a range of ports, a block with an exception.
#[test]
fn a_nodes_nftables_rules_are_calicos() {
    let ours = listing(&shop::cluster_node());
    let (chains, maps) = listed_by_nft(include_str!("../data/cluster-nft.txt"));
    same(&ours.chains, &chains);
    assert_eq!(ours.maps, maps);
}

/// Compares chain by chain, to show where a difference begins.
fn same(ours: &Comments, theirs: &Comments) {
    for (name, rules) in theirs {
        assert_eq!(ours.get(name), Some(rules), "chain {name}");
    }
    let more: Vec<_> = ours.keys().filter(|name| !theirs.contains_key(*name)).collect();
    assert!(more.is_empty(), "chains that Calico does not have: {more:?}");
}
