//! The closed list of resource kinds, with Calico's names and scopes, and where they are stored.
//!
//! Does not guess: an unknown kind is `None`, never a near match (the code that reports the mistake suggests the
//! nearest name).

use std::fmt;

/// The API version of every Calico resource, as users write it.
pub const API_VERSION: &str = "projectcalico.org/v3";

/// The API version of the custom resources that contain Calico's data in Kubernetes.
pub const CRD_API_VERSION: &str = "crd.projectcalico.org/v1";

/// The API group of those custom resources.
pub const CRD_GROUP: &str = "crd.projectcalico.org";

/// How a kind is represented in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesForm {
    /// As a custom resource under this plural.
    CustomResource {
        /// The plural, which is also the first part of the CRD's name.
        plural: &'static str,
        /// The kind of the custom resource, if it differs from the kind's own name.
        kind: &'static str,
        /// Whether the definition has a status subresource.
        status: bool,
    },
    /// Computed from Kubernetes' own objects.
    Native,
}

/// The fixed properties of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindInfo {
    /// The kind, as users write it.
    pub name: &'static str,
    /// The plural: the segment in etcd keys.
    pub plural: &'static str,
    /// Whether objects of the kind are namespaced.
    pub namespaced: bool,
    /// How it is represented in Kubernetes.
    pub kubernetes: KubernetesForm,
    /// Whether the kind is stored in etcd at all; the others exist only in feeds.
    pub stored: bool,
    /// The short names in the `projectcalico.org/v3` definitions.
    pub short_names: &'static [&'static str],
}

macro_rules! kinds {
    (@scope namespaced) => { true };
    (@scope cluster) => { false };
    (@stored stored) => { true };
    (@stored feed) => { false };
    ($($(#[$doc:meta])* $variant:ident, $plural:literal, $scope:ident, $stored:ident, $form:expr, [$($short:literal),*];)+) => {
        /// A kind of resource.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[$doc])* #[doc = concat!("`", stringify!($variant), "`")] $variant,)+
        }

        impl Kind {
            /// Every kind, in alphabetical order of the name.
            pub const ALL: &'static [Kind] = &[$(Kind::$variant),+];

            /// The fixed properties of the kind.
            #[must_use]
            pub const fn info(self) -> &'static KindInfo {
                match self {
                    $(Kind::$variant => const { &KindInfo {
                        name: stringify!($variant),
                        plural: $plural,
                        namespaced: kinds!(@scope $scope),
                        kubernetes: $form,
                        stored: kinds!(@stored $stored),
                        short_names: &[$($short),*],
                    } },)+
                }
            }
        }
    };
}

const fn crd(kind: &'static str, plural: &'static str) -> KubernetesForm {
    KubernetesForm::CustomResource { plural, kind, status: false }
}

const fn crd_with_status(kind: &'static str, plural: &'static str) -> KubernetesForm {
    KubernetesForm::CustomResource { plural, kind, status: true }
}

const NATIVE: KubernetesForm = KubernetesForm::Native;

