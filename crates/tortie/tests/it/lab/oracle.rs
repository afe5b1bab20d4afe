//! Random policies on a real lab: `explain` and packets must agree on every cell, with each packet filter.
//!
//! The number of rounds is fixed; `TORTIE_LAB_ROUNDS` sets another number, and `TORTIE_LAB_SEED` other policies. A
//! disagreement is shrunk, policy by policy and rule by rule, before it is added here.

use super::{Lab, told};
use serde_json::{Value, json};

/// Pseudo-random numbers that are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(number).unwrap_or_default() % limit
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

const SELECTORS: [&str; 9] = [
    "all()",
    "tier == 'front'",
    "tier == 'back'",
    "app == 'cart'",
    "has(app)",
    "app != 'frontend'",
    "tier in {'front', 'middle'}",
    "projectcalico.org/namespace == 'shop'",
    "!(app == 'ledger')",
];

/// One end of a rule. Networks of one rule are of one IP version: mixed ones are refused.
fn end(dice: &mut Dice, is_destination: bool, is_v6: bool) -> Value {
    let mut end = json!({});
    if dice.chance(50) {
        end["selector"] = dice.pick(&SELECTORS).into();
    }
    if dice.chance(12) {
        end["notSelector"] = dice.pick(&SELECTORS).into();
    }
    if dice.chance(15) {
        end["namespaceSelector"] = dice
            .pick(&["projectcalico.org/name == 'shop'", "projectcalico.org/name == 'billing'", "all()"])
            .into();
    }
    let (nets, not_nets): (&[&str], &[&str]) = if is_v6 {
        (&["fd65:1:2::/48", "::/0", "fd00::/8"], &["fd65:1:2:8000::/49", "2001:db8::/32"])
    } else {
        (&["172.16.0.0/16", "172.16.0.0/17", "10.65.0.0/16", "0.0.0.0/0"], &["172.16.128.0/17", "10.0.0.0/8"])
    };
    if dice.chance(12) {
        end["nets"] = json!([dice.pick(nets)]);
    }
    if dice.chance(8) {
        end["notNets"] = json!([dice.pick(not_nets)]);
    }
    if is_destination && dice.chance(50) {
        end["ports"] = [json!([80]), json!([8080]), json!(["80:90"]), json!([80, 8080]), json!([443])]
            [dice.below(5)]
        .clone();
    }
    end
}

fn rule(dice: &mut Dice) -> Value {
    let is_v6 = dice.chance(25);
    let mut destination = end(dice, true, is_v6);
    let mut rule = json!({"action": dice.pick(&["Allow", "Allow", "Allow", "Deny", "Pass", "Log"])});
    if dice.chance(60) || destination.get("ports").is_some() {
        rule["protocol"] = dice.pick(&["TCP", "TCP", "UDP"]).into();
    }
    if dice.chance(8) && destination.get("ports").is_some() {
        destination["notPorts"] = json!([8080]);
    }
    rule["source"] = end(dice, false, is_v6);
    rule["destination"] = destination;
    rule
}

fn policy(dice: &mut Dice, number: usize) -> Value {
    let types = [json!(["Ingress"]), json!(["Egress"]), json!(["Ingress", "Egress"])][dice.below(3)].clone();
    let rules = |dice: &mut Dice| -> Vec<Value> { (0..dice.below(4)).map(|_| rule(dice)).collect() };
    let has = |name: &str| types.as_array().is_some_and(|types| types.iter().any(|kind| kind == name));
    let mut spec = json!({"selector": dice.pick(&SELECTORS), "order": dice.below(4), "types": types});
    if has("Ingress") {
        spec["ingress"] = rules(dice).into();
    }
    if has("Egress") {
        spec["egress"] = rules(dice).into();
    }
    let mut metadata = json!({"name": format!("p{number}")});
    let kind = if dice.chance(40) {
        metadata["namespace"] = dice.pick(&["shop", "billing"]).into();
        "NetworkPolicy"
    } else {
        "GlobalNetworkPolicy"
    };
    if dice.chance(25) {
        spec["tier"] = "first".into();
        metadata["name"] = format!("first.p{number}").into();
    }
    json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": metadata, "spec": spec})
}

fn tier() -> Value {
    json!({"apiVersion": "projectcalico.org/v3", "kind": "Tier", "metadata": {"name": "first"}, "spec": {"order": 10}})
}

fn list(items: &[Value]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n")
}

/// Applies only these policies; succeeds if every cell agrees.
fn agrees(lab: &Lab, policies: &[Value], patience: &str) -> Result<(), String> {
    let applied = lab.run_with(&["apply", "-f", "-"], &list(policies));
    assert!(applied.status.success(), "{}\n{}", told(&applied), list(policies));
    let output = lab.run(&["matrix", "--protocol", "tcp,udp", "--patience", patience]);
    let outcome = if output.status.success() { Ok(()) } else { Err(told(&output)) };
    let removed = lab.run_with(&["ctl", "delete", "-f", "-"], &list(policies));
    assert!(removed.status.success(), "{}", told(&removed));
    outcome
}

/// The smallest subset of the policies that still disagrees.
fn shrink(lab: &Lab, mut policies: Vec<Value>) -> Vec<Value> {
    let still = |policies: &[Value]| !policies.is_empty() && agrees(lab, policies, "4").is_err();
    loop {
        let smaller = smaller(&policies).into_iter().find(|candidate| still(candidate));
        match smaller {
            Some(candidate) => policies = candidate,
            None => return policies,
        }
    }
}

/// The variants of the policies with one policy, or one rule, less.
fn smaller(policies: &[Value]) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for index in 0..policies.len() {
        let mut fewer = policies.to_vec();
        fewer.remove(index);
        all.push(fewer);
    }
    for index in 0..policies.len() {
        for direction in ["ingress", "egress"] {
            let count = policies[index]["spec"][direction].as_array().map_or(0, Vec::len);
            for rule in 0..count {
                let mut fewer = policies.to_vec();
                if let Some(rules) = fewer[index]["spec"][direction].as_array_mut() {
                    rules.remove(rule);
                }
                all.push(fewer);
            }
        }
    }
    all
}

fn play(dataplane: &str, default_seed: u64, flags: &[&str]) {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let rounds = number("TORTIE_LAB_ROUNDS", 6);
    let seed = number("TORTIE_LAB_SEED", default_seed).max(1);
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut all = vec!["--nodes", "2", "--pods", "5", "--dataplane", dataplane];
    all.extend(flags);
    let lab = Lab::up(&all);
    lab.apply(&list(&[tier()]));
    for round in 0..rounds {
        let policies: Vec<Value> = (0..1 + dice.below(5)).map(|number| policy(&mut dice, number)).collect();
        if let Err(text) = agrees(&lab, &policies, "20") {
            let least = shrink(&lab, policies);
            panic!(
                "seed {seed}, round {round}, {dataplane}: explain and packets disagree\n{text}\nleast case:\n{}",
                list(&least)
            );
        }
    }
}

#[test]
fn explain_and_packets_agree_with_nftables() {
    play("nftables", 1, &["--encap", "cross-subnet"]);
}

#[test]
fn explain_and_packets_agree_with_iptables() {
    play("iptables", 2, &["--dual-stack"]);
}
