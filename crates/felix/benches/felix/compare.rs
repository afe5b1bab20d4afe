//! The same random clusters programmed by this Felix and by another one, and every difference: not a measurement, and run
//! only when asked for.
//!
//! ```text
//! TORTIE_PEER_FELIX=/path/to/calico-felix cargo bench -p felix -- compare
//! ```
//!
//! The peer is a program with its arguments, such as `/bin/calico-node -felix`; it gets the same `FELIX_` variables. Compared
//! are the rules by chain: each carries the hash of its text and place in its comment, so equal hashes are equal rules.
//! `TORTIE_PEER_CASES` (20) and `TORTIE_PEER_SEED` (1) choose the clusters. What is known to differ (docs/differences.md)
//! is not generated: rules with three or more lists, and hints.

use crate::cluster::{Cluster, HOST, endpoint, interface};
use crate::daemon::Felix;
use crate::host::{self, Filter, shell};
use anyhow::{Context as _, Result, bail, ensure};
use api::{Kind, Resource};
use model::KvPair;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Local pods, and pods elsewhere.
const LOCAL: usize = 6;
const REMOTE: usize = 10;
/// How often rules are read until they stay the same.
const LOOKS: usize = 60;

/// Rules by layer and chain.
type Rules = BTreeMap<String, Vec<String>>;

/// Compares, if that was asked for by name; whether it was.
pub(crate) fn run(runtime: &Runtime) -> Result<bool> {
    if !std::env::args().any(|word| word == "compare") {
        return Ok(false);
    }
    let peer = std::env::var("TORTIE_PEER_FELIX").context("TORTIE_PEER_FELIX does not name another Felix")?;
    let (cases, seed) = (number("TORTIE_PEER_CASES", 20)?, number("TORTIE_PEER_SEED", 1)?);
    let cluster = runtime.block_on(async {
        let cluster = Cluster::start().await?;
        let endpoints = (0..LOCAL + REMOTE).map(|number| endpoint(number, LOCAL));
        cluster.write(endpoints.collect::<Result<_>>()?).await?;
        anyhow::Ok(cluster)
    })?;
    host::make_uplink()?;
    host::make_interfaces((0..LOCAL).map(interface))?;
    let mut differing = 0;
    for case in seed..seed + cases {
        let policies = policies(&mut Dice(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))?;
        runtime.block_on(cluster.write(policies.clone()))?;
        for filter in Filter::BOTH {
            let ours = programmed(Felix::start(&cluster.etcd.endpoint(), filter)?, filter)?;
            let theirs =
                programmed(Felix::start_peer(&peer, HOST, &cluster.etcd.endpoint(), filter)?, filter)?;
            let differences = differences(&ours, &theirs);
            println!("case {case} {}: {} chains, {} differ", filter.name(), ours.len(), differences.len());
            for difference in &differences {
                println!("  {difference}");
            }
            differing += differences.len();
        }
        for policy in policies {
            runtime.block_on(cluster.client.backend().delete(&policy.key, None))?;
        }
    }
    host::remove_interfaces((0..LOCAL).map(interface))?;
    ensure!(differing == 0, "{differing} chains differ");
    Ok(true)
}

fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is not a number")),
        Err(_) => Ok(default),
    }
}

/// What a Felix programs, once it is ready and nothing changes any more. It ends, and its work is taken back.
fn programmed(mut felix: Felix, filter: Filter) -> Result<Rules> {
    felix.wait_until_ready()?;
    let mut before = Rules::new();
    for _ in 0..LOOKS {
        std::thread::sleep(Duration::from_millis(500));
        let now = rules(filter)?;
        if !now.is_empty() && now == before {
            drop(felix);
            host::clean()?;
            return Ok(now);
        }
        before = now;
    }
    bail!("the rules keep changing:\n{}", felix.log())
}

fn rules(filter: Filter) -> Result<Rules> {
    Ok(match filter {
        Filter::Nftables => of_nftables(&shell("nft list tables", "").and_then(|tables| {
            match tables.contains("table ip calico") {
                true => shell("nft list table ip calico", ""),
                false => Ok(String::new()),
            }
        })?),
        Filter::Iptables => of_iptables(&shell("iptables-nft-save", "")?),
    })
}

