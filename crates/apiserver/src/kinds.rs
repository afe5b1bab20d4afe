//! The resources that are served, as one table: the names of `kubectl`, what may be written, which fields select.
//!
//! Kinds that are not here do not exist at this API: Node, WorkloadEndpoint, and IPAM's blocks and handles. The names and the
//! categories are Calico's, letter for letter: scripts use them.

use api::Kind;

/// The group.
pub(crate) const GROUP: &str = "projectcalico.org";
/// The version.
pub(crate) const VERSION: &str = "v3";

/// What may be done to the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Everything.
    All,
    /// Nothing: the objects are the components' own, and users only look.
    Nothing,
}

/// A resource of this API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The kind.
    pub kind: Kind,
    /// Its short names.
    pub short_names: &'static [&'static str],
    /// Whether it says that it belongs to the category without a name, as most do.
    pub has_category: bool,
    /// Whether it has a status of its own.
    pub has_status: bool,
    /// What may be written.
    pub writes: Writes,
}

/// What every resource advertises, also those that refuse to be written: Calico's do.
pub(crate) const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// What a status advertises.
pub(crate) const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

const fn plain(kind: Kind) -> Served {
    Served { kind, short_names: &[], has_category: true, has_status: false, writes: Writes::All }
}

const fn short(kind: Kind, short_names: &'static [&'static str]) -> Served {
    Served { short_names, ..plain(kind) }
}

/// All of them, in the order of their plurals.
pub const SERVED: [Served; 21] = [
    short(Kind::BGPConfiguration, &["bgpconfig", "bgpconfigs"]),
    plain(Kind::BGPFilter),
    plain(Kind::BGPPeer),
    Served {
        writes: Writes::Nothing,
        ..short(Kind::BlockAffinity, &["blockaffinity", "affinity", "affinities"])
    },
    Served { has_status: true, ..short(Kind::CalicoNodeStatus, &["caliconodestatus"]) },
    Served { writes: Writes::Nothing, ..short(Kind::ClusterInformation, &["clusterinfo"]) },
    short(Kind::FelixConfiguration, &["felixconfig", "felixconfigs"]),
    short(Kind::GlobalNetworkPolicy, &["gnp", "cgnp", "calicoglobalnetworkpolicies"]),
    plain(Kind::GlobalNetworkSet),
    short(Kind::HostEndpoint, &["hep", "heps"]),
    short(Kind::IPAMConfiguration, &["ipamconfig"]),
    Served { has_status: true, ..plain(Kind::IPPool) },
    plain(Kind::IPReservation),
    Served {
        has_category: false,
        has_status: true,
        ..short(Kind::KubeControllersConfiguration, &["kcconfig"])
    },
    short(Kind::NetworkPolicy, &["cnp", "caliconetworkpolicy", "caliconetworkpolicies"]),
    short(Kind::NetworkSet, &["netsets"]),
    plain(Kind::Profile),
    Served { has_category: false, ..short(Kind::StagedGlobalNetworkPolicy, &["sgnp"]) },
    Served { has_category: false, ..short(Kind::StagedKubernetesNetworkPolicy, &["sknp"]) },
    Served { has_category: false, ..short(Kind::StagedNetworkPolicy, &["snp"]) },
    Served { has_category: false, has_status: true, ..plain(Kind::Tier) },
];

impl Served {
    /// The resource of this plural.
    #[must_use]
    pub fn from_plural(plural: &str) -> Option<&'static Self> {
        SERVED.iter().find(|served| served.kind.plural() == plural)
    }

    /// The plural.
    #[must_use]
    pub fn plural(&self) -> &'static str {
        self.kind.plural()
    }

    /// The kind of a list of these.
    #[must_use]
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Its place among those that are served.
    #[must_use]
    pub fn index(&self) -> usize {
        SERVED.iter().position(|other| other.kind == self.kind).unwrap_or_default()
    }

    /// Whether a field selector may use this field.
    #[must_use]
    pub fn selects_by(&self, field: &str) -> bool {
        match field {
            "metadata.name" => true,
            "metadata.namespace" => self.kind.is_namespaced(),
            "spec.tier" => self.kind.is_tiered_policy(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_in_order_and_found_again() {
        assert!(SERVED.is_sorted_by_key(Served::plural));
        for (place, served) in SERVED.iter().enumerate() {
            assert_eq!(Served::from_plural(served.plural()), Some(served));
            assert_eq!(served.index(), place);
        }
        assert_eq!(Served::from_plural("nodes"), None);
    }
}
