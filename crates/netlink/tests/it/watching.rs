//! Events, as the kernel sends them.

use crate::namespaces::TestNamespace;
use anyhow::{Result, bail};
use netlink::{
    Address, DeviceKind, Event, Handle, Interests, Kernel as _, Monitor, NewLink, Operation, Peer,
    first_failure,
};
use std::time::Duration;

#[test]
fn devices_addresses_and_routes_are_reported() -> Result<()> {
    let there = TestNamespace::new()?;
    let interests = Interests { links: true, addresses: true, routes: true, ..Interests::default() };
    let mut monitor = there.namespace.run(|| Monitor::open(interests))??;
    let mut kernel = there.namespace.run(Handle::open)??;
    assert!(monitor.next(Some(Duration::ZERO))?.is_empty());
    let peer = Peer { name: "b".into(), namespace: None, mac: None };
    first_failure(kernel.apply(&[Operation::AddLink(NewLink::new("a", DeviceKind::Veth(peer)))]))?;
    let Some(link) = kernel.link(&"a".into())? else { bail!("no a") };
    let address = Address::new(link.index, "10.0.0.1/24".parse()?);
    first_failure(kernel.apply(&[
        Operation::up(link.index),
        Operation::AddAddress(address.clone()),
        Operation::DeleteAddress(address.clone()),
        Operation::DeleteLink(link.index.into()),
    ]))?;
    let mut seen = Vec::new();
    let is_last = |event: &Event| matches!(event, Event::LinkGone(gone) if gone.index == link.index);
    while !seen.iter().any(is_last) {
        let events = monitor.next(Some(Duration::from_secs(30)))?;
        if events.is_empty() {
            bail!("the removal was never reported: {seen:?}");
        }
        seen.extend(events);
    }
    let told = |wanted: &dyn Fn(&Event) -> bool| seen.iter().any(wanted);
    assert!(told(&|event| matches!(event, Event::Link(found) if found.name == "a" && found.up)));
    assert!(told(&|event| matches!(event, Event::Address(found) if found.address == address.address)));
    assert!(told(&|event| matches!(event, Event::AddressGone(found) if found.address == address.address)));
    assert!(told(
        &|event| matches!(event, Event::Route(found) if found.destination == address.address.trunc())
    ));
    Ok(())
}
