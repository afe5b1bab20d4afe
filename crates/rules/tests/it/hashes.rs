//! Hashes and names with known values.

use api::Kind;
use model::v1::PolicyKey;
use proptest::prelude::*;
use rules::names::{self, EndpointChain, limited_id};
use rules::tree::{Action, Conntrack, IpVersion, KernelChain, Match, Rule, Table};
use rules::{Backend, Direction, PolicyGroup, Renderer, RulesConfig, WorkloadChains, iptables, nftables};
use std::sync::Arc;

fn texts(hashes: &[rules::RuleHash]) -> Vec<&str> {
    hashes.iter().map(rules::RuleHash::as_str).collect()
}

fn kernel_chain(table: Table, name: &str) -> KernelChain {
    let renderer = Renderer::new(RulesConfig::default());
    let found = renderer.kernel_chains(table).into_iter().find(|chain| chain.name == name);
    found.expect("a chain of the kernel")
}

#[test]
fn rules_in_the_kernels_chains() {
    for (table, name, expected) in [
        (Table::Filter, "FORWARD", "wUHhoiAYhphO9Mso"),
        (Table::Filter, "INPUT", "Cz_u1IQiXIMmKD4c"),
        (Table::Filter, "OUTPUT", "tVnHkvAo15HuiPy0"),
        (Table::Raw, "PREROUTING", "6gwbT8clXdHdC1b1"),
        (Table::Mangle, "POSTROUTING", "O3lYWMrLQYEMJtB5"),
    ] {
        let chain = kernel_chain(table, name);
        assert_eq!(texts(&iptables::hashes(name, &chain.inserted)), [expected], "{table} {name}");
    }
    let appended = kernel_chain(Table::Filter, "FORWARD").appended;
    assert_eq!(
        texts(&iptables::appended_hashes("FORWARD", &appended)),
        ["S93hcgKJrXEqnTfs", "mp77cMpurHhyjLrM"]
    );
}

/// From a cluster with Calico v3.28, where a workload's chain was shorter than today's.
#[test]
fn a_workloads_chain_of_a_real_cluster() {
    let marked = |value, mask| Match::Mark { value, mask, negated: false };
    let conntrack = |state| Match::Conntrack { state, negated: false };
    let accepted =
        || Rule::when([marked(0x1_0000, 0x1_0000)], Action::Return).comment("Return if profile accepted");
    let profile =
        |name| Rule::always(Action::Jump(Backend::Iptables.profile_chain(Direction::Inbound, name)));
    let rules = [
        Rule::when([conntrack(Conntrack::RelatedOrEstablished)], Action::Accept),
        Rule::when([conntrack(Conntrack::Invalid)], Action::Drop),
        Rule::always(Action::ClearMark(0x3_0000)),
        profile("kns.default"),
        accepted(),
        profile("ksa.default.default"),
        accepted(),
        Rule::always(Action::Drop).comment("Drop if no profiles matched"),
    ];
    assert_eq!(
        texts(&iptables::hashes("cali-tw-calic9f294a6bbf", &rules)),
        [
            "gdGCd7pAItfwyTLA",
            "JPvEc7l-QoWNA6WQ",
            "JBLdNQgG6AU0aBoD",
            "FxDPE7nrp1ZsAMQa",
            "VQd-z8yw78VeSlXp",
            "_3kBlEdzM5JBdsV3",
            "zQmrLF4vo1Sil_cI",
            "D-XKZRe8N6NYhdLa",
        ]
    );
    // Today's chain of the same workload begins and continues in the same way.
    let profiles = ["kns.default".into(), "ksa.default.default".into()];
    let [to, _] = Renderer::new(RulesConfig::default()).workload_endpoint_chains(&WorkloadChains {
        interface: "calic9f294a6bbf",
        admin_up: true,
        tiers: &[],
        profiles: &profiles,
        qos: None,
    });
    assert_eq!(to.rules, rules.into());
}

#[test]
fn long_names() {
    let policy = PolicyKey {
        kind: Kind::KubernetesNetworkPolicy,
        namespace: "default".to_owned(),
        name: "deny-all-ingress".to_owned(),
    };
    let chain = |backend: Backend, policy: &PolicyKey| backend.policy_chain(Direction::Inbound, policy);
    assert_eq!(&*chain(Backend::Iptables, &policy), "cali-pi-_4Q7bozr7XfuZg7wHXJg");
    assert_eq!(&*chain(Backend::Nftables, &policy), "cali-pi-knp/default/deny-all-ingress");
    // Names of all lengths fit into the kernel's 255 bytes, including the table's name.
    let mut lengths = std::collections::BTreeSet::new();
    for length in 1..=253 {
        let key = PolicyKey { name: "n".repeat(length), namespace: "s".repeat(63), ..policy.clone() };
        lengths.insert(nftables::chain_name(Table::Mangle, &chain(Backend::Nftables, &key)).len());
    }
    assert_eq!(lengths.last(), Some(&255));

    assert_eq!(limited_id("cali-tw-", "", 28), "cali-tw-_");
    assert_eq!(limited_id("p-", "abcd", 6), "p-abcd");
    // A name that looks like a shortened one is shortened.
    assert_ne!(limited_id("p-", "_bcd", 6), "p-_bcd");
    assert_eq!(limited_id("p-", "_bcd", 6).len(), 6);
    assert_eq!(limited_id("p-", "_bcd", 7), "p-_bcd");
    // A name that cannot be written in a rule is shortened.
    for name in ["a b", "a\"b", "a\nb", "ä", "a;b"] {
        let id = limited_id("p-", name, 28);
        assert!(id.starts_with("p-_") && id.len() == 28, "{id}");
    }
    let any = Backend::Iptables.endpoint_chain(EndpointChain::ToHost, names::ANY_INTERFACE);
    assert_eq!(&*any, "cali-th-any-interface-at-all");

    let id = "s:5y5I3VdRZfDU01O--xXAPx2yxCQQqMf0M6IWug";
    assert_eq!(&*names::ip_set(IpVersion::V4, id), "cali40s:5y5I3VdRZfDU01O--xXAPx2");
    assert_eq!(&*names::ip_set(IpVersion::V6, "this-host"), "cali60this-host");
}

