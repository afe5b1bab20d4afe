//! Keys, their paths and lists: tables of what Calico writes, and properties of random keys.

use super::v1::{
    HostConfigKey, HostEndpointKey, LegacyPolicyKey, PolicyKey, WorkloadEndpointKey, parse_legacy_policy,
};
use super::*;
use proptest::prelude::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn affinity(affinity_type: AffinityType, host: &str, cidr: &str) -> Key {
    Key::BlockAffinity(BlockAffinityKey { cidr: net(cidr), host: host.into(), affinity_type })
}

fn v1(key: V1Key) -> Key {
    Key::V1(key)
}

fn policy(kind: Kind, namespace: &str, name: &str) -> PolicyKey {
    PolicyKey { kind, namespace: namespace.into(), name: name.into() }
}

/// Keys with their paths and the form in which they are printed.
fn known() -> Vec<(Key, &'static str, &'static str)> {
    vec![
        (
            Key::resource(Kind::IPPool, "dropped", "pool"),
            "/calico/resources/v3/projectcalico.org/ippools/pool",
            "IPPool(pool)",
        ),
        (
            Key::resource(Kind::NetworkPolicy, "shop", "web"),
            "/calico/resources/v3/projectcalico.org/networkpolicies/shop/web",
            "NetworkPolicy(shop/web)",
        ),
        (
            Key::resource(Kind::KubernetesService, "shop", "web"),
            "/calico/resources/v3/projectcalico.org/kubernetesservice/shop/web",
            "KubernetesService(shop/web)",
        ),
        (
            Key::Block { cidr: net("10.0.0.0/26") },
            "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26",
            "BlockKey(cidr=10.0.0.0/26)",
        ),
        (
            Key::Block { cidr: net("fd00:1::40/122") },
            "/calico/ipam/v2/assignment/ipv6/block/fd00:1::40-122",
            "BlockKey(cidr=fd00:1::40/122)",
        ),
        (
            affinity(AffinityType::Host, "n1", "10.0.0.0/26"),
            "/calico/ipam/v2/host/n1/ipv4/block/10.0.0.0-26",
            "BlockAffinityKey(cidr=10.0.0.0/26, host=n1, affinityType=host)",
        ),
        (
            affinity(AffinityType::Virtual, "load-balancer", "fd00::/122"),
            "/calico/ipam/v2/virtual/load-balancer/ipv6/block/fd00::-122",
            "BlockAffinityKey(cidr=fd00::/122, host=load-balancer, affinityType=virtual)",
        ),
        (
            Key::IpamHandle { handle_id: "k8s-pod-network.%2f".into() },
            "/calico/ipam/v2/handle/k8s-pod-network.%2f",
            "IPAMHandleKey(id=k8s-pod-network.%2f)",
        ),
        (Key::IpamConfig, "/calico/ipam/v2/config", "IPAMConfigKey()"),
        (Key::IpamHost { host: "n1".into() }, "/calico/ipam/v2/host/n1", "IPAMHostKey(host=n1)"),
        (
            Key::HostEndpointStatus { host: "n1".into(), endpoint: "a/b%".into() },
            "/calico/felix/v1/host/n1/endpoint/a%2fb%25",
            "HostEndpointStatus(hostname=n1, name=a/b%)",
        ),
        (
            Key::WorkloadEndpointStatus {
                region: region_string(""),
                host: "n1".into(),
                orchestrator: "k8s".into(),
                workload: "shop/web".into(),
                endpoint: "eth0".into(),
            },
            "/calico/felix/v2/no-region/host/n1/workload/k8s/shop%2fweb/endpoint/eth0",
            "WorkloadEndpointStatus(hostname=n1, orchestrator=k8s, workload=shop/web, name=eth0)",
        ),
        (
            Key::ActiveStatusReport { region: region_string("north"), host: "n1".into() },
            "/calico/felix/v2/region-north/host/n1/status",
            "StatusReport(hostname=n1)",
        ),
        (
            Key::LastStatusReport { region: region_string(""), host: "n1".into() },
            "/calico/felix/v2/no-region/host/n1/last_reported_status",
            "StatusReport(hostname=n1)",
        ),
        (v1(V1Key::ReadyFlag), "/calico/v1/Ready", "ReadyFlagKey()"),
        (
            v1(V1Key::GlobalConfig { name: "a/b".into() }),
            "/calico/v1/config/a/b",
            "GlobalFelixConfig(name=a/b)",
        ),
        (
            v1(V1Key::HostConfig(HostConfigKey { host: "n1".into(), name: "IpInIpMtu".into() })),
            "/calico/v1/host/n1/config/IpInIpMtu",
            "HostConfig(node=n1,name=IpInIpMtu)",
        ),
        (v1(V1Key::HostMetadata { host: "n1".into() }), "/calico/v1/host/n1/metadata", "Node(name=n1)"),
        (v1(V1Key::Wireguard { node: "n1".into() }), "/calico/v1/host/n1/wireguard", "Node(nodename=n1)"),
        (
            v1(V1Key::OrchRefs { host: "n1".into() }),
            "/calico/v1/host/n1/orchestrator_refs",
            "OrchRefs(nodename=n1)",
        ),
        (
            v1(V1Key::WorkloadEndpoint(WorkloadEndpointKey {
                host: "n1".into(),
                orchestrator: "k8s".into(),
                workload: "shop/web".into(),
                endpoint: "eth0".into(),
            })),
            "/calico/v1/host/n1/workload/k8s/shop%2fweb/endpoint/eth0",
            "WorkloadEndpoint(node=n1, orchestrator=k8s, workload=shop/web, name=eth0)",
        ),
        (
            v1(V1Key::HostEndpoint(HostEndpointKey { host: "n1".into(), endpoint: "eth0".into() })),
            "/calico/v1/host/n1/endpoint/eth0",
            "HostEndpoint(node=n1, name=eth0)",
        ),
        (
            v1(V1Key::NetworkSet { name: "shop/set".into() }),
            "/calico/v1/netset/shop%2fset",
            "NetworkSet(name=shop/set)",
        ),
        (
            v1(V1Key::Policy(policy(Kind::GlobalNetworkPolicy, "", "default.deny"))),
            "/calico/v1/policy/GlobalNetworkPolicy//default.deny",
            "Policy(Name=default.deny, Namespace=, Kind=GlobalNetworkPolicy)",
        ),
        (
            v1(V1Key::Policy(policy(Kind::KubernetesNetworkPolicy, "shop", "web"))),
            "/calico/v1/policy/KubernetesNetworkPolicy/shop/web",
            "Policy(Name=web, Namespace=shop, Kind=KubernetesNetworkPolicy)",
        ),
        (v1(V1Key::Tier { name: "sec".into() }), "/calico/v1/policy/tier/sec/metadata", "Tier(name=sec)"),
        (
            v1(V1Key::ProfileRules { name: "kns.shop".into() }),
            "/calico/v1/policy/profile/kns.shop/rules",
            "ProfileRules(name=kns.shop)",
        ),
        (
            v1(V1Key::ProfileLabels { name: "a/b".into() }),
            "/calico/v1/policy/profile/a%2fb/labels",
            "ProfileLabels(name=a/b)",
        ),
        (
            v1(V1Key::IpPool { cidr: net("10.0.0.0/16") }),
            "/calico/v1/ipam/v4/pool/10.0.0.0-16",
            "IPPool(cidr=10.0.0.0/16)",
        ),
        (
            v1(V1Key::GlobalBgpConfig { name: "as_num".into() }),
            "/calico/bgp/v1/global/as_num",
            "GlobalBGPConfig(name=as_num)",
        ),
        (
            v1(V1Key::NodeBgpConfig { node: "n1".into(), name: "ip_addr_v4".into() }),
            "/calico/bgp/v1/host/n1/ip_addr_v4",
            "HostBGPConfig(node=n1; name=ip_addr_v4)",
        ),
        (
            v1(V1Key::GlobalBgpPeer { ip: "fd00::1".parse().unwrap(), port: 179 }),
            "/calico/bgp/v1/global/peer_v6/fd00::1",
            "BGPPeer(global, ip=fd00::1, port=179)",
        ),
        (
            v1(V1Key::NodeBgpPeer { node: "n1".into(), ip: "10.0.0.1".parse().unwrap(), port: 500 }),
            "/calico/bgp/v1/host/n1/peer_v4/10.0.0.1-500",
            "BGPPeer(node=n1, ip=10.0.0.1, port=500)",
        ),
        (v1(V1Key::BgpNode { host: "n1".into() }), "/calico/bgp/v1/host/n1", "BGPNodeKey(host=n1)"),
    ]
}

