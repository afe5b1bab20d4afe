//! Worlds and the dataplane's state as text.
//!
//! ```text
//! workload h1 default/a ip=10.0.0.1,fd00::1 labels=app=web,tier=front profiles=kns.default ports=http/TCP/8080
//! host h1 eth0 ip=192.168.0.1 labels=... profiles=... ports=...
//! netset ext nets=10.0.0.0/8 labels=kind=ext profiles=...
//! profile kns.default labels=pcns.name=default
//! rules kns.default
//!   in allow
//! tier default order=100 action=deny
//! policy GlobalNetworkPolicy/name selector="has(app)" order=10 tier=t types=ingress flags=forward hints=...
//!   in allow protocol=TCP src="app == 'x'" src-not="..." dst-ports=http,80,1:10 src-service=ns/name
//! slice default/web-1 service=web addresses=10.0.0.1 ports=TCP/80
//! delete workload h1 default/a
//! ```

use crate::dataplane::PolicyState;
use crate::world::{World, named_port, named_protocol, profile, put, slice, workload_key};
use api::Kind;
use messages::{Rule, RuleEnd, TierInfo};
use model::ProfileName;
use model::feed::{self, FeedEntry, FeedKey, PolicyType, Port, PortRange, RuleAction};
use model::v1::{HostEndpointKey, PolicyKey};
use selector::Selector;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Words separated by spaces; quotes keep spaces together and are removed.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ' ' if !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            other => word.push(other),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

struct Fields(BTreeMap<String, String>);

