//! Calico's words: labels, annotations, prefixes, tiers, orchestrators, names and the version, spelled exactly as in
//! Calico. Every crate takes them from here; tidy refuses the most important ones as literals elsewhere.

/// The version of Calico that this program corresponds to: its resources, feeds and command line.
pub const CALICO_VERSION: &str = "v3.32.1";

/// The name of the one object of a kind that contains settings of the whole cluster.
pub const GLOBAL_NAME: &str = "default";

/// The tier of policies that do not name one.
pub const DEFAULT_TIER: &str = "default";
/// The tier of administrators' ClusterNetworkPolicies.
pub const ADMIN_TIER: &str = "kube-admin";
/// The tier of baseline ClusterNetworkPolicies.
pub const BASELINE_TIER: &str = "kube-baseline";

/// The orchestrator of everything that comes from Kubernetes.
pub const KUBERNETES: &str = "k8s";
/// The orchestrator of OpenStack's machines.
pub const OPENSTACK: &str = "openstack";

/// The pod's first address, written by the CNI plugin; empty once the plugin has removed the network.
pub const POD_IP: &str = "cni.projectcalico.org/podIP";
/// All addresses of the pod, separated by commas; written and emptied together with [`POD_IP`].
pub const POD_IPS: &str = "cni.projectcalico.org/podIPs";
/// All addresses of the pod, from the Amazon VPC plugin.
pub const AWS_POD_IPS: &str = "vpc.amazonaws.com/pod-ips";
/// The container, which distinguishes two pods of the same name.
pub const CONTAINER_ID: &str = "cni.projectcalico.org/containerID";
/// Further addresses for the pod, as a JSON list.
pub const FLOATING_IPS: &str = "cni.projectcalico.org/floatingIPs";
/// Ranges from which the pod may send besides its own addresses, as a JSON list.
pub const ALLOWED_SOURCE_PREFIXES: &str = "cni.projectcalico.org/allowedSourcePrefixes";
/// The IPv4 pools requested by a pod or its namespace, as a JSON list.
pub const IPV4_POOLS: &str = "cni.projectcalico.org/ipv4pools";
/// The IPv6 pools requested by a pod or its namespace, as a JSON list.
pub const IPV6_POOLS: &str = "cni.projectcalico.org/ipv6pools";
/// The address families that a namespace's pods get, as a JSON list.
pub const IP_FAMILIES: &str = "cni.projectcalico.org/ipFamilies";
/// The addresses requested by a pod, as a JSON list.
pub const IP_ADDRESSES: &str = "cni.projectcalico.org/ipAddrs";
/// The addresses requested by a pod without address management, as a JSON list.
pub const IP_ADDRESSES_NO_IPAM: &str = "cni.projectcalico.org/ipAddrsNoIpam";
/// The hardware address requested by a pod.
pub const HARDWARE_ADDRESS: &str = "cni.projectcalico.org/hwAddr";
/// Multus' report; copied to the endpoint.
pub const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// The mark for the pod's packets.
pub const DSCP: &str = "qos.projectcalico.org/dscp";

/// The annotations of one direction's traffic limits.
#[derive(Debug)]
pub struct QosNames {
    /// Kubernetes' own bandwidth.
    pub kubernetes_bandwidth: &'static str,
    /// Bandwidth.
    pub bandwidth: &'static str,
    /// The burst above the bandwidth.
    pub burst: &'static str,
    /// The bandwidth of a burst.
    pub peak_rate: &'static str,
    /// The size of a burst at the peak rate.
    pub minimum_burst: &'static str,
    /// Packets per second.
    pub packet_rate: &'static str,
    /// The burst above the packet rate.
    pub packet_burst: &'static str,
    /// Maximum number of concurrent connections.
    pub connections: &'static str,
}

