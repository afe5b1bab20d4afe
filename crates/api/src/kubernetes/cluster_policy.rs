//! The ClusterNetworkPolicy of `policy.networking.k8s.io/v1alpha2`: read, never written back.

use super::policy::LabelSelector;
use super::{read_only_objects, read_only_structs};

read_only_objects! {
    /// A policy of the cluster's administrators.
    ClusterNetworkPolicy {
        /// What it says.
        spec: ClusterNetworkPolicySpec,
    }
}

read_only_structs! {
    /// What a cluster network policy says.
    ClusterNetworkPolicySpec {
        /// `Admin` (before other policies) or `Baseline` (after them).
        tier: String = "tier",
        /// The policy's place: low numbers first.
        priority: i32 = "priority",
        /// The pods that the policy is for.
        subject: Subject = "subject",
        /// Rules for packets to them, in order.
        ingress: Vec<IngressRule> = "ingress",
        /// Rules for packets from them, in order.
        egress: Vec<EgressRule> = "egress",
    }

    /// The pods that a policy is for: exactly one way to choose them is set.
    Subject {
        /// All pods of these namespaces.
        namespaces: Option<LabelSelector> = "namespaces",
        /// These pods.
        pods: Option<NamespacedPod> = "pods",
    }

    /// Pods by the labels of their namespace and their own.
    NamespacedPod {
        /// The namespaces.
        namespace_selector: LabelSelector = "namespaceSelector",
        /// The pods.
        pod_selector: LabelSelector = "podSelector",
    }

    /// A rule for packets that come in.
    IngressRule {
        /// The rule's name.
        name: String = "name",
        /// `Accept`, `Deny` or `Pass`.
        action: String = "action",
        /// Where from; at least one.
        from: Vec<IngressPeer> = "from",
        /// Protocols and ports; all if empty.
        protocols: Vec<PolicyProtocol> = "protocols",
    }

    /// A rule for packets that go out.
    EgressRule {
        /// The rule's name.
        name: String = "name",
        /// `Accept`, `Deny` or `Pass`.
        action: String = "action",
        /// Where to; at least one.
        to: Vec<EgressPeer> = "to",
        /// Protocols and ports; all if empty.
        protocols: Vec<PolicyProtocol> = "protocols",
    }

    /// Where packets come from: exactly one is set.
    IngressPeer {
        /// All pods of these namespaces.
        namespaces: Option<LabelSelector> = "namespaces",
        /// These pods.
        pods: Option<NamespacedPod> = "pods",
    }

    /// Where packets go to: exactly one is set.
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
        /// A port by name, of whatever protocol it has.
        destination_named_port: String = "destinationNamedPort",
    }

    /// The port of a protocol.
    ProtocolPort {
        /// The port that packets go to; all if absent.
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
