//! Which pools serve which device, and what happens to its address.

use super::*;
use crate::testing::node_with;
use api::IPPoolSpec;

fn pool(name: &str, cidr: &str, change: impl FnOnce(&mut IPPoolSpec)) -> IPPool {
    let mut spec = IPPoolSpec { cidr: cidr.into(), ..IPPoolSpec::default() };
    change(&mut spec);
    IPPool::new("", name, spec)
}

fn node() -> Node {
    let mut node = node_with("10.0.0.5/24", "");
    node.metadata.labels.insert("zone".into(), "a".into());
    node
}

fn found(kind: TunnelKind, node: &Node, pools: &[IPPool], host_encryption: bool) -> Vec<String> {
    match serving(kind, node, &Pools::new(pools.to_vec(), &[]), host_encryption) {
        Serving::Ranges(ranges) => ranges.iter().map(ToString::to_string).collect(),
        Serving::Unused => Vec::new(),
        Serving::Unknown => vec!["unknown".to_owned()],
    }
}

#[test]
fn pools_are_chosen_by_mode_family_use_and_selector() {
    let vxlan = |spec: &mut IPPoolSpec| spec.vxlan_mode = VXLANMode::Always;
    let pools = [
        pool("plain", "10.1.0.0/16", |_| {}),
        pool("vxlan", "10.2.0.0/16", vxlan),
        pool("vxlan-cross", "10.3.0.0/16", |spec| spec.vxlan_mode = VXLANMode::CrossSubnet),
        pool("ipip", "10.4.0.0/16", |spec| spec.ipip_mode = IPIPMode::Always),
        pool("ipip-cross", "10.5.0.0/16", |spec| spec.ipip_mode = IPIPMode::CrossSubnet),
        pool("vxlan6", "fd00:1::/64", vxlan),
        pool("disabled", "10.6.0.0/16", |spec| {
            vxlan(spec);
            spec.disabled = true;
        }),
        pool("workloads", "10.7.0.0/16", |spec| {
            vxlan(spec);
            spec.allowed_uses = vec![IPPoolAllowedUse::Workload];
        }),
        pool("tunnels", "10.8.0.0/16", |spec| {
            vxlan(spec);
            spec.allowed_uses = vec![IPPoolAllowedUse::Workload, IPPoolAllowedUse::Tunnel];
        }),
        pool("elsewhere", "10.9.0.0/16", |spec| {
            vxlan(spec);
            spec.node_selector = "zone == 'b'".into();
        }),
        pool("here", "10.10.0.0/16", |spec| {
            vxlan(spec);
            spec.node_selector = "zone == 'a'".into();
        }),
        pool("nonsense", "10.11.0.0/16", |spec| {
            vxlan(spec);
            spec.node_selector = "zone ==".into();
        }),
    ];
    let node = node();
    assert_eq!(
        found(TunnelKind::Vxlan, &node, &pools, false),
        ["10.2.0.0/16", "10.3.0.0/16", "10.8.0.0/16", "10.10.0.0/16"]
    );
    assert_eq!(found(TunnelKind::VxlanV6, &node, &pools, false), ["fd00:1::/64"]);
    assert_eq!(found(TunnelKind::Ipip, &node, &pools, false), ["10.4.0.0/16", "10.5.0.0/16"]);
    let mut going = pools[1].clone();
    going.metadata.deletion_timestamp = Some(api::meta::Time::new("2026-11-15T00:00:00Z"));
    assert_eq!(found(TunnelKind::Vxlan, &node, &[going], false), Vec::<String>::new());
}

#[test]
fn wireguard_needs_a_key_and_any_pool() {
    let pools = [pool("v4", "10.1.0.0/16", |_| {}), pool("v6", "fd00:1::/64", |_| {})];
    let mut node = node();
    assert_eq!(found(TunnelKind::Wireguard, &node, &pools, false), Vec::<String>::new());
    node.status.wireguard_public_key = "key".into();
    assert_eq!(found(TunnelKind::Wireguard, &node, &pools, false), ["10.1.0.0/16"]);
    assert_eq!(found(TunnelKind::WireguardV6, &node, &pools, false), Vec::<String>::new());
    node.status.wireguard_public_key_v6 = "key".into();
    assert_eq!(found(TunnelKind::WireguardV6, &node, &pools, false), ["fd00:1::/64"]);
    assert_eq!(found(TunnelKind::Wireguard, &node, &pools, true), Vec::<String>::new());
}

