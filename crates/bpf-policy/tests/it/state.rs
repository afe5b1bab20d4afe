//! Random states of a host from a small vocabulary, so that collisions occur: sets with overlapping members, policies
//! that use all features of rules, workloads and host endpoints.

use api::Kind;
use api::scalars::{IntOrString, Protocol};
use bpf_policy::Policies;
use ipnet::IpNet;
use messages::{
    HostEndpoint, HostEndpointName, IcmpMatch, IpSetId, IpSetMember, IpSetType, Policy, PolicyId, PortRange,
    Profile, ProfileName, Rule, RuleEnd, TierInfo, ToDataplane, WorkloadEndpoint, WorkloadEndpointId,
};
use model::IpVersion;
use model::feed::RuleAction;
use model::v1::PolicyKey;
use proptest::collection::{btree_set, vec};
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub(crate) const PORTS: [u16; 8] = [0, 22, 53, 80, 81, 443, 8080, 65535];
pub(crate) const ADDRESS_SETS: [&str; 4] = ["s:a", "s:b", "s:c", "s:nets"];
pub(crate) const PORT_SETS: [&str; 2] = ["n:web", "svc:dns"];
pub(crate) const POLICIES: usize = 6;
pub(crate) const PROFILES: usize = 2;
pub(crate) const WORKLOADS: [&str; 3] = ["cali1", "cali2", "cali3"];
pub(crate) const HOSTS: [&str; 2] = ["eth0", "eth1"];

#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) sets: BTreeMap<IpSetId, BTreeSet<IpSetMember>>,
    pub(crate) policies: BTreeMap<PolicyId, Arc<Policy>>,
    pub(crate) profiles: BTreeMap<ProfileName, Arc<Profile>>,
    pub(crate) workloads: BTreeMap<WorkloadEndpointId, WorkloadEndpoint>,
    pub(crate) hosts: BTreeMap<HostEndpointName, HostEndpoint>,
}

impl State {
    /// The messages that the calculation graph would send for it.
    pub(crate) fn messages(&self) -> Vec<ToDataplane> {
        let mut all = Vec::new();
        for (id, members) in &self.sets {
            all.push(ToDataplane::IpSetUpdate {
                id: id.clone(),
                set_type: set_type(id),
                members: members.iter().copied().collect(),
            });
        }
        let policies = self.policies.iter();
        all.extend(policies.map(|(id, policy)| ToDataplane::PolicyUpdate(id.clone(), policy.clone())));
        let profiles = self.profiles.iter();
        all.extend(profiles.map(|(id, profile)| ToDataplane::ProfileUpdate(id.clone(), profile.clone())));
        all.extend(self.workloads.iter().map(|(id, workload)| {
            ToDataplane::WorkloadEndpointUpdate(id.clone(), Box::new(workload.clone()))
        }));
        let hosts = self.hosts.iter();
        all.extend(
            hosts.map(|(id, host)| ToDataplane::HostEndpointUpdate(id.clone(), Box::new(host.clone()))),
        );
        all
    }

    /// Its tables, built from scratch.
    pub(crate) fn fresh(&self) -> Policies {
        let mut policies = Policies::default();
        self.messages().iter().for_each(|message| policies.update(message));
        policies.flush();
        policies
    }
}

pub(crate) fn set_type(id: &str) -> IpSetType {
    match id {
        "s:nets" => IpSetType::Net,
        id if id.starts_with("s:") => IpSetType::Ip,
        _ => IpSetType::IpAndPort,
    }
}

pub(crate) fn workload_id(name: &str) -> WorkloadEndpointId {
    WorkloadEndpointId { orchestrator: "k8s".into(), workload: name.into(), endpoint: "eth0".into() }
}

pub(crate) fn policy_id(number: usize) -> PolicyId {
    let kind = match number % 3 {
        2 => Kind::StagedGlobalNetworkPolicy,
        _ => Kind::GlobalNetworkPolicy,
    };
    Arc::new(PolicyKey { kind, namespace: String::new(), name: format!("policy-{number}") })
}

