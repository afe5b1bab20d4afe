//! The served resources as one table: their names in `kubectl`, which writes they allow, which fields select.
//!
//! Kinds that are missing here do not exist in this API: Node, WorkloadEndpoint, and IPAM's blocks and handles. The
//! names and categories are exactly Calico's, because scripts use them.

use api::Kind;

/// The API group.
pub(crate) const GROUP: &str = "projectcalico.org";
/// The API version.
pub(crate) const VERSION: &str = "v3";

/// Which writes the objects of a kind allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// All writes.
    All,
    /// No writes: components maintain these objects, and users only read them.
    Nothing,
}

/// A resource of this API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The kind.
    pub kind: Kind,
    /// Its short names.
    pub short_names: &'static [&'static str],
    /// Whether it lists the category without a name, as most do.
    pub has_category: bool,
    /// Whether it has a status subresource.
    pub has_status: bool,
    /// Which writes it allows.
    pub writes: Writes,
}

/// The verbs that every resource advertises, even those that refuse writes, as in Calico.
pub(crate) const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The verbs that a status subresource advertises.
pub(crate) const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

const fn plain(kind: Kind) -> Served {
    Served { kind, short_names: &[], has_category: true, has_status: false, writes: Writes::All }
}

const fn short(kind: Kind, short_names: &'static [&'static str]) -> Served {
    Served { short_names, ..plain(kind) }
}

/// All served resources, sorted by plural.
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
    /// Finds the resource with this plural.
    #[must_use]
    pub fn from_plural(plural: &str) -> Option<&'static Self> {
        SERVED.iter().find(|served| served.kind.plural() == plural)
    }

    /// The plural name.
    #[must_use]
    pub fn plural(&self) -> &'static str {
        self.kind.plural()
    }

    /// The kind of its lists.
    #[must_use]
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Its index among the served resources.
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
    fn resources_are_sorted_and_found_by_plural() {
        assert!(SERVED.is_sorted_by_key(Served::plural));
        for (place, served) in SERVED.iter().enumerate() {
            assert_eq!(Served::from_plural(served.plural()), Some(served));
            assert_eq!(served.index(), place);
        }
        assert_eq!(Served::from_plural("nodes"), None);
    }
}
