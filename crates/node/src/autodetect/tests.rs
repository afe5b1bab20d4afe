//! The methods on a host with everything that may confuse them.

use super::*;

fn interface(index: u32, name: &str, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|text| text.parse().expect("a network")).collect();
    Interface { index, name: name.to_owned(), addresses }
}

/// A host with two network cards, a container bridge, a pod's veth and a tunnel.
fn host() -> Vec<Interface> {
    vec![
        interface(1, "lo", &["127.0.0.1/8", "::1/128"]),
        interface(2, "eth0", &["10.0.0.5/24", "10.0.0.99/32", "fd00::5/64", "fe80::1/64"]),
        interface(3, "eth1", &["169.254.7.7/16", "192.168.7.5/24", "fe80::2/64"]),
        interface(4, "docker0", &["172.17.0.1/16"]),
        interface(5, "cali123", &["169.254.1.1/32", "fe80::3/64"]),
        interface(6, "vxlan.calico", &["10.244.1.0/32"]),
        interface(7, "eth2", &[]),
    ]
}

fn find(method: &str, family: IpVersion, facts: &Facts<'_>) -> Result<String, DetectError> {
    detect(&Method::parse(method)?, family, facts).map(|net| net.to_string())
}

#[track_caller]
fn check(method: &str, family: IpVersion, expected: &str) {
    let interfaces = host();
    let facts = Facts { interfaces: &interfaces, ..Facts::default() };
    assert_eq!(find(method, family, &facts).as_deref(), Ok(expected), "{method}");
}

#[track_caller]
fn check_refused(method: &str, family: IpVersion, expected: &str) {
    let interfaces = host();
    let facts = Facts { interfaces: &interfaces, ..Facts::default() };
    let error = find(method, family, &facts).expect_err(method).to_string();
    assert!(error.contains(expected), "{method}: {error}");
}

#[test]
fn the_first_found_is_on_the_highest_usable_interface() {
    check("", IpVersion::V4, "192.168.7.5/24");
    check("first-found", IpVersion::V4, "192.168.7.5/24");
    check("first-found", IpVersion::V6, "fd00::5/64");
    check("skip-interface=eth1", IpVersion::V4, "10.0.0.5/24");
    check("skip-interface=^eth1$ , ^nothing$", IpVersion::V4, "10.0.0.5/24");
    check_refused(
        "skip-interface=eth.*",
        IpVersion::V4,
        "there are 10.244.1.0/32 on vxlan.calico, 172.17.0.1/16 on docker0",
    );
}

#[test]
fn named_interfaces_and_ranges() {
    check("interface=eth0", IpVersion::V4, "10.0.0.5/24");
    check("interface=eth1", IpVersion::V4, "192.168.7.5/24");
    // An explicit name overrides the list of interfaces that are never the node's.
    check("interface=docker0", IpVersion::V4, "172.17.0.1/16");
    check("interface=eth.*", IpVersion::V6, "fd00::5/64");
    check("cidr=10.0.0.0/24", IpVersion::V4, "10.0.0.5/24");
    check("cidr=10.0.0.64/26", IpVersion::V4, "10.0.0.99/32");
    check("cidr=fd00::/8", IpVersion::V6, "fd00::5/64");
    check_refused("interface=wlan.*", IpVersion::V4, "matches interface=wlan.*; there are");
    check_refused("cidr=10.9.0.0/16", IpVersion::V4, "matches cidr=10.9.0.0/16");
}

#[test]
fn several_matching_interfaces_are_listed_without_a_guess() {
    check_refused(
        "interface=eth.*",
        IpVersion::V4,
        "interface=eth.* matches several interfaces: 192.168.7.5/24 on eth1, 10.0.0.5/24 on eth0",
    );
    check_refused("cidr=10.0.0.0/8", IpVersion::V4, "10.244.1.0/32 on vxlan.calico, 10.0.0.5/24 on eth0");
    // An address that the node already uses is kept,
    let interfaces = host();
    for (stored, expected) in
        [("10.0.0.5", "10.0.0.5/24"), ("10.0.0.99", "10.0.0.99/32"), ("192.168.7.5", "192.168.7.5/24")]
    {
        let facts = Facts { interfaces: &interfaces, stored: stored.parse().ok(), ..Facts::default() };
        assert_eq!(find("interface=eth.*", IpVersion::V4, &facts).as_deref(), Ok(expected));
    }
    // unless it is gone, or does not match.
    for stored in ["10.0.0.7", "172.17.0.1"] {
        let facts = Facts { interfaces: &interfaces, stored: stored.parse().ok(), ..Facts::default() };
        assert!(matches!(find("interface=eth.*", IpVersion::V4, &facts), Err(DetectError::Ambiguous { .. })));
    }
}

