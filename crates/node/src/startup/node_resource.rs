//! Computes the node's resource to store from the stored one and the determined addresses.

use super::addresses::Addresses;
use crate::environment::{Backend, Settings};
use api::scalars::IpOrCidr;
use api::words::KUBERNETES;
use api::{Node, NodeBGPSpec, NodeInterface, OrchRef};
use model::IpVersion;
use std::net::IpAddr;

/// The desired resource. Without networking, Calico does not write addresses and BGP settings.
#[must_use]
pub(crate) fn desired(
    stored: &Node,
    settings: &Settings,
    found: Option<(&Addresses, Vec<NodeInterface>)>,
) -> Node {
    let mut node = stored.clone();
    if let Some((addresses, interfaces)) = found {
        let mut bgp = node.spec.bgp.take().unwrap_or_default();
        bgp.ipv4_address = addresses.ipv4.clone();
        bgp.ipv6_address = addresses.ipv6.clone();
        if settings.backend() != Backend::None && settings.as_number.is_some() {
            bgp.as_number = settings.as_number;
        }
        node.spec.bgp = Some(bgp).filter(|bgp| *bgp != NodeBGPSpec::default());
        node.spec.interfaces = interfaces;
    }
    if let Some(name) = &settings.kubernetes_node {
        let reference =
            OrchRef { node_name: name.clone(), orchestrator: KUBERNETES.to_owned(), ..OrchRef::default() };
        node.spec.orch_refs = vec![reference];
    }
    node
}

/// The resource without addresses of these families; `None` if nothing changes.
#[must_use]
pub(crate) fn without_addresses(stored: &Node, families: &[IpVersion]) -> Option<Node> {
    let mut node = stored.clone();
    let mut bgp = node.spec.bgp.take()?;
    for family in families {
        match family {
            IpVersion::V4 => bgp.ipv4_address = IpOrCidr::default(),
            IpVersion::V6 => bgp.ipv6_address = IpOrCidr::default(),
        }
    }
    node.spec.bgp = Some(bgp).filter(|bgp| *bgp != NodeBGPSpec::default());
    (node != *stored).then_some(node)
}

/// Another node with one of our addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node '{other}' already uses the IPv{family} address {address}")]
pub struct Conflict {
    /// The address family.
    pub family: IpVersion,
    /// The address.
    pub address: IpAddr,
    /// The name of the other node.
    pub other: String,
}

/// A stored address that cannot be parsed, so that conflicts cannot be ruled out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the IPv{family} address '{value}' of node '{node}' cannot be read: {reason}")]
pub struct UnreadableAddress {
    /// The address family.
    pub family: IpVersion,
    /// The name of its node.
    pub node: String,
    /// The stored value.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The other nodes that have an address of ours.
///
/// # Errors
/// When an address cannot be parsed: it might be ours.
pub(crate) fn conflicts(node: &Node, others: &[Node]) -> Result<Vec<Conflict>, UnreadableAddress> {
    let mut found = Vec::new();
    for family in [IpVersion::V4, IpVersion::V6] {
        let Some(ours) = address(node, family)? else { continue };
        for other in others.iter().filter(|other| other.metadata.name != node.metadata.name) {
            if address(other, family)? == Some(ours) {
                found.push(Conflict { family, address: ours, other: other.metadata.name.clone() });
            }
        }
    }
    Ok(found)
}

fn address(node: &Node, family: IpVersion) -> Result<Option<IpAddr>, UnreadableAddress> {
    let Some(bgp) = &node.spec.bgp else { return Ok(None) };
    let text = match family {
        IpVersion::V4 => &bgp.ipv4_address,
        IpVersion::V6 => &bgp.ipv6_address,
    };
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(network) => Ok(Some(network.address())),
        Err(reason) => Err(UnreadableAddress {
            family,
            node: node.metadata.name.clone(),
            value: text.to_string(),
            reason,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node_with;
    use daemon::Variables;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::read(&Variables::new(variables.iter().copied())).expect("usable variables")
    }

    fn found(ipv4: &str, ipv6: &str) -> Addresses {
        Addresses { ipv4: ipv4.into(), ipv6: ipv6.into(), warnings: Vec::new() }
    }

    #[test]
    fn the_same_input_gives_the_same_node() {
        let settings = settings(&[("AS", "64513"), ("CALICO_K8S_NODE_REF", "other")]);
        let addresses = found("10.0.0.5/24", "");
        let first = desired(&node_with("", ""), &settings, Some((&addresses, Vec::new())));
        let bgp = first.spec.bgp.as_ref().expect("bgp");
        assert_eq!(bgp.ipv4_address.as_str(), "10.0.0.5/24");
        assert_eq!(bgp.as_number.map(|number| number.0), Some(64_513));
        assert_eq!(first.spec.orch_refs[0].node_name, "other");
        assert_eq!(desired(&first, &settings, Some((&addresses, Vec::new()))), first);
    }

    #[test]
    fn a_stored_as_number_stays_when_none_is_set() {
        let numbered = desired(
            &node_with("", ""),
            &settings(&[("AS", "64513")]),
            Some((&found("10.0.0.5/24", ""), Vec::new())),
        );
        let next = desired(&numbered, &settings(&[]), Some((&found("10.0.0.6/24", ""), Vec::new())));
        assert_eq!(next.spec.bgp.and_then(|bgp| bgp.as_number).map(|number| number.0), Some(64_513));
    }

    #[test]
    fn without_networking_nothing_is_written() {
        let stored = node_with("10.0.0.5/24", "");
        assert_eq!(desired(&stored, &settings(&[("CALICO_NETWORKING_BACKEND", "none")]), None), stored);
    }

    #[test]
    fn addresses_are_removed_by_family() {
        let stored = node_with("10.0.0.5/24", "fd00::5/64");
        let left = without_addresses(&stored, &[IpVersion::V4]).expect("a change");
        let bgp = left.spec.bgp.as_ref().expect("bgp");
        assert_eq!((bgp.ipv4_address.as_str(), bgp.ipv6_address.as_str()), ("", "fd00::5/64"));
        let left = without_addresses(&left, &[IpVersion::V6]).expect("a change");
        assert_eq!(left.spec.bgp, None);
        assert_eq!(without_addresses(&left, &[IpVersion::V4, IpVersion::V6]), None);
        assert_eq!(without_addresses(&stored, &[]), None);
    }

    fn named(name: &str, ipv4: &str, ipv6: &str) -> Node {
        let mut node = node_with(ipv4, ipv6);
        name.clone_into(&mut node.metadata.name);
        node
    }

    #[test]
    fn conflicts_are_other_nodes_with_the_same_address() {
        let node = named("a", "10.0.0.5/24", "fd00::5/64");
        let others = [
            named("a", "10.0.0.5/24", "fd00::5/64"),
            named("b", "10.0.0.5/16", ""),
            named("c", "10.0.0.6", "fd00::5"),
            named("d", "", ""),
        ];
        let found: Vec<String> =
            conflicts(&node, &others).expect("an answer").iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "node 'b' already uses the IPv4 address 10.0.0.5",
                "node 'c' already uses the IPv6 address fd00::5"
            ]
        );
        let error = conflicts(&node, &[named("e", "garbage", "")]).expect_err("unreadable");
        assert!(error.to_string().contains("of node 'e' cannot be read"), "{error}");
    }
}
