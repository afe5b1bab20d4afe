//! Computes what the dataplane must know in a given world in the most obvious way: everything from scratch, every
//! selector with every item. It shares no code with the graph.

use crate::dataplane::PolicyState;
use crate::world::World;
use ipnet::IpNet;
use messages::{
    HostEndpoint, HostEndpointName, IpSetId, IpSetMember, IpSetType, OriginalEnd, Policy, PolicyId,
    PortRange, Profile, ProfileName, Rule, RuleEnd, Text, TierInfo, WorkloadEndpoint, WorkloadEndpointId,
};
use model::feed::{self, FeedEntry, FeedKey, PolicyType, Port, Protocol, RuleAction};
use model::v1::PolicyKey;
use model::{IpVersion, TierName};
use selector::{Selector, unique_id};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

type Labels = BTreeMap<String, String>;

/// An item with labels and addresses.
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

/// The expected state for this world on this host.
pub(crate) fn expected(world: &World, host: &str, suppress_overlaps: bool) -> PolicyState {
    let mut naive = Naive { world, host, sets: BTreeMap::new() };
    let mut state = PolicyState::default();
    let locals = naive.locals();
    let profiles: BTreeSet<&ProfileName> = locals.iter().flat_map(|entry| profiles_of(entry)).collect();
    for name in profiles {
        let rules = match world.get(&FeedKey::ProfileRules(name.clone())) {
            Some(FeedEntry::ProfileRules(_, Some(rules))) => (**rules).clone(),
            _ => {
                let deny = feed::Rule { action: RuleAction::Deny, ..feed::Rule::default() };
                feed::ProfileRules { inbound_rules: vec![deny.clone()], outbound_rules: vec![deny] }
            }
        };
        let profile = Profile {
            inbound_rules: naive.rules(&rules.inbound_rules),
            outbound_rules: naive.rules(&rules.outbound_rules),
        };
        state.profiles.insert(name.clone(), profile);
    }
    let ordered = naive.ordered_policies();
    for (key, policy) in &ordered {
        let everywhere = policy.performance_hints.iter().any(|hint| hint == "AssumeNeededOnEveryNode");
        if everywhere || locals.iter().any(|entry| naive.applies(policy, entry)) {
            let message = naive.policy(policy);
            state.policies.insert(Arc::new((*key).clone()), message);
        }
    }
    for entry in &locals {
        let tiers = naive.tiers(&ordered, entry);
        match entry {
            FeedEntry::WorkloadEndpoint(key, Some(value)) => {
                let id = WorkloadEndpointId {
                    orchestrator: Text::from(key.orchestrator.as_str()),
                    workload: Text::from(key.workload.as_str()),
                    endpoint: Text::from(key.endpoint.as_str()),
                };
                state.workloads.insert(id, workload_message(value, tiers.normal));
            }
            FeedEntry::HostEndpoint(key, Some(value)) => {
                state.hosts.insert(HostEndpointName::from(key.endpoint.as_str()), host_message(value, tiers));
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
    fn locals(&self) -> Vec<&'a FeedEntry> {
        let is_local = |entry: &&FeedEntry| match entry {
            FeedEntry::WorkloadEndpoint(key, _) => *key.host == *self.host,
            FeedEntry::HostEndpoint(key, _) => *key.host == *self.host,
            _ => false,
        };
        self.world.values().filter(is_local).collect()
    }

    fn labels(&self, own: &feed::Labels, profiles: &[ProfileName]) -> Labels {
        let mut labels: Labels =
            own.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        for name in profiles {
            if let Some(FeedEntry::Profile(_, Some(profile))) =
                self.world.get(&FeedKey::Profile(name.clone()))
            {
                for (name, value) in &profile.spec.labels_to_apply {
                    labels.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        labels
    }

    fn somebody(&self, entry: &FeedEntry) -> Option<Somebody> {
        Some(match entry {
            FeedEntry::WorkloadEndpoint(_, Some(it)) => Somebody {
                labels: self.labels(&it.labels, &it.profile_ids),
                nets: it.ipv4_nets.iter().chain(&it.ipv6_nets).map(|net| IpNet::from(net.addr())).collect(),
                ports: it.ports.clone(),
            },
            FeedEntry::HostEndpoint(_, Some(it)) => Somebody {
                labels: self.labels(&it.labels, &it.profile_ids),
                nets: it
                    .expected_ipv4_addrs
                    .iter()
                    .chain(&it.expected_ipv6_addrs)
                    .map(|address| IpNet::from(*address))
                    .collect(),
                ports: it.ports.clone(),
            },
            FeedEntry::NetworkSet(_, Some(it)) => Somebody {
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

    fn applies(&self, policy: &feed::Policy, entry: &FeedEntry) -> bool {
        self.somebody(entry).is_some_and(|somebody| policy.selector.evaluate(&somebody.labels))
    }

    /// All policies in the order in which they are evaluated.
    fn ordered_policies(&self) -> Vec<(&'a PolicyKey, &'a feed::Policy)> {
        let mut policies: Vec<(&PolicyKey, &feed::Policy)> = self
            .world
            .values()
            .filter_map(|entry| match entry {
                FeedEntry::Policy(key, Some(policy)) => Some((key, &**policy)),
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

    fn tier(&self, name: &TierName) -> Option<&'a feed::Tier> {
        match self.world.get(&FeedKey::Tier(name.clone())) {
            Some(FeedEntry::Tier(_, tier)) => tier.as_ref(),
            _ => None,
        }
    }

    fn tiers(&self, ordered: &[(&PolicyKey, &feed::Policy)], endpoint: &FeedEntry) -> Tiers {
        let tier_of = |policy: &feed::Policy| {
            if policy.tier.is_empty() { TierName::from("default") } else { policy.tier.clone() }
        };
        let mut names: Vec<TierName> =
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
            original_selector: policy.selector.canonical().to_owned(),
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
        Rule {
            action: rule.action,
            ip_version: match (rule.ip_version, &rule.protocol) {
                (Some(version), _) => Some(version),
                (None, Some(Protocol::Icmp)) => Some(IpVersion::V4),
                (None, Some(Protocol::Icmpv6)) => Some(IpVersion::V6),
                _ => None,
            },
            protocol: rule.protocol.map(Into::into),
            not_protocol: rule.not_protocol.map(Into::into),
            icmp: rule.icmp,
            not_icmp: rule.not_icmp,
            source: self.end(&rule.source, asked, false),
            destination: self.end(&rule.destination, asked, true),
            http: rule.http.clone(),
            annotations: rule.annotations.clone(),
            rule_id: String::new(),
        }
    }

    fn end(&mut self, end: &feed::RuleEnd, asked: &'static str, destination: bool) -> RuleEnd {
        let read = |text: &str| Selector::parse(text).unwrap();
        let positive = match (&end.selector, &end.not_selector) {
            (None, _) => None,
            (Some(yes), None) => Some(yes.clone()),
            (Some(yes), Some(no)) => Some(yes.and_not(no)),
        };
        let negative = end.not_selector.clone().filter(|_| end.selector.is_none());
        let numbers = |ports: &[Port]| -> Vec<PortRange> {
            ports
                .iter()
                .filter_map(|port| match port {
                    Port::Range(range) => Some(*range),
                    Port::Named(_) => None,
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
            let FeedEntry::EndpointSlice(_, Some(slice)) = value else { continue };
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

/// The protocol under which a port is put into a set that requires `asked`, if it is.
fn answer(protocol: &Protocol, asked: &str) -> Option<u8> {
    let by_number = matches!(protocol, Protocol::Number(1..));
    let (name, number) = match protocol {
        Protocol::Tcp | Protocol::Number(6) => ("tcp", 6),
        Protocol::Udp | Protocol::Number(17) => ("udp", 17),
        Protocol::Sctp | Protocol::Number(132) => ("sctp", 132),
        _ => ("", 6),
    };
    let answers = if asked == "any" { !by_number } else { name == asked };
    answers.then_some(number)
}

fn profiles_of(entry: &FeedEntry) -> &[ProfileName] {
    match entry {
        FeedEntry::WorkloadEndpoint(_, Some(it)) => &it.profile_ids,
        FeedEntry::HostEndpoint(_, Some(it)) => &it.profile_ids,
        _ => &[],
    }
}

fn workload_message(it: &feed::WorkloadEndpoint, tiers: Vec<TierInfo>) -> WorkloadEndpoint {
    WorkloadEndpoint {
        state: it.state.clone(),
        name: it.name.clone().into(),
        mac: it.mac.clone(),
        profile_ids: it.profile_ids.clone(),
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
        profile_ids: it.profile_ids.clone(),
        tiers: tiers.normal,
        untracked_tiers: tiers.untracked,
        pre_dnat_tiers: tiers.pre_dnat,
        forward_tiers: tiers.forward,
        expected_ipv4_addrs: it.expected_ipv4_addrs.clone(),
        expected_ipv6_addrs: it.expected_ipv6_addrs.clone(),
        qos_policies: Vec::new(),
    }
}
