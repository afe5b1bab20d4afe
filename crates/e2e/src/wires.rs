//! The network between machines: a switch, which the control plane is on, and a link from it to each node. There is no
//! route out of these namespaces.

use crate::families::{Families, with_prefix};
use anyhow::Result;
use testkit::network::Namespace;

/// The namespace of the control plane, with the switch in it.
pub(crate) fn control_plane(id: &str, families: Families) -> Result<Namespace> {
    let namespace = Namespace::new(&format!("{id}-cp"))?;
    let addresses = add_addresses(&families.control_plane(), "br0");
    namespace.batch(&format!("link add br0 type bridge\n{addresses}link set br0 up"))?;
    Ok(namespace)
}

/// The namespace of a node, linked to the switch. Its default route leads to the control plane's machine, which drops
/// such packets: addresses of services need some route before they are translated.
pub(crate) fn node(id: &str, number: usize, switch: &Namespace, families: Families) -> Result<Namespace> {
    let namespace = Namespace::new(&format!("{id}-n{number}"))?;
    switch.batch(&format!(
        "link add port{number} type veth peer name eth0 netns {}\nlink set port{number} master br0 up",
        namespace.name()
    ))?;
    let addresses = add_addresses(&families.node(number), "eth0");
    let routes: Vec<String> =
        families.control_plane().iter().map(|router| format!("route add default via {router}")).collect();
    namespace.batch(&format!("{addresses}link set eth0 up\n{}", routes.join("\n")))?;
    for parameter in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        namespace.set(parameter, "1")?;
    }
    Ok(namespace)
}

fn add_addresses(addresses: &[String], link: &str) -> String {
    addresses.iter().map(|address| format!("addr add {} dev {link}\n", with_prefix(address))).collect()
}
