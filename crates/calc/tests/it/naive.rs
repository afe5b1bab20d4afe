//! What the dataplane must know in a given world, computed in the most obvious way: everything from scratch, every selector
//! with everybody. It shares no code with the graph.

use crate::dataplane::PolicyState;
use crate::world::World;
use api::Resource;
use api::scalars::{IntOrString, Port, Protocol};
use ipnet::IpNet;
use messages::{
    HostEndpoint, IcmpMatch, IpSetId, IpSetMember, IpSetType, OriginalEnd, Policy, PolicyId, PortRange,
    Profile, Rule, RuleEnd, Text, TierInfo, WorkloadEndpoint, WorkloadEndpointId,
};
use model::feed::{self, FeedValue, PolicyType, RuleAction};
use model::v1::PolicyKey;
use model::{IpVersion, Key, V1Key};
use selector::{Selector, unique_id};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

type Labels = BTreeMap<String, String>;

/// Somebody with labels and addresses.
struct Somebody {
    labels: Labels,
    nets: Vec<IpNet>,
    ports: Vec<feed::EndpointPort>,
}

#[derive(Clone)]
enum SetDefinition {
    Selector(Selector),
    NamedPort(Selector, &'static str, String),
    Service(String, bool),
}

struct Naive<'a> {
    world: &'a World,
    host: &'a str,
    sets: BTreeMap<IpSetId, SetDefinition>,
}

/// The state for this world on this host.
pub(crate) fn expected(world: &World, host: &str, suppress_overlaps: bool) -> PolicyState {
    let mut naive = Naive { world, host, sets: BTreeMap::new() };
    let mut state = PolicyState::default();
    let locals = naive.locals();
    let profiles: BTreeSet<&String> = locals.iter().flat_map(|(_, value)| profiles_of(value)).collect();
    for name in profiles {
        let rules = match world.get(&Key::V1(V1Key::ProfileRules { name: name.clone() })) {
            Some(FeedValue::ProfileRules(rules)) => (**rules).clone(),
            _ => {
                let deny = feed::Rule { action: RuleAction::Deny, ..feed::Rule::default() };
                feed::ProfileRules { inbound_rules: vec![deny.clone()], outbound_rules: vec![deny] }
            }
        };
        let profile = Profile {
            inbound_rules: naive.rules(&rules.inbound_rules),
            outbound_rules: naive.rules(&rules.outbound_rules),
        };
        state.profiles.insert(Text::from(name.as_str()), profile);
    }
    let ordered = naive.ordered_policies();
    for (key, policy) in &ordered {
        let everywhere = policy.performance_hints.iter().any(|hint| hint == "AssumeNeededOnEveryNode");
        if everywhere || locals.iter().any(|(_, value)| naive.applies(policy, value)) {
            let message = naive.policy(policy);
            state.policies.insert(Arc::new((*key).clone()), message);
        }
    }
    for (key, value) in &locals {
        let tiers = naive.tiers(&ordered, value);
        match (key, value) {
            (
                Key::V1(V1Key::WorkloadEndpoint { orchestrator, workload, endpoint, .. }),
                FeedValue::WorkloadEndpoint(value),
            ) => {
                let id = WorkloadEndpointId {
                    orchestrator: Text::from(orchestrator.as_str()),
                    workload: Text::from(workload.as_str()),
                    endpoint: Text::from(endpoint.as_str()),
                };
                state.workloads.insert(id, workload_message(value, tiers.normal));
            }
            (Key::V1(V1Key::HostEndpoint { endpoint, .. }), FeedValue::HostEndpoint(value)) => {
                state.hosts.insert(Text::from(endpoint.as_str()), host_message(value, tiers));
            }
            _ => unreachable!("only endpoints are local"),
        }
    }
    for (id, definition) in naive.sets.clone() {
        state.sets.insert(id, naive.set(&definition, suppress_overlaps));
    }
    state
}

#[derive(Default)]
struct Tiers {
    normal: Vec<TierInfo>,
    untracked: Vec<TierInfo>,
    pre_dnat: Vec<TierInfo>,
    forward: Vec<TierInfo>,
}

