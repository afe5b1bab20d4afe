//! The names of each kind on the command line, and the columns of its table.
//!
//! Only kinds that users manage are here; what Calico computes for itself (blocks, handles, affinities) has its own
//! commands or none. Nothing is guessed: an unknown name is an error that suggests the nearest one.

mod columns;

pub use columns::Settings;
pub(crate) use columns::cell;

use crate::failure::{Failure, Result};
use api::Kind;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use std::ffi::OsStr;

/// One kind, as the command line presents it.
#[derive(Debug)]
pub struct KindEntry {
    /// The kind.
    pub kind: Kind,
    /// The accepted names in lower case, the canonical one first.
    pub names: &'static [&'static str],
    /// The columns of the short table.
    pub narrow: &'static [&'static str],
    /// The columns of the wide table.
    pub wide: &'static [&'static str],
    /// Columns that only `custom-columns` shows.
    pub hidden: &'static [&'static str],
}

impl KindEntry {
    /// Every column that this kind has, in alphabetical order.
    #[must_use]
    pub fn columns(&self) -> Vec<&'static str> {
        let mut all: Vec<_> = [self.narrow, self.wide, self.hidden].concat();
        if self.kind.is_namespaced() {
            all.push("NAMESPACE");
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

macro_rules! entry {
    ($kind:ident, [$($name:literal),+], [$($narrow:literal),+]) => {
        entry!($kind, [$($name),+], [$($narrow),+], [$($narrow),+], [])
    };
    ($kind:ident, [$($name:literal),+], [$($narrow:literal),+], [$($wide:literal),+]) => {
        entry!($kind, [$($name),+], [$($narrow),+], [$($wide),+], [])
    };
    ($kind:ident, [$($name:literal),+], [$($narrow:literal),+], [$($wide:literal),+], [$($hidden:literal),*]) => {
        KindEntry {
            kind: Kind::$kind,
            names: &[$($name),+],
            narrow: &[$($narrow),+],
            wide: &[$($wide),+],
            hidden: &[$($hidden),*],
        }
    };
}

/// Every kind of the command line, in alphabetical order.
pub const KINDS: &[KindEntry] = &[
    entry!(
        BGPConfiguration,
        ["bgpconfiguration", "bgpconfigurations", "bgpconfig", "bgpconfigs"],
        ["NAME", "LOGSEVERITY", "MESHENABLED", "ASNUMBER"]
    ),
    entry!(
        BGPFilter,
        ["bgpfilter", "bgpfilters", "bgpf", "bgpfs", "bf", "bfs"],
        ["NAME", "NUMEXPORTV4", "NUMIMPORTV4", "NUMEXPORTV6", "NUMIMPORTV6"]
    ),
    entry!(BGPPeer, ["bgppeer", "bgppeers", "bgpp", "bgpps", "bp", "bps"], ["NAME", "PEERIP", "NODE", "ASN"]),
    entry!(
        CalicoNodeStatus,
        ["caliconodestatus", "caliconodestatuses", "nodestatus", "nodestatuses"],
        ["NAME", "NODE"],
        ["NAME", "NODE", "CLASSES"]
    ),
    entry!(
        ClusterInformation,
        ["clusterinformation", "clusterinformations", "clusterinfo", "clusterinfos"],
        ["NAME", "CLUSTERGUID", "CLUSTERTYPE", "CALICOVERSION", "DATASTOREREADY"]
    ),
    entry!(
        FelixConfiguration,
        ["felixconfiguration", "felixconfigurations", "felixconfig", "felixconfigs"],
        ["NAME"]
    ),
    entry!(
        GlobalNetworkPolicy,
        ["globalnetworkpolicy", "globalnetworkpolicies", "gnp", "gnps"],
        ["NAME", "TIER"],
        ["NAME", "TIER", "ORDER", "SELECTOR"]
    ),
    entry!(
        GlobalNetworkSet,
        ["globalnetworkset", "globalnetworksets", "gnetsets", "gnetset"],
        ["NAME"],
        ["NAME", "NETS"]
    ),
    entry!(
        HostEndpoint,
        ["hostendpoint", "hostendpoints", "hep", "heps"],
        ["NAME", "NODE"],
        ["NAME", "NODE", "INTERFACE", "IPS", "PROFILES"]
    ),
    entry!(
        IPAMConfiguration,
        ["ipamconfiguration", "ipamconfigurations", "ipamconfig", "ipamconfigs"],
        ["NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS"],
        ["NAME", "STRICTAFFINITY", "AUTOALLOCATEBLOCKS", "MAXBLOCKSPERHOST"]
    ),
    entry!(
        IPPool,
        ["ippool", "ippools", "ipp", "ipps", "pool", "pools"],
        ["NAME", "CIDR", "SELECTOR"],
        [
            "NAME",
            "CIDR",
            "NAT",
            "IPIPMODE",
            "VXLANMODE",
            "DISABLED",
            "DISABLEBGPEXPORT",
            "SELECTOR",
            "ASSIGNMENTMODE"
        ]
    ),
    entry!(
        IPReservation,
        ["ipreservation", "ipreservations", "reservation", "reservations"],
        ["NAME"],
        ["NAME", "CIDRS"]
    ),
    entry!(
        KubeControllersConfiguration,
        [
            "kubecontrollersconfiguration",
            "kubecontrollersconfigurations",
            "kubecontrollersconfig",
            "kubecontrollersconfigs"
        ],
        ["NAME"]
    ),
    entry!(
        NetworkPolicy,
        ["networkpolicy", "networkpolicies", "policy", "np", "nps", "policies", "pol", "pols"],
        ["NAME", "TIER"],
        ["NAME", "TIER", "ORDER", "SELECTOR"]
    ),
    entry!(NetworkSet, ["networkset", "networksets", "netsets", "netset"], ["NAME"], ["NAME", "NETS"]),
    entry!(Node, ["node", "nodes", "no", "nos"], ["NAME"], ["NAME", "ASN", "IPV4", "IPV6"]),
    entry!(Profile, ["profile", "profiles", "pro", "pros"], ["NAME"], ["NAME", "LABELS"]),
    entry!(
        StagedGlobalNetworkPolicy,
        ["stagedglobalnetworkpolicy", "stagedglobalnetworkpolicies", "sgnp", "sgnps"],
        ["NAME", "TIER"],
        ["NAME", "TIER", "ORDER", "SELECTOR"]
    ),
    entry!(
        StagedKubernetesNetworkPolicy,
        [
            "stagedkubernetesnetworkpolicy",
            "stagedkubernetesnetworkpolicies",
            "stagedkubernetespolicy",
            "sknp",
            "sknps",
            "stagedkubernetespolicies",
            "skpol",
            "skpols"
        ],
        ["NAME"],
        ["NAME", "PODSELECTOR"]
    ),
    entry!(
        StagedNetworkPolicy,
        [
            "stagednetworkpolicy",
            "stagednetworkpolicies",
            "stagedpolicy",
            "snp",
            "snps",
            "stagedpolicies",
            "spol",
            "spols"
        ],
        ["NAME", "TIER"],
        ["NAME", "TIER", "ORDER", "SELECTOR"]
    ),
    entry!(Tier, ["tier", "tiers"], ["NAME", "ORDER"]),
    entry!(
        WorkloadEndpoint,
        ["workloadendpoint", "workloadendpoints", "wep", "weps"],
        ["WORKLOAD", "NODE", "NETWORKS", "INTERFACE"],
        ["NAME", "WORKLOAD", "NODE", "NETWORKS", "INTERFACE", "PROFILES", "NATS"],
        ["ORCHESTRATOR"]
    ),
];

/// Kinds that users ask for by their Kubernetes names, and where to find them instead.
const OF_KUBERNETES: &[(&[&str], &str)] = &[
    (&["pod", "pods", "po"], "pods are for kubectl; their endpoints are 'workloadendpoint'"),
    (&["namespace", "namespaces", "ns"], "namespaces are for kubectl; their profiles are 'profile'"),
    (&["netpol", "netpols"], "Kubernetes' own are for kubectl; Calico's are 'networkpolicy'"),
    (&["service", "services", "svc"], "services are for kubectl"),
    (&["deployment", "deployments", "deploy", "daemonset", "daemonsets", "ds"], "workloads are for kubectl"),
    (
        &["ipamblock", "ipamblocks", "block", "blocks"],
        "blocks are shown by 'calicoctl ipam show --show-blocks'",
    ),
];

/// Values that completion offers; others are accepted as well, and checked by the command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Words {
    /// A fixed list.
    Of(&'static [&'static str]),
    /// The names of the kinds.
    Kinds,
}

