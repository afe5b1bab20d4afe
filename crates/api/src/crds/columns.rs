//! The columns that `kubectl get` prints for the v3 definitions.

use crate::kind::Kind;
use serde_json::{Value, json};

/// A column: its title, its type, and the path of its value.
type Column = (&'static str, &'static str, &'static str);

const AGE: Column = ("Age", "date", ".metadata.creationTimestamp");
const TIER: Column = ("Tier", "string", ".spec.tier");
const ORDER: Column = ("Order", "number", ".spec.order");

/// The columns of a kind, as in its definition; if there are none, only name and age are printed.
pub(super) fn printed(kind: Kind) -> Vec<Value> {
    columns(kind)
        .iter()
        .map(|(name, column_type, path)| json!({"name": name, "type": column_type, "jsonPath": path}))
        .collect()
}

fn columns(kind: Kind) -> &'static [Column] {
    match kind {
        Kind::BGPPeer => &[
            ("Node Selector", "string", ".spec.nodeSelector"),
            ("Node", "string", ".spec.node"),
            ("Local ASN", "string", ".spec.localASNumber"),
            ("Peer Selector", "string", ".spec.peerSelector"),
            ("Peer IP", "string", ".spec.peerIP"),
            ("Peer ASN", "string", ".spec.asNumber"),
        ],
        Kind::BlockAffinity => &[
            ("CIDR", "string", ".spec.cidr"),
            ("Node", "string", ".spec.node"),
            ("Type", "string", ".spec.type"),
        ],
        Kind::CalicoNodeStatus => &[("Node", "string", ".spec.node"), ("Classes", "string", ".spec.classes")],
        Kind::ClusterInformation => &[
            ("Version", "string", ".spec.calicoVersion"),
            ("Ready", "boolean", ".spec.datastoreReady"),
            ("Types", "string", ".spec.clusterType"),
        ],
        Kind::GlobalNetworkPolicy => &[TIER, ORDER, AGE],
        Kind::GlobalNetworkSet => &[AGE],
        Kind::HostEndpoint => {
            &[("Node", "string", ".spec.node"), ("Interface", "string", ".spec.interfaceName")]
        }
        Kind::IPAMBlock => &[
            ("CIDR", "string", ".spec.cidr"),
            ("Affinity", "string", ".spec.affinity"),
            ("ClaimTime", "date", ".spec.affinityClaimTime"),
        ],
        Kind::IPAMConfiguration => &[
            ("StrictAffinity", "boolean", ".spec.strictAffinity"),
            ("MaxBlocksPerHost", "integer", ".spec.maxBlocksPerHost"),
            ("AutoAllocateBlocks", "boolean", ".spec.autoAllocateBlocks"),
        ],
        Kind::IPAMHandle => &[("ID", "string", ".spec.handleID")],
        Kind::IPPool => &[
            ("CIDR", "string", ".spec.cidr"),
            ("VXLAN", "string", ".spec.vxlanMode"),
            ("IPIP", "string", ".spec.ipipMode"),
            ("NAT", "boolean", ".spec.natOutgoing"),
            ("Allocatable", "string", ".status.conditions[?(@.type=='Allocatable')].status"),
            AGE,
        ],
        Kind::NetworkPolicy | Kind::StagedGlobalNetworkPolicy | Kind::StagedNetworkPolicy => &[TIER, ORDER],
        Kind::Tier => &[
            ("Order", "integer", ".spec.order"),
            ("DefaultAction", "string", ".spec.defaultAction"),
            ("Status", "string", ".status.conditions[?(@.type=='Ready')].reason"),
        ],
        _ => &[],
    }
}
