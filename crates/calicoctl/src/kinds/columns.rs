//! The contents of each cell, formatted like Go's templates: a missing pointer is `<nil>`, a list is joined by commas.

use api::Resource;
use api::kubernetes::LabelSelector;
use api::meta::StringMap;
use api::scalars::GoFloat;
use api::yaml::go_float;
use std::fmt::Display;
use std::fmt::Write as _;

/// The maximum length of a list of networks in a cell.
const LONGEST_LIST: usize = 80;

/// Data that tables need beyond the objects themselves.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The AS number for nodes without one of their own.
    pub as_number: String,
}

/// The cell of an object in a column; `None` if its kind has no such column.
#[must_use]
pub(crate) fn cell(resource: &Resource, column: &str, settings: &Settings) -> Option<String> {
    match column {
        "NAME" => return Some(resource.name().to_owned()),
        "NAMESPACE" => return resource.kind().is_namespaced().then(|| resource.namespace().to_owned()),
        _ => {}
    }
    Some(match (resource, column) {
        (Resource::BGPConfiguration(object), "LOGSEVERITY") => object.spec.log_severity_screen.to_string(),
        (Resource::BGPConfiguration(object), "MESHENABLED") => or_dash(object.spec.node_to_node_mesh_enabled),
        (Resource::BGPConfiguration(object), "ASNUMBER") => or_dash(object.spec.as_number),
        (Resource::BGPFilter(object), "NUMEXPORTV4") => object.spec.export_v4.len().to_string(),
        (Resource::BGPFilter(object), "NUMIMPORTV4") => object.spec.import_v4.len().to_string(),
        (Resource::BGPFilter(object), "NUMEXPORTV6") => object.spec.export_v6.len().to_string(),
        (Resource::BGPFilter(object), "NUMIMPORTV6") => object.spec.import_v6.len().to_string(),
        (Resource::BGPPeer(object), "PEERIP") => object.spec.peer_ip.to_string(),
        (Resource::BGPPeer(object), "NODE") => {
            let selector = object.spec.node_selector.to_string();
            match (object.spec.node.as_str(), selector.as_str()) {
                ("", "") => "(global)".to_owned(),
                ("", _) => selector,
                (node, _) => node.to_owned(),
            }
        }
        (Resource::BGPPeer(object), "ASN") => object.spec.as_number.to_string(),
        (Resource::CalicoNodeStatus(object), "NODE") => object.spec.node.clone(),
        (Resource::CalicoNodeStatus(object), "CLASSES") => join(&object.spec.classes),
        (Resource::ClusterInformation(object), "CLUSTERGUID") => object.spec.cluster_guid.clone(),
        (Resource::ClusterInformation(object), "CLUSTERTYPE") => object.spec.cluster_type.clone(),
        (Resource::ClusterInformation(object), "CALICOVERSION") => object.spec.calico_version.clone(),
        (Resource::ClusterInformation(object), "DATASTOREREADY") => or_nil(object.spec.datastore_ready),
        (Resource::GlobalNetworkPolicy(object), "TIER") => object.spec.tier.clone(),
        (Resource::GlobalNetworkPolicy(object), "ORDER") => order(object.spec.order),
        (Resource::GlobalNetworkPolicy(object), "SELECTOR") => object.spec.selector.to_string(),
        (Resource::GlobalNetworkSet(object), "NETS") => cut(&join(&object.spec.nets)),
        (Resource::HostEndpoint(object), "NODE") => object.spec.node.clone(),
        (Resource::HostEndpoint(object), "INTERFACE") => object.spec.interface_name.clone(),
        (Resource::HostEndpoint(object), "IPS") => join(&object.spec.expected_ips),
        (Resource::HostEndpoint(object), "PROFILES") => join(&object.spec.profiles),
        (Resource::IPAMConfiguration(object), "STRICTAFFINITY") => object.spec.strict_affinity.to_string(),
        (Resource::IPAMConfiguration(object), "AUTOALLOCATEBLOCKS") => {
            object.spec.auto_allocate_blocks.to_string()
        }
        (Resource::IPAMConfiguration(object), "MAXBLOCKSPERHOST") => {
            object.spec.max_blocks_per_host.to_string()
        }
        (Resource::IPPool(object), "CIDR") => object.spec.cidr.to_string(),
        (Resource::IPPool(object), "NAT") => object.spec.nat_outgoing.to_string(),
        (Resource::IPPool(object), "IPIPMODE") => or_never(object.spec.ipip_mode.as_str()),
        (Resource::IPPool(object), "VXLANMODE") => or_never(object.spec.vxlan_mode.as_str()),
        (Resource::IPPool(object), "DISABLED") => object.spec.disabled.to_string(),
        (Resource::IPPool(object), "DISABLEBGPEXPORT") => object.spec.disable_bgp_export.to_string(),
        (Resource::IPPool(object), "SELECTOR") => object.spec.node_selector.to_string(),
        (Resource::IPPool(object), "ASSIGNMENTMODE") => or_nil(object.spec.assignment_mode.as_ref()),
        (Resource::IPReservation(object), "CIDRS") => cut(&join(&object.spec.reserved_cidrs)),
        (Resource::NetworkPolicy(object), "TIER") => object.spec.tier.clone(),
        (Resource::NetworkPolicy(object), "ORDER") => order(object.spec.order),
        (Resource::NetworkPolicy(object), "SELECTOR") => object.spec.selector.to_string(),
        (Resource::NetworkSet(object), "NETS") => cut(&join(&object.spec.nets)),
        (Resource::Node(object), "ASN") => match &object.spec.bgp {
            None => String::new(),
            Some(bgp) => {
                bgp.as_number.map_or_else(|| format!("({})", settings.as_number), |number| number.to_string())
            }
        },
        (Resource::Node(object), "IPV4") => {
            object.spec.bgp.as_ref().map(|bgp| bgp.ipv4_address.to_string()).unwrap_or_default()
        }
        (Resource::Node(object), "IPV6") => {
            object.spec.bgp.as_ref().map(|bgp| bgp.ipv6_address.to_string()).unwrap_or_default()
        }
        (Resource::Profile(object), "LABELS") => join_map(&object.spec.labels_to_apply),
        (Resource::StagedGlobalNetworkPolicy(object), "TIER") => object.spec.tier.clone(),
        (Resource::StagedGlobalNetworkPolicy(object), "ORDER") => order(object.spec.order),
        (Resource::StagedGlobalNetworkPolicy(object), "SELECTOR") => object.spec.selector.to_string(),
        (Resource::StagedKubernetesNetworkPolicy(object), "PODSELECTOR") => {
            pod_selector(&object.spec.pod_selector)
        }
        (Resource::StagedNetworkPolicy(object), "TIER") => object.spec.tier.clone(),
        (Resource::StagedNetworkPolicy(object), "ORDER") => order(object.spec.order),
        (Resource::StagedNetworkPolicy(object), "SELECTOR") => object.spec.selector.to_string(),
        (Resource::Tier(object), "ORDER") => order(object.spec.order),
        (Resource::WorkloadEndpoint(object), "WORKLOAD") => {
            let spec = &object.spec;
            if spec.workload.is_empty() { spec.pod.clone() } else { spec.workload.clone() }
        }
        (Resource::WorkloadEndpoint(object), "NODE") => object.spec.node.clone(),
        (Resource::WorkloadEndpoint(object), "NETWORKS") => join(&object.spec.ip_networks),
        (Resource::WorkloadEndpoint(object), "INTERFACE") => object.spec.interface_name.clone(),
        (Resource::WorkloadEndpoint(object), "PROFILES") => join(&object.spec.profiles),
        (Resource::WorkloadEndpoint(object), "ORCHESTRATOR") => object.spec.orchestrator.clone(),
        (Resource::WorkloadEndpoint(object), "NATS") => {
            let nats =
                object.spec.ip_nats.iter().map(|nat| format!("{{{} {}}}", nat.internal_ip, nat.external_ip));
            nats.collect::<Vec<_>>().join(",")
        }
        _ => return None,
    })
}

