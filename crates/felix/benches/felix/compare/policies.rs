//! Random policies, profiles, tiers and sets, with everything that rules can express.
//!
//! Known differences from Calico (docs/differences.md) are avoided: rules with three or more long lists, hints, rules
//! with both a protocol and a negated one, and ICMP codes.

use api::Kind;
use serde_json::{Value, json};
use testkit::Dice;
use testkit::random_kubernetes::NAMESPACES;

/// An object to be written.
pub(crate) type Made = (Kind, Value);

/// Tiers besides the default one, in their order.
pub(crate) const TIERS: [&str; 2] = ["first", "second"];
const SELECTORS: [&str; 9] = [
    "all()",
    "app == 'app-1'",
    "app in {'app-2', 'app-3'}",
    "has(app)",
    "!has(none)",
    "app != 'app-0' && has(app)",
    "app contains '-1' || app starts with 'x'",
    "role not in {'host'}",
    "app == 'nobody'",
];

/// All random objects related to policy.
pub(crate) fn made(dice: &mut Dice) -> Vec<Made> {
    let mut made = Vec::new();
    for (number, name) in TIERS.iter().enumerate() {
        let mut spec = json!({"order": 100 + 100 * number});
        if dice.chance(2) {
            spec["defaultAction"] = json!(dice.one_of(&["Pass", "Deny"]));
        }
        made.push((Kind::Tier, json!({"metadata": {"name": name}, "spec": spec})));
    }
    made.extend(NAMESPACES.iter().map(|namespace| namespace_profile(dice, namespace)));
    made.push(profile(dice));
    made.extend(sets());
    let count = 2 + dice.below(9);
    made.extend((0..count).map(|number| policy(dice, number)));
    made
}

fn namespace_profile(dice: &mut Dice, namespace: &str) -> Made {
    let mut allow = json!({"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}],
        "labelsToApply": {"pcns.name": namespace, "pcns.projectcalico.org/name": namespace}});
    if dice.chance(4) {
        allow["ingress"] = json!([{"action": "Deny"}]);
    }
    (Kind::Profile, json!({"metadata": {"name": format!("kns.{namespace}")}, "spec": allow}))
}

fn profile(dice: &mut Dice) -> Made {
    let rules =
        |dice: &mut Dice| (0..dice.below(3)).map(|_| rule(dice, Place::Profile, None)).collect::<Vec<_>>();
    let spec = json!({"ingress": rules(dice), "egress": rules(dice), "labelsToApply": {"pcsa.role": "web"}});
    (Kind::Profile, json!({"metadata": {"name": "extra"}, "spec": spec}))
}

fn sets() -> Vec<Made> {
    vec![
        (
            Kind::GlobalNetworkSet,
            json!({"metadata": {"name": "world", "labels": {"app": "app-1", "set": "world"}},
                "spec": {"nets": ["198.51.100.0/24", "203.0.113.7", "2001:db8:1::/48", "0.0.0.0/0"]}}),
        ),
        (
            Kind::NetworkSet,
            json!({"metadata": {"name": "office", "namespace": "shop", "labels": {"set": "office"}},
                "spec": {"nets": ["192.0.2.0/25", "192.0.2.128/25", "10.1.2.3/32", "::/0"]}}),
        ),
    ]
}

/// The kind of policy that contains a rule: some do not support everything.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Ordinary,
    /// doNotTrack or preDNAT.
    Early,
    Profile,
}

fn policy(dice: &mut Dice, number: u64) -> Made {
    let kind = *dice.one_of(&[
        Kind::GlobalNetworkPolicy,
        Kind::GlobalNetworkPolicy,
        Kind::GlobalNetworkPolicy,
        Kind::NetworkPolicy,
        Kind::NetworkPolicy,
        Kind::StagedGlobalNetworkPolicy,
        Kind::StagedNetworkPolicy,
    ]);
    let tier = *dice.one_of(&["default", "default", TIERS[0], TIERS[1]]);
    let mut spec = json!({"tier": tier});
    // Several policies share one order, so that there are runs of equal selectors; some have none.
    if !dice.chance(8) {
        spec["order"] = json!(dice.below(4));
    }
    let is_global = matches!(kind, Kind::GlobalNetworkPolicy | Kind::StagedGlobalNetworkPolicy);
    spec["selector"] = json!(match is_global && dice.chance(3) {
        true => *dice.one_of(&["role == 'host'", "all()", "has(role)"]),
        false => *dice.one_of(&SELECTORS),
    });
    let mut types =
        *dice.one_of(&[&["Ingress"][..], &["Egress"], &["Ingress", "Egress"], &["Ingress", "Egress"]]);
    let mut place = Place::Ordinary;
    if is_global {
        match dice.below(8) {
            0 => {
                (spec["preDNAT"], spec["applyOnForward"]) = (json!(true), json!(true));
                (types, place) = (&["Ingress"], Place::Early);
            }
            1 => {
                (spec["doNotTrack"], spec["applyOnForward"]) = (json!(true), json!(true));
                place = Place::Early;
            }
            2 | 3 => spec["applyOnForward"] = json!(true),
            _ => {}
        }
        if dice.chance(5) {
            spec["namespaceSelector"] = json!(dice.one_of(&["has(name)", "name == 'shop'"]));
        }
    }
    if dice.chance(8) {
        spec["serviceAccountSelector"] = json!("role == 'web'");
    }
    spec["types"] = json!(types);
    for (kind, field) in [("Ingress", "ingress"), ("Egress", "egress")] {
        if types.contains(&kind) {
            let count = dice.below(5);
            spec[field] = (0..count).map(|_| rule(dice, place, Some(field))).collect();
        }
    }
    let name = match number == 3 {
        true => format!("with-a-name-that-no-chain-can-have-{number}"),
        false => format!("p{number}"),
    };
    let mut metadata = json!({"name": if tier == "default" { name } else { format!("{tier}.{name}") }});
    if !is_global {
        metadata["namespace"] = json!(dice.one_of(&NAMESPACES));
    }
    (kind, json!({"metadata": metadata, "spec": spec}))
}

