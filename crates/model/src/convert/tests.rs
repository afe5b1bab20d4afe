//! Tables of stored objects with the values in a feed. The expected texts are those of Calico's own conversion.

#![expect(clippy::needless_pass_by_value, reason = "rows of tables are made where they are used")]

use super::*;
use crate::feed::{PolicyType, RuleAction};
use crate::key::ResourceKey;
use api::{Kind, Resource};
use serde_json::{Value, json};

fn read(kind: Kind, object: Value) -> Resource {
    Resource::from_value(kind, object).unwrap()
}

fn global(spec: Value) -> (crate::feed::Policy, Faults) {
    let mut faults = Faults::new();
    let Resource::GlobalNetworkPolicy(policy) =
        read(Kind::GlobalNetworkPolicy, json!({"metadata": {"name": "p"}, "spec": spec}))
    else {
        panic!()
    };
    (policy::global(policy.spec, &mut faults), faults)
}

fn namespaced(spec: Value) -> (crate::feed::Policy, Faults) {
    let mut faults = Faults::new();
    let Resource::NetworkPolicy(policy) =
        read(Kind::NetworkPolicy, json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}))
    else {
        panic!()
    };
    (policy::namespaced("shop", policy.spec, &mut faults), faults)
}

fn selector(text: &str) -> selector::Selector {
    selector::Selector::parse(text).unwrap()
}

/// The selector of a rule's end; `None` for empty text.
fn end_selector(text: &str) -> Option<selector::Selector> {
    (!text.is_empty()).then(|| selector(text))
}

fn paths(faults: &Faults) -> Vec<&str> {
    faults.iter().map(|fault| fault.path.as_str()).collect()
}

#[test]
fn selectors_of_global_policies() {
    for (spec, text) in [
        (json!({}), ""),
        (json!({"selector": "all()"}), "all()"),
        (json!({"selector": "a == 'b'"}), "a == 'b'"),
        (json!({"namespaceSelector": "all()"}), "has(projectcalico.org/namespace)"),
        (
            json!({"selector": "mylabel == 'selectme'", "namespaceSelector": "n == 'm'"}),
            r#"(mylabel == 'selectme') && pcns.n == "m""#,
        ),
        (
            json!({"selector": "all()", "namespaceSelector": "all()"}),
            "(has(projectcalico.org/namespace)) && has(projectcalico.org/namespace)",
        ),
        (json!({"serviceAccountSelector": "all()"}), "has(projectcalico.org/serviceaccount)"),
        (json!({"selector": "x", "namespaceSelector": "a", "serviceAccountSelector": "b"}), "!all()"),
        (
            json!({"selector": "has(x)", "namespaceSelector": "has(a) || has(b)", "serviceAccountSelector": "role == 'dev'"}),
            r#"((has(x)) && (has(pcns.a) || has(pcns.b))) && pcsa.role == "dev""#,
        ),
    ] {
        assert_eq!(global(spec.clone()).0.selector, selector(text), "{spec}");
    }
}