#[test]
fn paths_and_printed_forms() {
    for (key, path, printed) in known() {
        assert_eq!(key.path().as_deref(), Ok(path));
        assert_eq!(Key::parse(path), Some(key.clone()), "{path}");
        assert_eq!(key.to_string(), printed);
    }
}

#[test]
fn old_keys_need_no_slash_in_front() {
    for (key, path, _) in known() {
        let strict = matches!(key, Key::Resource(_) | Key::V1(V1Key::ReadyFlag));
        assert_eq!(Key::parse(&path[1..]), (!strict).then_some(key), "{path}");
    }
}

#[test]
fn every_stored_kind_has_a_path() {
    for kind in Kind::ALL {
        let key = Key::resource(*kind, "ns", "name");
        assert_eq!(Key::parse(&key.path().unwrap()), Some(key));
    }
}

#[test]
fn foreign_paths_are_not_parsed() {
    for path in [
        "",
        "/",
        "/calico",
        "/calico/v1",
        "/calico/v1/config",
        "/calico/v1/config/",
        "/calico/v1/Ready/x",
        "/calico/v2/x/y",
        "/other/v1/Ready",
        "/calico/resources/v3/projectcalico.org/ippools",
        "/calico/resources/v3/projectcalico.org/ippools/",
        "/calico/resources/v3/projectcalico.org/ippools/ns/pool",
        "/calico/resources/v3/projectcalico.org/networkpolicies/web",
        "/calico/resources/v3/projectcalico.org/networkpolicies//web",
        "/calico/resources/v3/projectcalico.org/networkpolicies/shop/web/x",
        "/calico/resources/v3/projectcalico.org/unicorns/x",
        "/calico/resources/v4/projectcalico.org/ippools/pool",
        "/calico/resources/v3/other.org/ippools/pool",
        "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0",
        "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-33",
        "/calico/ipam/v2/assignment/v4/block/10.0.0.0-26",
        "/calico/ipam/v2/cloud/n1/ipv4/block/10.0.0.0-26",
        "/calico/ipam/v2/handle/a/b",
        "/calico/ipam/v2/handle/",
        "/calico/felix/v1/host/n1/endpoint",
        "/calico/felix/v2/r/host/n1/statusx",
        "/calico/felix/v2/r/host/n1/workload/k8s/w/endpoint/",
        "/calico/v1/host/n1/workload/k8s/w/endpoints/e",
        "/calico/v1/host//metadata",
        "/calico/v1/policy/NetworkPolicy//web",
        "/calico/v1/policy/GlobalNetworkPolicy/shop/web",
        "/calico/v1/policy/IPPool//pool",
        "/calico/v1/policy/profile/p",
        "/calico/bgp/v1/global/peer_v4/nowhere",
    ] {
        assert_eq!(Key::parse(path), None, "{path}");
    }
}

