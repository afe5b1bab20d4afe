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
    /// The state: `active` when in use.
    pub state: String,
    /// The host's end of the workload's interface.
    pub name: InterfaceName,
    /// The hardware address of the workload's end; empty when unknown.
    pub mac: String,
    /// The profiles, in order of precedence.
    pub profile_ids: Vec<ProfileName>,
    /// The IPv4 addresses.
    pub ipv4_nets: Vec<IpNet>,
    /// The IPv6 addresses.
    pub ipv6_nets: Vec<IpNet>,
    /// The tiers with policies that apply, in order.
    pub tiers: Vec<TierInfo>,
    /// Second IPv4 addresses (NAT).
    pub ipv4_nat: Vec<Nat>,
    /// Second IPv6 addresses (NAT).
    pub ipv6_nat: Vec<Nat>,
    /// Source addresses that the workload may use besides its own.
    pub allow_spoofed_source_prefixes: Vec<IpNet>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// Limits on its traffic.
    pub qos_controls: Option<Box<QoSControls>>,
    /// The BGPPeer that peers with the workload itself; empty if there is none.
    pub local_bgp_peer: String,
    /// DSCP marks for packets that leave the cluster.
    pub qos_policies: Vec<QosPolicy>,
    /// Whether the workload is in Istio's ambient mesh.
    pub is_istio_ambient: bool,
    /// Its role in a live migration.
    pub live_migration_role: LiveMigrationRole,
    /// The migration's uid.
    pub live_migration_uid: String,
    /// The name of the virtual machine that migrates.
    pub live_migration_vmi_name: String,
}

/// A DSCP mark for packets that leave the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosPolicy {
    /// The destination; empty for everything outside the cluster.
    pub destination: String,
    /// The DSCP value.
    pub dscp: u8,
}

/// The role of an endpoint in a live migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LiveMigrationRole {
    /// Not part of a migration.
    #[default]
    None,
    /// The machine moves away from it.
    Source,
    /// The machine moves to it.
    Target,
}

/// A second address that is translated to one of the endpoint's own.
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
    /// The interface, or `*` for all; if empty, the endpoint is found by its addresses.
    pub name: String,
    /// The profiles, in order of precedence.
    pub profile_ids: Vec<ProfileName>,
    /// Ordinary policy, in order.
    pub tiers: Vec<TierInfo>,
    /// Policy before connection tracking.
    pub untracked_tiers: Vec<TierInfo>,
    /// Policy before destination NAT.
    pub pre_dnat_tiers: Vec<TierInfo>,
    /// Policy for forwarded packets.
    pub forward_tiers: Vec<TierInfo>,
    /// The IPv4 addresses by which it is found.
    pub expected_ipv4_addrs: Vec<IpAddr>,
    /// The IPv6 addresses by which it is found.
    pub expected_ipv6_addrs: Vec<IpAddr>,
    /// DSCP marks for packets that leave the cluster.
    pub qos_policies: Vec<QosPolicy>,
}
