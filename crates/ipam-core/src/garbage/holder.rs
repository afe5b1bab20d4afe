//! The holder that an allocation names, reduced to the few bytes that are needed to judge it.

use crate::block::Allocation;
use crate::owner::{ATTRIBUTE_NAMESPACE, ATTRIBUTE_POD};

/// The attribute that holds the node's name.
pub const ATTRIBUTE_NODE: &str = "node";
/// The attribute with the purpose of an address.
pub const ATTRIBUTE_TYPE: &str = "type";
/// The attribute that holds the name of a KubeVirt machine.
pub const ATTRIBUTE_MACHINE: &str = "vmi-name";

/// The types of addresses that belong to a node's own devices.
pub const TUNNEL_TYPES: [&str; 5] = [
    "ipipTunnelAddress",
    "vxlanTunnelAddress",
    "vxlanV6TunnelAddress",
    "wireguardTunnelAddress",
    "wireguardV6TunnelAddress",
];

/// The holder of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
    },
    /// A KubeVirt machine, which keeps its address while its pods are replaced.
    Machine {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name; empty when the allocation does not contain it.
        name: Box<str>,
    },
    /// A tunnel device of the node.
    Tunnel,
    /// Windows, which reserves a few addresses of each block.
    Windows,
    /// An unknown holder, whose addresses are left alone.
    Unknown,
}

impl Holder {
    /// The holder that an allocation names.
    #[must_use]
    pub fn of(allocation: &Allocation<'_>) -> Self {
        if allocation.is_windows_reserved() {
            return Self::Windows;
        }
        let attribute = |name| allocation.owner_attribute(name).unwrap_or_default();
        if TUNNEL_TYPES.contains(&attribute(ATTRIBUTE_TYPE)) {
            return Self::Tunnel;
        }
        let (namespace, pod) = (attribute(ATTRIBUTE_NAMESPACE), attribute(ATTRIBUTE_POD));
        if namespace.is_empty() || pod.is_empty() {
            return Self::Unknown;
        }
        match allocation.owner_attribute(ATTRIBUTE_MACHINE) {
            Some(machine) => Self::Machine { namespace: namespace.into(), name: machine.into() },
            None => Self::Pod { namespace: namespace.into(), name: pod.into() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;
    use model::AllocationBlock;

    #[test]
    fn allocations_name_their_holder() {
        let pod = |name: &str| Holder::Pod { namespace: "shop".into(), name: name.into() };
        let machine = |name: &str| Holder::Machine { namespace: "shop".into(), name: name.into() };
        for (attributes, holder) in [
            (r#"{"handle_id":"h","secondary":{"namespace":"shop","pod":"web","node":"n1"}}"#, pod("web")),
            (
                r#"{"handle_id":"h","secondary":{"namespace":"shop","pod":"l-1","vmi-name":"db"}}"#,
                machine("db"),
            ),
            (r#"{"handle_id":"h","secondary":{"namespace":"shop","pod":"l-1","vmi-name":""}}"#, machine("")),
            // The owner of a machine that is not running is not recorded.
            (r#"{"handle_id":"h","secondary":{"vmi-name":"db"}}"#, Holder::Unknown),
            (
                r#"{"handle_id":"h","secondary":{"node":"n1","type":"wireguardV6TunnelAddress"}}"#,
                Holder::Tunnel,
            ),
            (r#"{"handle_id":"lb-x","secondary":{"namespace":"shop","service":"web"}}"#, Holder::Unknown),
            (r#"{"handle_id":"windows-reserved-ipam-handle","secondary":{"note":"rsvd"}}"#, Holder::Windows),
            (r#"{"handle_id":"h"}"#, Holder::Unknown),
        ] {
            let record: AllocationBlock = serde_json::from_str(&format!(
                r#"{{"cidr":"10.0.0.0/32","allocations":[0],"unallocated":[],"attributes":[{attributes}]}}"#
            ))
            .expect("a block");
            let allocation = Block::new(&record).allocations().next().expect("an allocation");
            assert_eq!(Holder::of(&allocation), holder, "{attributes}");
        }
    }
}
