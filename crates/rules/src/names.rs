//! Names of chains, maps and sets. Other programs (and the other make of Felix) look for them, so each is Calico's.

use crate::tree::{ChainName, IpVersion, SetName};
use api::Kind;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::v1::PolicyKey;
use sha2::{Digest, Sha256};

/// The name that stands for "all interfaces" where a chain needs one; longer than the kernel's names can be.
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
/// Ports that host endpoints can always be reached on.
pub const FAILSAFE_IN: &str = "cali-failsafe-in";
/// Ports that the host can always reach through host endpoints.
pub const FAILSAFE_OUT: &str = "cali-failsafe-out";
/// Source NAT for packets that leave the cluster.
pub const NAT_OUTGOING: &str = "cali-nat-outgoing";
/// Floating addresses: destination.
pub const FIP_DNAT: &str = "cali-fip-dnat";
/// Floating addresses: source.
pub const FIP_SNAT: &str = "cali-fip-snat";
/// DSCP marks for packets that leave the cluster.
pub const EGRESS_DSCP: &str = "cali-egress-dscp";
/// Ranges of services that must not be routed on.
pub const CIDR_BLOCK: &str = "cali-cidr-block";
/// Packets from workloads to the host itself.
pub const WORKLOAD_TO_HOST: &str = "cali-wl-to-host";
/// By interface to the chains for packets from workloads; chain and map have the same name.
pub const FROM_WORKLOAD_DISPATCH: &str = "cali-from-wl-dispatch";
/// By interface to the chains for packets to workloads; chain and map have the same name.
pub const TO_WORKLOAD_DISPATCH: &str = "cali-to-wl-dispatch";
/// To workloads whose interfaces have eBPF programs; chain and map have the same name.
pub const TO_ATTACHED: &str = "cali-to-attached";
/// A workload's interface has eBPF programs.
pub const ATTACHED: &str = "cali-attached";
/// Policy for packets whose destination was translated after eBPF programs saw them.
pub(crate) const TRANSLATED: &str = "cali-translated";
/// By interface to the chains for ARP; chain and map have the same name.
pub const ARP_DISPATCH: &str = "cali-arp-dispatch";
/// By interface to the chains for packets to host endpoints.
pub const TO_HOST_ENDPOINT: &str = "cali-to-host-endpoint";
/// By interface to the chains for packets from host endpoints.
pub const FROM_HOST_ENDPOINT: &str = "cali-from-host-endpoint";
/// The same for forwarded packets.
pub const TO_HOST_ENDPOINT_FORWARD: &str = "cali-to-hep-forward";
/// The same for forwarded packets.
pub const FROM_HOST_ENDPOINT_FORWARD: &str = "cali-from-hep-forward";
/// By interface to the chains that set an endpoint's mark (IPVS).
pub const SET_ENDPOINT_MARK: &str = "cali-set-endpoint-mark";
/// By mark to the chains of endpoints (IPVS).
pub const FROM_ENDPOINT_MARK: &str = "cali-from-endpoint-mark";
/// Whether a packet in `INPUT` will be forwarded (IPVS).
pub const FORWARD_CHECK: &str = "cali-forward-check";
/// Forwarded packets in `OUTPUT` (IPVS).
pub const FORWARD_ENDPOINT_MARK: &str = "cali-forward-endpoint-mark";
/// Marks what comes out of WireGuard.
pub const WIREGUARD_INCOMING_MARK: &str = "cali-wireguard-incoming-mark";
/// Workloads that may use other source addresses than their own.
pub const RPF_SKIP: &str = "cali-rpf-skip";
/// Packets of workloads that come from where their answers would not go; only on the short way.
pub const RPF_FAILED: &str = "cali-rpf-failed";
/// Packets that need not be tracked, beside eBPF programs: which are all the same.
pub const UNTRACKED_FLOWS: &str = "cali-untracked-flows";

/// Where compiled policies send packets that may pass: it sets their mark.
pub const RUN_ALLOW: &str = "cali-run-allow";
/// Where compiled policies send packets that go to the next tier: it sets their mark.
pub const RUN_PASS: &str = "cali-run-pass";
/// Where compiled policies send packets that may not pass: it ends them.
pub const RUN_DENY: &str = "cali-run-deny";