/// Each rule of ours by the hash in its comment; what has none goes by its text.
fn of_nftables(listed: &str) -> Rules {
    let mut rules = Rules::new();
    let mut chain = None;
    for line in listed.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
            rules.entry(name.to_owned()).or_default();
            chain = Some(name.to_owned());
        } else if line == "}" {
            chain = None;
        } else if let Some(name) = &chain {
            rules.entry(name.clone()).or_default().push(hash(line));
        }
    }
    rules
}

fn of_iptables(saved: &str) -> Rules {
    let mut rules = Rules::new();
    let mut table = "";
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some((chain, _)) = line.strip_prefix(':').and_then(|rest| rest.split_once(' ')) {
            rules.entry(format!("{table} {chain}")).or_default();
        } else if let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) {
            rules.entry(format!("{table} {chain}")).or_default().push(hash(rule));
        }
    }
    rules
}

fn hash(rule: &str) -> String {
    let mark = "\"cali:";
    rule.find(mark)
        .and_then(|place| rule[place + mark.len()..].split([';', '"', ' ']).next())
        .unwrap_or(rule)
        .to_owned()
}

fn differences(ours: &Rules, theirs: &Rules) -> Vec<String> {
    let mut found = Vec::new();
    for (chain, rules) in ours {
        match theirs.get(chain) {
            None => found.push(format!("{chain}: only ours")),
            Some(others) if others != rules => {
                found.push(format!("{chain}: ours {rules:?}, theirs {others:?}"));
            }
            Some(_) => {}
        }
    }
    found.extend(
        theirs.keys().filter(|chain| !ours.contains_key(*chain)).map(|chain| format!("{chain}: only theirs")),
    );
    found
}

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn one_of<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len().try_into().unwrap_or(1));
        &from[usize::try_from(index).unwrap_or_default()]
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

fn policies(dice: &mut Dice) -> Result<Vec<KvPair>> {
    let count = 1 + dice.below(8);
    (0..count).map(|number| policy(dice, number)).collect()
}

fn policy(dice: &mut Dice, number: u64) -> Result<KvPair> {
    let selectors = ["all()", "app == 'app-1'", "app in {'app-2', 'app-3'}", "has(app)", "!has(none)"];
    let types = *dice.one_of(&[&["Ingress"][..], &["Egress"], &["Ingress", "Egress"]]);
    let mut spec = json!({
        "tier": "default", "order": dice.below(5), "selector": dice.one_of(&selectors), "types": types,
    });
    for (kind, field) in [("Ingress", "ingress"), ("Egress", "egress")] {
        if types.contains(&kind) {
            let count = dice.below(4);
            spec[field] = (0..count).map(|_| rule(dice)).collect();
        }
    }
    let object = json!({"metadata": {"name": format!("random-{number}")}, "spec": spec});
    Ok(KvPair::resource(Resource::from_value(Kind::GlobalNetworkPolicy, object)?))
}

fn rule(dice: &mut Dice) -> Value {
    let mut rule = json!({"action": dice.one_of(&["Allow", "Allow", "Deny", "Pass", "Log"])});
    let protocol = *dice.one_of(&["", "TCP", "TCP", "UDP", "ICMP"]);
    if !protocol.is_empty() {
        rule["protocol"] = json!(protocol);
    }
    if protocol == "ICMP" && dice.chance(2) {
        rule["icmp"] = json!({"type": 8, "code": 0});
    }
    let with_ports = matches!(protocol, "TCP" | "UDP");
    // At most one long list per end.
    for end in ["source", "destination"] {
        let mut entity = json!({});
        match dice.below(6) {
            0 => entity["selector"] = json!(dice.one_of(&["app == 'app-1'", "has(app)", "all()"])),
            1 => entity["nets"] = json!(["10.1.0.0/16"]),
            2 => entity["nets"] = json!(["10.1.0.0/16", "10.2.3.4/32", "192.0.2.0/24"]),
            3 => entity["notNets"] = json!(["10.9.0.0/16", "10.10.0.0/16"]),
            4 if with_ports => {
                let first = dice.below(1000);
                let ports: Vec<u64> = (0..1 + dice.below(20)).map(|port| first + 1 + port * 3).collect();
                entity["ports"] = json!(ports);
            }
            5 if with_ports => entity["notPorts"] = json!([22, "8000:8100"]),
            _ => {}
        }
        if dice.chance(5) {
            entity["notSelector"] = json!("app == 'app-2'");
        }
        if entity != json!({}) {
            rule[end] = entity;
        }
    }
    rule
}