#[test]
fn an_unreadable_pool_does_not_take_an_address_away() {
    let vxlan = pool("vxlan", "10.2.0.0/16", |spec| spec.vxlan_mode = VXLANMode::Always);
    let broken = pool("p", "ten", |_| {});
    let node = node();
    assert_eq!(found(TunnelKind::Vxlan, &node, &[broken.clone(), vxlan], false), ["10.2.0.0/16"]);
    // Only the unreadable pool could tell whether the device is in use.
    assert_eq!(found(TunnelKind::Vxlan, &node, std::slice::from_ref(&broken), false), ["unknown"]);
    // Without a key it is not in use, whatever the pool.
    assert_eq!(found(TunnelKind::Wireguard, &node, &[broken], false), Vec::<String>::new());

    let outside: IpAddr = "10.3.0.1".parse().expect("an address");
    let pools: Vec<IpNet> = vec!["10.2.0.0/16".parse().expect("a range")];
    let ours = allocation(Some("vxlan-tunnel-addr-n"), &[("node", "n"), ("type", "vxlanTunnelAddress")]);
    for (are_all_known, expected) in [(true, Step::ReleaseAndAssign), (false, Step::Keep)] {
        let decided = step(TunnelKind::Vxlan, "n", Some(outside), Some(&ours), &pools, are_all_known);
        assert_eq!(decided, expected);
    }
}

fn allocation(handle: Option<&str>, attributes: &[(&str, &str)]) -> AllocationAttribute {
    AllocationAttribute {
        handle_id: handle.map(str::to_owned),
        active_owner_attrs: attributes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..AllocationAttribute::default()
    }
}

#[test]
fn an_address_is_kept_replaced_or_released() {
    let inside: IpAddr = "10.2.0.1".parse().expect("an address");
    let outside: IpAddr = "10.3.0.1".parse().expect("an address");
    let pools: Vec<IpNet> = vec!["10.2.0.0/16".parse().expect("a range")];
    let ours = allocation(Some("vxlan-tunnel-addr-n"), &[("node", "n"), ("type", "vxlanTunnelAddress")]);
    let other_node = allocation(Some("x"), &[("node", "m"), ("type", "vxlanTunnelAddress")]);
    let other_type = allocation(Some("x"), &[("node", "n"), ("type", "ipipTunnelAddress")]);
    let old_pod = allocation(Some("pod"), &[]);
    let old_tunnel = allocation(None, &[]);
    for (current, allocation, expected) in [
        (None, None, Step::ReleaseAndAssign),
        (Some(inside), None, Step::ReleaseAndAssign),
        (Some(inside), Some(&ours), Step::Keep),
        (Some(outside), Some(&ours), Step::ReleaseAndAssign),
        (Some(inside), Some(&other_node), Step::Assign),
        (Some(inside), Some(&other_type), Step::Assign),
        (Some(inside), Some(&old_pod), Step::Assign),
        (Some(inside), Some(&old_tunnel), Step::Retag(inside)),
    ] {
        assert_eq!(
            step(TunnelKind::Vxlan, "n", current, allocation, &pools, true),
            expected,
            "{current:?} {allocation:?}"
        );
    }
}

#[test]
fn the_address_of_an_unused_device_is_released_if_ours() {
    let kind = TunnelKind::Ipip;
    for (allocation, expected) in [
        (None, Leftover::Nothing),
        (Some(allocation(None, &[])), Leftover::Release),
        (Some(allocation(Some("ipip-tunnel-addr-n"), &[("node", "n")])), Leftover::ReleaseOfHandle),
        (Some(allocation(Some("k8s-pod-network.1"), &[("pod", "p")])), Leftover::NotOurs),
        (Some(allocation(None, &[("pod", "p")])), Leftover::NotOurs),
    ] {
        assert_eq!(leftover(kind, "n", allocation.as_ref()), expected, "{allocation:?}");
    }
}