#[test]
fn parts_that_would_come_back_changed_are_errors() {
    let refused = |part, value: &str| Err(KeyError::NotAPart { part, value: value.into() });
    for (key, error) in [
        (Key::resource(Kind::IPPool, "", ""), Err(KeyError::Missing("name"))),
        (Key::resource(Kind::NetworkPolicy, "", "a"), Err(KeyError::Missing("namespace"))),
        (Key::resource(Kind::IPPool, "", "a/b"), refused("name", "a/b")),
        (Key::resource(Kind::IPPool, "", "a%25b"), refused("name", "a%25b")),
        (
            Key::resource(Kind::IPPool, "", "a%b"),
            Ok("/calico/resources/v3/projectcalico.org/ippools/a%b".into()),
        ),
        (Key::IpamHandle { handle_id: "a/b".into() }, refused("handle", "a/b")),
        (affinity(AffinityType::Host, "", "10.0.0.0/26"), Err(KeyError::Missing("host"))),
        (Key::ActiveStatusReport { region: "a/b".into(), host: "n1".into() }, refused("regionString", "a/b")),
        (Key::V1(V1Key::Policy(policy(Kind::IPPool, "", "pool"))), refused("kind", "IPPool")),
        (Key::V1(V1Key::GlobalBgpConfig { name: "peer_v4/x".into() }), refused("name", "peer_v4/x")),
    ] {
        assert_eq!(key.path(), error, "{key}");
    }
}