/// The limits of traffic to the pod.
pub const INGRESS: QosNames = QosNames {
    kubernetes_bandwidth: "kubernetes.io/ingress-bandwidth",
    bandwidth: "qos.projectcalico.org/ingressBandwidth",
    burst: "qos.projectcalico.org/ingressBurst",
    peak_rate: "qos.projectcalico.org/ingressPeakrate",
    minimum_burst: "qos.projectcalico.org/ingressMinburst",
    packet_rate: "qos.projectcalico.org/ingressPacketRate",
    packet_burst: "qos.projectcalico.org/ingressPacketBurst",
    connections: "qos.projectcalico.org/ingressMaxConnections",
};

/// The limits of traffic from the pod.
pub const EGRESS: QosNames = QosNames {
    kubernetes_bandwidth: "kubernetes.io/egress-bandwidth",
    bandwidth: "qos.projectcalico.org/egressBandwidth",
    burst: "qos.projectcalico.org/egressBurst",
    peak_rate: "qos.projectcalico.org/egressPeakrate",
    minimum_burst: "qos.projectcalico.org/egressMinburst",
    packet_rate: "qos.projectcalico.org/egressPacketRate",
    packet_burst: "qos.projectcalico.org/egressPacketBurst",
    connections: "qos.projectcalico.org/egressMaxConnections",
};

/// The label with a policy's tier.
pub const LABEL_TIER: &str = "projectcalico.org/tier";
/// The label of host endpoints created by controllers.
pub const LABEL_CREATED_BY: &str = "projectcalico.org/created-by";
/// The label of nodes whose network is migrated from flannel to Calico.
pub const LABEL_MIGRATION_NETWORK: &str = "projectcalico.org/node-network-during-migration";
/// The label with a workload's namespace.
pub const LABEL_NAMESPACE: &str = "projectcalico.org/namespace";
/// The label with a workload's orchestrator.
pub const LABEL_ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
/// The label with a workload's service account.
pub const LABEL_SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// The label by which a namespace or service account is matched by name.
pub const LABEL_NAME: &str = "projectcalico.org/name";

/// The prefix of labels inherited from a namespace.
pub const NAMESPACE_LABEL_PREFIX: &str = "pcns.";
/// The prefix of the name of a namespace's profile.
pub const NAMESPACE_PROFILE_PREFIX: &str = "kns.";
/// The prefix of labels inherited from a service account.
pub const SERVICE_ACCOUNT_LABEL_PREFIX: &str = "pcsa.";
/// The prefix of the name of a service account's profile.
pub const SERVICE_ACCOUNT_PROFILE_PREFIX: &str = "ksa.";

/// The prefix of Calico's own labels and annotations.
pub const OWN_PREFIX: &str = "projectcalico.org/";
/// The prefix of a parameter's name in an annotation of a FelixConfiguration.
pub const PARAMETER_PREFIX: &str = "config.projectcalico.org/";

/// The label of a flannel node while it is being migrated.
pub const LABEL_MIGRATION_PROGRESS: &str = "projectcalico.org/node-flannel-migration-in-progress";
/// The label that pauses the migration of a node, for this many seconds or until it is removed.
pub const LABEL_MIGRATION_PAUSE: &str = "projectcalico.org/flannel-migration-pause-seconds";

/// The annotation in which an object of the Kubernetes datastore keeps its own metadata.
pub const STORED_METADATA: &str = "projectcalico.org/metadata";
/// The label of a block's affinity: its host, as a hash.
pub const LABEL_HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";
/// The label of a block's affinity: the kind of its host.
pub const LABEL_AFFINITY_TYPE: &str = "projectcalico.org/affinity-type";
/// The label of a block's affinity: 4 or 6.
pub const LABEL_IP_VERSION: &str = "projectcalico.org/ip-version";

/// The finalizer that keeps a tier while it has policies.
pub const TIER_FINALIZER: &str = "projectcalico.org/tier-controller";
/// The finalizer that keeps a pool while it has addresses in use.
pub const POOL_FINALIZER: &str = "projectcalico.org/ippool-finalizer";

