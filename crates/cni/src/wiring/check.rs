//! Whether a pod's network is still as ADD created it. All differences are reported at once.

use super::plan::{GATEWAY_V4, HOST_MAC, Plan};
use crate::error::{CniError, Result};
use ipnet::IpNet;
use netlink::namespace::Namespace;
use netlink::{Family, Handle, Kernel, LinkRef, RouteFilter, TABLE_MAIN};
use std::net::IpAddr;

/// Checks both ends; returns the differences from the plan as sentences.
///
/// # Errors
/// When the kernel cannot be queried.
pub(crate) fn check(plan: &Plan, namespace: &Namespace) -> Result<Vec<String>> {
    let mut findings = check_host(&mut Handle::open().map_err(CniError::wiring)?, plan)?;
    let inside = namespace
        .run(|| check_pod(&mut Handle::open().map_err(CniError::wiring)?, plan))
        .map_err(CniError::wiring)??;
    findings.extend(inside);
    Ok(findings)
}

/// The host's side.
pub(super) fn check_host(host: &mut dyn Kernel, plan: &Plan) -> Result<Vec<String>> {
    let name = &plan.host_device;
    let Some(link) = host.link(&LinkRef::Name(name.clone())).map_err(CniError::wiring)? else {
        return Ok(vec![format!("the host has no device {name}")]);
    };
    let mut findings = Vec::new();
    if !link.up {
        findings.push(format!("the host's device {name} is down"));
    }
    if link.mac != Some(HOST_MAC) {
        findings.push(format!("the host's device {name} has another hardware address than {HOST_MAC}"));
    }
    if plan.host_routes {
        for family in [Family::V4, Family::V6] {
            let mut wanted = plan.addresses.iter().filter(|net| Family::of(&net.addr()) == family).peekable();
            if wanted.peek().is_none() {
                continue;
            }
            let filter =
                RouteFilter { table: Some(TABLE_MAIN), device: Some(link.index), ..RouteFilter::all(family) };
            let found = host.routes(&filter).map_err(CniError::wiring)?;
            for address in wanted.filter(|net| !found.iter().any(|route| route.destination == **net)) {
                findings.push(format!("the host has no route to {address} by {name}"));
            }
        }
    }
    Ok(findings)
}

/// The pod's side.
pub(super) fn check_pod(pod: &mut dyn Kernel, plan: &Plan) -> Result<Vec<String>> {
    let name = &plan.pod_device;
    let Some(link) = pod.link(&LinkRef::Name(name.clone())).map_err(CniError::wiring)? else {
        return Ok(vec![format!("the pod has no device {name}")]);
    };
    let mut findings = Vec::new();
    if !link.up {
        findings.push(format!("the pod's device {name} is down"));
    }
    if let Some(mtu) = plan.mtu
        && link.mtu != mtu
    {
        findings.push(format!("the pod's device {name} has MTU {} instead of {mtu}", link.mtu));
    }
    if let Some(mac) = plan.pod_mac
        && link.mac != Some(mac)
    {
        findings.push(format!("the pod's device {name} has another hardware address than {mac}"));
    }
    let addresses = pod.addresses(None, Some(link.index)).map_err(CniError::wiring)?;
    for wanted in &plan.addresses {
        if !addresses.iter().any(|found| found.address.addr() == wanted.addr()) {
            findings.push(format!("the pod's device {name} has no address {wanted}"));
        }
    }
    for (family, has, gateway) in
        [(Family::V4, plan.has_v4(), IpAddr::V4(GATEWAY_V4)), (Family::V6, plan.has_v6(), Plan::gateway_v6())]
    {
        if !has {
            continue;
        }
        let filter = RouteFilter { table: Some(TABLE_MAIN), ..RouteFilter::all(family) };
        let found = pod.routes(&filter).map_err(CniError::wiring)?;
        let missing = |wanted: &IpNet| {
            !found.iter().any(|route| route.destination == *wanted && route.gateway == Some(gateway))
        };
        for route in plan.routes_of(family == Family::V6).filter(missing) {
            findings.push(format!("the pod has no route to {route} via {gateway}"));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::{check_host, check_pod};
    use crate::config::NetConf;
    use crate::wiring::plan::{GATEWAY_V4, HOST_MAC, Plan};
    use netlink::{Address, FakeKernel, Kernel as _, LinkChange, LinkRef, Operation, Route};

    fn plan() -> Plan {
        let mut plan = Plan::new(&NetConf::default(), "cali1".into(), "eth0", Some(1500)).unwrap();
        plan.set_addresses(["10.0.0.1".parse().unwrap()]);
        plan
    }

    #[test]
    fn missing_parts_are_named_and_a_complete_network_has_no_findings() {
        let plan = plan();
        let mut host = FakeKernel::new();
        assert_eq!(check_host(&mut host, &plan).unwrap(), ["the host has no device cali1"]);
        let index = host.with_link("cali1", "veth");
        assert_eq!(check_host(&mut host, &plan).unwrap().len(), 2);
        let change = LinkChange { mac: Some(HOST_MAC), ..LinkChange::default() };
        let outcomes = host.apply(&[
            Operation::ChangeLink(LinkRef::Index(index), change),
            Operation::AddRoute(Route::on_link("10.0.0.1/32".parse().unwrap(), index)),
        ]);
        netlink::first_failure(outcomes).unwrap();
        assert!(check_host(&mut host, &plan).unwrap().is_empty());

        let mut pod = FakeKernel::new();
        let index = pod.with_link("eth0", "veth");
        assert_eq!(
            check_pod(&mut pod, &plan).unwrap(),
            [
                "the pod's device eth0 has no address 10.0.0.1/32",
                "the pod has no route to 0.0.0.0/0 via 169.254.1.1"
            ]
        );
        let outcomes = pod.apply(&[
            Operation::AddAddress(Address::new(index, "10.0.0.1/32".parse().unwrap())),
            Operation::AddRoute(Route::via("0.0.0.0/0".parse().unwrap(), GATEWAY_V4.into(), index)),
        ]);
        netlink::first_failure(outcomes).unwrap();
        assert!(check_pod(&mut pod, &plan).unwrap().is_empty());
    }
}