pub(crate) fn profile_id(number: usize) -> ProfileName {
    format!("profile-{number}").into()
}

pub(crate) fn addresses(version: IpVersion) -> Vec<IpAddr> {
    let texts = match version {
        IpVersion::V4 => ["10.0.0.1", "10.0.0.2", "10.0.0.5", "10.1.0.1", "11.0.0.1", "192.0.2.1"],
        IpVersion::V6 => ["fd00::1", "fd00::2", "fd00::5", "fd00:1::1", "fd01::1", "2001:db8::1"],
    };
    texts.map(|text| text.parse().expect("an address")).to_vec()
}

fn networks() -> Vec<IpNet> {
    let v4 = ["10.0.0.0/8", "10.0.0.0/30", "10.0.0.0/16", "10.0.0.2/32", "192.0.2.0/24", "0.0.0.0/0"];
    let v6 = ["fd00::/16", "fd00::/126", "fd00::/32", "fd00::2/128", "2001:db8::/32", "::/0"];
    v4.into_iter().chain(v6).map(|text| text.parse().expect("a network")).collect()
}

fn any_address() -> impl Strategy<Value = IpAddr> {
    select([addresses(IpVersion::V4), addresses(IpVersion::V6)].concat())
}

/// A member of a set of this name.
pub(crate) fn member(id: &str) -> BoxedStrategy<IpSetMember> {
    match set_type(id) {
        IpSetType::Ip => any_address().prop_map(IpSetMember::Ip).boxed(),
        IpSetType::Net => {
            let single = any_address().prop_map(IpNet::from);
            prop_oneof![2 => select(networks()), 1 => single].prop_map(IpSetMember::Net).boxed()
        }
        IpSetType::IpAndPort => (any_address(), select(vec![6_u8, 17, 132]), select(PORTS.to_vec()))
            .prop_map(|(address, protocol, port)| IpSetMember::IpAndPort { address, protocol, port })
            .boxed(),
    }
}

pub(crate) fn members(id: &str) -> BoxedStrategy<BTreeSet<IpSetMember>> {
    btree_set(member(id), 0..6).boxed()
}

/// Mostly empty: a rule with all conditions matches nothing.
fn few<S: Strategy>(entry: S, most: usize) -> impl Strategy<Value = Vec<S::Value>>
where
    S::Value: Clone,
{
    prop_oneof![4 => Just(Vec::new()), 1 => vec(entry, 1..=most)]
}

fn port_range() -> impl Strategy<Value = PortRange> {
    let more = prop_oneof![4 => Just(0_u16), 2 => 0_u16..400, 1 => Just(u16::MAX)];
    let range = (select(PORTS.to_vec()), more)
        .prop_map(|(first, more)| PortRange { first, last: first.saturating_add(more) });
    prop_oneof![20 => range, 1 => Just(PortRange { first: 9, last: 8 })]
}