impl Words {
    #[must_use]
    pub(crate) const fn of(words: &'static [&'static str]) -> Self {
        Self::Of(words)
    }
}

impl TypedValueParser for Words {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let words: Vec<&'static str> = match self {
            Self::Of(words) => words.to_vec(),
            Self::Kinds => KINDS.iter().map(|entry| entry.names[0]).collect(),
        };
        Some(Box::new(words.into_iter().map(PossibleValue::new)))
    }
}

/// The entry of a kind; `None` for kinds that the command line does not manage.
#[must_use]
pub(crate) fn entry_of(kind: Kind) -> Option<&'static KindEntry> {
    KINDS.iter().find(|entry| entry.kind == kind)
}

/// The entry that the user means by this word; case is ignored.
///
/// # Errors
/// When no kind has this name.
pub(crate) fn find(word: &str) -> Result<&'static KindEntry> {
    let lower = word.to_lowercase();
    if let Some(entry) = KINDS.iter().find(|entry| entry.names.contains(&lower.as_str())) {
        return Ok(entry);
    }
    let names = KINDS.iter().flat_map(|entry| entry.names.iter().copied());
    if let Some((_, advice)) = OF_KUBERNETES.iter().find(|(words, _)| words.contains(&lower.as_str())) {
        return Err(Failure::new(format!("resource type '{word}' is not supported ({advice})")));
    }
    let nearest = names
        .map(|name| (strsim::damerau_levenshtein(&lower, name), name))
        .min()
        .filter(|(distance, name)| *distance <= 2 && *distance < name.len() / 2);
    let hint = match nearest {
        Some((_, name)) => format!(" (did you mean '{name}'?)"),
        None => {
            let all: Vec<&str> = KINDS.iter().map(|entry| entry.names[0]).collect();
            format!("; the types are: {}", all.join(", "))
        }
    };
    Err(Failure::new(format!("resource type '{word}' is not supported{hint}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_means_one_kind() {
        let mut seen = BTreeSet::new();
        for name in KINDS.iter().flat_map(|entry| entry.names) {
            assert!(seen.insert(*name), "{name} appears twice");
            assert_eq!(name.to_lowercase(), *name);
        }
        for entry in KINDS {
            assert_eq!(find(entry.kind.as_str()).unwrap().kind, entry.kind);
            assert_eq!(find(entry.kind.plural()).unwrap().kind, entry.kind);
        }
    }

    #[test]
    fn kinds_are_in_order() {
        assert!(KINDS.is_sorted_by_key(|entry| entry.kind));
    }

    #[test]
    fn a_misspelt_name_gets_a_suggestion() {
        let message = find("ipool").unwrap_err().message().to_owned();
        assert_eq!(message, "resource type 'ipool' is not supported (did you mean 'ippool'?)");
        assert!(find("xyzzy").unwrap_err().message().contains("workloadendpoint"));
        for (word, advice) in
            [("pods", "'workloadendpoint'"), ("netpol", "'networkpolicy'"), ("svc", "kubectl")]
        {
            let message = find(word).unwrap_err().message().to_owned();
            assert!(message.contains(advice) && !message.contains("did you mean"), "{message}");
        }
    }
}
