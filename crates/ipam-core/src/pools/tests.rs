//! Tables of the pools that a request may use.

use super::*;
use api::IPPoolSpec;

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn labels(list: &[(&str, &str)]) -> Labels {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn pool(name: &str, spec: &str) -> Pool {
    Pool::read(&object(name, spec)).expect("a pool")
}

fn object(name: &str, spec: &str) -> IPPool {
    let spec: IPPoolSpec = serde_json::from_str(spec).expect("a spec");
    let mut pool = IPPool::new("", name, spec);
    pool.set_read_defaults();
    pool
}

/// Pools of every kind, in the order of their names.
fn pools() -> Vec<Pool> {
    vec![
        pool("a-rack1", r#"{"cidr":"10.1.0.0/16","nodeSelector":"rack == '1'"}"#),
        pool("b-team", r#"{"cidr":"10.2.0.0/16","namespaceSelector":"team == 'x'"}"#),
        pool("c-disabled", r#"{"cidr":"10.3.0.0/16","disabled":true}"#),
        pool("d-manual", r#"{"cidr":"10.4.0.0/16","assignmentMode":"Manual"}"#),
        pool("e-tunnels", r#"{"cidr":"10.5.0.0/16","allowedUses":["Tunnel"]}"#),
        pool("f-balancers", r#"{"cidr":"10.6.0.0/16","allowedUses":["LoadBalancer"]}"#),
        pool("g-small", r#"{"cidr":"10.7.0.0/24","blockSize":32}"#),
        pool("h-six", r#"{"cidr":"fd00::/48"}"#),
    ]
}

fn names(pools: &[Pool]) -> Vec<&str> {
    pools.iter().map(|pool| pool.name.as_str()).collect()
}

#[test]
fn pools_are_chosen_by_selectors_and_use() {
    let pools = pools();
    let (rack, other) = (labels(&[("rack", "1")]), labels(&[]));
    let team = labels(&[("team", "x")]);
    let wanted = Wanted {
        host: "n1",
        version: IpVersion::V4,
        requested: &[],
        intended_use: IntendedUse::Workload,
        node_labels: &rack,
        namespace_labels: &team,
        max_block_size: 32,
    };
    let chosen = choose(&pools, &wanted).expect("pools");
    assert_eq!(names(&chosen.usable), ["a-rack1", "b-team", "g-small"]);
    assert_eq!(names(&chosen.selecting), ["a-rack1", "b-team", "e-tunnels", "f-balancers", "g-small"]);

    let tunnel = Wanted { intended_use: IntendedUse::Tunnel, namespace_labels: &other, ..wanted.clone() };
    assert_eq!(names(&choose(&pools, &tunnel).expect("pools").usable), ["a-rack1", "e-tunnels", "g-small"]);
    let elsewhere = Wanted { node_labels: &other, namespace_labels: &other, ..wanted.clone() };
    assert_eq!(names(&choose(&pools, &elsewhere).expect("pools").usable), ["g-small"]);
    let windows = Wanted { max_block_size: 29, ..elsewhere.clone() };
    assert_eq!(
        choose(&pools, &windows).expect_err("blocks too small"),
        NoPool::NoneForUse(IntendedUse::Workload)
    );
    let six = Wanted { version: IpVersion::V6, max_block_size: 128, ..wanted.clone() };
    assert_eq!(names(&choose(&pools, &six).expect("pools").usable), ["h-six"]);

    // Requests that name pools get them, whatever the pools select, but only those that are open.
    let (manual, disabled, unknown) = ([net("10.4.0.0/16")], [net("10.3.0.0/16")], [net("10.9.0.0/16")]);
    let named = Wanted { requested: &manual, node_labels: &other, ..wanted.clone() };
    assert_eq!(names(&choose(&pools, &named).expect("pools").usable), ["d-manual"]);
    for (requested, message) in [
        (&disabled[..], "the given pool (10.3.0.0/16) does not exist, or is not enabled"),
        (&unknown[..], "the given pool (10.9.0.0/16) does not exist, or is not enabled"),
        (&[net("fd00::/48")][..], "provided IPv4 IPPools list contains one or more IPv6 IPPools"),
        (
            &[net("10.5.0.0/16")][..],
            "cannot find a qualified ippool, no pools match the required use (Workload)",
        ),
    ] {
        let refused = choose(&pools, &Wanted { requested, ..wanted.clone() }).expect_err("refused");
        assert_eq!(refused.to_string(), message);
    }
    assert_eq!(choose(&pools[2..3], &wanted).expect_err("none"), NoPool::NoneEnabled);
    let none = choose(&pools[..2], &elsewhere).expect_err("none");
    assert_eq!(none.to_string(), "no configured Calico pools for node n1");
}

#[test]
fn a_pool_that_is_leaving_or_closed_is_not_enabled() {
    let mut leaving = object("p", r#"{"cidr":"10.0.0.0/16"}"#);
    assert!(Pool::read(&leaving).expect("a pool").is_enabled);
    leaving.metadata.deletion_timestamp = Some(api::meta::Time::new("2026-01-01T00:00:00Z"));
    assert!(!Pool::read(&leaving).expect("a pool").is_enabled);
    let closed = |status: &str| {
        let mut pool = object("p", r#"{"cidr":"10.0.0.0/16"}"#);
        let text = format!(r#"{{"conditions":[{{"type":"Allocatable","status":"{status}"}}]}}"#);
        pool.status = Some(serde_json::from_str(&text).expect("a status"));
        Pool::read(&pool).expect("a pool").is_enabled
    };
    assert!(!closed("False") && closed("True") && closed("Unknown"));
}

#[test]
fn invalid_pools_are_refused() {
    for (spec, reason) in [
        (r#"{"cidr":"ten"}"#, "spec.cidr"),
        (r#"{"cidr":"10.0.0.0/28","blockSize":26}"#, "blocks of /26 do not fit into 10.0.0.0/28"),
        (r#"{"cidr":"10.0.0.0/16","blockSize":33}"#, "blocks of /33 do not fit into 10.0.0.0/16"),
        (r#"{"cidr":"10.0.0.0/16","blockSize":-1}"#, "blocks of /-1 do not fit into 10.0.0.0/16"),
        (r#"{"cidr":"fd00::/48","blockSize":64}"#, "blocks of /64 are too large"),
    ] {
        let reasons = Pool::read(&object("p", spec)).expect_err("no sense");
        assert!(reasons.contains(reason), "{reasons}");
    }
    let bad = [pool("p", r#"{"cidr":"10.0.0.0/16","nodeSelector":"rack =="}"#)];
    let none = labels(&[]);
    let wanted = Wanted {
        host: "n1",
        version: IpVersion::V4,
        requested: &[],
        intended_use: IntendedUse::Workload,
        node_labels: &none,
        namespace_labels: &none,
        max_block_size: 32,
    };
    let refused = choose(&bad, &wanted).expect_err("a selector that cannot be read");
    assert!(refused.to_string().starts_with("IP pool p: nodeSelector cannot be read: "), "{refused}");
}

#[test]
fn addresses_lie_in_blocks_of_pools() {
    let pools = pools();
    let found = containing(&pools, "10.7.0.9".parse().expect("an address")).expect("a pool");
    assert_eq!(found.block_of("10.7.0.9".parse().expect("an address")), Some(net("10.7.0.9/32")));
    assert_eq!(found.block_of("10.8.0.9".parse().expect("an address")), None);
    assert!(containing(&pools, "10.8.0.9".parse().expect("an address")).is_none());
    let six = containing(&pools, "fd00::ff".parse().expect("an address")).expect("a pool");
    assert_eq!(six.block_of("fd00::ff".parse().expect("an address")), Some(net("fd00::c0/122")));
}