#[test]
fn selectors_of_namespaced_policies() {
    let own = "projectcalico.org/namespace == 'shop'";
    for (spec, text) in [
        (json!({}), own.to_owned()),
        (json!({"selector": "app == 'web'"}), format!("(app == 'web') && {own}")),
        (json!({"serviceAccountSelector": "all()"}), format!("({own}) && all()")),
        (
            json!({"selector": "has(a)", "serviceAccountSelector": "role in {'b', 'a'}"}),
            format!(r#"((has(a)) && {own}) && pcsa.role in {{"a", "b"}}"#),
        ),
    ] {
        let (policy, faults) = namespaced(spec.clone());
        assert_eq!((policy.selector, faults), (selector(&text), Faults::new()), "{spec}");
    }
}

#[test]
fn the_other_fields_of_a_policy() {
    let (policy, faults) = global(json!({
        "tier": "security", "order": 10.5, "types": ["Ingress", "Egress"], "preDNAT": true, "applyOnForward": true,
        "performanceHints": ["AssumeNeededOnEveryNode"], "doNotTrack": false,
    }));
    assert!(faults.is_empty());
    assert_eq!((policy.tier.as_str(), policy.order), ("security", Some(10.5)));
    assert_eq!(policy.types, [PolicyType::Ingress, PolicyType::Egress]);
    assert!(policy.pre_dnat && policy.apply_on_forward && !policy.do_not_track);
    assert_eq!(policy.performance_hints, ["AssumeNeededOnEveryNode"]);
    assert_eq!(namespaced(json!({})).0.tier.as_str(), "default");
}

/// Converts one rule of a policy in `shop`; also returns the paths that cannot be read.
fn rule_of(rule: Value) -> (Option<crate::feed::Rule>, Vec<String>) {
    let (policy, faults) = namespaced(json!({"ingress": [rule]}));
    let paths = faults.iter().map(|fault| fault.path.replace("spec.ingress[0].", "")).collect();
    (policy.inbound_rules.into_iter().next(), paths)
}

#[test]
fn selectors_of_rule_ends() {
    let own = "projectcalico.org/namespace == 'shop'";
    for (end, text) in [
        (json!({}), String::new()),
        (json!({"nets": ["10.0.0.0/8"]}), String::new()),
        (json!({"selector": "has(a)"}), format!("({own}) && (has(a))")),
        (json!({"notSelector": "has(a)"}), own.to_owned()),
        (json!({"namespaceSelector": "all()"}), "has(projectcalico.org/namespace)".to_owned()),
        (json!({"namespaceSelector": "global()"}), "!has(projectcalico.org/namespace)".to_owned()),
        (
            json!({"namespaceSelector": "e == 'p'", "selector": "has(a)"}),
            r#"(pcns.e == "p") && (has(a))"#.to_owned(),
        ),
        (
            json!({"serviceAccounts": {"names": ["b", "a"]}}),
            format!(r#"({own}) && (projectcalico.org/serviceaccount in {{"a", "b"}})"#),
        ),
        (
            json!({"serviceAccounts": {"names": ["a"], "selector": "has(r)"}, "selector": "has(x)"}),
            format!(
                r#"({own}) && (((has(pcsa.r)) && (projectcalico.org/serviceaccount in {{"a"}})) && (has(x)))"#
            ),
        ),
        (json!({"serviceAccounts": {}}), String::new()),
    ] {
        let (rule, faults) = rule_of(json!({"action": "Allow", "source": end}));
        let rule = rule.unwrap();
        assert_eq!(rule.source.selector, end_selector(&text), "{end}");
        assert_eq!((rule.action, faults.len()), (RuleAction::Allow, 0), "{end} {faults:?}");
    }
    // Without a namespace of its own, a rule means exactly what it says.
    let (policy, _) = global(json!({"egress": [{"action": "Pass", "destination": {"selector": "has(a)"}}]}));
    assert_eq!(policy.outbound_rules[0].destination.selector, end_selector("has(a)"));
    assert_eq!(policy.outbound_rules[0].action, RuleAction::Pass);
    let original = policy.outbound_rules[0].destination.original.as_ref().unwrap();
    assert_eq!(original.selector, "has(a)");
}

#[test]
fn only_in_a_profile_a_rule_without_an_action_allows() {
    let of_profile = |rule: Value| {
        let mut faults = Faults::new();
        let spec = json!({"ingress": [rule]});
        let object = json!({"metadata": {"name": "p"}, "spec": spec});
        let Some(Resource::Profile(profile)) = salvage::salvage(Kind::Profile, object) else { panic!() };
        (policy::profile_rules(profile.spec, &mut faults).inbound_rules[0].action, faults.iter().count())
    };
    assert_eq!(of_profile(json!({})), (RuleAction::Allow, 0));
    assert_eq!(of_profile(json!({"action": "Pass"})), (RuleAction::Pass, 0));
    // The intended action is unknown, so the rule denies.
    assert_eq!(of_profile(json!({"action": "None"})), (RuleAction::Deny, 1));
    assert_eq!(of_profile(json!({"action": 7})), (RuleAction::Deny, 1));
    assert_eq!(of_profile(json!({"protocol": {"odd": 1}})), (RuleAction::Deny, 1));
    assert_eq!(of_profile(json!("Allow")), (RuleAction::Deny, 1));
    assert_eq!(of_profile(Value::Null), (RuleAction::Deny, 1));
    let (policy, faults) = global(json!({"ingress": [{}]}));
    assert_eq!((policy.inbound_rules[0].action, faults.iter().count()), (RuleAction::Deny, 1));
}

#[test]
fn matches_of_rules() {
    let (rule, faults) = rule_of(json!({
        "action": "Deny", "ipVersion": 4, "protocol": "TCP", "notProtocol": 17,
        "source": {"nets": ["10.1.2.3/8", "::ffff:1.2.3.4"], "notNets": ["10.0.0.1"], "notPorts": [22]},
        "destination": {"ports": [80, "8000:8100", "http"], "services": {"name": "web"}},
        "http": {"methods": ["GET"]}, "metadata": {"annotations": {"a": "b"}},
    }));
    assert_eq!(faults, Vec::<String>::new());
    let rule = rule.unwrap();
    let nets: Vec<String> = rule.source.nets.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["10.0.0.0/8", "1.2.3.4/32"]);
    assert_eq!(rule.source.not_nets[0].to_string(), "10.0.0.1/32");
    assert_eq!(rule.destination.ports.len(), 3);
    // A service without a namespace is in the policy's own.
    assert_eq!(rule.destination.service, Some(("shop".to_owned(), "web".to_owned())));
    assert_eq!(rule.annotations["a"], "b");
    assert!(rule.http.is_some());
}

#[test]
fn a_rule_with_unreadable_parts_denies_what_it_might_match() {
    // The rule, the fields that cannot be read, and what remains of the rule.
    type Check = fn(&crate::feed::Rule) -> bool;
    let table: &[(Value, &[&str], Check)] = &[
        (json!({"action": "Maybe"}), &["action"], |_| true),
        (json!({"source": {"nets": ["10.0.0.0/8"]}}), &["action"], |rule| rule.source.nets.len() == 1),
        (
            json!({"action": "Allow", "source": {"nets": ["10.0.0.0/8", "nonsense"]}}),
            &["source.nets[1]"],
            |rule| rule.source.nets.is_empty(),
        ),
        (
            json!({"action": "Allow", "source": {"notNets": ["10.0.0.0/8", "nonsense"]}}),
            &["source.notNets[1]"],
            |rule| rule.source.not_nets.len() == 1,
        ),
        (
            json!({"action": "Allow", "protocol": "TCP", "destination": {"ports": [80, "90:80"]}}),
            &["destination.ports[1]"],
            |rule| rule.destination.ports.is_empty() && rule.protocol.is_some(),
        ),
        (
            json!({"action": "Allow", "protocol": "TCP", "destination": {"notPorts": [80, "90:80"]}}),
            &["destination.notPorts[1]"],
            |rule| rule.destination.not_ports.len() == 1,
        ),
        (
            json!({"action": "Pass", "protocol": "Carrier Pigeon", "destination": {"ports": [80]}}),
            &["protocol", "destination.ports[0]"],
            |rule| rule.protocol.is_none() && rule.destination.ports.is_empty(),
        ),
        (json!({"action": "Allow", "destination": {"ports": [80]}}), &["destination.ports[0]"], |rule| {
            rule.destination.ports.is_empty()
        }),
        (json!({"action": "Allow", "protocol": "TCP", "icmp": {"type": 8}}), &["icmp"], |rule| {
            rule.icmp.is_none() && rule.protocol.is_some()
        }),
        (json!({"action": "Allow", "protocol": "ICMP", "icmp": {"type": 300}}), &["icmp"], |rule| {
            rule.icmp.is_none()
        }),
        (json!({"action": "Allow", "ipVersion": 5}), &["ipVersion"], |rule| rule.ip_version.is_none()),
        (
            json!({"action": "Allow", "source": {"selector": "a = b", "namespaceSelector": "has(x)"}}),
            &["source.selector"],
            |rule| rule.source.selector == end_selector("has(pcns.x)"),
        ),
        (
            // Text that is a selector only together with its neighbours would escape from its namespace.
            json!({"action": "Allow", "source": {"selector": "has(a)) || (has(b)"}}),
            &["source.selector"],
            |rule| rule.source.selector == end_selector("projectcalico.org/namespace == 'shop'"),
        ),
        (
            json!({"action": "Allow", "source": {"namespaceSelector": "((", "selector": "has(a)"}}),
            &["source.namespaceSelector"],
            |rule| rule.source.selector == end_selector("has(a)"),
        ),
        (json!({"action": "Allow", "source": {"notSelector": "(("}}), &["source.notSelector"], |rule| {
            rule.source.not_selector.is_none()
        }),
        (
            json!({"action": "Allow", "source": {"serviceAccounts": {"names": ["a'"]}}}),
            &["source.serviceAccounts.names"],
            |rule| rule.source.selector == end_selector("projectcalico.org/namespace == 'shop'"),
        ),
        (
            json!({"action": "Allow", "destination": {"services": {"namespace": "x"}}}),
            &["destination.services.name"],
            |rule| rule.destination.service.is_none(),
        ),
        (
            // Fields of a later version may be conditions.
            json!({"action": "Allow", "source": {"domains": ["example.org"], "nets": ["10.0.0.0/8"]}}),
            &["source.domains"],
            |rule| rule.source.nets.len() == 1,
        ),
        (json!({"action": "Allow", "onlyOnSundays": true}), &["onlyOnSundays"], |_| true),
    ];
    for (rule, unread, check) in table {
        let (converted, faults) = rule_of(rule.clone());
        let converted = converted.unwrap();
        assert_eq!(faults, *unread, "{rule}");
        assert_eq!(converted.action, RuleAction::Deny, "{rule}");
        assert!(check(&converted), "{rule}: {converted:?}");
    }
    // Names of protocols may be in any case, and a rule that only logs decides nothing.
    assert_eq!(rule_of(json!({"action": "Allow", "protocol": "tcp"})).1, Vec::<String>::new());
    let (logging, faults) = rule_of(json!({"action": "Log", "source": {"nets": ["x"]}}));
    assert_eq!((logging, faults.as_slice()), (None, ["source.nets[0]".to_owned()].as_slice()));
}

#[test]
fn a_policy_whose_selector_cannot_be_read_selects_nothing() {
    for (spec, path) in [
        (json!({"selector": "a ="}), "spec.selector"),
        (json!({"selector": "has(a)) || (has(b)"}), "spec.selector"),
        (json!({"namespaceSelector": "("}), "spec.namespaceSelector"),
        (json!({"serviceAccountSelector": "("}), "spec.serviceAccountSelector"),
    ] {
        let (policy, faults) = global(spec.clone());
        assert_eq!((policy.selector.canonical(), paths(&faults).as_slice()), ("!all()", [path].as_slice()));
    }
    assert!(!selector("!all()").evaluate(&()));
    let mut faults = Faults::new();
    let policy = policy::namespaced("a' || all() || a == 'b", api::NetworkPolicySpec::default(), &mut faults);
    assert_eq!(
        (policy.selector.canonical(), paths(&faults).as_slice()),
        ("!all()", ["metadata.namespace"].as_slice())
    );
    let (policy, faults) = global(json!({"types": ["Sideways"]}));
    assert_eq!((policy.types.len(), paths(&faults).as_slice()), (2, ["spec.types[0]"].as_slice()));
}

#[test]
fn staged_policies() {
    let convert = |kind: Kind, spec: Value| -> Option<crate::feed::Policy> {
        let object = read(kind, json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": spec}));
        let mut faults = Faults::new();
        let policy = match object {
            Resource::StagedNetworkPolicy(policy) => policy::staged("shop", &policy.spec, &mut faults),
            Resource::StagedGlobalNetworkPolicy(policy) => policy::staged_global(&policy.spec, &mut faults),
            Resource::StagedKubernetesNetworkPolicy(policy) => {
                policy::staged_kubernetes(&policy, &mut faults)
            }
            _ => panic!(),
        };
        assert_eq!(faults, Faults::new());
        policy
    };
    for kind in
        [Kind::StagedNetworkPolicy, Kind::StagedGlobalNetworkPolicy, Kind::StagedKubernetesNetworkPolicy]
    {
        assert_eq!(convert(kind, json!({"stagedAction": "Delete"})), None, "{kind}");
        let staged = convert(kind, json!({"stagedAction": "Set"})).unwrap();
        assert_eq!(staged.staged_action, Some(api::StagedAction::Set), "{kind}");
        assert_eq!(convert(kind, json!({})).unwrap().staged_action, None, "{kind}");
    }
    let spec =
        json!({"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    let policy = convert(Kind::StagedKubernetesNetworkPolicy, spec).unwrap();
    assert_eq!(
        policy.selector,
        selector(
            "(projectcalico.org/orchestrator == 'k8s' && a == 'b') && projectcalico.org/namespace == 'shop'"
        )
    );
    assert_eq!((policy.order, policy.types.as_slice()), (Some(1000.0), [PolicyType::Ingress].as_slice()));
    assert_eq!(
        policy.inbound_rules[0].source.selector,
        end_selector("(projectcalico.org/namespace == 'shop') && (projectcalico.org/orchestrator == 'k8s')")
    );
}

#[test]
fn workload_endpoints() {
    let convert = |spec: Value| {
        let metadata = json!({
            "name": "n", "namespace": "shop", "generateName": "web-", "annotations": {"x": "y"},
            "labels": {"app": "web", "pcns.env": "prod", "pcsa.role": "root"},
        });
        let object = read(Kind::WorkloadEndpoint, json!({"metadata": metadata, "spec": spec}));
        let Resource::WorkloadEndpoint(endpoint) = object else { panic!() };
        let mut faults = Faults::new();
        (endpoint::workload(*endpoint, &mut faults), faults)
    };
    assert_eq!(convert(json!({"interfaceName": "cali1"})).0, None);
    let (endpoint, faults) = convert(json!({
        "interfaceName": "cali1", "ipNetworks": ["10.0.0.1/32", "fd00::1", "10.0.0.2"], "mac": "EE-EE-EE-EE-EE-01",
        "profiles": ["kns.shop"], "serviceAccountName": "default",
        "ipNATs": [{"internalIP": "10.0.0.1", "externalIP": "1.2.3.4"}],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}, {"name": "", "protocol": "TCP", "port": 81, "hostPort": 81}],
        "allowSpoofedSourcePrefixes": ["8.8.8.1/24"],
    }));
    assert!(faults.is_empty(), "{faults}");
    let endpoint = endpoint.unwrap();
    let text = |nets: &[ipnet::IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text(&endpoint.ipv4_nets), ["10.0.0.1/32", "10.0.0.2/32"]);
    assert_eq!(text(&endpoint.ipv6_nets), ["fd00::1/128"]);
    assert_eq!(text(&endpoint.allow_spoofed_source_prefixes), ["8.8.8.0/24"]);
    assert_eq!((endpoint.state.as_str(), endpoint.mac.as_str()), ("active", "ee:ee:ee:ee:ee:01"));
    let labels: Vec<(&str, &str)> = endpoint.labels.iter().collect();
    // A pod cannot claim to be in another namespace.
    assert_eq!(labels, [("app", "web"), ("projectcalico.org/serviceaccount", "default")]);
    assert_eq!((endpoint.ports.len(), endpoint.ipv4_nat.len(), endpoint.ipv6_nat.len()), (1, 1, 0));
    assert_eq!((endpoint.generate_name.as_str(), endpoint.annotations["x"].as_str()), ("web-", "y"));
    let (endpoint, faults) = convert(json!({"ipNetworks": ["10.0.0.1/32", "x"], "mac": "y"}));
    assert_eq!(paths(&faults), ["spec.ipNetworks[1]", "spec.mac"]);
    assert_eq!(endpoint.unwrap().ipv4_nets.len(), 1);
}

#[test]
fn host_endpoints_sets_pools_and_tiers() {
    let mut faults = Faults::new();
    let object = json!({
        "metadata": {"name": "h", "labels": {"a": "b"}, "annotations": {"qos.projectcalico.org/dscp": "EF"}},
        "spec": {"node": "n1", "interfaceName": "eth0", "expectedIPs": ["10.0.0.1", "fd00::1"], "profiles": ["p"],
                 "ports": [{"name": "ssh", "protocol": "TCP", "port": 22}]},
    });
    let Resource::HostEndpoint(host) = read(Kind::HostEndpoint, object) else { panic!() };
    let host = endpoint::host(*host, &mut faults);
    assert_eq!((host.expected_ipv4_addrs.len(), host.expected_ipv6_addrs.len(), host.ports.len()), (1, 1, 1));
    assert_eq!(host.qos_controls.unwrap().dscp.unwrap().value(), Ok(46));

    let object = json!({"metadata": {"name": "s", "namespace": "shop", "labels": {"a": "b"}}, "spec": {"nets": ["10.0.0.1/8", "1.1.1.1"]}});
    let Resource::NetworkSet(set) = read(Kind::NetworkSet, object) else { panic!() };
    let set = set::namespaced_set(*set, &mut faults);
    assert_eq!(set.nets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.0/8", "1.1.1.1/32"]);
    assert_eq!(
        (set.profile_ids, set.labels.get("projectcalico.org/namespace").unwrap()),
        (vec!["kns.shop".into()], "shop")
    );

    for (spec, ipip, interface, vxlan, automatic) in [
        (json!({"cidr": "10.0.0.0/8"}), "Never", "", "Never", true),
        (json!({"cidr": "10.1.0.0/8", "ipipMode": "Always"}), "Always", "tunl0", "Never", true),
        (
            json!({"cidr": "10.0.0.0/8", "ipipMode": "CrossSubnet", "assignmentMode": "Manual"}),
            "CrossSubnet",
            "tunl0",
            "Never",
            false,
        ),
        (
            json!({"cidr": "10.0.0.0/8", "vxlanMode": "CrossSubnet", "ipipMode": "Never"}),
            "Never",
            "",
            "CrossSubnet",
            true,
        ),
        (json!({"cidr": "10.0.0.0/8", "vxlanMode": "Sometimes"}), "Never", "", "Never", true),
    ] {
        let Resource::IPPool(pool) = read(Kind::IPPool, json!({"metadata": {"name": "p"}, "spec": spec}))
        else {
            panic!()
        };
        let pool = set::pool(pool.spec, &mut faults).unwrap();
        assert_eq!(pool.cidr.to_string(), "10.0.0.0/8");
        assert_eq!((pool.ipip_mode.as_str(), pool.ipip_interface.as_str()), (ipip, interface), "{spec}");
        assert_eq!(
            (pool.vxlan_mode.as_str(), pool.assigned_automatically, pool.ipam),
            (vxlan, automatic, true),
            "{spec}"
        );
    }
    for (spec, action) in [
        (json!({"order": 1}), RuleAction::Deny),
        (json!({"defaultAction": "Pass"}), RuleAction::Pass),
        (json!({"defaultAction": "Allow"}), RuleAction::Deny),
    ] {
        let Resource::Tier(tier) = read(Kind::Tier, json!({"metadata": {"name": "t"}, "spec": spec})) else {
            panic!()
        };
        assert_eq!(set::tier(&tier.spec).default_action, action, "{spec}");
    }
    assert!(faults.is_empty(), "{faults}");
    let Resource::IPPool(pool) = read(Kind::IPPool, json!({"spec": {"cidr": "x"}})) else { panic!() };
    assert_eq!(set::pool(pool.spec, &mut faults), None);
    assert_eq!(paths(&faults), ["spec.cidr"]);
}

#[test]
fn nodes() {
    let object = json!({
        "metadata": {"name": "n1"},
        "spec": {
            "bgp": {"ipv4Address": "10.0.0.1/24", "ipv6Address": "fd00::1", "asNumber": "1.10", "ipv4IPIPTunnelAddr": "192.168.0.1", "routeReflectorClusterID": "1.0.0.1"},
            "ipv4VXLANTunnelAddr": "nonsense", "vxlanTunnelMACAddr": "aa:bb:cc:dd:ee:ff",
            "wireguard": {"interfaceIPv4Address": "10.9.0.1"},
        },
        "status": {"wireguardPublicKey": "key", "podCIDRs": ["10.244.1.0/24", "x"]},
    });
    let Resource::Node(node) = read(Kind::Node, object) else { panic!() };
    let mut faults = Faults::new();
    use node::Setting::{Is, Unreadable, Unset};
    let is = |text: &str| Is(text.to_owned());
    assert_eq!(
        node::host_settings(&node, &mut faults),
        [is("192.168.0.1"), Unreadable, is("aa:bb:cc:dd:ee:ff"), Unset, Unset]
    );
    let wireguard = node::wireguard(&node, &mut faults).unwrap();
    assert_eq!(
        (wireguard.interface_ipv4, wireguard.public_key.as_str()),
        (Some("10.9.0.1".parse().unwrap()), "key")
    );
    assert_eq!(node::pod_ranges(&node, &mut faults).len(), 1);
    let addresses = node::node(*node, &mut faults).addresses;
    let bgp = addresses.bgp.unwrap();
    let lengths = [bgp.ipv4, bgp.ipv6].map(|address| address.map(|address| address.has_length));
    assert_eq!(lengths, [Some(true), Some(false)]);
    assert_eq!((addresses.vxlan.len(), addresses.wireguard.len(), addresses.ipip.is_some()), (0, 1, true));
    // The device's address is read twice, but reported once.
    assert_eq!(paths(&faults), ["spec.ipv4VXLANTunnelAddr", "status.podCIDRs[1]"]);
    let Resource::Node(empty) = read(Kind::Node, json!({"metadata": {"name": "n"}})) else { panic!() };
    assert_eq!(node::wireguard(&empty, &mut faults), None);
    assert_eq!(node::node(*empty, &mut faults).addresses, crate::feed::NodeAddresses::default());
}

#[test]
fn unreadable_fields_of_whole_objects_are_missing() {
    let mut faults = Faults::new();
    let object = json!({"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {
        "bgp": {"ipv4Address": "nonsense", "ipv6Address": "10.0.0.1/24"},
        "addresses": [{"address": "10.0.0.2", "type": "InternalIP"}, {"address": "x", "type": "InternalIP"}],
    }});
    let Resource::Node(node) = read(Kind::Node, object) else { panic!() };
    let node = node::node(*node, &mut faults);
    assert_eq!(node.addresses.bgp, Some(crate::feed::BgpAddresses::default()), "no other address stands in");
    assert_eq!((node.addresses.listed.len(), node.object.metadata.labels.len()), (1, 1));
    assert_eq!(paths(&faults), ["spec.addresses[1].address", "spec.bgp.ipv4Address", "spec.bgp.ipv6Address"]);
    for (spec, nodes, workloads, fault) in [
        (json!({}), Some("all()"), None, None),
        (
            json!({"nodeSelector": "has(a)", "localWorkloadSelector": "b"}),
            Some("has(a)"),
            None,
            Some("spec.localWorkloadSelector"),
        ),
        (
            json!({"nodeSelector": "has(", "localWorkloadSelector": "has(b)"}),
            None,
            Some("has(b)"),
            Some("spec.nodeSelector"),
        ),
    ] {
        let mut faults = Faults::new();
        let Resource::BGPPeer(peer) = read(Kind::BGPPeer, json!({"metadata": {"name": "p"}, "spec": spec}))
        else {
            panic!()
        };
        let peer = object::bgp_peer(*peer, &mut faults);
        let selects = |selector: &Option<selector::Selector>, text: Option<&str>| match (selector, text) {
            (Some(selector), Some("all()")) => {
                selector.evaluate(&std::collections::BTreeMap::<String, String>::new())
            }
            (selector, text) => *selector == text.map(self::selector),
        };
        assert!(selects(&peer.nodes, nodes) && selects(&peer.local_workloads, workloads), "{peer:?}");
        assert_eq!(paths(&faults), fault.into_iter().collect::<Vec<_>>());
    }
    let mut faults = Faults::new();
    let spec = json!({"target": {"selector": "has("}});
    let object = json!({"metadata": {"name": "m", "namespace": "n"}, "spec": spec});
    let Resource::LiveMigration(migration) = read(Kind::LiveMigration, object) else { panic!() };
    assert_eq!(object::live_migration(*migration, &mut faults).target, None);
    assert_eq!(paths(&faults), ["spec.target.selector"]);
}

#[test]
fn one_bad_rule_does_not_lose_the_policy() {
    let object = json!({
        "kind": "NetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "default.web", "labels": {"a": 7}, "annotations": {"projectcalico.org/metadata": "{\"name\":\"web\"}"}},
        "spec": {
            "tier": "security", "selector": "app == 'web'", "order": "first",
            "ingress": [
                {"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}},
                {"action": "Allow", "protocol": "TCP", "source": {"nets": [7], "selector": "has(a)"}, "destination": {"ports": [22]}},
                "allow everything",
                {"action": 1, "source": "anywhere"},
            ],
            "egress": {"action": "Allow"},
        },
    });
    let bytes = serde_json::to_vec(&object).unwrap();
    assert!(Resource::from_json(Kind::NetworkPolicy, &bytes).is_err());
    let key = ResourceKey { kind: Kind::NetworkPolicy, namespace: "shop".into(), name: "default.web".into() };
    let Some(Resource::NetworkPolicy(policy)) = salvage::from_store(&key, &bytes) else { panic!() };
    assert_eq!((policy.metadata.name.as_str(), policy.metadata.namespace.as_str()), ("web", "shop"));
    let mut faults = Faults::new();
    let policy = policy::namespaced("shop", policy.spec, &mut faults);
    assert_eq!(policy.selector, selector("(app == 'web') && projectcalico.org/namespace == 'shop'"));
    let actions: Vec<RuleAction> = policy.inbound_rules.iter().map(|rule| rule.action).collect();
    assert_eq!(actions, [RuleAction::Allow, RuleAction::Deny, RuleAction::Deny, RuleAction::Deny]);
    let second = &policy.inbound_rules[1];
    assert_eq!(second.source.selector, end_selector("(projectcalico.org/namespace == 'shop') && (has(a))"));
    assert_eq!((second.source.nets.len(), second.destination.ports.len()), (0, 1));
    assert_eq!((policy.outbound_rules.len(), policy.outbound_rules[0].action), (1, RuleAction::Deny));
    assert_eq!(policy.outbound_rules[0], rule::deny_everything());
    for path in [
        "spec.order",
        "spec.ingress[1].source.nets",
        "spec.ingress[2].value",
        "spec.ingress[3].action",
        "spec.egress",
    ] {
        assert!(paths(&faults).contains(&path), "{path} of {faults}");
    }
    // A selector that is not text selects nothing.
    let bytes = br#"{"metadata": {"name": "p"}, "spec": {"selector": 7, "ingress": [{"action": "Allow"}]}}"#;
    let Some(Resource::NetworkPolicy(policy)) = salvage::from_store(&key, bytes) else { panic!() };
    assert_eq!(policy::namespaced("shop", policy.spec, &mut faults).selector, selector("!all()"));
    // A custom resource whose own metadata cannot be read is still a policy.
    let object = json!({
        "kind": "NetworkPolicy", "apiVersion": "crd.projectcalico.org/v1",
        "metadata": {"name": "web", "namespace": "shop", "resourceVersion": "7", "annotations": {"projectcalico.org/metadata": "{"}},
        "spec": {"selector": "has(a)", "ingress": [{"action": "Allow", "protocol": {"no": "protocol"}}]},
    });
    let pair = crate::crd::salvage(Kind::NetworkPolicy, object).unwrap();
    assert_eq!((pair.key.to_string().as_str(), pair.revision.as_str()), ("NetworkPolicy(shop/web)", "7"));
    let Some(Resource::NetworkPolicy(policy)) = pair.as_resource().cloned() else { panic!() };
    let policy = policy::namespaced("shop", policy.spec, &mut Faults::new());
    assert_eq!(policy.inbound_rules[0].action, RuleAction::Deny);
    // The place of the mistake, for the person who corrects it.
    for (kind, text, fields) in [
        (
            Kind::IPPool,
            r#"{"metadata": {"labels": 7}, "spec": {"cidr": 7, "blockSize": 26}}"#,
            &["metadata.labels", "spec.cidr"][..],
        ),
        (Kind::IPPool, r#"{"spec": []}"#, &["spec"]),
        (Kind::IPPool, r#"{"spec": {"cidr": "x"}}"#, &[]),
        (Kind::IPPool, "{", &[]),
    ] {
        assert_eq!(salvage::unreadable_fields(kind, text.as_bytes()), fields, "{text}");
    }
    // Text that is not JSON cannot be salvaged, nor an object without rules.
    assert!(salvage::from_store(&key, b"{").is_none());
    assert!(salvage::salvage(Kind::IPPool, json!({"spec": {"cidr": 7}})).is_none());
}
