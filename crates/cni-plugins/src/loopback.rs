//! `loopback`: brings a container's `lo` up.

use crate::frame::{failure, in_container, in_container_if_there, previous_result};
use cni_protocol::Call;
use cni_protocol::error::Result;
use cni_protocol::result::{CniResult, Interface, Ip};
use ipnet::IpNet;
use netlink::{Handle, Kernel as _, Link, LinkChange, LinkRef, Operation, first_failure};

const NAME: &str = "lo";

pub(crate) fn add(call: &Call) -> Result<CniResult> {
    let previous = previous_result(call)?;
    let addresses = in_container(call, || {
        let mut kernel = open()?;
        let link = set(&mut kernel, true)?;
        let found = kernel.addresses(None, Some(link.index)).map_err(|error| failure(error.to_string()))?;
        Ok(found.into_iter().map(|address| address.address).collect::<Vec<IpNet>>())
    })?;
    if let Some(foreign) = addresses.iter().find(|address| !address.addr().is_loopback()) {
        return Err(failure(format!(
            "loopback interface found with non-loopback address {:?}",
            foreign.addr().to_string()
        )));
    }
    if let Some(previous) = previous {
        return Ok(previous);
    }
    let of_family = |v4: bool| addresses.iter().find(move |address| address.addr().is_ipv4() == v4);
    let ips = [of_family(true), of_family(false)].into_iter().flatten();
    Ok(CniResult {
        interfaces: vec![Interface {
            name: NAME.to_owned(),
            mac: "00:00:00:00:00:00".to_owned(),
            sandbox: call.netns.clone(),
            ..Interface::default()
        }],
        ips: ips.map(|address| Ip { address: *address, gateway: None, interface: Some(0) }).collect(),
        ..CniResult::default()
    })
}

pub(crate) fn delete(call: &Call) -> Result<()> {
    in_container_if_there(call, || set(&mut open()?, false).map(drop))
}

pub(crate) fn check(call: &Call) -> Result<()> {
    in_container(call, || {
        if read(&mut open()?)?.up { Ok(()) } else { Err(failure("loopback interface is down")) }
    })
}

fn open() -> Result<Handle> {
    Handle::open().map_err(|error| failure(error.to_string()))
}

fn read(kernel: &mut Handle) -> Result<Link> {
    let found = kernel.link(&LinkRef::from(NAME)).map_err(|error| failure(error.to_string()))?;
    found.ok_or_else(|| failure("the container has no device lo"))
}

fn set(kernel: &mut Handle, up: bool) -> Result<Link> {
    let link = read(kernel)?;
    let change = LinkChange { up: Some(up), ..LinkChange::default() };
    first_failure(kernel.apply(&[Operation::ChangeLink(link.index.into(), change)]))
        .map_err(|error| failure(error.to_string()))?;
    Ok(link)
}
