//! The messages about endpoints: their entries in the feed, with the policies that apply in order.

use super::computed::Computed;
use super::order::PolicyOrder;
use super::table::{Flags, PolicyTable};
use api::QoSControls;
use messages::{
    HostEndpoint, HostEndpointName, Nat, PolicyId, ProfileName, QosPolicy, TierInfo, WorkloadEndpoint,
    WorkloadEndpointId,
};
use model::feed::{self, RuleAction};

/// An endpoint of this host.
#[derive(Debug, PartialEq)]
pub(crate) enum LocalEndpoint {
    Workload(WorkloadEndpointId, Box<feed::WorkloadEndpoint>),
    Host(HostEndpointName, Box<feed::HostEndpoint>),
}

impl LocalEndpoint {
    pub(crate) fn profiles(&self) -> &[ProfileName] {
        match self {
            Self::Workload(_, endpoint) => &endpoint.profile_ids,
            Self::Host(_, endpoint) => &endpoint.profile_ids,
        }
    }
}

/// The tiers of an endpoint, by the place on a packet's path where their policies apply.
#[derive(Debug, Default)]
pub(crate) struct Tiers {
    pub(crate) normal: Vec<TierInfo>,
    pub(crate) untracked: Vec<TierInfo>,
    pub(crate) pre_dnat: Vec<TierInfo>,
    pub(crate) forward: Vec<TierInfo>,
}

impl Tiers {
    /// Returns the tiers for policies with these ranks, which must be sorted.
    pub(crate) fn new(ranks: &[u32], order: &PolicyOrder, table: &PolicyTable) -> Self {
        let mut tiers = Self::default();
        let mut rest = ranks;
        for tier in order.tiers() {
            let (of_this, others) = rest.split_at(rest.partition_point(|rank| *rank < tier.end));
            rest = others;
            if of_this.is_empty() {
                continue;
            }
            let info =
                |default_action| TierInfo { name: tier.name.clone(), default_action, ..TierInfo::default() };
            // Policies before connection tracking or NAT are not final: ordinary policy comes after them.
            let (mut untracked, mut pre_dnat) = (info(RuleAction::Pass), info(RuleAction::Pass));
            let (mut forward, mut normal) = (info(tier.default_action), info(tier.default_action));
            for &rank in of_this {
                let Some(row) = order.policy(rank).and_then(|policy| table.get(policy)) else { continue };
                let Some(active) = &row.active else { continue };
                let flags = row.flags;
                if flags.has(Flags::DO_NOT_TRACK) {
                    add(&mut untracked, &active.id, flags, true);
                } else if flags.has(Flags::PRE_DNAT) {
                    add(&mut pre_dnat, &active.id, flags, false);
                } else {
                    if flags.has(Flags::APPLY_ON_FORWARD) {
                        add(&mut forward, &active.id, flags, true);
                    }
                    add(&mut normal, &active.id, flags, true);
                }
            }
            for (list, tier) in [
                (&mut tiers.normal, normal),
                (&mut tiers.untracked, untracked),
                (&mut tiers.pre_dnat, pre_dnat),
                (&mut tiers.forward, forward),
            ] {
                if !tier.ingress_policies.is_empty() || !tier.egress_policies.is_empty() {
                    list.push(tier);
                }
            }
        }
        tiers
    }
}

fn add(tier: &mut TierInfo, id: &PolicyId, flags: Flags, egress_too: bool) {
    if flags.has(Flags::INGRESS) {
        tier.ingress_policies.push(id.clone());
    }
    if egress_too && flags.has(Flags::EGRESS) {
        tier.egress_policies.push(id.clone());
    }
}

/// Builds the message about a workload endpoint.
pub(crate) fn workload(
    endpoint: &feed::WorkloadEndpoint,
    tiers: Tiers,
    computed: &Computed,
) -> Box<WorkloadEndpoint> {
    Box::new(WorkloadEndpoint {
        state: endpoint.state.clone(),
        name: endpoint.name.as_str().into(),
        mac: endpoint.mac.clone(),
        profile_ids: endpoint.profile_ids.clone(),
        ipv4_nets: endpoint.ipv4_nets.clone(),
        ipv6_nets: endpoint.ipv6_nets.clone(),
        tiers: tiers.normal,
        ipv4_nat: nat(&endpoint.ipv4_nat),
        ipv6_nat: nat(&endpoint.ipv6_nat),
        allow_spoofed_source_prefixes: endpoint.allow_spoofed_source_prefixes.clone(),
        annotations: endpoint.annotations.clone(),
        qos_controls: endpoint.qos_controls.clone(),
        local_bgp_peer: computed.bgp_peer.clone(),
        qos_policies: marks(endpoint.qos_controls.as_deref()),
        is_istio_ambient: computed.is_istio_ambient,
        live_migration_role: computed.migration_role,
        live_migration_uid: computed.migration_uid.clone(),
        live_migration_vmi_name: machine_name(endpoint),
    })
}

/// Builds the message about a host endpoint.
pub(crate) fn host(endpoint: &feed::HostEndpoint, tiers: Tiers) -> Box<HostEndpoint> {
    Box::new(HostEndpoint {
        name: endpoint.name.clone(),
        profile_ids: endpoint.profile_ids.clone(),
        tiers: tiers.normal,
        untracked_tiers: tiers.untracked,
        pre_dnat_tiers: tiers.pre_dnat,
        forward_tiers: tiers.forward,
        expected_ipv4_addrs: endpoint.expected_ipv4_addrs.clone(),
        expected_ipv6_addrs: endpoint.expected_ipv6_addrs.clone(),
        qos_policies: marks(endpoint.qos_controls.as_deref()),
    })
}

fn nat(addresses: &[feed::Nat]) -> Vec<Nat> {
    addresses.iter().map(|nat| Nat { external: nat.external, internal: nat.internal }).collect()
}

fn marks(controls: Option<&QoSControls>) -> Vec<QosPolicy> {
    let dscp = controls.and_then(|controls| controls.dscp.as_ref()).and_then(|dscp| dscp.value().ok());
    dscp.map(|dscp| QosPolicy { destination: String::new(), dscp }).into_iter().collect()
}

/// The name of the workload's virtual machine: from the label that newer versions of KubeVirt set, or else the older
/// one.
fn machine_name(endpoint: &feed::WorkloadEndpoint) -> String {
    let label = |name| endpoint.labels.get(name).map(str::to_owned);
    label("vmi.kubevirt.io/id").or_else(|| label("vm.kubevirt.io/name")).unwrap_or_default()
}
