//! The ClusterNetworkPolicy of `policy.networking.k8s.io/v1alpha2`: read, never written back.

use super::policy::LabelSelector;
use super::{read_only_objects, read_only_structs};

read_only_objects! {
    /// A policy of the cluster's administrators.
    ClusterNetworkPolicy {
        /// The policy itself.
        spec: ClusterNetworkPolicySpec,
    }
}

read_only_structs! {
    /// The content of a cluster network policy.
    ClusterNetworkPolicySpec {
        /// `Admin` (before other policies) or `Baseline` (after them).
        tier: String = "tier",
        /// The policy's place in the order: low numbers first.
        priority: i32 = "priority",
        /// The pods to which the policy applies.
        subject: Subject = "subject",
        /// Rules for packets to them, in order.
        ingress: Vec<IngressRule> = "ingress",
        /// Rules for packets from them, in order.
        egress: Vec<EgressRule> = "egress",
    }

    /// The pods to which a policy applies: exactly one way to select them is set.
    Subject {
        /// All pods of these namespaces.
        namespaces: Option<LabelSelector> = "namespaces",
        /// These pods.
        pods: Option<NamespacedPod> = "pods",
    }

    /// Pods selected by the labels of their namespace and their own.
    NamespacedPod {
        /// The namespaces.
        namespace_selector: LabelSelector = "namespaceSelector",
        /// The pods.
        pod_selector: LabelSelector = "podSelector",
    }

    /// A rule for incoming packets.
    IngressRule {
        /// The rule's name.
        name: String = "name",
        /// `Accept`, `Deny` or `Pass`.
        action: String = "action",
        /// The sources; at least one.
        from: Vec<IngressPeer> = "from",
        /// Protocols and ports; all if empty.
        protocols: Vec<PolicyProtocol> = "protocols",
    }

    /// A rule for outgoing packets.
    EgressRule {
        /// The rule's name.
        name: String = "name",
        /// `Accept`, `Deny` or `Pass`.
        action: String = "action",
        /// The destinations; at least one.
        to: Vec<EgressPeer> = "to",
        /// Protocols and ports; all if empty.
        protocols: Vec<PolicyProtocol> = "protocols",
    }

    /// The source of packets: exactly one is set.
    IngressPeer {
        /// All pods of these namespaces.
        namespaces: Option<LabelSelector> = "namespaces",
        /// These pods.
        pods: Option<NamespacedPod> = "pods",
    }

    /// The destination of packets: exactly one is set.
    EgressPeer {
        /// All pods of these namespaces.
        namespaces: Option<LabelSelector> = "namespaces",
        /// These pods.
        pods: Option<NamespacedPod> = "pods",
        /// These networks.
        networks: Vec<String> = "networks",
    }

    /// A protocol and its port: exactly one is set.
    PolicyProtocol {
        /// TCP.
        tcp: Option<ProtocolPort> = "tcp",
        /// UDP.
        udp: Option<ProtocolPort> = "udp",
        /// SCTP.
        sctp: Option<ProtocolPort> = "sctp",
        /// A named port, with whatever protocol it has.
        destination_named_port: String = "destinationNamedPort",
    }

    /// The port of a protocol.
    ProtocolPort {
        /// The destination port; all ports if absent.
        destination_port: Option<PortNumbers> = "destinationPort",
    }

    /// One port or a range: one of the two is set.
    PortNumbers {
        /// One port.
        number: i32 = "number",
        /// A range.
        range: Option<PortRange> = "range",
    }

    /// A range of ports, both ends included.
    PortRange {
        /// The first port.
        start: i32 = "start",
        /// The last port.
        end: i32 = "end",
    }
}