#[test]
fn networks_are_masked_and_port_zero_is_the_usual_one() {
    let key = Key::Block { cidr: net("10.0.0.7/26") };
    assert_eq!(key.path().as_deref(), Ok("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26"));
    let key = Key::V1(V1Key::GlobalBgpPeer { ip: "10.0.0.1".parse().unwrap(), port: 0 });
    assert_eq!(key.path().as_deref(), Ok("/calico/bgp/v1/global/peer_v4/10.0.0.1"));
}

#[test]
fn policy_keys_of_older_releases_are_upgraded() {
    for (name, kind, namespace, rest) in [
        ("deny", Kind::GlobalNetworkPolicy, "", "deny"),
        ("staged:deny", Kind::StagedGlobalNetworkPolicy, "", "deny"),
        ("kcnp.deny", Kind::KubernetesClusterNetworkPolicy, "", "deny"),
        ("knp.default.x", Kind::GlobalNetworkPolicy, "", "knp.default.x"),
        ("shop%2fweb", Kind::NetworkPolicy, "shop", "web"),
        ("shop%2fknp.default.web", Kind::KubernetesNetworkPolicy, "shop", "web"),
        ("shop%2fstaged:web", Kind::StagedNetworkPolicy, "shop", "web"),
        ("shop%2fstaged:knp.default.web", Kind::StagedKubernetesNetworkPolicy, "shop", "web"),
        ("shop%2fkcnp.web", Kind::NetworkPolicy, "shop", "kcnp.web"),
    ] {
        let path = format!("/calico/v1/policy/tier/sec/policy/{name}");
        let key = policy(kind, namespace, rest);
        assert_eq!(
            parse_legacy_policy(&path),
            Some(LegacyPolicyKey { tier: "sec".into(), key: key.clone() })
        );
        assert_eq!(Key::parse(&path), Some(Key::V1(V1Key::Policy(key))), "{path}");
    }
    assert_eq!(parse_legacy_policy("/calico/v1/policy/tier/sec/metadata"), None);
}