impl Fields {
    fn new(words: &[String]) -> Self {
        Self(
            words
                .iter()
                .map(|word| word.split_once('=').map_or((word.as_str(), ""), |pair| pair))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    fn text(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_default()
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.0.get(name).map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
    }

    fn profiles(&self) -> Vec<ProfileName> {
        self.list("profiles").into_iter().map(ProfileName::from).collect()
    }

    fn map(&self, name: &str) -> BTreeMap<String, String> {
        self.list(name)
            .iter()
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn has(&self, flag: &str) -> bool {
        self.list("flags").iter().any(|have| have == flag)
    }

    fn ports(&self) -> Vec<feed::EndpointPort> {
        self.list("ports")
            .iter()
            .map(|port| {
                let mut parts = port.split('/');
                let mut part = || parts.next().expect("name/protocol/number");
                let (name, protocol) = (part(), part());
                named_port(name, protocol, part().parse().unwrap())
            })
            .collect()
    }

    fn order(&self) -> Option<f64> {
        self.0.get("order").map(|order| order.parse().unwrap())
    }
}

/// Applies the changes in a text to a world.
pub(crate) fn apply(world: &mut World, text: &str) {
    let mut last: Option<FeedKey> = None;
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#')) {
        let words = words(line);
        if line.starts_with(' ') {
            let key = last.as_ref().expect("a rule belongs to the line above");
            add_rule(world.get_mut(key).unwrap(), &words);
        } else if words[0] == "delete" {
            let key = entry(&words[1..]).key().to_owned();
            assert!(world.remove(&key).is_some(), "{line}: not there");
        } else {
            let entry = entry(&words);
            last = Some(entry.key().to_owned());
            put(world, entry);
        }
    }
}

fn entry(words: &[String]) -> FeedEntry {
    let name = &words[1];
    match words[0].as_str() {
        "workload" => {
            let fields = Fields::new(words.get(3..).unwrap_or_default());
            let net = |version: fn(&ipnet::IpNet) -> bool| -> Vec<ipnet::IpNet> {
                let nets = fields.list("ip").into_iter().map(|ip| {
                    ip.parse::<std::net::IpAddr>().map_or_else(|_| ip.parse().unwrap(), ipnet::IpNet::from)
                });
                nets.filter(version).collect()
            };
            let value = feed::WorkloadEndpoint {
                state: "active".into(),
                name: format!("cali{}", words[2].replace('/', "")),
                ipv4_nets: net(|net| matches!(net, ipnet::IpNet::V4(_))),
                ipv6_nets: net(|net| matches!(net, ipnet::IpNet::V6(_))),
                labels: fields.map("labels").into(),
                profile_ids: fields.profiles(),
                ports: fields.ports(),
                ..feed::WorkloadEndpoint::default()
            };
            FeedEntry::WorkloadEndpoint(workload_key(name, &words[2]), Some(Box::new(value)))
        }
        "host" => {
            let fields = Fields::new(words.get(3..).unwrap_or_default());
            let addresses: Vec<std::net::IpAddr> =
                fields.list("ip").iter().map(|ip| ip.parse().unwrap()).collect();
            let value = feed::HostEndpoint {
                name: words[2].clone(),
                expected_ipv4_addrs: addresses.iter().copied().filter(std::net::IpAddr::is_ipv4).collect(),
                expected_ipv6_addrs: addresses.iter().copied().filter(std::net::IpAddr::is_ipv6).collect(),
                labels: fields.map("labels").into(),
                profile_ids: fields.profiles(),
                ports: fields.ports(),
                qos_controls: None,
            };
            let key = HostEndpointKey { host: name.as_str().into(), endpoint: words[2].clone() };
            FeedEntry::HostEndpoint(key, Some(Box::new(value)))
        }
        "netset" => {
            let fields = Fields::new(&words[2..]);
            let value = feed::NetworkSet {
                nets: fields.list("nets").iter().map(|net| net.parse().unwrap()).collect(),
                labels: fields.map("labels").into(),
                profile_ids: fields.profiles(),
            };
            FeedEntry::NetworkSet(name.clone(), Some(Box::new(value)))
        }
        "profile" => profile(name, Fields::new(&words[2..]).map("labels")),
        "rules" => FeedEntry::ProfileRules(name.as_str().into(), Some(Box::default())),
        "tier" => {
            let fields = Fields::new(&words[2..]);
            let default_action = fields.0.get("action").map_or(RuleAction::Deny, |text| action(text));
            let tier = feed::Tier { order: fields.order(), default_action };
            FeedEntry::Tier(name.as_str().into(), Some(tier))
        }
        "policy" => policy(name, &Fields::new(&words[2..])),
        "slice" => {
            let fields = Fields::new(&words[2..]);
            let (namespace, name) = name.split_once('/').unwrap();
            let ports: Vec<(String, i32)> = fields
                .list("ports")
                .iter()
                .map(|port| port.split_once('/').unwrap())
                .map(|(protocol, port)| (protocol.to_owned(), port.parse().unwrap()))
                .collect();
            slice(namespace, name, &fields.text("service"), &fields.list("addresses"), &ports)
        }
        other => panic!("{other} is nothing that can be stored"),
    }
}

fn policy(name: &str, fields: &Fields) -> FeedEntry {
    let parts: Vec<&str> = name.split('/').collect();
    let (kind, namespace, name) = match parts[..] {
        [kind, name] => (kind, "", name),
        [kind, namespace, name] => (kind, namespace, name),
        _ => panic!("{name}: kind/name or kind/namespace/name"),
    };
    let key = PolicyKey {
        kind: Kind::from_name(kind).expect(kind),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let types = fields.list("types");
    let types = types.iter().map(|it| match it.as_str() {
        "ingress" => PolicyType::Ingress,
        "egress" => PolicyType::Egress,
        other => panic!("{other} is not a direction"),
    });
    let value = feed::Policy {
        namespace: namespace.to_owned(),
        tier: fields.0.get("tier").map_or("default", String::as_str).into(),
        order: fields.order(),
        selector: Selector::parse(&fields.text("selector")).unwrap(),
        do_not_track: fields.has("untracked"),
        pre_dnat: fields.has("prednat"),
        apply_on_forward: fields.has("forward"),
        types: types.collect(),
        performance_hints: fields.list("hints"),
        ..feed::Policy::default()
    };
    FeedEntry::Policy(key, Some(Box::new(value)))
}

fn action(text: &str) -> RuleAction {
    match text {
        "allow" => RuleAction::Allow,
        "deny" => RuleAction::Deny,
        "log" => RuleAction::Log,
        "pass" => RuleAction::Pass,
        other => panic!("{other} is not an action"),
    }
}

fn add_rule(owner: &mut FeedEntry, words: &[String]) {
    let fields = Fields::new(&words[2..]);
    let protocol = |name: &str| fields.0.get(name).map(|text| named_protocol(text));
    let rule = feed::Rule {
        action: action(&words[1]),
        protocol: protocol("protocol"),
        not_protocol: protocol("not-protocol"),
        source: end(&fields, "src"),
        destination: end(&fields, "dst"),
        ..feed::Rule::default()
    };
    let (inbound, outbound) = match owner {
        FeedEntry::Policy(_, Some(policy)) => (&mut policy.inbound_rules, &mut policy.outbound_rules),
        FeedEntry::ProfileRules(_, Some(rules)) => (&mut rules.inbound_rules, &mut rules.outbound_rules),
        _ => panic!("no rules there"),
    };
    if words[0] == "in" { inbound.push(rule) } else { outbound.push(rule) }
}

fn selector(text: &str) -> Option<Selector> {
    (!text.is_empty()).then(|| Selector::parse(text).unwrap())
}

fn end(fields: &Fields, prefix: &str) -> feed::RuleEnd {
    let name = |suffix: &str| format!("{prefix}{suffix}");
    let nets = |suffix| fields.list(&name(suffix)).iter().map(|net| net.parse().unwrap()).collect();
    let ports = |suffix| {
        let ports = fields.list(&name(suffix));
        ports
            .iter()
            .map(|port| match (port.parse(), port.split_once(':')) {
                (Ok(number), _) => Port::Range(PortRange { first: number, last: number }),
                (_, Some((first, last))) => {
                    Port::Range(PortRange { first: first.parse().unwrap(), last: last.parse().unwrap() })
                }
                _ => Port::Named(port.clone()),
            })
            .collect()
    };
    feed::RuleEnd {
        nets: nets("-nets"),
        not_nets: nets("-not-nets"),
        selector: selector(&fields.text(prefix)),
        not_selector: selector(&fields.text(&name("-not"))),
        ports: ports("-ports"),
        not_ports: ports("-not-ports"),
        service: fields
            .0
            .get(&name("-service"))
            .map(|service| service.split_once('/').unwrap())
            .map(|(namespace, name)| (namespace.to_owned(), name.to_owned())),
        original: None,
    }
}

/// The state as text, for comparison with a scenario.
pub(crate) fn render(state: &PolicyState) -> String {
    let mut out = String::new();
    for (id, (kind, members)) in &state.sets {
        let members: Vec<String> = members.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "set {id} {kind:?} {{{}}}", members.join(" "));
    }
    for (id, policy) in &state.policies {
        let _ = write!(out, "policy {id} tier={} selector={:?}", policy.tier, policy.original_selector);
        for (flag, on) in [(" untracked", policy.untracked), (" prednat", policy.pre_dnat)] {
            out.push_str(if on { flag } else { "" });
        }
        out.push('\n');
        render_rules(&mut out, &policy.inbound_rules, &policy.outbound_rules);
    }
    for (name, profile) in &state.profiles {
        let _ = writeln!(out, "profile {name}");
        render_rules(&mut out, &profile.inbound_rules, &profile.outbound_rules);
    }
    for (id, endpoint) in &state.workloads {
        let profiles = endpoint.profile_ids.join(",");
        let _ = writeln!(out, "workload {} {} profiles={profiles}", id.workload, id.endpoint);
        render_tiers(&mut out, "tier", &endpoint.tiers);
    }
    for (name, endpoint) in &state.hosts {
        let _ = writeln!(out, "host {name} profiles={}", endpoint.profile_ids.join(","));
        render_tiers(&mut out, "tier", &endpoint.tiers);
        render_tiers(&mut out, "untracked", &endpoint.untracked_tiers);
        render_tiers(&mut out, "prednat", &endpoint.pre_dnat_tiers);
        render_tiers(&mut out, "forward", &endpoint.forward_tiers);
    }
    out
}

fn render_tiers(out: &mut String, kind: &str, tiers: &[TierInfo]) {
    for tier in tiers {
        let ids =
            |ids: &[messages::PolicyId]| ids.iter().map(|id| id.name.clone()).collect::<Vec<_>>().join(",");
        let _ = writeln!(
            out,
            "  {kind} {} in=[{}] out=[{}] end={}",
            tier.name,
            ids(&tier.ingress_policies),
            ids(&tier.egress_policies),
            tier.default_action.as_str()
        );
    }
}

fn render_rules(out: &mut String, inbound: &[Rule], outbound: &[Rule]) {
    for (direction, rules) in [("in", inbound), ("out", outbound)] {
        for rule in rules {
            let _ = write!(out, "  {direction} {}", rule.action.as_str());
            if let Some(protocol) = &rule.protocol {
                let _ = write!(out, " protocol={protocol}");
            }
            render_end(out, "src", &rule.source);
            render_end(out, "dst", &rule.destination);
            let _ = writeln!(out, " id={}", rule.rule_id);
        }
    }
}

fn render_end(out: &mut String, prefix: &str, end: &RuleEnd) {
    let mut list = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            let _ = write!(out, " {prefix}{name}={}", values.join(","));
        }
    };
    let texts = |values: &[messages::IpSetId]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
    let ports = |ports: &[PortRange]| {
        ports.iter().map(|port| format!("{}:{}", port.first, port.last)).collect::<Vec<_>>()
    };
    list("-nets", end.nets.iter().map(ToString::to_string).collect());
    list("-sets", texts(&end.ip_set_ids));
    list("-ports", ports(&end.ports));
    list("-named-ports", texts(&end.named_port_ip_set_ids));
    list("-port-sets", texts(&end.ip_port_set_ids));
    list("-not-nets", end.not_nets.iter().map(ToString::to_string).collect());
    list("-not-sets", texts(&end.not_ip_set_ids));
    list("-not-ports", ports(&end.not_ports));
    list("-not-named-ports", texts(&end.not_named_port_ip_set_ids));
}