fn rule_end(is_destination: bool) -> BoxedStrategy<RuleEnd> {
    let text = |names: &[&'static str]| select(names.to_vec()).prop_map(IpSetId::from);
    let sets = move || text(&ADDRESS_SETS);
    let port_sets = move || text(&PORT_SETS);
    let nets = || few(select(networks()), 3);
    let ports = || few(port_range(), 5);
    let services = usize::from(is_destination);
    (
        (nets(), nets(), ports(), ports()),
        (few(port_sets(), 2), few(port_sets(), 1), few(sets(), 2), few(sets(), 1)),
        prop_oneof![9 => Just(Vec::new()), 1 => vec(port_sets(), services)],
    )
        .prop_map(|((nets, not_nets, ports, not_ports), (named, not_named, sets, not_sets), services)| {
            RuleEnd {
                nets,
                ports,
                named_port_ip_set_ids: named,
                ip_set_ids: sets,
                ip_port_set_ids: services,
                not_nets,
                not_ports,
                not_named_port_ip_set_ids: not_named,
                not_ip_set_ids: not_sets,
                original: None,
            }
        })
        .boxed()
}

fn protocol() -> impl Strategy<Value = Protocol> {
    use Protocol::{Icmp, Icmpv6, Number, Other, Sctp, Tcp, Udp};
    prop_oneof![
        12 => select(vec![Tcp, Tcp, Udp, Sctp, Number(6), Number(17)]),
        4 => select(vec![Icmp, Icmpv6, Number(1), Number(58), Number(47)]),
        1 => select(vec![Number(0), Other(IntOrString::from("strange"))]),
    ]
}

fn icmp() -> impl Strategy<Value = IcmpMatch> {
    (select(vec![0_u8, 3, 8, 128]), proptest::option::of(0_u8..2))
        .prop_map(|(icmp_type, code)| IcmpMatch { icmp_type, code })
}

pub(crate) fn rule() -> BoxedStrategy<Rule> {
    let actions = [RuleAction::Allow, RuleAction::Allow, RuleAction::Deny, RuleAction::Pass, RuleAction::Log];
    (
        select(actions.to_vec()),
        weighted(0.1, select(IpVersion::BOTH.to_vec())),
        weighted(0.6, protocol()),
        weighted(0.15, protocol()),
        (weighted(0.1, icmp()), weighted(0.1, icmp())),
        prop_oneof![1 => Just(RuleEnd::default()), 1 => rule_end(false)],
        prop_oneof![1 => Just(RuleEnd::default()), 2 => rule_end(true)],
    )
        .prop_map(|(action, ip_version, protocol, not_protocol, (icmp, not_icmp), source, destination)| {
            Rule {
                action,
                ip_version,
                protocol,
                not_protocol,
                icmp,
                not_icmp,
                source,
                destination,
                ..Rule::default()
            }
        })
        .boxed()
}

/// A few rules; occasionally so many that they need more than one segment.
fn rules() -> BoxedStrategy<Vec<Rule>> {
    let many = (rule(), 400_usize..900).prop_map(|(rule, count)| numbered(&rule, count));
    prop_oneof![40 => vec(rule(), 0..5), 1 => many].boxed()
}

/// Rules that differ only in their source, so that none hides another.
fn numbered(rule: &Rule, count: usize) -> Vec<Rule> {
    let one = |number: usize| {
        let mut rule = Rule { action: RuleAction::Log, ..rule.clone() };
        let [.., high, low] = number.to_be_bytes();
        let net = format!("10.{high}.{low}.0/24").parse().expect("a network");
        rule.source.nets = vec![net];
        rule
    };
    (0..count).map(one).collect()
}

pub(crate) fn policy() -> BoxedStrategy<Policy> {
    (rules(), rules(), select(vec!["all()", "has(app)"]))
        .prop_map(|(inbound_rules, outbound_rules, selector)| Policy {
            inbound_rules,
            outbound_rules,
            original_selector: selector.to_owned(),
            ..Policy::default()
        })
        .boxed()
}

/// There is nothing to pass to after profiles.
pub(crate) fn profile() -> BoxedStrategy<Profile> {
    let without_pass = |mut rules: Vec<Rule>| {
        for rule in rules.iter_mut().filter(|rule| rule.action == RuleAction::Pass) {
            rule.action = RuleAction::Deny;
        }
        rules
    };
    (rules(), rules())
        .prop_map(move |(inbound, outbound)| Profile {
            inbound_rules: without_pass(inbound),
            outbound_rules: without_pass(outbound),
        })
        .boxed()
}

fn tiers() -> BoxedStrategy<Vec<TierInfo>> {
    let policies = || vec(any::<Index>(), 0..4);
    let tier = (policies(), policies(), any::<bool>());
    vec(tier, 0..4)
        .prop_map(|tiers| {
            let chosen = |plan: &[Index]| {
                plan.iter().map(|index| policy_id(index.index(POLICIES))).collect::<Vec<_>>()
            };
            let tier =
                |(number, (ingress, egress, pass)): (usize, (Vec<Index>, Vec<Index>, bool))| TierInfo {
                    name: format!("tier-{number}").into(),
                    default_action: if pass { RuleAction::Pass } else { RuleAction::Deny },
                    ingress_policies: chosen(&ingress),
                    egress_policies: chosen(&egress),
                };
            tiers.into_iter().enumerate().map(tier).collect()
        })
        .boxed()
}

fn profile_ids() -> impl Strategy<Value = Vec<ProfileName>> {
    proptest::sample::subsequence((0..PROFILES).map(profile_id).collect::<Vec<_>>(), 0..=PROFILES)
}

pub(crate) fn workload(name: &'static str) -> BoxedStrategy<WorkloadEndpoint> {
    (tiers(), profile_ids(), prop::bool::weighted(0.95))
        .prop_map(move |(tiers, profile_ids, active)| WorkloadEndpoint {
            state: if active { "active" } else { "inactive" }.to_owned(),
            name: name.into(),
            profile_ids,
            tiers,
            ..WorkloadEndpoint::default()
        })
        .boxed()
}

pub(crate) fn host(name: &'static str) -> BoxedStrategy<HostEndpoint> {
    (tiers(), tiers(), tiers(), tiers(), profile_ids())
        .prop_map(move |(tiers, forward_tiers, pre_dnat_tiers, untracked_tiers, profile_ids)| HostEndpoint {
            name: name.to_owned(),
            profile_ids,
            tiers,
            forward_tiers,
            pre_dnat_tiers,
            untracked_tiers,
            ..HostEndpoint::default()
        })
        .boxed()
}

pub(crate) fn state() -> impl Strategy<Value = State> {
    let [a, b, c, nets] = ADDRESS_SETS.map(members);
    let [web, dns] = PORT_SETS.map(members);
    let [one, two, three] = WORKLOADS.map(workload);
    let [first, second] = HOSTS.map(host);
    (
        (a, b, c, nets, web, dns),
        (vec(policy(), POLICIES), vec(profile(), PROFILES)),
        (one, two, three),
        (first, second),
    )
        .prop_map(
            |((a, b, c, nets, web, dns), (policies, profiles), (one, two, three), (first, second))| {
                let ids = ADDRESS_SETS.into_iter().chain(PORT_SETS).map(IpSetId::from);
                State {
                    sets: ids.zip([a, b, c, nets, web, dns]).collect(),
                    policies: (0..).map(policy_id).zip(policies.into_iter().map(Arc::new)).collect(),
                    profiles: (0..).map(profile_id).zip(profiles.into_iter().map(Arc::new)).collect(),
                    workloads: WORKLOADS.map(workload_id).into_iter().zip([one, two, three]).collect(),
                    hosts: HOSTS.map(HostEndpointName::from).into_iter().zip([first, second]).collect(),
                }
            },
        )
}

pub(crate) fn packet(version: IpVersion) -> BoxedStrategy<bpf_policy::Packet> {
    let own_icmp = if version == IpVersion::V6 { 58 } else { 1 };
    let other_icmp = if version == IpVersion::V6 { 1 } else { 58 };
    let port = || prop_oneof![8 => select(PORTS.to_vec()), 1 => any::<u16>()];
    (
        (select(addresses(version)), select(addresses(version))),
        select(vec![6, 6, 17, 17, 132, own_icmp, own_icmp, other_icmp, 47, 4]),
        (port(), port()),
        (select(vec![0_u8, 3, 8, 128]), 0_u8..2),
    )
        .prop_map(|((source, destination), protocol, ports, icmp)| bpf_policy::Packet {
            source,
            destination,
            protocol,
            ports,
            icmp,
        })
        .boxed()
}
