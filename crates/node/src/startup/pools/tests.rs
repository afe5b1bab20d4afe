//! Tables of inputs and the pools that are created for them.

use super::*;
use daemon::Variables;

fn facts() -> PoolFacts {
    PoolFacts { host_has_ipv6: true, random: [1, 2, 3, 4, 5], ..PoolFacts::default() }
}

fn plan_with(variables: &[(&str, &str)], facts: &PoolFacts) -> Result<Vec<IPPool>, PoolError> {
    plan(&Settings::read(&Variables::new(variables.iter().copied())).expect("usable variables"), facts)
}

fn ranges(variables: &[(&str, &str)], facts: &PoolFacts) -> Vec<String> {
    let pools = plan_with(variables, facts).expect("pools");
    pools.iter().map(|pool| format!("{} {}", pool.metadata.name, pool.spec.cidr)).collect()
}

#[test]
fn by_default_one_pool_per_family_is_created() {
    let pools = plan_with(&[], &facts()).expect("pools");
    let [ipv4, ipv6] = pools.as_slice() else { panic!("{pools:?}") };
    assert_eq!(
        (ipv4.metadata.name.as_str(), ipv4.spec.cidr.as_str()),
        ("default-ipv4-ippool", "192.168.0.0/16")
    );
    assert_eq!((ipv4.spec.block_size, ipv4.spec.nat_outgoing), (26, true));
    assert_eq!((&ipv4.spec.ipip_mode, &ipv4.spec.vxlan_mode), (&IPIPMode::Never, &VXLANMode::Never));
    assert_eq!(
        (ipv6.metadata.name.as_str(), ipv6.spec.cidr.as_str()),
        ("default-ipv6-ippool", "fd01:203:405::/48")
    );
    assert_eq!((ipv6.spec.block_size, ipv6.spec.nat_outgoing), (122, false));
}

#[test]
fn existing_or_unwanted_pools_are_not_created() {
    let v4 = "default-ipv4-ippool 192.168.0.0/16".to_owned();
    let v6 = "default-ipv6-ippool fd01:203:405::/48".to_owned();
    let existing =
        |cidrs: &[&str]| PoolFacts { existing: cidrs.iter().map(|cidr| (*cidr).into()).collect(), ..facts() };
    for (variables, facts, expected) in [
        (vec![], existing(&["10.0.0.0/8"]), vec![v6.clone()]),
        (vec![], existing(&["fd00::/48", "garbage"]), vec![v4.clone()]),
        (vec![], existing(&["10.0.0.0/8", "fd00::/48"]), vec![]),
        (vec![("NO_DEFAULT_POOLS", "TRUE")], facts(), vec![]),
        (vec![("CALICO_IPV4POOL_CIDR", "none")], facts(), vec![v6]),
        (vec![("CALICO_IPV6POOL_CIDR", "none")], facts(), vec![v4.clone()]),
        (vec![("FELIX_IPV6SUPPORT", "false")], facts(), vec![v4.clone()]),
        (vec![], PoolFacts { host_has_ipv6: false, ..facts() }, vec![v4]),
    ] {
        assert_eq!(ranges(&variables, &facts), expected, "{variables:?}");
    }
}