/// Annotations of Kubernetes' services.
pub mod service {
    /// The IPv4 pools requested for a load balancer's address, as a JSON list.
    pub const IPV4_POOLS: &str = "projectcalico.org/ipv4pools";
    /// The IPv6 pools requested for a load balancer's address, as a JSON list.
    pub const IPV6_POOLS: &str = "projectcalico.org/ipv6pools";
    /// The addresses requested for a load balancer, as a JSON list.
    pub const LOAD_BALANCER_IPS: &str = "projectcalico.org/loadBalancerIPs";
    /// Whether the eBPF dataplane leaves the service to kube-proxy.
    pub const NAT_EXCLUDED: &str = "projectcalico.org/natExcludeService";
    /// How the eBPF dataplane selects endpoints: `maglev`, or as usual.
    pub const TRAFFIC_STRATEGY: &str = "lb.projectcalico.org/external-traffic-strategy";
    /// When the eBPF dataplane removes UDP connections to endpoints that end.
    pub const UDP_CLEANUP: &str = "projectcalico.org/udpConntrackCleanup";
}

/// A node's annotations.
pub mod node {
    /// Address and network for BGP and tunnels.
    pub const IPV4_ADDRESS: &str = "projectcalico.org/IPv4Address";
    /// Address and network for BGP and tunnels, of IPv6.
    pub const IPV6_ADDRESS: &str = "projectcalico.org/IPv6Address";
    /// The address of the IPIP device.
    pub const IPV4_IPIP_TUNNEL_ADDR: &str = "projectcalico.org/IPv4IPIPTunnelAddr";
    /// The address of the VXLAN device.
    pub const IPV4_VXLAN_TUNNEL_ADDR: &str = "projectcalico.org/IPv4VXLANTunnelAddr";
    /// The address of the VXLAN device for IPv6.
    pub const IPV6_VXLAN_TUNNEL_ADDR: &str = "projectcalico.org/IPv6VXLANTunnelAddr";
    /// The MAC address of the VXLAN device.
    pub const VXLAN_TUNNEL_MAC_ADDR: &str = "projectcalico.org/VXLANTunnelMACAddr";
    /// The MAC address of the VXLAN device for IPv6.
    pub const VXLAN_TUNNEL_MAC_ADDR_V6: &str = "projectcalico.org/VXLANTunnelMACAddrV6";
    /// The AS number.
    pub const AS_NUMBER: &str = "projectcalico.org/ASNumber";
    /// The route reflector cluster.
    pub const ROUTE_REFLECTOR_CLUSTER_ID: &str = "projectcalico.org/RouteReflectorClusterID";
    /// The address of the WireGuard device.
    pub const IPV4_WIREGUARD_INTERFACE_ADDR: &str = "projectcalico.org/IPv4WireguardInterfaceAddr";
    /// The address of the WireGuard device for IPv6.
    pub const IPV6_WIREGUARD_INTERFACE_ADDR: &str = "projectcalico.org/IPv6WireguardInterfaceAddr";
    /// The WireGuard public key.
    pub const WIREGUARD_PUBLIC_KEY: &str = "projectcalico.org/WireguardPublicKey";
    /// The WireGuard public key for IPv6.
    pub const WIREGUARD_PUBLIC_KEY_V6: &str = "projectcalico.org/WireguardPublicKeyV6";
    /// The node's interfaces, as JSON.
    pub const INTERFACES: &str = "projectcalico.org/Interfaces";
    /// Calico's own labels of the node, as JSON.
    pub const LABELS: &str = "projectcalico.org/labels";
    /// Calico's own annotations of the node, as JSON.
    pub const ANNOTATIONS: &str = "projectcalico.org/annotations";
    /// Only in the Calico object: which of its labels come from Kubernetes, as JSON.
    pub const KUBE_LABELS: &str = "projectcalico.org/kube-labels";
}
