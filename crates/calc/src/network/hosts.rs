//! The dataplane's information about hosts: addresses, AS number and labels of each node.
//!
//! Kubelets rewrite their nodes every few minutes without news. To recognise repetitions, a digest of each node is kept
//! instead of the labels of five thousand nodes.

use super::node_addresses::{bgp, listed};
use crate::sequencer::Sequencer;
use api::NodeBGPSpec;
use messages::{HostMetadata, NodeName};
use model::IpVersion;
use model::feed::Node;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The hosts that the dataplane knows of.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    sent: BTreeMap<NodeName, [u8; 32]>,
}

impl Hosts {
    /// Adds, changes or removes a node.
    pub(crate) fn on_node(&mut self, name: &NodeName, node: Option<&Node>, out: &mut Sequencer) {
        match node.and_then(metadata) {
            Some(metadata) => {
                let digest = digest(&metadata);
                if self.sent.insert(name.clone(), digest) != Some(digest) {
                    out.host_metadata_update(name.clone(), metadata);
                }
            }
            None => {
                if self.sent.remove(name).is_some() {
                    out.host_metadata_remove(name);
                }
            }
        }
    }
}

/// Returns what is sent about a node. An empty BGP part stands for a node that is gone.
fn metadata(node: &Node) -> Option<HostMetadata> {
    let Node { object, addresses } = node;
    let spec = object.spec.bgp.as_ref();
    if spec.is_some_and(|spec| *spec == NodeBGPSpec::default()) {
        return None;
    }
    let address = |version: IpVersion| {
        // Without a prefix length, the subnet of an address is unknown.
        let from_bgp = bgp(addresses, version).filter(|address| address.has_length);
        let network = from_bgp.map(|address| address.network).or_else(|| listed(addresses, version));
        network.map(|network| network.as_written().to_string()).unwrap_or_default()
    };
    Some(HostMetadata {
        ipv4_addr: address(IpVersion::V4),
        ipv6_addr: address(IpVersion::V6),
        as_number: spec.and_then(|spec| spec.as_number).map(|number| number.to_string()).unwrap_or_default(),
        labels: object.metadata.labels.clone(),
    })
}

fn digest(metadata: &HostMetadata) -> [u8; 32] {
    let HostMetadata { ipv4_addr, ipv6_addr, as_number, labels } = metadata;
    let mut digest = Sha256::new();
    let texts = [ipv4_addr, ipv6_addr, as_number].into_iter();
    for text in texts.chain(labels.iter().flat_map(|(key, value)| [key, value])) {
        digest.update(text.len().to_le_bytes());
        digest.update(text);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::fixtures::{NodeText, flushed};
    use messages::ToDataplane;

    fn addresses(text: &NodeText) -> Option<(String, String)> {
        metadata(&text.node()).map(|metadata| (metadata.ipv4_addr, metadata.ipv6_addr))
    }

    #[test]
    fn addresses_come_from_bgp_or_from_the_list() {
        let none = NodeText::default();
        let pair = |v4: &str, v6: &str| Some((v4.to_owned(), v6.to_owned()));
        for (text, expected) in [
            (NodeText { ipv4: "10.0.0.1/24", ..none }, pair("10.0.0.1/24", "")),
            (NodeText { ipv4: "10.0.0.1/24", ipv6: "fd00::1/64", ..none }, pair("10.0.0.1/24", "fd00::1/64")),
            // An address without a prefix length is not used from the BGP part, but from the list.
            (NodeText { ipv4: "10.0.0.1", internal: "10.9.9.9", ..none }, pair("10.9.9.9/32", "")),
            (NodeText { internal: "10.9.9.9", ..none }, pair("10.9.9.9/32", "")),
            (
                NodeText { external: "fd00::9", internal: "10.9.9.9", ..none },
                pair("10.9.9.9/32", "fd00::9/128"),
            ),
            (NodeText { ipip: "10.65.0.1", internal: "10.9.9.9", ..none }, pair("10.9.9.9/32", "")),
            (none, pair("", "")),
            (NodeText { empty_bgp: true, internal: "10.9.9.9", ..none }, None),
        ] {
            assert_eq!(addresses(&text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_changes_are_sent() {
        let (mut hosts, mut out) = (Hosts::default(), Sequencer::default());
        let mut node = NodeText { ipv4: "10.0.0.1/24", ..NodeText::default() }.node();
        node.object.metadata.labels.insert("zone".into(), "a".into());
        hosts.on_node(&"n".into(), Some(&node), &mut out);
        let told = |zone: &str| {
            let metadata = HostMetadata {
                ipv4_addr: "10.0.0.1/24".into(),
                labels: BTreeMap::from([("zone".into(), zone.into())]),
                ..HostMetadata::default()
            };
            [ToDataplane::HostMetadataUpdate("n".into(), metadata)]
        };
        assert_eq!(flushed(&mut out), told("a"));
        hosts.on_node(&"n".into(), Some(&node), &mut out);
        assert_eq!(flushed(&mut out), []);
        node.object.metadata.labels.insert("zone".into(), "b".into());
        hosts.on_node(&"n".into(), Some(&node), &mut out);
        assert_eq!(flushed(&mut out), told("b"));
        hosts.on_node(&"n".into(), None, &mut out);
        assert_eq!(flushed(&mut out), [ToDataplane::HostMetadataRemove("n".into())]);
        hosts.on_node(&"n".into(), None, &mut out);
        assert_eq!(flushed(&mut out), []);
    }
}
