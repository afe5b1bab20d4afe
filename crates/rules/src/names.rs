//! Names of chains, maps and sets. Other programs (and the other make of Felix) look for them, so all are Calico's.

use crate::tree::{ChainName, IpVersion, SetName};
use api::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::v1::PolicyKey;
use sha2::{Digest, Sha256};

/// The name for "all interfaces" where a chain needs one; it is longer than any name of an interface.
pub const ANY_INTERFACE: &str = "any-interface-at-all";

/// The chain that the kernel's `INPUT` jumps to.
pub const INPUT: &str = "cali-INPUT";
/// The chain that the kernel's `FORWARD` jumps to.
pub const FORWARD: &str = "cali-FORWARD";
/// The chain that the kernel's `OUTPUT` jumps to.
pub const OUTPUT: &str = "cali-OUTPUT";
/// The chain that the kernel's `PREROUTING` jumps to.
pub const PREROUTING: &str = "cali-PREROUTING";
/// The chain that the kernel's `POSTROUTING` jumps to.
pub const POSTROUTING: &str = "cali-POSTROUTING";
/// Ports at which host endpoints can always be reached.
pub const FAILSAFE_IN: &str = "cali-failsafe-in";
/// Ports at which the host can always reach others through host endpoints.
pub const FAILSAFE_OUT: &str = "cali-failsafe-out";
/// Source NAT for packets that leave the cluster.
pub const NAT_OUTGOING: &str = "cali-nat-outgoing";
/// Destination NAT of floating addresses.
pub const FIP_DNAT: &str = "cali-fip-dnat";
/// Source NAT of floating addresses.
pub const FIP_SNAT: &str = "cali-fip-snat";
/// DSCP marks for packets that leave the cluster.
pub const EGRESS_DSCP: &str = "cali-egress-dscp";
/// Packets to the ranges of services that must not be routed any further.
pub const CIDR_BLOCK: &str = "cali-cidr-block";
/// Packets from workloads to the host itself.
pub const WORKLOAD_TO_HOST: &str = "cali-wl-to-host";
/// Leads by interface to the chains for packets from workloads; chain and map have the same name.
pub const FROM_WORKLOAD_DISPATCH: &str = "cali-from-wl-dispatch";
/// Leads by interface to the chains for packets to workloads; chain and map have the same name.
pub const TO_WORKLOAD_DISPATCH: &str = "cali-to-wl-dispatch";
/// Leads to workloads whose interfaces have eBPF programs; chain and map have the same name.
pub const TO_ATTACHED: &str = "cali-to-attached";
/// The interface of a workload has eBPF programs.
pub const ATTACHED: &str = "cali-attached";
/// Policy for packets whose destination was translated after eBPF programs saw them.
pub(crate) const TRANSLATED: &str = "cali-translated";
/// Leads by interface to the chains for ARP; chain and map have the same name.
pub const ARP_DISPATCH: &str = "cali-arp-dispatch";
/// Leads by interface to the chains for packets to host endpoints.
pub const TO_HOST_ENDPOINT: &str = "cali-to-host-endpoint";
/// Leads by interface to the chains for packets from host endpoints.
pub const FROM_HOST_ENDPOINT: &str = "cali-from-host-endpoint";
/// Leads by interface to the chains for forwarded packets to host endpoints.
pub const TO_HOST_ENDPOINT_FORWARD: &str = "cali-to-hep-forward";
/// Leads by interface to the chains for forwarded packets from host endpoints.
pub const FROM_HOST_ENDPOINT_FORWARD: &str = "cali-from-hep-forward";
/// Leads by interface to the chains that set an endpoint's mark (IPVS).
pub const SET_ENDPOINT_MARK: &str = "cali-set-endpoint-mark";
/// Leads by mark to the chains of endpoints (IPVS).
pub const FROM_ENDPOINT_MARK: &str = "cali-from-endpoint-mark";
/// Marks packets in `INPUT` that will be forwarded (IPVS).
pub const FORWARD_CHECK: &str = "cali-forward-check";
/// Forwarded packets in `OUTPUT` (IPVS).
pub const FORWARD_ENDPOINT_MARK: &str = "cali-forward-endpoint-mark";
/// Marks packets from the WireGuard device.
pub const WIREGUARD_INCOMING_MARK: &str = "cali-wireguard-incoming-mark";
/// Workloads that may use source addresses other than their own.
pub const RPF_SKIP: &str = "cali-rpf-skip";
/// Packets of workloads whose answers would take another way; only on the short way.
pub const RPF_FAILED: &str = "cali-rpf-failed";
/// Beside eBPF programs: which of the packets that need not be tracked are tracked all the same.
pub const UNTRACKED_FLOWS: &str = "cali-untracked-flows";

