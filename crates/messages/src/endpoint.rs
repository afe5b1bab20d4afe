//! Endpoints of this host, with the policies that apply to them in order.

use crate::{InterfaceName, PolicyId, ProfileName, Text, TierName};
use api::QoSControls;
use ipnet::IpNet;
use model::feed::RuleAction;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The identity of a workload endpoint on this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadEndpointId {
    /// The orchestrator.
    pub orchestrator: Text,
    /// The workload: namespace and name with a slash between.
    pub workload: Text,
    /// The endpoint's name in the workload.
    pub endpoint: Text,
}

/// The policies of one tier that apply to an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierInfo {
    /// The tier.
    pub name: TierName,
    /// What happens at its end: [`RuleAction::Deny`] or [`RuleAction::Pass`].
    pub default_action: RuleAction,
    /// The policies for packets to the endpoint, in order.
    pub ingress_policies: Vec<PolicyId>,
    /// The policies for packets from the endpoint, in order.
    pub egress_policies: Vec<PolicyId>,
}

/// A workload endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadEndpoint {
    /// Whether it is in use: `active`.
    pub state: String,
    /// The host's interface.
    pub name: InterfaceName,
    /// The hardware address of the workload's side; empty when it is not known.
    pub mac: String,
    /// The profiles, the first first.
    pub profile_ids: Vec<ProfileName>,
    /// The IPv4 addresses.
    pub ipv4_nets: Vec<IpNet>,
    /// The IPv6 addresses.
    pub ipv6_nets: Vec<IpNet>,
    /// The tiers with policies that apply, in order.
    pub tiers: Vec<TierInfo>,
    /// Second addresses, IPv4.
    pub ipv4_nat: Vec<Nat>,
    /// Second addresses, IPv6.
    pub ipv6_nat: Vec<Nat>,
    /// Source addresses that the workload may use besides its own.
    pub allow_spoofed_source_prefixes: Vec<IpNet>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// Limits on its traffic.
    pub qos_controls: Option<Box<QoSControls>>,
    /// The BGPPeer that peers with the workload itself; empty for none.
    pub local_bgp_peer: String,
    /// Marks for packets that leave the cluster.
    pub qos_policies: Vec<QosPolicy>,
    /// Whether the workload is in Istio's ambient mesh.
    pub is_istio_ambient: bool,
    /// The part it plays in a live migration.
    pub live_migration_role: LiveMigrationRole,
    /// The migration's uid.
    pub live_migration_uid: String,
    /// The machine that migrates.
    pub live_migration_vmi_name: String,
}

/// A mark for packets that leave the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosPolicy {
    /// Where to; empty for everywhere outside.
    pub destination: String,
    /// The DSCP value.
    pub dscp: u8,
}

/// The part that an endpoint plays in a live migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveMigrationRole {
    /// None.
    #[default]
    None,
    /// The machine leaves it.
    Source,
    /// The machine moves to it.
    Target,
}

/// A second address for one of the endpoint's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nat {
    /// The address that others use.
    pub external: IpAddr,
    /// The endpoint's own address.
    pub internal: IpAddr,
}

/// A host endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostEndpoint {
    /// The interface, `*` for all, or empty: then it is found by its addresses.
    pub name: String,
    /// The profiles, the first first.
    pub profile_ids: Vec<ProfileName>,
    /// Ordinary policy, in order.
    pub tiers: Vec<TierInfo>,
    /// Policy before connection tracking.
    pub untracked_tiers: Vec<TierInfo>,
    /// Policy before destination NAT.
    pub pre_dnat_tiers: Vec<TierInfo>,
    /// Policy for forwarded packets.
    pub forward_tiers: Vec<TierInfo>,
    /// The addresses it is found by, IPv4.
    pub expected_ipv4_addrs: Vec<IpAddr>,
    /// The addresses it is found by, IPv6.
    pub expected_ipv6_addrs: Vec<IpAddr>,
    /// Marks for packets that leave the cluster.
    pub qos_policies: Vec<QosPolicy>,
}
