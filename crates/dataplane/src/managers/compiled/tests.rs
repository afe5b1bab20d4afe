//! The changes written for an endpoint, a policy or a set where policies are compiled.

use super::super::{CompiledPolicies, Interfaces, Manager, News, World};
use super::LARGE;
use crate::desired::Desired;
use api::Kind;
use messages::{IpSetId, IpSetMember, IpSetType, Policy, PolicyId, PortRange, Rule, RuleEnd, TierInfo};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use rules::tree::IpVersion;
use rules::{Backend, Direction, Renderer, RulesConfig, TierGroups};
use std::sync::Arc;
use std::time::Instant;

/// Enough policies that the sets they allow become a union.
const POLICIES: usize = 10;

struct Site {
    manager: CompiledPolicies,
    world: World,
    desired: Desired,
}

fn policy_id(index: usize) -> PolicyId {
    Arc::new(PolicyKey {
        kind: Kind::GlobalNetworkPolicy,
        namespace: String::new(),
        name: format!("policy-{index}"),
    })
}

fn set_id(index: usize) -> IpSetId {
    format!("s:{index}").into()
}

fn member(number: u16) -> IpSetMember {
    let [high, low] = number.to_be_bytes();
    IpSetMember::Net(std::net::IpAddr::from([10, 0, high, low]).into())
}

/// Allows a set at a port.
fn policy(index: usize, port: u16) -> Arc<Policy> {
    let rule = Rule {
        action: RuleAction::Allow,
        protocol: Some(api::scalars::Protocol::Tcp),
        source: RuleEnd { ip_set_ids: vec![set_id(index)], ..RuleEnd::default() },
        destination: RuleEnd { ports: vec![PortRange { first: port, last: port }], ..RuleEnd::default() },
        ..Rule::default()
    };
    Arc::new(Policy { inbound_rules: vec![rule], ..Policy::default() })
}

fn tiers() -> Vec<TierGroups> {
    let tier = TierInfo {
        name: "default".into(),
        default_action: RuleAction::Deny,
        ingress_policies: (0..POLICIES).map(policy_id).collect(),
        egress_policies: Vec::new(),
    };
    TierGroups::of(&[tier], |_| "all()".into())
}

impl Site {
    /// Sets with one member each, a policy for each, and an endpoint with all of them.
    fn new() -> Self {
        let config =
            RulesConfig { backend: Backend::Nftables, compile_policies: true, ..RulesConfig::default() };
        let renderer = Arc::new(Renderer::new(config));
        let world = World::new(Arc::clone(&renderer), Interfaces::default(), Instant::now());
        let manager = CompiledPolicies::new(renderer);
        let mut site = Self { manager, world, desired: Desired::new(&[IpVersion::V4]) };
        for (index, number) in (0..POLICIES).zip(0..) {
            site.hear(&News::Set(&set_id(index), Some((IpSetType::Net, &[member(number)]))));
            site.hear(&News::Policy(&policy_id(index), Some(&policy(index, 80))));
        }
        site.endpoint(&tiers());
        site
    }

    fn hear(&mut self, news: &News<'_>) {
        self.manager.hear(news, Instant::now(), &mut self.desired);
    }

    fn endpoint(&mut self, tiers: &[TierGroups]) {
        self.world.groups.set_compiled(&"cali1".into(), tiers, &mut self.desired);
    }

    /// The changes written, with shortened names of unions and chains.
    fn written(&mut self) -> Vec<String> {
        self.manager.write(&mut self.world, &mut self.desired);
        let written = std::mem::replace(&mut self.desired, Desired::new(&[IpVersion::V4]));
        let short = |line: &str| {
            let words = line.split(' ').map(|word| match word {
                _ if word.starts_with("u:") && word.ends_with(':') => "union:",
                _ if word.starts_with("u:") => "union",
                _ if word.starts_with("cali-ci-") => "list",
                _ => word,
            });
            words.collect::<Vec<_>>().join(" ")
        };
        written.to_string().lines().map(short).filter(|line| !line.contains("cali-run-")).collect()
    }
}

#[test]
fn a_member_changes_only_its_unions() {
    let mut site = Site::new();
    assert_eq!(site.written(), ["IPv4 +filter list", "IPv4 +set union: 10 members"]);
    site.hear(&News::Members(&set_id(3), &[member(500)], &[]));
    assert_eq!(site.written(), ["IPv4 +set union: +1 -0 members"]);
    site.hear(&News::Members(&set_id(4), &[member(500)], &[]));
    site.hear(&News::Members(&set_id(3), &[], &[member(500)]));
    assert!(site.written().is_empty(), "the member is still in one of the sets");
    site.hear(&News::Members(&set_id(4), &[], &[member(500), member(501)]));
    assert_eq!(site.written(), ["IPv4 +set union: +0 -1 members"]);
    site.hear(&News::Set(&set_id(5), Some((IpSetType::Net, &[member(5), member(6), member(700)]))));
    assert_eq!(site.written(), ["IPv4 +set union: +1 -0 members"], "another set has one of them already");
}

#[test]
fn a_large_set_has_rules_of_its_own() {
    let mut site = Site::new();
    site.written();
    let count = u16::try_from(LARGE).expect("a small number");
    let many: Vec<IpSetMember> = (1000..=1000 + count).map(member).collect();
    site.hear(&News::Members(&set_id(3), &many, &[]));
    let written = site.written();
    assert_eq!(written[0], "IPv4 +filter list");
    assert!(written[1..].contains(&"IPv4 +set union: 9 members".to_owned()), "{written:?}");
    assert!(written[1..].contains(&"IPv4 -set union".to_owned()), "{written:?}");
    site.hear(&News::Members(&set_id(3), &[], &many[..10]));
    assert!(site.written().is_empty(), "a little below the limit is not yet small");
    site.hear(&News::Members(&set_id(3), &[], &many));
    assert!(site.written().contains(&"IPv4 +set union: 10 members".to_owned()));
}

#[test]
fn a_policy_changes_the_lists_that_it_is_in() {
    let mut site = Site::new();
    site.written();
    site.hear(&News::Policy(&policy_id(20), Some(&policy(3, 80))));
    assert!(site.written().is_empty(), "no endpoint has the policy");
    site.hear(&News::Policy(&policy_id(3), Some(&policy(3, 443))));
    let written = site.written();
    assert_eq!(written[0], "IPv4 +filter list");
    assert!(written.contains(&"IPv4 +set union: 9 members".to_owned()), "{written:?}");
}

#[test]
fn lists_without_endpoints_are_removed() {
    let mut site = Site::new();
    site.written();
    site.world.groups.set_compiled(&"cali2".into(), &tiers(), &mut site.desired);
    site.endpoint(&[]);
    assert!(site.written().is_empty(), "another endpoint has the list");
    site.world.groups.set_compiled(&"cali2".into(), &[], &mut site.desired);
    assert_eq!(site.written(), ["IPv4 -filter list", "IPv4 -set union"]);
    let list = tiers()[0].sequence(Direction::Inbound).expect("policies").chain_name();
    assert!(site.world.groups.sequence(&list).is_none());
    site.endpoint(&tiers());
    assert_eq!(site.written(), ["IPv4 +filter list", "IPv4 +set union: 10 members"]);
}
