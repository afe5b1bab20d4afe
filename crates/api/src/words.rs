//! Calico's words: labels, annotations, prefixes, tiers, orchestrators, names and the version, letter for letter. Every
//! crate takes them from here; tidy refuses the most important ones as literals elsewhere.

/// The version of Calico that this program stands for: the one whose resources, feeds and command line it has.
pub const CALICO_VERSION: &str = "v3.32.1";

/// The name of the one object of a kind that holds settings of the whole cluster.
pub const GLOBAL_NAME: &str = "default";

/// The tier of policies that name none.
pub const DEFAULT_TIER: &str = "default";
/// The tier of administrators' ClusterNetworkPolicies.
pub const ADMIN_TIER: &str = "kube-admin";
/// The tier of baseline ClusterNetworkPolicies.
pub const BASELINE_TIER: &str = "kube-baseline";

/// The orchestrator of everything that comes from Kubernetes.
pub const KUBERNETES: &str = "k8s";
/// The orchestrator of OpenStack's machines.
pub const OPENSTACK: &str = "openstack";

/// The pod's first address, written by the CNI plugin; empty once the plugin has taken the network away.
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
/// The IPv4 pools that a pod or its namespace wants addresses from, as a JSON list.
pub const IPV4_POOLS: &str = "cni.projectcalico.org/ipv4pools";
/// The IPv6 pools that a pod or its namespace wants addresses from, as a JSON list.
pub const IPV6_POOLS: &str = "cni.projectcalico.org/ipv6pools";
/// The address families that a namespace's pods get, as a JSON list.
pub const IP_FAMILIES: &str = "cni.projectcalico.org/ipFamilies";
/// The addresses that a pod wants, as a JSON list.
pub const IP_ADDRESSES: &str = "cni.projectcalico.org/ipAddrs";
/// The addresses that a pod wants, past address management, as a JSON list.
pub const IP_ADDRESSES_NO_IPAM: &str = "cni.projectcalico.org/ipAddrsNoIpam";
/// The hardware address that a pod wants.
pub const HARDWARE_ADDRESS: &str = "cni.projectcalico.org/hwAddr";
/// What Multus reports; copied to the endpoint.
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
    /// Connections at once.
    pub connections: &'static str,
}

/// The limits of what comes to the pod.
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

/// The limits of what the pod sends.
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
/// The label of host endpoints that controllers made.
pub const LABEL_CREATED_BY: &str = "projectcalico.org/created-by";
/// The label of nodes whose network changes from flannel to Calico.
pub const LABEL_MIGRATION_NETWORK: &str = "projectcalico.org/node-network-during-migration";
/// The label that carries a workload's namespace.
pub const LABEL_NAMESPACE: &str = "projectcalico.org/namespace";
/// The label that carries a workload's orchestrator.
pub const LABEL_ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
/// The label that carries a workload's service account.
pub const LABEL_SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// The label by which a namespace or service account is matched by name.
pub const LABEL_NAME: &str = "projectcalico.org/name";

/// Before the labels that a namespace hands down.
pub const NAMESPACE_LABEL_PREFIX: &str = "pcns.";
/// Before the name of the profile that stands for a namespace.
pub const NAMESPACE_PROFILE_PREFIX: &str = "kns.";
/// Before the labels that a service account hands down.
pub const SERVICE_ACCOUNT_LABEL_PREFIX: &str = "pcsa.";
/// Before the name of the profile that stands for a service account.
pub const SERVICE_ACCOUNT_PROFILE_PREFIX: &str = "ksa.";

/// Before the names of labels and annotations that are Calico's own.
pub const OWN_PREFIX: &str = "projectcalico.org/";
/// Before the name of a parameter, in an annotation of a FelixConfiguration.
pub const PARAMETER_PREFIX: &str = "config.projectcalico.org/";

/// The label of flannel's nodes while one of them is worked on.
pub const LABEL_MIGRATION_PROGRESS: &str = "projectcalico.org/node-flannel-migration-in-progress";
/// The label that holds up the work on a node, for so many seconds or until it is removed.
pub const LABEL_MIGRATION_PAUSE: &str = "projectcalico.org/flannel-migration-pause-seconds";