#[test]
fn groups_have_one_name_per_content() {
    let key = |name: &str| {
        Arc::new(PolicyKey {
            kind: Kind::GlobalNetworkPolicy,
            namespace: String::new(),
            name: name.to_owned(),
        })
    };
    let group = |direction, selector: &str, policies: &[&str]| PolicyGroup {
        direction,
        selector: selector.into(),
        policies: policies.iter().map(|name| key(name)).collect(),
    };
    let one = group(Direction::Inbound, "all()", &["a", "b"]);
    assert_eq!(one.chain_name().len(), 28);
    let others = [
        group(Direction::Outbound, "all()", &["a", "b"]),
        group(Direction::Inbound, "has(x)", &["a", "b"]),
        group(Direction::Inbound, "all()", &["b", "a"]),
        group(Direction::Inbound, "all()", &["a", "b", "c"]),
    ];
    for other in &others {
        assert_ne!(other.chain_name(), one.chain_name());
    }
    assert_eq!(one.chain_name(), one.clone().chain_name());
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (any::<u32>(), any::<bool>(), proptest::option::of("[ -~äß]{0,40}")).prop_map(
        |(bits, accept, comment)| {
            let action = if accept { Action::Accept } else { Action::SetMark(bits) };
            let mut rule = Rule::when([Match::Mark { value: 0, mask: bits, negated: false }], action);
            rule.comments.extend(comment.map(Into::into));
            rule
        },
    )
}

proptest! {
    /// A rule's hash is that of the chain up to it: later rules do not matter, earlier ones always do.
    #[test]
    fn hashes_chain(rules in proptest::collection::vec(any_rule(), 1..12), at in any::<prop::sample::Index>()) {
        let at = at.index(rules.len());
        let nft = |rules: &[Rule]| nftables::hashes(Table::Filter, nftables::Family::Ip, "cali-x", rules);
        let ipt = |rules: &[Rule]| iptables::hashes("cali-x", rules);
        for hashes in [&nft as &dyn Fn(&[Rule]) -> Vec<rules::RuleHash>, &ipt] {
            let all = hashes(&rules);
            prop_assert_eq!(&hashes(&rules[..=at])[..], &all[..=at]);
            let mut changed = rules.clone();
            changed[at].matches.push(Match::ReversePathFailed);
            let changed = hashes(&changed);
            prop_assert_eq!(&changed[..at], &all[..at]);
            for (new, old) in changed[at..].iter().zip(&all[at..]) {
                prop_assert_ne!(new, old);
            }
        }
        for hash in ipt(&rules) {
            prop_assert_eq!(rules::RuleHash::parse(hash.as_str()), Some(hash));
        }
    }

    /// Whatever a comment contains, it cannot end its quotes or its line.
    #[test]
    fn comments_are_harmless(rule in any_rule()) {
        let hash = iptables::hashes("cali-x", std::slice::from_ref(&rule))[0];
        let line = iptables::render_append("cali-x", &rule, hash);
        prop_assert!(!line.contains(['\n', '\\']));
        prop_assert_eq!(line.matches('"').count(), 2 + 2 * rule.comments.len());
        prop_assert!(nftables::comment(&rule, hash).len() <= 128);
    }

    /// A chain's name always fits, and different inputs give different names.
    #[test]
    fn names_fit(one in "[a-z_/]{0,60}", other in "[a-z_/]{0,60}") {
        let (first, second) = (limited_id("cali-pi-", &one, 28), limited_id("cali-pi-", &other, 28));
        prop_assert!(first.len() <= 28);
        let same = one == other || (one.is_empty() && other == "_") || (other.is_empty() && one == "_");
        prop_assert_eq!(first == second, same);
    }
}

#[test]
fn a_chain_without_rules_has_its_comment() {
    let renderer = Renderer::new(RulesConfig::default());
    let placed = renderer.profile_chains("empty", &messages::Profile::default(), IpVersion::V4);
    let inbound = &placed[0].chain;
    assert_eq!(inbound.rules, [Rule::default().comment("Profile empty ingress")].into());
    assert_eq!(nftables::rule_text(Table::Filter, nftables::Family::Ip, &inbound.rules[0]), "continue");
}