kinds! {
    BGPConfiguration, "bgpconfigurations", cluster, stored, crd("BGPConfiguration", "bgpconfigurations"), ["bgpconfig", "bgpconfigs"];
    BGPFilter, "bgpfilters", cluster, stored, crd("BGPFilter", "bgpfilters"), [];
    BGPPeer, "bgppeers", cluster, stored, crd("BGPPeer", "bgppeers"), [];
    BlockAffinity, "blockaffinities", cluster, stored, crd("BlockAffinity", "blockaffinities"), ["affinity", "affinities"];
    CalicoNodeStatus, "caliconodestatuses", cluster, stored, crd_with_status("CalicoNodeStatus", "caliconodestatuses"), [];
    ClusterInformation, "clusterinformations", cluster, stored, crd("ClusterInformation", "clusterinformations"), ["clusterinfo", "clusterinfos"];
    FelixConfiguration, "felixconfigurations", cluster, stored, crd("FelixConfiguration", "felixconfigurations"), [];
    GlobalNetworkPolicy, "globalnetworkpolicies", cluster, stored, crd("GlobalNetworkPolicy", "globalnetworkpolicies"), ["gnp", "cgnp"];
    GlobalNetworkSet, "globalnetworksets", cluster, stored, crd("GlobalNetworkSet", "globalnetworksets"), ["gns"];
    HostEndpoint, "hostendpoints", cluster, stored, crd("HostEndpoint", "hostendpoints"), ["hep", "heps"];
    /// The custom resource behind an IPAM block; in etcd a block has a key of its own.
    IPAMBlock, "ipamblocks", cluster, feed, crd("IPAMBlock", "ipamblocks"), [];
    /// The user's view of the IPAM settings.
    IPAMConfiguration, "ipamconfigurations", cluster, stored, crd("IPAMConfig", "ipamconfigs"), ["ipamconfig", "ipamconfigs"];
    /// The custom resource behind an IPAM handle; in etcd a handle has a key of its own.
    IPAMHandle, "ipamhandles", cluster, feed, crd("IPAMHandle", "ipamhandles"), [];
    IPPool, "ippools", cluster, stored, crd_with_status("IPPool", "ippools"), [];
    IPReservation, "ipreservations", cluster, stored, crd("IPReservation", "ipreservations"), [];
    KubeControllersConfiguration, "kubecontrollersconfigurations", cluster, stored,
        crd_with_status("KubeControllersConfiguration", "kubecontrollersconfigurations"), ["kcc", "kccs"];
    /// A Kubernetes ClusterNetworkPolicy, converted; exists only in feeds.
    KubernetesClusterNetworkPolicy, "kubernetesclusternetworkpolicies", cluster, feed, NATIVE, [];
    /// A Kubernetes EndpointSlice; exists only in feeds.
    KubernetesEndpointSlice, "kubernetesendpointslices", namespaced, feed, NATIVE, [];
    /// A Kubernetes NetworkPolicy, converted; exists only in feeds.
    KubernetesNetworkPolicy, "kubernetesnetworkpolicies", namespaced, feed, NATIVE, [];
    /// A Kubernetes Service; exists only in feeds.
    KubernetesService, "kubernetesservice", namespaced, feed, NATIVE, [];
    /// A KubeVirt live migration, read only.
    LiveMigration, "livemigrations", namespaced, stored, NATIVE, [];
    NetworkPolicy, "networkpolicies", namespaced, stored, crd("NetworkPolicy", "networkpolicies"), ["cnp", "caliconetworkpolicy"];
    NetworkSet, "networksets", namespaced, stored, crd("NetworkSet", "networksets"), [];
    Node, "nodes", cluster, stored, NATIVE, [];
    Profile, "profiles", cluster, stored, NATIVE, [];
    StagedGlobalNetworkPolicy, "stagedglobalnetworkpolicies", cluster, stored,
        crd("StagedGlobalNetworkPolicy", "stagedglobalnetworkpolicies"), ["sgnp"];
    StagedKubernetesNetworkPolicy, "stagedkubernetesnetworkpolicies", namespaced, stored,
        crd("StagedKubernetesNetworkPolicy", "stagedkubernetesnetworkpolicies"), ["sknp"];
    StagedNetworkPolicy, "stagednetworkpolicies", namespaced, stored,
        crd("StagedNetworkPolicy", "stagednetworkpolicies"), ["scnp", "snp"];
    Tier, "tiers", cluster, stored, crd_with_status("Tier", "tiers"), [];
    WorkloadEndpoint, "workloadendpoints", namespaced, stored, NATIVE, [];
}

impl Kind {
    /// The kind as users write it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.info().name
    }

    /// The plural.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        self.info().plural
    }

    /// Whether objects of the kind are namespaced.
    #[must_use]
    pub const fn is_namespaced(self) -> bool {
        self.info().namespaced
    }

    /// The kind with exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }

    /// The kind with exactly this plural.
    #[must_use]
    pub fn from_plural(plural: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.plural() == plural)
    }

    /// Whether this is one of the four policy kinds whose stored name may have a tier prefix.
    #[must_use]
    pub const fn is_tiered_policy(self) -> bool {
        matches!(
            self,
            Self::NetworkPolicy
                | Self::GlobalNetworkPolicy
                | Self::StagedNetworkPolicy
                | Self::StagedGlobalNetworkPolicy
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_plurals_are_unique_and_can_be_looked_up() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.as_str()), Some(*kind));
            assert_eq!(Kind::from_plural(kind.plural()), Some(*kind));
        }
    }

    #[test]
    fn kinds_are_listed_in_order() {
        assert!(Kind::ALL.is_sorted_by_key(|kind| kind.as_str()));
    }
}