#[test]
fn lists_have_prefixes() {
    let resources =
        |kind, namespace: Option<&str>, name: Option<&str>, name_is_prefix| ListOptions::Resource {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            name_is_prefix,
        };
    let affinities = |host: Option<&str>, affinity_type, ip_version| ListOptions::BlockAffinity {
        host: host.map(str::to_owned),
        affinity_type,
        ip_version,
    };
    let root = "/calico/resources/v3/projectcalico.org/";
    for (options, prefix, exact) in [
        (ListOptions::resources(Kind::IPPool), format!("{root}ippools/"), false),
        (resources(Kind::IPPool, None, Some("a"), false), format!("{root}ippools/a"), true),
        (resources(Kind::IPPool, None, Some("a"), true), format!("{root}ippools/a"), false),
        (ListOptions::resources(Kind::NetworkPolicy), format!("{root}networkpolicies/"), false),
        (resources(Kind::NetworkPolicy, Some("n"), None, false), format!("{root}networkpolicies/n/"), false),
        (
            resources(Kind::NetworkPolicy, Some("n"), Some("a"), false),
            format!("{root}networkpolicies/n/a"),
            true,
        ),
        (
            resources(Kind::NetworkPolicy, Some("n"), Some("a"), true),
            format!("{root}networkpolicies/n/a"),
            false,
        ),
        (resources(Kind::NetworkPolicy, None, Some("a"), false), format!("{root}networkpolicies/"), false),
        (ListOptions::Block { ip_version: None }, "/calico/ipam/v2/assignment/".into(), false),
        (
            ListOptions::Block { ip_version: Some(IpVersion::V6) },
            "/calico/ipam/v2/assignment/ipv6/".into(),
            false,
        ),
        (affinities(None, None, None), "/calico/ipam/v2/host/".into(), false),
        (affinities(None, Some(AffinityType::Virtual), None), "/calico/ipam/v2/virtual/".into(), false),
        (affinities(Some("n1"), None, None), "/calico/ipam/v2/host/n1/".into(), false),
        (
            affinities(Some("n1"), None, Some(IpVersion::V4)),
            "/calico/ipam/v2/host/n1/ipv4/block/".into(),
            false,
        ),
        (ListOptions::IpamHandle, "/calico/ipam/v2/handle/".into(), false),
        (ListOptions::HostEndpointStatus { host: None }, "/calico/felix/v1/host/".into(), false),
        (
            ListOptions::HostEndpointStatus { host: Some("n1".into()) },
            "/calico/felix/v1/host/n1/endpoint/".into(),
            false,
        ),
        (ListOptions::WorkloadEndpointStatus { host: Some("n1".into()) }, "/calico/felix/v2/".into(), false),
        (ListOptions::StatusReports, "/calico/felix/v2/".into(), false),
    ] {
        assert_eq!(options.prefix(), Ok(prefix.clone()), "{options}");
        assert_eq!(options.exact_key().map(|key| key.path().unwrap()), exact.then_some(prefix), "{options}");
    }
    assert!(resources(Kind::IPPool, None, Some("a/b"), true).prefix().is_err());
    assert_eq!(resources(Kind::NetworkPolicy, Some("n"), Some("a"), true).to_string(), "NetworkPolicy(n/a*)");
}

#[test]
fn lists_match_their_keys() {
    let with_prefix = ListOptions::Resource {
        kind: Kind::WorkloadEndpoint,
        namespace: Some("shop".into()),
        name: Some("n1-".into()),
        name_is_prefix: true,
    };
    let on_host = ListOptions::BlockAffinity {
        host: Some("n1".into()),
        affinity_type: Some(AffinityType::Host),
        ip_version: Some(IpVersion::V4),
    };
    for (options, key, matches) in [
        (&with_prefix, Key::resource(Kind::WorkloadEndpoint, "shop", "n1-k8s-a-eth0"), true),
        (&with_prefix, Key::resource(Kind::WorkloadEndpoint, "shop", "n2-k8s-a-eth0"), false),
        (&with_prefix, Key::resource(Kind::WorkloadEndpoint, "other", "n1-k8s-a-eth0"), false),
        (&with_prefix, Key::resource(Kind::NetworkPolicy, "shop", "n1-k8s-a-eth0"), false),
        (&on_host, affinity(AffinityType::Host, "n1", "10.0.0.0/26"), true),
        (&on_host, affinity(AffinityType::Host, "n10", "10.0.0.0/26"), false),
        (&on_host, affinity(AffinityType::Virtual, "n1", "10.0.0.0/26"), false),
        (&on_host, affinity(AffinityType::Host, "n1", "fd00::/122"), false),
        (&on_host, Key::IpamHost { host: "n1".into() }, false),
        (&ListOptions::StatusReports, Key::LastStatusReport { region: "r".into(), host: "n1".into() }, true),
        (&ListOptions::IpamHandle, Key::IpamConfig, false),
    ] {
        assert_eq!(options.matches(&key), matches, "{options} {key}");
    }
}