/// Where compiled policies send allowed packets: it sets their mark.
pub const RUN_ALLOW: &str = "cali-run-allow";
/// Where compiled policies send packets that pass to the next tier: it sets their mark.
pub const RUN_PASS: &str = "cali-run-pass";
/// Where compiled policies send denied packets: it ends their way.
pub const RUN_DENY: &str = "cali-run-deny";

/// The prefixes of the names of an endpoint's chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndpointChain {
    /// Packets to a workload.
    ToWorkload,
    /// Packets from a workload.
    FromWorkload,
    /// Packets to a host endpoint.
    ToHost,
    /// Packets from a host endpoint.
    FromHost,
    /// Forwarded packets to a host endpoint.
    ToHostForward,
    /// Forwarded packets from a host endpoint.
    FromHostForward,
    /// The chain that sets the endpoint's mark (IPVS).
    SetMark,
    /// ARP packets to a workload.
    Arp,
}

impl EndpointChain {
    /// The prefix.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::ToWorkload => "cali-tw-",
            Self::FromWorkload => "cali-fw-",
            Self::ToHost => "cali-th-",
            Self::FromHost => "cali-fh-",
            Self::ToHostForward => "cali-thfw-",
            Self::FromHostForward => "cali-fhfw-",
            Self::SetMark => "cali-sm-",
            Self::Arp => "cali-arp-",
        }
    }
}

/// The direction of packets that a policy applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Packets to the endpoint: ingress.
    Inbound,
    /// Packets from the endpoint: egress.
    Outbound,
}

impl Direction {
    /// `ingress` or `egress`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "ingress",
            Self::Outbound => "egress",
        }
    }

    /// The prefix of the names of policies' chains.
    #[must_use]
    pub const fn policy_prefix(self) -> &'static str {
        match self {
            Self::Inbound => "cali-pi-",
            Self::Outbound => "cali-po-",
        }
    }

    /// The prefix of the names of profiles' chains.
    #[must_use]
    pub const fn profile_prefix(self) -> &'static str {
        match self {
            Self::Inbound => "cali-pri-",
            Self::Outbound => "cali-pro-",
        }
    }

    /// The prefix of the names of groups' chains.
    #[must_use]
    pub const fn group_prefix(self) -> &'static str {
        match self {
            Self::Inbound => "cali-gi-",
            Self::Outbound => "cali-go-",
        }
    }
}

/// The kernel's two packet filters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// iptables, in either variant.
    #[default]
    Iptables,
    /// nftables, in tables of our own.
    Nftables,
}

impl Backend {
    /// The longest name of a chain.
    #[must_use]
    pub const fn max_chain_name(self) -> usize {
        match self {
            Self::Iptables => crate::iptables::MAX_CHAIN_NAME,
            Self::Nftables => crate::nftables::MAX_CHAIN_NAME,
        }
    }

    /// The name of a chain of an endpoint.
    #[must_use]
    pub fn endpoint_chain(self, chain: EndpointChain, interface: &str) -> ChainName {
        limited_id(chain.prefix(), interface, self.max_chain_name()).into()
    }