/// What the names of an endpoint's chains begin with.
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
    /// Sets the endpoint's mark (IPVS).
    SetMark,
    /// ARP to a workload.
    Arp,
}

impl EndpointChain {
    /// The beginning.
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

/// Whether a policy is for packets to or from an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To the endpoint: ingress.
    Inbound,
    /// From the endpoint: egress.
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

    /// What the names of policies' chains begin with.
    #[must_use]
    pub const fn policy_prefix(self) -> &'static str {
        match self {
            Self::Inbound => "cali-pi-",
            Self::Outbound => "cali-po-",
        }
    }

    /// What the names of profiles' chains begin with.
    #[must_use]
    pub const fn profile_prefix(self) -> &'static str {
        match self {
            Self::Inbound => "cali-pri-",
            Self::Outbound => "cali-pro-",
        }
    }

    /// What the names of groups' chains begin with.
    #[must_use]
    pub const fn group_prefix(self) -> &'static str {
        match self {
            Self::Inbound => "cali-gi-",
            Self::Outbound => "cali-go-",
        }
    }
}

/// Which of the kernel's two firewalls rules are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// iptables, of either variant
    #[default]
    Iptables,
    /// nftables, in tables of our own
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

    /// The chain of an endpoint.
    #[must_use]
    pub fn endpoint_chain(self, chain: EndpointChain, interface: &str) -> ChainName {
        limited_id(chain.prefix(), interface, self.max_chain_name()).into()
    }

    /// The chain of a policy.
    #[must_use]
    pub fn policy_chain(self, direction: Direction, policy: &PolicyKey) -> ChainName {
        limited_id(direction.policy_prefix(), &policy_id(policy), self.max_chain_name()).into()
    }

    /// The chain of a profile.
    #[must_use]
    pub fn profile_chain(self, direction: Direction, profile: &str) -> ChainName {
        limited_id(direction.profile_prefix(), profile, self.max_chain_name()).into()
    }
}

/// Whether an interface can have this name. Validation takes no other, and a `+` at its end would mean all interfaces that
/// begin so.
#[must_use]
pub fn is_interface(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=15).contains(&name.len()) && name.bytes().all(plain)
}

/// Whether the text can be in a rule without quotes. Names that validation accepts all can.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:@%+=,|".contains(&byte))
}

/// `prefix` and `suffix`; where that would be longer than `max`, a hash in the place of the suffix, after an underscore.
/// A name that could be taken for such a one becomes one, and so does one that a rule could not be written with.
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

/// The short word for a kind of policy.
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

/// Whether policies of this kind are only tried: never programmed, only reported.
#[must_use]
pub fn is_staged(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::StagedNetworkPolicy | Kind::StagedGlobalNetworkPolicy | Kind::StagedKubernetesNetworkPolicy
    )
}

/// A policy in one word: `np/namespace/name` or `gnp/name`.
#[must_use]
pub fn policy_id(policy: &PolicyKey) -> String {
    let (kind, namespace, name) = (short_kind(policy.kind), &policy.namespace, &policy.name);
    if namespace.is_empty() { format!("{kind}/{name}") } else { format!("{kind}/{namespace}/{name}") }
}

/// The kernel's name of a set.
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

/// The identities of the sets that do not come from policies.
pub mod sets {
    /// All address pools, but those for load balancers alone.
    pub const NETWORK_POOLS: &str = "network-ip-pools";
    /// The pools with source NAT.
    pub const MASQUERADED_POOLS: &str = "masq-ipam-pools";
    /// The addresses of all hosts.
    pub const ALL_HOSTS: &str = "all-hosts-net";
    /// The addresses that VXLAN packets may come from.
    pub const ALL_VXLAN: &str = "all-vxlan-net";
    /// The addresses of this host.
    pub const THIS_HOST: &str = "this-host";
    /// Endpoints with a DSCP mark.
    pub const DSCP_SOURCES: &str = "dscp-src-net";
    /// Endpoints whose connections must not take the flow table.
    pub const NO_FLOW_OFFLOAD: &str = "no-flow-offload";
    /// Workloads in Istio's ambient mesh.
    pub const ISTIO_WORKLOADS: &str = "all-istio-weps";
}