/// Any text that may be a part, in which characters with a meaning in paths are more frequent than by chance.
fn part() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            Just("%2f".to_owned()),
            Just("%25".to_owned()),
            Just("/".to_owned()),
            Just("%".to_owned()),
            ".".prop_map(String::from)
        ],
        0..6,
    )
    .prop_map(|pieces| pieces.concat())
}

fn any_net() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<u32>(), 0u8..=32)
            .prop_map(|(ip, length)| IpNet::new(std::net::Ipv4Addr::from(ip).into(), length)),
        (any::<u128>(), 0u8..=128)
            .prop_map(|(ip, length)| IpNet::new(std::net::Ipv6Addr::from(ip).into(), length)),
    ]
    .prop_map(|net| net.unwrap().trunc())
}

fn any_key() -> impl Strategy<Value = Key> {
    let kind = || proptest::sample::select(Kind::ALL);
    prop_oneof![
        (kind(), part(), part()).prop_map(|(kind, namespace, name)| Key::resource(kind, &namespace, &name)),
        any_net().prop_map(|cidr| Key::Block { cidr }),
        (any_net(), part(), any::<bool>()).prop_map(|(cidr, host, is_host)| {
            let affinity_type = if is_host { AffinityType::Host } else { AffinityType::Virtual };
            Key::BlockAffinity(BlockAffinityKey { cidr, host, affinity_type })
        }),
        part().prop_map(|handle_id| Key::IpamHandle { handle_id: handle_id.into() }),
        part().prop_map(|host| Key::IpamHost { host }),
        (part(), part()).prop_map(|(host, endpoint)| Key::HostEndpointStatus { host, endpoint }),
        (part(), part(), part(), part(), part()).prop_map(
            |(region, host, orchestrator, workload, endpoint)| {
                Key::WorkloadEndpointStatus { region, host, orchestrator, workload, endpoint }
            }
        ),
        (part(), part()).prop_map(|(region, host)| Key::ActiveStatusReport { region, host }),
        (part(), part()).prop_map(|(region, host)| Key::LastStatusReport { region, host }),
        any_v1_key().prop_map(Key::V1),
    ]
}