    /// The name of the chain of a policy.
    #[must_use]
    pub fn policy_chain(self, direction: Direction, policy: &PolicyKey) -> ChainName {
        limited_id(direction.policy_prefix(), &policy_id(policy), self.max_chain_name()).into()
    }

    /// The name of the chain of a profile.
    #[must_use]
    pub fn profile_chain(self, direction: Direction, profile: &str) -> ChainName {
        limited_id(direction.profile_prefix(), profile, self.max_chain_name()).into()
    }
}

/// Whether an interface can have this name. Validation accepts no others, and with a `+` at its end it would mean all
/// interfaces with this prefix.
#[must_use]
pub fn is_interface(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=15).contains(&name.len()) && name.bytes().all(plain)
}

/// Whether the text can be in a rule without quotes. This is true for all names that validation accepts.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:@%+=,|".contains(&byte))
}

/// Joins `prefix` and `suffix`. If the result is longer than `max`, an underscore and a hash replace the suffix. The
/// same happens to a name that looks like a shortened one, or that cannot be written in a rule.
#[must_use]
pub fn limited_id(prefix: &str, suffix: &str, max: usize) -> String {
    let suffix = if suffix.is_empty() { "_" } else { suffix };
    let length = prefix.len() + suffix.len();
    if is_plain(suffix) && (length < max || (length == max && !suffix.starts_with('_'))) {
        return format!("{prefix}{suffix}");
    }
    let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(suffix));
    let room = max.saturating_sub(1 + prefix.len());
    format!("{prefix}_{}", hash.get(..room).unwrap_or(&hash))
}

/// The short name of a kind of policy.
#[must_use]
pub fn short_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::NetworkPolicy => "np",
        Kind::GlobalNetworkPolicy => "gnp",
        Kind::StagedNetworkPolicy => "snp",
        Kind::StagedGlobalNetworkPolicy => "sgnp",
        Kind::StagedKubernetesNetworkPolicy => "sknp",
        Kind::KubernetesNetworkPolicy => "knp",
        Kind::KubernetesClusterNetworkPolicy => "kcnp",
        other => other.as_str(),
    }
}

/// Whether policies of this kind are staged: reported, but never programmed.
#[must_use]
pub fn is_staged(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::StagedNetworkPolicy | Kind::StagedGlobalNetworkPolicy | Kind::StagedKubernetesNetworkPolicy
    )
}

/// A policy as one word: `np/namespace/name` or `gnp/name`.
#[must_use]
pub fn policy_id(policy: &PolicyKey) -> String {
    let (kind, namespace, name) = (short_kind(policy.kind), &policy.namespace, &policy.name);
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// The name of a set in the kernel.
#[must_use]
pub fn ip_set(version: IpVersion, id: &str) -> SetName {
    const MAX: usize = 31;
    let mut name = format!("cali{version}0{id}");
    if name.len() > MAX {
        let end = (0..=MAX).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
        name.truncate(end);
    }
    name.into()
}

/// The ids of the sets that do not come from policies.
pub mod sets {
    /// All address pools, except those only for load balancers.
    pub const NETWORK_POOLS: &str = "network-ip-pools";
    /// The pools with source NAT.
    pub const MASQUERADED_POOLS: &str = "masq-ipam-pools";
    /// The addresses of all hosts.
    pub const ALL_HOSTS: &str = "all-hosts-net";
    /// The addresses from which VXLAN packets are accepted.
    pub const ALL_VXLAN: &str = "all-vxlan-net";
    /// The addresses of this host.
    pub const THIS_HOST: &str = "this-host";
    /// Endpoints with a DSCP mark.
    pub const DSCP_SOURCES: &str = "dscp-src-net";
    /// Endpoints whose connections must not use the flow table.
    pub const NO_FLOW_OFFLOAD: &str = "no-flow-offload";
    /// Workloads in Istio's ambient mesh.
    pub const ISTIO_WORKLOADS: &str = "all-istio-weps";
}