/// The annotation in which an object of the Kubernetes datastore keeps its own metadata.
pub const STORED_METADATA: &str = "projectcalico.org/metadata";
/// The label of a block's affinity: its host, as a hash.
pub const LABEL_HOSTNAME_HASH: &str = "projectcalico.org/hostname-hash";
/// The label of a block's affinity: what kind of host it has.
pub const LABEL_AFFINITY_TYPE: &str = "projectcalico.org/affinity-type";
/// The label of a block's affinity: 4 or 6.
pub const LABEL_IP_VERSION: &str = "projectcalico.org/ip-version";

/// The finalizer that keeps a tier for as long as it has policies.
pub const TIER_FINALIZER: &str = "projectcalico.org/tier-controller";
/// The finalizer that keeps a pool for as long as it has addresses in use.
pub const POOL_FINALIZER: &str = "projectcalico.org/ippool-finalizer";

/// Annotations of Kubernetes' services.
pub mod service {
    /// The IPv4 pools that a load balancer wants its address from, as a JSON list.
    pub const IPV4_POOLS: &str = "projectcalico.org/ipv4pools";
    /// The IPv6 pools that a load balancer wants its address from, as a JSON list.
    pub const IPV6_POOLS: &str = "projectcalico.org/ipv6pools";
    /// The addresses that a load balancer wants, as a JSON list.
    pub const LOAD_BALANCER_IPS: &str = "projectcalico.org/loadBalancerIPs";
    /// Whether the eBPF dataplane leaves the service to kube-proxy.
    pub const NAT_EXCLUDED: &str = "projectcalico.org/natExcludeService";
    /// How the eBPF dataplane chooses endpoints: `maglev`, or as usual.
    pub const TRAFFIC_STRATEGY: &str = "lb.projectcalico.org/external-traffic-strategy";
    /// When the eBPF dataplane forgets UDP connections to endpoints that end.
    pub const UDP_CLEANUP: &str = "projectcalico.org/udpConntrackCleanup";
}

/// A node's annotations.
pub mod node {
    /// Address and network for BGP and tunnels.
    pub const IPV4_ADDRESS: &str = "projectcalico.org/IPv4Address";
    /// Address and network for BGP and tunnels, of IPv6.
    pub const IPV6_ADDRESS: &str = "projectcalico.org/IPv6Address";
    /// The IPIP device.
    pub const IPV4_IPIP_TUNNEL_ADDR: &str = "projectcalico.org/IPv4IPIPTunnelAddr";
    /// The VXLAN device.
    pub const IPV4_VXLAN_TUNNEL_ADDR: &str = "projectcalico.org/IPv4VXLANTunnelAddr";
    /// The VXLAN device for IPv6.
    pub const IPV6_VXLAN_TUNNEL_ADDR: &str = "projectcalico.org/IPv6VXLANTunnelAddr";
    /// The MAC address of the VXLAN device.
    pub const VXLAN_TUNNEL_MAC_ADDR: &str = "projectcalico.org/VXLANTunnelMACAddr";
    /// The MAC address of the VXLAN device for IPv6.
    pub const VXLAN_TUNNEL_MAC_ADDR_V6: &str = "projectcalico.org/VXLANTunnelMACAddrV6";
    /// The AS number.
    pub const AS_NUMBER: &str = "projectcalico.org/ASNumber";
    /// The route reflector cluster.
    pub const ROUTE_REFLECTOR_CLUSTER_ID: &str = "projectcalico.org/RouteReflectorClusterID";
    /// The WireGuard device.
    pub const IPV4_WIREGUARD_INTERFACE_ADDR: &str = "projectcalico.org/IPv4WireguardInterfaceAddr";
    /// The WireGuard device for IPv6.
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
    /// Only in the Calico object: which of its labels are Kubernetes', as JSON.
    pub const KUBE_LABELS: &str = "projectcalico.org/kube-labels";
}
