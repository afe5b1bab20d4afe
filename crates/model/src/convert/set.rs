//! Network sets, address pools and tiers.

use super::Faults;
use crate::ProfileName;
use crate::feed::{IpPool, NetworkSet, RuleAction, Tier};
use api::scalars::IpOrCidr;
use api::words::{LABEL_NAMESPACE, NAMESPACE_PROFILE_PREFIX};
use api::{Action, AssignmentMode, GlobalNetworkSet, IPIPMode, IPPoolSpec, TierSpec, VXLANMode};
use ipnet::IpNet;

/// The device of pools that use IP in IP.
const IPIP_DEVICE: &str = "tunl0";

/// Converts a network set of a namespace. It gets the namespace's label, and inherits the labels of the namespace's
/// profile.
#[must_use]
pub fn namespaced_set(set: api::NetworkSet, faults: &mut Faults) -> NetworkSet {
    let namespace = set.metadata.namespace;
    let mut labels = set.metadata.labels;
    let profile_ids = vec![ProfileName::from(format!("{NAMESPACE_PROFILE_PREFIX}{namespace}"))];
    labels.insert(LABEL_NAMESPACE.to_owned(), namespace);
    NetworkSet { nets: nets(&set.spec.nets, faults), labels: labels.into(), profile_ids }
}

/// Converts a global network set.
#[must_use]
pub fn global_set(set: GlobalNetworkSet, faults: &mut Faults) -> NetworkSet {
    NetworkSet {
        nets: nets(&set.spec.nets, faults),
        labels: set.metadata.labels.into(),
        profile_ids: Vec::new(),
    }
}

fn nets(texts: &[IpOrCidr], faults: &mut Faults) -> Vec<IpNet> {
    let mut nets = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        match text.parse() {
            Ok(network) => nets.push(network.masked()),
            Err(reason) => faults.add(format!("spec.nets[{index}]"), reason),
        }
    }
    nets
}

/// Converts a pool; `None` when its range cannot be read.
#[must_use]
pub fn pool(spec: IPPoolSpec, faults: &mut Faults) -> Option<IpPool> {
    let cidr = match spec.cidr.parse() {
        Ok(network) => network.masked(),
        Err(reason) => {
            faults.add("spec.cidr", reason);
            return None;
        }
    };
    let (ipip_mode, ipip_interface) = match spec.ipip_mode {
        mode @ (IPIPMode::Always | IPIPMode::CrossSubnet) => (mode, IPIP_DEVICE),
        _ => (IPIPMode::Never, ""),
    };
    let vxlan_mode = match spec.vxlan_mode {
        mode @ (VXLANMode::Always | VXLANMode::CrossSubnet) => mode,
        _ => VXLANMode::Never,
    };
    Some(IpPool {
        cidr,
        ipip_interface: ipip_interface.to_owned(),
        ipip_mode,
        vxlan_mode,
        masquerade: spec.nat_outgoing,
        ipam: !spec.disabled,
        disabled: spec.disabled,
        disable_bgp_export: spec.disable_bgp_export,
        assigned_automatically: spec.assignment_mode != Some(AssignmentMode::Manual),
        allowed_uses: spec.allowed_uses,
    })
}

/// Converts a tier. Every default action other than `Pass` denies.
#[must_use]
pub fn tier(spec: &TierSpec) -> Tier {
    Tier {
        order: spec.order.map(|order| order.0),
        default_action: match spec.default_action {
            Some(Action::Pass) => RuleAction::Pass,
            _ => RuleAction::Deny,
        },
    }
}