#[test]
fn the_range_comes_from_the_variable_then_kubeadm_then_the_host() {
    let kubeadm = |text: &str| PoolFacts {
        kubeadm: Some(BTreeMap::from([("ClusterConfiguration".to_owned(), text.to_owned())])),
        host_has_ipv6: false,
        ..facts()
    };
    let first = |variables: &[(&str, &str)], facts: &PoolFacts| {
        let pools = plan_with(variables, facts).expect("pools");
        pools[0].spec.cidr.to_string()
    };
    let dual =
        kubeadm("networking:\n  podSubnet: 10.244.0.0/16,fd00:10:244::/56\n  serviceSubnet: 10.96.0.0/12\n");
    assert_eq!(first(&[], &dual), "10.244.0.0/16");
    assert_eq!(first(&[("CALICO_IPV4POOL_CIDR", "10.1.2.3/16")], &dual), "10.1.0.0/16");
    assert_eq!(
        ranges(&[("CALICO_IPV4POOL_CIDR", "none")], &PoolFacts { host_has_ipv6: true, ..dual }),
        ["default-ipv6-ippool fd00:10:244::/56"]
    );
    assert_eq!(first(&[], &kubeadm("networking: {}")), "192.168.0.0/16");
    assert_eq!(first(&[], &kubeadm("  podSubnet: \"10.7.0.0/16\"\n")), "10.7.0.0/16");
    assert_eq!(first(&[], &kubeadm("  podSubnet: nonsense,10.7.0.0/16\n")), "192.168.0.0/16");
    let on = |addresses: &[&str]| PoolFacts {
        host_addresses: addresses.iter().map(|text| text.parse().expect("an address")).collect(),
        ..facts()
    };
    assert_eq!(first(&[], &on(&["192.168.1.1"])), "172.16.0.0/16");
    assert_eq!(first(&[], &on(&["192.168.1.1", "172.16.0.1", "172.17.0.1"])), "172.18.0.0/16");
    let everywhere: Vec<String> = (16..=31).map(|second| format!("172.{second}.0.1")).collect();
    let mut everywhere: Vec<&str> = everywhere.iter().map(String::as_str).collect();
    everywhere.push("192.168.1.1");
    assert_eq!(first(&[], &on(&everywhere)), "192.168.0.0/16");
}

#[test]
fn variables_set_the_fields_of_a_pool() {
    let pools = plan_with(
        &[
            ("CALICO_IPV4POOL_CIDR", "10.244.0.0/16"),
            ("CALICO_IPV4POOL_IPIP", "Cross-Subnet"),
            ("CALICO_IPV4POOL_BLOCK_SIZE", "24"),
            ("CALICO_IPV4POOL_NODE_SELECTOR", "zone == 'a'"),
            ("CALICO_IPV4POOL_NAT_OUTGOING", "no"),
            ("CALICO_IPV4POOL_DISABLE_BGP_EXPORT", "yes"),
            ("CALICO_IPV6POOL_VXLAN", "ALWAYS"),
        ],
        &facts(),
    )
    .expect("pools");
    let spec = &pools[0].spec;
    assert_eq!(spec.ipip_mode, IPIPMode::CrossSubnet);
    assert_eq!((spec.block_size, spec.node_selector.as_str()), (24, "zone == 'a'"));
    assert!(!spec.nat_outgoing && spec.disable_bgp_export);
    assert_eq!(pools[1].spec.vxlan_mode, VXLANMode::Always);
}

#[test]
fn mistakes_name_the_variable() {
    for (name, value, expected) in [
        ("CALICO_IPV4POOL_CIDR", "10.0.0.0/33", "CALICO_IPV4POOL_CIDR=10.0.0.0/33"),
        ("CALICO_IPV4POOL_CIDR", "fd00::/48", "is not an IPv4 range"),
        ("CALICO_IPV6POOL_CIDR", "10.0.0.0/8", "is not an IPv6 range"),
        ("CALICO_IPV4POOL_BLOCK_SIZE", "19", "from 20 to 32"),
        ("CALICO_IPV6POOL_BLOCK_SIZE", "64", "from 116 to 128"),
        ("CALICO_IPV4POOL_IPIP", "sometimes", "set never, always or cross-subnet"),
        ("CALICO_IPV6POOL_VXLAN", "sometimes", "CALICO_IPV6POOL_VXLAN=sometimes"),
        ("CALICO_IPV4POOL_NODE_SELECTOR", "zone ==", "is not a selector"),
    ] {
        let error = plan_with(&[(name, value)], &facts()).expect_err(name).to_string();
        assert!(error.contains(expected) && error.contains(name), "{error}");
    }
    let both = [("NO_DEFAULT_POOLS", "true"), ("CALICO_IPV4POOL_CIDR", "10.0.0.0/16")];
    assert_eq!(plan_with(&both, &facts()), Err(PoolError::Contradiction));
    // An invalid mode does not matter if no pool needs it.
    let existing = PoolFacts { existing: vec!["10.0.0.0/8".into()], host_has_ipv6: false, ..facts() };
    assert_eq!(plan_with(&[("CALICO_IPV4POOL_IPIP", "sometimes")], &existing), Ok(Vec::new()));
}