fn any_v1_key() -> impl Strategy<Value = V1Key> {
    let ip = || any_net().prop_map(|net| net.addr().to_canonical());
    prop_oneof![
        part().prop_map(|name| V1Key::GlobalConfig { name }),
        (part(), part())
            .prop_map(|(host, name)| V1Key::HostConfig(HostConfigKey { host: host.into(), name })),
        part().prop_map(|host| V1Key::HostMetadata { host }),
        part().prop_map(|node| V1Key::Wireguard { node: node.into() }),
        (part(), part(), part(), part()).prop_map(|(host, orchestrator, workload, endpoint)| {
            V1Key::WorkloadEndpoint(WorkloadEndpointKey {
                host: host.into(),
                orchestrator,
                workload,
                endpoint,
            })
        }),
        (part(), part()).prop_map(|(host, endpoint)| V1Key::HostEndpoint(HostEndpointKey {
            host: host.into(),
            endpoint
        })),
        part().prop_map(|name| V1Key::NetworkSet { name }),
        (proptest::sample::select(Kind::ALL), part(), part()).prop_map(|(kind, namespace, name)| {
            let namespace = if kind.is_namespaced() { namespace } else { String::new() };
            V1Key::Policy(PolicyKey { kind, namespace, name })
        }),
        part().prop_map(|name| V1Key::Tier { name: name.into() }),
        part().prop_map(|name| V1Key::ProfileRules { name: name.into() }),
        part().prop_map(|name| V1Key::ProfileLabels { name: name.into() }),
        any_net().prop_map(|cidr| V1Key::IpPool { cidr }),
        part().prop_map(|name| V1Key::GlobalBgpConfig { name }),
        (part(), part()).prop_map(|(node, name)| V1Key::NodeBgpConfig { node, name }),
        (ip(), 1u16..).prop_map(|(ip, port)| V1Key::GlobalBgpPeer { ip, port }),
        (part(), ip(), 1u16..).prop_map(|(node, ip, port)| V1Key::NodeBgpPeer { node, ip, port }),
        part().prop_map(|host| V1Key::BgpNode { host }),
    ]
}

#[test]
fn names_of_settings_may_have_any_number_of_slashes() {
    for count in [1, 7, 8, 9, 40] {
        let name = vec!["a"; count].join("/");
        let key = v1(V1Key::HostConfig(HostConfigKey { host: "h".into(), name: name.clone() }));
        assert_eq!(Key::parse(&format!("/calico/v1/host/h/config/{name}")), Some(key), "{count}");
    }
}

#[test]
fn escaped_names_are_read() {
    for (written, read) in
        [("a%2fb", "a/b"), ("%252f", "%2f"), ("%25%2f%", "%/%"), ("%2", "%2"), ("%é2f", "%é2f"), ("", "")]
    {
        assert_eq!(unescape(written), read, "{written}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_path_leads_back_to_its_key(key in any_key()) {
        if let Ok(path) = key.path() {
            prop_assert_eq!(Key::parse(&path), Some(key), "{}", path);
        }
    }

    #[test]
    fn a_key_leads_back_to_its_path(
        segments in proptest::collection::vec(
            prop_oneof![
                4 => proptest::sample::select(vec![
                    "calico", "v1", "resources", "v3", "projectcalico.org", "ippools", "networkpolicies", "ipam", "v2", "host",
                    "virtual", "assignment", "ipv4", "block", "10.0.0.0-26", "handle", "config", "felix", "endpoint", "workload",
                    "policy", "tier", "profile", "rules", "metadata", "bgp", "global", "peer_v4", "10.0.0.1-500", "status",
                    "GlobalNetworkPolicy", "", "x",
                ]).prop_map(str::to_owned),
                1 => part(),
            ],
            0..10,
        )
    ) {
        let path = format!("/{}", segments.join("/"));
        // Every path that parses gives a key whose path parses to the same key.
        if let Some(key) = Key::parse(&path)
            && let Ok(again) = key.path()
        {
            prop_assert_eq!(Key::parse(&again), Some(key));
        }
    }

    #[test]
    fn prefixes_cover_what_they_match(key in any_key(), namespace in part(), name in part()) {
        for options in [
            ListOptions::resources(Kind::IPPool),
            ListOptions::Resource { kind: Kind::NetworkPolicy, namespace: Some(namespace), name: Some(name), name_is_prefix: true },
            ListOptions::Block { ip_version: Some(IpVersion::V4) },
            ListOptions::BlockAffinity { host: None, affinity_type: Some(AffinityType::Host), ip_version: None },
            ListOptions::IpamHandle,
            ListOptions::HostEndpointStatus { host: None },
            ListOptions::StatusReports,
        ] {
            if options.matches(&key)
                && let (Ok(path), Ok(prefix)) = (key.path(), options.prefix())
            {
                prop_assert!(path.starts_with(&prefix), "{} {}", path, prefix);
            }
        }
    }
}