fn or_nil(value: Option<impl Display>) -> String {
    value.map_or_else(|| "<nil>".to_owned(), |value| value.to_string())
}

fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn or_never(mode: &str) -> String {
    if mode.is_empty() { "Never".to_owned() } else { mode.to_owned() }
}

fn order(order: Option<GoFloat>) -> String {
    or_nil(order.map(|GoFloat(value)| go_float(value)))
}

fn join(items: &[impl Display]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn join_map(map: &StringMap) -> String {
    let mut pairs: Vec<String> = map.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.sort_unstable();
    pairs.join(",")
}

/// Truncates a long list and marks that with dots.
fn cut(text: &str) -> String {
    if text.len() <= LONGEST_LIST {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST_LIST - "...".len());
    format!("{}...", &text[..end])
}

/// Formats a label selector like Kubernetes' own types.
fn pod_selector(selector: &LabelSelector) -> String {
    let mut text = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    // Writing to a string cannot fail.
    for (name, value) in &selector.match_labels {
        let _ = write!(text, "{name}: {value},");
    }
    text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for requirement in &selector.match_expressions {
        let values = requirement.values.join(" ");
        let _ = write!(
            text,
            "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},",
            requirement.key, requirement.operator
        );
    }
    text.push_str("},}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn every_column_of_every_kind_has_a_cell() {
        for entry in KINDS {
            let resource = Resource::from_json(entry.kind, br#"{"metadata":{"name":"x"}}"#).unwrap();
            for column in entry.columns() {
                assert!(cell(&resource, column, &Settings::default()).is_some(), "{} {column}", entry.kind);
            }
            assert_eq!(cell(&resource, "NOSUCH", &Settings::default()), None);
        }
    }

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(cut(&"a".repeat(80)), "a".repeat(80));
        assert_eq!(cut(&"a".repeat(81)), format!("{}...", "a".repeat(77)));
    }
}
