//! The input for an endpoint's lists: tiers with their policies, and profiles. Endpoints with equal specs share a list
//! without building it again.

use messages::{HostEndpoint, PolicyId, ProfileName, TierInfo, TierName, WorkloadEndpoint};
use model::IpVersion;
use model::feed::RuleAction;
use rules::{Direction, names};

/// The purpose of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Ordinary policy, then profiles.
    Normal,
    /// Forwarded packets of host endpoints.
    Forward,
    /// Before destination NAT.
    BeforeNat,
    /// Before connection tracking.
    Untracked,
    /// An endpoint that is disabled.
    Disabled,
}

/// The policies of a tier for one direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TierSpec {
    pub(crate) name: TierName,
    pub(crate) policies: Vec<PolicyId>,
    /// The default action: [`RuleAction::Pass`], or anything else to deny.
    pub(crate) end: RuleAction,
}

/// The input for a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    pub(crate) direction: Direction,
    pub(crate) version: IpVersion,
    pub(crate) tiers: Vec<TierSpec>,
    pub(crate) profiles: Vec<ProfileName>,
}

/// The specs of an endpoint's lists, in the order of [`crate::layout::Lists`].
pub(crate) type Specs = [Option<Spec>; 9];

/// Whether staged policies are included.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Staged {
    Left,
    Enforced,
}

/// The specs of a workload.
pub(crate) fn workload(endpoint: &WorkloadEndpoint, version: IpVersion) -> Specs {
    if endpoint.state != "active" {
        let disabled = |direction| Spec {
            kind: Kind::Disabled,
            direction,
            version,
            tiers: Vec::new(),
            profiles: Vec::new(),
        };
        let mut specs = Specs::default();
        specs[0] = Some(disabled(Direction::Inbound));
        specs[1] = Some(disabled(Direction::Outbound));
        return specs;
    }
    normal(&endpoint.tiers, &endpoint.profile_ids, version)
}

/// The specs of a host endpoint.
pub(crate) fn host(endpoint: &HostEndpoint, version: IpVersion) -> Specs {
    let mut specs = normal(&endpoint.tiers, &endpoint.profile_ids, version);
    let special = |kind, direction, tiers: &[TierInfo]| {
        let tiers = tier_specs(tiers, direction, Staged::Left);
        (!tiers.is_empty()).then(|| Spec { kind, direction, version, tiers, profiles: Vec::new() })
    };
    specs[2] = special(Kind::Forward, Direction::Inbound, &endpoint.forward_tiers);
    specs[3] = special(Kind::Forward, Direction::Outbound, &endpoint.forward_tiers);
    specs[4] = special(Kind::BeforeNat, Direction::Inbound, &endpoint.pre_dnat_tiers);
    specs[5] = special(Kind::Untracked, Direction::Inbound, &endpoint.untracked_tiers);
    specs[6] = special(Kind::Untracked, Direction::Outbound, &endpoint.untracked_tiers);
    specs
}

fn normal(tiers: &[TierInfo], profiles: &[ProfileName], version: IpVersion) -> Specs {
    let spec = |direction, staged| Spec {
        kind: Kind::Normal,
        direction,
        version,
        tiers: tier_specs(tiers, direction, staged),
        profiles: profiles.to_vec(),
    };
    let pending = |direction| {
        let mut policies = tiers.iter().flat_map(|tier| policies(tier, direction));
        let any_staged = policies.any(|policy| names::is_staged(policy.kind));
        any_staged.then(|| spec(direction, Staged::Enforced))
    };
    let mut specs = Specs::default();
    specs[0] = Some(spec(Direction::Inbound, Staged::Left));
    specs[1] = Some(spec(Direction::Outbound, Staged::Left));
    specs[7] = pending(Direction::Inbound);
    specs[8] = pending(Direction::Outbound);
    specs
}

fn policies(tier: &TierInfo, direction: Direction) -> &[PolicyId] {
    match direction {
        Direction::Inbound => &tier.ingress_policies,
        Direction::Outbound => &tier.egress_policies,
    }
}

/// The tiers that have policies in a direction. A tier with only staged policies passes everything on.
fn tier_specs(tiers: &[TierInfo], direction: Direction, staged: Staged) -> Vec<TierSpec> {
    let tier = |tier: &TierInfo| {
        let all = policies(tier, direction);
        if all.is_empty() {
            return None;
        }
        let counts = |policy: &&PolicyId| staged == Staged::Enforced || !names::is_staged(policy.kind);
        let policies: Vec<PolicyId> = all.iter().filter(counts).cloned().collect();
        let end = if policies.is_empty() { RuleAction::Pass } else { tier.default_action };
        Some(TierSpec { name: tier.name.clone(), policies, end })
    };
    tiers.iter().filter_map(tier).collect()
}