impl<'a> Naive<'a> {
    fn locals(&self) -> Vec<(&'a Key, &'a FeedValue)> {
        let is_local = |key: &Key| match key {
            Key::V1(V1Key::WorkloadEndpoint { host, .. } | V1Key::HostEndpoint { host, .. }) => {
                host == self.host
            }
            _ => false,
        };
        self.world.iter().filter(|(key, _)| is_local(key)).collect()
    }

    fn labels(&self, own: &Labels, profiles: &[String]) -> Labels {
        let mut labels = own.clone();
        for name in profiles {
            let key = Key::resource(api::Kind::Profile, "", name);
            if let Some(FeedValue::Resource(resource)) = self.world.get(&key)
                && let Resource::Profile(profile) = &**resource
            {
                for (name, value) in &profile.spec.labels_to_apply {
                    labels.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        labels
    }

    fn somebody(&self, value: &FeedValue) -> Option<Somebody> {
        Some(match value {
            FeedValue::WorkloadEndpoint(it) => Somebody {
                labels: self.labels(&it.labels, &it.profile_ids),
                nets: it.ipv4_nets.iter().chain(&it.ipv6_nets).map(|net| IpNet::from(net.addr())).collect(),
                ports: it.ports.clone(),
            },
            FeedValue::HostEndpoint(it) => Somebody {
                labels: self.labels(&it.labels, &it.profile_ids),
                nets: it
                    .expected_ipv4_addrs
                    .iter()
                    .chain(&it.expected_ipv6_addrs)
                    .map(|address| IpNet::from(*address))
                    .collect(),
                ports: it.ports.clone(),
            },
            FeedValue::NetworkSet(it) => Somebody {
                labels: self.labels(&it.labels, &it.profile_ids),
                nets: it
                    .nets
                    .iter()
                    .flat_map(|net| match net.to_string().as_str() {
                        "0.0.0.0/0" => vec!["0.0.0.0/1".parse().unwrap(), "128.0.0.0/1".parse().unwrap()],
                        "::/0" => vec!["::/1".parse().unwrap(), "8000::/1".parse().unwrap()],
                        _ => vec![net.trunc()],
                    })
                    .collect(),
                ports: Vec::new(),
            },
            _ => return None,
        })
    }

    fn applies(&self, policy: &feed::Policy, value: &FeedValue) -> bool {
        let Ok(selector) = Selector::parse(&policy.selector) else { return false };
        self.somebody(value).is_some_and(|somebody| selector.evaluate(&somebody.labels))
    }

    /// All policies in the order in which they are looked at.
    fn ordered_policies(&self) -> Vec<(&'a PolicyKey, &'a feed::Policy)> {
        let mut policies: Vec<(&PolicyKey, &feed::Policy)> = self
            .world
            .iter()
            .filter_map(|(key, value)| match (key, value) {
                (Key::V1(V1Key::Policy(key)), FeedValue::Policy(policy)) => Some((key, &**policy)),
                _ => None,
            })
            .collect();
        policies.sort_by(|(key_a, a), (key_b, b)| {
            let text = |key: &PolicyKey| format!("{}/{}/{}", key.name, key.namespace, key.kind);
            let order = |policy: &feed::Policy| policy.order.unwrap_or(f64::INFINITY);
            order(a).partial_cmp(&order(b)).unwrap().then_with(|| text(key_a).cmp(&text(key_b)))
        });
        policies
    }

    fn tier(&self, name: &str) -> Option<&'a feed::Tier> {
        match self.world.get(&Key::V1(V1Key::Tier { name: name.to_owned() })) {
            Some(FeedValue::Tier(tier)) => Some(tier),
            _ => None,
        }
    }

    fn tiers(&self, ordered: &[(&PolicyKey, &feed::Policy)], endpoint: &FeedValue) -> Tiers {
        let tier_of = |policy: &feed::Policy| {
            if policy.tier.is_empty() { "default".to_owned() } else { policy.tier.clone() }
        };
        let mut names: Vec<String> =
            ordered.iter().map(|(_, policy)| tier_of(policy)).collect::<BTreeSet<_>>().into_iter().collect();
        names.sort_by(|a, b| {
            let (tier_a, tier_b) = (self.tier(a), self.tier(b));
            let order = |tier: Option<&feed::Tier>| tier.and_then(|tier| tier.order);
            let by_order = match (order(tier_a), order(tier_b)) {
                (Some(a), Some(b)) => a.partial_cmp(&b).unwrap(),
                (None, None) => std::cmp::Ordering::Equal,
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
            };
            tier_a.is_none().cmp(&tier_b.is_none()).then(by_order).then(a.cmp(b))
        });
        let mut tiers = Tiers::default();
        for name in names {
            let action = self.tier(&name).map_or(RuleAction::Deny, |tier| tier.default_action);
            let here = |choose: &dyn Fn(&feed::Policy) -> bool, egress: bool, action: RuleAction| {
                let mut tier = TierInfo { name: name.clone(), default_action: action, ..TierInfo::default() };
                for (key, policy) in ordered {
                    if tier_of(policy) != name || !choose(policy) || !self.applies(policy, endpoint) {
                        continue;
                    }
                    let id: PolicyId = Arc::new((*key).clone());
                    let both = policy.types.is_empty();
                    if both || policy.types.contains(&PolicyType::Ingress) {
                        tier.ingress_policies.push(id.clone());
                    }
                    if egress && (both || policy.types.contains(&PolicyType::Egress)) {
                        tier.egress_policies.push(id);
                    }
                }
                (!tier.ingress_policies.is_empty() || !tier.egress_policies.is_empty()).then_some(tier)
            };
            let plain = |policy: &feed::Policy| !policy.do_not_track && !policy.pre_dnat;
            tiers.normal.extend(here(&plain, true, action));
            tiers.forward.extend(here(&|policy| plain(policy) && policy.apply_on_forward, true, action));
            tiers.untracked.extend(here(&|policy| policy.do_not_track, true, RuleAction::Pass));
            tiers.pre_dnat.extend(here(
                &|policy| policy.pre_dnat && !policy.do_not_track,
                false,
                RuleAction::Pass,
            ));
        }
        tiers
    }

    fn policy(&mut self, policy: &feed::Policy) -> Policy {
        Policy {
            namespace: policy.namespace.clone(),
            tier: if policy.tier.is_empty() { "default".into() } else { policy.tier.clone() },
            inbound_rules: self.rules(&policy.inbound_rules),
            outbound_rules: self.rules(&policy.outbound_rules),
            untracked: policy.do_not_track,
            pre_dnat: policy.pre_dnat,
            original_selector: Selector::parse(&policy.selector)
                .map_or_else(|_| policy.selector.clone(), |selector| selector.canonical().to_owned()),
            performance_hints: policy.performance_hints.clone(),
        }
    }

    fn rules(&mut self, rules: &[feed::Rule]) -> Vec<Rule> {
        rules.iter().map(|rule| self.rule(rule)).collect()
    }

    fn rule(&mut self, rule: &feed::Rule) -> Rule {
        let asked = match &rule.protocol {
            None => "any",
            Some(Protocol::Udp | Protocol::Number(17)) => "udp",
            Some(Protocol::Sctp | Protocol::Number(132)) => "sctp",
            Some(_) => "tcp",
        };
        let icmp = |fields: &Option<api::ICMPFields>| {
            let fields = fields.as_ref()?;
            let small = |number: i64| u8::try_from(number).unwrap();
            Some(IcmpMatch { icmp_type: small(fields.icmp_type?), code: fields.code.map(small) })
        };
        Rule {
            action: rule.action,
            ip_version: match (rule.ip_version, &rule.protocol) {
                (Some(version), _) => Some(version),
                (None, Some(Protocol::Icmp)) => Some(IpVersion::V4),
                (None, Some(Protocol::Icmpv6)) => Some(IpVersion::V6),
                _ => None,
            },
            protocol: rule.protocol.clone(),
            not_protocol: rule.not_protocol.clone(),
            icmp: icmp(&rule.icmp),
            not_icmp: icmp(&rule.not_icmp),
            source: self.end(&rule.source, asked, false),
            destination: self.end(&rule.destination, asked, true),
            http: rule.http.clone(),
            annotations: rule.annotations.clone(),
            rule_id: String::new(),
        }
    }

    fn end(&mut self, end: &feed::RuleEnd, asked: &'static str, destination: bool) -> RuleEnd {
        let read = |text: &str| Selector::parse(text).unwrap();
        let positive = match (end.selector.as_str(), end.not_selector.as_str()) {
            ("", _) => None,
            (yes, "") => Some(read(yes)),
            (yes, no) => Some(read(&format!("({yes}) && (!({no}))"))),
        };
        let negative =
            (end.selector.is_empty() && !end.not_selector.is_empty()).then(|| read(&end.not_selector));
        let numbers = |ports: &[Port]| -> Vec<PortRange> {
            ports
                .iter()
                .filter_map(|port| match port {
                    Port::Range { min, max } => Some(PortRange { first: *min, last: *max }),
                    _ => None,
                })
                .collect()
        };
        let mut out = RuleEnd {
            nets: end.nets.clone(),
            ports: numbers(&end.ports),
            not_nets: end.not_nets.clone(),
            not_ports: numbers(&end.not_ports),
            ..RuleEnd::default()
        };
        for (ports, ids) in [
            (&end.ports, &mut out.named_port_ip_set_ids),
            (&end.not_ports, &mut out.not_named_port_ip_set_ids),
        ] {
            for port in ports {
                if let Port::Named(name) = port {
                    let selector = positive.clone().unwrap_or_else(|| read("all()"));
                    let id = unique_id("n", &format!("{},{asked},{name}", selector.unique_id()));
                    ids.push(self.use_set(&id, SetDefinition::NamedPort(selector, asked, name.clone())));
                }
            }
        }
        let only_named = !out.named_port_ip_set_ids.is_empty() && out.ports.is_empty();
        if let Some(selector) = positive
            && !only_named
        {
            let id = selector.unique_id().to_owned();
            out.ip_set_ids.push(self.use_set(&id, SetDefinition::Selector(selector)));
        }
        if let Some(selector) = negative {
            let id = selector.unique_id().to_owned();
            out.not_ip_set_ids.push(self.use_set(&id, SetDefinition::Selector(selector)));
        }
        if let Some((namespace, name)) = &end.service {
            let service = format!("{namespace}/{name}");
            let id = unique_id(if destination { "svc" } else { "svcnoport" }, &service);
            let id = self.use_set(&id, SetDefinition::Service(service, destination));
            if destination { out.ip_port_set_ids.push(id) } else { out.ip_set_ids.push(id) }
        }
        if end.original.is_some() || end.service.is_some() {
            let original = end.original.clone().unwrap_or_default();
            let (namespace, name) = end.service.clone().unwrap_or_default();
            out.original = Some(Box::new(OriginalEnd {
                selector: original.selector,
                namespace_selector: original.namespace_selector,
                not_selector: original.not_selector,
                service_account_names: original.service_account_names,
                service_account_selector: original.service_account_selector,
                service: name.into(),
                service_namespace: namespace.into(),
            }));
        }
        out
    }

    fn use_set(&mut self, id: &str, definition: SetDefinition) -> IpSetId {
        let id = IpSetId::from(id);
        self.sets.insert(id.clone(), definition);
        id
    }

    fn set(&self, definition: &SetDefinition, suppress: bool) -> (IpSetType, BTreeSet<IpSetMember>) {
        let everybody = || self.world.values().filter_map(|value| self.somebody(value));
        match definition {
            SetDefinition::Selector(selector) => {
                let nets: BTreeSet<IpNet> =
                    everybody().filter(|it| selector.evaluate(&it.labels)).flat_map(|it| it.nets).collect();
                let covered = |net: &IpNet| nets.iter().any(|wide| wide != net && wide.contains(net));
                let told = nets.iter().filter(|net| !suppress || !covered(net));
                (IpSetType::Net, told.map(|net| IpSetMember::Net(*net)).collect())
            }
            SetDefinition::NamedPort(selector, asked, name) => {
                let mut members = BTreeSet::new();
                for it in everybody().filter(|it| selector.evaluate(&it.labels)) {
                    for port in it.ports.iter().filter(|port| port.name == *name) {
                        let Some(protocol) = answer(&port.protocol, asked) else { continue };
                        members.extend(it.nets.iter().map(|net| IpSetMember::IpAndPort {
                            address: net.addr(),
                            protocol,
                            port: port.port,
                        }));
                    }
                }
                (IpSetType::IpAndPort, members)
            }
            SetDefinition::Service(service, with_ports) => self.service(service, *with_ports),
        }
    }

    fn service(&self, service: &str, with_ports: bool) -> (IpSetType, BTreeSet<IpSetMember>) {
        let mut members = BTreeSet::new();
        for value in self.world.values() {
            let FeedValue::Resource(resource) = value else { continue };
            let Resource::KubernetesEndpointSlice(slice) = &**resource else { continue };
            let name = &slice.metadata.labels["kubernetes.io/service-name"];
            if format!("{}/{name}", slice.metadata.namespace) != service {
                continue;
            }
            let content = &slice.spec.0;
            for text in content.endpoints.iter().flat_map(|endpoint| &endpoint.addresses) {
                let Ok(address) = text.parse::<IpAddr>() else { continue };
                if !with_ports {
                    members.insert(IpSetMember::Net(IpNet::from(address)));
                    continue;
                }
                for port in &content.ports {
                    let Some(number) = port.port else { continue };
                    let protocol = match port.protocol.as_deref() {
                        Some("UDP") => 17,
                        Some("SCTP") => 132,
                        _ => 6,
                    };
                    let port = u16::try_from(number).unwrap();
                    members.insert(IpSetMember::IpAndPort { address, protocol, port });
                }
            }
        }
        (if with_ports { IpSetType::IpAndPort } else { IpSetType::Net }, members)
    }
}

/// The protocol under which a port goes into a set that asks for `asked`, if it does.
fn answer(protocol: &Protocol, asked: &str) -> Option<u8> {
    let by_number = matches!(protocol, Protocol::Number(1..) | Protocol::Other(IntOrString::Int(_)));
    let (name, number) = match protocol {
        Protocol::Tcp | Protocol::Number(6) => ("tcp", 6),
        Protocol::Udp | Protocol::Number(17) => ("udp", 17),
        Protocol::Sctp | Protocol::Number(132) => ("sctp", 132),
        _ => ("", 6),
    };
    let answers = if asked == "any" { !by_number } else { name == asked };
    answers.then_some(number)
}

fn profiles_of(value: &FeedValue) -> &[String] {
    match value {
        FeedValue::WorkloadEndpoint(it) => &it.profile_ids,
        FeedValue::HostEndpoint(it) => &it.profile_ids,
        _ => &[],
    }
}

fn texts(names: &[String]) -> Vec<Text> {
    names.iter().map(|name| Text::from(name.as_str())).collect()
}

fn workload_message(it: &feed::WorkloadEndpoint, tiers: Vec<TierInfo>) -> WorkloadEndpoint {
    WorkloadEndpoint {
        state: it.state.clone(),
        name: it.name.clone(),
        mac: it.mac.clone(),
        profile_ids: texts(&it.profile_ids),
        ipv4_nets: it.ipv4_nets.clone(),
        ipv6_nets: it.ipv6_nets.clone(),
        tiers,
        annotations: it.annotations.clone(),
        ..WorkloadEndpoint::default()
    }
}

fn host_message(it: &feed::HostEndpoint, tiers: Tiers) -> HostEndpoint {
    HostEndpoint {
        name: it.name.clone(),
        profile_ids: texts(&it.profile_ids),
        tiers: tiers.normal,
        untracked_tiers: tiers.untracked,
        pre_dnat_tiers: tiers.pre_dnat,
        forward_tiers: tiers.forward,
        expected_ipv4_addrs: it.expected_ipv4_addrs.clone(),
        expected_ipv6_addrs: it.expected_ipv6_addrs.clone(),
        qos_policies: Vec::new(),
    }
}