/// A rule. Services are permitted only at the other end of a policy's rule.
fn rule(dice: &mut Dice, place: Place, direction: Option<&str>) -> Value {
    let actions: &[&str] = match place {
        Place::Profile => &["Allow", "Allow", "Deny", "Log"],
        Place::Early | Place::Ordinary => &["Allow", "Allow", "Deny", "Pass", "Log"],
    };
    let mut rule = json!({"action": dice.one_of(actions)});
    let protocol = *dice.one_of(&["", "TCP", "TCP", "TCP", "UDP", "SCTP", "ICMP", "ICMPv6", "UDPLite", "47"]);
    match protocol {
        "" => {}
        "47" => rule["protocol"] = json!(47),
        _ => rule["protocol"] = json!(protocol),
    }
    // With both, Calico's Felix fails forever on iptables.
    if protocol.is_empty() && dice.chance(4) {
        rule["notProtocol"] = json!(dice.one_of(&["UDP", "SCTP"]));
    }
    if protocol.starts_with("ICMP") {
        // With a code, Calico's Felix fails forever on nftables.
        let what = dice.one_of(&[json!({"type": 8}), json!({"type": 3})]).clone();
        match dice.below(3) {
            0 => rule["icmp"] = what,
            1 => rule["notICMP"] = what,
            _ => {}
        }
    }
    if dice.chance(6) {
        rule["ipVersion"] = json!(match protocol {
            "ICMP" => 4,
            "ICMPv6" => 6,
            _ => *dice.one_of(&[4, 6]),
        });
    }
    if dice.chance(6) {
        // Only one: Calico changes the order of several with every start.
        rule["metadata"] = json!({"annotations": {"why": "because of (this)"}});
    }
    let with_ports = matches!(protocol, "TCP" | "UDP" | "SCTP");
    // Networks of one family only: a rule with both is refused.
    let v6 =
        rule.get("ipVersion").and_then(Value::as_u64).map_or_else(|| dice.chance(4), |version| version == 6);
    // At most two long lists in a rule.
    let mut long_lists = 2;
    for end in ["source", "destination"] {
        // A service's ports do not apply to protocols without ports; what Calico renders for them, nftables reads as a
        // checksum.
        let with_services = place == Place::Ordinary
            && (with_ports || protocol.is_empty())
            && matches!((direction, end), (Some("ingress"), "source") | (Some("egress"), "destination"));
        let entity = entity(dice, with_services, with_ports, v6, &mut long_lists);
        if entity != json!({}) {
            rule[end] = entity;
        }
    }
    rule
}

fn entity(dice: &mut Dice, with_services: bool, with_ports: bool, v6: bool, long_lists: &mut u64) -> Value {
    let mut entity = json!({});
    let mut may_be_long = |dice: &mut Dice| {
        let is_long = *long_lists > 0 && dice.chance(2);
        *long_lists -= u64::from(is_long);
        is_long
    };
    match dice.below(9) {
        0 | 1 => entity["selector"] = json!(dice.one_of(&SELECTORS)),
        2 | 3 => {
            let nets: &[&str] = match v6 {
                true => &["fd00:1::/48", "2001:db8::7/128", "fd00:2::/64"],
                false => &["10.1.0.0/16", "10.2.3.4/32", "192.0.2.0/24"],
            };
            entity["nets"] = json!(if may_be_long(dice) { nets } else { &nets[..1] });
        }
        4 => {
            let nets = if v6 { ["fd00:9::/48", "fd00:a::/48"] } else { ["10.9.0.0/16", "10.10.0.0/16"] };
            entity["notNets"] = json!(nets);
        }
        5 if with_services => {
            entity["services"] = json!({"name": "web", "namespace": "shop"});
            return entity;
        }
        6 => entity["namespaceSelector"] = json!(dice.one_of(&["name == 'bank'", "all()", "global()"])),
        7 => {
            entity["serviceAccounts"] =
                dice.one_of(&[json!({"selector": "role == 'web'"}), json!({"names": ["web", "db"]})]).clone();
        }
        _ => {}
    }
    if dice.chance(5) {
        entity["notSelector"] = json!(dice.one_of(&["app == 'app-2'", "set == 'world'"]));
    }
    if with_ports {
        match dice.below(6) {
            0 => {
                let (first, count) = (
                    dice.below(1000),
                    if may_be_long(dice) { 16 + dice.below(20) } else { 1 + dice.below(9) },
                );
                let ports: Vec<u64> = (0..count).map(|port| first + 1 + port * 3).collect();
                entity["ports"] = json!(ports);
            }
            1 => entity["ports"] = json!(["http"]),
            2 if may_be_long(dice) => entity["ports"] = json!([80, "1000:2000", "http", "dns"]),
            3 => entity["notPorts"] = json!([22, "8000:8100"]),
            4 if dice.chance(2) => entity["notPorts"] = json!(["http", 443]),
            _ => {}
        }
    }
    entity
}