#[test]
fn one_address_on_two_interfaces_is_one_candidate() {
    let interfaces = [interface(2, "eth0", &["10.0.0.5/24"]), interface(3, "eth1", &["10.0.0.5/32"])];
    let facts = Facts { interfaces: &interfaces, ..Facts::default() };
    assert_eq!(find("interface=eth.*", IpVersion::V4, &facts).as_deref(), Ok("10.0.0.5/32"));
}

#[test]
fn the_address_that_reaches_a_destination_must_be_local() {
    let interfaces = host();
    let reached = |outcome: Result<&str, &str>| Facts {
        interfaces: &interfaces,
        reached: Some(outcome.map(|text| text.parse().expect("an address")).map_err(str::to_owned)),
        ..Facts::default()
    };
    assert_eq!(
        find("can-reach=8.8.8.8", IpVersion::V4, &reached(Ok("10.0.0.5"))).as_deref(),
        Ok("10.0.0.5/24")
    );
    for (outcome, expected) in [
        (Ok("10.0.0.77"), "10.0.0.77 (can-reach=8.8.8.8) is not an address"),
        (Err("unreachable"), "no route to 8.8.8.8: unreachable"),
    ] {
        let error = find("can-reach=8.8.8.8", IpVersion::V4, &reached(outcome)).expect_err("no address");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn the_address_in_kubernetes_must_be_local() {
    let interfaces = host();
    let known = |addresses: &[&str]| Facts {
        interfaces: &interfaces,
        internal_addresses: Some(addresses.iter().map(|text| (*text).to_owned()).collect()),
        ..Facts::default()
    };
    let method = "kubernetes-internal-ip";
    let both = known(&["node-a", "fd00::5", "10.0.0.5", "192.168.7.5"]);
    assert_eq!(find(method, IpVersion::V4, &both).as_deref(), Ok("10.0.0.5/24"));
    assert_eq!(find(method, IpVersion::V6, &both).as_deref(), Ok("fd00::5/64"));
    assert_eq!(
        find(method, IpVersion::V6, &known(&["10.0.0.5"])),
        Err(DetectError::NoInternalAddress(IpVersion::V6))
    );
    assert!(matches!(find(method, IpVersion::V4, &known(&["10.7.7.7"])), Err(DetectError::NotHere { .. })));
    check_refused(method, IpVersion::V4, "needs Kubernetes");
}

#[test]
fn unknown_methods_are_refused() {
    for (method, expected) in [
        ("first", "there is no autodetection method 'first'"),
        ("interfaces=eth0", "there is no autodetection method"),
        ("interface=", "empty element"),
        ("interface=eth0,", "empty element"),
        ("skip-interface=", "empty element"),
        ("can-reach=", "empty element"),
        ("cidr=10.0.0.0/33", "not a range"),
        ("cidr=10.0.0.1", "not a range"),
        ("interface=eth(", "'eth(' is not a regular expression"),
        ("skip-interface=a,*", "'*' is not a regular expression"),
    ] {
        check_refused(method, IpVersion::V4, expected);
    }
}

#[test]
fn reported_interfaces_are_sorted_by_name() {
    let interfaces = host();
    let names = |families: &[IpVersion]| -> Vec<String> {
        let reported = reported(&interfaces, families).expect("a report");
        let row = |interface: &Interface| {
            let addresses: Vec<String> =
                interface.addresses.iter().map(|net| net.addr().to_string()).collect();
            format!("{} {}", interface.name, addresses.join(" ")).trim_end().to_owned()
        };
        reported.iter().map(row).collect()
    };
    assert_eq!(names(&[IpVersion::V4]), ["eth0 10.0.0.5 10.0.0.99", "eth1 169.254.7.7 192.168.7.5", "eth2"]);
    assert_eq!(names(&[IpVersion::V6]), ["eth0 fd00::5 fe80::1", "eth1 fe80::2", "eth2"]);
}
